//! Engines that an event loop of the application drives, whose wakers run code of the application.

use std::future::Future;
use std::os::fd::AsFd;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use homa::{Client, Config, Engine, Reactor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::common::{echo, engine};

fn open() -> Engine {
    engine("127.0.0.1", Config::default())
}

/// Sleeps until the descriptor is readable, then drives. The sleep is short because the helper may
/// have driven instead, if this thread was not run for a while, and nothing interrupts the sleep.
fn turn(reactor: &mut Reactor) {
    let mut watched = [PollFd::new(reactor.as_fd(), PollFlags::POLLIN)];
    poll(&mut watched, PollTimeout::from(10u8)).unwrap();
    reactor.drive();
}

/// Drives until a call ends, whose task is woken by `waker`.
fn drive(reactor: &mut Reactor, call: homa::Call, waker: &Waker) -> homa::Message {
    let mut call = pin!(call);
    loop {
        match call.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(response) => return response.unwrap(),
            Poll::Pending => turn(reactor),
        }
    }
}

/// A waker that calls a server through the engine that wakes it, and blocks.
struct Calls(Client, std::net::SocketAddr, AtomicBool);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.0.call(self.1, "from a waker").unwrap(), *b"from a waker");
        self.2.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_waker_may_call_through_the_engine_that_wakes_it() {
    let (asks, answers) = (open(), open());
    let (to, serving) = (answers.local_addr(), echo(answers.serve().unwrap()));
    let mut reactor = asks.reactor().unwrap();
    let calls = Arc::new(Calls(asks.client(), to, AtomicBool::new(false)));
    let call = asks.client().call_async(to, "a question");
    assert_eq!(drive(&mut reactor, call, &calls.clone().into()), *b"a question");
    while !calls.2.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let call = asks.client().call_async(to, "again");
    assert_eq!(drive(&mut reactor, call, Waker::noop()), *b"again");
    answers.drain(Duration::from_secs(60)).unwrap();
    serving.join().unwrap();
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic::resume_unwind(Box::new("a waker's"));
    }
}

#[test]
fn a_waker_that_panics_does_not_stop_the_engine() {
    let (asks, answers) = (open(), open());
    let (to, serving) = (answers.local_addr(), echo(answers.serve().unwrap()));
    let mut reactor = asks.reactor().unwrap();
    let mut call = pin!(asks.client().call_async(to, "a question"));
    let waker = Arc::new(Panics).into();
    while call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| turn(&mut reactor)));
    }
    for question in ["again", "and again"] {
        let call = asks.client().call_async(to, question);
        assert_eq!(drive(&mut reactor, call, Waker::noop()), *question.as_bytes());
    }
    drop(reactor);
    assert_eq!(asks.client().call(to, "without it").unwrap(), *b"without it");
    answers.drain(Duration::from_secs(60)).unwrap();
    serving.join().unwrap();
}
