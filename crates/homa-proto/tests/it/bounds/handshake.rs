//! Challenges that the environment carried in a handshake, in place of a packet.

use homa_proto::Proof;

use super::*;

const EPOCH: u32 = 7;
/// The fourth RPC of its client.
const ID: RpcId = RpcId((EPOCH as u64) << 32 | 8);
const CHALLENGE: RpcId = RpcId(0x1234_5678_9abc_def1);

/// A server, and the boot id in a challenge of it.
fn server() -> (Endpoint, u64) {
    let server = endpoint(users().validate_addresses(true).unguessable_ids(true));
    let (boot, remembered) = server.challenge_at(START).unwrap();
    assert_eq!(remembered, Duration(START.0), "since its first input");
    (server, boot)
}

fn request(server: &mut Endpoint) {
    let _ = server.receive(START, &data(ID, 0, 1_000));
}

/// The answer to the challenge with this id, from a client without older calls.
fn proof(server: &mut Endpoint, id: RpcId) {
    let proof = Proof { token: 3, epoch: EPOCH, first: 4, next: 5 };
    let _ = server.receive(START, &packet(id.client(), Body::Proof(proof)));
}

fn executed(server: &Endpoint) -> u64 {
    server.counters().requests_delivered
}

/// Challenges that the server sends.
fn challenges(server: &mut Endpoint) -> usize {
    let sent = std::iter::from_fn(|| server.transmit(START));
    sent.filter(|packet| matches!(packet.body, Body::Challenge { .. })).count()
}

#[test]
fn the_answer_to_a_carried_challenge_counts_in_any_order() {
    for answer_first in [true, false] {
        let (mut server, boot) = server();
        server.note_challenged(START, PEER, (CHALLENGE, boot));
        if answer_first {
            proof(&mut server, CHALLENGE);
        }
        request(&mut server);
        if !answer_first {
            assert_eq!(executed(&server), 0, "the client has not answered");
            proof(&mut server, CHALLENGE);
        }
        assert_eq!(executed(&server), 1);
        assert_eq!(challenges(&mut server), 0);
        // The answer and the request arrive twice.
        proof(&mut server, CHALLENGE);
        request(&mut server);
        assert_eq!(executed(&server), 1);
    }
}

#[test]
fn the_answer_to_another_challenge_does_not_count() {
    let (mut server, boot) = server();
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    proof(&mut server, RpcId(CHALLENGE.0 ^ 2));
    request(&mut server);
    assert_eq!(executed(&server), 0);
}

#[test]
fn a_carried_challenge_is_void_if_something_was_forgotten() {
    let (mut server, boot) = server();
    server.note_challenged(START, PEER, (CHALLENGE, boot ^ 1));
    request(&mut server);
    assert_eq!(challenges(&mut server), 1, "the server asks again");
    proof(&mut server, CHALLENGE);
    assert_eq!(executed(&server), 0);
}

#[test]
fn a_lost_challenge_is_repeated_in_a_packet() {
    let (mut server, boot) = server();
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    request(&mut server);
    let at = server.deadline().unwrap();
    server.expire(at);
    let sent: Vec<Packet> = std::iter::from_fn(|| server.transmit(at)).collect();
    let asked = sent.iter().find(|packet| matches!(packet.body, Body::Challenge { .. }));
    assert_eq!(asked.map(|packet| packet.id), Some(CHALLENGE));
}

#[test]
fn an_endpoint_without_validation_carries_no_challenge() {
    let server = endpoint(users().validate_addresses(false));
    assert_eq!(server.challenge_at(START), None);
}

#[test]
fn a_request_that_is_lost_after_its_proof_is_sent_again() {
    let (mut server, boot) = server();
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    proof(&mut server, CHALLENGE);
    // The client asks for its response.
    let body = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let _ = server.receive(START, &packet(ID, body));
    let answer = server.transmit(START).unwrap();
    let Body::RpcUnknown { remembered, .. } = answer.body else { panic!("{answer:?}") };
    assert_eq!(remembered, Some(Duration::MAX), "it was never executed");
    request(&mut server);
    assert_eq!(executed(&server), 1);
}

/// The events of the server about requests: true for one that is delivered.
fn events(server: &mut Endpoint) -> Vec<bool> {
    let event = |event| match event {
        Event::Delivered(_) => Some(true),
        Event::Cancelled { .. } => Some(false),
        _ => None,
    };
    std::iter::from_fn(|| server.event()).filter_map(event).collect()
}

#[test]
fn an_idempotent_request_needs_no_proof_and_proves_nothing() {
    let (mut server, boot) = server();
    let _ = server.receive_idempotent(START, &data(ID, 0, 1_000));
    assert_eq!((events(&mut server), challenges(&mut server)), (vec![true], 0));
    // The next one is not said to be idempotent, and is of the same client.
    let next = RpcId(ID.0 + 2);
    let _ = server.receive(START, &data(next, 0, 1_000));
    assert_eq!(events(&mut server), [], "its client has not answered");
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    let proof = Proof { token: 3, epoch: EPOCH, first: 4, next: 6 };
    let _ = server.receive(START, &packet(CHALLENGE.client(), Body::Proof(proof)));
    assert_eq!(events(&mut server), [true]);
    // Both are in progress, and their clients send them again.
    for id in [ID, next] {
        let _ = server.receive(START, &data(id, 0, 1_000));
    }
    let later = START + Duration::millis(1_500);
    server.expire(later);
    assert_eq!(events(&mut server), [], "neither runs again or ends");
}

#[test]
fn an_idempotent_request_ends_if_its_client_proves_nothing() {
    let (mut server, boot) = server();
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    let receipt = server.receive_idempotent(START, &data(ID, 0, 1_000));
    assert!(matches!(receipt, Receipt::Place(_)));
    assert_eq!(events(&mut server), [true]);
    while let Some(at) = server.deadline().filter(|at| *at <= START + Duration::secs(1)) {
        server.expire(at);
    }
    assert_eq!(events(&mut server), [false]);
    // It was not remembered: the client proves itself and sends it again.
    proof(&mut server, CHALLENGE);
    request(&mut server);
    assert_eq!(events(&mut server), [true]);
}

#[test]
fn a_lost_proof_of_a_request_in_service_is_asked_for_again() {
    let (mut server, boot) = server();
    let _ = server.receive_idempotent(START, &data(ID, 0, 1_000));
    server.note_challenged(START, PEER, (CHALLENGE, boot));
    // The client's answer is lost. Later it asks for its response.
    let later = START + Duration::millis(20);
    let body = Body::Resend { offset: 0, length: ResendLength::All, priority: 0 };
    let resend = packet(ID, body);
    let _ = server.receive(later, &resend);
    assert_eq!(challenges(&mut server), 1);
    proof(&mut server, CHALLENGE);
    let _ = server.receive(later, &resend);
    assert_eq!(challenges(&mut server), 0, "it has answered");
    server.expire(START + Duration::millis(1_500));
    assert_eq!(events(&mut server), [true], "it does not end");
}

#[test]
fn a_part_of_an_idempotent_request_waits_for_the_proof() {
    let (mut server, _) = server();
    let _ = server.receive_idempotent(START, &data(ID, 0, 3_000));
    assert_eq!((events(&mut server), challenges(&mut server)), (vec![], 1));
}
