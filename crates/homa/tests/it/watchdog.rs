//! An engine says whether it does its work.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use homa::{Client, Config};

use crate::common::{echo, engine};

/// A waker of a task that does not return before it is let go.
#[derive(Default)]
struct Blocks {
    /// It was woken, and may return.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, let_go)| !*let_go).unwrap());
    }
}

#[test]
fn an_engine_is_healthy_at_rest_and_at_work() {
    let server = engine("127.0.0.1", Config::default());
    assert!(server.healthy());
    let serving = echo(server.serve().unwrap());
    let client = Client::new().unwrap();
    thread::scope(|scope| {
        let calling = scope.spawn(|| {
            for _ in 0..200 {
                client.call(server.local_addr(), vec![7; 50_000]).unwrap();
            }
        });
        while !calling.is_finished() {
            assert!(server.healthy() && client.engine().healthy());
        }
    });
    server.drain(Duration::from_secs(60)).unwrap();
    assert!(server.healthy(), "it has nothing to do");
    serving.join().unwrap();
    server.hand_over(Duration::ZERO).unwrap();
    assert!(!server.healthy(), "it has ended");
}

#[test]
fn an_engine_whose_thread_is_blocked_is_not_healthy() {
    let server = engine("127.0.0.1", Config::default());
    let accepting = server.serve().unwrap();
    let blocks = Arc::new(Blocks::default());
    let waker = Waker::from(blocks.clone());
    let mut accept = pin!(accepting.accept_async());
    assert!(accept.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(server.healthy());
    let to = server.local_addr();
    // Its waker blocks the thread that drives the server; the next request lies in the socket.
    let call = |text: &'static str| thread::spawn(move || Client::new().unwrap().call(to, text));
    let calls = [call("first"), call("second")];
    let state = blocks.state.lock().unwrap();
    drop(blocks.changed.wait_while(state, |(woken, _)| !*woken).unwrap());
    let calls = [calls, [call("third"), call("fourth")]];
    while server.healthy() {
        thread::yield_now();
    }
    blocks.state.lock().unwrap().1 = true;
    blocks.changed.notify_all();
    let serving = echo(accepting.clone());
    calls.into_iter().flatten().for_each(|call| assert!(call.join().unwrap().is_ok()));
    assert!(server.healthy());
    server.drain(Duration::from_secs(60)).unwrap();
    serving.join().unwrap();
}
