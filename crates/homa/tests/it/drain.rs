//! An engine that is drained while threads use it. Every thread returns, also if it drains, sleeps
//! or panics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use homa::driver::Driver;
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::{CallError, CallOptions, Config, Engine};

use crate::before::Before;
use crate::common::{block_on, echo, engine, message};

/// Runs `job` on a thread, and fails if it takes far too long. The limit counts ticks instead of
/// time, because a machine that pauses the process pauses the ticks, too.
fn before_long(job: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let job = thread::spawn(move || {
        job();
        let _ = done.send(());
    });
    for _tick in 0..6000 {
        let result = ended.recv_timeout(Duration::from_millis(10));
        if result != Err(mpsc::RecvTimeoutError::Timeout) {
            return job.join().expect("the job's own checks hold");
        }
    }
    panic!("a thread was left sleeping");
}

/// Starts acceptors of all kinds and callers with short calls, and drains at a random time.
fn end_under_way(seed: u64) {
    let config = || Config::default().spin(Duration::from_micros(seed % 3 * 20));
    let (client, server) = (engine("127.0.0.1", config()), engine("127.0.0.1", config()));
    let to = server.local_addr();
    let serving = Arc::new(server.serve().expect("no other server there"));
    let acceptors: Vec<_> = (0..1 + seed % 4)
        .map(|_| {
            let serving = serving.clone();
            thread::spawn(move || {
                while let Some(mut request) = serving.accept() {
                    let bytes = request.take_bytes();
                    // The reply fails if its client was drained.
                    let _ = request.reply(bytes);
                }
            })
        })
        .collect();
    let callers: Vec<_> = (0..1 + seed % 3)
        .map(|caller| {
            let client = client.client();
            thread::spawn(move || {
                let options = CallOptions::deadline(Duration::from_millis(20));
                for i in 0..20 {
                    let size = 1 + (i * 611 + caller as usize * 97) % 4000;
                    if client.call_with(to, message(size, i as u64), &options).is_err() {
                        break;
                    }
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_micros(seed * 37 % 900));
    let drain = |engine: &Engine| {
        let engine = engine.clone();
        thread::spawn(move || engine.drain(Duration::from_millis(50)))
    };
    let drains = [drain(&server), drain(&client), drain(&server)];
    // The machine decides whether everything finished in time. Every thread must return in any
    // case.
    for drain in drains {
        let _ = drain.join().expect("a drain ends");
    }
    callers.into_iter().for_each(|caller| caller.join().expect("a caller ends"));
    acceptors.into_iter().for_each(|acceptor| acceptor.join().expect("an acceptor ends"));
}

/// A server that calls another one for its answer, through its engine.
#[test]
fn a_drain_lets_requests_in_progress_make_their_calls() {
    let (back, front) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let serving = echo(back.serve().unwrap());
    let accepting = front.serve().unwrap();
    let client = engine("127.0.0.1", Config::default()).client();
    let (to, backend) = (front.local_addr(), back.local_addr());
    let call = thread::spawn(move || client.call(to, "question"));
    #[cfg_attr(not(feature = "tower"), expect(unused_mut))]
    let mut request = accepting.accept().unwrap();
    let draining = front.clone();
    let drained = thread::spawn(move || draining.drain(Duration::from_secs(60)));
    let stranger = front.client();
    while stranger.call(backend, "no request") != Err(CallError::ShuttingDown) {
        thread::yield_now();
    }
    let outer = request.client();
    let answer = outer.call(backend, "for the request").unwrap();
    assert_eq!(block_on(outer.ready_to(backend, 1)), Ok(()));
    assert_eq!(block_on(stranger.ready_to(backend, 1)), Err(CallError::ShuttingDown));
    #[cfg(feature = "tower")]
    {
        let mut shared = homa::tower::Server::new(stranger, backend, CallOptions::default());
        let onward = homa::tower::CallRequest::new("shared")
            .on_behalf_of(&homa::tower::Incoming::of(&mut request));
        assert_eq!(block_on(through(&mut shared, onward)).unwrap(), *b"shared");
        let own = homa::tower::CallRequest::new("no request");
        assert_eq!(block_on(through(&mut shared, own)), Err(CallError::ShuttingDown));
    }
    request.reply(answer.into_vec()).unwrap();
    assert_eq!(call.join().unwrap().unwrap(), *b"for the request");
    assert_eq!(drained.join().unwrap(), Ok(()));
    assert_eq!(outer.call(backend, "too late"), Err(CallError::ShuttingDown));
    back.drain(Duration::from_secs(60)).unwrap();
    serving.join().unwrap();
}

/// Calls once the service is ready, as middleware does.
#[cfg(feature = "tower")]
async fn through(
    service: &mut homa::tower::Server,
    request: homa::tower::CallRequest,
) -> Result<homa::Message, CallError> {
    use tower_service::Service;
    std::future::poll_fn(|context| {
        Service::<homa::tower::CallRequest>::poll_ready(service, context)
    })
    .await?;
    service.call(request).await
}

/// Its calls wait for their server with the same pauses as others.
#[test]
fn a_drain_does_not_hurry_calls_that_wait() {
    let absent = engine("127.0.0.1", Config::default()).local_addr();
    let front = engine("127.0.0.1", Config::default());
    let accepting = front.serve().unwrap();
    let client = engine("127.0.0.1", Config::default()).client();
    let call = client.call_async(front.local_addr(), "question");
    let request = accepting.accept().unwrap();
    let draining = front.clone();
    let drained = thread::spawn(move || draining.drain(Duration::from_secs(60)));
    while front.client().call(absent, "no request") != Err(CallError::ShuttingDown) {
        thread::yield_now();
    }
    let ended = || front.metrics().latencies.iter().map(|l| l.times.count()).sum::<u64>();
    let before = ended();
    let options = CallOptions::deadline(Duration::from_millis(300)).wait_for_ready();
    let waited = block_on(request.client().call_async_with(absent, "absent", &options));
    assert_eq!(waited, Err(CallError::PortUnreachable));
    // The pauses of 5, 10, 20, 40, 80 and 160 ms are longer than the deadline.
    let attempts = ended() - before;
    assert!(attempts <= 6, "{attempts} attempts");
    request.reply("done").unwrap();
    assert_eq!(call.wait().unwrap(), *b"done");
    drained.join().unwrap().unwrap();
}

/// The server is a task of the thread that the call blocks.
#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_call_that_blocks_its_runtime_says_so() {
    let server = engine("127.0.0.1", Config::default());
    let serving = server.serve().unwrap();
    tokio::spawn(async move {
        while let Some(request) = serving.accept_async().await {
            let _ = request.reply("done");
        }
    });
    tokio::task::yield_now().await;
    let client = engine("127.0.0.1", Config::default()).client();
    let options = CallOptions::deadline(Duration::from_millis(100));
    let blocked = client.call_with(server.local_addr(), "question", &options);
    assert_eq!(blocked, Err(CallError::RuntimeBlocked));
    assert_eq!(client.call_async(server.local_addr(), "question").await.unwrap(), *b"done");
}

#[test]
fn sleeping_threads_are_woken_when_an_engine_drains() {
    before_long(|| (0..60).for_each(end_under_way));
}

#[test]
fn a_panic_of_the_leading_thread_leaves_no_waiter_behind() {
    before_long(|| {
        let network = MemoryNetwork::new(1, NetworkFaults::default());
        let open = |at: &str| network.driver(at.parse().unwrap()).unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let trap = armed.clone();
        let hook = move |_: &dyn Driver| {
            assert!(!trap.swap(false, Ordering::SeqCst), "the trap of this test");
        };
        let trap = Before { driver: open("10.0.0.1:1"), hook };
        let server = Engine::with_driver(Box::new(trap), Config::default()).unwrap();
        let client = Engine::with_driver(Box::new(open("10.0.0.2:2")), Config::default()).unwrap();
        let serving = Arc::new(server.serve().unwrap());
        let acceptors: Vec<_> = (0..3)
            .map(|_| {
                let serving = serving.clone();
                thread::spawn(move || {
                    while let Some(mut request) = serving.accept() {
                        let bytes = request.take_bytes();
                        let _ = request.reply(bytes);
                    }
                })
            })
            .collect();
        let call = || client.client().call(server.local_addr(), "hello");
        assert_eq!(call().unwrap(), *b"hello");
        armed.store(true, Ordering::SeqCst);
        // The thread that receives this packet panics. Packets received before are not lost.
        assert_eq!(call().unwrap(), *b"hello");
        server.drain(Duration::from_secs(20)).unwrap();
        let ends: Vec<_> = acceptors.into_iter().map(thread::JoinHandle::join).collect();
        let panics = ends.iter().filter(|end| end.is_err()).count();
        assert!(panics <= 1, "{panics} panics");
        assert!(!armed.load(Ordering::SeqCst), "no thread panicked");
    });
}
