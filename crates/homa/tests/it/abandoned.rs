//! Requests that end without a usable answer: too long, dropped, or their handler panics. The
//! client is told which it was, and does not call again.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{self, Completion, Wait};
use homa::socket::{CallFailure, SendOptions, SocketEvent, Wanted};
use homa::{CallError, CallOptions, Config, Engine, Request, Server, Socket};

use crate::common::engine;

const LONG: usize = 17 << 20;
const TOO_LONG: CallError = CallError::ResponseTooLong { length: LONG as u32, max: 16 << 20 };

/// A deadline that no call of these tests may need.
fn patient() -> CallOptions {
    CallOptions::deadline(Duration::from_secs(600))
}

/// Passes requests to a handler, which may panic, until the server drains. Returns how many.
fn serve(server: Server, handler: fn(Request)) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut served = 0;
        while let Some(request) = server.accept() {
            served += 1;
            let _ = catch_unwind(AssertUnwindSafe(|| handler(request)));
        }
        served
    })
}

#[test]
fn a_client_learns_that_the_response_was_too_long() {
    let network = MemoryNetwork::new(5, NetworkFaults::NONE.lost(200_000));
    let open = |port| {
        let driver = network.driver(SocketAddr::from(([10, 0, 0, 1], port))).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (client, server) = (open(1), open(2));
    let to = server.local_addr();
    let served = serve(server.serve().unwrap(), |request| {
        let _ = request.reply(vec![0; LONG]);
    });
    // Also if packets are lost.
    for n in 0..40 {
        let options = if n % 2 == 0 { patient() } else { patient().idempotent() };
        assert_eq!(client.client().call_with(to, "all of it", &options), Err(TOO_LONG));
    }
    server.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(served.join().unwrap(), 40);
}

#[test]
fn the_clients_limit_on_responses_is_named_too() {
    let client = engine("127.0.0.1", Config::default().max_message(50_000));
    let server = engine("127.0.0.1", Config::default());
    let served = serve(server.serve().unwrap(), |request| {
        let _ = request.reply(vec![0; 60_000]);
    });
    // At first the server does not know the limit.
    for _ in 0..3 {
        let result = client.client().call_with(server.local_addr(), "all of it", &patient());
        assert_eq!(result, Err(CallError::ResponseTooLong { length: 60_000, max: 50_000 }));
    }
    server.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(served.join().unwrap(), 3);
}

#[test]
fn a_handler_that_panics_is_not_a_server_that_died() {
    static EXECUTED: AtomicUsize = AtomicUsize::new(0);
    let (client, server) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let served = serve(server.serve().unwrap(), |_request| {
        EXECUTED.fetch_add(1, Ordering::Relaxed);
        std::panic::resume_unwind(Box::new("a handler's"));
    });
    // The handler would panic again, so an idempotent call is not repeated either.
    for options in [patient(), patient().idempotent()] {
        let result = client.client().call_with(server.local_addr(), "question", &options);
        assert_eq!(result, Err(CallError::Abandoned));
    }
    server.drain(Duration::from_secs(60)).unwrap();
    assert_eq!((served.join().unwrap(), EXECUTED.load(Ordering::Relaxed)), (2, 2));
}

#[test]
fn sockets_and_inline_engines_tell_why_too() {
    let socket = |at: &str| Socket::bind(at.parse().unwrap(), Config::default()).unwrap();
    let (a, b) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    b.listen().unwrap();
    for (replies, expected) in [(false, CallError::Abandoned), (true, TOO_LONG)] {
        a.send(b.local_addr(), "question", &SendOptions::from(patient())).unwrap();
        let Ok(SocketEvent::Request { id, .. }) = b.receive(Wanted::Any) else { panic!() };
        if replies {
            assert!(b.reply(id, None, vec![0; LONG]).is_err());
        }
        assert!(b.abort(id, None));
        let Ok(SocketEvent::Response { result, .. }) = a.receive(Wanted::Any) else { panic!() };
        assert_eq!(result.unwrap_err(), CallFailure::Call(expected));
    }
    let open = || inline::Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let (mut client, mut server) = (open(), open());
    server.listen().unwrap();
    client.call(server.local_addr(), "question", 0, &patient()).unwrap();
    let result = loop {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, .. }) = server.next() {
            assert!(server.refuse(id));
        }
        if let Some(Completion::Response { result, .. }) = client.next() {
            break result;
        }
    };
    assert_eq!(result, Err(CallError::Abandoned));
}

#[test]
fn requests_that_a_server_never_accepted_were_not_executed() {
    let (client, server) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let serving = server.serve().unwrap();
    let call =
        |n: u32| client.client().call_async_with(server.local_addr(), n.to_be_bytes(), &patient());
    let calls: Vec<_> = (0..20).map(call).collect();
    while server.metrics().protocol.requests_delivered < 20 {
        thread::yield_now();
    }
    drop(serving);
    for call in calls {
        let mut call = pin!(call);
        let result = loop {
            match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => break result,
                Poll::Pending => thread::yield_now(),
            }
        };
        assert_eq!(result, Err(CallError::PortUnreachable));
    }
}
