//! Checks that hosts do not amplify: to an address they do not know, they send at most three times
//! the bytes that came from there, so that a forged source address cannot direct a flood at a
//! victim (RFC 9000 §8; `docs/security.md`).
//!
//! It counts the bytes of IP packets over UDP between a host and an address with which it never had
//! a call. Traffic to the hostile host's real address is not counted, because it may be a client.

use std::collections::{BTreeMap, BTreeSet};

use homa_proto::{Body, Packet, wire};

use crate::time::SimTime;
use crate::topology::HostId;

use super::Checker;

/// Headers of IPv4 and UDP, and the header of a datagram.
const HEADERS: u64 = 20 + 8 + 16;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Exchanged {
    /// By host and address: bytes that came from it, and bytes sent to it.
    bytes: BTreeMap<(HostId, u32), (u64, u64)>,
    /// Pairs of host and address that have had a call, as client or server.
    joined: BTreeSet<(HostId, u32)>,
}

impl Exchanged {
    /// A host received a packet.
    pub fn came(&mut self, host: HostId, packet: &Packet) {
        self.bytes.entry((host, packet.peer.0)).or_default().0 += ip_bytes(&packet.body);
    }

    /// A client calls a server.
    pub fn joined(&mut self, client: HostId, server: HostId) {
        self.joined.extend([(client, server.0), (server, client.0)]);
    }
}

impl Checker {
    pub(super) fn check_amplification(&mut self, at: (SimTime, HostId), packet: &Packet) {
        let pair = (at.1, packet.peer.0);
        let own = packet.peer.0 as usize == self.hosts.len();
        if self.promises.foreign_addresses == 0 || own || self.exchanged.joined.contains(&pair) {
            return;
        }
        let bytes = self.exchanged.bytes.entry(pair).or_default();
        bytes.1 += ip_bytes(&packet.body);
        let (came, went) = *bytes;
        self.require(went <= 3 * came, at, "hosts do not amplify", || {
            format!("{went} bytes to {} for {came}: {packet:?}", pair.1)
        });
    }
}

/// Bytes of an IP packet with this body.
fn ip_bytes(body: &Body) -> u64 {
    let payload = if let Body::Data(data) = body { data.span.len } else { 0 };
    let extensions = wire::datagram::extensions_len(body) as u64;
    HEADERS + wire::encoded_len(body) as u64 + u64::from(payload) + extensions
}
