//! Several links below one endpoint: messages of a link with capacity are sent in SRPT order,
//! whatever the others do; and nothing is derived from an unknown rate.

use homa_proto::{
    Body, Config, Data, Duration, Endpoint, LinkId, LinkInfo, Links, Packet, PeerId, PeerInfo,
    Rate, Request, RpcId, Span, Submit, Time,
};

const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);
const PAYLOAD: u32 = 1_400;

/// An endpoint whose peers of even numbers are on A, the others on B.
fn endpoint(peers: u32, fifo_permille: u16) -> Endpoint {
    let config = Config::for_users(None).fifo_permille(fifo_permille);
    let mut endpoint = Endpoint::new(config.validate().unwrap());
    for n in 0..peers {
        endpoint.open_peer(PeerId(n), PeerInfo { host: n, max_payload: PAYLOAD });
        endpoint.set_route(PeerId(n), if n % 2 == 0 { A } else { B });
    }
    endpoint
}

fn send(endpoint: &mut Endpoint, peer: u32, length: u32) {
    let one_way = Submit::OneWay { peer: PeerId(peer), length, cookie: 0 };
    endpoint.submit(Time(1), one_way).unwrap();
    while endpoint.event().is_some() {}
}

/// The receiver of each packet, and how many bytes of its message are left then, until none may
/// leave.
fn drain(endpoint: &mut Endpoint, links: Links) -> Vec<(u32, u32)> {
    let packets = std::iter::from_fn(|| endpoint.transmit_by(Time(2), links));
    let left = |packet: Packet| match packet.body {
        Body::Data(data) => (packet.peer.0, data.message_length - data.span.offset),
        other => panic!("nobody asked for {other:?}"),
    };
    packets.map(left).collect()
}

#[test]
fn a_link_without_room_holds_back_its_own_messages_alone() {
    let mut endpoint = endpoint(2, 50);
    for (peer, length) in [(0, 100), (1, 6_000), (0, 3_000), (1, 200), (1, 8_000), (0, 50)] {
        send(&mut endpoint, peer, length);
    }
    assert_eq!(drain(&mut endpoint, Links::NONE), []);
    assert!(endpoint.has_packet_for(Links::only(B)));
    let sent = drain(&mut endpoint, Links::only(B));
    let begun: Vec<u32> = sent.iter().map(|&(_, left)| left).collect();
    assert_eq!(begun[..6], [200, 6_000, 4_600, 3_200, 1_800, 400], "shortest first");
    assert_eq!(begun[6..], [8_000, 6_600, 5_200, 3_800, 2_400, 1_000]);
    assert!(sent.iter().all(|&(peer, _)| peer == 1));
    assert!(!endpoint.has_packet_for(Links::only(B)));
    assert!(endpoint.has_packet());
    let rest = drain(&mut endpoint, Links::only(A));
    assert_eq!(rest, [(0, 50), (0, 100), (0, 3_000), (0, 1_600), (0, 200)]);
    assert!(!endpoint.has_packet());
}

#[test]
fn a_message_that_waits_follows_its_peer_to_another_link() {
    let mut endpoint = endpoint(2, 50);
    send(&mut endpoint, 0, 3_000);
    assert!(endpoint.transmit_by(Time(2), Links::only(A)).is_some());
    for (link, other) in [(B, A), (A, B), (B, A)] {
        endpoint.set_route(PeerId(0), link);
        assert!(!endpoint.has_packet_for(Links::only(other)));
        assert_eq!(drain(&mut endpoint, Links::only(other)), []);
    }
    assert_eq!(drain(&mut endpoint, Links::only(B)), [(0, 1_600), (0, 200)]);
    assert!(!endpoint.has_packet());
    // An impossible link is ignored.
    endpoint.set_route(PeerId(0), LinkId(LinkId::MAX));
    send(&mut endpoint, 0, 100);
    assert_eq!(drain(&mut endpoint, Links::only(B)), [(0, 100)]);
}

#[test]
fn over_any_links_packets_leave_as_from_a_queue_of_these_alone() {
    arbtest::arbtest(|u| {
        let fifo_permille = u.int_in_range(0..=1000)?;
        let mut both = endpoint(4, fifo_permille);
        let mut alone = endpoint(4, fifo_permille);
        let mut one_link = endpoint(4, fifo_permille);
        (0..4).for_each(|n| one_link.set_route(PeerId(n), LinkId(0)));
        for _ in 0..u.int_in_range(1..=30u32)? {
            let (peer, length) = (u.int_in_range(0..=3)?, u.int_in_range(1..=9_000)?);
            send(&mut both, peer, length);
            send(&mut one_link, peer, length);
            if peer % 2 == 1 {
                send(&mut alone, peer, length);
            }
        }
        if u.arbitrary()? {
            // All links have capacity, so the number of queues cannot be seen.
            let sent = drain(&mut both, Links::only(A).with(B));
            let from_one = drain(&mut one_link, Links::ALL);
            if fifo_permille == 0 {
                // Messages within a bucket of 16 bytes leave in order of age in one queue.
                let rough = |sent: &[(u32, u32)]| -> Vec<u32> {
                    sent.iter().map(|&(_, left)| left / 16).collect()
                };
                assert_eq!(rough(&sent), rough(&from_one));
            }
            assert_eq!(sent.len(), from_one.len());
        } else {
            assert_eq!(drain(&mut both, Links::only(B)), drain(&mut alone, Links::ALL));
        }
        Ok(())
    });
}

#[test]
fn messages_that_end_or_move_leave_nothing_in_any_queue() {
    let mut endpoint = endpoint(2, 50);
    for n in 0..20_000u32 {
        let one_way = Submit::OneWay { peer: PeerId(n % 2), length: 3_000, cookie: 0 };
        let rpc = endpoint.submit(Time(1), one_way).unwrap().rpc;
        endpoint.set_route(PeerId(n % 2), if n % 4 < 2 { A } else { B });
        endpoint.submit(Time(1), Submit::Cancel { rpc }).unwrap();
        while endpoint.event().is_some() {}
    }
    assert!(!endpoint.has_packet());
    assert_eq!(drain(&mut endpoint, Links::ALL), []);
}

const LOCAL_PORT: u16 = 9;

/// A call of peer 0; the first packet of its response of 20,000 bytes arrives 1 ms later.
fn call(endpoint: &mut Endpoint) -> (Time, RpcId) {
    let request = Request {
        peer: PeerId(0),
        local_port: LOCAL_PORT,
        remote_port: 7,
        length: 100,
        deadline: Time(10_000_000_000),
        idempotent: false,
        head: 0,
        cookie: 0,
    };
    endpoint.submit(Time(1_000_000), Submit::Request(request)).unwrap();
    let id = endpoint.transmit(Time(1_000_000)).unwrap().id;
    let now = Time(2_000_000);
    let id = RpcId(id.0 ^ 1);
    arrive(endpoint, now, id, 0);
    (now, id)
}

fn arrive(endpoint: &mut Endpoint, now: Time, id: RpcId, offset: u32) {
    let data = Data {
        span: Span { message: homa_proto::MessageId(0), offset, len: PAYLOAD },
        message_length: 900_000,
        incoming: 60_000,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        incast: None,
    };
    let packet = Packet {
        peer: PeerId(0),
        priority: 0,
        local_port: LOCAL_PORT,
        remote_port: 7,
        id,
        body: Body::Data(data),
    };
    let _ = endpoint.receive(now, &packet);
    while endpoint.event().is_some() {}
}

/// Silence after the first packet until the first RESEND.
fn until_resend(endpoint: &mut Endpoint, since: Time) -> Duration {
    loop {
        let now = endpoint.deadline().expect("something is owed");
        endpoint.expire(now);
        while let Some(packet) = endpoint.transmit(now) {
            if matches!(packet.body, Body::Resend { .. }) {
                return now.since(since);
            }
        }
    }
}

#[test]
fn an_unknown_rate_does_not_hurry_the_resend() {
    let after = |rate: Option<Rate>| {
        let mut endpoint = endpoint(1, 0);
        endpoint.set_link(A, LinkInfo { rate, rtt_bytes_max: 60_000 });
        let (at, _) = call(&mut endpoint);
        until_resend(&mut endpoint, at)
    };
    let fast = after(Some(Rate::gbps(100)));
    assert!(fast <= Duration::millis(7), "{fast:?}");
    // About 60,000 bytes are outstanding: 4.8 ms at 100 Mbit/s, and few links are slower.
    let unknown = after(None);
    assert!((Duration::millis(9)..Duration::millis(13)).contains(&unknown), "{unknown:?}");
    let slow = after(Some(Rate::mbps(10)));
    assert!(slow >= Duration::millis(50), "{slow:?}");
}

#[test]
fn a_slow_link_of_unknown_rate_is_measured() {
    let mut endpoint = endpoint(1, 0);
    let (mut now, id) = call(&mut endpoint);
    // A frame each 1.23 ms is 10 Mbit/s.
    for n in 1..20 {
        now += Duration::micros(1_230);
        arrive(&mut endpoint, now, id, n * PAYLOAD);
        while endpoint.transmit(now).is_some() {}
    }
    let resend = until_resend(&mut endpoint, now);
    assert!(resend >= Duration::millis(25), "{resend:?}");
    assert!(resend <= Duration::millis(120), "{resend:?}");
}
