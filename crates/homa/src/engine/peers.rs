//! Addresses and the numbers that the protocol knows peers by.
//!
//! A peer is an IP address and a UDP port: one engine, in its own process. Directly over IP it is a
//! host, because the kernel module keeps cutoffs per host and acknowledges the RPCs of all of a
//! host's ports in any packet to it; such a peer's address has port 0. To a server that listens
//! at all addresses of its host, a client that calls two of them is two peers: each is answered
//! from the address it called. Peers appear when first needed and are forgotten, longest unused
//! first as far as cheaply known, when the table is full. A packet gives up soon when all peers
//! seem to be needed; a call of ours looks at all of them. Senders that have not proven that they
//! receive where they say have a small part of it to themselves, where the oldest gives its place
//! to the next.
//!
//! The route to a peer is asked for its MTU when the first message to it is at hand, not at its
//! first packet: that takes system calls, and anybody can invent senders.

use std::collections::VecDeque;
use std::iter;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use homa_proto::wire::DATA_LEN;
use homa_proto::wire::datagram::DATA_OVERHEAD;
use homa_proto::{Endpoint, LinkId, PeerId, PeerInfo, Time};

use super::accounts::{AccountId, Accounts};
use super::budgets::Budgets;
use crate::driver::{Framing, RouteMtu};
use crate::metrics::{Direction, Ended, PeerLatency, busiest};

/// IPv4 and IPv6 headers without options, bytes.
const HEADER_V4: u16 = 20;
const HEADER_V6: u16 = 40;
/// A UDP header, bytes.
const HEADER_UDP: u16 = 8;
/// Smallest MTU that links promise (IPv4 hosts take packets of so many bytes).
const MTU_MIN: u16 = 576;
/// Entries examined when room is needed.
const EXAMINED: usize = 64;
/// Strangers have one entry in this many.
const STRANGERS: usize = 16;

/// Addresses of our own that are remembered, to be looked for when a client is unreachable.
const SOURCES_MAX: usize = 64;

/// What is known about a peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Our address as it knows us, where we have several and it is the client.
    pub source: Option<IpAddr>,
    /// Bytes in a datagram to it.
    pub datagram: usize,
    /// The route was asked, where that is needed.
    measured: bool,
    /// Its host.
    account: AccountId,
    /// The link that its packets take, and by which of the kernel's answers (0: it was not asked).
    pub link: LinkId,
    routed: u32,
    /// Used since the clock hand last passed.
    used: bool,
    open: bool,
}

/// A peer's address, and ours as [`Peer::source`].
type Key = (SocketAddr, Option<IpAddr>);

/// The table of peers.
#[derive(Debug)]
pub struct Peers {
    by_address: HashMap<Key, u32>,
    hosts: HashMap<IpAddr, Host>,
    accounts: Accounts,
    peers: Vec<Peer>,
    free: Vec<u32>,
    next_host: u32,
    /// Addresses of ours that clients called.
    sources: Vec<IpAddr>,
    last: Option<(Key, u32)>,
    hand: usize,
    /// Senders that had proven nothing when they appeared, oldest first.
    strangers: VecDeque<(Key, u32)>,
    max: usize,
    mtu: u16,
    framing: Framing,
    routes: Option<RouteMtu>,
    evicted: u64,
    /// By number and direction: the RPCs with each that ended.
    ended: Vec<[Ended; 2]>,
}

#[derive(Debug)]
struct Host {
    number: u32,
    peers: u32,
}

impl Peers {
    /// A table of at most `max` peers behind links of the given MTU.
    pub fn new(max: u32, mtu: u16, framing: Framing, routes: Option<RouteMtu>) -> Self {
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
            strangers: VecDeque::new(),
            max: max.max(1) as usize,
            mtu,
            framing,
            routes,
            evicted: 0,
            ended: Vec::new(),
        }
    }

    /// Of a peer's RPCs those that ended, of a direction.
    pub fn ended(&mut self, id: PeerId, direction: Direction) -> &mut Ended {
        &mut self.ended[id.0 as usize][direction as usize]
    }

    /// The peers with most RPCs, of each direction.
    pub fn busiest(&self) -> Vec<PeerLatency> {
        let open = self.peers.iter().zip(&self.ended).filter(|(peer, _)| peer.open);
        busiest(open.map(|(peer, ended)| (peer.address, ended)))
    }

    /// The peer with a number that the protocol returned.
    pub fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)
    }

    /// The account of a peer's host.
    pub fn account(&self, id: PeerId) -> AccountId {
        self.get(id).map_or(0, |peer| peer.account)
    }

    /// Peers in the table and peers forgotten so far.
    pub fn count(&self) -> (usize, u64) {
        (self.by_address.len(), self.evicted)
    }

    /// The numbers that an address is known by: as a server, and as a client of each of our
    /// addresses.
    pub fn known(&self, address: SocketAddr) -> impl Iterator<Item = PeerId> {
        let address = self.of_peer(address);
        let sources = self.sources.iter().copied().map(Some);
        let keys = iter::once(None).chain(sources).map(move |source| (address, source));
        keys.filter_map(|key| self.by_address.get(&key).map(|&index| PeerId(index)))
    }

    /// The number of an address that is known.
    pub fn of(&mut self, address: SocketAddr, source: Option<IpAddr>) -> Option<PeerId> {
        let key = (self.of_peer(address), source);
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

    /// The number of an address that is not known and sent something.
    pub fn find_stranger(
        &mut self,
        now: Time,
        address: SocketAddr,
        source: Option<IpAddr>,
        endpoint: &mut Endpoint,
    ) -> Option<PeerId> {
        let most = (self.max / STRANGERS).max(1);
        while self.strangers.len() >= most {
            self.drop_stranger(now, endpoint);
        }
        let peer = self.find(now, address, source, endpoint)?;
        if !endpoint.is_proven(peer) {
            self.strangers.push_back(((self.of_peer(address), source), peer.0));
        }
        Some(peer)
    }

    /// Forgets the oldest of those that have proven nothing, unless it has by now.
    fn drop_stranger(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some((key, index)) = self.strangers.pop_front() else { return };
        let id = PeerId(index);
        if self.by_address.get(&key) != Some(&index) || endpoint.is_proven(id) {
            return;
        }
        endpoint.drop_stranger(id);
        if endpoint.close_peer(now, id) {
            self.peers[index as usize].open = false;
            self.forget(key, index);
        }
    }

    /// The number of an address, new if need be; `None` when the table is full of busy peers.
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

    /// Forgets peers without RPCs to make room for one, however long that takes.
    pub fn make_room(&mut self, now: Time, endpoint: &mut Endpoint) {
        // The first look at an entry may only clear its mark.
        let mut looks = 2 * self.peers.len();
        while self.by_address.len() >= self.max && looks > 0 {
            self.evict(now, endpoint);
            looks = looks.saturating_sub(EXAMINED);
        }
    }

    /// To be called before a message to a peer is submitted: its packets get the size that the
    /// route takes. Returns that where it is less than ours, when it was asked.
    pub fn measure(&mut self, id: PeerId, endpoint: &mut Endpoint) -> Option<(SocketAddr, u16)> {
        let peer = self.peers.get_mut(id.0 as usize).filter(|peer| !peer.measured)?;
        let address = peer.address;
        let route = self.routes.map(|routes| routes(address));
        // Where there is no route yet, it is asked for again before the next message.
        peer.measured = route != Some(None);
        let mtu = route.flatten().filter(|&route| route < self.mtu)?.max(MTU_MIN);
        self.set_mtu(id, mtu, endpoint);
        Some((address, mtu))
    }

    /// Packets to a peer have at most so many bytes from now on, IP header included; true when that
    /// is less than before.
    pub fn set_mtu(&mut self, id: PeerId, mtu: u16, endpoint: &mut Endpoint) -> bool {
        let Some(peer) = self.get(id) else { return false };
        let (datagram, overhead) = self.datagram_to(peer.address, mtu);
        let before = std::mem::replace(&mut self.peers[id.0 as usize].datagram, datagram);
        if before != datagram {
            endpoint.set_max_payload(id, (datagram - overhead) as u32);
        }
        datagram < before
    }

    /// A peer's address, and the size of IP packets to it.
    pub fn path(&self, id: PeerId) -> Option<(SocketAddr, u16)> {
        let peer = self.get(id).filter(|peer| peer.open)?;
        let headers = self.mtu as usize - self.datagram_to(peer.address, self.mtu).0;
        Some((peer.address, (peer.datagram + headers) as u16))
    }

    /// Bytes in a datagram that fills an IP packet of `size` bytes to a peer.
    pub fn datagram_at(&self, peer: &Peer, size: u16) -> usize {
        let headers = self.mtu as usize - self.datagram_to(peer.address, self.mtu).0;
        usize::from(size).saturating_sub(headers)
    }

    /// To be called before a message to a peer is submitted: its packets take the link of its
    /// route, and messages under way follow where that changed.
    pub fn find_link(&mut self, id: PeerId, budgets: &mut Budgets, endpoint: &mut Endpoint) {
        let current = budgets.generation();
        let Some(peer) = self.peers.get_mut(id.0 as usize).filter(|p| p.routed != current) else {
            return;
        };
        peer.routed = current;
        let link = budgets.link_to(peer.address, peer.source, endpoint);
        if std::mem::replace(&mut peer.link, link) != link {
            endpoint.set_route(id, link);
        }
    }

    /// The address of the peer that is at `address`.
    pub fn of_peer(&self, mut address: SocketAddr) -> SocketAddr {
        if self.framing == Framing::Ip {
            address.set_port(0);
        }
        address
    }

    /// Bytes in a datagram to a peer behind links of some MTU, and those of them in front of a
    /// message's.
    fn datagram_to(&self, address: SocketAddr, mtu: u16) -> (usize, usize) {
        let header = if address.is_ipv4() { HEADER_V4 } else { HEADER_V6 };
        match self.framing {
            Framing::Datagram => (usize::from(mtu - header - HEADER_UDP), DATA_OVERHEAD),
            Framing::Ip => (usize::from(mtu - header), DATA_LEN),
        }
    }

    fn open(&mut self, now: Time, key: Key, endpoint: &mut Endpoint) -> Option<u32> {
        if self.by_address.len() >= self.max {
            self.evict(now, endpoint);
        }
        if self.by_address.len() >= self.max {
            return None;
        }
        let (address, source) = key;
        let (datagram, overhead) = self.datagram_to(address, self.mtu);
        let measured = self.routes.is_none();
        let account = self.accounts.open(address.ip());
        let peer = Peer {
            account,
            address,
            source,
            datagram,
            measured,
            link: LinkId(0),
            routed: 0,
            used: true,
            open: true,
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
            Host { number: *next_host, peers: 0 }
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
        endpoint.set_account(PeerId(index), account);
        self.by_address.insert(key, index);
        Some(index)
    }

    /// Forgets some peers without RPCs that were not used since the hand last came by.
    fn evict(&mut self, now: Time, endpoint: &mut Endpoint) {
        if self.peers.is_empty() {
            return;
        }
        // The first look at an entry may only clear its mark.
        for _ in 0..EXAMINED.max(self.peers.len().min(2 * EXAMINED)) {
            self.hand = (self.hand + 1) % self.peers.len();
            let peer = &mut self.peers[self.hand];
            if std::mem::replace(&mut peer.used, false) || !peer.open {
                continue;
            }
            if endpoint.close_peer(now, PeerId(self.hand as u32)) {
                peer.open = false;
                let key = (peer.address, peer.source);
                self.forget(key, self.hand as u32);
            }
        }
    }

    fn forget(&mut self, key: Key, index: u32) {
        let address = key.0;
        self.by_address.remove(&key);
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
mod tests {
    use super::*;
    use crate::driver::raw_ip::route_mtu;
    use crate::metrics::Outcome;

    fn address(n: u32) -> SocketAddr {
        SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1000))
    }

    #[test]
    fn a_flood_of_addresses_stays_within_the_table() {
        let config = homa_proto::Config::for_users(homa_proto::Rate::gbps(10));
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        let mut peers = Peers::new(100, 1500, Framing::Datagram, None);
        let mut served = 0;
        for n in 0..10_000 {
            served +=
                usize::from(peers.find(Time::ZERO, address(n), None, &mut endpoint).is_some());
        }
        let (count, evicted) = peers.count();
        assert!(count <= 100 && peers.peers.len() <= 100, "{count} peers");
        assert_eq!(served as u64, count as u64 + evicted);
        assert!(served > 9_000, "idle peers make room: {served}");
        assert!(peers.hosts.len() <= 100);
    }

    #[test]
    fn a_call_finds_room_whoever_sent_a_packet_lately() {
        const MAX: u32 = 65_536;
        let config = homa_proto::Config::for_users(homa_proto::Rate::gbps(10));
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        let mut peers = Peers::new(MAX, 1500, Framing::Datagram, None);
        let mut find = |n| {
            let address = SocketAddr::from(([10, 0, (n >> 16) as u8, 1], n as u16));
            let found = peers.find(Time::ZERO, address, None, &mut endpoint);
            if found.is_none() {
                peers.make_room(Time::ZERO, &mut endpoint);
                return peers.find(Time::ZERO, address, None, &mut endpoint);
            }
            found
        };
        assert!((0..=MAX).all(|n| find(n).is_some()));
        assert!(peers.count().1 > 0, "somebody was forgotten");
    }

    #[test]
    fn what_ended_with_a_peer_is_not_said_of_the_one_that_gets_its_number() {
        let config = homa_proto::Config::for_users(homa_proto::Rate::gbps(10));
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        let mut peers = Peers::new(1, 1500, Framing::Datagram, None);
        let first = peers.find(Time::ZERO, address(1), None, &mut endpoint).unwrap();
        peers.ended(first, Direction::Client).add(5, Outcome::Ok);
        assert_eq!(peers.busiest().len(), 1);
        peers.make_room(Time::ZERO, &mut endpoint);
        let second = peers.find(Time::ZERO, address(2), None, &mut endpoint);
        assert_eq!((second, peers.busiest()), (Some(first), Vec::new()));
    }

    #[test]
    fn a_datagram_leaves_room_for_the_headers_of_its_family() {
        let config = homa_proto::Config::for_users(homa_proto::Rate::gbps(10));
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        let mut peers = Peers::new(100, 1500, Framing::Datagram, None);
        let v4 = peers.find(Time::ZERO, address(1), None, &mut endpoint).unwrap();
        let v6 = peers
            .find(Time::ZERO, "[2001:db8::1]:5".parse().unwrap(), None, &mut endpoint)
            .unwrap();
        assert_eq!(peers.get(v4).unwrap().datagram - DATA_OVERHEAD, 1400);
        assert_eq!(peers.get(v6).unwrap().datagram - DATA_OVERHEAD, 1380);
    }

    #[test]
    fn over_ip_a_host_is_one_peer_with_the_payload_of_the_kernel_module() {
        let config = homa_proto::Config::linux();
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        let mut peers = Peers::new(100, 1500, Framing::Ip, Some(route_mtu));
        let mut find = |text: &str| {
            let address = text.parse().unwrap();
            peers.find(Time::ZERO, address, None, &mut endpoint).unwrap()
        };
        let (v4, v6) = (find("127.0.0.1:4000"), find("[::1]:4000"));
        assert_eq!((find("127.0.0.1:32768"), find("[::1]:4001")), (v4, v6));
        let known: Vec<PeerId> = peers.known("127.0.0.1:4001".parse().unwrap()).collect();
        assert_eq!(known, [v4]);
        // Whoever sends a packet causes no system call; a message to them does.
        let asked = |peers: &Peers| [v4, v6].map(|id| peers.get(id).unwrap().measured);
        assert_eq!(asked(&peers), [false, false]);
        peers.measure(v6, &mut endpoint);
        assert_eq!(asked(&peers), [false, true]);
        let payload = |id| peers.get(id).unwrap().datagram - DATA_LEN;
        assert_eq!((payload(v4), payload(v6)), (1424, 1404), "a route's MTU only lowers ours");
    }
}
