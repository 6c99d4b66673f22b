//! Promises that hold whatever a peer does: found broken by random scenarios, kept by these.

use homa_proto::{
    Body, Config, Data, DropReason, Duration, Endpoint, MessageId, Packet, PeerId, PeerInfo, Rate,
    Receipt, Request, RpcId, Span, Submit, Time,
};

const PEER: PeerId = PeerId(0);
const START: Time = Time(1_000_000_000);

fn endpoint(config: Config) -> Endpoint {
    let mut endpoint = Endpoint::new(config.validate().expect("a valid configuration"));
    endpoint.open_peer(PEER, PeerInfo { host: 0, max_payload: 1_400 });
    endpoint.listen(99);
    endpoint.expire(Time::ZERO);
    endpoint
}

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

fn packet(id: RpcId, body: Body) -> Packet {
    let (local_port, remote_port) = if id.from_server() { (1_000, 99) } else { (99, 1_000) };
    Packet { peer: PEER, priority: 0, local_port, remote_port, id, body }
}

fn data(id: RpcId, offset: u32, length: u32) -> Packet {
    let body = Body::Data(Data {
        span: Span { message: MessageId(0), offset, len: 1_000.min(length - offset) },
        message_length: length,
        incoming: 1_000,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        incast: None,
    });
    packet(id, body)
}

#[test]
fn bytes_beyond_their_grant_cannot_exceed_the_memory_budget() {
    let mut server = endpoint(Config { memory_budget: 50_000, ..users() });
    let length = 1_000_000;
    let mut held = 0;
    // The last packet first: a gap as large as the message must not count as nothing either.
    for offset in [999_000].into_iter().chain((0..999_000).step_by(1_000)) {
        match server.receive(START, &data(RpcId(2), offset, length)) {
            Receipt::Place(place) => held += place.len,
            Receipt::Dropped(reason) => assert_eq!(reason, DropReason::NoMemory),
            Receipt::Consumed => panic!("DATA is placed or dropped"),
        }
    }
    assert!((40_000..=50_000).contains(&held), "{held} bytes held");
}

#[test]
fn a_late_copy_of_rpc_unknown_does_not_fail_a_call_that_is_being_answered() {
    let mut client = endpoint(users());
    let request = Request {
        peer: PEER,
        local_port: 1_000,
        remote_port: 99,
        length: 100,
        deadline: START + Duration::secs(10),
        idempotent: false,
        cookie: 7,
    };
    client.submit(START, Submit::Request(request)).expect("accepted");
    let id = client.transmit(START).expect("the request").id.server();
    let unknown = |remembered| packet(id, Body::RpcUnknown { remembered: Some(remembered) });
    let later = START + Duration::millis(20);
    assert!(matches!(client.receive(later, &data(id, 0, 5_000)), Receipt::Place(_)));
    while client.event().is_some() {}
    // The server's memory reaches back before the call: it said so before it had the request.
    let _ = client.receive(later, &unknown(Duration::secs(1)));
    assert_eq!((client.event(), client.rpcs()), (None, (1, 0)));
    // A server that started later lost the call.
    let _ = client.receive(later, &unknown(Duration::millis(5)));
    assert_eq!(client.rpcs(), (0, 0));
}

#[test]
fn all_requests_of_a_dead_client_are_forgotten_together() {
    let mut server = endpoint(Config { levels: 1, ..users() });
    for n in 1..=8 {
        let first = data(RpcId(2 * n), 0, 100_000);
        assert!(matches!(server.receive(START, &first), Receipt::Place(_)));
    }
    let silence = server.config().loss.server_silence;
    let end = START + silence + Duration::secs(1);
    while let Some(at) = server.deadline().filter(|&at| at <= end) {
        server.expire(at);
        while server.transmit(at).is_some() {}
    }
    assert_eq!(server.rpcs(), (0, 0));
}
