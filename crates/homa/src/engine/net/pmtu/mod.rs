//! Paths whose MTU is in question or could be larger. Other paths need no memory.
//!
//! A probe is a NEED_ACK for an RPC that does not exist, padded with zeros. Any receiver answers it
//! with an ACK that names the RPC, our engines as well as the kernel module (Linux §2.5), and none
//! looks at the bytes after the packet. Ids are random, so an answer cannot be forged by a host
//! that does not see our packets.
//!
//! A RESEND or RPC_UNKNOWN about an RPC in progress shows loss. If any such packet counted, any
//! host could make us send large packets to third parties. A RESEND that we send counts, too: if
//! many messages share a datagram, the datagrams of the peer may be the ones that are lost.

mod path;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use homa_proto::{Body, Endpoint, Packet, PeerId, RpcId, Time};

pub use path::PathProbe;
use path::{Path, PathChanges};

/// The state of the path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The peer's address.
    pub address: SocketAddr,
    /// Size of IP packets to it, bytes.
    pub mtu: u16,
    /// Largest size that may be tried, bytes.
    pub max: u16,
}

/// A path in the table.
#[derive(Debug)]
struct TrackedPath {
    path: Path,
    /// The peer's address, because numbers of peers are reused.
    address: SocketAddr,
    /// Our port and the peer's, of the RPC that last used the path.
    ports: Option<(u16, u16)>,
    /// When the path is due, as in [`PathTable::due`].
    due: Time,
    /// Key of its probe, as in [`PathTable::probes`].
    probe: Option<u64>,
}

/// Paths by peer.
#[derive(Debug, Default)]
pub struct PathTable {
    entries: BTreeMap<PeerId, TrackedPath>,
    /// When each path needs attention, or earlier.
    due: BTreeSet<(Time, PeerId)>,
    /// Probes in flight, by [`key`].
    probes: BTreeMap<u64, PeerId>,
    /// Peers whose probes wait until any packet of theirs arrives.
    silent: BTreeSet<PeerId>,
    /// Counts of changed sizes.
    pub changes: PathChanges,
}

/// A path that was due: the size of packets from now on, and a probe to send, with our port and the
/// peer's.
pub struct DuePath {
    /// Size of IP packets, bytes.
    pub mtu: u16,
    /// The probe, if one is due and the ports are known.
    pub probe: Option<(PathProbe, (u16, u16))>,
}

/// The part of an id that a probe and the short packet beside it share.
fn key(id: u64) -> u64 {
    id | 2
}

impl PathTable {
    /// The path to a peer, which becomes due.
    fn entry(&mut self, now: Time, peer: PeerId, info: PathInfo) -> &mut TrackedPath {
        let PathInfo { address, mtu, max } = info;
        // The number of the peer has another address by now.
        if self.entries.get(&peer).is_none_or(|entry| entry.address != address) {
            self.remove(peer);
            let path = Path::new(now, address.is_ipv4(), mtu, max);
            let entry = TrackedPath { path, address, ports: None, due: Time::ZERO, probe: None };
            self.entries.insert(peer, entry);
        }
        self.look(peer, Time::ZERO);
        self.entries.get_mut(&peer).expect("it was there, or inserted")
    }

    /// Makes a path due at a time.
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
            self.silent.remove(&peer);
        }
    }

    /// Files a path again after it was attended to, or removes it if it is settled.
    fn put_back(&mut self, now: Time, peer: PeerId) {
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        // Most paths need no entry, so memory does not grow with peers.
        if entry.path.is_settled(now) {
            return self.remove(peer);
        }
        let probe = entry.path.probe().map(|probe| key(probe.id));
        let before = std::mem::replace(&mut entry.probe, probe);
        let due = entry.path.due();
        // Any packet of the peer makes it due (`heard`).
        if entry.path.awaits_peer() {
            self.silent.insert(peer);
        }
        before.map(|probe| self.probes.remove(&probe));
        probe.map(|probe| self.probes.insert(probe, peer));
        self.look(peer, due);
    }

    /// A message to a peer would profit from larger packets.
    pub fn wanted(&mut self, now: Time, peer: PeerId, info: PathInfo) {
        match self.entries.get_mut(&peer).filter(|entry| entry.address == info.address) {
            Some(entry) => {
                if entry.path.wanted(info.max) {
                    self.look(peer, Time::ZERO);
                }
            }
            None => {
                self.entry(now, peer, info).path.wanted(info.max);
            }
        }
    }

    /// A packet of a peer arrived: a probe that waited for that is due.
    pub fn heard(&mut self, peer: PeerId) {
        // Nearly always empty.
        if !self.silent.is_empty() && self.silent.remove(&peer) {
            self.look(peer, Time::ZERO);
        }
    }

    /// The route takes no packets larger than those in use.
    pub fn narrow(&mut self, now: Time, peer: PeerId, info: PathInfo) {
        self.entry(now, peer, info);
    }

    /// A packet that was sent to a peer, or asked of it, was lost.
    pub fn lost(&mut self, now: Time, peer: PeerId, info: PathInfo) {
        self.entry(now, peer, info).path.lost(now);
    }

    /// Takes in what a control packet shows about the path that it came by; call it before the
    /// endpoint receives the packet.
    pub fn notice(&mut self, now: Time, packet: &Packet, info: PathInfo, endpoint: &Endpoint) {
        match packet.body {
            // Only such a packet about an RPC in progress shows loss: others may be forged.
            Body::Resend { .. } | Body::RpcUnknown { .. }
                if endpoint.is_validated(packet.peer)
                    && endpoint.is_in_progress(packet.peer, packet.id) =>
            {
                self.lost(now, packet.peer, info);
            }
            Body::Ack(_) => self.answered(now, packet, info.address),
            _ => {}
        }
    }

    /// An ACK arrived from an address; it may answer a probe.
    pub fn answered(&mut self, now: Time, packet: &Packet, address: SocketAddr) {
        let id = packet.id.server().0;
        let Some(&peer) = self.probes.get(&key(id)) else { return };
        if !matches!(packet.body, Body::Ack(_)) {
            return;
        }
        // The answer has to come from the address that the probe was sent to.
        let entry = self.entries.get_mut(&peer).filter(|entry| entry.address == address);
        if entry.is_some_and(|entry| entry.path.answered(now, id, &mut self.changes)) {
            self.look(peer, Time::ZERO);
        }
    }

    /// Packets to a peer are too big for the path, which takes `mtu` bytes. With `ours`, our own
    /// system refused them, and `mtu` is the MTU of its route.
    pub fn too_big(&mut self, now: Time, peer: PeerId, info: PathInfo, mtu: u16, ours: bool) {
        self.entry(now, peer, info);
        let Some(TrackedPath { path, .. }) = self.entries.get_mut(&peer) else { return };
        // If the route does not explain the refusal, the size in use is in question.
        let unknown = ours && mtu >= info.mtu && path.probe().is_none();
        path.too_big(now, if unknown { 0 } else { mtu }, &mut self.changes);
    }

    /// True if an RPC id is that of the probe to a peer.
    pub fn is_probe(&self, peer: PeerId, id: RpcId) -> bool {
        let probe = self.entries.get(&peer).and_then(|entry| entry.path.probe());
        probe.is_some_and(|probe| probe.id == id.0)
    }

    /// When the first path is due.
    pub fn first_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The peers whose paths are due.
    pub fn due(&self, now: Time) -> Vec<PeerId> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, peer)| *peer).collect()
    }

    /// Attends to a path that is due. `address` is the peer's address now; if it has changed, the
    /// path is forgotten. `heard` is when a packet of the peer last arrived. `ports` returns our
    /// port and the peer's if an RPC is in progress.
    pub fn attend(
        &mut self,
        now: Time,
        peer: PeerId,
        address: Option<SocketAddr>,
        heard: Time,
        ports: impl FnOnce() -> Option<(u16, u16)>,
    ) -> Option<DuePath> {
        let Some(entry) = self.entries.get_mut(&peer).filter(|e| Some(e.address) == address) else {
            self.remove(peer);
            return None;
        };
        let mut probe = None;
        entry.path.note_heard(heard);
        if entry.path.due() <= now {
            let ports = ports();
            entry.ports = ports.or(entry.ports);
            probe = entry.path.poll(now, ports.is_some(), &mut self.changes);
        }
        let (mtu, ports) = (entry.path.mtu(), entry.ports);
        self.put_back(now, peer);
        Some(DuePath { mtu, probe: probe.zip(ports) })
    }
}
