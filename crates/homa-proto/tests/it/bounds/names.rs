//! Clients with ever new tokens, beside one that has a call in progress.

use homa_proto::Proof;

use super::*;

/// A few more than a server remembers.
const MANY: u64 = 66_000;

/// A request of a client on another host arrives whole, is answered and acknowledged; the client
/// identifies itself as `token`.
fn calls(server: &mut Endpoint, now: Time, (host, token): (u32, u64), counter: u32) {
    let epoch = token as u32;
    let id = RpcId(u64::from(epoch) << 32 | u64::from(counter) << 1);
    let of = |packet| Packet { peer: PeerId(host), ..packet };
    let _ = server.receive(now, &of(data(id, 0, 10)));
    let sent: Vec<Packet> = std::iter::from_fn(|| server.transmit(now)).collect();
    for question in sent.iter().filter(|packet| matches!(packet.body, Body::Challenge { .. })) {
        let proof = Proof { token, epoch, first: 0, next: counter + 1 };
        let _ = server.receive(now, &of(packet(question.id.client(), Body::Proof(proof))));
    }
    while let Some(event) = server.event() {
        if let Event::Delivered(whole) = event {
            let response = Submit::Response { rpc: whole.rpc, length: 10 };
            server.submit(now, response).expect("in service");
        }
    }
    while server.transmit(now).is_some() {}
    let _ = server.receive(now, &of(packet(id, Body::Ack(Acks::default()))));
}

fn server() -> Endpoint {
    let mut server = endpoint(users().validate_addresses(true).unguessable_ids(true));
    for host in 0..3 {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
        server.set_account(PeerId(host), host, u64::from(host));
    }
    server
}

#[test]
fn a_lost_request_is_sent_again_if_others_are_forgotten() {
    let mut server = server();
    calls(&mut server, START, (0, 7), 5);
    let mut now = START;
    for token in 1_000..1_000 + MANY {
        now += Duration::millis(2);
        calls(&mut server, now, (1, token), 5);
    }
    // The next request was lost; its client asks for the response.
    let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let answer = |server: &mut Endpoint, counter: u64| {
        let _ = server.receive(now, &packet(RpcId(7 << 32 | counter << 1), all));
        server.transmit(now).map(|packet| packet.body)
    };
    let Some(Body::RpcUnknown { remembered: Some(age), no_server: false, reason: None }) =
        answer(&mut server, 6)
    else {
        panic!("it is unknown");
    };
    assert!(age > now.since(START), "whenever that call began, nothing of it was executed");
    let ran = Body::RpcUnknown { remembered: Some(Duration::ZERO), no_server: false, reason: None };
    assert_eq!(answer(&mut server, 5), Some(ran));
}

/// True if the application gets a request.
fn delivered(server: &mut Endpoint) -> bool {
    std::iter::from_fn(|| server.event()).any(|event| matches!(event, Event::Delivered(_)))
}

#[test]
fn a_challenge_before_its_client_is_forgotten_is_void() {
    let mut server = server();
    calls(&mut server, START, (0, 7), 5);
    // The client's response is lost, and its address changes: a copy of its request arrives.
    let id = RpcId(7 << 32 | 5 << 1);
    server.set_account(PeerId(2), 0, 0);
    let moved = |packet| Packet { peer: PeerId(2), ..packet };
    let ask = |server: &mut Endpoint, now: Time| {
        let _ = server.receive(now, &moved(data(id, 0, 10)));
        let sent: Vec<Packet> = std::iter::from_fn(|| server.transmit(now)).collect();
        let challenge = |packet: &Packet| match packet.body {
            Body::Challenge { boot, .. } => Some((packet.id, boot)),
            _ => None,
        };
        sent.iter().find_map(challenge)
    };
    let (question, boot) = ask(&mut server, START).expect("a challenge");
    let mut now = START;
    for token in 1_000..1_000 + MANY {
        now += Duration::nanos(1_000);
        calls(&mut server, now, (0, token), 5);
    }
    // It answers by what it knew: its server has forgotten nothing.
    let proof = Proof { token: 7, epoch: 7, first: 0, next: 6 };
    let _ = server.receive(now, &moved(packet(question.client(), Body::Proof(proof))));
    assert!(!delivered(&mut server), "the request ran a second time");
    let (again, other) = ask(&mut server, now).expect("another challenge");
    assert!(again != question && other != boot);
    // Now it knows that the call may have run before.
    let proof = Proof { first: 6, ..proof };
    let _ = server.receive(now, &moved(packet(again.client(), Body::Proof(proof))));
    assert!(!delivered(&mut server));
}
