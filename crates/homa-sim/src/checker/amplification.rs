//! How much hosts send to whom they do not know: at most three times what came in that name, so
//! that nobody is made to flood another (RFC 9000 §8; `docs/security.md`).
//!
//! Counted are the bytes of IP packets over UDP, between a host and an address with which it never
//! had a call. What the hostile host gets at its own address is its own affair: it may be a client.

use std::collections::{BTreeMap, BTreeSet};

use homa_proto::{Body, Packet, wire};

use crate::time::SimTime;
use crate::topology::HostId;

use super::Checker;

/// Headers of IPv4 and UDP, and that of a datagram.
const HEADERS: u64 = 20 + 8 + 16;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Exchanged {
    /// By host and address: what came, and what went.
    bytes: BTreeMap<(HostId, u32), (u64, u64)>,
    /// Who had a call with whom, as client or server.
    joined: BTreeSet<(HostId, u32)>,
}

impl Exchanged {
    /// A packet came to a host.
    pub fn came(&mut self, host: HostId, packet: &Packet) {
        self.bytes.entry((host, packet.peer.0)).or_default().0 += ip_bytes(&packet.body);
    }

    /// A client calls a server.
    pub fn joined(&mut self, client: HostId, server: HostId) {
        self.joined.extend([(client, server.0), (server, client.0)]);
    }
}

impl Checker {
    pub(super) fn amplifies_little(&mut self, at: (SimTime, HostId), packet: &Packet) {
        let pair = (at.1, packet.peer.0);
        let own = packet.peer.0 as usize == self.hosts.len();
        if self.promises.strangers == 0 || own || self.exchanged.joined.contains(&pair) {
            return;
        }
        let bytes = self.exchanged.bytes.entry(pair).or_default();
        bytes.1 += ip_bytes(&packet.body);
        let (came, went) = *bytes;
        self.require(went <= 3 * came, at, "hosts are no amplifiers", || {
            format!("{went} bytes to {} for {came}: {packet:?}", pair.1)
        });
    }
}

/// Bytes of an IP packet with this.
fn ip_bytes(body: &Body) -> u64 {
    let payload = if let Body::Data(data) = body { data.span.len } else { 0 };
    let extensions = wire::datagram::extensions_len(body) as u64;
    HEADERS + wire::encoded_len(body) as u64 + u64::from(payload) + extensions
}
