//! Calls that wait for their server until their deadline.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use homa::metrics::{Direction, RpcOutcome};
use homa::{CallError, CallOptions, Client, Config, Engine};

use crate::common::{block_on, echo, engine};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

fn options() -> CallOptions {
    CallOptions::deadline(GIVE_UP).wait_for_ready()
}

/// An address at which nothing listens.
fn unused() -> SocketAddr {
    engine("127.0.0.1", Config::default()).local_addr()
}

/// How often a client was told that no server is there.
fn refusals(client: &Client) -> u64 {
    let metrics = client.engine().metrics();
    let is = |l: &&homa::metrics::Latency| {
        l.direction == Direction::Client && l.outcome == RpcOutcome::Unreachable
    };
    metrics.latencies.iter().find(is).map_or(0, |latency| latency.times.count())
}

/// Waits until it was told so more often.
fn refused(client: &Client, more: u64) {
    let before = refusals(client);
    while refusals(client) < before + more {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a server at the address once the client has looked for it, and counts what it executes.
fn answers(to: SocketAddr, client: &Client) -> (Engine, thread::JoinHandle<usize>) {
    refused(client, 3);
    let server = Engine::bind(to, Config::default()).unwrap();
    let serving = echo(server.serve().unwrap());
    (server, serving)
}

#[test]
fn blocking_calls_and_futures_wait_for_a_server() {
    let (to, client) = (unused(), Client::new().unwrap());
    let plain = CallOptions::deadline(GIVE_UP);
    assert_eq!(client.call_with(to, "now", &plain), Err(CallError::PortUnreachable));
    let blocks = {
        let client = client.clone();
        thread::spawn(move || client.call_with(to, "blocks", &options()))
    };
    let awaits = {
        let client = client.clone();
        thread::spawn(move || block_on(client.call_async_with(to, "awaits", &options())))
    };
    let (server, serving) = answers(to, &client);
    assert_eq!(blocks.join().unwrap().unwrap(), *b"blocks");
    assert_eq!(awaits.join().unwrap().unwrap(), *b"awaits");
    server.drain(GIVE_UP).unwrap();
    assert_eq!(serving.join().unwrap(), 2, "each is executed once");
}

#[cfg(feature = "tokio")]
#[test]
fn a_runtime_that_drives_waits_for_a_server() {
    let to = unused();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new().unwrap();
    let outside = client.clone();
    let opens = thread::spawn(move || answers(to, &outside));
    runtime.block_on(async {
        client.engine().drive_on_tokio().unwrap();
        let calls: Vec<_> =
            (0..20u8).map(|n| tokio::spawn(client.call_async_with(to, [n], &options()))).collect();
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap()[..], [n]);
        }
    });
    let (server, serving) = opens.join().unwrap();
    server.drain(GIVE_UP).unwrap();
    assert_eq!(serving.join().unwrap(), 20);
}

#[test]
fn waiting_ends_with_the_deadline_the_future_or_the_engine() {
    let (to, client) = (unused(), Client::new().unwrap());
    let short = CallOptions::deadline(Duration::from_millis(40)).wait_for_ready();
    let ends =
        [client.call_with(to, "x", &short), block_on(client.call_async_with(to, "x", &short))];
    assert_eq!(ends, [Err(CallError::PortUnreachable), Err(CallError::PortUnreachable)]);
    let waiting = client.clone();
    let waits = thread::spawn(move || block_on(waiting.call_async_with(to, "x", &options())));
    refused(&client, 2);
    client.engine().drain(GIVE_UP).unwrap();
    assert_eq!(waits.join().unwrap(), Err(CallError::ShuttingDown));
}
