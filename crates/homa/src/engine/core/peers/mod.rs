//! Peers: their addresses, and the numbers that the protocol uses for them.
//!
//! Over UDP a peer is an IP address and a UDP port, that is one engine in one process. Over raw IP
//! it is a host, with port 0, because the kernel module keeps cutoffs per host and may acknowledge
//! the RPCs of all ports in any packet. If a server listens at all addresses of its host, a client
//! that calls two of them is two peers, because each must be answered from the address that it
//! called.
//!
//! Peers are added when they are first needed. If the table is full, peers that have not been used
//! for long are forgotten. A packet stops searching for a peer to forget after a few entries; a
//! call examines all of them. Unvalidated senders may only fill a small part of the table; in that
//! part a new sender replaces the oldest.
//!
//! The MTU of the route to a peer is looked up before the first message to it, not at its first
//! packet, because the lookup takes system calls and any sender could cause it. It is looked up
//! again, before a message, if the kernel reported that links or routes changed.

use std::collections::VecDeque;
use std::iter;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use homa_proto::wire::DATA_LEN;
use homa_proto::wire::datagram::DATA_OVERHEAD;
use homa_proto::{Endpoint, LinkId, PeerId, PeerInfo, StartMsg, Time};

use crate::driver::{ETHERNET_MTU, Encapsulation, RouteMtu};
use crate::engine::fairness::accounts::{AccountId, Accounts, host_key};
use crate::engine::net::links::LinkBudgets;
use crate::engine::net::pmtu::PathInfo;
use crate::metrics::{Direction, EndedRpcs, PeerLatency, busiest};

/// IPv4 and IPv6 headers without options, bytes.
const HEADER_V4: u16 = 20;
const HEADER_V6: u16 = 40;
/// A UDP header, bytes.
const HEADER_UDP: u16 = 8;
/// Smallest MTU of a link: every IPv4 host must take packets of this size.
const MTU_MIN: u16 = 576;
/// Entries that are examined to find a peer to forget: few, because a packet pays for it.
const EXAMINED: usize = 64;
/// Unvalidated senders may use one entry in this many.
const UNVALIDATED: usize = 16;

/// Most local addresses that are remembered, to find the client that an ICMP report is about.
const SOURCES_MAX: usize = 64;

/// A peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The local address that a client called, if we have several.
    pub source: Option<IpAddr>,
    /// Bytes in a datagram to it.
    pub datagram: usize,
    /// Size of the largest IP packets that the route takes, bytes.
    max: u16,
    /// Generation of the kernel's routes when the route's MTU was looked up.
    measured: Option<u32>,
    /// Its host's account.
    account: AccountId,
    /// The link that its packets leave by, and the generation of the kernel's routes when it was
    /// looked up (0: never).
    pub link: LinkId,
    routed: u32,
    /// Used since the clock hand last passed.
    used: bool,
    open: bool,
    /// It speaks the wire with START_MSG.
    pub start_msg: Option<StartMsg>,
    /// Datagrams to it may have been larger than every path carries.
    fills_packets: bool,
}

/// A peer's address, and [`Peer::source`].
type Key = (SocketAddr, Option<IpAddr>);

/// The table of peers.
#[derive(Debug)]
pub struct Peers {
    by_address: HashMap<Key, u32>,
    hosts: HashMap<IpAddr, PeerHost>,
    accounts: Accounts,
    peers: Vec<Peer>,
    free: Vec<u32>,
    next_host: u32,
    /// Local addresses that clients called.
    sources: Vec<IpAddr>,
    last: Option<(Key, u32)>,
    hand: usize,
    /// Senders that were not validated when they were added, oldest first.
    unvalidated: VecDeque<(Key, u32)>,
    max: usize,
    /// Size of IP packets to a peer at first, bytes.
    mtu: u16,
    /// Size of the largest IP packets to any peer, bytes.
    largest: u16,
    encapsulation: Encapsulation,
    /// Bytes that the driver adds to a datagram.
    overhead: u16,
    routes: Option<RouteMtu>,
    evicted: u64,
    /// By peer and direction: RPCs that have ended.
    ended: Vec<[EndedRpcs; 2]>,
    /// By peer: when the system last refused a packet to it, and the error number. `None`: when the
    /// system last refused to receive.
    refusals: HashMap<Option<PeerId>, (Time, i32)>,
}

#[derive(Debug)]
struct PeerHost {
    number: u32,
    peers: u32,
}

impl Peers {
    /// A table of at most `max` peers, which receive IP packets of up to `largest` bytes. If there
    /// are routes, large packets are sent only to peers whose route and path take them.
    pub fn new(
        max: u32,
        largest: u16,
        encapsulation: Encapsulation,
        routes: Option<RouteMtu>,
    ) -> Self {
        let mtu = if routes.is_some() { largest.min(ETHERNET_MTU) } else { largest };
        Self {
            by_address: HashMap::new(),
            hosts: HashMap::new(),
            accounts: Accounts::default(),
            peers: Vec::new(),
            free: Vec::new(),
            next_host: 0,
            sources: Vec::new(),
            last: None,
            hand: 0,
            unvalidated: VecDeque::new(),
            max: max.max(1) as usize,
            mtu,
            largest,
            encapsulation,
            overhead: 0,
            routes,
            evicted: 0,
            ended: Vec::new(),
            refusals: HashMap::new(),
        }
    }

    /// Sets how many bytes the driver adds to each datagram; call it before a peer is added.
    pub fn set_overhead(&mut self, bytes: u16) {
        self.overhead = bytes;
    }

    /// The system refused a packet to a peer, or to receive (`None`).
    pub fn note_refusal(&mut self, now: Time, peer: Option<PeerId>, errno: i32) {
        self.refusals.insert(peer, (now, errno));
    }

    /// The error number of the system's last refusal to send to a peer or to receive, if that was
    /// after `since`.
    pub fn refusal_since(&self, since: Time, peer: PeerId) -> Option<i32> {
        let refusals = [Some(peer), None].map(|of| self.refusals.get(&of));
        let last = refusals.into_iter().flatten().max_by_key(|(at, _)| *at);
        last.filter(|(at, _)| *at >= since).map(|(_, errno)| *errno)
    }

    /// The ended RPCs with a peer, of one direction.
    pub fn ended(&mut self, id: PeerId, direction: Direction) -> &mut EndedRpcs {
        &mut self.ended[id.0 as usize][direction as usize]
    }

    /// The peers with most RPCs of late, for each direction.
    pub fn busiest(&self, now: Time, endpoint: &Endpoint) -> Vec<PeerLatency> {
        let numbered = (0..).map(PeerId).zip(&self.peers).zip(&self.ended);
        let open = numbered.filter(|((_, peer), _)| peer.open);
        let in_progress = |id| <[u32; 2]>::from(endpoint.rpcs_by_side(id));
        busiest(now, open.map(|((id, peer), ended)| (peer.address, ended, in_progress(id))))
    }

    /// The peer with this number.
    pub fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)
    }

    /// The account of a peer's host.
    pub fn account(&self, id: PeerId) -> AccountId {
        self.get(id).map_or(0, |peer| peer.account)
    }

    /// Peers in the table, and peers forgotten so far.
    pub fn count(&self) -> (usize, u64) {
        (self.by_address.len(), self.evicted)
    }

    /// The peers at an address: as a server, and as a client of each of our addresses.
    pub fn known(&self, address: SocketAddr) -> impl Iterator<Item = PeerId> {
        let address = self.of_peer(address);
        let sources = self.sources.iter().copied().map(Some);
        let keys = iter::once(None).chain(sources).map(move |source| (address, source));
        keys.filter_map(|key| self.by_address.get(&key).map(|&index| PeerId(index)))
    }

    /// The peer that is called at an address, if it is in the table.
    pub fn server_at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_address.get(&(self.of_peer(address), None)).map(|&index| PeerId(index))
    }

    /// The peer at an address, if it is in the table.
    pub fn of(&mut self, address: SocketAddr, source: Option<IpAddr>) -> Option<PeerId> {
        let key = (self.of_peer(address), source);
        // Packets of one peer mostly come in a row.
        if let Some((last, index)) = self.last
            && last == key
        {
            return Some(PeerId(index));
        }
        let index = *self.by_address.get(&key)?;
        self.peers[index as usize].used = true;
        self.last = Some((key, index));
        Some(PeerId(index))
    }

    /// Adds a sender that is not in the table.
    pub fn find_unvalidated(
        &mut self,
        now: Time,
        address: SocketAddr,
        source: Option<IpAddr>,
        endpoint: &mut Endpoint,
    ) -> Option<PeerId> {
        let most = (self.max / UNVALIDATED).max(1);
        while self.unvalidated.len() >= most {
            self.drop_unvalidated(now, endpoint);
        }
        if !self.has_place_for(now, address.ip(), endpoint) {
            return None;
        }
        let peer = self.find(now, address, source, endpoint)?;
        if !endpoint.is_validated(peer) {
            self.unvalidated.push_back(((self.of_peer(address), source), peer.0));
        }
        Some(peer)
    }

    /// True if one more peer of a host may be added. A host that has more peers than there are free
    /// entries must replace one of its peers.
    fn has_place_for(&mut self, now: Time, host: IpAddr, endpoint: &mut Endpoint) -> bool {
        let Some((account, peers)) = self.accounts.of(host) else { return true };
        peers <= self.max.saturating_sub(self.by_address.len())
            || self.evict(now, Some(account), endpoint)
    }

    /// Forgets the oldest unvalidated sender, unless it has been validated since.
    fn drop_unvalidated(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some((key, index)) = self.unvalidated.pop_front() else { return };
        let id = PeerId(index);
        // Its place was given to another peer, or it has proved its address since.
        if self.by_address.get(&key) != Some(&index) || endpoint.is_validated(id) {
            return;
        }
        endpoint.drop_unvalidated(id);
        if endpoint.close_peer(now, id) {
            self.peers[index as usize].open = false;
            self.forget(key, index);
        }
    }

    /// The peer at an address, which is added if necessary; `None` if the table is full of busy
    /// peers.
    pub fn find(
        &mut self,
        now: Time,
        address: SocketAddr,
        source: Option<IpAddr>,
        endpoint: &mut Endpoint,
    ) -> Option<PeerId> {
        if let Some(known) = self.of(address, source) {
            return Some(known);
        }
        let key = (self.of_peer(address), source);
        let index = self.open(now, key, endpoint)?;
        self.peers[index as usize].used = true;
        self.last = Some((key, index));
        Some(PeerId(index))
    }

    /// Forgets peers without RPCs until there is room for one, however long that takes.
    pub fn make_room(&mut self, now: Time, endpoint: &mut Endpoint) {
        // The first look at an entry may only clear its mark.
        let mut looks = 2 * self.peers.len();
        while self.by_address.len() >= self.max && looks > 0 {
            self.evict(now, None, endpoint);
            looks = looks.saturating_sub(EXAMINED);
        }
    }

    /// Looks up the MTU of the route; call it before a message to a peer is submitted. `answer` is
    /// the generation of the kernel's routes. True if packets got smaller.
    pub fn measure(&mut self, id: PeerId, answer: u32, endpoint: &mut Endpoint) -> bool {
        let Some(routes) = self.routes else { return false };
        let peer = self.peers.get_mut(id.0 as usize);
        let Some(peer) = peer.filter(|peer| peer.measured != Some(answer)) else { return false };
        // If there is no route yet, the next message looks it up again.
        let Some(route) = routes(peer.address) else { return false };
        peer.max = route.max(ETHERNET_MTU).min(self.largest);
        // If packets are larger than the new MTU, they are refused, and the report lowers the size,
        // also for messages in progress.
        let first = peer.measured.replace(answer).is_none();
        first && route < self.mtu && self.set_mtu(id, route.max(MTU_MIN), endpoint)
    }

    /// Sets the size of IP packets to a peer, bytes. True if it is smaller than before.
    pub fn set_mtu(&mut self, id: PeerId, mtu: u16, endpoint: &mut Endpoint) -> bool {
        let Some(peer) = self.get(id) else { return false };
        let (datagram, overhead) = self.datagram_to(peer.address, mtu);
        let before = std::mem::replace(&mut self.peers[id.0 as usize].datagram, datagram);
        if before != datagram {
            endpoint.set_max_payload(id, (datagram - overhead) as u32);
        }
        datagram < before
    }

    /// A message of `length` bytes was submitted to a peer with which this number of RPCs is in
    /// progress.
    pub fn note_submitted(&mut self, id: PeerId, length: u32, in_progress: u32) {
        if let Some(peer) = self.peers.get_mut(id.0 as usize) {
            // Short messages share a datagram.
            let together = length.saturating_add(DATA_OVERHEAD as u32).saturating_mul(in_progress);
            let headers = u32::from(HEADER_V6 + HEADER_UDP);
            peer.fills_packets |= together.saturating_add(headers) > MTU_MIN.into();
        }
    }

    /// True if datagrams to a peer may have been larger than every path carries. Otherwise nothing
    /// that is lost was lost for its size.
    pub fn fills_packets(&self, id: PeerId) -> bool {
        self.get(id).is_some_and(|peer| peer.fills_packets)
    }

    /// Sets whether a peer speaks the wire with START_MSG.
    pub fn set_start_msg(&mut self, id: PeerId, start_msg: Option<StartMsg>) {
        if let Some(peer) = self.peers.get_mut(id.0 as usize) {
            peer.start_msg = start_msg;
        }
    }

    /// The path to a peer.
    pub fn path(&self, id: PeerId) -> Option<PathInfo> {
        let &Peer { address, datagram, max, .. } = self.get(id).filter(|peer| peer.open)?;
        let headers = self.mtu as usize - self.datagram_to(address, self.mtu).0;
        Some(PathInfo { address, mtu: (datagram + headers) as u16, max })
    }

    /// The path to a peer if a message of `length` bytes would profit from larger packets that may
    /// be tried.
    pub fn wider(&self, id: PeerId, length: u32) -> Option<PathInfo> {
        self.get(id).filter(|peer| length as usize > peer.datagram)?;
        self.path(id).filter(|path| path.mtu < path.max)
    }

    /// Bytes in a datagram that fills an IP packet of `size` bytes.
    pub fn datagram_at(&self, peer: &Peer, size: u16) -> usize {
        let headers = self.mtu as usize - self.datagram_to(peer.address, self.mtu).0;
        usize::from(size).saturating_sub(headers)
    }

    /// Looks up the link of the route; call it before a message to a peer is submitted. If the link
    /// has changed, messages in progress follow.
    pub fn find_link(&mut self, id: PeerId, links: &mut LinkBudgets, endpoint: &mut Endpoint) {
        let current = links.generation();
        let Some(peer) = self.peers.get_mut(id.0 as usize).filter(|p| p.routed != current) else {
            return;
        };
        peer.routed = current;
        let link = links.link_to(peer.address, peer.source, endpoint);
        if std::mem::replace(&mut peer.link, link) != link {
            endpoint.set_route(id, link);
        }
    }

    /// The address under which a peer is stored.
    pub fn of_peer(&self, mut address: SocketAddr) -> SocketAddr {
        if self.encapsulation == Encapsulation::Ip {
            address.set_port(0);
        }
        address
    }

    /// Bytes in a datagram to a peer for an MTU, and the part of them before the message's bytes.
    fn datagram_to(&self, address: SocketAddr, mtu: u16) -> (usize, usize) {
        let header = self.overhead + if address.is_ipv4() { HEADER_V4 } else { HEADER_V6 };
        match self.encapsulation {
            Encapsulation::Datagram => (usize::from(mtu - header - HEADER_UDP), DATA_OVERHEAD),
            Encapsulation::Ip => (usize::from(mtu - header), DATA_LEN),
        }
    }

    fn open(&mut self, now: Time, key: Key, endpoint: &mut Endpoint) -> Option<u32> {
        if self.by_address.len() >= self.max {
            self.evict(now, None, endpoint);
        }
        if self.by_address.len() >= self.max {
            return None;
        }
        let (address, source) = key;
        let (datagram, overhead) = self.datagram_to(address, self.mtu);
        let account = self.accounts.open(address.ip());
        let peer = Peer {
            account,
            address,
            source,
            datagram,
            max: self.mtu,
            measured: None,
            link: LinkId(0),
            routed: 0,
            used: true,
            open: true,
            start_msg: None,
            fills_packets: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.peers[index as usize] = peer;
                self.ended[index as usize] = Default::default();
                index
            }
            None => {
                self.peers.push(peer);
                self.ended.push(Default::default());
                self.peers.len() as u32 - 1
            }
        };
        let next_host = &mut self.next_host;
        let host = self.hosts.entry(address.ip()).or_insert_with(|| {
            *next_host = next_host.wrapping_add(1);
            PeerHost { number: *next_host, peers: 0 }
        });
        host.peers += 1;
        if let Some(source) = source
            && !self.sources.contains(&source)
            && self.sources.len() < SOURCES_MAX
        {
            self.sources.push(source);
        }
        let max_payload = (datagram - overhead) as u32;
        endpoint.open_peer(PeerId(index), PeerInfo { host: host.number, max_payload });
        endpoint.set_account(PeerId(index), account, host_key(address.ip()));
        self.by_address.insert(key, index);
        Some(index)
    }

    /// Forgets some peers without RPCs that were not used since the clock hand last passed; only
    /// peers of one account if it is given. True if any were forgotten.
    fn evict(&mut self, now: Time, of: Option<AccountId>, endpoint: &mut Endpoint) -> bool {
        let before = self.evicted;
        if self.peers.is_empty() {
            return false;
        }
        // The first look at an entry may only clear its mark.
        for _ in 0..EXAMINED.max(self.peers.len().min(2 * EXAMINED)) {
            self.hand = (self.hand + 1) % self.peers.len();
            let peer = &mut self.peers[self.hand];
            if of.is_some_and(|account| account != peer.account) {
                continue;
            }
            if std::mem::replace(&mut peer.used, false) || !peer.open {
                continue;
            }
            if endpoint.close_peer(now, PeerId(self.hand as u32)) {
                peer.open = false;
                let key = (peer.address, peer.source);
                self.forget(key, self.hand as u32);
            }
        }
        self.evicted > before
    }

    fn forget(&mut self, key: Key, index: u32) {
        let address = key.0;
        self.by_address.remove(&key);
        self.refusals.remove(&Some(PeerId(index)));
        self.accounts.close(self.peers[index as usize].account);
        self.free.push(index);
        self.last = None;
        self.evicted += 1;
        if let Some(host) = self.hosts.get_mut(&address.ip()) {
            host.peers -= 1;
            if host.peers == 0 {
                self.hosts.remove(&address.ip());
            }
        }
    }
}

#[cfg(test)]
mod tests;
