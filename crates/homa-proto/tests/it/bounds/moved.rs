//! A client whose address changes while a request of it is in flight.

use homa_proto::Proof;

use super::*;

const LENGTH: u32 = 2_000;
const EPOCH: u32 = 7;
/// The fourth RPC of its client.
const ID: RpcId = RpcId((EPOCH as u64) << 32 | 8);

fn server() -> Endpoint {
    let mut server = endpoint(users().validate_addresses(true).unguessable_ids(true));
    server.open_peer(PeerId(1), PeerInfo { host: 1, max_payload: 1_400 });
    server
}

/// A part of the request arrives from one of the addresses.
fn part(server: &mut Endpoint, now: Time, peer: PeerId, offset: u32) {
    comes(server, now, Packet { peer, ..data(ID, offset, LENGTH) });
}

/// A packet arrives from a client that answers challenges. Returns the packets that are sent to it.
fn comes(server: &mut Endpoint, now: Time, packet_in: Packet) -> Vec<Packet> {
    let peer = packet_in.peer;
    let _ = server.receive(now, &packet_in);
    let sent: Vec<Packet> = std::iter::from_fn(|| server.transmit(now)).collect();
    for question in sent.iter().filter(|packet| matches!(packet.body, Body::Challenge { .. })) {
        let proof = Proof { token: 3, epoch: EPOCH, first: 0, next: 5 };
        let answer = packet(question.id.client(), Body::Proof(proof));
        let _ = server.receive(now, &Packet { peer, ..answer });
    }
    sent
}

fn later(ms: u64) -> Time {
    START + Duration::millis(ms)
}

#[test]
fn a_request_is_not_executed_again_at_the_old_address() {
    let mut server = server();
    part(&mut server, START, PEER, 0);
    // The client's address changes, and it sends the whole request again.
    part(&mut server, later(5), PeerId(1), 0);
    part(&mut server, later(6), PeerId(1), 1_000);
    assert_eq!(server.counters().requests_delivered, 1);
    part(&mut server, later(7), PEER, 1_000);
    assert_eq!(server.counters().requests_delivered, 1);
    assert_eq!(server.rpcs().1, 1, "nothing of the copy remains");
}

#[test]
fn a_request_that_began_at_the_old_address_may_end_at_it() {
    let mut server = server();
    part(&mut server, START, PEER, 0);
    part(&mut server, later(5), PeerId(1), 0);
    part(&mut server, later(6), PEER, 1_000);
    assert_eq!(server.counters().requests_delivered, 1);
    part(&mut server, later(7), PeerId(1), 1_000);
    assert_eq!((server.counters().requests_delivered, server.rpcs().1), (1, 1));
}

#[test]
fn a_stopped_server_promises_nothing_to_a_moved_client() {
    let mut server = server();
    part(&mut server, START, PEER, 0);
    part(&mut server, START, PEER, 1_000);
    assert_eq!(server.counters().requests_delivered, 1);
    server.unlisten(99);
    // Its answer would go to the old address.
    let body = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let question = |peer| Packet { peer, ..packet(ID, body) };
    let said = |packets: Vec<Packet>| {
        packets.into_iter().find_map(|packet| match packet.body {
            Body::RpcUnknown { remembered, .. } => remembered,
            _ => None,
        })
    };
    // The first packet is too short for the challenge that would answer it.
    let said = [5, 15, 35].map(|at| said(comes(&mut server, later(at), question(PeerId(1)))));
    assert_eq!(said, [None, None, Some(Duration::ZERO)], "it was executed");
}

#[test]
fn one_clients_answer_does_not_validate_another() {
    let mut server = server();
    part(&mut server, START, PEER, 0);
    part(&mut server, START, PEER, 1_000);
    // From behind the same NAT, earlier.
    let _ =
        server.receive(later(1), &Packet { peer: PeerId(1), ..data(RpcId(9 << 32 | 8), 0, 500) });
    let asked: Vec<Packet> = std::iter::from_fn(|| server.transmit(later(1))).collect();
    for question in asked.iter().filter(|packet| matches!(packet.body, Body::Challenge { .. })) {
        let proof = Proof { token: 4, epoch: 9, first: 0, next: 5 };
        let answer = packet(question.id.client(), Body::Proof(proof));
        let _ = server.receive(later(1), &Packet { peer: PeerId(1), ..answer });
    }
    assert_eq!(server.counters().requests_delivered, 2);
    server.unlisten(99);
    let body = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let said = [5, 15].map(|at| {
        let question = Packet { peer: PeerId(1), ..packet(ID, body) };
        comes(&mut server, later(at), question).into_iter().find_map(|packet| match packet.body {
            Body::RpcUnknown { remembered, .. } => remembered,
            _ => None,
        })
    });
    assert_eq!(said, [None, Some(Duration::ZERO)]);
}

#[test]
fn a_long_request_arrives_however_many_clients_come_meanwhile() {
    let mut server = server();
    part(&mut server, START, PEER, 0);
    let mut now = later(1);
    for n in 0..140_000_u32 {
        now += Duration::millis(2);
        let id = RpcId(u64::from(100 + n) << 32 | 8);
        let _ = server.receive(now, &Packet { peer: PeerId(1), ..data(id, 0, 500) });
        let asked: Vec<Packet> = std::iter::from_fn(|| server.transmit(now)).collect();
        for question in asked.iter().filter(|p| matches!(p.body, Body::Challenge { .. })) {
            let proof = Proof { token: u64::from(n) + 10, epoch: 100 + n, first: 0, next: 5 };
            let answer = packet(question.id.client(), Body::Proof(proof));
            let _ = server.receive(now, &Packet { peer: PeerId(1), ..answer });
        }
        while let Some(event) = server.event() {
            if let Event::Delivered(request) = event {
                let _ = server.submit(now, Submit::Cancel { rpc: request.rpc });
            }
        }
    }
    let before = server.counters().requests_delivered;
    assert!(before > 100_000, "{before}");
    part(&mut server, now, PEER, 1_000);
    assert_eq!(server.counters().requests_delivered, before + 1);
}
