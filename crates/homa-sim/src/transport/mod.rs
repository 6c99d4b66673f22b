//! A host transport: six calls, two per neighbour, in the shape of [`homa_proto::Endpoint`].
//!
//! After an input the simulator drains `event`, reads `deadline` again and, if the wire is free,
//! pulls `transmit`. `now` never decreases. A transport is chosen at compile time, so no call here
//! is virtual. Packets are opaque values; the fabric sees only a packet's [`Label`].

pub mod dcpim;
pub mod either;
pub mod exchange;
mod homa;
pub mod ndp;
mod numbered;
pub mod parts;
pub mod pfabric;
pub mod phost;
pub mod rdma;
pub mod sird;
mod stop_and_wait;
pub mod stream;
pub mod tcp;
pub mod uet;

#[cfg(test)]
mod tests;

pub use homa::{Homa, Moves, as_received};
pub use numbered::Numbered;
pub use stop_and_wait::StopAndWait;

use core::fmt::Debug;

use homa_proto::{Event, Receipt, RpcId, Submit, SubmitError, Submitted, Time};

use crate::fabric::Marks;
use crate::nic::NicCounters;
use crate::time::SimTime;
use crate::topology::HostId;

/// The properties of a packet that the fabric uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Destination.
    pub to: HostId,
    /// Bytes on the wire, preamble and inter-frame gap included.
    pub wire_bytes: u32,
    /// Priority level 0 (lowest) to 7.
    pub priority: u8,
    /// Packets with the same label between the same hosts take the same path under per-flow ECMP.
    pub flow: u32,
    /// ECN-capable transport (RFC 3168 §5): switches may mark the packet.
    pub ect: bool,
    /// Switches that make this distinction may drop the packet before others.
    pub droppable: bool,
    /// The rank by which a switch orders packets, lowest first (pFabric §4.1: the remaining bytes
    /// of the message).
    pub rank: u64,
}

impl Label {
    /// A packet of the lowest priority, with no flow, mark or rank.
    pub const fn new(to: HostId, wire_bytes: u32) -> Self {
        Self { to, wire_bytes, priority: 0, flow: 0, ect: false, droppable: false, rank: 0 }
    }

    /// The marks that it carries when it leaves its host.
    #[inline]
    pub(crate) const fn marks(&self) -> Marks {
        Marks::NONE.with(Marks::ECT, self.ect).with(Marks::DROPPABLE, self.droppable)
    }
}

/// Metadata that the wire adds to an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// The sender.
    pub from: HostId,
    /// The level it arrived with.
    pub priority: u8,
    /// A switch on its way marked congestion (RFC 3168 §5, CE).
    pub ce: bool,
    /// A switch trimmed its payload, so that only the header arrived (NDP §3.1).
    pub trimmed: bool,
    /// The switch that trimmed it was the last one, and its port has a queue that tells (UET).
    pub last_hop: bool,
    /// It is the host's own packet, sent back by a switch (NDP §3.2.4).
    pub returned: bool,
    /// The NIC merged it with the next packet of its flow (receive offload). Of merged packets,
    /// only the last counts for acknowledgements.
    pub merged: bool,
}

impl PacketMeta {
    /// A packet that arrives as it was sent.
    pub const fn new(from: HostId, priority: u8) -> Self {
        Self {
            from,
            priority,
            ce: false,
            trimmed: false,
            last_hop: false,
            returned: false,
            merged: false,
        }
    }
}

/// The port of a switch at the moment at which a packet's first bit leaves: what in-band network
/// telemetry (INT) reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingHop {
    /// That moment.
    pub at: SimTime,
    /// Wire bytes that the port has sent before this packet.
    pub sent_bytes: u64,
    /// Wire bytes that wait behind it, at all levels.
    pub queued_bytes: u32,
    /// The link's rate, Mbit/s.
    pub mbps: u32,
}

/// The part of a packet's content that measures use. A message is identified by its
/// [`message_number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketContent {
    /// Bytes of a message, from its sender.
    Data(DataContent),
    /// For the sender of a message: bytes before `offset` may be sent. An acknowledgement that
    /// opens a window is a permit, too.
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
    /// The first byte that the sender may not send without a further permit; `total` or more if it
    /// needs none.
    pub permitted: u32,
    /// It was sent before.
    pub resent: bool,
}

/// The number by which applications and measures identify a message. The sender counts the messages
/// and requests that it accepted, from 1, and puts the number into the id of the delivered message,
/// above the lowest bit ([`message_id`]). RPC ids of Homa have the same form; their lowest bit
/// tells client from server. A response has the number of its request.
#[inline]
pub fn message_number(id: RpcId) -> u32 {
    id.0 as u32 >> 1
}

/// The id of the message with this number.
pub fn message_id(number: u32) -> RpcId {
    RpcId(u64::from(number) << 1)
}

/// Counts of retransmission timeouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// How often one occurred.
    pub expired: u64,
    /// Flows with at least one timeout; for TCP, sending ends of connections.
    pub flows: u64,
    /// Those of them at a level above 0 that the application chose.
    pub raised: u64,
}

impl Timeouts {
    /// The sums of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            expired: self.expired + other.expired,
            flows: self.flows + other.flows,
            raised: self.raised + other.raised,
        }
    }
}

/// A host transport.
pub trait Transport: Send {
    /// A packet: as small as possible, because it is copied twice.
    type Packet: Copy + Debug + Send;

    /// Application in. Peer numbers are host numbers.
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError>;
    /// The same, at a priority level that the application chose. Transports that choose the level
    /// themselves ignore it.
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
    fn receive(&mut self, now: Time, packet: &Self::Packet, arrival: PacketMeta) -> Receipt;
    /// Network out: the wire is free, so which packet is next?
    fn transmit(&mut self, now: Time) -> Option<Self::Packet>;
    /// The label of a packet that `transmit` just returned.
    fn label(&self, packet: &Self::Packet) -> Label;
    /// The content of a packet. The default reveals nothing, and measures that need it stay empty.
    fn content(_packet: &Self::Packet) -> PacketContent {
        PacketContent::Other
    }
    /// Whether an acknowledgement reports congestion on its flow (RFC 3168, ECN-Echo).
    fn echoes_congestion(_packet: &Self::Packet) -> bool {
        false
    }
    /// The NIC's counters so far, if it does more than send.
    fn nic(&self, _now: Time) -> Option<NicCounters> {
        None
    }
    /// A host marks a packet of itself as having met congestion (CE).
    fn mark_congestion(_packet: &mut Self::Packet) {}
    /// Whether switches write what [`LeavingHop`] says into packets.
    const IS_STAMPED: bool = false;
    /// A packet leaves a port of a switch. Called only if [`Transport::IS_STAMPED`].
    fn stamp(_packet: &mut Self::Packet, _hop: &LeavingHop) {}
    /// Packets that `receive` refused so far, for example duplicates.
    fn refused(&self) -> u64 {
        0
    }
    /// Retransmission timeouts so far, if the transport has them.
    fn timeouts(&self) -> Timeouts {
        Timeouts::default()
    }
    /// Clock in. It is idempotent, and calls that come too early do no harm.
    fn expire(&mut self, now: Time);
    /// Clock out: when to call `expire` next.
    fn deadline(&self) -> Option<Time>;
    /// Steps of [`Transport::prefetch`]: none, unless a transport keeps much state per host and
    /// would wait for memory.
    const PREFETCH_STEPS: u32 = 0;
    /// Reads, without effect, the memory that `receive` of a packet from a host (or `transmit`,
    /// without a packet) will use. The reads of a step depend on those of the step before. The
    /// result has no meaning.
    fn prefetch(&self, _step: u32, _packet: Option<(&Self::Packet, HostId)>) -> u64 {
        0
    }
    /// Priority flow control reached this host: packets of these levels, as bits, may not leave
    /// until the next call. A transport that supports this does not send on paused levels. If
    /// `transmit` returns such a packet nevertheless, it waits in the NIC ([`crate::nic::card`]),
    /// and all packets after it wait, too.
    fn pause(&mut self, _now: Time, _levels: u8) {}
    /// False only if `transmit` would return nothing until another input comes; saves a wake-up.
    fn has_packet(&self) -> bool {
        true
    }
}
