//! The time that a client waits travels with its request. A server sees it, drops requests that no
//! client waits for, learns which clients gave up, and passes the remaining time on to the calls
//! that it makes itself.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa::inline::{self, Completion, Wait};
use homa::{CallError, CallOptions, Client, Config, Server, TraceContext};
use tokio::time::timeout;

use crate::common::message;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn server() -> (Server, SocketAddr) {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = server.local_addr();
    (server, at)
}

fn trace() -> TraceContext {
    TRACE.parse().unwrap()
}

/// Asserts that a request's time ends at most `at_most` from now, and not much earlier.
fn assert_left(left: Option<Duration>, at_most: Duration) {
    let left = left.expect("the client said how long it waits");
    assert!(left <= at_most && left + GIVE_UP / 2 > at_most, "{left:?} of {at_most:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_any_length_bring_their_deadline_and_trace() {
    let (server, at) = server();
    let client = Client::new().unwrap();
    // Lengths around one packet, and around the unscheduled bytes.
    let lengths = [1, 599, 600, 601, 1361, 1362, 1363, 1391, 1392, 1393, 1399, 1400, 1401, 2800];
    for length in lengths.into_iter().chain([58_799, 58_800, 58_801, 60_000, 300_000]) {
        let request = message(length, 1);
        for traced in [false, true] {
            let deadline = Duration::from_secs(100);
            let options = CallOptions::deadline(deadline);
            let options = if traced { options.trace(trace()) } else { options };
            let call = client.call_async_with(at, request.clone(), &options);
            let arrived = server.accept_async().await.unwrap();
            assert!(arrived[..] == request, "{length}");
            assert_left(arrived.remaining(), deadline);
            let deadline_at = arrived.deadline().unwrap();
            assert!(deadline_at <= Instant::now() + deadline);
            assert_eq!(arrived.trace_context(), traced.then(trace), "{length}");
            arrived.reply("ok").unwrap();
            assert_eq!(&call.await.unwrap()[..], b"ok");
        }
    }
    // A deadline longer than any wait is no deadline.
    let options = CallOptions::deadline(Duration::MAX);
    let call = client.call_async_with(at, "whenever", &options);
    let arrived = server.accept_async().await.unwrap();
    assert_eq!((arrived.deadline(), arrived.remaining()), (None, None));
    arrived.reply("ok").unwrap();
    call.await.unwrap();
    assert_eq!(client.engine().metrics().protocol.data_resent, 0);
}

#[test]
fn requests_in_one_datagram_keep_their_deadlines_and_traces() {
    let open = || inline::Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let (mut client, mut server) = (open(), open());
    server.listen().unwrap();
    let to = server.local_addr();
    let mut next = 0;
    // The first call makes the client known to the server.
    for batch in [1, 40, 40] {
        let sent = client.metrics().driver.datagrams_sent;
        for n in next..next + batch {
            let options = CallOptions::deadline(Duration::from_secs(1000 + 10 * n));
            let step = trace().child(n + 1);
            let options = if batch == 40 && next > 1 { options.trace(step) } else { options };
            client.call(to, n.to_be_bytes(), n, &options).unwrap();
        }
        let (mut served, begun) = (0, Instant::now());
        let mut ended = 0;
        while ended < batch {
            assert!(begun.elapsed() < GIVE_UP, "{served} served");
            client.poll(Wait::No).unwrap();
            if served == 0 && batch > 1 {
                let datagrams = client.metrics().driver.datagrams_sent - sent;
                assert!(datagrams < batch / 5, "{datagrams} datagrams");
            }
            server.poll(Wait::No).unwrap();
            while let Some(completion) = server.next() {
                let Completion::Request { id, bytes, deadline, trace: named, .. } = completion
                else {
                    continue;
                };
                let n = u64::from_be_bytes(bytes[..].try_into().unwrap());
                let left = deadline.unwrap().duration_since(Instant::now());
                let said = Duration::from_secs(1000 + 10 * n);
                assert!(left <= said && left + Duration::from_secs(9) > said, "{n}: {left:?}");
                let traced = next > 1;
                assert_eq!(named.as_deref().copied(), traced.then(|| trace().child(n + 1)), "{n}");
                server.reply(id, bytes).unwrap();
                served += 1;
            }
            while let Some(completion) = client.next() {
                assert!(matches!(completion, Completion::Response { result: Ok(_), .. }));
                ended += 1;
            }
        }
        next += batch;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_calls_for_a_request_shares_its_time_and_trace() {
    let (front, at) = server();
    let (back, behind) = server();
    let user = Client::new().unwrap();
    let elsewhere = Client::new().unwrap();
    let options = CallOptions::deadline(Duration::from_secs(100)).trace(trace());
    let call = user.call_async_with(at, "both", &options);
    let request = front.accept_async().await.unwrap();
    for client in [request.client(), elsewhere.on_behalf_of(&request)] {
        // Its own options allow more, and then less.
        for (asked, most) in [(1_000, 100), (50, 50)] {
            let options = CallOptions::deadline(Duration::from_secs(asked));
            let inner = client.call_async_with(behind, "part", &options);
            let part = back.accept_async().await.unwrap();
            assert_left(part.remaining(), Duration::from_secs(most));
            let context = part.trace_context().unwrap();
            // The server has no span, so no id is invented for one.
            assert_eq!(context, trace());
            part.reply("found").unwrap();
            inner.await.unwrap();
        }
    }
    request.reply("all").unwrap();
    call.await.unwrap();

    // No call is begun for a request whose client no longer waits.
    let soon = CallOptions::deadline(Duration::from_millis(300));
    let call = user.call_async_with(at, "late", &soon);
    let request = front.accept_async().await.unwrap();
    assert_eq!(call.await, Err(CallError::DeadlineExceeded));
    timeout(GIVE_UP, request.cancelled()).await.unwrap();
    tokio::time::sleep(request.remaining().unwrap()).await;
    let client = elsewhere.on_behalf_of(&request);
    let before = elsewhere.engine().metrics().protocol.requests_sent;
    let refused = client.call_async(behind, "never sent").await;
    assert_eq!(refused, Err(CallError::DeadlineExceeded));
    assert_eq!(elsewhere.engine().metrics().protocol.requests_sent, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_hears_when_its_client_gives_up() {
    let (server, at) = server();
    let client = Client::new().unwrap();
    let long = CallOptions::deadline(Duration::from_secs(1_000));
    let call = client.call_async_with(at, "work", &long);
    let request = server.accept_async().await.unwrap();
    // Nothing happens while the client waits, and the future can be dropped.
    assert!(timeout(Duration::from_millis(50), request.cancelled()).await.is_err());
    assert!(!request.is_cancelled());
    let gives_up = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(call);
    });
    timeout(GIVE_UP, request.cancelled()).await.expect("the client cancelled");
    assert!(request.is_cancelled());
    gives_up.await.unwrap();
    // The request stays cancelled.
    timeout(GIVE_UP, request.cancelled()).await.unwrap();
}
