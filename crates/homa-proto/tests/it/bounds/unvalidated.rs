//! A host whose address is not validated can take little from honest clients.

use super::*;

/// The first byte of a request of 16 MB that announces 60 kB as unscheduled.
fn announced(peer: u32, n: u64) -> Packet {
    let first = data(RpcId(2 * (n + 1)), 0, 16_000_000);
    let Body::Data(bytes) = first.body else { panic!("it is DATA") };
    let span = Span { len: 1, ..bytes.span };
    let body = Body::Data(Data { span, incoming: 16_000_000, ..bytes });
    Packet { peer: PeerId(peer), body, ..first }
}

fn with_peers(peers: u32) -> Endpoint {
    let mut server = endpoint(users());
    for peer in 1..=peers {
        server.open_peer(PeerId(peer), PeerInfo { host: peer, max_payload: 1_400 });
    }
    server
}

fn sent(server: &mut Endpoint, now: Time) -> Vec<Packet> {
    std::iter::from_fn(|| server.transmit(now)).collect()
}

#[test]
fn announced_bytes_take_no_grants_from_others() {
    let mut server = with_peers(50);
    for n in 0..200 {
        let _ = server.receive(START, &announced(1 + n as u32 % 50, n));
    }
    sent(&mut server, START);
    for offset in (0..10_000).step_by(1_000) {
        let _ = server.receive(START, &data(RpcId(2), offset, 100_000));
    }
    let granted = sent(&mut server, START).into_iter().any(|packet| {
        packet.peer == PEER && matches!(packet.body, Body::Grant { offset, .. } if offset > 10_000)
    });
    assert!(granted, "a call in earnest is granted at once");
}

#[test]
fn an_abandoned_request_gets_a_few_resends() {
    let mut server = with_peers(1);
    let _ = server.receive(START, &announced(1, 0));
    let mut asked = 0;
    while let Some(at) = server.deadline().filter(|&at| at < START + Duration::secs(30)) {
        server.expire(at);
        asked += sent(&mut server, at).len();
    }
    // One after 5 ms, then each after twice as long, for 10 s.
    assert!((8..=13).contains(&asked), "{asked} packets for one");
    assert_eq!(server.rpcs(), (0, 0));
}

#[test]
fn a_resend_of_a_response_asks_for_the_missing_request() {
    let mut server = with_peers(0);
    let _ = server.receive(START, &data(RpcId(2), 1_000, 5_000));
    let mut now = START;
    while now < START + Duration::secs(4) {
        now = server.deadline().expect("it waits");
        server.expire(now);
        sent(&mut server, now);
    }
    now += Duration::millis(100);
    let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let _ = server.receive(now, &packet(RpcId(2), all));
    let asks = |packet: &Packet| matches!(packet.body, Body::Resend { offset: 0, .. });
    assert!(sent(&mut server, now).iter().any(asks), "not after up to 2.5 s");
}

#[test]
fn only_overflow_makes_a_share_of_the_receive_buffer_smaller() {
    let mut known = 0;
    let mut told = |server: &mut Endpoint, now: Time, n: u64, incoming: u32| {
        let first = data(RpcId(2 * n), 0, 100_000);
        let Body::Data(bytes) = first.body else { panic!("it is DATA") };
        let body = Body::Data(Data { cutoff_version: known, incoming, ..bytes });
        let _ = server.receive(now, &Packet { body, ..first });
        sent(server, now).into_iter().find_map(|packet| match packet.body {
            Body::Cutoffs { limits, version, .. } if packet.peer == PEER => {
                known = version;
                limits.map(|limits| limits.max_unscheduled)
            }
            _ => None,
        })
    };
    let mut server = with_peers(30_000);
    for peer in 1..=30_000 {
        let busy =
            Packet { peer: PeerId(peer), ..packet(RpcId(2), Body::Busy { come_back: None }) };
        let _ = server.receive(START, &busy);
    }
    let at = |millis| START + Duration::millis(millis);
    let alone = told(&mut server, at(0), 1, 1_000).expect("a new peer is told");
    assert!(alone >= 10_000, "{alone} bytes, whoever spoke");
    // Two overflows at once count as one.
    for millis in [10, 11, 30, 50] {
        server.overflowed(at(millis));
    }
    let crowded = told(&mut server, at(1_100), 2, alone).expect("there is less now");
    assert_eq!(crowded, alone / 8);
    assert_eq!(told(&mut server, at(1_110), 3, crowded), None, "once is enough");
    for millis in (2_000..3_000).step_by(10) {
        server.overflowed(at(millis));
    }
    let least = told(&mut server, at(3_000), 4, crowded).expect("there is less again");
    assert!((1..1_400).contains(&least), "{least} bytes");
    let later = told(&mut server, at(40_000), 5, 1_000).expect("there is more now");
    assert_eq!(later, alone);
}

/// CUTOFFS can be lost, and a peer that only answers never begins a request.
#[test]
fn a_sender_above_its_share_gets_cutoffs_again() {
    let mut host = with_peers(0);
    let ids: Vec<RpcId> = (0..5)
        .map(|cookie| {
            host.submit(START, call(100, cookie)).expect("accepted");
            host.transmit(START).expect("a request").id.server()
        })
        .collect();
    let mut version = 0;
    let mut told = |host: &mut Endpoint, now: Time, (id, incoming): (RpcId, u32)| {
        let first = data(id, 0, 100_000);
        let Body::Data(bytes) = first.body else { panic!("it is DATA") };
        let body = Body::Data(Data { incoming, cutoff_version: version, ..bytes });
        let _ = host.receive(now, &Packet { body, ..first });
        sent(host, now).into_iter().find_map(|packet| match packet.body {
            Body::Cutoffs { limits, version: now, .. } => {
                version = now;
                limits.map(|limits| limits.max_unscheduled)
            }
            _ => None,
        })
    };
    let share = told(&mut host, START, (ids[0], 1_000)).expect("a new peer is told");
    assert!(share >= 10_000, "{share} bytes");
    let at = |millis| START + Duration::millis(millis);
    assert_eq!(told(&mut host, at(10), (ids[1], share)), None, "it knows");
    assert_eq!(told(&mut host, at(20), (ids[2], 3 * share)), Some(share));
    // A sender may choose to send less.
    assert_eq!(told(&mut host, at(30), (ids[3], 1_000)), None);
    assert_eq!(told(&mut host, at(1_030), (ids[4], 1_000)), Some(share));
}

/// A server whose challenges are not answered.
fn server_of_unvalidated(peers: u32, budget: u64) -> Endpoint {
    let config = users().validate_addresses(true).unguessable_ids(true).memory_budget(budget);
    let mut server = endpoint(config);
    for peer in 1..=peers {
        server.open_peer(PeerId(peer), PeerInfo { host: peer, max_payload: 1_400 });
    }
    server
}

#[test]
fn growing_unvalidated_requests_keep_to_their_quota() {
    const BUDGET: u64 = 1_000_000;
    let mut server = server_of_unvalidated(100, BUDGET);
    let grown = |peer, offset| {
        let packet = data(RpcId(2), offset, 70_000);
        let Body::Data(bytes) = packet.body else { panic!("it is DATA") };
        let body = Body::Data(Data { incoming: 60_000, ..bytes });
        Packet { peer: PeerId(peer), body, ..packet }
    };
    let mut placed = 0;
    for round in 0..60 {
        let now = START + Duration::millis(10 * u64::from(round));
        server.expire(now);
        for peer in 1..=100 {
            let receipt = server.receive(now, &grown(peer, 1_000 * round));
            placed += u32::from(matches!(receipt, Receipt::Place(_)));
        }
        assert!(server.credit().memory <= BUDGET / 8 + 1_000, "{}", server.credit().memory);
    }
    assert!(placed >= 100, "{placed} parts were taken");
    // New bytes are no answer.
    for ms in (700..2_000).step_by(100) {
        let now = START + Duration::millis(ms);
        server.expire(now);
        let _ = server.receive(now, &grown(1, 60_000 + ms as u32));
    }
    let (_, left) = server.rpcs();
    assert!(left <= 1, "{left} are left");
}

#[test]
fn a_challenge_from_an_unknown_server_learns_no_token() {
    let mut client = server_of_unvalidated(1, 1 << 20);
    client.submit(START, call(100, 1)).expect("accepted");
    sent(&mut client, START);
    let body = Body::Challenge { boot: 7, remembered: Duration::secs(100) };
    let question = |peer, n: u64| Packet { peer, ..packet(RpcId(2 * n + 1), body) };
    let answer = |client: &mut Endpoint, peer, n| {
        let _ = client.receive(START, &question(peer, n));
        let all = sent(client, START);
        all.iter().find_map(|packet| match packet.body {
            Body::Proof(proof) if packet.peer == peer => Some(proof.token),
            _ => None,
        })
    };
    let told: Vec<u64> = (1..5).filter_map(|n| answer(&mut client, PeerId(1), n)).collect();
    assert!(!told.is_empty() && told.iter().all(|&token| token == 0), "{told:?}");
    let name = answer(&mut client, PEER, 5);
    assert!(name.is_some_and(|token| token != 0), "its server is told");
    assert_eq!(answer(&mut client, PEER, 6), name);
}

#[test]
fn growing_requests_leave_room_for_other_hosts() {
    const BUDGET: u64 = 1_000_000;
    const LENGTH: u32 = 40_000;
    let mut server = endpoint(users().memory_budget(BUDGET));
    for host in 1..=2 {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_400 });
        server.set_account(PeerId(host), host, u64::from(host));
    }
    let part = |peer, id, offset, len: u32| {
        let packet = data(RpcId(id), offset, LENGTH);
        let Body::Data(bytes) = packet.body else { panic!("it is DATA") };
        let span = Span { len, ..bytes.span };
        let body = Body::Data(Data { span, incoming: LENGTH, ..bytes });
        Packet { peer: PeerId(peer), body, ..packet }
    };
    for n in 1..=200 {
        assert!(matches!(server.receive(START, &part(1, 2 * n, 0, 1)), Receipt::Place(_)));
    }
    // All of them continue at the same time.
    for offset in (1..LENGTH).step_by(1_000) {
        let len = 1_000.min(LENGTH - offset);
        for n in 1..=200 {
            let _ = server.receive(START, &part(1, 2 * n, offset, len));
        }
    }
    let held = server.credit().memory;
    assert!((BUDGET * 2 / 5..BUDGET * 3 / 5).contains(&held), "{held} bytes are one host's");
    let other = server.receive(START, &part(2, 2, 0, 1_000));
    assert!(matches!(other, Receipt::Place(_)), "{other:?}");
    // Refused packets come again when they are asked for.
    let mut now = START;
    while server.counters().requests_delivered < 200 && now < START + Duration::secs(20) {
        now += Duration::millis(1);
        server.expire(now);
        while let Some(event) = server.event() {
            if let Event::Delivered(whole) = event {
                server.request_accepted(whole.peer.0, whole.length);
            }
        }
        for asked in sent(&mut server, now).into_iter().filter(|packet| packet.peer == PeerId(1)) {
            let Body::Resend { offset, length: ResendLength::Bytes(len), .. } = asked.body else {
                continue;
            };
            for at in (offset..offset + len).step_by(1_000) {
                let len = 1_000.min(offset + len - at);
                let _ = server.receive(now, &part(1, asked.id.client().0, at, len));
            }
        }
    }
    assert_eq!(server.counters().requests_delivered, 200);
}

/// The first packet of a request of 60 kB.
fn begins(peer: u32, id: u64) -> Packet {
    Packet { peer: PeerId(peer), ..data(RpcId(id), 0, 60_000) }
}

#[test]
fn spoofed_requests_take_nothing_from_a_hosts_share() {
    const BUDGET: u64 = 200_000;
    let mut server = server_of_unvalidated(6, BUDGET);
    // The last two have one host's address: one is validated, the other spoofed.
    for (peer, account) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 5)] {
        server.set_account(PeerId(peer), account, u64::from(account));
    }
    for peer in 1..=5 {
        let _ = server.receive(START, &begins(peer, 2));
        for asked in sent(&mut server, START) {
            let answer = packet(asked.id.client(), Body::Ack(Acks::default()));
            let _ = server.receive(START, &Packet { peer: PeerId(peer), ..answer });
        }
        let over = packet(RpcId(2), Body::Ack(Acks::default()));
        let _ = server.receive(START, &Packet { peer: PeerId(peer), ..over });
    }
    assert_eq!(server.rpcs().1, 0);
    for n in 1..=BUDGET / 8_000 {
        let _ = server.receive(START, &begins(6, 2 * n));
    }
    for peer in 1..=4 {
        let mut ids = (2..).map(|n| 2 * n);
        while let Receipt::Place(_) = server.receive(START, &begins(peer, ids.next().unwrap())) {}
    }
    let left = BUDGET - server.credit().memory;
    assert!((1_000..BUDGET / 8 - 2_000).contains(&left), "{left} bytes are left");
    let other = server.receive(START, &begins(5, 4));
    assert!(matches!(other, Receipt::Place(_)), "{other:?}");
}
