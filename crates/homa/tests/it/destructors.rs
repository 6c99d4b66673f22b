//! Objects that users hand over are dropped without the engine's lock. Therefore a destructor may
//! call the same engine, and even wait for its answer. If the engine held its lock, the test would
//! hang.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use bytes::Bytes;
use homa::socket::{SendOptions, Socket, SocketEvent, Wanted};
use homa::{Call, CallError, Client, Config, ReplyError};

use crate::common::{echo, engine};

/// The memory of a message. Its destructor makes a call and waits for the response.
struct Lease {
    client: Client,
    server: SocketAddr,
    ended: Sender<bool>,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        b"a message"
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.client.engine().metrics();
        let answer = self.client.call(self.server, "it ends");
        let _ = self.ended.send(answer.is_ok_and(|answer| answer == *b"it ends"));
    }
}

/// Creates a message, and a channel that reports the result of its destructor.
fn lease(client: &Client, server: SocketAddr) -> (Bytes, Receiver<bool>) {
    let (ended, end) = channel();
    (Bytes::from_owner(Lease { client: client.clone(), server, ended }), end)
}

#[test]
fn a_message_whose_destructor_calls_back_is_dropped_unlocked() {
    let (one, other) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let (client, server) = (one.client(), other.local_addr());
    let _echo = echo(other.serve().unwrap());
    // The thread that waits for the response drives the engine when the request's memory is
    // dropped.
    let (request, end) = lease(&client, server);
    assert_eq!(client.call(server, request).unwrap(), *b"a message");
    assert!(end.recv().unwrap(), "sent by a thread that waits");
    // The helper thread drives the engine.
    let (request, end) = lease(&client, server);
    let call = client.call_async(server, [Bytes::from("two parts: "), request]);
    assert!(end.recv().unwrap(), "sent by a task");
    drop(call);
    // The call is refused.
    let (request, end) = lease(&client, server);
    let nobody = SocketAddr::new(server.ip(), 0);
    assert_eq!(client.call(nobody, request), Err(CallError::Destination { to: nobody }));
    assert!(end.recv().unwrap(), "refused");
    // The call is dropped while it waits for capacity, and its request with it.
    let (request, end) = lease(&client, server);
    drop(client.call_async("127.0.0.1:9".parse().unwrap(), request));
    assert!(end.recv().unwrap(), "given up");
}

#[test]
fn a_reply_whose_destructor_calls_back_is_dropped_unlocked() {
    let (one, other) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let third = engine("127.0.0.1", Config::default());
    let _echo = echo(third.serve().unwrap());
    let (server, third) = (other.serve().unwrap(), third.local_addr());
    let (ends, end) = channel();
    let serving = thread::spawn(move || {
        while let Some(request) = server.accept() {
            let (reply, end) = lease(&request.client(), third);
            request.reply(reply).unwrap();
            ends.send(end).unwrap();
        }
    });
    let client = one.client();
    for _ in 0..3 {
        assert_eq!(client.call(other.local_addr(), "a request").unwrap(), *b"a message");
        assert!(end.recv().unwrap().recv().unwrap());
    }
    other.drain(std::time::Duration::from_secs(10)).unwrap();
    serving.join().unwrap();
}

#[test]
fn a_message_refused_by_a_socket_is_dropped_unlocked() {
    /// Its destructor looks at the socket.
    struct Looks(Arc<Socket>, Sender<u64>);
    impl AsRef<[u8]> for Looks {
        fn as_ref(&self) -> &[u8] {
            b"late"
        }
    }
    impl Drop for Looks {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.metrics().engine.calls_refused);
        }
    }
    let bind = || Socket::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let (client, server) = (bind(), Arc::new(bind()));
    server.listen().unwrap();
    let (looked, looks) = channel();
    let bytes = || Bytes::from_owner(Looks(server.clone(), looked.clone()));
    client.send(server.local_addr(), "a request", &SendOptions::default()).unwrap();
    let Ok(SocketEvent::Request { id, .. }) = server.receive(Wanted::Any) else { panic!() };
    let other = Some("127.0.0.1:1".parse().unwrap());
    assert_eq!(server.reply(id, other, bytes()), Err(ReplyError::Gone));
    looks.recv().unwrap();
    server.reply(id, None, bytes()).unwrap();
    assert!(client.receive(Wanted::Any).is_ok());
    looks.recv().unwrap();
    assert_eq!(server.reply(id, None, bytes()), Err(ReplyError::Gone));
    looks.recv().unwrap();
    let nobody = SocketAddr::new(server.local_addr().ip(), 0);
    assert!(server.send(nobody, bytes(), &SendOptions::default()).is_err());
    assert_eq!(looks.recv().unwrap(), 1);
}

/// A waker that owns a task, which owns a call.
struct Task(#[allow(dead_code)] Mutex<Option<Call>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

fn poll<T>(future: impl Future<Output = T>, waker: &Waker) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_task_whose_last_waker_the_engine_has_is_dropped_unlocked() {
    let (one, other) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let (client, to) = (one.client(), other.local_addr());
    let accepts = one.serve().unwrap();
    let server = other.serve().unwrap();
    let task = || Waker::from(Arc::new(Task(Mutex::new(Some(client.call_async(to, "waits"))))));
    // First a call that another task polls from then on, and then a call that is dropped.
    let mut call = client.call_async(to, "is polled");
    assert!(poll(&mut call, &task()).is_pending());
    assert!(poll(&mut call, &task()).is_pending());
    drop(call);
    // First a task waits for a request, and then for the cancellation of one.
    let mut accept = accepts.accept_async();
    assert!(poll(&mut accept, &task()).is_pending());
    assert!(poll(&mut accept, &task()).is_pending());
    drop(accept);
    let _waits = client.call_async(to, "is served");
    let request = server.accept().unwrap();
    let server_task =
        || Waker::from(Arc::new(Task(Mutex::new(Some(other.client().call_async(to, "waits"))))));
    let mut cancelled = request.cancelled();
    assert!(poll(&mut cancelled, &server_task()).is_pending());
    assert!(poll(&mut cancelled, &server_task()).is_pending());
    drop(cancelled);
}

#[test]
fn a_task_that_waits_for_room_ends_without_the_lock() {
    let (one, other) = (
        engine("127.0.0.1", Config::default().send_memory(10_000)),
        engine("127.0.0.1", Config::default()),
    );
    let (client, to) = (one.client(), other.local_addr());
    let _server = other.serve().unwrap();
    let _fills = client.call_async(to, vec![1; 9_990]);
    let task = || Waker::from(Arc::new(Task(Mutex::new(Some(client.call_async(to, "waits"))))));
    let mut ready = client.ready_for(1_000);
    assert!(poll(&mut ready, &task()).is_pending());
    assert!(poll(&mut ready, &task()).is_pending());
    drop(ready);
}
