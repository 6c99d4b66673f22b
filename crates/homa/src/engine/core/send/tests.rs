//! Tests of how packets become datagrams, trains, and pieces of messages.

use std::net::SocketAddr;

use bytes::Bytes;
use homa_proto::{Config, Rate, Receipt, Request, RpcId, Submit};

use super::*;
use crate::driver::{Gather, TrainPiece};

/// Requests of 100 B to the first server and to the second, and one of 300 B to the first.
const REQUESTS: &[(usize, u32)] = &[(0, 300), (0, 100), (1, 100)];

/// Sends requests, each to one of two servers and of a length. The first server asks for those
/// longer than 150 B at a lower level. The second has not said which level it wants. Returns the
/// trains.
fn trains(requests: &[(usize, u32)], rise: bool, padding: Padding) -> Vec<(SocketAddr, u8, usize)> {
    let mut endpoint =
        Endpoint::new(Config::for_users(Rate::gbps(10)).validate().expect("the default"));
    let mut peers = Peers::new(10, 1500, Encapsulation::Datagram, None);
    let mut messages = Messages::new(0);
    let servers: [SocketAddr; 2] = [([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into()];
    let servers = servers
        .map(|to| peers.find(Time::ZERO, to, None, &mut endpoint).expect("the table has room"));
    let cutoffs = [0, 0, 0, 0, 0, 1_000_000, 400, 150];
    let body = Body::Cutoffs { cutoffs, version: 1, limits: None };
    let (local_port, id) = (9, RpcId(3));
    let packet = Packet { peer: servers[0], priority: 7, local_port, remote_port: 1, id, body };
    assert_eq!(endpoint.receive(Time::ZERO, &packet), Receipt::Consumed);
    for &(server, length) in requests {
        let request = Request {
            peer: servers[server],
            local_port,
            remote_port: 1,
            length,
            deadline: Time(1_000_000_000),
            idempotent: false,
            head: 0,
            cookie: 0,
        };
        let accepted = endpoint.submit(Time::ZERO, Submit::Request(request)).expect("room");
        messages.insert(
            accepted.message.expect("a message"),
            vec![1; length as usize].into(),
            0,
            RequestContext::NONE,
        );
    }
    let mut packer = Packer::new(PriorityMap::Linux, Encapsulation::Datagram);
    packer.set_ports(vec![local_port]);
    packer.set_overhead(0, padding);
    let (endpoint, messages, peers) = (&mut endpoint, &messages, &peers);
    let stages = &mut Stages::default();
    let mut from = Sources { endpoint, messages, peers, stages, links: Links::ALL };
    let wire = packer.pack(Time::ZERO, 50_000, rise, &mut from);
    let trains = &packer.outbox().trains;
    let lengths = trains.iter().flat_map(|train| {
        let starts = (0..train.len).step_by(train.datagram);
        starts.map(|start| train.datagram.min(train.len - start))
    });
    let sum: u32 = lengths.map(|len| wire_bytes(len + UDP, true)).sum();
    assert_eq!(wire, sum, "the pacer counts every byte");
    trains.iter().map(|train| (train.to, train.tos >> 5, train.len)).collect()
}

#[test]
fn padded_datagrams_have_few_lengths_and_count_on_the_link() {
    for rise in [false, true] {
        for (padding, unit) in [(Padding::Multiple(256), 256), (Padding::Full, 1472)] {
            let trains = trains(REQUESTS, rise, padding);
            let lengths: Vec<usize> = trains.iter().map(|train| train.2).collect();
            let padded = lengths.iter().all(|len| len.is_multiple_of(unit));
            assert!(padded && !lengths.is_empty(), "{padding:?}: {lengths:?}");
        }
    }
}

/// Also behind a full datagram of the same request.
#[test]
fn datagrams_that_lack_32_bytes_are_padded() {
    const FULL: usize = 1_472;
    for length in (1_300..=1_416).flat_map(|length| [length, length + 1_416]) {
        let lengths: Vec<usize> = trains(&[(0, length)], false, Padding::Full)
            .iter()
            .map(|train| (train.2 - 1) % FULL + 1)
            .collect();
        assert!(
            lengths.iter().all(|len| (FULL - 31..=FULL).contains(len)),
            "{length}: {lengths:?}"
        );
    }
}

#[test]
fn packets_share_a_datagram_but_keep_their_priority_if_slow() {
    let (a, b) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
    let one = DATA_OVERHEAD + 100;
    assert_eq!(
        trains(REQUESTS, false, Padding::None),
        [(a, 7, one), (b, 6, one), (a, 6, DATA_OVERHEAD + 300)]
    );
    let two = DATA_OVERHEAD + 56 + 400 + 2 * 2;
    assert_eq!(trains(REQUESTS, true, Padding::None), [(a, 7, two), (b, 6, one)]);
}

/// Sends a request in packets with these parts of its bytes. Returns the pieces of its trains.
/// Checks their bytes, and that bytes in the message's memory were not copied.
fn pieces(encapsulation: Encapsulation, parts: &[Bytes]) -> Vec<TrainPiece> {
    let whole = parts.concat();
    let mut endpoint =
        Endpoint::new(Config::for_users(Rate::gbps(10)).validate().expect("the default"));
    let mut peers = Peers::new(10, 1500, encapsulation, None);
    let mut messages = Messages::new(0);
    let server = ([10, 0, 0, 1], 1).into();
    let peer = peers.find(Time::ZERO, server, None, &mut endpoint).expect("the table has room");
    let request = Request {
        peer,
        local_port: 9,
        remote_port: 1,
        length: whole.len() as u32,
        deadline: Time(1_000_000_000),
        idempotent: false,
        head: 0,
        cookie: 0,
    };
    let accepted = endpoint.submit(Time::ZERO, Submit::Request(request)).expect("room");
    messages.insert(accepted.message.expect("a message"), parts.into(), 0, RequestContext::NONE);
    let mut packer = Packer::new(PriorityMap::Linux, encapsulation);
    packer.set_ports(vec![9]);
    let (endpoint, messages, peers) = (&mut endpoint, &messages, &peers);
    let stages = &mut Stages::default();
    let mut from = Sources { endpoint, messages, peers, stages, links: Links::ALL };
    packer.pack(Time::ZERO, 50_000, false, &mut from);
    let (outbox, mut sent) = (packer.outbox(), Vec::new());
    for train in &outbox.trains {
        let mut bytes = Vec::new();
        for piece in &outbox.pieces[train.pieces.clone()] {
            match piece {
                TrainPiece::Buffered(range) => {
                    bytes.extend_from_slice(&outbox.bytes[range.clone()])
                }
                TrainPiece::Message(span) => {
                    let slice = messages.bytes(*span);
                    assert_eq!(slice.len(), span.len as usize, "all of it lies together");
                    let lies = |part: &Bytes| part.as_ptr_range().contains(&slice.as_ptr());
                    assert!(parts.iter().any(lies), "where the application left it");
                    bytes.extend_from_slice(slice);
                }
            }
        }
        assert_eq!(bytes.len(), train.len);
        sent.extend(
            bytes.chunks(train.datagram).flat_map(|datagram| payload(encapsulation, datagram)),
        );
    }
    assert!(whole.starts_with(&sent) && sent.len() >= 5_000.min(whole.len()), "{}", sent.len());
    outbox.pieces.clone()
}

/// Returns the message's bytes in a datagram.
fn payload(encapsulation: Encapsulation, bytes: &[u8]) -> Vec<u8> {
    match encapsulation {
        Encapsulation::Datagram => {
            let datagram = datagram::decode(bytes).expect("a datagram");
            let packet = datagram.packets(PeerId(0), 0).next().expect("one");
            packet.expect("DATA").payload.to_vec()
        }
        Encapsulation::Ip => wire::decode(bytes, PeerId(0), 0).expect("a packet").payload.to_vec(),
    }
}

#[test]
fn lists_are_sent_in_place_unless_parts_are_many_and_small() {
    let part = |len: usize, first: u8| -> Bytes { (0..len).map(|i| i as u8 ^ first).collect() };
    for encapsulation in [Encapsulation::Datagram, Encapsulation::Ip] {
        let copied =
            |piece: &&TrainPiece| matches!(piece, TrainPiece::Buffered(range) if range.len() > 500);
        let few = pieces(encapsulation, &[part(20, 1), part(3_000, 2), part(1, 3), part(4_000, 4)]);
        assert_eq!(few.iter().filter(copied).count(), 0, "{encapsulation:?}");
        let many: Vec<Bytes> = (0..1_000).map(|i| part(7, i as u8)).collect();
        let many = pieces(encapsulation, &many);
        assert!(many.iter().filter(copied).count() > 0, "{encapsulation:?}");
        assert!(
            many.iter().all(|piece| matches!(piece, TrainPiece::Buffered(_))),
            "{encapsulation:?}"
        );
        // The packets are too short for gathering to pay off.
        pieces(encapsulation, &[part(10, 1), part(20, 2)]);
    }
}
