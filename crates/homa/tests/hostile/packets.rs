//! Any bytes may arrive at the socket. The engine must not panic, execute a request or grow, and
//! honest clients must be served.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use homa::inline::{Completion, Engine, RequestId, Wait};
use homa::proto::wire::datagram;
use homa::proto::{AckEntry, Acks, Body, DropReason, Packet, PeerId, ResendLength, RpcId};
use homa::{CallOptions, Config, Server};

use super::common::{echo, engine, message};
use super::host::{Host, control, first};

/// Opens a server that runs without a thread.
fn server(config: Config) -> Engine {
    let mut server = Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    server.listen().unwrap();
    server
}

/// Returns the next request of a client, which proves its address when it is challenged.
fn request_of(client: &mut Host, server: &mut Engine) -> RequestId {
    loop {
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, .. }) = server.next() {
            return id;
        }
        client.answer();
    }
}

/// Makes an engine receive all waiting packets. Returns the requests that it would deliver.
fn take_in(engine: &mut Engine) -> usize {
    let mut requests = 0;
    for _ in 0..64 {
        engine.poll(Wait::No).unwrap();
        while let Some(completion) = engine.next() {
            requests += usize::from(matches!(completion, Completion::Request { .. }));
        }
    }
    requests
}

#[test]
fn noise_is_counted_and_honest_clients_are_served_meanwhile() {
    let server = engine("127.0.0.1", Config::default());
    let to = server.local_addr();
    let echo = echo(server.serve().unwrap());
    let mut attacker = Host::new(to);
    let client = engine("127.0.0.1", Config::default()).client();
    for seed in 0..500 {
        attacker.send(&message(1 + seed as usize % 1400, seed));
        // A well-formed packet with one byte changed.
        let mut bent = first(2 * seed, 100, 100);
        let at = seed as usize * 7 % bent.len();
        bent[at] ^= 1 << (seed % 8);
        attacker.send(&bent);
        attacker.send(&bent[..at]);
        assert_eq!(client.call(to, "honest").unwrap(), *b"honest");
    }
    let drops: u64 = server.metrics().protocol.drops().map(|(_, count)| count).sum();
    assert!(drops > 500, "{drops} drops");
    // Half-open RPCs of the attacker may remain, so the drain can fail.
    let _ = server.drain(Duration::from_millis(10));
    assert!(echo.join().unwrap() >= 500);
}

#[test]
fn half_open_requests_are_bounded_in_number_and_memory() {
    let mut config = Config::default();
    config.protocol.max_rpcs = 100;
    config.protocol.memory_budget = 1 << 20;
    let mut server = server(config);
    // One host is silent, and the other has proven its address.
    let [mut stranger, mut known] = [(); 2].map(|()| Host::new(server.local_addr()));
    known.send(&first(2, 100, 100));
    request_of(&mut known, &mut server);
    let mut requests = 0;
    for id in 2..2000 {
        // Announces 16 MiB, sends 1 kB, and then falls silent.
        stranger.send(&first(2 * id, 1000, 16 << 20));
        known.send(&first(2 * id, 1000, 16 << 20));
        if id % 50 == 0 {
            requests += take_in(&mut server);
        }
    }
    requests += take_in(&mut server);
    assert_eq!(requests, 0, "no request was complete");
    assert!(server.in_progress().1 <= 100);
    let metrics = server.metrics().protocol;
    let reasons = [DropReason::TooManyRpcs, DropReason::TooManyOfPeer, DropReason::NoMemory];
    let refused: u64 = reasons.iter().map(|reason| metrics.dropped(*reason)).sum();
    assert!(refused >= 1000, "{refused} refused");
    assert!(
        metrics.unvalidated_requests_dropped >= 1000,
        "{}",
        metrics.unvalidated_requests_dropped
    );
}

/// Opens an engine with 100 kB for messages, a server that accepts no more requests, and a host
/// that sends some.
fn besieged() -> (homa::Engine, Server, Host) {
    let mut config = Config::default();
    config.protocol.memory_budget = 100_000;
    let server = engine("127.0.0.1", config);
    let serving = server.serve().unwrap();
    let mut attacker = Host::new(server.local_addr());
    attacker.send(&first(2, 100, 100));
    while server.metrics().protocol.requests_delivered == 0 {
        attacker.answer();
    }
    drop(serving.accept());
    (server, serving, attacker)
}

#[test]
fn a_flood_of_small_requests_waits_in_bounded_memory() {
    let (server, serving, mut attacker) = besieged();
    let before = server.metrics().driver.datagrams_received;
    for n in 1..1000 {
        attacker.send(&first(2 + 2 * n, 1000, 1000));
        while server.metrics().driver.datagrams_received < before + n {
            std::thread::yield_now();
        }
    }
    assert!(server.metrics().protocol.dropped(DropReason::NoMemory) > 800);
    // The attacker will never acknowledge.
    let _ = server.drain(Duration::from_millis(10));
    let mut held = 0;
    while let Some(request) = serving.accept() {
        held += request.len();
    }
    assert!((50_000..=120_000).contains(&held), "{held} bytes of requests were held");
}

#[test]
fn requests_cancelled_before_the_accept_leave_no_memory() {
    let (server, serving, mut attacker) = besieged();
    let before = server.metrics().driver.datagrams_received;
    for n in 1..500 {
        let id = 2 + 2 * n;
        attacker.send(&first(id, 1000, 1000));
        attacker.send(&control(RpcId(id), Body::Ack(Acks::default())));
        while server.metrics().driver.datagrams_received < before + 2 * n {
            std::thread::yield_now();
        }
    }
    let metrics = server.metrics();
    assert_eq!(metrics.protocol.dropped(DropReason::NoMemory), 0, "the queue keeps nothing");
    assert_eq!(metrics.engine.requests_in_progress, 0);
    server.drain(Duration::from_secs(5)).unwrap();
    assert!(serving.accept().is_none());
}

#[test]
fn a_batch_of_many_questions_is_answered_completely() {
    const QUESTIONS: u64 = 260;
    let mut server = server(Config::default());
    let mut attacker = Host::new(server.local_addr());
    attacker.send(&first(2, 100, 100));
    request_of(&mut attacker, &mut server);
    let before = server.metrics().driver.datagrams_received;
    let body = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let mut bytes = vec![0; 60_000];
    for datagram in 0..20 {
        let mut writer = datagram::Writer::new(&mut bytes, datagram).unwrap();
        for n in 0..QUESTIONS {
            let id = RpcId(2 * (2 + datagram * QUESTIONS + n));
            let packet =
                Packet { peer: PeerId(0), priority: 0, local_port: 1, remote_port: 2, id, body };
            writer.push(&packet).unwrap();
        }
        let len = writer.len();
        attacker.send(&bytes[..len]);
    }
    take_in(&mut server);
    let metrics = server.metrics();
    assert_eq!(metrics.driver.datagrams_received, before + 20);
    assert_eq!(metrics.protocol.answers_withheld, 0);
    assert_eq!(metrics.protocol.unknowns_sent, 20 * QUESTIONS);
}

#[test]
fn another_host_cannot_answer_for_the_server() {
    let mut client = Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let options = CallOptions::deadline(Duration::from_secs(60));
    client.call(silent.local_addr().unwrap(), "question", 7, &options).unwrap();
    client.poll(Wait::No).unwrap();
    let mut bytes = [0; 2000];
    let len = silent.recv(&mut bytes).unwrap();
    let question = datagram::decode(&bytes[..len]).unwrap();
    let id = question.packets(PeerId(0), 0).next().unwrap().unwrap().packet.id;

    let forged = first(id.server().0, 5, 5);
    Host::new(client.local_addr()).send(&forged);
    assert_eq!((take_in(&mut client), client.in_progress().0), (0, 1));
    assert_eq!(client.metrics().protocol.dropped(DropReason::WrongPeer), 1);
    // The same bytes from the right address are believed, because there is no authentication yet.
    silent.send_to(&forged, client.local_addr()).unwrap();
    take_in(&mut client);
    assert_eq!(client.in_progress().0, 0);
}

#[test]
fn every_datagram_cut_short_is_harmless() {
    let mut server = server(Config::default());
    let mut attacker = Host::new(server.local_addr());
    attacker.send(&first(4, 100, 100));
    request_of(&mut attacker, &mut server);
    let whole = first(2, 100, 100);
    let mut requests = 0;
    for len in 0..whole.len() {
        attacker.send(&whole[..len]);
        requests += take_in(&mut server);
    }
    assert_eq!(requests, 0);
    assert_eq!(server.metrics().engine.peers, 1);
}

#[test]
fn extensions_of_a_newer_peer_are_skipped_and_counted() {
    let mut server = server(Config::default());
    let mut newer = Host::new(server.local_addr());
    let mut bytes = first(2, 100, 100);
    // An extension of type 999 with three bytes. All extensions have 7 bytes.
    bytes.splice(16..16, [0x03, 0xe7, 0, 3, 1, 2, 3]);
    bytes[3] = 7;
    newer.send(&bytes);
    request_of(&mut newer, &mut server);
    assert_eq!(server.metrics().engine.unknown_extensions, 1);
    assert!(server.metrics().to_openmetrics().contains("homa_engine_unknown_extensions_total 1\n"));
}

#[test]
fn absurd_grants_and_resends_bring_no_more_than_the_message() {
    const RESPONSE: usize = 100_000;
    let mut server = server(Config::default());
    let mut attacker = Host::new(server.local_addr());
    attacker.send(&first(2, 100, 100));
    let id = request_of(&mut attacker, &mut server);
    server.reply(id, message(RESPONSE, 1)).unwrap();
    let all = u32::MAX;
    for offset in [0, 1, RESPONSE as u32 + 1, 1 << 31, all] {
        attacker.send(&control(RpcId(2), Body::Grant { offset, priority: 255 }));
        take_in(&mut server);
    }
    let sent = server.metrics().protocol.data_bytes_sent;
    assert_eq!(sent, RESPONSE as u64, "every byte once");
    let ranges = [(0, all), (all, all), (all, 1), (RESPONSE as u32, 1), (1 << 31, 1 << 31)];
    for (offset, length) in ranges {
        let length = ResendLength::Bytes(length);
        let body = Body::Resend { offset, length, priority: 255 };
        attacker.send(&control(RpcId(2), body));
        take_in(&mut server);
    }
    let again = server.metrics().protocol.data_resent;
    assert!(again <= 3 * RESPONSE as u64 / 1000, "{again} packets again");
    assert_eq!(server.metrics().engine.send_memory_bytes, RESPONSE as u64);
}

#[test]
fn packets_of_other_hosts_do_not_change_an_rpc() {
    let mut server = server(Config::default());
    let [mut victim, mut attacker] = [(); 2].map(|()| Host::new(server.local_addr()));
    victim.send(&first(2, 100, 100));
    let request = request_of(&mut victim, &mut server);
    let mut acks = Acks::default();
    acks.push(AckEntry { id: RpcId(2), server_port: server.local_addr().port() }).unwrap();
    let forged = || {
        let priority = 7;
        [
            control(RpcId(2), Body::Ack(acks)),
            control(RpcId(4), Body::Ack(acks)),
            control(
                RpcId(2),
                Body::RpcUnknown { remembered: None, no_server: false, reason: None },
            ),
            control(RpcId(2), Body::Grant { offset: u32::MAX, priority }),
            control(RpcId(2), Body::Resend { offset: 0, length: ResendLength::All, priority }),
            control(RpcId(2), Body::Busy { come_back: None }),
            first(2, 1000, 50_000),
        ]
    };
    forged().iter().for_each(|bytes| attacker.send(bytes));
    assert_eq!(take_in(&mut server), 0);
    server.reply(request, vec![5; 100_000]).unwrap();
    server.poll(Wait::No).unwrap();
    let sent = server.metrics().protocol.data_bytes_sent;
    forged().iter().for_each(|bytes| attacker.send(bytes));
    assert_eq!(take_in(&mut server), 0);
    let metrics = server.metrics();
    assert_eq!(metrics.protocol.data_bytes_sent, sent, "only the victim may grant");
    assert_eq!(metrics.engine.send_memory_bytes, 100_000, "only the victim may acknowledge");
    victim.send(&control(RpcId(2), Body::Ack(Acks::default())));
    take_in(&mut server);
    assert_eq!(server.metrics().engine.send_memory_bytes, 0);
}

#[test]
fn requests_of_a_vanished_client_are_dropped_at_every_address() {
    for at in ["127.0.0.1:0", "0.0.0.0:0"] {
        let mut server = Engine::bind(at.parse().unwrap(), Config::default().plaintext()).unwrap();
        server.listen().unwrap();
        let mut client = Host::new((Ipv4Addr::LOCALHOST, server.local_addr().port()).into());
        client.send(&first(2, 100, 100));
        client.send(&first(4, 100, 100));
        let requests = [(); 2].map(|()| request_of(&mut client, &mut server));
        drop(client);
        // The first answer reaches a closed port, and the network reports it.
        server.reply(requests[0], "hello?").unwrap();
        let cancelled = loop {
            server.poll(Wait::For(Duration::from_secs(20))).unwrap();
            if let Some(completion) = server.next() {
                break completion;
            }
        };
        assert!(
            matches!(cancelled, Completion::Cancelled { id, .. } if id == requests[1]),
            "{cancelled:?} at {at}"
        );
    }
}
