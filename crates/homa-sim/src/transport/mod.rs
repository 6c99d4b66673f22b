//! What a host runs: six calls, two per neighbour, the shape of [`homa_proto::Endpoint`].
//!
//! After an input the simulator drains `event`, reads `deadline` again and, when the wire is free,
//! pulls `transmit`. `now` never decreases. A transport is chosen at compile time: no call here is
//! virtual. Packets are opaque values; what the fabric needs of one is its [`Label`].

mod homa;

pub use homa::{Homa, as_received};

use core::fmt::Debug;

use homa_proto::{Event, Receipt, Submit, SubmitError, Submitted, Time};

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
}

/// What the wire knew of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub from: HostId,
    /// The level it arrived with.
    pub priority: u8,
}

/// A host transport.
pub trait Transport {
    /// What travels: as small as possible, since it is copied twice.
    type Packet: Copy + Debug;

    /// Application in. Peers are numbered as hosts.
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError>;
    /// Application out.
    fn event(&mut self) -> Option<Event>;
    /// Network in: a packet as its sender's `transmit` gave it.
    fn receive(&mut self, now: Time, packet: &Self::Packet, arrival: Arrival) -> Receipt;
    /// Network out: the wire is free, which packet next?
    fn transmit(&mut self, now: Time) -> Option<Self::Packet>;
    /// What the fabric needs to know of a packet just given by `transmit`.
    fn label(&self, packet: &Self::Packet) -> Label;
    /// Clock in; idempotent, stale calls are legal.
    fn expire(&mut self, now: Time);
    /// Clock out: when to call `expire` next.
    fn deadline(&self) -> Option<Time>;
    /// Steps of [`Transport::read_ahead`]: none, unless a transport has many hosts' state to wait
    /// for.
    const READ_AHEAD_STEPS: u32 = 0;
    /// Reads, without effect, what `receive` of a packet from a host will look at, or `transmit`
    /// without one; the reads of a step follow those of the step before. The result means nothing.
    fn read_ahead(&self, _step: u32, _packet: Option<(&Self::Packet, HostId)>) -> u64 {
        0
    }
    /// False only when `transmit` would yield nothing until another input comes: spares a wake-up.
    fn has_packet(&self) -> bool {
        true
    }
}
