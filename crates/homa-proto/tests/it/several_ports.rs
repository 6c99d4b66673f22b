//! A server with several ports is several peers of a client, and challenges the client once.

use homa_proto::{
    Body, Config, Duration, Endpoint, Packet, PeerId, PeerInfo, Rate, Receipt, Request, RpcId,
    Submit, Time,
};

const PORT: u16 = 40_000;

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::millis(n)
}

/// A client with peers 0 and 1 on one host, and 2 on another.
fn client() -> Endpoint {
    let config = Config::for_users(Rate::gbps(10)).validate_addresses(true);
    let mut client = Endpoint::new(config.validate().expect("the default"));
    for (peer, host) in [(0, 1), (1, 1), (2, 2)] {
        client.open_peer(PeerId(peer), PeerInfo { host, max_payload: 1_400 });
    }
    client
}

/// Calls a peer; returns the counter of the call's id.
fn call(client: &mut Endpoint, now: Time, peer: u32) -> u32 {
    let request = Request {
        peer: PeerId(peer),
        local_port: PORT,
        remote_port: 4_000 + peer as u16,
        length: 100,
        head: 0,
        deadline: now + Duration::secs(10),
        idempotent: false,
        cookie: 0,
    };
    client.submit(now, Submit::Request(request)).expect("room");
    let packet = client.transmit(now).expect("its request");
    assert!(matches!(packet.body, Body::Data(_)) && packet.peer == PeerId(peer), "{packet:?}");
    packet.id.0 as u32 >> 1
}

/// The least counter that may be in progress, as the client declares it to a server that challenges
/// it and has forgotten nothing for `remembered`.
fn first(client: &mut Endpoint, now: Time, peer: u32, remembered: Duration) -> u32 {
    let (remote_port, id) = (4_000 + peer as u16, RpcId(0x9876_5432_1000_0001));
    let body = Body::Challenge { boot: 7, remembered };
    let peer = PeerId(peer);
    let receipt =
        client.receive(now, &Packet { peer, priority: 7, local_port: PORT, remote_port, id, body });
    assert_eq!(receipt, Receipt::Consumed);
    match client.transmit(now).expect("an answer").body {
        Body::Proof(proof) => proof.first,
        other => panic!("no proof: {other:?}"),
    }
}

#[test]
fn a_challenge_at_one_port_keeps_calls_to_another() {
    let mut client = client();
    let calls = [2, 0, 1, 1].map(|peer| call(&mut client, ms(1), peer));
    // Reordered, the request to the second port came first.
    assert_eq!(first(&mut client, ms(2), 1, Duration::secs(60)), calls[1]);
}

#[test]
fn calls_from_before_a_restart_are_not_declared() {
    let mut client = client();
    call(&mut client, ms(1), 0);
    let later = call(&mut client, ms(100), 0);
    let own = call(&mut client, ms(101), 1);
    assert_eq!(first(&mut client, ms(102), 1, Duration::millis(50)), later);
    assert!(later < own);
}
