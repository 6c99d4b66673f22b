//! A hostile peer gets a bounded part of memory and of work, and does not delay RESENDs to others.

use super::*;

/// The first packet of a request of `length` bytes that announces all of them as unscheduled.
fn announcement(id: RpcId, length: u32) -> Packet {
    let packet = data(id, 0, length);
    let Body::Data(bytes) = packet.body else { panic!("it is DATA") };
    Packet { body: Body::Data(Data { incoming: length, ..bytes }), ..packet }
}

/// One byte of a request of a million.
fn one_byte(id: RpcId, offset: u32) -> Packet {
    let packet = data(id, 0, 1_000_000);
    let Body::Data(bytes) = packet.body else { panic!("it is DATA") };
    let span = Span { offset, len: 1, ..bytes.span };
    Packet { body: Body::Data(Data { span, incoming: 100_000, ..bytes }), ..packet }
}

#[test]
fn a_message_full_of_gaps_needs_a_bounded_number_of_resends() {
    for (config, most) in [(Config::linux(), 360), (users(), 16)] {
        let mut server = endpoint(config);
        assert!(matches!(server.receive(START, &one_byte(RpcId(2), 59_999)), Receipt::Place(_)));
        let placed = (0..29_999).filter(|n| {
            matches!(server.receive(START, &one_byte(RpcId(2), 2 * n)), Receipt::Place(_))
        });
        assert!(placed.count() <= 1_025);
        assert!(server.counters().dropped(DropReason::TooManyGaps) > 28_000);
        while server.transmit(START).is_some() {}
        server.expire(START + Duration::millis(6));
        let sent: Vec<_> = std::iter::from_fn(|| server.transmit(START)).collect();
        assert_eq!(sent.len(), most);
    }
}

#[test]
fn bytes_far_beyond_their_grant_are_dropped() {
    for config in [Config::linux(), users()] {
        let mut server = endpoint(config);
        let refused = Receipt::Dropped(DropReason::NotGranted);
        // Neither is the first packet of a message, as late packets of ended RPCs are not, nor does
        // it continue one.
        let late = Receipt::Dropped(DropReason::NotBegun);
        assert_eq!(server.receive(START, &data(RpcId(2), 999_000, 1_000_000)), late);
        assert_eq!((server.rpcs(), server.credit().memory), ((0, 0), 0));
        assert!(matches!(server.receive(START, &data(RpcId(2), 0, 1_000_000)), Receipt::Place(_)));
        assert_eq!(server.receive(START, &data(RpcId(2), 999_000, 1_000_000)), refused);
        // Bytes that overtook others, or were rounded up to a packet by the sender, are not far
        // ahead.
        let near = data(RpcId(2), 60_000, 1_000_000);
        assert!(matches!(server.receive(START, &near), Receipt::Place(_)));
        assert!(server.credit().memory <= 300_000, "{} bytes held", server.credit().memory);
        // If the first packet is a retransmission, more may have been granted before the message
        // was dropped.
        let mut first = data(RpcId(4), 0, 1_000_000);
        let Body::Data(bytes) = &mut first.body else { panic!("it is DATA") };
        bytes.retransmit = true;
        assert!(matches!(server.receive(START, &first), Receipt::Place(_)));
        assert_eq!(server.receive(START, &data(RpcId(4), 999_000, 1_000_000)), late);
    }
}

#[test]
fn answers_that_the_link_cannot_take_do_not_pile_up() {
    let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    for config in [Config::linux(), users()] {
        let mut host = endpoint(config);
        host.submit(START, call(100, 1)).expect("accepted");
        let ours = host.transmit(START).expect("the request").id.server();
        let mut response = one_byte(ours, 20_000);
        (response.local_port, response.remote_port) = (1_000, 99);
        assert!(matches!(host.receive(START, &response), Receipt::Place(_)));
        assert!(matches!(host.receive(START, &data(RpcId(2), 0, 1_000)), Receipt::Place(_)));
        let before = host.waiting_control();
        // An incomplete call gets one RESEND, however often its server sends NEED_ACK.
        for _ in 0..1_000 {
            let _ = host.receive(START, &packet(ours, Body::NeedAck));
        }
        assert!(host.waiting_control() <= before + 3, "{} wait", host.waiting_control());
        for n in 0..10_000 {
            let unknown = RpcId(1_000_000 + 2 * n);
            let _ = host.receive(START, &packet(unknown.server(), Body::NeedAck));
            let _ = host.receive(START, &packet(unknown, all));
            let _ = host.receive(START, &packet(RpcId(2), all));
        }
        assert!(host.waiting_control() <= 4_500, "{} wait", host.waiting_control());
        assert!(host.counters().answers_withheld > 20_000);
        while host.transmit(START).is_some() {}
        assert_eq!(host.waiting_control(), 0);
        // Nor are there answers to clients that ask for the responses to requests that they have
        // not sent whole.
        let owing = |n: u64| RpcId(2_000_000 + 2 * n);
        for n in 0..2_000 {
            assert!(matches!(
                host.receive(START, &announcement(owing(n), 3_000)),
                Receipt::Place(_)
            ));
        }
        while host.transmit(START).is_some() {}
        for n in 0..2_000 {
            let _ = host.receive(START + Duration::millis(6), &packet(owing(n), all));
        }
        assert!(host.waiting_control() <= 2_600, "{} wait", host.waiting_control());
        while host.transmit(START + Duration::millis(6)).is_some() {}
        // After that it answers again.
        let _ = host.receive(START, &packet(ours, Body::NeedAck));
        assert!(matches!(host.transmit(START).map(|p| p.body), Some(Body::Resend { .. })));
    }
}

#[test]
fn a_request_that_grew_while_it_waited_for_memory_fails_no_call() {
    let mut server = endpoint(Config::linux().memory_budget(10_000));
    let full = server.receive(START, &announcement(RpcId(2), 50_000));
    assert_eq!((full, server.rpcs()), (Receipt::Dropped(DropReason::NoMemory), (0, 1)));
    let grown = data(RpcId(2), 0, 2_000_000);
    assert_eq!(server.receive(START, &grown), Receipt::Dropped(DropReason::TooLong));
    assert_eq!((server.event(), server.rpcs()), (None, (0, 0)));
}

/// One-way messages have no RESENDs for the rest.
#[test]
fn a_one_way_message_without_memory_leaves_nothing() {
    for config in [Config::linux(), Config::sigcomm18(Rate::gbps(10))] {
        let mut host = endpoint(config.memory_budget(2_500));
        let one_way = Packet { local_port: 0, ..announcement(RpcId(2), 50_000) };
        assert_eq!(host.receive(START, &one_way), Receipt::Dropped(DropReason::NoMemory));
        assert_eq!(host.rpcs(), (0, 0));
    }
}

/// Neither profile tells a client that there was no memory for its request.
#[test]
fn a_request_is_asked_for_once_there_is_memory() {
    let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    for config in [Config::linux(), Config::sigcomm18(Rate::gbps(10))] {
        let mut server = endpoint(config.memory_budget(2_500));
        assert!(matches!(server.receive(START, &data(RpcId(2), 0, 3_000)), Receipt::Place(_)));
        assert!(matches!(server.receive(START, &data(RpcId(2), 1_000, 3_000)), Receipt::Place(_)));
        let refused = server.receive(START, &data(RpcId(4), 0, 2_000));
        assert_eq!(refused, Receipt::Dropped(DropReason::NoMemory));
        while server.transmit(START).is_some() {}
        // Its client asks for the response.
        let _ = server.receive(START, &packet(RpcId(4), all));
        let answers =
            std::iter::from_fn(|| server.transmit(START)).map(|sent| (sent.id, sent.body));
        assert_eq!(Vec::from_iter(answers), [(RpcId(4).server(), Body::Busy { come_back: None })]);
        // The first message is complete.
        let _ = server.receive(START, &data(RpcId(2), 2_000, 3_000));
        let asked = server.transmit(START).expect("a RESEND");
        assert_eq!(asked.id, RpcId(4).server());
        assert!(matches!(asked.body, Body::Resend { offset: 0, length: ResendLength::All, .. }));
    }
}

fn limit(id: RpcId, max_message: u32) -> Packet {
    let limits = Some(Limits { max_message, max_unscheduled: 10_000 });
    packet(id, Body::Cutoffs { cutoffs: [0; 8], version: 1, limits })
}

#[test]
fn requests_that_a_server_finds_too_long_fail_soon() {
    let mut client = endpoint(users());
    for (length, cookie) in [(100_000, 1), (100_000, 2), (4_000, 3)] {
        client.submit(START, call(length, cookie)).expect("accepted");
    }
    let sent: Vec<_> = std::iter::from_fn(|| client.transmit(START)).collect();
    let id = sent.last().expect("the longest is sent last").id;
    let _ = client.receive(START, &limit(id.server(), 5_000));
    pass(&mut client, START + Duration::millis(10));
    let mut failed = Vec::new();
    while let Some(event) = client.event() {
        if let Event::Failed { cookie, error, .. } = event {
            assert_eq!(error, RpcError::RequestTooLong { max: 5_000 });
            failed.push(cookie);
        }
    }
    failed.sort_unstable();
    assert_eq!(failed, [1, 2]);
}

#[test]
fn a_limit_is_believed_only_if_it_names_the_call() {
    let mut client = endpoint(users());
    let refused = Err(SubmitError::MessageTooLong { max: 5_000 });
    // An attacker could have sent this one, because it names no RPC.
    let _ = client.receive(START, &limit(RpcId(0x8888_0000_0001), 0));
    client.submit(START, call(100_000, 1)).expect("accepted");
    let id = client.transmit(START).expect("the request").id;
    let _ = client.receive(START, &limit(id.server(), 5_000));
    assert_eq!(client.submit(START, call(5_001, 2)), refused);
    // The server may have restarted with a larger limit by now, so the request is sent.
    let later = START + Duration::secs(3);
    client.submit(later, call(5_001, 3)).expect("accepted");
    let id = client.transmit(later).expect("the request").id;
    let _ = client.receive(later, &limit(id.server(), 5_000));
    assert_eq!(client.submit(later, call(5_001, 4)), refused);
}

/// Lets time pass: timers fire, and all packets that are sent are lost.
fn pass(endpoint: &mut Endpoint, until: Time) {
    while let Some(at) = endpoint.deadline().filter(|&at| at <= until) {
        endpoint.expire(at);
        while endpoint.transmit(at).is_some() {}
    }
}

/// A server that answered `requests` requests.
fn unacknowledged(config: Config, requests: u64) -> Endpoint {
    let mut server = endpoint(config);
    for n in 1..=requests {
        assert!(matches!(server.receive(START, &data(RpcId(2 * n), 0, 10)), Receipt::Place(_)));
    }
    while let Some(event) = server.event() {
        if let Event::Delivered(delivered) = event {
            let response = Submit::Response { rpc: delivered.rpc, length: 10 };
            server.submit(START, response).expect("in service");
        }
    }
    while server.transmit(START).is_some() {}
    server
}

#[test]
fn a_client_that_never_acknowledges_is_not_asked_for_long() {
    for (config, most) in [(Config::linux(), 150), (users(), 10)] {
        let mut server = unacknowledged(config, 1);
        pass(&mut server, START + Duration::millis(2_100));
        assert!((1..=most).contains(&server.counters().need_acks_sent));
        assert_eq!(server.rpcs(), (0, 0));
    }
}

#[test]
fn need_acks_do_not_delay_the_acks_they_ask_for() {
    for config in [Config::linux(), users()] {
        let mut server = unacknowledged(config, 5_000);
        for millis in 1..50 {
            server.expire(START + Duration::millis(millis));
        }
        assert!(server.waiting_control() <= 256, "{} wait", server.waiting_control());
        // They are acknowledged before the link took any NEED_ACK: then none is sent.
        for n in 1..=5_000 {
            let _ = server.receive(START, &packet(RpcId(2 * n), Body::Ack(Acks::default())));
        }
        assert_eq!((server.transmit(START), server.counters().need_acks_sent), (None, 0));
    }
}

#[test]
fn announced_bytes_take_no_memory_for_long() {
    let mut server = endpoint(users());
    server.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_000 });
    for n in 1..=1_000 {
        assert!(matches!(
            server.receive(START, &announcement(RpcId(2 * n), 16 << 20)),
            Receipt::Place(_)
        ));
    }
    // Other peers have room, and do not wait for bytes that will not come.
    let other = Packet { peer: HONEST, ..announcement(RpcId(2), 20_000) };
    assert!(
        matches!(server.receive(START, &other), Receipt::Place(_)),
        "{}",
        server.credit().memory
    );
    // Repeating the packets keeps no memory.
    for millis in (0..2_000).step_by(100) {
        let now = START + Duration::millis(millis);
        pass(&mut server, now);
        for n in 1..=1_000 {
            let again = announcement(RpcId(2 * n), 16 << 20);
            assert_eq!(server.receive(now, &again), Receipt::Dropped(DropReason::Duplicate));
        }
    }
    assert!(server.credit().memory <= 2_000_000, "{} bytes held", server.credit().memory);
    pass(&mut server, START + Duration::secs(11));
    assert_eq!((server.credit().memory, server.rpcs()), (0, (0, 0)));
}

#[test]
fn our_own_calls_to_a_peer_take_no_place_of_its_calls_to_us() {
    let mut both = endpoint(users().max_rpcs(2));
    for cookie in 0..2 {
        both.submit(START, call(100, cookie)).expect("two calls");
    }
    assert!(matches!(both.receive(START, &data(RpcId(2), 0, 1_500)), Receipt::Place(_)));
    // Its second request would leave nothing for others.
    let second = both.receive(START, &data(RpcId(4), 0, 1_500));
    assert_eq!(second, Receipt::Dropped(DropReason::TooManyOfPeer));
}

#[test]
fn one_peer_takes_neither_every_place_nor_all_memory() {
    let mut server = endpoint(users().max_rpcs(10_000));
    server.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_000 });
    for n in 1..=10_000 {
        let _ = server.receive(START, &data(RpcId(2 * n), 0, 1_500));
    }
    assert_eq!(server.counters().dropped(DropReason::TooManyOfPeer), 5_000);
    let other = |n: u64| Packet { peer: HONEST, ..data(RpcId(2 * n), 0, 1_500) };
    for n in 1..=2_000 {
        assert!(matches!(server.receive(START, &other(n)), Receipt::Place(_)));
    }

    let mut server = endpoint(users());
    server.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_000 });
    for n in 1..=10_000 {
        let _ = server.receive(START, &announcement(RpcId(2 * n), 16 << 20));
    }
    assert!(server.credit().memory <= 10_000_000, "as much as it sent");
    for n in 1..=1_000 {
        let other = Packet { peer: HONEST, ..announcement(RpcId(2 * n), 60_000) };
        assert!(matches!(server.receive(START, &other), Receipt::Place(_)));
    }
    pass(&mut server, START + Duration::secs(11));
    assert_eq!((server.credit().memory, server.rpcs()), (0, (0, 0)));
}

#[test]
fn messages_in_a_resend_queue_back_off() {
    let mut server = endpoint(users());
    for n in 1..=2_000 {
        assert!(matches!(server.receive(START, &data(RpcId(2 * n), 0, 1_500)), Receipt::Place(_)));
    }
    pass(&mut server, START + Duration::secs(5));
    let looks = server.coverage().cells().find(|c| (c.0, c.1) == ("server incoming", "timer"));
    let looks = looks.map_or(0, |cell| cell.2);
    assert!(looks < 2_000 * 40, "{looks} looks at 2,000 messages");
}

#[test]
fn a_slow_sender_does_not_delay_resends_to_others() {
    let mut server = endpoint(users());
    server.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_000 });
    for n in 0..50 {
        let now = START + Duration::millis(80 * n);
        let _ = server.receive(now, &data(RpcId(2), 1_000 * n as u32, 1_000_000));
        pass(&mut server, now);
    }
    let began = START + Duration::millis(80 * 49);
    let first = |offset| Packet { peer: HONEST, ..data(RpcId(2), offset, 4_000) };
    for offset in [0, 2_000, 3_000] {
        assert!(matches!(server.receive(began, &first(offset)), Receipt::Place(_)));
    }
    assert_eq!(asked_after(&mut server, began), Some(Duration::millis(6)));
}

/// The time from `began` to the next RESEND to the honest peer.
fn asked_after(server: &mut Endpoint, began: Time) -> Option<Duration> {
    while let Some(at) = server.deadline() {
        server.expire(at);
        while let Some(packet) = server.transmit(at) {
            if packet.peer == HONEST && matches!(packet.body, Body::Resend { .. }) {
                return Some(at.since(began));
            }
        }
    }
    None
}

#[test]
fn announced_bytes_do_not_delay_resends() {
    let mut server = endpoint(users());
    server.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_000 });
    for n in 1..=1_000 {
        let _ = server.receive(START, &announcement(RpcId(2 * n), 16 << 20));
    }
    pass(&mut server, START + Duration::millis(400));
    let began = START + Duration::millis(400);
    let other = Packet { peer: HONEST, ..announcement(RpcId(2), 20_000) };
    assert!(matches!(server.receive(began, &other), Receipt::Place(_)));
    let asked = asked_after(&mut server, began);
    assert!(asked.is_some_and(|after| after <= Duration::millis(20)), "{asked:?}");
}
