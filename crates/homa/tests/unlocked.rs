//! The result of a call that ended is taken without the engine's lock, which somebody else holds
//! meanwhile: here a subscriber of `tracing` that is told of a call as it starts. In a process of
//! its own, since the subscriber is the process's. Where a result needs the lock, the test hangs.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread;

use common::{echo, engine};
use homa::Config;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    /// This thread says when it is told of a call, and stops there.
    static STOPS: Cell<Option<(Sender<()>, Receiver<()>)>> = const { Cell::new(None) };
}

struct Stops;

impl Subscriber for Stops {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        if let Some((stopped, go_on)) = STOPS.take() {
            stopped.send(()).unwrap();
            go_on.recv().unwrap();
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_result_is_taken_or_dropped_while_somebody_else_holds_the_engine() {
    tracing::subscriber::set_global_default(Stops).unwrap();
    let (one, other) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let (client, to) = (one.client(), other.local_addr());
    let _echo = echo(other.serve().unwrap());
    let [taken, dropped] = [(); 2].map(|()| client.call_async(to, "ends"));
    while one.metrics().engine.calls_in_progress > 0 {
        thread::yield_now();
    }
    thread::scope(|scope| {
        let (stopped, stops) = channel();
        let (go_on, goes_on) = channel();
        let client = client.clone();
        scope.spawn(move || {
            STOPS.set(Some((stopped, goes_on)));
            client.call(to, "is told of").unwrap();
        });
        stops.recv().unwrap();
        let taken = pin!(taken).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(taken, Poll::Ready(Ok(result)) if result == *b"ends"));
        drop(dropped);
        go_on.send(()).unwrap();
    });
}
