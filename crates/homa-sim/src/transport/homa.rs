//! Homa's own protocol code as a host transport.
//!
//! The adapter numbers peers densely, in the order in which they appear, so that a host's state
//! grows with the number of its peers rather than with the network. It computes the wire size of
//! packets from their framing. If clients change their address ([`Moves`]), a host is a separate
//! peer at each address.

use homa_proto::{
    Body, Endpoint, Event, MessageId, Packet, PeerId, PeerInfo, Receipt, Request, Submit,
    SubmitError, Submitted, Time,
};

use crate::headers::Headers;
use crate::topology::HostId;

use super::{DataContent, Label, PacketContent, PacketMeta, Transport, message_number};

/// No peer yet.
const UNKNOWN: u32 = u32::MAX;
/// Up to this many peers, lookups scan the list; beyond that they use a table.
const FEW: usize = 8;

/// An endpoint and its framing. Aligned to a cache line, so that its fields span as few lines as
/// possible.
#[derive(Debug)]
#[repr(align(64))]
pub struct Homa {
    endpoint: Endpoint,
    framing: Headers,
    /// Message bytes in a full packet.
    max_payload: u32,
    /// By host: its number at the endpoint. Empty while there are few peers.
    peers: Vec<u32>,
    /// By number at the endpoint: the host, or its later address.
    hosts: Vec<HostId>,
    moves: Option<Moves>,
}

/// Clients that get another address, as behind a network address translator that dropped its state.
/// The client does not notice, and packets that servers send to its former address are lost.
/// Servers keep their addresses.
#[derive(Clone, Debug)]
pub struct Moves {
    /// Number of hosts.
    pub hosts: u32,
    /// The clients that move, and when.
    pub at: Vec<(HostId, Time)>,
}

impl Moves {
    /// The number that stands for the address of a client; before any move, the host's number.
    fn address(&self, host: HostId, now: Time) -> u32 {
        let moved = self.at.iter().filter(|(who, at)| *who == host && *at <= now);
        host.0 + self.hosts * moved.count() as u32
    }

    /// The host that has an address.
    fn host(&self, address: HostId) -> HostId {
        HostId(address.0 % self.hosts)
    }

    /// Whether a packet to this address reaches its host.
    fn reaches(&self, packet: &Packet, address: HostId, now: Time) -> bool {
        !packet.id.from_server() || self.address(self.host(address), now) == address.0
    }
}

impl Homa {
    /// A host's transport. Peers are opened when they first appear.
    pub fn new(endpoint: Endpoint, framing: Headers) -> Self {
        let max_payload = framing.max_payload();
        let (peers, hosts) = (Vec::new(), Vec::new());
        Self { endpoint, framing, max_payload, peers, hosts, moves: None }
    }

    /// The same with IP packets of up to `mtu` bytes.
    pub fn with_mtu(self, mtu: u32) -> Self {
        let max_payload = self.framing.payload_at(mtu);
        Self { max_payload, ..self }
    }

    /// The same, among clients that move.
    pub fn with_moves(self, moves: Moves) -> Self {
        Self { moves: Some(moves), ..self }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    #[inline]
    fn peer(&mut self, host: u32) -> PeerId {
        match self.peers.get(host as usize) {
            Some(&peer) if peer != UNKNOWN => PeerId(peer),
            _ => self.find_or_open(host),
        }
    }

    #[inline(never)]
    fn find_or_open(&mut self, host: u32) -> PeerId {
        if self.peers.is_empty()
            && let Some(peer) = self.hosts.iter().position(|known| known.0 == host)
        {
            return PeerId(peer as u32);
        }
        let peer = PeerId(self.hosts.len() as u32);
        self.hosts.push(HostId(host));
        if self.hosts.len() > FEW {
            let last = self.hosts.iter().map(|host| host.0).max().unwrap_or(host);
            self.peers.resize(self.peers.len().max(last as usize + 1), UNKNOWN);
            for (peer, host) in (0..).zip(&self.hosts) {
                self.peers[host.0 as usize] = peer;
            }
        }
        let max_payload = self.max_payload;
        let host = self.host(peer).0;
        self.endpoint.open_peer(peer, PeerInfo { host, max_payload });
        peer
    }

    #[inline]
    fn host(&self, peer: PeerId) -> PeerId {
        let address = self.hosts[peer.0 as usize];
        PeerId(self.moves.as_ref().map_or(address, |moves| moves.host(address)).0)
    }

    /// The address that a packet comes from.
    #[inline]
    fn sender(&self, now: Time, packet: &Packet, from: HostId) -> u32 {
        let moves = self.moves.as_ref().filter(|_| !packet.id.from_server());
        moves.map_or(from.0, |moves| moves.address(from, now))
    }

    #[inline(never)]
    fn is_lost(&self, now: Time, packet: &Packet) -> bool {
        let address = self.hosts[packet.peer.0 as usize];
        self.moves.as_ref().is_some_and(|moves| !moves.reaches(packet, address, now))
    }
}

impl Transport for Homa {
    type Packet = Packet;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let what = match what {
            Submit::Request(request) => {
                Submit::Request(Request { peer: self.peer(request.peer.0), ..request })
            }
            Submit::OneWay { peer, length, cookie } => {
                Submit::OneWay { peer: self.peer(peer.0), length, cookie }
            }
            other => other,
        };
        self.endpoint.submit(now, what)
    }

    #[inline]
    fn event(&mut self) -> Option<Event> {
        let mut event = self.endpoint.event()?;
        if let Event::Delivered(delivered) = &mut event {
            delivered.peer = self.host(delivered.peer);
        }
        Some(event)
    }

    #[inline]
    fn receive(&mut self, now: Time, packet: &Packet, arrival: PacketMeta) -> Receipt {
        let peer = self.peer(self.sender(now, packet, arrival.from));
        let mut received = as_received(arrival.from, packet);
        received.peer = peer;
        self.endpoint.receive(now, &received)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<Packet> {
        let mut packet = self.endpoint.transmit(now)?;
        while self.moves.is_some() && self.is_lost(now, &packet) {
            packet = self.endpoint.transmit(now)?;
        }
        packet.peer = self.host(packet.peer);
        Some(packet)
    }

    #[inline]
    fn label(&self, packet: &Packet) -> Label {
        let id = packet.id.client().0;
        Label {
            priority: packet.priority,
            flow: (id >> 32) as u32 ^ id as u32,
            ..Label::new(HostId(packet.peer.0), self.framing.wire_bytes(packet))
        }
    }

    #[inline]
    fn content(packet: &Packet) -> PacketContent {
        let message = message_number(packet.id.client());
        match &packet.body {
            Body::Data(data) => PacketContent::Data(DataContent {
                message,
                offset: data.span.offset,
                len: data.span.len,
                total: data.message_length,
                permitted: data.incoming,
                resent: data.retransmit,
            }),
            Body::Grant { offset, .. } => PacketContent::Permit { message, offset: *offset },
            _ => PacketContent::Other,
        }
    }

    fn refused(&self) -> u64 {
        self.endpoint.counters().drops().map(|(_, count)| count).sum()
    }

    fn expire(&mut self, now: Time) {
        self.endpoint.expire(now);
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        self.endpoint.deadline()
    }

    const PREFETCH_STEPS: u32 = Endpoint::PREFETCH_STEPS;

    #[inline]
    fn prefetch(&self, step: u32, packet: Option<(&Packet, HostId)>) -> u64 {
        let Some((packet, from)) = packet else {
            let first = self.hosts.first().filter(|_| step == 1);
            return self.endpoint.prefetch(step, None) ^ u64::from(first.map_or(0, |host| host.0));
        };
        if step == 0 {
            let lines = packet.id.0 ^ u64::from(packet.remote_port) ^ self.hosts.len() as u64;
            return lines ^ self.endpoint.prefetch(step, None);
        }
        let peer = match self.peers.get(from.0 as usize) {
            Some(&peer) => peer,
            None => self.hosts.iter().position(|known| *known == from).unwrap_or(0) as u32,
        };
        let received = Packet { peer: PeerId(peer), ..*packet };
        self.endpoint.prefetch(step, Some(&received))
    }

    #[inline]
    fn has_packet(&self) -> bool {
        self.endpoint.has_packet()
    }
}

/// A packet as its receiver sees it: with its sender, with the ports as seen from the receiver, and
/// without the sender's message number.
#[inline]
pub fn as_received(from: HostId, packet: &Packet) -> Packet {
    let mut received = Packet {
        peer: PeerId(from.0),
        local_port: packet.remote_port,
        remote_port: packet.local_port,
        ..*packet
    };
    if let Body::Data(data) = &mut received.body {
        data.span.message = MessageId(0);
    }
    received
}
