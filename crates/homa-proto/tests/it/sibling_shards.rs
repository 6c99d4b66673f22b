//! Endpoints of one host that share its links: grants, and what counts as lost, depend on the bytes
//! that arrive for all of them.

use homa_proto::{
    Body, Config, Data, Duration, LinkId, MessageId, Packet, PeerId, PeerInfo, Rate, Request,
    RpcId, SiblingShards, Span, Submit, Time,
};

use crate::common;

use crate::common::{CLIENT, ClientAndServer, SERVER};

/// Bytes granted and not received once the first 9,800 bytes of a long response have arrived from
/// each of eight hosts at one of several endpoints that grant.
fn granted(config: &Config, others: u16) -> u64 {
    let mut endpoint = common::config(config.clone(), 1);
    endpoint.expire(Time::ZERO);
    endpoint.set_sibling_shards(SiblingShards { granting: others, outstanding: 0 });
    let now = Time(1_000_000);
    for host in 0..8 {
        let peer = PeerId(host);
        endpoint.open_peer(peer, PeerInfo { host, max_payload: 1_400 });
        let request = Request {
            peer,
            local_port: 9,
            remote_port: 7,
            length: 100,
            deadline: now + Duration::secs(1),
            idempotent: false,
            head: 0,
            cookie: 0,
        };
        endpoint.submit(now, Submit::Request(request)).unwrap();
        let packet = endpoint.transmit(now).unwrap();
        for offset in (0..9_800).step_by(1_400) {
            let data = Data {
                span: Span { message: MessageId(0), offset, len: 1_400 },
                message_length: 900_000,
                incoming: 9_800,
                ack: None,
                cutoff_version: 0,
                retransmit: false,
                incast: None,
            };
            let (id, body) = (RpcId(packet.id.0 ^ 1), Body::Data(data));
            let _ = endpoint.receive(now, &Packet { id, body, ..packet });
            while endpoint.event().is_some() {}
        }
    }
    endpoint.granted_outstanding()
}

#[test]
fn endpoints_that_grant_have_equal_parts() {
    let user = Config::for_users(Rate::gbps(10));
    for config in [user, Config::linux()] {
        // The oldest message's share is not bounded.
        let config = config.fifo_permille(0);
        let [alone, with_one] = [0, 1].map(|others| granted(&config, others));
        assert!(alone > with_one + 5_000, "{alone} alone, {with_one} with another");
        for others in 2..8 {
            let (part, granted) = (2 * with_one / (others + 1), granted(&config, others as u16));
            assert!(granted.abs_diff(part) <= 1_400, "{granted} for {part} with {others} others");
        }
    }
}

/// The time from the call until the client first asks again for a lost response.
fn asks_after(
    before: impl FnOnce(&mut ClientAndServer),
    step: impl Fn(&mut ClientAndServer),
) -> Duration {
    let config = Config::for_users(Rate::mbps(100));
    let mut pair = ClientAndServer::new(config.clone(), config);
    before(&mut pair);
    let (begun, mut first) = (pair.now, None);
    pair.call(100, 1);
    pair.lose = Box::new(move |from, packet, _| {
        from == SERVER && *first.get_or_insert(packet.id) == packet.id
    });
    while pair.ends[CLIENT].counters().resends_sent == 0 {
        // Answers to others show that the server is there.
        pair.call(100, 2);
        assert!(pair.now < Time(1_000_000_000));
        pair.run_for(Duration::micros(100));
        step(&mut pair);
    }
    pair.now.since(begun)
}

#[test]
fn bytes_outstanding_to_siblings_may_arrive_first() {
    let owed = |bytes| {
        move |pair: &mut ClientAndServer| {
            pair.ends[CLIENT].set_sibling_shards(SiblingShards { granting: 1, outstanding: bytes });
        }
    };
    let alone = asks_after(owed(0), |_| {});
    let beside = asks_after(owed(125_000), |_| {});
    let more = beside.0 - alone.0;
    assert!((9_500_000..=10_500_000).contains(&more), "{alone:?}, and {beside:?} beside 10 ms");
}

#[test]
fn a_link_that_others_fill_is_full() {
    let alone = asks_after(|_| {}, |_| {});
    let beside = asks_after(
        |_| {},
        |pair| {
            pair.ends[CLIENT].sibling_received(LinkId(0), 1_250);
        },
    );
    assert!(beside > alone + Duration::millis(20), "{alone:?} alone, {beside:?} beside");
}
