//! Packs packets into datagrams, and datagrams into trains.
//!
//! Packets are pulled from the protocol one at a time, in its order. A short packet joins a
//! datagram that is already in the batch for the same peer, if there is room and the datagram has
//! the same priority. On links that are faster than we are, it may also join one of a higher
//! priority. It leaves slightly before its turn then, within a batch that the pacer keeps short,
//! but saves a pass through both kernels and a header. Adjacent datagrams of one size to one peer
//! become a train. Headers and short payloads are written once, into the buffer that the kernel
//! reads; long payloads stay in their message. Over raw IP, every packet is a datagram.

mod trains;

use homa_proto::wire::datagram::{self, DATA_OVERHEAD, Draft, REQUEST_OVERHEAD, RequestExtensions};
use homa_proto::wire::{self, ACK_LEN};
use homa_proto::{Body, Data, Endpoint, FULL_FRAME, Links, Packet, PeerId, Span, Time};

use super::context::RequestContext;
use super::messages::Messages;
use super::peers::{Peer, Peers};
use crate::PriorityMap;
use crate::driver::{Encapsulation, Outbox};
use crate::metrics::Stages;
use crate::padding::Padding;
use trains::Pads;

/// Longest payload that is copied to share a datagram with other packets.
const SHORT: u32 = 600;
/// Most slices of a message that one packet is gathered from. If there are more, they are copied,
/// so that the kernel's gather list stays short.
const SLICES_MAX: usize = 8;
/// Bytes of a train of long packets. If the link is the bottleneck, the pacer asks for two packets
/// at a time, which keeps SRPT fine-grained (Homa §3.2 orders packets). Longer trains form only on
/// links that take packets as fast as we write them.
const LONG_TRAIN: usize = 60_000;
/// Most datagrams of a train. The oldest kernels with offload take 64.
const DATAGRAMS_MAX: usize = 64;
/// Most trains in a batch.
const TRAINS_MAX: usize = 64;
/// Preamble, Ethernet header, checksum, and gap, bytes.
const ETHERNET: u32 = 38;
/// Smallest Ethernet frame with preamble and gap, bytes.
const FRAME_MIN: u32 = 84;
/// UDP header, bytes.
const UDP: usize = 8;

/// Packs batches, and numbers datagrams.
#[derive(Debug)]
pub struct Packer {
    outbox: Outbox,
    /// Bytes of `outbox.bytes` that are in use.
    used: usize,
    /// The datagrams of the batch, in the order of their first packets.
    datagrams: Vec<PackedDatagram>,
    /// Slices of payloads that are not contiguous, with the index of their datagram.
    slices: Vec<(usize, Span)>,
    /// The latest datagram of each peer; it may belong to an earlier batch.
    latest: Vec<u32>,
    /// Peers for which RESENDs were packed.
    resend_peers: Vec<PeerId>,
    next_number: u64,
    ports: Vec<u16>,
    map: PriorityMap,
    encapsulation: Encapsulation,
    pads: Pads,
}

/// A datagram of the batch.
#[derive(Clone, Copy, Debug)]
struct PackedDatagram {
    route: Route,
    /// Its offset in `outbox.bytes`.
    start: usize,
    /// Its length there.
    len: usize,
    content: DatagramContent,
}

#[derive(Clone, Copy, Debug)]
enum DatagramContent {
    /// Packets with their payloads; more may follow.
    Short(Draft),
    /// The headers of one packet. Its payload stays in the message.
    Long(Span),
    /// One complete packet.
    Alone,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug)]
struct Route {
    id: PeerId,
    local_port: u16,
    priority: u8,
    peer: Peer,
    socket: usize,
}

impl Route {
    /// True if a packet may join the datagram; with `rise`, also a packet of a lower priority.
    fn takes(&self, packet: &Packet, rise: bool) -> bool {
        // A datagram has one priority, so a packet of a lower one rises and never the reverse.
        (self.id, self.local_port) == (packet.peer, packet.local_port)
            && (self.priority == packet.priority || (rise && self.priority > packet.priority))
    }

    /// True if two datagrams may share a train.
    fn same_way(&self, other: &Self) -> bool {
        (self.id, self.priority, self.local_port) == (other.id, other.priority, other.local_port)
    }
}

/// The sources of a packer.
pub struct Sources<'a> {
    /// The protocol.
    pub endpoint: &'a mut Endpoint,
    /// Bytes of messages.
    pub messages: &'a Messages,
    /// Addresses.
    pub peers: &'a Peers,
    /// RPCs that are followed.
    pub stages: &'a mut Stages,
    /// The links that the packets may leave by.
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
            pads: Pads::default(),
        }
    }

    /// Sets how many bytes the driver adds to each datagram, and how datagrams are padded.
    pub fn set_overhead(&mut self, bytes: u16, padding: Padding) {
        self.pads = Pads { padding, overhead: bytes.into() };
    }

    /// Sets the ports of the driver's sockets, by socket number.
    pub fn set_ports(&mut self, ports: Vec<u16>) {
        self.ports = ports;
    }

    /// Bytes that a request's context takes from the payload of its first packet.
    pub fn head(&self, context: &RequestContext) -> u8 {
        match self.encapsulation {
            Encapsulation::Datagram => context.to_extensions(Time::ZERO).encoded_len() as u8,
            Encapsulation::Ip => 0,
        }
    }

    /// The peers of RESENDs packed since the last call.
    pub fn take_resend_peers(&mut self) -> impl Iterator<Item = PeerId> {
        // Several RESENDs to one peer mostly leave together.
        self.resend_peers.dedup();
        self.resend_peers.drain(..)
    }

    /// The last batch.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Pulls packets for at most `room` wire bytes, but at least one packet; returns the wire bytes
    /// packed.
    ///
    /// With `rise`, a short packet may join a datagram of a higher priority that its peer gets
    /// anyway. This is for links so fast that a packet costs us more than its bytes cost the link.
    #[inline]
    pub fn pack(&mut self, now: Time, room: u32, rise: bool, from: &mut Sources<'_>) -> u32 {
        self.outbox.clear();
        self.datagrams.clear();
        self.slices.clear();
        self.used = 0;
        let (mut wire, mut turns) = (0, 0);
        // A packet that was pulled must leave, and it may take a full frame.
        while wire == 0 || (wire + FULL_FRAME <= room && turns < TRAINS_MAX) {
            let Some(packet) = from.endpoint.transmit_by(now, from.links) else { break };
            crate::engine::probes::leaves(&packet);
            from.stages.leaves(now, &packet);
            let before = self.datagrams.len();
            wire += match &packet.body {
                _ if self.encapsulation == Encapsulation::Ip => self.pack_alone(&packet, from),
                Body::Data(data) if self.is_long(now, &packet, data, from) => {
                    self.pack_long(now, &packet, data, from)
                }
                // A RESEND of ours may mean that the peer's large packets do not pass.
                Body::Resend { .. } => {
                    self.resend_peers.push(packet.peer);
                    self.pack_short(now, &packet, rise, from)
                }
                _ => self.pack_short(now, &packet, rise, from),
            };
            // An upper bound of the number of trains.
            turns += usize::from(match &self.datagrams[before.saturating_sub(1)..] {
                [last, new] => !last.route.same_way(&new.route),
                _ => self.datagrams.len() > before,
            });
        }
        self.form_trains();
        wire
    }

    /// Packs control packets, each padded with zeros to an IP packet of the given size; returns the
    /// wire bytes.
    pub fn pack_probe(&mut self, packets: &[(Packet, u16)], peers: &Peers) -> u32 {
        self.outbox.clear();
        self.datagrams.clear();
        self.used = 0;
        let mut wire = 0;
        for (packet, size) in packets {
            // The peer may have been forgotten since the probe was due.
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

    /// Whether the payload of a packet stays in its message. It is copied if padding may follow it.
    #[inline]
    fn is_long(&self, now: Time, packet: &Packet, data: &Data, from: &Sources<'_>) -> bool {
        // Padding follows the payload in the same buffer, so a padded payload has to be copied.
        data.span.len > SHORT
            && (self.pads.padding == Padding::None || !trains::has_room(now, packet, data, from))
    }

    fn route(&self, packet: &Packet, peers: &Peers) -> Option<Route> {
        let peer = *peers.get(packet.peer)?;
        // If the port is not one of ours, any socket may answer for it.
        let socket = match self.ports.first() {
            Some(&port) if port == packet.local_port => 0,
            _ => self.ports.iter().position(|&port| port == packet.local_port).unwrap_or(0),
        };
        let &Packet { peer: id, local_port, priority, .. } = packet;
        Some(Route { id, local_port, priority, peer, socket })
    }

    /// Reserves `len` bytes for a datagram.
    fn reserve(&mut self, len: usize) -> &mut [u8] {
        let end = self.used + len;
        // Twice as much, so that the buffer seldom grows.
        if self.outbox.bytes.len() < end {
            self.outbox.bytes.resize(2 * end, 0);
        }
        &mut self.outbox.bytes[self.used..end]
    }

    /// Packs one packet as the payload of an IP packet; returns its wire bytes.
    fn pack_alone(&mut self, packet: &Packet, from: &Sources<'_>) -> u32 {
        let Some(route) = self.route(packet, from.peers) else { return 0 };
        let start = self.used;
        // An ACK has the longest header.
        let room = self.reserve(ACK_LEN);
        let encoded = match route.peer.start_msg {
            Some(start_msg) => wire::encode_for(packet, start_msg, true, room),
            None => wire::encode(packet, room),
        };
        let Ok(len) = encoded else { return 0 };
        if from.messages.sends_empty(packet) {
            let _ = wire::mark_empty(room);
        }
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

    /// Leaves the payload of the last packet in its message, or copies it behind the headers.
    /// `None` if it is not complete.
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
        // The kernel's list of pieces is short, so long lists are copied.
        if self.slices.len() - first <= SLICES_MAX {
            return Some(DatagramContent::Long(span));
        }
        self.slices.truncate(first);
        messages.copy(span, self.reserve(span.len as usize));
        self.used += span.len as usize;
        Some(DatagramContent::Alone)
    }

    /// Wire bytes of a datagram.
    fn wire_bytes(&self, len: usize, v4: bool) -> u32 {
        match self.encapsulation {
            Encapsulation::Datagram => wire_bytes(len + UDP + self.pads.overhead, v4),
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

    /// Adds a short packet to its peer's datagram in the batch, or begins another one; returns the
    /// additional wire bytes.
    fn pack_short(&mut self, now: Time, packet: &Packet, rise: bool, from: &Sources<'_>) -> u32 {
        let peer = packet.peer.0 as usize;
        if self.latest.len() <= peer {
            self.latest.resize(peer + 1, u32::MAX);
        }
        let latest = self.latest[peer] as usize;
        let (last, pads) = (latest.wrapping_add(1) == self.datagrams.len(), self.pads);
        if let Some(datagram) = self.datagrams.get_mut(latest)
            && datagram.route.id == packet.peer
            && let DatagramContent::Short(draft) = &mut datagram.content
        {
            // It joins a datagram that its peer gets anyway, which saves a header.
            if datagram.route.takes(packet, rise) {
                let room = datagram.route.peer.datagram;
                let buffer = &mut self.outbox.bytes[datagram.start..datagram.start + room];
                let before = pads.len(draft, room);
                let fits = push(draft, buffer, now, packet, from.messages);
                let v4 = datagram.route.peer.address.is_ipv4();
                datagram.len = draft.len();
                if fits {
                    let of = |len| wire_bytes(len + UDP + pads.overhead, v4);
                    return of(pads.len(draft, room)).saturating_sub(of(before));
                }
            }
            if last {
                // The datagram is complete, so the next one can follow without a gap.
                self.complete(latest);
                self.used = self.datagrams.last().map_or(0, |last| last.start + last.len);
            }
        }
        self.begin_short(now, packet, from)
    }

    fn begin_short(&mut self, now: Time, packet: &Packet, from: &Sources<'_>) -> u32 {
        let Some(route) = self.route(packet, from.peers) else { return 0 };
        let (start, room, number) = (self.used, route.peer.datagram, self.next_number);
        let buffer = self.reserve(room);
        let Ok(mut draft) = Draft::new(buffer, number) else { return 0 };
        if !push(&mut draft, buffer, now, packet, from.messages) {
            return 0;
        }
        let (len, padded) = (draft.len(), self.pads.len(&draft, room));
        self.next_number += 1;
        // The whole size is reserved, because more packets may join it.
        self.used = start + room;
        self.latest[packet.peer.0 as usize] = self.datagrams.len() as u32;
        self.datagrams.push(PackedDatagram {
            route,
            start,
            len,
            content: DatagramContent::Short(draft),
        });
        self.wire_bytes(padded, route.peer.address.is_ipv4())
    }
}

/// Appends a short packet to a datagram in its buffer; false if it does not fit.
fn push(
    draft: &mut Draft,
    buffer: &mut [u8],
    now: Time,
    packet: &Packet,
    messages: &Messages,
) -> bool {
    let none = RequestExtensions::NONE;
    let Body::Data(data) = &packet.body else { return draft.push(buffer, packet, &none).is_ok() };
    let pushed = match packet.begins_request() {
        true => {
            let extensions = messages.request_extensions(data.span.message, now);
            draft.push(buffer, packet, &extensions)
        }
        false => draft.push(buffer, packet, &none),
    };
    let Ok(place) = pushed else { return false };
    // Nearly always contiguous: a message in one piece.
    match messages.get(data.span) {
        Some(payload) if place.len() == payload.len() => place.copy_from_slice(payload),
        _ => {
            let copied = messages.copy(data.span, place);
            debug_assert!(copied, "the protocol sends bytes of a released message");
        }
    }
    if messages.sends_empty(packet) {
        draft.mark_empty(buffer);
    }
    true
}

/// Wire bytes of an IP payload.
fn wire_bytes(len: usize, v4: bool) -> u32 {
    let headers = if v4 { 20 } else { 40 };
    // Short frames are padded by the network card.
    (len as u32 + headers + ETHERNET).max(FRAME_MIN)
}

#[cfg(test)]
mod tests;
