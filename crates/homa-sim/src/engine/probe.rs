//! Observation of a run: one method per kind of event, each empty unless overridden, so that an
//! event without an observer costs nothing. A probe cannot influence the run.
//!
//! Events of one host come in the order of time, and so do those of one port. Between ports,
//! `departed` may be late by at most the link's delay, because ports are lazy. A probe should
//! therefore use the time given, not the order of calls.

use homa_proto::{Event, Rate, Receipt, Submit, SubmitError, Submitted};

use crate::time::SimTime;
use crate::topology::{HostId, PortId, Tier};
use crate::transport::{Label, Transport};

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// An injected fault ([`super::Fault`]).
    Fault,
    /// The queue of an output port dropped it, because it was full or kept more important frames.
    Overflow,
    /// The destination host was down.
    HostDown,
    /// A link on its path failed.
    LinkDown,
    /// The host does not exist, or no route leads to it.
    NoRoute,
}

/// A frame at a port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtPort {
    /// The port.
    pub port: PortId,
    /// The port's place in the hierarchy.
    pub tier: Tier,
    /// Identifies the packet from `transmitted` or `copied` to `received` or `lost`; then the
    /// number is reused.
    pub slot: u32,
    /// Bytes on the wire.
    pub wire_bytes: u32,
    /// Priority level.
    pub priority: u8,
}

/// The queue that a frame finds when it arrives at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortBacklog {
    /// Wire bytes that wait, of all priorities.
    pub queued_bytes: u64,
    /// Wire bytes of the frame in service that have not left yet.
    pub residual_bytes: u32,
    /// Level of the frame in service; undefined if `residual_bytes` is 0.
    pub in_service_priority: u8,
}

/// Observes a run. `T` is the hosts' transport, whose packets the probe may read.
pub trait Probe<T: Transport> {
    /// An application submitted a message.
    #[inline]
    fn submitted(
        &mut self,
        _now: SimTime,
        _host: HostId,
        _what: &Submit,
        _result: &Result<Submitted, SubmitError>,
    ) {
    }

    /// A transport reported an event to its application.
    #[inline]
    fn event(&mut self, _now: SimTime, _host: HostId, _event: &Event) {}

    /// A packet's first bit leaves its host.
    #[inline]
    fn transmitted(
        &mut self,
        _now: SimTime,
        _host: HostId,
        _slot: u32,
        _packet: &T::Packet,
        _label: &Label,
    ) {
    }

    /// A packet arrives at a switch's output port, before it is queued.
    #[inline]
    fn enqueued(&mut self, _now: SimTime, _frame: &AtPort, _backlog: &PortBacklog) {}

    /// A packet's first bit leaves a switch's output port.
    #[inline]
    fn departed(&mut self, _at: SimTime, _frame: &AtPort) {}

    /// A frame of higher priority interrupts this one, which has `wire_bytes` left.
    #[inline]
    fn interrupted(&mut self, _now: SimTime, _frame: &AtPort) {}

    /// The rest of an interrupted frame begins to leave.
    #[inline]
    fn resumed(&mut self, _now: SimTime, _frame: &AtPort) {}

    /// A switch trimmed a frame's payload; `wire_bytes` are left.
    #[inline]
    fn trimmed(&mut self, _now: SimTime, _frame: &AtPort) {}

    /// A switch returns a packet, of now `wire_bytes`, to its sender.
    #[inline]
    fn returned(&mut self, _now: SimTime, _slot: u32, _wire_bytes: u16) {}

    /// A link duplicated a packet. Both copies take effect, one by one.
    #[inline]
    fn copied(&mut self, _now: SimTime, _slot: u32, _copy: u32) {}

    /// A packet at the end of a link takes effect only at `until`.
    #[inline]
    fn deferred(&mut self, _now: SimTime, _slot: u32, _until: SimTime) {}

    /// The transport of `host` processed a packet.
    #[inline]
    fn received(
        &mut self,
        _now: SimTime,
        _host: HostId,
        _from: HostId,
        _slot: u32,
        _packet: &T::Packet,
        _receipt: &Receipt,
    ) {
    }

    /// A packet to `to` was lost.
    #[inline]
    fn lost(
        &mut self,
        _now: SimTime,
        _to: HostId,
        _slot: u32,
        _packet: &T::Packet,
        _cause: LossCause,
    ) {
    }

    /// A link has another rate from the next frame on.
    #[inline]
    fn rate_changed(&mut self, _now: SimTime, _port: PortId, _rate: Rate) {}

    /// `host` crashed and lost its state.
    #[inline]
    fn crashed(&mut self, _now: SimTime, _host: HostId) {}

    /// `host` restarted with a new transport.
    #[inline]
    fn restarted(&mut self, _now: SimTime, _host: HostId) {}
}

/// Observes nothing.
impl<T: Transport> Probe<T> for () {}

macro_rules! both {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[inline] fn $name(&mut self, $($arg: $type),*) {
            self.0.$name($($arg),*);
            self.1.$name($($arg),*);
        })*
    };
}

macro_rules! behind {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[inline] fn $name(&mut self, $($arg: $type),*) {
            (**self).$name($($arg),*);
        })*
    };
}

macro_rules! maybe {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(#[inline] fn $name(&mut self, $($arg: $type),*) {
            if let Some(probe) = self {
                probe.$name($($arg),*);
            }
        })*
    };
}

/// Lists all methods of [`Probe`] for a macro that forwards them.
macro_rules! forwarded {
    ($forward:ident) => {
        $forward! {
            submitted(
                now: SimTime, host: HostId, what: &Submit, result: &Result<Submitted, SubmitError>
            );
            event(now: SimTime, host: HostId, event: &Event);
            transmitted(now: SimTime, host: HostId, slot: u32, packet: &T::Packet, label: &Label);
            enqueued(now: SimTime, frame: &AtPort, backlog: &PortBacklog);
            departed(at: SimTime, frame: &AtPort);
            interrupted(now: SimTime, frame: &AtPort);
            resumed(now: SimTime, frame: &AtPort);
            trimmed(now: SimTime, frame: &AtPort);
            returned(now: SimTime, slot: u32, wire_bytes: u16);
            copied(now: SimTime, slot: u32, copy: u32);
            deferred(now: SimTime, slot: u32, until: SimTime);
            received(
                now: SimTime, host: HostId, from: HostId, slot: u32, packet: &T::Packet,
                receipt: &Receipt
            );
            lost(now: SimTime, to: HostId, slot: u32, packet: &T::Packet, cause: LossCause);
            rate_changed(now: SimTime, port: PortId, rate: Rate);
            crashed(now: SimTime, host: HostId);
            restarted(now: SimTime, host: HostId);
        }
    };
}

/// Two probes that observe the same run.
impl<T: Transport, A: Probe<T>, B: Probe<T>> Probe<T> for (A, B) {
    forwarded!(both);
}

/// A probe that a run may leave out.
impl<T: Transport, A: Probe<T>> Probe<T> for Option<A> {
    forwarded!(maybe);
}

/// A borrowed probe, whose results outlive the simulation.
impl<T: Transport, A: Probe<T>> Probe<T> for &mut A {
    forwarded!(behind);
}
