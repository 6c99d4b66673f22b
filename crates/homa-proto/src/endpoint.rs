//! The endpoint: owns the tables and routes each input to the module of its rule. No policy lives here.

use crate::config::ValidConfig;
use crate::counters::Counters;
use crate::event::{Event, Receipt, Submit, SubmitError, Submitted};
use crate::packet::{Packet, PeerId};
use crate::units::Time;

/// What the environment knows about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Peers on one host share this number (overcommitment counts sender hosts, Homa §3.5).
    pub host: u32,
    /// Message bytes that fit in one DATA packet to this peer.
    pub max_payload: u32,
}

/// One host's side of the protocol. See the crate's documentation for the calling contract.
pub struct Endpoint {
    config: ValidConfig,
    counters: Counters,
}

impl Endpoint {
    /// An endpoint without peers.
    pub fn new(config: ValidConfig) -> Self {
        Self { config, counters: Counters::default() }
    }

    /// Introduces a peer before its number appears in any other call.
    pub fn open_peer(&mut self, _peer: PeerId, _info: PeerInfo) {}

    /// Forgets a peer; false while RPCs with it are in progress.
    pub fn close_peer(&mut self, _peer: PeerId) -> bool {
        true
    }

    /// Accepts requests addressed to a Homa port.
    pub fn listen(&mut self, _port: u16) {}

    /// Refuses new requests to a Homa port; those in progress go on.
    pub fn unlisten(&mut self, _port: u16) {}

    /// Application in: see [`Submit`].
    pub fn submit(&mut self, _now: Time, _what: Submit) -> Result<Submitted, SubmitError> {
        Err(SubmitError::UnknownPeer)
    }

    /// Network in. After [`Receipt::Place`], copy the bytes before draining events.
    pub fn receive(&mut self, _now: Time, _packet: &Packet) -> Receipt {
        Receipt::Consumed
    }

    /// Clock in: acts on everything due at `now`. Idempotent; stale wake-ups are legal.
    pub fn expire(&mut self, _now: Time) {}

    /// Clock out: when to call `expire` next.
    pub fn deadline(&self) -> Option<Time> {
        None
    }

    /// Network out: the next packet, chosen now. Call when the link can take one; `None` when nothing
    /// may be sent.
    pub fn transmit(&mut self, _now: Time) -> Option<Packet> {
        None
    }

    /// True when `transmit` would yield a packet.
    pub fn has_packet(&self) -> bool {
        false
    }

    /// Application out: the next event.
    pub fn event(&mut self) -> Option<Event> {
        None
    }

    /// Environment in: bytes of incoming messages (received or granted, not delivered) that may be held.
    /// Lowering it withholds grants and drops unscheduled data, to be asked for again later.
    pub fn limit_memory(&mut self, _now: Time, _bytes: u64) {}

    /// Environment in: the network says the peer (or only its `port`) cannot be reached (ICMP).
    pub fn unreachable(&mut self, _now: Time, _peer: PeerId, _port: Option<u16>) {}

    /// RPCs in progress as client and as server.
    pub fn rpcs(&self) -> (usize, usize) {
        (0, 0)
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// For drops decided outside (undecodable packets).
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The configuration.
    pub fn config(&self) -> &ValidConfig {
        &self.config
    }
}
