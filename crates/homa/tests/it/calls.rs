//! Calls by many threads and tasks: completion, deadlines, cancellation, back-pressure and
//! draining.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{self, Completion, Wait};
use homa::proto::Rate;
use homa::{CallError, CallOptions, Client, Config, Engine, OpenError, ReplyError, Server};

use crate::common::{block_on, echo, engine, message};

fn pair() -> (Engine, Engine) {
    (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()))
}

/// Waits until `condition` holds. A test that hangs is noticed, and a test that sleeps too briefly
/// may pass by luck.
fn eventually(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_threads_share_a_client_and_many_accept() {
    let (client, server) = pair();
    let to = server.local_addr();
    let serving = server.serve().unwrap();
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let serving = serving.clone();
            thread::spawn(move || {
                let mut served = 0;
                while let Some(mut request) = serving.accept() {
                    let bytes = request.take_bytes();
                    request.reply(bytes).unwrap();
                    served += 1;
                }
                served
            })
        })
        .collect();
    thread::scope(|scope| {
        for caller in 0..16 {
            let client = client.client();
            scope.spawn(move || {
                for i in 0..200 {
                    let request = message(1 + (i * 37 + caller * 11) % 5000, i as u64);
                    assert!(client.call(to, request.clone()).unwrap()[..] == request);
                }
            });
        }
    });
    client.drain(Duration::from_secs(5)).unwrap();
    server.drain(Duration::from_secs(5)).unwrap();
    let served: usize = servers.into_iter().map(|server| server.join().unwrap()).sum();
    assert_eq!(served, 16 * 200);
}

#[test]
fn a_thread_may_look_for_arrivals_for_ever() {
    let config = || Config::default().spin(Duration::MAX);
    let (client, server) = (engine("127.0.0.1", config()), engine("127.0.0.1", config()));
    let to = server.local_addr();
    let echo = echo(server.serve().unwrap());
    for _ in 0..3 {
        assert_eq!(client.client().call(to, "still there?").unwrap(), *b"still there?");
    }
    client.drain(Duration::from_secs(5)).unwrap();
    server.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(echo.join().unwrap(), 3);
}

#[test]
fn futures_complete_without_any_blocked_thread() {
    let (client, server) = pair();
    let to = server.local_addr();
    let serving = server.serve().unwrap();
    let server_thread = thread::spawn(move || {
        block_on(async {
            let mut served = 0;
            while let Some(mut request) = serving.accept_async().await {
                let bytes = request.take_bytes();
                request.reply(bytes).unwrap();
                served += 1;
            }
            served
        })
    });
    let client_of = client.client();
    block_on(async {
        // All calls are in flight together, and awaited in order.
        let calls: Vec<_> =
            (0..500).map(|i| client_of.call_async(to, message(100 + i, i as u64))).collect();
        for (i, call) in calls.into_iter().enumerate() {
            assert!(call.await.unwrap()[..] == message(100 + i, i as u64));
        }
    });
    server.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(server_thread.join().unwrap(), 500);
}

#[test]
fn blocked_threads_and_tasks_can_share_an_engine() {
    let (client, server) = pair();
    let to = server.local_addr();
    let echo = echo(server.serve().unwrap());
    thread::scope(|scope| {
        for tasks in [true, false, true, false] {
            let client = client.client();
            scope.spawn(move || {
                for i in 0..300 {
                    let request = message(200, i);
                    let response = match tasks {
                        true => block_on(client.call_async(to, request.clone())),
                        false => client.call(to, request.clone()),
                    };
                    assert!(response.unwrap()[..] == request);
                }
            });
        }
    });
    server.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(echo.join().unwrap(), 1200);
}

#[test]
fn a_call_without_answer_fails_at_its_deadline() {
    let (client, server) = pair();
    let serving = server.serve().unwrap();
    let options = CallOptions::deadline(Duration::from_millis(50));
    let started = Instant::now();
    let result = client.client().call_with(server.local_addr(), "anybody?", &options);
    assert_eq!(result, Err(CallError::DeadlineExceeded));
    assert!(started.elapsed() >= Duration::from_millis(50));
    drop(serving);
}

#[test]
fn a_call_to_a_closed_port_fails_long_before_its_deadline() {
    let (client, server) = pair();
    let to = server.local_addr();
    drop(server);
    assert_eq!(client.client().call(to, "anybody?"), Err(CallError::PortUnreachable));
}

#[test]
fn dropping_a_future_cancels_the_request_at_the_server() {
    let (client, server) = pair();
    let serving = server.serve().unwrap();
    let call = client.client().call_async(server.local_addr(), "a long question");
    let request = serving.accept().unwrap();
    assert!(!request.is_cancelled());
    drop(call);
    eventually(|| request.is_cancelled());
    assert_eq!(request.reply("too late").unwrap_err().error, ReplyError::Gone);
}

#[test]
fn a_request_dropped_without_an_answer_ends_the_call_at_once() {
    let mut config = Config::default();
    config.protocol.loss.resend_after = homa::proto::Duration::secs(3600);
    let (client, server) = (engine("127.0.0.1", config), engine("127.0.0.1", Config::default()));
    let serving = server.serve().unwrap();
    let to = server.local_addr();
    let call = client.client().call_async(to, "question");
    drop(serving.accept().unwrap());
    assert_eq!(block_on(call), Err(CallError::Abandoned));

    // No thread accepts this request.
    let call = client.client().call_async(to, "question");
    eventually(|| server.metrics().protocol.requests_delivered == 2);
    drop(serving);
    assert_eq!(block_on(call), Err(CallError::PortUnreachable));
}

#[test]
fn a_refused_reply_comes_back_and_can_be_repeated() {
    let config = Config::default().send_memory(1000);
    let server = engine("127.0.0.1", config);
    let serving = server.serve().unwrap();
    // A client that takes turns only when the test asks for one acknowledges nothing in between.
    let at = "127.0.0.1:0".parse().unwrap();
    let mut client = inline::Engine::bind(at, Config::default()).unwrap();
    for cookie in [0, 1] {
        let options = CallOptions::default();
        client.call(server.local_addr(), "question", cookie, &options).unwrap();
    }
    let accepting = thread::spawn(move || [0, 1].map(|_| serving.accept().unwrap()));
    // Sends calls until the server knows the client.
    while !accepting.is_finished() {
        client.poll(Wait::No).unwrap();
    }
    let [first, second] = accepting.join().unwrap();
    first.reply([1; 600]).unwrap();
    let refused = second.reply(vec![0; 1001]).unwrap_err();
    assert_eq!(refused.error, ReplyError::MessageTooLong { length: 1001, max: 1000 });
    let mut reply = refused.request.reply(vec![2; 600]);
    assert_eq!(reply.as_ref().unwrap_err().error, ReplyError::SendMemoryFull { held: 600 });
    let mut answers = Vec::new();
    while answers.len() < 2 {
        if let Err(refused) = reply {
            assert_eq!((&*refused.request, refused.response.len()), (&b"question"[..], 600));
            reply = refused.request.reply(refused.response);
        }
        client.poll(Wait::No).unwrap();
        if let Some(Completion::Response { result, .. }) = client.next() {
            answers.push(result.unwrap()[..] == [1 + answers.len() as u8; 600]);
        }
    }
    assert_eq!(answers, [true; 2]);
}

#[test]
fn a_servers_port_closes_with_its_last_clone() {
    let (client, server) = pair();
    let serving = server.serve().unwrap();
    let to = server.local_addr();
    drop(serving.clone());
    let last = serving.clone();
    drop(serving);
    let served = thread::spawn(move || last.accept().unwrap().reply("yes").unwrap());
    assert_eq!(client.client().call(to, "still there?").unwrap(), *b"yes");
    served.join().unwrap();
    server.serve().unwrap();
}

#[test]
fn messages_without_bytes_arrive_without_bytes() {
    let (client, server) = pair();
    let to = server.local_addr();
    let echoing = echo(server.serve().unwrap());
    // One of a single byte in between: it may share datagrams with the empty ones.
    for payload in [&b""[..], b"\0", b"", b""] {
        assert_eq!(client.client().call(to, payload).unwrap()[..], *payload);
    }
    let calls: Vec<_> = (0..64).map(|n| client.client().call_async(to, vec![0; n % 2])).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(block_on(call).unwrap().len(), n % 2);
    }
    let mut inline = inline::Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default());
    let inline = inline.as_mut().unwrap();
    inline.call(to, "", 7, &CallOptions::default()).unwrap();
    while !inline.poll(Wait::Forever).unwrap() {}
    let Some(Completion::Response { result, .. }) = inline.next() else { panic!() };
    assert!(result.unwrap().is_empty());
    server.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(echoing.join().unwrap(), 69);
    for side in [&client, &server] {
        assert_eq!(side.metrics().engine.send_memory_bytes, 0);
    }
}

#[test]
fn a_message_without_bytes_survives_loss() {
    let network = MemoryNetwork::new(3, NetworkFaults::NONE.lost(200_000));
    let open = |port| {
        let driver = network.driver(SocketAddr::from(([10, 0, 0, 1], port))).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (client, server) = (open(1), open(2));
    let echoing = echo(server.serve().unwrap());
    for _ in 0..100 {
        assert!(client.client().call(server.local_addr(), "").unwrap().is_empty());
    }
    server.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(echoing.join().unwrap(), 100);
}

#[test]
fn profiles_that_cannot_say_empty_refuse_it() {
    let config = || Config::default().protocol(homa::proto::Config::sigcomm18(Rate::gbps(10)));
    let (client, server) = (engine("127.0.0.1", config()), engine("127.0.0.1", config()));
    let to = server.local_addr();
    assert_eq!(client.client().call(to, ""), Err(CallError::EmptyMessage));
    let serving = server.serve().unwrap();
    let call = client.client().call_async(to, "not empty");
    let refused = serving.accept().unwrap().reply("").unwrap_err();
    assert_eq!(refused.error, ReplyError::EmptyMessage);
    refused.request.reply("nor this").unwrap();
    assert_eq!(block_on(call).unwrap(), *b"nor this");
}

#[test]
fn overlong_messages_are_refused_at_the_call() {
    let (client, server) = pair();
    let client = client.client();
    let to = server.local_addr();
    let length = (16 << 20) + 1;
    let refused = client.call(to, vec![0; length]);
    assert_eq!(refused, Err(CallError::MessageTooLong { length, max: 16 << 20 }));
    let to = "[::1]:9".parse().unwrap();
    assert!(matches!(client.call(to, "x"), Err(CallError::AddressFamily { .. })));
}

#[test]
fn a_server_at_every_address_is_reached_at_its_local_addr() {
    for any in ["0.0.0.0", "::"] {
        let server = engine(any, Config::default().plaintext());
        let serving = echo(server.serve().unwrap());
        let client = engine(any, Config::default().plaintext()).client();
        assert_eq!(client.call(server.local_addr(), "here").unwrap(), *b"here");
        server.drain(Duration::from_secs(5)).unwrap();
        assert_eq!(serving.join().unwrap(), 1);
    }
}

#[test]
fn a_call_to_no_single_host_is_refused_at_once() {
    let client = engine("::", Config::default().plaintext()).client();
    for to in ["127.0.0.1:0", "0.0.0.0:0", "224.0.0.1:9", "255.255.255.255:9", "[ff02::1]:9"] {
        let refused = client.call(to.parse().unwrap(), "x");
        assert!(matches!(refused, Err(CallError::Destination { .. })), "{to}: {refused:?}");
    }
}

#[test]
fn back_pressure_is_a_typed_result() {
    let mut config = Config::default();
    config.protocol.max_rpcs = 10;
    let client = engine("127.0.0.1", config).client();
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = server.local_addr();
    let calls: Vec<_> = (0..10).map(|_| client.call_async(to, "wait")).collect();
    assert_eq!(client.call(to, "one more"), Err(CallError::TooManyCalls { max: 10 }));
    drop(calls);

    let config = Config::default().send_memory(1000);
    let client = engine("127.0.0.1", config).client();
    let first = client.call_async(to, vec![0; 600]);
    let second = client.call(to, vec![0; 600]);
    assert_eq!(second, Err(CallError::SendMemoryFull { held: 600 }));
    drop(first);
}

#[test]
fn draining_finishes_the_old_and_refuses_the_new() {
    let (client, server) = pair();
    let serving = server.serve().unwrap();
    let to = server.local_addr();
    let old = client.client().call_async(to, "old");
    let request = serving.accept().unwrap();
    let started = Arc::new(AtomicU32::new(0));
    let drain = {
        let (client, started) = (client.clone(), started.clone());
        thread::spawn(move || {
            started.store(1, Ordering::Release);
            client.drain(Duration::from_secs(20))
        })
    };
    let refused = || client.client().call(to, "new") == Err(CallError::ShuttingDown);
    eventually(|| started.load(Ordering::Acquire) == 1 && refused());
    request.reply("done").unwrap();
    assert_eq!(block_on(old).unwrap(), *b"done");
    assert_eq!(drain.join().unwrap(), Ok(()));
    assert_eq!(server.drain(Duration::from_secs(20)), Ok(()), "the last reply is acknowledged");
    assert!(serving.accept().is_none());
    assert!(matches!(server.serve(), Err(OpenError::ShuttingDown)));
    let elsewhere = server.serve_at("127.0.0.1:0".parse().unwrap());
    assert!(matches!(elsewhere, Err(OpenError::ShuttingDown)));
}

#[test]
fn a_drain_returns_what_is_unfinished_at_its_timeout() {
    let (client, server) = pair();
    let serving = server.serve().unwrap();
    let call = client.client().call_async(server.local_addr(), "question");
    let request = serving.accept().unwrap();
    let left = client.drain(Duration::from_millis(20)).unwrap_err();
    assert_eq!((left.calls, left.requests), (1, 0));
    drop((call, request));
}

#[test]
fn several_servers_and_clients_share_one_engine() {
    let engine = engine("127.0.0.1", Config::default());
    let first = engine.serve().unwrap();
    let second = engine.serve_at("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(engine.serve().is_err(), "one server an address");
    let (at_first, at_second) = (first.local_addr(), second.local_addr());
    let threads = [echo(first), echo(second)];
    for to in [at_first, at_second] {
        assert_eq!(engine.client().call(to, "self").unwrap(), *b"self");
        assert_eq!(Client::new().unwrap().call(to, "other").unwrap(), *b"other");
    }
    engine.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [2, 2]);
}

#[test]
fn an_idle_engine_ends_with_its_last_handle() {
    let (client, server) = pair();
    let to = server.local_addr();
    let serving = server.serve().unwrap();
    drop((client, server));
    drop(serving);
    // The port is free again once the engine is dropped.
    drop(Server::bind(to).unwrap());
}

#[test]
fn an_ipv4_address_written_as_ipv6_is_the_same_server() {
    let (client, server) = pair();
    let serving = echo(server.serve().unwrap());
    let IpAddr::V4(ip) = server.local_addr().ip() else { panic!("127.0.0.1") };
    let mapped = SocketAddr::new(ip.to_ipv6_mapped().into(), server.local_addr().port());
    assert_eq!(client.client().call(mapped, "here").unwrap(), *b"here");
    server.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(serving.join().unwrap(), 1);
}

#[test]
fn a_server_at_every_address_answers_from_the_called_one() {
    for (any, called) in [("0.0.0.0", ["127.0.0.1", "127.0.0.2"]), ("::", ["127.0.0.3", "::1"])] {
        let server = engine(any, Config::default().plaintext());
        let port = server.local_addr().port();
        let echo = echo(server.serve().unwrap());
        let client = Client::new().unwrap();
        for ip in called {
            let to = (ip.parse::<IpAddr>().unwrap(), port).into();
            assert_eq!(client.call(to, ip).unwrap(), *ip.as_bytes(), "{ip} of {any}");
        }
        server.drain(Duration::from_secs(5)).unwrap();
        assert_eq!(echo.join().unwrap(), 2);
    }
}

#[test]
fn the_longest_times_mean_no_limit_and_do_not_panic() {
    let (client, server) = pair();
    let to = server.local_addr();
    let echo = echo(server.serve().unwrap());
    let options = CallOptions::deadline(Duration::MAX);
    assert_eq!(client.client().call_with(to, "for ever", &options).unwrap(), *b"for ever");
    client.drain(Duration::MAX).unwrap();
    server.drain(Duration::MAX).unwrap();
    assert_eq!(echo.join().unwrap(), 1);
}
