//! Promises that hold whatever a peer does. Random scenarios found each of them broken once.

use homa_proto::{
    AckEntry, Acks, Body, Config, Data, DropReason, Duration, Endpoint, Event, Limits, MessageId,
    Packet, PeerId, PeerInfo, Rate, Receipt, Request, ResendLength, RpcError, RpcId, Span, Submit,
    SubmitError, Time,
};

mod floods;
mod forged;
mod handshake;
mod late_answers;
mod moved;
mod names;
mod queued_requests;
mod silent;
mod unvalidated;

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

fn call(length: u32, cookie: u64) -> Submit {
    Submit::Request(Request {
        peer: PEER,
        local_port: 1_000,
        remote_port: 99,
        length,
        deadline: START + Duration::secs(10),
        idempotent: false,
        head: 0,
        cookie,
    })
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
    let mut server = endpoint(users().memory_budget(50_000));
    let length = 200_000;
    let mut held = 0;
    // A late packet first: a gap must not count as nothing either.
    for offset in [99_000].into_iter().chain((0..199_000).step_by(1_000)) {
        for id in [2, 4, 6] {
            match server.receive(START, &data(RpcId(id), offset, length)) {
                Receipt::Place(place) => held += place.len,
                Receipt::Dropped(reason) => assert!(
                    [
                        DropReason::NoMemory,
                        DropReason::NotBegun,
                        DropReason::NotGranted,
                        DropReason::Duplicate
                    ]
                    .contains(&reason)
                ),
                Receipt::Consumed => panic!("DATA is placed or dropped"),
            }
        }
    }
    // One message may exceed the budget.
    assert!((40_000..=250_000).contains(&held), "{held} bytes held");
}

#[test]
fn a_full_memory_delays_messages_and_stops_none() {
    let mut server = endpoint(users().memory_budget(50_000));
    for host in 1..4 {
        server.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_000 });
    }
    let from = |host, offset| {
        let packet = data(RpcId(2), offset, 40_000);
        Packet { peer: PeerId(host), ..packet }
    };
    let mut waiting: Vec<(u32, u32)> = (0..4).map(|host| (host, 0)).collect();
    let (mut sent, mut granted, mut whole) = ([0; 4], [1_000; 4], 0);
    while let Some((host, offset)) = waiting.pop() {
        let receipt = server.receive(START, &from(host, offset));
        assert!(matches!(receipt, Receipt::Place(_)), "{receipt:?}");
        sent[host as usize] = offset + 1_000;
        while let Some(packet) = server.transmit(START) {
            if let Body::Grant { offset, .. } = packet.body {
                granted[packet.peer.0 as usize] = offset;
            }
        }
        while let Some(event) = server.event() {
            whole += u32::from(matches!(event, Event::Delivered(_)));
        }
        if waiting.is_empty() {
            let next =
                |host: usize| (sent[host] < granted[host]).then_some((host as u32, sent[host]));
            // Whole packets only: a sender waits for the rest of its grant.
            waiting
                .extend((0..4).filter_map(next).filter(|&(h, s)| granted[h as usize] - s >= 1_000));
        }
    }
    assert_eq!(whole, 4, "sent {sent:?}, granted {granted:?}");
}

#[test]
fn a_late_rpc_unknown_does_not_fail_an_answered_call() {
    let mut client = endpoint(users());
    client.submit(START, call(100, 7)).expect("accepted");
    let id = client.transmit(START).expect("the request").id.server();
    let unknown = |remembered| {
        packet(
            id,
            Body::RpcUnknown { remembered: Some(remembered), no_server: false, reason: None },
        )
    };
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
    let mut server = endpoint(users().levels(1));
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

#[test]
fn a_dead_sender_does_not_hold_the_grants_of_others() {
    // One level: one message is granted at a time, the one with the fewest bytes left.
    let mut server = endpoint(users().levels(1));
    server.open_peer(PeerId(1), PeerInfo { host: 1, max_payload: 1_000 });
    let dead = data(RpcId(2), 0, 30_000);
    let alive = Packet { peer: PeerId(1), ..data(RpcId(2), 0, 40_000) };
    for packet in [dead, alive] {
        assert!(matches!(server.receive(START, &packet), Receipt::Place(_)));
    }
    let end = START + Duration::millis(50);
    let mut granted = [0; 2];
    while let Some(at) = server.deadline().filter(|&at| at <= end) {
        server.expire(at);
        while let Some(packet) = server.transmit(at) {
            if let Body::Grant { offset, .. } = packet.body {
                granted[packet.peer.0 as usize] = offset;
            }
        }
    }
    assert!(granted[0] > 1_000 && granted[1] > 1_000, "{granted:?}");
    // The other host was only slow: once it has sent the granted bytes, it is granted more.
    for offset in (1_000..granted[0]).step_by(1_000) {
        let slow = data(RpcId(2), offset, 30_000);
        assert!(matches!(server.receive(end, &slow), Receipt::Place(_)));
    }
    let grants: Vec<_> = std::iter::from_fn(|| server.transmit(end)).collect();
    let again = |p: &Packet| p.peer == PEER && matches!(p.body, Body::Grant { .. });
    assert!(grants.iter().any(again), "{grants:?}");
}

const HONEST: PeerId = PeerId(1);

/// All packets that a hostile peer may send about the RPCs of another, and about its own.
fn hostile_script(round: u32, victim: RpcId) -> Vec<Packet> {
    let (own, theirs) = (RpcId(2 + 2 * u64::from(round)), [victim.client(), victim.server()]);
    let mut acks = Acks::default();
    for id in [victim.client(), own] {
        let _ = acks.push(AckEntry { id, server_port: 99 });
    }
    let cutoffs = [i32::MAX as u32, 1, 2, 3, 4, 5, 6, round];
    let mut script = vec![packet(victim.client(), Body::Ack(acks))];
    for id in theirs {
        for (offset, length) in [(0, ResendLength::All), (0, ResendLength::Bytes(u32::MAX - 1))] {
            script.push(packet(id, Body::Resend { offset, length, priority: 255 }));
        }
        script.push(packet(id, Body::Grant { offset: u32::MAX, priority: 255 }));
        script.push(packet(id, Body::Cutoffs { cutoffs, version: round as u16, limits: None }));
        let single = [
            Body::RpcUnknown { remembered: None, no_server: false, reason: None },
            Body::Busy { come_back: None },
            Body::NeedAck,
        ];
        script.extend(single.map(|body| packet(id, body)));
    }
    // Its own RPCs: half-open requests, the longest there are, ids used twice with other lengths.
    script.extend([1_000_000, 50_000, 1_000_000].map(|length| data(own, 0, length)));
    script.push(data(own, 999_000, 1_000_000));
    script.push(data(victim.client(), 5_000, 30_000));
    if let Body::Data(longest) = data(own, 0, 1_000).body {
        let body = Body::Data(Data { message_length: u32::MAX, incoming: u32::MAX, ..longest });
        script.push(packet(RpcId(own.0 + 1_000_000), body));
    }
    script
}

/// The packets and events of an honest client and server of `host` while a hostile peer sends
/// between any two of their packets.
fn honest_exchange(config: &Config, hostile: bool) -> (Vec<String>, Endpoint) {
    let mut host = endpoint(config.clone().max_rpcs(200).memory_budget(70_000_000));
    host.open_peer(HONEST, PeerInfo { host: 1, max_payload: 1_400 });
    let request = Request {
        peer: HONEST,
        local_port: 1_000,
        remote_port: 99,
        length: 3_000,
        deadline: START + Duration::secs(1),
        idempotent: false,
        head: 0,
        cookie: 7,
    };
    let ours = host.submit(START, Submit::Request(request)).expect("accepted").rpc;
    let (mut seen, mut id) = (Vec::new(), RpcId(0));
    for round in 0..60 {
        let now = START + Duration::micros(u64::from(round) * 10);
        let honest = match round {
            5..=24 => Some(data(RpcId(1 << 40), (round - 5) * 1_000, 20_000)),
            30..=34 => Some(data(id.server(), (round - 30) * 1_000, 5_000)),
            _ => None,
        };
        if let Some(packet) = honest {
            // All unscheduled, because windows are shared with any peer, by design.
            let Body::Data(bytes) = packet.body else { panic!("it is DATA") };
            let body = Body::Data(Data { incoming: bytes.message_length, ..bytes });
            let packet = Packet { peer: HONEST, body, ..packet };
            seen.push(format!("{:?}", matches!(host.receive(now, &packet), Receipt::Place(_))));
        }
        if hostile {
            for (n, packet) in
                hostile_script(round, [id, RpcId(1 << 40)][round as usize % 2]).iter().enumerate()
            {
                let _ = host.receive(now + Duration(n as u64), packet);
                assert!(host.credit().memory <= 70_000_000);
            }
        }
        while let Some(event) = host.event() {
            match event {
                Event::Delivered(d) if d.peer == HONEST => seen.push(format!("{} B", d.length)),
                Event::Failed { rpc, .. } | Event::Cancelled { rpc } => {
                    assert!(rpc != ours, "an honest call ended");
                }
                _ => {}
            }
        }
        let mut answers = 0;
        while let Some(sent) = host.transmit(now) {
            answers += 1;
            if sent.peer != HONEST {
                continue;
            }
            id = if matches!(sent.body, Body::Data(_)) { sent.id } else { id };
            let Body::Data(Data { span, incoming, cutoff_version, .. }) = sent.body else {
                seen.push(format!("{:?}", sent.body));
                continue;
            };
            seen.push(format!(
                "{:?}",
                (sent.priority, span.offset, span.len, incoming, cutoff_version)
            ));
        }
        assert!(answers < 150, "{answers} packets for one round");
    }
    (seen, host)
}

#[test]
fn a_hostile_peer_changes_nothing_for_the_rpcs_of_others() {
    for config in [Config::linux(), users()] {
        let (alone, _) = honest_exchange(&config, false);
        let (besieged, host) = honest_exchange(&config, true);
        assert!(alone.contains(&"20000 B".into()) && alone.contains(&"5000 B".into()), "{alone:?}");
        if config.profile == homa_proto::Profile::Linux {
            assert_eq!(alone, besieged);
        } else {
            // Measured cutoffs and shared windows concern all peers.
            assert!(besieged.contains(&"20000 B".into()) && besieged.contains(&"5000 B".into()));
        }
        assert!(host.rpcs().1 <= 200, "{:?}", host.rpcs());
    }
}
