//! What a host runs: six calls, two per neighbour, the shape of [`homa_proto::Endpoint`].
//!
//! After an input the simulator drains `event`, reads `deadline` again and, when the wire is free,
//! pulls `transmit`. `now` never decreases. A transport is chosen at compile time: no call here is
//! virtual. Packets are opaque values; what the fabric needs of one is its [`Label`].

pub mod either;
pub mod exchange;
mod homa;
pub mod ndp;
mod numbered;
pub mod parts;
pub mod pfabric;
pub mod phost;
mod stop_and_wait;
pub mod stream;
pub mod tcp;

#[cfg(test)]
mod tests;

pub use homa::{Homa, Moves, as_received};
pub use numbered::Numbered;
pub use stop_and_wait::StopAndWait;

use core::fmt::Debug;

use homa_proto::{Event, Receipt, RpcId, Submit, SubmitError, Submitted, Time};

use crate::fabric::Marks;
use crate::nic::NicCounters;
use crate::topology::HostId;

/// What the fabric needs to know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where it goes.
    pub to: HostId,
    /// Bytes on the wire, preamble and inter-frame gap included.
    pub wire_bytes: u32,
    /// Priority level 0 (lowest) to 7.
    pub priority: u8,
    /// Packets with the same label between the same hosts take the same path under per-flow ECMP.
    pub flow: u32,
    /// ECN-capable transport (RFC 3168 §5): switches may mark the packet.
    pub ect: bool,
    /// Switches that distinguish may drop it before others.
    pub droppable: bool,
    /// What a switch that ranks packets goes by, the lowest first (pFabric §4.1: the bytes that the
    /// message has left).
    pub rank: u64,
}

impl Label {
    /// A packet of the lowest priority, with no flow, mark or rank.
    pub const fn new(to: HostId, wire_bytes: u32) -> Self {
        Self { to, wire_bytes, priority: 0, flow: 0, ect: false, droppable: false, rank: 0 }
    }

    /// The marks with which it leaves its host.
    #[inline]
    pub(crate) const fn marks(&self) -> Marks {
        Marks::NONE.with(Marks::ECT, self.ect).with(Marks::DROPPABLE, self.droppable)
    }
}

/// What the wire knew of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub from: HostId,
    /// The level it arrived with.
    pub priority: u8,
    /// A switch on its way marked congestion (RFC 3168 §5, CE).
    pub ce: bool,
    /// A switch cut its payload off: only the header is here (NDP §3.1).
    pub trimmed: bool,
    /// It is the host's own packet, sent back by a switch (NDP §3.2.4).
    pub returned: bool,
    /// The network card merged it with the next one of its flow: only the last of such counts as a
    /// packet for acknowledgements (receive offload).
    pub merged: bool,
}

impl Arrival {
    /// A packet as it was sent.
    pub const fn new(from: HostId, priority: u8) -> Self {
        Self { from, priority, ce: false, trimmed: false, returned: false, merged: false }
    }
}

/// What a packet carries, as far as measures need to know. Messages go by their
/// [`message_number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes of a message, from its sender.
    Data(DataContent),
    /// To the sender of a message: bytes before `offset` may be sent. A window's acknowledgement is
    /// one, too.
    Permit {
        /// The message's number.
        message: u32,
        /// The first byte that may not be sent yet.
        offset: u32,
    },
    /// Anything else.
    Other,
}

/// A range of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataContent {
    /// The message's number.
    pub message: u32,
    /// The first byte.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Bytes of the whole message.
    pub total: u32,
    /// The first byte that its sender may not send without another permit; at least `total`: none
    /// is needed.
    pub permitted: u32,
    /// It was sent before.
    pub resent: bool,
}

/// The number of a message, by which applications and measures know it: its sender counts the
/// messages and requests that it accepted from 1, and puts the number into the id of what it
/// delivers, in the bits from the second one on ([`message_id`]; RPC ids of Homa count so, the
/// lowest bit tells client from server). A response goes by its request's number.
#[inline]
pub fn message_number(id: RpcId) -> u32 {
    id.0 as u32 >> 1
}

/// The id of a message by its number.
pub fn message_id(number: u32) -> RpcId {
    RpcId(u64::from(number) << 1)
}

/// What a host's retransmission timers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Times that one expired.
    pub expired: u64,
    /// Flows with at least one such time: of TCP, sending ends of connections.
    pub flows: u64,
}

/// A host transport.
pub trait Transport {
    /// What travels: as small as possible, since it is copied twice.
    type Packet: Copy + Debug;

    /// Application in. Peers are numbered as hosts.
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError>;
    /// The same at a priority level that the application chose; transports that choose themselves
    /// take no notice.
    fn submit_at(
        &mut self,
        now: Time,
        what: Submit,
        _level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        self.submit(now, what)
    }
    /// Application out.
    fn event(&mut self) -> Option<Event>;
    /// Network in: a packet as its sender's `transmit` gave it.
    fn receive(&mut self, now: Time, packet: &Self::Packet, arrival: Arrival) -> Receipt;
    /// Network out: the wire is free, which packet next?
    fn transmit(&mut self, now: Time) -> Option<Self::Packet>;
    /// What the fabric needs to know of a packet just given by `transmit`.
    fn label(&self, packet: &Self::Packet) -> Label;
    /// What a packet carries; by default nothing is known, and what needs it measures nothing.
    fn content(_packet: &Self::Packet) -> Content {
        Content::Other
    }
    /// An acknowledgement says that its flow met congestion (RFC 3168, ECN-Echo).
    fn echoes_congestion(_packet: &Self::Packet) -> bool {
        false
    }
    /// What the network card counted so far, where it does more than send.
    fn nic(&self, _now: Time) -> Option<NicCounters> {
        None
    }
    /// A host marks a packet of its own as having met congestion (CE).
    fn mark_congestion(_packet: &mut Self::Packet) {}
    /// Packets that `receive` refused so far, such as copies of what is here.
    fn refused(&self) -> u64 {
        0
    }
    /// Retransmission timeouts so far, for transports that have them.
    fn timeouts(&self) -> Timeouts {
        Timeouts::default()
    }
    /// Clock in; idempotent, stale calls are legal.
    fn expire(&mut self, now: Time);
    /// Clock out: when to call `expire` next.
    fn deadline(&self) -> Option<Time>;
    /// Steps of [`Transport::prefetch`]: none, unless a transport has many hosts' state to wait
    /// for.
    const PREFETCH_STEPS: u32 = 0;
    /// Reads, without effect, what `receive` of a packet from a host will look at, or `transmit`
    /// without one; the reads of a step follow those of the step before. The result means nothing.
    fn prefetch(&self, _step: u32, _packet: Option<(&Self::Packet, HostId)>) -> u64 {
        0
    }
    /// Priority flow control reached this host: packets of these levels, as bits, may not leave
    /// until another call says so. A transport that heeds it chooses what it sends when that may
    /// leave; what `transmit` gives of such a level all the same waits in the network card
    /// ([`crate::nic::card`]), and nothing behind it.
    fn pause(&mut self, _now: Time, _levels: u8) {}
    /// False only when `transmit` would yield nothing until another input comes: spares a wake-up.
    fn has_packet(&self) -> bool {
        true
    }
}
