//! Packs packets into datagrams and datagrams into trains.
//!
//! Packets are pulled from the protocol one at a time, in its order. A short one joins the datagram
//! that already waits in the batch for its peer, if there is one with room at its level or, on
//! links faster than we are, at a higher one: it then leaves a little earlier than its turn, within
//! a batch that the pacer keeps short, and saves a pass through both kernels and the headers of a
//! datagram. Neighbouring datagrams of one size to one peer become a train. Headers and short
//! payloads are written once, where the kernel reads them; long payloads are left in their message.
//!
//! Directly over IP every packet is a datagram of its own.

use homa_proto::wire::datagram::{
    self, DATA_OVERHEAD, Draft, REQUEST_OVERHEAD, RequestExtensions, Writer,
};
use homa_proto::wire::{self, ACK_LEN};
use homa_proto::{Body, Data, Endpoint, FULL_FRAME, Links, Packet, PeerId, Span, Time};

use super::context::RequestContext;
use super::messages::Messages;
use super::peers::{Peer, Peers};
use crate::PriorityMap;
use crate::driver::{Encapsulation, Outbox, TRAIN_MAX, Train, TrainPiece};

/// Longest payload that is copied to share a datagram with others.
const SHORT: u32 = 600;
/// Slices of a message that one packet is gathered from; more are copied together, so that what the
/// kernel is handed stays short.
const SLICES_MAX: usize = 8;
/// Bytes of a train of long packets. Where the link is the bottleneck the pacer asks for two
/// packets at a time, which keeps SRPT fine-grained (Homa §3.2 orders packets); longer trains form
/// only on links that swallow them as fast as we write.
const LONG_TRAIN: usize = 60_000;
/// Datagrams of a train (the oldest kernels with offload take 64).
const DATAGRAMS_MAX: usize = 64;
/// Trains in a batch.
const TRAINS_MAX: usize = 64;
/// Preamble, Ethernet header, checksum and gap.
const ETHERNET: u32 = 38;
/// Smallest Ethernet frame, with preamble and gap.
const FRAME_MIN: u32 = 84;
/// UDP header.
const UDP: usize = 8;

/// Packs batches; numbers datagrams.
#[derive(Debug)]
pub struct Packer {
    outbox: Outbox,
    /// Bytes of `outbox.bytes` in use; the rest is room.
    used: usize,
    /// The batch, in order of the datagrams' first packets.
    datagrams: Vec<PackedDatagram>,
    /// Payloads that do not lie together, slice by slice, and whose datagrams they are.
    slices: Vec<(usize, Span)>,
    /// The latest datagram of each peer; may be of an earlier batch.
    latest: Vec<u32>,
    /// Peers that RESENDs were packed for.
    resend_peers: Vec<PeerId>,
    next_number: u64,
    ports: Vec<u16>,
    map: PriorityMap,
    encapsulation: Encapsulation,
}

/// A datagram of the batch.
#[derive(Clone, Copy, Debug)]
struct PackedDatagram {
    route: Route,
    /// Its place in `outbox.bytes`.
    start: usize,
    /// Bytes there.
    len: usize,
    content: DatagramContent,
}

#[derive(Clone, Copy, Debug)]
enum DatagramContent {
    /// Packets with their payloads; more may follow.
    Short(Draft),
    /// The headers of one packet, whose payload is still in its message.
    Long(Span),
    /// One packet, complete.
    Alone,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
struct Route {
    id: PeerId,
    local_port: u16,
    priority: u8,
    peer: Peer,
    socket: usize,
}

impl Route {
    /// True when a packet may share the datagram; with `rise` also one of a lower level.
    fn takes(&self, packet: &Packet, rise: bool) -> bool {
        (self.id, self.local_port) == (packet.peer, packet.local_port)
            && (self.priority == packet.priority || (rise && self.priority > packet.priority))
    }

    /// True when datagrams may share a train.
    fn same_way(&self, other: &Self) -> bool {
        (self.id, self.priority, self.local_port) == (other.id, other.priority, other.local_port)
    }
}

/// What a packer pulls from.
pub struct Sources<'a> {
    /// The protocol.
    pub endpoint: &'a mut Endpoint,
    /// Bytes of messages.
    pub messages: &'a Messages,
    /// Addresses.
    pub peers: &'a Peers,
    /// The links that the packets may take.
    pub links: Links,
}

impl Packer {
    /// A packer that has sent nothing.
    pub fn new(map: PriorityMap, encapsulation: Encapsulation) -> Self {
        Self {
            outbox: Outbox::default(),
            used: 0,
            datagrams: Vec::new(),
            slices: Vec::new(),
            latest: Vec::new(),
            resend_peers: Vec::new(),
            next_number: 1,
            ports: Vec::new(),
            map,
            encapsulation,
        }
    }

    /// Tells the ports of the driver's sockets, in their order.
    pub fn set_ports(&mut self, ports: Vec<u16>) {
        self.ports = ports;
    }

    /// Bytes that the first packet of a request with these terms lacks for the message.
    pub fn head(&self, context: &RequestContext) -> u8 {
        match self.encapsulation {
            Encapsulation::Datagram => context.to_extensions(Time::ZERO).encoded_len() as u8,
            Encapsulation::Ip => 0,
        }
    }

    /// The peers of RESENDs packed since last asked.
    pub fn take_resend_peers(&mut self) -> impl Iterator<Item = PeerId> {
        self.resend_peers.dedup();
        self.resend_peers.drain(..)
    }

    /// The batch packed last.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Pulls packets for at most `room` wire bytes (at least a full frame's worth); returns the
    /// wire bytes packed.
    ///
    /// With `rise`, a short packet may ride at the higher level of a datagram that its peer gets
    /// anyway: for links so fast that packets cost us more than bytes cost them.
    #[inline]
    pub fn pack(&mut self, now: Time, room: u32, rise: bool, from: &mut Sources<'_>) -> u32 {
        self.outbox.clear();
        self.datagrams.clear();
        self.slices.clear();
        self.used = 0;
        let (mut wire, mut turns) = (0, 0);
        // A packet that was pulled must leave, and may need a full frame.
        while wire == 0 || (wire + FULL_FRAME <= room && turns < TRAINS_MAX) {
            let Some(packet) = from.endpoint.transmit_by(now, from.links) else { break };
            let before = self.datagrams.len();
            wire += match &packet.body {
                _ if self.encapsulation == Encapsulation::Ip => self.pack_alone(&packet, from),
                Body::Data(data) if data.span.len > SHORT => {
                    self.pack_long(now, &packet, data, from)
                }
                Body::Resend { .. } => {
                    self.resend_peers.push(packet.peer);
                    self.pack_short(now, &packet, rise, from)
                }
                _ => self.pack_short(now, &packet, rise, from),
            };
            // Counts at least as many as there will be trains.
            turns += usize::from(match &self.datagrams[before.saturating_sub(1)..] {
                [last, new] => !last.route.same_way(&new.route),
                _ => self.datagrams.len() > before,
            });
        }
        self.form_trains();
        wire
    }

    /// Packs control packets alone, each padded with zeros to an IP packet of so many bytes;
    /// returns the wire bytes.
    pub fn pack_probe(&mut self, packets: &[(Packet, u16)], peers: &Peers) -> u32 {
        self.outbox.clear();
        self.datagrams.clear();
        self.used = 0;
        let mut wire = 0;
        for (packet, size) in packets {
            let Some(route) = self.route(packet, peers) else { continue };
            let padded = peers.datagram_at(&route.peer, *size);
            let (start, number, encapsulation) = (self.used, self.next_number, self.encapsulation);
            let room = self.reserve(padded.max(DATA_OVERHEAD));
            room.fill(0);
            let encoded = match encapsulation {
                Encapsulation::Datagram => datagram::encode(packet, number, room),
                Encapsulation::Ip => wire::encode(packet, room),
            };
            let Ok(encoded) = encoded else { continue };
            let len = padded.max(encoded);
            self.next_number += 1;
            self.used += len;
            self.datagrams.push(PackedDatagram {
                route,
                start,
                len,
                content: DatagramContent::Alone,
            });
            wire += self.wire_bytes(len, route.peer.address.is_ipv4());
        }
        self.form_trains();
        wire
    }

    fn route(&self, packet: &Packet, peers: &Peers) -> Option<Route> {
        let peer = *peers.get(packet.peer)?;
        // A port of nobody is answered for from any socket.
        let socket = match self.ports.first() {
            Some(&port) if port == packet.local_port => 0,
            _ => self.ports.iter().position(|&port| port == packet.local_port).unwrap_or(0),
        };
        let &Packet { peer: id, local_port, priority, .. } = packet;
        Some(Route { id, local_port, priority, peer, socket })
    }

    /// Room for a datagram of `len` bytes.
    fn reserve(&mut self, len: usize) -> &mut [u8] {
        let end = self.used + len;
        if self.outbox.bytes.len() < end {
            self.outbox.bytes.resize(2 * end, 0);
        }
        &mut self.outbox.bytes[self.used..end]
    }

    /// A packet as the payload of an IP packet; returns its wire bytes.
    fn pack_alone(&mut self, packet: &Packet, from: &Sources<'_>) -> u32 {
        let Some(route) = self.route(packet, from.peers) else { return 0 };
        let start = self.used;
        // No header is longer than that of an ACK.
        let Ok(len) = wire::encode(packet, self.reserve(ACK_LEN)) else { return 0 };
        self.used += len;
        let (content, payload) = match &packet.body {
            Body::Data(data) => match self.payload(data.span, from.messages) {
                Some(content) => (content, data.span.len as usize),
                None => return 0,
            },
            _ => (DatagramContent::Alone, 0),
        };
        let wire = self.wire_bytes(len + payload, route.peer.address.is_ipv4());
        let len = self.used - start;
        self.datagrams.push(PackedDatagram { route, start, len, content });
        wire
    }

    /// Leaves the payload of a packet, whose headers were written last, in its message, or copies
    /// it behind them; `None` when it is not all there.
    #[inline]
    fn payload(&mut self, span: Span, messages: &Messages) -> Option<DatagramContent> {
        if messages.get(span).is_some() {
            return Some(DatagramContent::Long(span));
        }
        self.payload_of_list(span, messages)
    }

    #[cold]
    fn payload_of_list(&mut self, span: Span, messages: &Messages) -> Option<DatagramContent> {
        let first = self.slices.len();
        let mut offset = span.offset;
        for slice in messages.slices(span) {
            let len = slice.len() as u32;
            self.slices.push((self.datagrams.len(), Span { offset, len, ..span }));
            offset += len;
        }
        if offset != span.offset + span.len {
            debug_assert!(false, "the protocol sends bytes of a message it released");
            self.slices.truncate(first);
            return None;
        }
        if self.slices.len() - first <= SLICES_MAX {
            return Some(DatagramContent::Long(span));
        }
        self.slices.truncate(first);
        messages.copy(span, self.reserve(span.len as usize));
        self.used += span.len as usize;
        Some(DatagramContent::Alone)
    }

    /// What a datagram costs on the link.
    fn wire_bytes(&self, len: usize, v4: bool) -> u32 {
        match self.encapsulation {
            Encapsulation::Datagram => wire_bytes(len + UDP, v4),
            Encapsulation::Ip => wire_bytes(len, v4),
        }
    }

    /// Begins a datagram with one DATA packet whose payload stays in its message; returns its wire
    /// bytes.
    #[inline]
    fn pack_long(&mut self, now: Time, packet: &Packet, data: &Data, from: &Sources<'_>) -> u32 {
        let Some(route) = self.route(packet, from.peers) else { return 0 };
        let (start, number) = (self.used, self.next_number);
        let extensions = match packet.begins_request() {
            true => from.messages.request_extensions(data.span.message, now),
            false => RequestExtensions::NONE,
        };
        let room = self.reserve(REQUEST_OVERHEAD);
        let Ok(headers) = datagram::encode_request(packet, &extensions, number, room) else {
            return 0;
        };
        self.used += headers;
        let Some(content) = self.payload(data.span, from.messages) else { return 0 };
        self.next_number += 1;
        let len = self.used - start;
        self.datagrams.push(PackedDatagram { route, start, len, content });
        self.wire_bytes(headers + data.span.len as usize, route.peer.address.is_ipv4())
    }

    /// Adds a short packet to the datagram that waits for its peer, or begins another; returns the
    /// wire bytes that this costs.
    fn pack_short(&mut self, now: Time, packet: &Packet, rise: bool, from: &Sources<'_>) -> u32 {
        let peer = packet.peer.0 as usize;
        if self.latest.len() <= peer {
            self.latest.resize(peer + 1, u32::MAX);
        }
        let latest = self.latest[peer] as usize;
        let last = latest.wrapping_add(1) == self.datagrams.len();
        if let Some(datagram) = self.datagrams.get_mut(latest)
            && datagram.route.id == packet.peer
            && let DatagramContent::Short(draft) = &mut datagram.content
        {
            if datagram.route.takes(packet, rise) {
                let end = datagram.start + datagram.route.peer.datagram;
                let buffer = &mut self.outbox.bytes[datagram.start..end];
                let mut writer = Writer::resume(buffer, *draft);
                let fits = push(&mut writer, now, packet, from.messages);
                *draft = writer.pause();
                let v4 = datagram.route.peer.address.is_ipv4();
                let before = std::mem::replace(&mut datagram.len, draft.len());
                if fits {
                    return wire_bytes(datagram.len + UDP, v4) - wire_bytes(before + UDP, v4);
                }
            }
            if last {
                // Nothing will be added to it: what follows needs no gap.
                self.used = datagram.start + datagram.len;
            }
        }
        self.begin_short(now, packet, from)
    }

    fn begin_short(&mut self, now: Time, packet: &Packet, from: &Sources<'_>) -> u32 {
        let Some(route) = self.route(packet, from.peers) else { return 0 };
        let (start, room, number) = (self.used, route.peer.datagram, self.next_number);
        let Ok(mut writer) = Writer::new(self.reserve(room), number) else { return 0 };
        if !push(&mut writer, now, packet, from.messages) {
            return 0;
        }
        let draft = writer.pause();
        let len = draft.len();
        self.next_number += 1;
        self.used = start + room;
        self.latest[packet.peer.0 as usize] = self.datagrams.len() as u32;
        self.datagrams.push(PackedDatagram {
            route,
            start,
            len,
            content: DatagramContent::Short(draft),
        });
        self.wire_bytes(len, route.peer.address.is_ipv4())
    }

    /// Turns the datagrams of the batch into trains of neighbours.
    fn form_trains(&mut self) {
        let Outbox { pieces, trains, .. } = &mut self.outbox;
        let mut last: Option<&Route> = None;
        let mut sliced = 0;
        for (index, datagram) in self.datagrams.iter().enumerate() {
            let PackedDatagram { route, start, len: buffered, content } = datagram;
            let buffer = *start..start + buffered;
            let (len, limit) = match content {
                DatagramContent::Short(_) | DatagramContent::Alone => (*buffered, TRAIN_MAX),
                DatagramContent::Long(span) => (buffered + span.len as usize, LONG_TRAIN),
            };
            let train = trains.last_mut().filter(|train: &&mut Train| {
                last.is_some_and(|last| last.same_way(route))
                    && train.len.is_multiple_of(train.datagram)
                    && len <= train.datagram
                    && train.len + len <= limit
                    && train.len < DATAGRAMS_MAX * train.datagram
            });
            match (train.is_some(), pieces.last_mut()) {
                (true, Some(TrainPiece::Buffered(before))) if before.end == buffer.start => {
                    before.end = buffer.end;
                }
                _ => pieces.push(TrainPiece::Buffered(buffer)),
            }
            let first = pieces.len() - 1;
            if let DatagramContent::Long(span) = content {
                let of_this = self.slices[sliced..].iter().take_while(|(of, _)| *of == index);
                pieces.extend(of_this.map(|(_, slice)| TrainPiece::Message(*slice)));
                let slices = pieces.len() - first - 1;
                sliced += slices;
                if slices == 0 {
                    pieces.push(TrainPiece::Message(*span));
                }
            }
            match train {
                Some(train) => {
                    train.len += len;
                    train.pieces.end = pieces.len();
                }
                None => trains.push(Train {
                    to: route.peer.address,
                    link: route.peer.link,
                    socket: route.socket,
                    source: route.peer.source,
                    tos: self.map.tos(route.priority),
                    datagram: len,
                    len,
                    pieces: first..pieces.len(),
                }),
            }
            last = Some(route);
        }
    }
}

/// Appends a short packet to a datagram; false when there is no room.
fn push(writer: &mut Writer<'_>, now: Time, packet: &Packet, messages: &Messages) -> bool {
    let Body::Data(data) = &packet.body else { return writer.push(packet).is_ok() };
    let pushed = match packet.begins_request() {
        true => writer.push_request(packet, &messages.request_extensions(data.span.message, now)),
        false => writer.push(packet),
    };
    let Ok(place) = pushed else { return false };
    match messages.get(data.span) {
        Some(payload) if place.len() == payload.len() => place.copy_from_slice(payload),
        _ => {
            let copied = messages.copy(data.span, place);
            debug_assert!(copied, "the protocol sends bytes of a released message");
        }
    }
    true
}

/// What an IP payload costs on the link.
fn wire_bytes(len: usize, v4: bool) -> u32 {
    let headers = if v4 { 20 } else { 40 };
    (len as u32 + headers + ETHERNET).max(FRAME_MIN)
}

#[cfg(test)]
mod tests;
