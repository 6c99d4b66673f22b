//! Packs packets into datagrams and datagrams into trains.
//!
//! Packets are pulled from the protocol one at a time, in its order, and leave in that order.
//! Neighbours to the same peer at the same level share what they can: short ones a datagram,
//! equal-size datagrams a train. Headers and short payloads are written once, where the kernel
//! reads them; long payloads are left in their message.

use homa_proto::wire::datagram::{self, DATA_OVERHEAD, Writer};
use homa_proto::{Body, Data, Endpoint, FULL_FRAME, Packet, Time};

use super::messages::Messages;
use super::peers::{Peer, Peers};
use crate::PriorityMap;
use crate::driver::{Outbox, Piece, TRAIN_MAX, Train};

/// Longest payload that is copied to share a datagram with others.
const SHORT: u32 = 600;
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

/// Packs batches; numbers datagrams.
#[derive(Debug)]
pub struct Packer {
    outbox: Outbox,
    /// Bytes of `outbox.bytes` in use; the rest is room.
    used: usize,
    next_number: u64,
    ports: Vec<u16>,
    map: PriorityMap,
}

/// Where a datagram goes.
#[derive(Clone, Copy)]
struct Route {
    peer: Peer,
    socket: usize,
    tos: u8,
}

/// What a packer pulls from.
pub struct Sources<'a> {
    /// The protocol.
    pub endpoint: &'a mut Endpoint,
    /// Bytes of messages.
    pub messages: &'a Messages,
    /// Addresses.
    pub peers: &'a Peers,
}

impl Packer {
    /// A packer that has sent nothing.
    pub fn new(map: PriorityMap) -> Self {
        Self { outbox: Outbox::default(), used: 0, next_number: 1, ports: Vec::new(), map }
    }

    /// Tells the ports of the driver's sockets, in their order.
    pub fn set_ports(&mut self, ports: Vec<u16>) {
        self.ports = ports;
    }

    /// The batch packed last.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Pulls packets for at most `room` wire bytes (at least a full frame's worth); returns the
    /// wire bytes packed.
    pub fn pack(&mut self, now: Time, room: u32, from: &mut Sources<'_>) -> u32 {
        self.outbox.clear();
        self.used = 0;
        let mut wire = 0;
        let mut held = from.endpoint.transmit(now);
        while let Some(packet) = held.take() {
            let Some(route) = self.route(&packet, from.peers) else {
                held = from.endpoint.transmit(now);
                continue;
            };
            let start = self.used;
            // Room for the largest datagram, so that the writer never has to stop early.
            if self.outbox.bytes.len() < start + route.peer.datagram {
                self.outbox.bytes.resize(2 * (start + route.peer.datagram), 0);
            }
            let first_piece = self.outbox.pieces.len();
            let long = match &packet.body {
                Body::Data(data) if data.span.len > SHORT => Some(*data),
                _ => None,
            };
            // A packet pulled in vain needs a datagram of its own: look ahead only if it may have
            // one.
            let look_ahead = wire + 2 * FULL_FRAME <= room;
            let len = match long {
                Some(data) => self.pack_long(&packet, &data, from.messages),
                None => {
                    self.pack_short(&packet, look_ahead.then_some(now), &route, from, &mut held)
                }
            };
            if len == 0 {
                held = held.or_else(|| from.endpoint.transmit(now));
                continue;
            }
            self.append(route, len, first_piece, long.is_some());
            wire += wire_bytes(len, route.peer.address.is_ipv4());
            let more = wire + FULL_FRAME <= room && self.outbox.trains.len() < TRAINS_MAX;
            if held.is_none() && more {
                held = from.endpoint.transmit(now);
            }
        }
        wire
    }

    fn route(&self, packet: &Packet, peers: &Peers) -> Option<Route> {
        let peer = *peers.get(packet.peer)?;
        let socket = match self.ports.first() {
            Some(&port) if port == packet.local_port => 0,
            _ => self.ports.iter().position(|&port| port == packet.local_port)?,
        };
        Some(Route { peer, socket, tos: self.map.tos(packet.priority) })
    }

    /// One DATA packet whose payload stays in its message; returns the datagram's length.
    fn pack_long(&mut self, packet: &Packet, data: &Data, messages: &Messages) -> usize {
        let start = self.used;
        if messages.get(data.span).is_none() {
            debug_assert!(false, "the protocol sends bytes of a message it released");
            return 0;
        }
        let room = &mut self.outbox.bytes[start..start + DATA_OVERHEAD];
        let Ok(header) = datagram::encode(packet, self.next_number, room) else { return 0 };
        self.next_number += 1;
        self.used = start + header;
        self.outbox.pieces.push(Piece::Buffered(start..start + header));
        self.outbox.pieces.push(Piece::Message(data.span));
        header + data.span.len as usize
    }

    /// A short packet and, with `look_ahead`, those right after it that fit the same datagram; the
    /// first that does not is put into `held`. Returns the datagram's length.
    fn pack_short(
        &mut self,
        first: &Packet,
        look_ahead: Option<Time>,
        route: &Route,
        from: &mut Sources<'_>,
        held: &mut Option<Packet>,
    ) -> usize {
        let start = self.used;
        let room = &mut self.outbox.bytes[start..start + route.peer.datagram];
        let Ok(mut writer) = Writer::new(room, self.next_number) else { return 0 };
        if !push(&mut writer, first, from.messages) {
            return 0;
        }
        while let Some(now) = look_ahead {
            // Packets are looked at where they were made: copying them costs more than packing
            // them.
            let next = from.endpoint.transmit(now);
            let Some(packet) = &next else { break };
            let long = matches!(&packet.body, Body::Data(data) if data.span.len > SHORT);
            if long || !same_way(first, packet) || !push(&mut writer, packet, from.messages) {
                *held = next;
                break;
            }
        }
        let len = writer.len();
        self.next_number += 1;
        self.outbox.pieces.push(Piece::Buffered(start..start + len));
        self.used = start + len;
        len
    }

    /// Appends a datagram, whose pieces begin at `first_piece`, to the last train or begins a new
    /// one.
    fn append(&mut self, route: Route, len: usize, first_piece: usize, long: bool) {
        let pieces = self.outbox.pieces.len();
        let limit = if long { LONG_TRAIN } else { TRAIN_MAX };
        if let Some(train) = self.outbox.trains.last_mut()
            && train.to == route.peer.address
            && train.tos == route.tos
            && train.socket == route.socket
            && train.source == route.peer.source
            && train.len % train.datagram == 0
            && len <= train.datagram
            && train.len + len <= limit
            && train.len < DATAGRAMS_MAX * train.datagram
        {
            train.len += len;
            train.pieces.end = pieces;
            merge(&mut self.outbox.pieces, first_piece, &mut train.pieces.end);
            return;
        }
        self.outbox.trains.push(Train {
            to: route.peer.address,
            socket: route.socket,
            source: route.peer.source,
            tos: route.tos,
            datagram: len,
            len,
            pieces: first_piece..pieces,
        });
    }
}

/// Joins the last piece with the one before it when their bytes adjoin.
fn merge(pieces: &mut Vec<Piece>, last: usize, end: &mut usize) {
    if last + 1 != pieces.len() || last == 0 {
        return;
    }
    if let (Piece::Buffered(before), Piece::Buffered(range)) = (&pieces[last - 1], &pieces[last])
        && before.end == range.start
    {
        pieces[last - 1] = Piece::Buffered(before.start..range.end);
        pieces.pop();
        *end = last;
    }
}

/// Appends a short packet to a datagram; false when there is no room.
fn push(writer: &mut Writer<'_>, packet: &Packet, messages: &Messages) -> bool {
    let payload = match &packet.body {
        Body::Data(data) => messages.get(data.span).unwrap_or_default(),
        _ => &[],
    };
    match writer.push(packet) {
        Ok(place) if place.len() == payload.len() => place.copy_from_slice(payload),
        Ok(_) => debug_assert!(false, "the protocol sends bytes of a released message"),
        Err(_) => return false,
    }
    true
}

/// True when two packets may share a datagram.
fn same_way(a: &Packet, b: &Packet) -> bool {
    (a.peer, a.priority, a.local_port) == (b.peer, b.priority, b.local_port)
}

/// What a datagram costs on the link.
fn wire_bytes(len: usize, v4: bool) -> u32 {
    let headers = if v4 { 28 } else { 48 };
    (len as u32 + headers + ETHERNET).max(FRAME_MIN)
}
