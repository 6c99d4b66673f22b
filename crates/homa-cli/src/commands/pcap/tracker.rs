//! The RPCs of a capture, in bounded memory.
//!
//! Clients number their RPCs, so an RPC is (client, server, id). A packet's id says by its parity
//! who sent it. Acknowledgements that ride on other packets name an id and the server's port only:
//! over IP, where a kernel acknowledges for all its clients, the client's port is found by looking.
//!
//! At most `limit` RPCs are kept. When one more begins, the quarter that rested longest is handed
//! out as if the capture had ended for them, those that are over first. An id that is used again
//! for a new request, long after its RPC was over, is a new RPC.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use homa_proto::{AckEntry, Body, Packet, RpcId};

use super::finding::{Encapsulation, Homa, Icmp, IcmpRefusal, Known};
use super::rpc::Rpc;

/// How long after its RPC an id may be used again, nanoseconds. Retransmissions are marked, so this
/// only has to outlast the network's own duplicates.
const REUSE: i64 = 50_000_000;

/// Whether a packet can begin an RPC that the capture did not show before. Other packets concern
/// hosts, or RPCs that may be long over; the NEED_ACKs of probes and challenges concern no RPC.
fn begins_rpc(body: &Body) -> bool {
    match body {
        Body::Data(_) | Body::Grant { .. } | Body::Resend { .. } => true,
        Body::StartMsg { .. } => true,
        Body::RpcUnknown { .. } | Body::Busy { .. } => true,
        Body::Ack(_) | Body::Proof(_) | Body::NeedAck | Body::Challenge { .. } => false,
        Body::Cutoffs { .. } | Body::Freeze => false,
    }
}

/// Orders RPCs so that those that an acknowledgement may mean are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    client: IpAddr,
    server: SocketAddr,
    id: u64,
    client_port: u16,
}

impl Key {
    fn new(client: SocketAddr, server: SocketAddr, id: RpcId) -> Self {
        Self { client: client.ip(), server, id: id.client().0, client_port: client.port() }
    }
}

/// What the capture says about a packet.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Its frame, counted from 1.
    pub frame: u64,
    /// When it was captured, nanoseconds.
    pub time: Option<i64>,
    /// Whether it belongs to a one-way message, which only traces of the simulator say.
    pub one_way: bool,
}

/// See the module's description.
#[derive(Debug)]
pub struct Tracker {
    /// Boxed: nodes of the tree are half empty.
    rpcs: BTreeMap<Key, Box<Rpc>>,
    limit: usize,
    /// Acknowledgements of RPCs that are not, or no longer, known.
    pub stray_acks: u64,
}

impl Tracker {
    /// A tracker of at most `limit` RPCs at a time.
    pub fn new(limit: usize) -> Self {
        Self { rpcs: BTreeMap::new(), limit: limit.max(1), stray_acks: 0 }
    }

    /// Takes a packet in; true for a duplicate. RPCs to be forgotten go to `done`.
    pub fn packet(
        &mut self,
        homa: &Homa,
        Captured { frame, time, one_way }: Captured,
        done: &mut Vec<Rpc>,
    ) -> bool {
        let (id, body) = match &homa.known {
            Known::All(packet, _) => (packet.id, Some(packet)),
            Known::Header { id, .. } => (*id, None),
            Known::Nothing | Known::Malformed(_) => return false,
        };
        let ends = if id.from_server() {
            (homa.destination, homa.source)
        } else {
            (homa.source, homa.destination)
        };
        let key = Key::new(ends.0, ends.1, id);
        if let Some(packet) = body {
            self.piggybacked(homa, packet);
            self.retire_reused(&key, packet, time, done);
        }
        let begins = body.is_none_or(|packet| begins_rpc(&packet.body));
        let rpc = if begins {
            self.make_room(&key, done);
            self.rpcs
                .entry(key)
                .or_insert_with(|| Box::new(Rpc::new(ends, id, homa.encapsulation, frame)))
        } else {
            match self.rpcs.get_mut(&key) {
                Some(rpc) => rpc,
                None => {
                    let ack = body.is_some_and(|packet| matches!(packet.body, Body::Ack(_)));
                    self.stray_acks += u64::from(ack);
                    return false;
                }
            }
        };
        rpc.one_way |= one_way;
        match body {
            Some(packet) => rpc.observe(packet, time),
            None => {
                rpc.cut(time);
                false
            }
        }
    }

    /// Notes a refusal; one for its size ends no RPC.
    pub fn icmp(&mut self, icmp: &Icmp) {
        let Some(id) = icmp.id.filter(|_| !matches!(icmp.refusal, IcmpRefusal::TooBig(_))) else {
            return;
        };
        let (client, server) = if id.from_server() {
            (icmp.destination, icmp.source)
        } else {
            (icmp.source, icmp.destination)
        };
        if let Some(rpc) = self.rpcs.get_mut(&Key::new(client, server, id)) {
            rpc.refusal.get_or_insert(icmp.refusal);
        }
    }

    /// All RPCs, in the order of their first packets.
    pub fn finish(self) -> Vec<Rpc> {
        let mut rpcs: Vec<Rpc> = self.rpcs.into_values().map(|rpc| *rpc).collect();
        rpcs.sort_by_key(|rpc| rpc.frame);
        rpcs
    }

    /// Acknowledgements of other RPCs than the packet's own.
    fn piggybacked(&mut self, homa: &Homa, packet: &Packet) {
        let own = packet.id.client();
        match &packet.body {
            Body::Data(data) => {
                if let Some(entry) = data.ack {
                    self.acknowledge(homa, &entry);
                }
            }
            Body::Ack(acks) => {
                for entry in acks.iter().filter(|entry| entry.id != own) {
                    self.acknowledge(homa, &entry);
                }
            }
            _ => {}
        }
    }

    fn acknowledge(&mut self, homa: &Homa, entry: &AckEntry) {
        // Over UDP a socket speaks for itself, to a socket, whatever a translator made of its port.
        // Directly over IP, any client of the kernel may bring it, for any of the peer's ports.
        let (server_port, ports) = match homa.encapsulation {
            Encapsulation::Udp => {
                (homa.destination.port(), homa.source.port()..=homa.source.port())
            }
            Encapsulation::Ip | Encapsulation::Tcp => (entry.server_port, 0..=u16::MAX),
        };
        let server = SocketAddr::new(homa.destination.ip(), server_port);
        let exact = Key::new(homa.source, server, entry.id);
        let key = |client_port: &u16| Key { client_port: *client_port, ..exact };
        let range = key(ports.start())..=key(ports.end());
        let found = if self.rpcs.contains_key(&exact) {
            Some(exact)
        } else {
            self.rpcs.range(range).next().map(|(key, _)| *key)
        };
        match found.and_then(|key| self.rpcs.get_mut(&key)) {
            Some(rpc) => rpc.acks += 1,
            None => self.stray_acks += 1,
        }
    }

    /// Hands out the RPC whose id a new request takes.
    fn retire_reused(
        &mut self,
        key: &Key,
        packet: &Packet,
        time: Option<i64>,
        done: &mut Vec<Rpc>,
    ) {
        let begins = match &packet.body {
            Body::Data(data) => {
                !packet.id.from_server() && !data.retransmit && data.span.offset == 0
            }
            _ => false,
        };
        if !begins {
            return;
        }
        let over = self.rpcs.get(key).is_some_and(|rpc| {
            let rested = rpc.last.zip(time).is_some_and(|(last, now)| {
                now.checked_sub(last).is_some_and(|rested| rested > REUSE)
            });
            rpc.is_over() && rested
        });
        if over {
            done.extend(self.rpcs.remove(key).map(|rpc| *rpc));
        }
    }

    fn make_room(&mut self, key: &Key, done: &mut Vec<Rpc>) {
        if self.rpcs.len() < self.limit || self.rpcs.contains_key(key) {
            return;
        }
        let mut order: Vec<(bool, Option<i64>, u64, Key)> = self
            .rpcs
            .iter()
            .map(|(key, rpc)| (!rpc.is_over(), rpc.last, rpc.frame, *key))
            .collect();
        order.sort_unstable();
        for (_, _, _, key) in order.iter().take(self.limit.div_ceil(4)) {
            done.extend(self.rpcs.remove(key).map(|rpc| *rpc));
        }
    }
}
