//! Full queues below the sender. Packets that the protocol has released wait until there is space.
//!
//! Each test creates network namespaces. If the system allows none, it prints a line and passes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use homa::driver::Driver;
use homa::inline::{self, Completion, Wait};
use homa::metrics::Metrics;
use homa::proto::Rate;
use homa::{CallOptions, Config, Engine};

use crate::alone::is_alone;
use crate::common::{echo, message};
use crate::hosts::Host;

/// The real rate of the narrow link, and the rate that the client assumes, which is far too high.
const LINK: Rate = Rate::mbps(200);
const BELIEVED: Rate = Rate::gbps(100);
const CALLS: u64 = 8;
const LENGTH: usize = 200_000;
/// Calls that together take 2 s by a link of 10 Mbit/s, and the calls for which a fast link needs
/// only a part of that time. If they waited for each other, each would take half a second.
const SLOW_CALLS: u64 = 8;
const SLOW: usize = 300_000;
const FAST_CALLS: u64 = 200;
const FAST: usize = 100_000;
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// How often calls are repeated if they did not fill the queue.
const ROUNDS_MAX: u32 = 20;

/// Creates two hosts. The first is behind a link of [`LINK`] whose queue holds `limit` bytes and
/// lets `burst` bytes pass at once.
fn hosts(burst: u32, limit: u32) -> Option<[Host; 2]> {
    let (client, server) = (Host::new(), Host::new());
    if !client.connect("narrow", &server, "far") {
        return None;
    }
    client.ip("addr add 10.7.0.1/24 dev narrow");
    server.ip("addr add 10.7.0.2/24 dev far");
    let queue = format!("qdisc add dev narrow root tbf rate 200mbit burst {burst} limit {limit}");
    if !client.tc(&queue) {
        skip::test("a token bucket (tbf), and tc (apt-get install iproute2)");
        return None;
    }
    Some([client, server])
}

/// Makes the socket's buffer smaller than a batch.
fn shrink(socket: BorrowedFd<'_>) {
    socket2::SockRef::from(&socket).set_send_buffer_size(8_000).unwrap();
}

/// Nothing is asked for again because it took long. Therefore a loss would stay a loss.
fn config(link: Rate) -> Config {
    let mut config = Config::default().plaintext().link_rate(link);
    config.protocol.loss.resend_after = homa::proto::Duration::secs(60);
    config
}

/// Serves at 10.7.0.2:4000 of `host` while `client` runs. Returns the metrics of both.
fn serve(host: &Host, raw: bool, client: impl FnOnce(SocketAddr) -> Metrics) -> (Metrics, Metrics) {
    let at: SocketAddr = "10.7.0.2:4000".parse().unwrap();
    let (engine, served) = host.run(|| {
        let engine = match raw {
            true => Engine::raw_ip(at, config(LINK)).unwrap(),
            false => Engine::bind(at, config(LINK)).unwrap(),
        };
        let served = echo(engine.serve().unwrap());
        (engine, served)
    });
    let counted = client(at);
    engine.drain(Duration::from_secs(5)).unwrap();
    let there = engine.metrics();
    drop(engine);
    served.join().unwrap();
    (counted, there)
}

/// Repeats `calls` until they filled the queue, and asserts that nothing was lost or sent twice. On
/// a busy machine the queue may drain while the client waits for a processor.
fn assert_delayed_only(calls: impl Fn() -> (Metrics, Metrics)) {
    for _ in 0..ROUNDS_MAX {
        let (here, there) = calls();
        assert_eq!(here.driver.trains_refused, 0);
        for side in [&here, &there] {
            assert_eq!(side.protocol.data_resent, 0, "{:?}", side.protocol);
            assert_eq!(side.protocol.resends_sent, 0);
            assert_eq!(side.protocol.drops().map(|(_, n)| n).sum::<u64>(), 0);
        }
        if here.driver.trains_delayed > 0 {
            return;
        }
    }
    panic!("the queue was never full");
}

/// Makes calls with an engine that the thread drives with `wait`.
fn call_inline(mut engine: inline::Engine, to: SocketAddr, wait: Wait) -> Metrics {
    shrink(engine.as_fd());
    for cookie in 0..CALLS {
        engine.call(to, message(LENGTH, cookie), cookie, &CallOptions::default()).unwrap();
    }
    let mut ended = 0;
    while ended < CALLS {
        engine.poll(wait).unwrap();
        while let Some(Completion::Response { cookie, result, .. }) = engine.next() {
            assert!(result.unwrap() == message(LENGTH, cookie)[..]);
            ended += 1;
        }
    }
    engine.metrics()
}

#[test]
fn a_full_socket_delays_and_loses_nothing() {
    if !is_alone() {
        return;
    }
    let Some([client, server]) = hosts(8_000, 1_000_000) else { return };
    let from: SocketAddr = "10.7.0.1:0".parse().unwrap();
    for wait in [Wait::No, Wait::Forever] {
        assert_delayed_only(|| {
            serve(&server, false, |to| {
                client.run(|| {
                    let engine = inline::Engine::bind(from, config(BELIEVED)).unwrap();
                    call_inline(engine, to, wait)
                })
            })
        });
    }
    assert_delayed_only(|| {
        serve(&server, true, |to| {
            client.run(|| {
                let engine = inline::Engine::raw_ip(from, config(BELIEVED)).unwrap();
                call_inline(engine, to, Wait::Forever)
            })
        })
    });
    for raw in [false, true] {
        assert_delayed_only(|| {
            serve(&server, raw, |to| {
                client.run(|| {
                    let driver: Box<dyn Driver> = match raw {
                        true => <dyn Driver>::raw_ip(from, 1 << 20).unwrap(),
                        false => <dyn Driver>::udp(from, 1 << 20).unwrap(),
                    };
                    shrink(driver.first_handle());
                    let engine = Engine::with_driver(driver, config(BELIEVED)).unwrap();
                    for seed in 0..CALLS {
                        let answer = engine.client().call(to, message(LENGTH, seed)).unwrap();
                        assert!(answer == message(LENGTH, seed)[..]);
                    }
                    engine.metrics()
                })
            })
        });
    }
}

#[test]
fn a_full_queue_of_the_device_delays_and_loses_nothing() {
    if !is_alone() {
        return;
    }
    let Some([client, server]) = hosts(8_000, 8_000) else { return };
    assert_delayed_only(|| {
        serve(&server, false, |to| {
            client.run(|| {
                let from = "10.7.0.1:0".parse().unwrap();
                // If the queue splits a train itself, it may drop a part without a report.
                let driver = <dyn Driver>::udp_without_offload(from, 1 << 20).unwrap();
                let config = config(BELIEVED);
                let mut engine = inline::Engine::with_driver(driver, config).unwrap();
                for cookie in 0..CALLS {
                    engine
                        .call(to, message(LENGTH, cookie), cookie, &CallOptions::default())
                        .unwrap();
                    while !engine.poll(Wait::Forever).unwrap() {}
                    let Some(Completion::Response { result, .. }) = engine.next() else { panic!() };
                    assert!(result.unwrap() == message(LENGTH, cookie)[..]);
                }
                engine.metrics()
            })
        })
    });
}

#[test]
fn a_queue_that_is_shorter_than_a_train_takes_its_datagrams() {
    if !is_alone() {
        return;
    }
    // The burst is longer than any train, so the queue splits no train.
    let Some([client, server]) = hosts(70_000, 30_000) else { return };
    let (here, _) = serve(&server, false, |to| {
        client.run(|| {
            let from = "10.7.0.1:0".parse().unwrap();
            let mut engine = inline::Engine::bind(from, config(BELIEVED)).unwrap();
            for cookie in 0..CALLS {
                engine.call(to, message(LENGTH, cookie), cookie, &CallOptions::default()).unwrap();
            }
            for _ in 0..CALLS {
                while !engine.poll(Wait::Forever).unwrap() {}
                let Some(Completion::Response { cookie, result, .. }) = engine.next() else {
                    panic!()
                };
                assert!(result.unwrap() == message(LENGTH, cookie)[..]);
            }
            engine.metrics()
        })
    });
    assert_eq!(here.driver.trains_refused, 0, "{here:?}");
}

/// Makes calls to `fast` that must all end while calls to `slow` are in progress.
fn call_past(client: &Host, slow: SocketAddr, fast: SocketAddr, driver: fn() -> Box<dyn Driver>) {
    let call = |engine: &Engine, to, length, seed| {
        let options = CallOptions::deadline(Duration::from_secs(60));
        let answer = engine.client().call_with(to, message(length, seed), &options).unwrap();
        assert!(answer == message(length, seed)[..]);
    };
    client.run(|| {
        let engine = Engine::with_driver(driver(), Config::default().plaintext()).unwrap();
        thread::scope(|scope| {
            let engine = &engine;
            let slow: Vec<_> = (0..SLOW_CALLS)
                .map(|seed| scope.spawn(move || call(engine, slow, SLOW, seed)))
                .collect();
            // Waits until the calls are in progress.
            while engine.metrics().driver.bytes_sent < 50_000 {
                thread::sleep(Duration::from_millis(1));
            }
            (0..FAST_CALLS).for_each(|seed| call(engine, fast, FAST, seed));
            let pending = slow.iter().filter(|call| !call.is_finished()).count();
            assert!(pending > 0, "the others waited for them: {:?}", engine.metrics());
        });
        let metrics = engine.metrics();
        assert_eq!(metrics.links.len(), 2, "{metrics:?}");
        assert_eq!(metrics.driver.trains_refused, 0, "{metrics:?}");
    });
}

#[test]
fn a_slow_link_holds_back_no_other() {
    if !is_alone() {
        return;
    }
    // First a queue that refuses packets, and then a queue that accepts all.
    for limit in [8_000, 2_000_000] {
        let (client, near, far) = (Host::new(), Host::new(), Host::new());
        if !client.connect("fast", &near, "one") || !client.connect("slow", &far, "two") {
            return;
        }
        client.ip("addr add 10.7.0.1/24 dev fast");
        near.ip("addr add 10.7.0.2/24 dev one");
        client.ip("addr add 10.8.0.1/24 dev slow");
        far.ip("addr add 10.8.0.2/24 dev two");
        if !client.tc(&format!("qdisc add dev slow root tbf rate 10mbit burst 8000 limit {limit}"))
        {
            return skip::test("a token bucket (tbf), and tc (apt-get install iproute2)");
        }
        let drivers: [fn() -> Box<dyn Driver>; 2] = [
            || <dyn Driver>::udp_without_offload(ANY, 1 << 20).unwrap(),
            || <dyn Driver>::raw_ip(ANY, 1 << 20).unwrap(),
        ];
        for (raw, driver) in [false, true].into_iter().zip(drivers) {
            let serve = |host: &Host, at: &str| {
                let at = at.parse().unwrap();
                host.run(|| {
                    let engine = match raw {
                        true => Engine::raw_ip(at, Config::default()).unwrap(),
                        false => Engine::bind(at, Config::default().plaintext()).unwrap(),
                    };
                    echo(engine.serve().unwrap());
                    engine
                })
            };
            let servers = [serve(&near, "10.7.0.2:4000"), serve(&far, "10.8.0.2:4000")];
            let [fast, slow] = [servers[0].local_addr(), servers[1].local_addr()];
            call_past(&client, slow, fast, driver);
        }
    }
}
