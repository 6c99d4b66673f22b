//! A server reads requests while they arrive: blocking and with tasks, over sockets and with loss,
//! with and without encryption. They run once, however they end, and a slow reader bounds memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::{CallError, CallOptions, Config, Engine, Keys, Request, RequestError, Server};
use tokio::time::timeout;

use crate::common::{engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);
const WINDOW: usize = 256 << 10;
const LONG: usize = 4 << 20;

/// A client and a server that reads early, over loopback.
fn ends(config: fn() -> Config) -> (Engine, Server) {
    let (client, server) = (engine("127.0.0.1", config()), engine("127.0.0.1", config()));
    (client, server.serve().unwrap().early(WINDOW))
}

/// The same over a network that loses and repeats packets.
fn lossy(seed: u64) -> (Engine, Server) {
    let network = MemoryNetwork::new(seed, NetworkFaults::NONE.lost(20_000).duplicated(20_000));
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    (open("10.0.0.1:0"), open("10.0.0.2:0").serve().unwrap().early(WINDOW))
}

/// All bytes of a request, and in how many pieces they came.
fn read(request: &mut Request) -> Result<(Vec<u8>, usize), RequestError> {
    let (mut bytes, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = request.arrived()? {
        assert!(!piece.is_empty());
        bytes.extend_from_slice(&piece);
        pieces += 1;
    }
    Ok((bytes, pieces))
}

/// Answers one request after the other with its bytes.
fn echo_early(server: Server) {
    while let Some(mut request) = server.accept() {
        let length = request.total_len();
        let (bytes, _) = read(&mut request).unwrap();
        assert_eq!(bytes.len(), length);
        request.reply(bytes).unwrap();
    }
}

#[test]
fn requests_of_any_length_arrive_in_order() {
    let keys = || Config::default().keys(Keys::cluster([1; 32]).unwrap());
    for (client, server) in [ends(Config::default), ends(keys), lossy(1), lossy(2)] {
        let to = server.local_addr();
        let serving = server.clone();
        let served = thread::spawn(move || echo_early(serving));
        for length in [0, 1, 1_300, 1_500, 10_000, 100_000, 1_000_000, LONG] {
            let sent = message(length, length as u64);
            let got = client.client().call(to, sent.clone()).unwrap();
            assert!(got[..] == sent, "{length} bytes");
        }
        server.engine().drain(GIVE_UP).unwrap();
        served.join().unwrap();
    }
}

/// A client that sends the first megabyte of a request and waits for more grants, and the request.
fn half_sent(server: &Server, client: &Engine) -> (homa::Call, Request) {
    let call = client.client().call_async(server.local_addr(), message(LONG, 3));
    let mut request = server.accept().unwrap();
    assert_eq!((request.total_len(), request.len()), (LONG, 0));
    let mut read = 0;
    while read < LONG / 4 {
        read += request.arrived().unwrap().expect("more to come").len();
    }
    (call, request)
}

#[test]
fn a_slow_reader_bounds_the_memory_of_a_long_request() {
    const LENGTH: usize = 16 << 20;
    let (client, server) = ends(Config::default);
    let to = server.local_addr();
    let call = thread::spawn(move || client.client().call(to, message(LENGTH, 7)).map(|_| ()));
    let mut request = server.accept().unwrap();
    let (mut most, mut read, whole) = (0, 0, message(LENGTH, 7));
    while let Some(piece) = request.arrived().unwrap() {
        // It works on 64 KB at a time, while more could come.
        for part in piece.chunks(64 << 10) {
            thread::sleep(Duration::from_micros(200));
            most = most.max(server.engine().metrics().engine.receive_memory_bytes);
            assert!(whole[read..].starts_with(part));
            read += part.len();
        }
    }
    assert_eq!(read, LENGTH);
    assert!(most <= 2 * WINDOW as u64, "{most} bytes were held");
    request.reply("thanks").unwrap();
    call.join().unwrap().unwrap();
    assert_eq!(server.engine().metrics().engine.receive_memory_bytes, 0);
}

#[test]
fn a_reader_that_stands_still_holds_up_nobody_else() {
    let (client, server) = ends(Config::default);
    let (call, request) = half_sent(&server, &client);
    let serving = server.clone();
    thread::spawn(move || echo_early(serving));
    for n in 0..20 {
        let sent = message(300_000, n);
        assert!(client.client().call(server.local_addr(), sent.clone()).unwrap()[..] == sent);
    }
    drop((call, request));
}

#[test]
fn a_cancelled_call_ends_its_reader() {
    for (client, server) in [ends(Config::default), lossy(3)] {
        let (call, mut request) = half_sent(&server, &client);
        drop(call);
        assert_eq!(read(&mut request), Err(RequestError::Gone));
        assert!(request.is_cancelled());
        assert_eq!(request.arrived(), Err(RequestError::Gone), "also later");
    }
}

#[test]
fn a_dropped_request_ends_its_call_and_runs_once() {
    for (client, server) in [ends(Config::default), lossy(4)] {
        let (call, request) = half_sent(&server, &client);
        drop(request);
        assert_eq!(block_on(call).unwrap_err(), CallError::Abandoned);
        server.drain(GIVE_UP).unwrap();
        assert!(server.accept().is_none(), "the request came again");
    }
}

#[test]
fn a_deadline_in_the_middle_ends_both() {
    let (client, server) = ends(Config::default);
    let options = CallOptions::deadline(Duration::from_millis(100));
    let call = client.client().call_async_with(server.local_addr(), message(LONG, 1), &options);
    let mut request = server.accept().unwrap();
    request.arrived().unwrap().expect("its first bytes");
    // It does not read until the client has given up.
    assert_eq!(block_on(call).unwrap_err(), CallError::DeadlineExceeded);
    let error = read(&mut request).unwrap_err();
    assert!(matches!(error, RequestError::Gone | RequestError::DeadlineExceeded), "{error}");
}

#[test]
fn a_request_may_be_answered_before_it_is_whole() {
    for (client, server) in [ends(Config::default), lossy(5)] {
        let (call, request) = half_sent(&server, &client);
        request.reply(message(200_000, 9)).unwrap();
        assert!(block_on(call).unwrap()[..] == message(200_000, 9));
        assert_eq!(server.engine().metrics().engine.receive_memory_bytes, 0);
    }
}

#[test]
fn a_server_that_drains_finishes_what_it_began() {
    let (client, server) = ends(Config::default);
    let (call, mut request) = half_sent(&server, &client);
    let draining = server.clone();
    let drained = thread::spawn(move || draining.drain(GIVE_UP));
    assert!(server.accept().is_none());
    // This does not open its port again.
    let server = server.early(WINDOW);
    let late = client.client().call(server.local_addr(), "one more");
    assert_eq!(late, Err(CallError::PortUnreachable));
    let (rest, _) = read(&mut request).unwrap();
    assert!(message(LONG, 3).ends_with(&rest));
    request.reply("done").unwrap();
    assert_eq!(block_on(call).unwrap(), *b"done");
    drained.join().unwrap().unwrap();
}

#[test]
fn a_queued_request_becomes_whole_or_goes() {
    let (client, server) = ends(Config::default);
    let short = message(100_000, 1);
    let calls = [1, 2].map(|_| client.client().call_async(server.local_addr(), short.clone()));
    while server.engine().metrics().protocol.requests_delivered < 2 {
        thread::yield_now();
    }
    let [kept, cancelled] = calls;
    drop(cancelled);
    let mut request = server.accept().unwrap();
    assert_eq!((request.len(), request.total_len()), (short.len(), short.len()));
    assert!(read(&mut request).unwrap() == (short, 1));
    request.reply("one").unwrap();
    assert_eq!(block_on(kept).unwrap(), *b"one");
    server.drain(GIVE_UP).unwrap();
    assert!(server.accept().is_none());
}

#[test]
fn the_limit_on_requests_in_service_holds() {
    let (client, server) = ends(Config::default);
    let server = server.concurrency(1);
    let (_call, request) = half_sent(&server, &client);
    let second = client.client().call_async(server.local_addr(), message(LONG, 4));
    let accepted = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = server.accept();
            accepted.fetch_add(1, Ordering::SeqCst);
            drop(request);
        });
        thread::sleep(Duration::from_millis(20));
        assert_eq!(accepted.load(Ordering::SeqCst), 0);
        drop(request);
        waiting.join().unwrap();
    });
    assert_eq!(block_on(second).unwrap_err(), CallError::Abandoned);
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { timeout(GIVE_UP, future).await.expect("it ends") })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_read_several_requests_at_a_time() {
    let (client, server) = ends(Config::default);
    let to = server.local_addr();
    let serving = tokio::spawn(async move {
        while let Some(mut request) = server.accept_async().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while let Some(piece) = request.arrived_async().await.unwrap() {
                    bytes.extend_from_slice(&piece);
                }
                request.reply(bytes).unwrap();
            });
        }
    });
    let calls = (0..6).map(|n| {
        let client = client.client();
        tokio::spawn(async move {
            let sent = message(LONG / 4, n);
            assert!(client.call_async(to, sent.clone()).await.unwrap()[..] == sent);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        timeout(GIVE_UP, call).await.unwrap().unwrap();
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_more_learns_that_its_client_left() {
    let (client, server) = ends(Config::default);
    let call = client.client().call_async(server.local_addr(), message(LONG, 1));
    let mut request = server.accept_async().await.unwrap();
    let reading = tokio::spawn(async move {
        loop {
            match request.arrived_async().await {
                Ok(Some(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                end => return end,
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(2)).await;
    drop(call);
    let end = timeout(GIVE_UP, reading).await.unwrap().unwrap();
    assert!(matches!(end, Err(RequestError::Gone)), "{end:?}");
}
