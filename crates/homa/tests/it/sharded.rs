//! Several engines at one address, over real sockets. Each peer stays with one of them, for calls
//! in both directions, and together they keep the limits of one engine.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homa::proto::GrantWindow;
use homa::{
    CallError, CallOptions, Client, Config, DrainTimeout, Engine, OpenError, Sharded, inline,
};
use tokio::time::timeout;

use crate::common::{echo, engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Long enough to notice an event that must not happen.
const A_WHILE: Duration = Duration::from_millis(50);
const LOCAL: [&str; 2] = ["127.0.0.1", "::1"];
const SHARDS: usize = 4;

/// Opens shards at IPv4 and IPv6, each with a part of the limits in `config`.
fn everywhere(config: Config) -> Sharded {
    Engine::sharded("[::]:0".parse().unwrap(), SHARDS, config.plaintext()).unwrap()
}

/// Returns their address as a client with address `ip` reaches it.
fn reached(sharded: &Sharded, ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), sharded.local_addr().port())
}

/// Runs an echo server at every shard.
fn serve(sharded: &Sharded) -> Vec<JoinHandle<usize>> {
    sharded.serve().unwrap().into_iter().map(echo).collect()
}

/// Opens ordinary servers, each at its own port.
fn ordinary(count: usize) -> (Vec<Engine>, Vec<SocketAddr>) {
    let open = |n| engine(LOCAL[n % 2], Config::default());
    let engines: Vec<_> = (0..count).map(open).collect();
    engines.iter().for_each(|engine| drop(echo(engine.serve().unwrap())));
    let at = engines.iter().map(Engine::local_addr).collect();
    (engines, at)
}

/// Checks that for each of `peers` peers one shard has all the `rpcs` RPCs, and that no shard has
/// all peers. Metrics list the busiest peers of a shard, at most 16.
fn each_with_one_shard(sharded: &Sharded, peers: usize, rpcs: u64) {
    let shards: Vec<_> = sharded.engines().map(|engine| engine.metrics().peers).collect();
    assert!(shards.iter().all(|shard| shard.len() < peers), "{shards:?}");
    let all: Vec<_> = shards.iter().flatten().collect();
    assert!(all.len() == peers && all.iter().all(|peer| peer.rpcs == rpcs), "{shards:?}");
}

/// Echoes messages of several lengths concurrently. One has a megabyte.
fn exchange(client: &Client, to: SocketAddr, seed: u64) {
    thread::scope(|scope| {
        for length in [1, 100, 10_000, 1_000_000] {
            scope.spawn(move || {
                let request = message(length, seed);
                assert!(client.call(to, request.clone()).unwrap() == request[..], "{to}, {seed}");
            });
        }
    });
}

#[test]
fn every_client_stays_with_one_shard() {
    let sharded = everywhere(Config::default());
    let servers = serve(&sharded);
    let clients: Vec<_> = (0..24).map(|n| engine(LOCAL[n % 2], Config::default())).collect();
    for round in 0..3 {
        for (n, client) in clients.iter().enumerate() {
            exchange(&client.client(), reached(&sharded, LOCAL[n % 2]), round << 32 | n as u64);
        }
    }
    each_with_one_shard(&sharded, 24, 12);
    let metrics = sharded.metrics();
    assert_eq!(metrics.protocol.requests_delivered, 24 * 3 * 4);
    assert_eq!(metrics.driver.trains_misdirected, 0);
    assert_eq!(metrics.latencies.iter().map(|of| of.times.count()).sum::<u64>(), 24 * 3 * 4);
    assert_eq!((metrics.peers.len(), metrics.peers[0].rpcs), (16, 12));
    let alarming = metrics.protocol.drops().filter(|(reason, n)| !reason.is_ordinary() && *n > 0);
    assert_eq!(alarming.count(), 0, "{:?}", metrics.protocol);
    sharded.drain(GIVE_UP).unwrap();
    let served = servers.into_iter().map(|server| server.join().unwrap());
    assert_eq!(served.sum::<usize>(), 24 * 3 * 4);
}

#[test]
fn a_call_leaves_from_the_shard_to_which_its_answer_comes() {
    let sharded = everywhere(Config::default());
    let (_engines, servers) = ordinary(16);
    let client = sharded.client();
    (0..2).for_each(|round| servers.iter().for_each(|to| exchange(&client, *to, round)));
    each_with_one_shard(&sharded, 16, 8);
    // A client of one engine is a client of all.
    for engine in sharded.engines() {
        servers
            .iter()
            .for_each(|to| assert_eq!(engine.client().call(*to, "any").unwrap(), *b"any"));
    }
    each_with_one_shard(&sharded, 16, 8 + SHARDS as u64);
}

#[test]
fn shards_call_shards_and_servers_call_on_behalf_of_requests() {
    let [near, far] = [everywhere(Config::default()), everywhere(Config::default())];
    let servers = serve(&far);
    let (_engines, others) = ordinary(8);
    for server in near.serve().unwrap() {
        let (others, far) = (others.clone(), reached(&far, "::1"));
        thread::spawn(move || {
            while let Some(mut request) = server.accept() {
                let (client, bytes) = (request.client(), request.take_bytes().into_vec());
                let calls = others.iter().chain([&far]).map(|to| client.call(*to, bytes.clone()));
                let all = calls.filter(|response| response.as_deref() == Ok(&bytes)).count();
                let _ = request.reply(all.to_string());
            }
        });
    }
    for ip in LOCAL {
        exchange(&near.client(), reached(&far, ip), 7);
        exchange(&far.client(), reached(&far, ip), 8);
        let answer = far.client().call(reached(&near, ip), message(50_000, 1)).unwrap();
        assert_eq!(answer, *b"9", "servers that were asked for {ip}");
    }
    far.drain(GIVE_UP).unwrap();
    assert!(servers.into_iter().map(|server| server.join().unwrap()).sum::<usize>() > 16);
}

#[test]
fn a_closed_port_is_reported_at_once_to_any_shard() {
    let sharded = everywhere(Config::default());
    // The ports are outside of the range from which the system chooses ports.
    for n in 1..17 {
        let to = SocketAddr::new(LOCAL[n % 2].parse().unwrap(), n as u16);
        let options = CallOptions::deadline(GIVE_UP);
        let refused = sharded.client().call_with(to, "anybody?", &options);
        assert_eq!(refused, Err(CallError::PortUnreachable), "{to}");
    }
}

#[test]
fn no_engine_joins_an_address_that_is_in_use() {
    let first = everywhere(Config::default());
    let alone = engine("127.0.0.1", Config::default());
    for at in [first.local_addr(), alone.local_addr()] {
        for second in [
            Engine::bind(at, Config::default().plaintext()).map(drop),
            Engine::sharded(at, 2, Config::default().plaintext()).map(drop),
        ] {
            let error = second.unwrap_err();
            assert!(matches!(error, OpenError::InUse { at: taken } if taken == at), "{error:?}");
            assert!(error.to_string().contains("`Engine::sharded`"), "{error}");
        }
    }
    let at = first.local_addr();
    drop(first);
    Engine::sharded(at, 2, Config::default().plaintext()).expect("the address is free again");
}

#[test]
fn servers_are_opened_at_all_shards_or_at_one_without() {
    let sharded = everywhere(Config::default());
    let mut servers = sharded.serve().unwrap();
    drop(servers.remove(0));
    let error = sharded.serve().unwrap_err();
    assert!(matches!(error, OpenError::Served { shard: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("call `Engine::serve` on the shards"), "{error}");
    servers.push(sharded.engines().next().unwrap().serve().unwrap());
    servers.into_iter().for_each(|server| drop(echo(server)));
    for n in 0..16 {
        let client = engine("127.0.0.1", Config::default()).client();
        exchange(&client, reached(&sharded, "127.0.0.1"), n);
    }
    let other = everywhere(Config::default());
    drop(other.serve().unwrap());
    assert_eq!(other.serve().expect("no shard has a server").len(), SHARDS);
}

#[test]
fn a_drain_finishes_the_requests_of_all_shards() {
    let sharded = everywhere(Config::default());
    let servers = sharded.serve().unwrap();
    let clients: Vec<_> = (0..12).map(|_| engine("127.0.0.1", Config::default())).collect();
    let to = reached(&sharded, "127.0.0.1");
    let calls: Vec<_> = clients.iter().map(|c| c.client().call_async(to, "long")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut requests = Vec::new();
    runtime.block_on(async {
        while requests.len() < 12 {
            for server in &servers {
                let request = timeout(Duration::from_millis(1), server.accept_async()).await;
                requests.extend(request.ok().flatten());
            }
        }
    });
    let unfinished = sharded.drain(Duration::ZERO);
    assert_eq!(unfinished, Err(DrainTimeout { calls: 0, requests: 12 }));
    let late = engine("127.0.0.1", Config::default());
    assert_eq!(late.client().call(to, "late"), Err(CallError::PortUnreachable));
    assert_eq!(sharded.client().call(to, "late"), Err(CallError::ShuttingDown));
    let draining = {
        let sharded = sharded.clone();
        thread::spawn(move || sharded.drain(GIVE_UP))
    };
    requests.into_iter().for_each(|request| request.reply("done").unwrap());
    calls.into_iter().for_each(|call| assert_eq!(runtime.block_on(call).unwrap(), *b"done"));
    assert_eq!(draining.join().unwrap(), Ok(()));
    assert!(servers.iter().all(|server| server.accept().is_none()));
}

#[tokio::test]
async fn each_shard_has_its_part_of_the_limits() {
    let protocol = Config::default().protocol.max_rpcs(2 * SHARDS as u32).max_message(1 << 20);
    let config = Config::default().protocol(protocol).send_memory((SHARDS as u64) << 20);
    let sharded = everywhere(config.max_peers(SHARDS as u32));
    let silent = engine("127.0.0.1", Config::default());
    let server = silent.serve().unwrap();
    let (client, to) = (sharded.client(), silent.local_addr());
    assert_eq!(client.ready().await, Ok(()));
    let call = client.call_async(to, vec![1; 700_000]);
    let more = client.call_async(to, vec![1; 700_000]).await;
    assert!(matches!(more, Err(CallError::SendMemoryFull { held: 700_000 })), "{more:?}");
    let second = client.call_async(to, "second");
    assert_eq!(client.call_async(to, "third").await, Err(CallError::TooManyCalls { max: 2 }));
    // The shard of the next call is unknown, and one shard is full. The others are not.
    assert!(timeout(A_WHILE, client.ready_for(1)).await.is_err());
    let open = |n: usize| engine(LOCAL[n % 2], Config::default()).serve().unwrap();
    let others: Vec<_> = (0..32).map(open).collect();
    let full = |error: &CallError| {
        let of_one = [CallError::TooManyPeers { max: 1 }, CallError::TooManyCalls { max: 2 }];
        of_one.contains(error)
    };
    let mut held = Vec::new();
    for other in &others {
        let mut call = client.call_async(other.local_addr(), "peer");
        match timeout(Duration::ZERO, &mut call).await {
            Err(_) => held.push(call),
            Ok(refused) => assert!(full(refused.as_ref().unwrap_err()), "{refused:?}"),
        }
    }
    assert!((1..SHARDS).contains(&held.len()), "one peer each: {}", held.len());
    for _ in 0..2 {
        server.accept().unwrap().reply("done").unwrap();
    }
    assert_eq!(call.await.unwrap(), *b"done");
    assert_eq!(second.await.unwrap(), *b"done");
    drop(held);
    assert_eq!(timeout(GIVE_UP, client.ready_for(1)).await, Ok(Ok(())));
}

#[test]
fn an_inline_shard_only_calls_peers_that_it_hears() {
    let (_engines, servers) = ordinary(8);
    let at = "[::]:0".parse().unwrap();
    let mut shards = inline::Engine::sharded(at, SHARDS, Config::default().plaintext()).unwrap();
    let options = CallOptions::default();
    for &to in &servers {
        let mut heard = 0;
        for shard in &mut shards {
            let hears = shard.hears(to);
            heard += usize::from(hears);
            match shard.call(to, "ping", 0, &options) {
                Ok(_) => assert!(hears),
                refused => assert!(!hears && refused == Err(CallError::OtherShard { to })),
            }
        }
        assert_eq!(heard, 1, "{to}");
    }
    let mut answers = 0;
    while answers < servers.len() {
        for shard in &mut shards {
            shard.poll(inline::Wait::No).unwrap();
            while let Some(completion) = shard.next() {
                let inline::Completion::Response { result, .. } = completion else { continue };
                assert_eq!(result.unwrap(), *b"ping");
                answers += 1;
            }
        }
    }
}

#[test]
fn the_number_of_shards_is_limited_by_the_limits() {
    let at = "127.0.0.1:0".parse().unwrap();
    let refused = |shards, config| match Engine::sharded(at, shards, config) {
        Err(error @ OpenError::Shards { most, .. }) => {
            assert!(error.to_string().contains(&format!("choose 1 to {most}")), "{error}");
            most
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(0, Config::default()), 64, "16 MiB messages in 1 GiB");
    assert_eq!(refused(257, Config::default().send_memory(1 << 40)), 256);
    let narrow = Config::default().max_peers(3);
    assert_eq!(refused(4, narrow.clone()), 3);
    assert_eq!(Engine::sharded(at, 3, narrow.clone()).unwrap().engines().len(), 3);
    let protocol = Config::default().protocol;
    let little = Config::default().protocol(protocol.clone().memory_budget(5 * 8 * 1500));
    assert_eq!(refused(6, little.clone()), 5);
    let window = GrantWindow::RttBytesShared { max_incoming: 4500 };
    let slow = Config::default().protocol(protocol.window(window));
    assert_eq!(refused(4, slow.clone()), 3);
    // If not all shards are possible, fewer are opened.
    for (shards, config) in [(5, little), (3, slow)] {
        let sharded = Engine::sharded(at, shards, config).unwrap();
        drop(serve(&sharded));
        for n in 0..10 {
            let client = engine("127.0.0.1", Config::default()).client();
            let request = message(2000, n);
            assert!(client.call(sharded.local_addr(), request.clone()).unwrap() == request[..]);
        }
    }
    // One shard is an ordinary engine.
    let one = Engine::sharded(at, 1, narrow).unwrap();
    let servers = serve(&one);
    let client = engine("127.0.0.1", Config::default()).client();
    exchange(&client, one.local_addr(), 1);
    exchange(&one.client(), one.local_addr(), 2);
    one.drain(GIVE_UP).unwrap();
    assert_eq!(servers.into_iter().map(|server| server.join().unwrap()).sum::<usize>(), 8);
}
