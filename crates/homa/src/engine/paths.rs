//! Paths whose MTU is in question or may be lower than it could be; the others need no memory.
//!
//! Probes are NEED_ACKs of an RPC that does not exist, padded with zeros: whoever gets one answers
//! with an ACK that names it, an engine of ours as well as the kernel module (Linux §2.5), and
//! looks at nothing behind the packet. Ids are random, so that answers cannot be forged unseen.
//!
//! Loss is what a RESEND or RPC_UNKNOWN about an RPC in progress tells of; others cause nothing, or
//! anybody could have us send large packets to third parties. A RESEND of ours counts, too: where
//! many share a datagram, it may be they that do not arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use homa_proto::{Body, Endpoint, Packet, PeerId, RpcId, Time};

use super::Core;
use super::path::{Path, PathChanges, PathProbe};
use super::peers::PathInfo;
use crate::driver::TooBig;

/// A path that is looked after.
#[derive(Debug)]
struct TrackedPath {
    path: Path,
    /// Whose it is: numbers of peers are used again.
    address: SocketAddr,
    /// Ports, ours and the peer's, of an RPC that took it last.
    ports: Option<(u16, u16)>,
    /// When it is looked at, as in [`PathTable::due`].
    due: Time,
    /// Its probe, as in [`PathTable::probes`].
    probe: Option<u64>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct PathTable {
    entries: BTreeMap<PeerId, TrackedPath>,
    /// When each of them wants something, or earlier: [`Core::tend_paths`].
    due: BTreeSet<(Time, PeerId)>,
    /// Probes on their way, by [`key`].
    probes: BTreeMap<u64, PeerId>,
    /// What they went through.
    pub changes: PathChanges,
}

/// What the id of a probe and that of the short packet beside it have in common.
fn key(id: u64) -> u64 {
    id | 2
}

impl PathTable {
    /// The path to a peer; it is looked at next.
    fn entry(&mut self, now: Time, peer: PeerId, info: PathInfo) -> &mut TrackedPath {
        let PathInfo { address, mtu, max } = info;
        if self.entries.get(&peer).is_none_or(|entry| entry.address != address) {
            self.remove(peer);
            let path = Path::new(now, address.is_ipv4(), mtu, max);
            let entry = TrackedPath { path, address, ports: None, due: Time::ZERO, probe: None };
            self.entries.insert(peer, entry);
        }
        self.look(peer, Time::ZERO);
        self.entries.get_mut(&peer).expect("it was there, or inserted")
    }

    /// A path is looked at at a time.
    fn look(&mut self, peer: PeerId, at: Time) {
        if let Some(entry) = self.entries.get_mut(&peer) {
            self.due.remove(&(entry.due, peer));
            entry.due = at;
            if at != Time::MAX {
                self.due.insert((at, peer));
            }
        }
    }

    fn remove(&mut self, peer: PeerId) {
        if let Some(entry) = self.entries.remove(&peer) {
            self.due.remove(&(entry.due, peer));
            entry.probe.map(|probe| self.probes.remove(&probe));
        }
    }

    /// What became of a path that was looked at: it is forgotten, or looked at again.
    fn put_back(&mut self, now: Time, peer: PeerId) {
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        if entry.path.is_settled(now) {
            return self.remove(peer);
        }
        let probe = entry.path.probe().map(|probe| key(probe.id));
        let before = std::mem::replace(&mut entry.probe, probe);
        let due = entry.path.due();
        before.map(|probe| self.probes.remove(&probe));
        probe.map(|probe| self.probes.insert(probe, peer));
        self.look(peer, due);
    }

    /// There is something to be sent that larger packets would be good for.
    pub fn wanted(&mut self, now: Time, peer: PeerId, info: PathInfo) {
        match self.entries.get_mut(&peer).filter(|entry| entry.address == info.address) {
            Some(entry) => {
                if entry.path.wanted(info.max) {
                    self.look(peer, Time::ZERO);
                }
            }
            None => self.entry(now, peer, info).path.try_larger(now),
        }
    }

    /// The route takes no larger packets than those that are sent.
    pub fn narrow(&mut self, now: Time, peer: PeerId, info: PathInfo) {
        self.entry(now, peer, info);
    }

    /// Takes in what a control packet says about the path that it came by; due before the endpoint
    /// sees it.
    pub fn notice(&mut self, now: Time, packet: &Packet, info: PathInfo, endpoint: &Endpoint) {
        match packet.body {
            Body::Resend { .. } | Body::RpcUnknown { .. }
                if endpoint.is_validated(packet.peer)
                    && endpoint.is_in_progress(packet.peer, packet.id) =>
            {
                self.entry(now, packet.peer, info).path.lost(now);
            }
            Body::Ack(_) => self.answered(now, packet, info.address),
            _ => {}
        }
    }

    /// An ACK arrived from an address: the answer to a probe, perhaps.
    pub fn answered(&mut self, now: Time, packet: &Packet, address: SocketAddr) {
        let id = packet.id.server().0;
        let Some(&peer) = self.probes.get(&key(id)) else { return };
        if !matches!(packet.body, Body::Ack(_)) {
            return;
        }
        let entry = self.entries.get_mut(&peer).filter(|entry| entry.address == address);
        if entry.is_some_and(|entry| entry.path.answered(now, id, &mut self.changes)) {
            self.look(peer, Time::ZERO);
        }
    }

    /// Packets to a peer are too big for the path, which takes `mtu` bytes. `ours`: our own system
    /// refused them, and `mtu` is what it knows of the route.
    fn too_big(&mut self, now: Time, peer: PeerId, info: PathInfo, mtu: u16, ours: bool) {
        self.entry(now, peer, info);
        let Some(TrackedPath { path, .. }) = self.entries.get_mut(&peer) else { return };
        // Where it knows nothing of that, the size in use is in question.
        let unknown = ours && mtu >= info.mtu && path.probe().is_none();
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
                self.state.counters.icmp_reports_ignored += 1;
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
                let Some(info) = state.peers.path(peer) else { continue };
                if !known && !state.paths.is_probe(peer, quoted.id) {
                    continue;
                }
                state.paths.too_big(now, peer, info, mtu, report.mtu.is_none());
            }
        }
    }

    /// Whoever was just asked for something again may not get what we send.
    pub(super) fn note_resends(&mut self, now: Time) {
        let state = &mut self.state;
        for peer in self.packer.take_resend_peers() {
            if let Some(info) = state.peers.path(peer)
                && state.endpoint.is_validated(peer)
            {
                state.paths.entry(now, peer, info).path.lost(now);
            }
        }
    }

    /// When [`Core::tend_paths`] is due.
    pub(super) fn paths_due(&self) -> Option<Time> {
        self.state.paths.due.first().map(|(at, _)| *at)
    }

    /// Sends the probes that are due, and packets of the right size from now on.
    pub(super) fn tend_paths(&mut self) {
        if self.state.paths.due.is_empty() {
            return;
        }
        let now = self.tick();
        let (paths, mut probes) = (&self.state.paths, Vec::new());
        let due: Vec<PeerId> =
            paths.due.iter().take_while(|(at, _)| *at <= now).map(|(_, peer)| *peer).collect();
        for peer in due {
            probes.extend(self.tend_path(now, peer));
        }
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

    /// A probe of one path, if one is due, with the ports that it names.
    fn tend_path(&mut self, now: Time, peer: PeerId) -> Option<(PeerId, PathProbe, (u16, u16))> {
        let state = &mut self.state;
        let paths = &mut state.paths;
        let address = state.peers.path(peer).map(|info| info.address);
        let Some(entry) = paths.entries.get_mut(&peer).filter(|e| Some(e.address) == address)
        else {
            paths.remove(peer);
            return None;
        };
        let mut probe = None;
        if entry.path.due() <= now {
            let ports = state.endpoint.ports_to(peer);
            entry.ports = ports.or(entry.ports);
            probe = entry.path.poll(now, ports.is_some(), &mut paths.changes);
        }
        let (mtu, ports) = (entry.path.mtu(), entry.ports);
        paths.put_back(now, peer);
        if state.peers.set_mtu(peer, mtu, &mut state.endpoint) {
            state.endpoint.restart_unanswered(now, peer);
        }
        Some((peer, probe?, ports?))
    }
}
