//! Servers that are asked for several times what they can do. They refuse what they could not
//! answer in time, so that what they do is not wasted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use homa::metrics::{Direction, RpcOutcome};
use homa::{CallError, CallOptions, Config, Server};

use crate::common::{block_on, engine};

/// How long a handler works.
const WORK: Duration = Duration::from_millis(5);
/// Calls, one each millisecond: five times what one thread can answer.
const CALLS: u64 = 1_000;
const PAUSE: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_millis(200);

/// What a server did, and what became of the calls.
#[derive(Debug, Default)]
struct Outcome {
    executed: AtomicUsize,
    /// Microseconds that handlers worked.
    busy: AtomicU64,
    answered: usize,
    overloaded: usize,
    late: usize,
}

/// Makes the calls. `serve` begins to answer, with a function that works on one request.
fn overload(serve: impl FnOnce(Server, Arc<dyn Fn() + Send + Sync>)) -> (Outcome, Duration) {
    let (client, there) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let outcome = Arc::new(Outcome::default());
    let worked = outcome.clone();
    serve(
        there.serve().unwrap(),
        Arc::new(move || {
            let began = Instant::now();
            thread::sleep(WORK);
            worked.executed.fetch_add(1, Ordering::Relaxed);
            worked.busy.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        }),
    );
    let (to, options) = (there.local_addr(), CallOptions::deadline(DEADLINE));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let began = Instant::now();
    let mut calls = Vec::new();
    for n in 0..CALLS {
        calls.push(runtime.spawn(client.client().call_async_with(to, [n as u8; 100], &options)));
        thread::sleep((began + PAUSE * n as u32).saturating_duration_since(Instant::now()));
    }
    let mut ended = Outcome::default();
    for call in calls {
        match runtime.block_on(call).unwrap() {
            Ok(_) => ended.answered += 1,
            Err(CallError::Overloaded) => ended.overloaded += 1,
            Err(CallError::DeadlineExceeded) => ended.late += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let took = began.elapsed();
    there.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(there.metrics().engine.requests_shed as usize, ended.overloaded, "{ended:?}");
    for (engine, direction) in [(&client, Direction::Client), (&there, Direction::Server)] {
        let peers = engine.metrics().peers;
        let peer = peers.iter().find(|peer| peer.direction == direction).unwrap();
        assert_eq!(peer.ended(RpcOutcome::Overloaded) as usize, ended.overloaded, "{peer:?}");
    }
    ended.executed = outcome.executed.load(Ordering::Relaxed).into();
    ended.busy = outcome.busy.load(Ordering::Relaxed).into();
    println!("{ended:?} in {took:?}");
    (ended, took)
}

/// Most of what was done was answered in time, and the server was not idle.
fn assert_not_wasted((outcome, took): (Outcome, Duration)) {
    let executed = outcome.executed.load(Ordering::Relaxed);
    assert!(outcome.answered * 10 >= executed * 7, "{outcome:?}");
    let busy = Duration::from_micros(outcome.busy.load(Ordering::Relaxed));
    // A fifth of the time, because the machine may be busy with other tests.
    assert!(busy * 5 >= took, "{busy:?} of {took:?}: {outcome:?}");
    assert!(outcome.overloaded > 0, "{outcome:?}");
}

#[test]
fn a_thread_that_is_overloaded_answers_what_it_can() {
    assert_not_wasted(overload(|server, work| {
        thread::spawn(move || {
            while let Some(request) = server.accept() {
                work();
                let _ = request.reply("done");
            }
        });
    }));
}

#[test]
fn tasks_are_limited_by_the_servers_concurrency() {
    assert_not_wasted(overload(|server, work| {
        let server = server.concurrency(1);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move {
                while let Some(request) = server.accept_async().await {
                    let work = work.clone();
                    // As a server that starts a task for each request.
                    tokio::task::spawn_blocking(move || {
                        work();
                        let _ = request.reply("done");
                    });
                }
            });
        });
    }));
}

#[test]
fn a_burst_that_can_be_answered_in_time_is_not_refused() {
    let (client, there) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let server = there.serve().unwrap();
    thread::spawn(move || {
        while let Some(request) = server.accept() {
            thread::sleep(Duration::from_micros(200));
            request.reply("done").unwrap();
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let options = CallOptions::deadline(Duration::from_secs(600));
    let call =
        |n: u64| client.client().call_async_with(there.local_addr(), [n as u8; 100], &options);
    let calls: Vec<_> = (0..CALLS).map(|n| runtime.spawn(call(n))).collect();
    for call in calls {
        assert_eq!(runtime.block_on(call).unwrap().unwrap(), *b"done");
    }
}

#[test]
fn a_request_that_is_set_aside_makes_room_for_one_other() {
    let server = engine("127.0.0.1", Config::default()).serve().unwrap().concurrency(1);
    let (client, to) = (engine("127.0.0.1", Config::default()).client(), server.local_addr());
    let calls = [(); 3].map(|()| client.call_async(to, "work"));
    let first = server.accept().unwrap();
    (0..2).for_each(|_| first.set_aside());
    let second = server.accept().unwrap();
    // The second stays in service when the first is answered.
    first.reply("done").unwrap();
    while server.engine().metrics().engine.requests_in_progress != 2 {
        thread::sleep(PAUSE);
    }
    let mut third = Box::pin(server.accept_async());
    assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    second.reply("done").unwrap();
    block_on(third).unwrap().reply("done").unwrap();
    for call in calls {
        assert_eq!(call.wait().unwrap(), *b"done");
    }
}
