//! Hosts that take more than their share, while an honest client makes calls.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::inline::{self, Completion, Wait};
use homa::proto::{Acks, Body, RpcId};
use homa::{CallOptions, Config, Engine, ReplyError, Server};

use super::common::{echo, engine, message};
use super::host::{Host, control, first, part};

/// Small and large calls that must succeed during an attack.
const SMALL: u64 = 300;
const LARGE: u64 = 12;
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Creates the `n`th host of an attacker.
pub fn host(n: usize, server: SocketAddr) -> Host {
    Host::at(Ipv4Addr::new(127, 9, (n / 200) as u8, (n % 200) as u8 + 1), server)
}

/// Returns the `n`th invented id, in an epoch that no client uses.
pub fn invented(n: u64) -> u64 {
    ((0x8000_0000 | (n & 0x7fff_ffff)) << 32) | ((2 * n) & 0xffff_ffff)
}

/// Makes calls while `goes_on` returns true. Returns how many of each kind succeeded. None may
/// fail.
pub fn calls(to: SocketAddr, goes_on: impl Fn(u64, u64) -> bool + Sync) -> (u64, u64) {
    let client = engine("127.0.0.1", Config::default());
    let (small, large) = (AtomicU64::new(0), AtomicU64::new(0));
    let options = CallOptions::deadline(GIVE_UP);
    let call = |length: usize, done: &AtomicU64| {
        let request = message(length, 1);
        while goes_on(small.load(Ordering::Relaxed), large.load(Ordering::Relaxed)) {
            let answer = client.client().call_with(to, request.clone(), &options);
            assert!(answer.unwrap() == request[..]);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| call(100, &small));
        scope.spawn(|| call(1_000_000, &large));
    });
    (small.into_inner(), large.into_inner())
}

/// Repeats an attack until an honest client has finished its calls.
fn beside(server: &Engine, mut attack: impl FnMut() + Send) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                attack();
            }
        });
        let went = calls(server.local_addr(), |small, large| small < SMALL || large < LARGE);
        over.store(true, Ordering::Relaxed);
        assert!(went.0 >= SMALL && went.1 >= LARGE);
    });
}

pub fn serving(config: Config) -> (Engine, thread::JoinHandle<usize>) {
    let server = engine("127.0.0.1", config);
    let echo = echo(server.serve().unwrap());
    (server, echo)
}

/// Limits the rate of packets, because loopback has no other limit.
fn pause() {
    thread::sleep(Duration::from_micros(200));
}

#[test]
fn half_open_requests_of_many_hosts_take_bounded_memory() {
    let (server, _) = serving(Config::default());
    let mut hosts: Vec<Host> = (0..150).map(|n| host(n, server.local_addr())).collect();
    let mut n = 0u64;
    let most = AtomicU64::new(0);
    beside(&server, || {
        for host in &mut hosts {
            n += 1;
            let id = invented(n);
            // Announces short messages, long messages, and messages beyond the unscheduled bytes.
            host.send(&first(id, 56, 200));
            host.send(&first(id + (1 << 32), 1, 100_000));
            host.send(&part(id + (2 << 32), 50_000, &[1], 100_000));
            pause();
        }
        most.fetch_max(server.metrics().engine.requests_in_progress, Ordering::Relaxed);
    });
    let metrics = server.metrics();
    // One eighth of `max_rpcs`, and the RPCs of the honest client.
    assert!(most.into_inner() <= 12_500 + 100);
    assert_eq!(metrics.protocol.requests_delivered, metrics.protocol.responses_sent);
    assert!(metrics.protocol.challenges_sent > 100);
}

#[test]
fn packets_about_no_rpc_from_many_hosts_add_no_peer() {
    let (server, _) = serving(Config::default());
    let mut hosts: Vec<Host> = (0..150).map(|n| host(n, server.local_addr())).collect();
    let mut n = 0u64;
    beside(&server, || {
        for host in &mut hosts {
            n += 1;
            let grant = Body::Grant { offset: 1_000_000, priority: 7 };
            for body in [grant, Body::Busy { come_back: None }, Body::Ack(Acks::default())] {
                host.send(&control(RpcId(invented(n)), body));
            }
            pause();
        }
    });
    assert_eq!(server.metrics().engine.peers, 1, "the good client");
}

#[test]
fn a_host_that_takes_no_replies_leaves_memory_for_others() {
    const LONG: usize = 4 << 20;
    let server = engine("127.0.0.1", Config::default().send_memory(64 << 20));
    let serving: Server = server.serve().unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let counted = refused.clone();
    // The first byte of a request asks for a short or a long response.
    let answering = thread::spawn(move || {
        while let Some(request) = serving.accept() {
            let (long, bytes) = (request[0] == b'L', request.to_vec());
            let reply = if long { vec![7; LONG] } else { bytes };
            if let Err(refusal) = request.reply(reply) {
                assert!(matches!(refusal.error, ReplyError::SendMemoryFull { .. }));
                assert!(long, "there is a reserve for short ones");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let begun = Instant::now();
    let delivered = || server.metrics().protocol.requests_delivered;
    let ask = |greedy: &mut [Host], rounds: u64| {
        let (before, hosts) = (delivered(), greedy.len() as u64);
        for n in 1..=rounds {
            for host in &mut *greedy {
                host.send(&part(0x8765_4321_0000_0000 + 2 * n, 0, b"L", 1));
            }
            while delivered() < before + hosts * n {
                // They prove their addresses, and acknowledge nothing.
                match n {
                    1 => greedy.iter_mut().for_each(|host| drop(host.answer())),
                    _ => greedy.iter_mut().for_each(|host| drop(host.read())),
                }
                assert!(begun.elapsed() < GIVE_UP, "{n}: {:?}", server.metrics());
            }
        }
    };
    let mut greedy: Vec<Host> = (0..3).map(|n| host(n, server.local_addr())).collect();
    ask(&mut greedy, 40);
    // About 12 of 120 fit.
    while refused.load(Ordering::Relaxed) < 100 {
        assert!(begun.elapsed() < GIVE_UP, "{refused:?} refused");
    }
    let client = engine("127.0.0.1", Config::default()).client();
    let options = CallOptions::deadline(GIVE_UP);
    let long = client.call_with(server.local_addr(), "L", &options).unwrap();
    assert!(long[..] == [7; LONG], "another host has its share");
    // Many hosts leave little to each other, but enough for short replies.
    let mut more: Vec<Host> = (3..23).map(|n| host(n, server.local_addr())).collect();
    ask(&mut more, 1);
    for n in 0..50u64 {
        let request = message(50_000, n);
        let reply = client.call_with(server.local_addr(), request.clone(), &options);
        assert!(reply.unwrap() == request[..]);
    }
    let _ = server.drain(Duration::from_millis(10));
    answering.join().unwrap();
}

#[test]
fn hosts_that_announce_much_and_fall_silent_stop_no_other() {
    let (server, _) = serving(Config::default());
    let mut hosts: Vec<Host> = (0..8).map(|n| host(n, server.local_addr())).collect();
    let mut n = 0;
    beside(&server, || {
        for host in &mut hosts {
            n += 1;
            host.send(&first(0x8765_4321_0000_0000 + 2 * n, 1, 100_000));
            host.answer();
        }
        pause();
    });
    let metrics = server.metrics().protocol;
    assert!(metrics.proofs_received >= 9, "the silent hosts are known, and the good client");
    assert!(metrics.resends_sent > 0, "and were asked");
}

#[test]
fn requests_that_an_application_leaves_come_in_turns() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = inline::Engine::bind(at, Config::default()).unwrap();
    server.listen().unwrap();
    let mut hosts = [1, 2].map(|n| host(n, server.local_addr()));
    let mut id = 0x8765_4321_0000_0000;
    let mut request = || {
        id += 2;
        first(id, 20, 20)
    };
    let mut take = |hosts: &mut [Host]| loop {
        server.poll(Wait::No).unwrap();
        hosts.iter_mut().for_each(|host| drop(host.answer()));
        if let Some(Completion::Request { id, from, .. }) = server.next() {
            server.refuse(id);
            return from.ip();
        }
    };
    for host in &mut hosts {
        host.send(&request());
    }
    let known = [take(&mut hosts), take(&mut hosts)];
    for _ in 0..300 {
        hosts[0].send(&request());
    }
    hosts[1].send(&request());
    let other = hosts[1].ip();
    assert!(known.contains(&other));
    let before = (0..).position(|_| take(&mut hosts) == other);
    assert!(before < Some(100), "{before:?} of 300 came before it");
}

#[test]
fn a_client_with_more_requests_than_are_served_delays_itself() {
    let server = engine("127.0.0.1", Config::default());
    let serving = server.serve().unwrap();
    let mut greedy = host(1, server.local_addr());
    greedy.send(&first(0x8765_4321_0000_0002, 20, 20));
    while server.metrics().protocol.requests_delivered == 0 {
        greedy.answer();
    }
    for n in 2..=500u64 {
        greedy.send(&first(0x8765_4321_0000_0000 + 2 * n, 20, 20));
        if n % 50 == 0 {
            while server.metrics().protocol.requests_delivered < n {
                thread::yield_now();
            }
        }
    }
    let client = engine("127.0.0.1", Config::default());
    let call = client.client().call_async(server.local_addr(), "the only one");
    while server.metrics().protocol.requests_delivered < 501 {
        thread::yield_now();
    }
    // The request is the last to arrive of 501, and the second to be served.
    let served: Vec<_> = (0..3).map(|_| serving.accept().unwrap()).collect();
    let place = served.iter().position(|request| **request == *b"the only one");
    assert!(place.is_some_and(|place| place < 3), "{place:?}");
    drop(call);
}

#[test]
fn complete_unaccepted_requests_leave_memory_for_others() {
    const LONG: usize = 200_000;
    let mut config = Config::default();
    config.protocol.memory_budget = 8 << 20;
    let server = engine("127.0.0.1", config);
    let stuck = server.serve().unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let serving = server.serve_at(at).unwrap();
    let working = serving.local_addr();
    let echo = echo(serving);
    let delivered = || server.metrics().protocol.requests_delivered;
    // Each of two hosts asks for more than all the memory.
    let greedy = ["127.9.0.1", "127.9.0.2"].map(|ip| engine(ip, Config::default()));
    let patient = CallOptions::deadline(3 * GIVE_UP);
    let mut calls = Vec::new();
    for n in 0..60 {
        for host in &greedy {
            let (to, bytes) = (server.local_addr(), message(LONG, n));
            calls.push(host.client().call_async_with(to, bytes, &patient));
        }
    }
    let begun = Instant::now();
    while delivered() < 2 {
        assert!(begun.elapsed() < GIVE_UP, "{:?}", server.metrics());
        thread::yield_now();
    }
    let modest = engine("127.0.0.1", Config::default()).client();
    let options = CallOptions::deadline(GIVE_UP);
    for n in 0..20 {
        let request = message(LONG, n);
        assert!(modest.call_with(working, request.clone(), &options).unwrap() == request[..]);
    }
    assert!(delivered() - 20 <= 40, "{:?}", server.metrics());
    // The greedy hosts send more as their requests are accepted.
    let echo_of_stuck = super::common::echo(stuck);
    while delivered() < 140 {
        assert!(begun.elapsed() < 3 * GIVE_UP, "{:?}", server.metrics());
        thread::yield_now();
    }
    server.drain(GIVE_UP).unwrap();
    assert_eq!((echo.join().unwrap(), echo_of_stuck.join().unwrap()), (20, 120));
    drop(calls);
}

#[test]
fn a_client_that_waits_for_memory_is_granted_after_an_accept() {
    const SHORT: usize = 200_000;
    const LONG: usize = 3 << 20;
    let mut config = Config::default();
    config.protocol.memory_budget = 4 << 20;
    let server = engine("127.0.0.1", config);
    let serving = server.serve().unwrap();
    let client = engine("127.9.0.1", Config::default());
    let patient = CallOptions::deadline(3 * GIVE_UP);
    let call = |length| {
        let request = message(length, 1);
        client.client().call_async_with(serving.local_addr(), request, &patient)
    };
    let metrics = || server.metrics().protocol;
    let begun = Instant::now();
    // The server accepts none of these requests, so too little memory is left for the long one.
    let mut calls: Vec<_> = [SHORT; 10].map(call).into();
    while metrics().requests_delivered < 10 {
        assert!(begun.elapsed() < GIVE_UP, "{:?}", metrics());
        thread::yield_now();
    }
    calls.push(call(LONG));
    let mut before = metrics();
    loop {
        thread::sleep(Duration::from_millis(50));
        let now = metrics();
        if now.memory_refusals > 0 && now.grants_sent == before.grants_sent {
            break;
        }
        assert!(begun.elapsed() < GIVE_UP, "{now:?}");
        before = now;
    }
    // No request makes progress any more.
    let accepted: Vec<_> = (0..metrics().requests_delivered).map(|_| serving.accept()).collect();
    assert!(metrics().grants_sent > before.grants_sent, "{:?}", metrics());
    drop((accepted, calls));
}

#[test]
fn requests_that_grow_later_leave_memory_for_others() {
    const REQUESTS: u64 = 300;
    const EACH: u32 = 1_000;
    let mut config = Config::default();
    config.protocol.memory_budget = 8 << 20;
    let (server, _) = serving(config);
    let mut greedy = host(1, server.local_addr());
    let id = |n: u64| 0x8765_4321_0000_0000 + 2 * (n % REQUESTS + 1);
    greedy.send(&first(id(0), 1, 70_000));
    while server.metrics().protocol.proofs_received == 0 {
        greedy.answer();
    }
    // A message of one byte takes little memory. 55 kB of each exceed the memory.
    for part_of in 0..56 {
        let (offset, len) = if part_of == 0 { (0, 1) } else { ((part_of - 1) * EACH + 1, EACH) };
        for n in 0..REQUESTS {
            greedy.send(&part(id(n), offset, &vec![7; len as usize], 70_000));
            if n % 20 == 0 {
                pause();
            }
        }
    }
    let mut n = 0;
    beside(&server, || {
        n += 1;
        greedy.send(&part(id(n), 60_000 + (n / REQUESTS) as u32, &[7], 70_000));
        pause();
    });
}
