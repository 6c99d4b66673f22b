//! Paths whose MTU is in question or lower than it could be; the others need no memory.
//!
//! Probes are NEED_ACKs of an RPC that does not exist, padded with zeros: whoever gets one answers
//! with an ACK that names it, an engine of ours as well as the kernel module (Linux §2.5), and
//! looks at nothing behind the packet. Ids are random, so that answers cannot be forged unseen.
//!
//! Loss is what a RESEND or RPC_UNKNOWN about an RPC in progress tells of; others cause nothing, or
//! anybody could have us send large packets to third parties. A RESEND of ours counts, too: where
//! many share a datagram, it may be they that do not arrive.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use homa_proto::{Body, Endpoint, Packet, PeerId, RpcId, Time};

use super::Core;
use super::path::{Changes, Path};
use crate::driver::TooBig;

/// A path that is looked after.
#[derive(Debug)]
struct Entry {
    path: Path,
    /// Whose it is: numbers of peers are used again.
    address: SocketAddr,
    /// Ports, ours and the peer's, of an RPC that took it last.
    ports: Option<(u16, u16)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Paths {
    entries: BTreeMap<PeerId, Entry>,
    max: u16,
    /// When one of them wants something, or earlier: [`Core::tend_paths`].
    due: Time,
    /// What they went through.
    pub changes: Changes,
}

impl Paths {
    /// No paths, behind links of the given MTU.
    pub fn new(max: u16) -> Self {
        Self { entries: BTreeMap::new(), max, due: Time::MAX, changes: Changes::default() }
    }

    /// The path to a peer, on which packets of `mtu` bytes are sent.
    fn entry(&mut self, now: Time, peer: PeerId, address: SocketAddr, mtu: u16) -> &mut Entry {
        self.due = Time::ZERO;
        let path = Path::new(now, address.is_ipv4(), mtu, self.max);
        let entry = self.entries.entry(peer).or_insert(Entry { path, address, ports: None });
        if entry.address != address {
            *entry = Entry { path, address, ports: None };
        }
        entry
    }

    /// The route says that the path takes no more than `mtu`.
    pub fn narrow(&mut self, now: Time, peer: PeerId, address: SocketAddr, mtu: u16) {
        self.entry(now, peer, address, mtu);
    }

    /// Takes in what a control packet says about the path that it came by; due before the endpoint
    /// sees it.
    pub fn notice(
        &mut self,
        now: Time,
        packet: &Packet,
        (address, mtu): (SocketAddr, u16),
        endpoint: &Endpoint,
    ) {
        match packet.body {
            Body::Resend { .. } | Body::RpcUnknown { .. }
                if endpoint.is_in_progress(packet.peer, packet.id) =>
            {
                self.entry(now, packet.peer, address, mtu).path.lost(now);
            }
            Body::Ack(_) if !self.entries.is_empty() => {
                let id = packet.id.server().0;
                // The answer may come from what counts as another peer: the client there.
                for entry in self.entries.values_mut().filter(|e| e.address == address) {
                    if entry.path.answered(now, id, &mut self.changes) {
                        self.due = Time::ZERO;
                    }
                }
            }
            _ => {}
        }
    }

    /// Packets to a peer are too big for the path, which takes `mtu` bytes. `ours`: our own system
    /// refused them, and `mtu` is what it knows of the route.
    fn too_big(
        &mut self,
        now: Time,
        peer: PeerId,
        (address, current): (SocketAddr, u16),
        mtu: u16,
        ours: bool,
    ) {
        self.entry(now, peer, address, current);
        let Some(Entry { path, .. }) = self.entries.get_mut(&peer) else { return };
        // Where it knows nothing of that, the size in use is in question.
        let unknown = ours && mtu >= current && path.probe().is_none();
        path.too_big(now, if unknown { 0 } else { mtu }, &mut self.changes);
    }

    fn is_probe(&self, peer: PeerId, id: RpcId) -> bool {
        let probe = self.entries.get(&peer).and_then(|entry| entry.path.probe());
        probe.is_some_and(|probe| probe.id == id.0)
    }
}

impl Core {
    /// The network says that packets were too large.
    pub(super) fn note_too_big(&mut self) {
        while let Some(report) = self.driver.too_big() {
            let TooBig { to, mtu, quoted, .. } = report;
            let Some(quoted) = quoted else {
                self.state.counters.reports_ignored += 1;
                continue;
            };
            let now = self.tick();
            let mtu = match mtu {
                Some(mtu) => mtu,
                // Our own system; what the first link takes is known.
                None => self.driver.routes().and_then(|routes| routes(to)).unwrap_or(0),
            };
            let state = &mut self.state;
            let known: Vec<PeerId> = state.peers.known(to).collect();
            for peer in known {
                let known = state.endpoint.is_in_progress(peer, quoted.id);
                let Some((address, current)) = state.peers.path(peer) else { continue };
                if !known && !state.paths.is_probe(peer, quoted.id) {
                    continue;
                }
                state.paths.too_big(now, peer, (address, current), mtu, report.mtu.is_none());
            }
        }
    }

    /// Whoever was just asked for something again may not get what we send.
    pub(super) fn note_asked(&mut self, now: Time) {
        let state = &mut self.state;
        for peer in self.packer.take_asked() {
            if let Some((address, mtu)) = state.peers.path(peer) {
                state.paths.entry(now, peer, address, mtu).path.lost(now);
            }
        }
    }

    /// When [`Core::tend_paths`] is due; after what waits in the driver.
    pub(super) fn paths_due(&self) -> Option<Time> {
        let due = self.state.paths.due;
        (due != Time::MAX && self.held.is_none()).then_some(due)
    }

    /// Sends the probes that are due, and packets of the right size from now on.
    pub(super) fn tend_paths(&mut self) {
        if self.state.paths.due == Time::MAX {
            return;
        }
        let now = self.tick();
        if now < self.state.paths.due || self.held.is_some() {
            return;
        }
        let mut probes = Vec::new();
        let state = &mut self.state;
        let Paths { entries, changes, due, .. } = &mut state.paths;
        *due = Time::MAX;
        entries.retain(|&peer, entry| {
            if state.peers.path(peer).is_none_or(|(address, _)| address != entry.address) {
                return false;
            }
            if entry.path.due() <= now {
                let ports = state.endpoint.ports_to(peer);
                entry.ports = ports.or(entry.ports);
                let probe = entry.path.poll(now, ports.is_some(), changes);
                probes.extend(probe.zip(entry.ports).map(|(probe, ports)| (peer, probe, ports)));
            }
            if state.peers.set_mtu(peer, entry.path.mtu(), &mut state.endpoint) {
                state.endpoint.start_unheard_over(now, peer);
            }
            *due = entry.path.due().min(*due);
            !entry.path.is_settled(now)
        });
        for (peer, probe, (local_port, remote_port)) in probes {
            let packet = |id| Packet {
                peer,
                priority: 7,
                local_port,
                remote_port,
                id: RpcId(id),
                body: Body::NeedAck,
            };
            // The short one first: behind the other it would be of the same train.
            let sizes = [(packet(probe.small_id()), 0), (packet(probe.id), probe.size)];
            let wire = self.packer.pack_probe(&sizes, &self.state.peers);
            let link = self.state.peers.get(peer).map(|peer| peer.link).unwrap_or_default();
            self.send_packed(now, link, wire);
        }
    }
}
