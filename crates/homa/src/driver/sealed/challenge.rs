//! The challenge that a server carries in its handshake, so that the first call of a client needs
//! no round trip for it (`docs/encryption.md`, "Proof of address").
//!
//! The protocol has no special case for it: the server's engine is told that the client was
//! challenged, and the client's engine gets the challenge as the packet that it replaces.

use homa_proto::wire::datagram;
use homa_proto::{Body, Duration, Packet, PeerId, RpcId};

use super::packets::Arrival;
use super::{ChallengedClient, Sealed, Way};
use crate::config::random;

/// Bytes of a challenge: id, boot id, and remembered nanoseconds.
const LEN: usize = 24;
/// Room for the packet of a challenge.
const PACKET_MAX: usize = 128;

/// Whether a handshake of a client carries a challenge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Challenging {
    /// Not decided: our flight is not due.
    Not,
    /// Our flight waits for the engine's challenge.
    Waits,
    /// Our flight was sent, with this challenge.
    Done(Option<SentChallenge>),
}

impl Challenging {
    /// The client, if it was challenged.
    pub(super) fn of_client(self, way: &Way) -> Option<ChallengedClient> {
        let Self::Done(Some(SentChallenge { id, boot })) = self else { return None };
        Some(ChallengedClient { from: way.to, to: way.source, id, boot })
    }
}

/// A challenge that a client got.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentChallenge {
    id: RpcId,
    boot: u64,
}

impl SentChallenge {
    /// A challenge under a random id.
    pub(super) fn new(boot: u64) -> Self {
        Self { id: RpcId(random()).server(), boot }
    }

    /// As it travels.
    pub(super) fn bytes(self, remembered: Duration) -> Vec<u8> {
        [self.id.0, self.boot, remembered.0].map(u64::to_be_bytes).concat()
    }
}

/// The packet that a challenge stands for; `None` if it is too short.
fn packet(bytes: &[u8], (local_port, remote_port): (u16, u16)) -> Option<Packet> {
    let (fields, _) = bytes.first_chunk::<LEN>()?.as_chunks::<8>();
    let field = |at: usize| fields.get(at).map(|bytes| u64::from_be_bytes(*bytes));
    let (id, boot, remembered) = (RpcId(field(0)?).server(), field(1)?, Duration(field(2)?));
    let body = Body::Challenge { boot, remembered };
    Some(Packet { peer: PeerId(0), priority: 0, local_port, remote_port, id, body })
}

impl Sealed {
    /// Hands a server's challenge to the engine.
    pub(super) fn deliver_challenge(&mut self, way: Way, challenge: &[u8]) {
        let local = self.inner.local().get(way.socket).map_or(0, std::net::SocketAddr::port);
        let Some(packet) = packet(challenge, (local, way.to.port())) else { return };
        let Some(entry) = self.sessions.to(&way) else { return };
        let identity = entry.identity.clone();
        let start = self.bytes.len();
        self.bytes.resize(start + PACKET_MAX, 0);
        let len = datagram::encode(&packet, 0, &mut self.bytes[start..]).unwrap_or(0);
        self.bytes.truncate(start + len);
        self.arrivals.push(Arrival::new(way, identity, start..start + len));
    }
}
