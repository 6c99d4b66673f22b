//! Hosts of two kinds in one simulation. Each runs one of two transports, over the same links and
//! ports. Messages go between hosts of one kind only; a host refuses packets of the other kind.

use homa_proto::{DropReason, Event, Receipt, Submit, SubmitError, Submitted, Time};

use super::{Label, PacketContent, PacketMeta, Timeouts, Transport};

/// A host, or a packet, of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Either<A, B> {
    /// The first kind.
    First(A),
    /// The second kind.
    Second(B),
}

/// Evaluates the same expression for either kind.
macro_rules! both {
    ($either:expr, $one:ident => $what:expr) => {
        match $either {
            Either::First($one) => $what,
            Either::Second($one) => $what,
        }
    };
}

impl<A: Transport, B: Transport> Transport for Either<A, B> {
    type Packet = Either<A::Packet, B::Packet>;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        both!(self, host => host.submit(now, what))
    }

    fn submit_at(
        &mut self,
        now: Time,
        what: Submit,
        level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        both!(self, host => host.submit_at(now, what, level))
    }

    #[inline]
    fn event(&mut self) -> Option<Event> {
        both!(self, host => host.event())
    }

    #[inline]
    fn receive(&mut self, now: Time, packet: &Self::Packet, arrival: PacketMeta) -> Receipt {
        match (self, packet) {
            (Self::First(host), Either::First(packet)) => host.receive(now, packet, arrival),
            (Self::Second(host), Either::Second(packet)) => host.receive(now, packet, arrival),
            _ => Receipt::Dropped(DropReason::UnknownRpc),
        }
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<Self::Packet> {
        match self {
            Self::First(host) => host.transmit(now).map(Either::First),
            Self::Second(host) => host.transmit(now).map(Either::Second),
        }
    }

    #[inline]
    fn label(&self, packet: &Self::Packet) -> Label {
        match (self, packet) {
            (Self::First(host), Either::First(packet)) => host.label(packet),
            (Self::Second(host), Either::Second(packet)) => host.label(packet),
            _ => unreachable!("a host is asked for its own packets only"),
        }
    }

    fn content(packet: &Self::Packet) -> PacketContent {
        match packet {
            Either::First(packet) => A::content(packet),
            Either::Second(packet) => B::content(packet),
        }
    }

    fn refused(&self) -> u64 {
        both!(self, host => host.refused())
    }

    fn timeouts(&self) -> Timeouts {
        both!(self, host => host.timeouts())
    }

    fn expire(&mut self, now: Time) {
        both!(self, host => host.expire(now));
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        both!(self, host => host.deadline())
    }

    #[inline]
    fn has_packet(&self) -> bool {
        both!(self, host => host.has_packet())
    }
}
