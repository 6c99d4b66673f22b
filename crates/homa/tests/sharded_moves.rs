//! A client whose address changes in the midst of a call comes to another of the engines that share
//! its server's address, which knows nothing of the call: it is executed once all the same.
//!
//! A relay stands for the address translator between them.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use homa::{CallError, CallOptions, Client, Config, Engine, Server};

/// Only reached when something is broken.
const GIVE_UP: Duration = Duration::from_secs(60);
const ANY: &str = "127.0.0.1:0";

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket
}

/// Passes datagrams on between one client and a server, from a port of its own.
struct Translator {
    at: SocketAddr,
    server: SocketAddr,
    outside: Arc<Mutex<Arc<UdpSocket>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Translator {
    fn to(server: SocketAddr) -> Self {
        let inside = Arc::new(socket());
        let outside = Arc::new(Mutex::new(Arc::new(socket())));
        let client = Arc::new(Mutex::new(None));
        let stop = Arc::new(AtomicBool::new(false));
        let (at, mut threads) = (inside.local_addr().unwrap(), Vec::new());
        let (from, to, who, ends) = (inside.clone(), outside.clone(), client.clone(), stop.clone());
        threads.push(thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((len, from)) = from.recv_from(&mut bytes) {
                    *who.lock().unwrap() = Some(from);
                    let now = to.lock().unwrap().clone();
                    now.send_to(&bytes[..len], server).unwrap();
                }
            }
        }));
        let (from, ends) = (outside.clone(), stop.clone());
        threads.push(thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                let now = from.lock().unwrap().clone();
                if let Ok(len) = now.recv(&mut bytes)
                    && let Some(client) = *client.lock().unwrap()
                {
                    inside.send_to(&bytes[..len], client).unwrap();
                }
            }
        }));
        Self { at, server, outside, stop, threads }
    }

    /// The client appears at another port; what comes for the old one is lost.
    fn change(&self) {
        *self.outside.lock().unwrap() = Arc::new(socket());
    }

    /// The same, at one that was had before.
    fn change_to(&self, before: Arc<UdpSocket>) {
        *self.outside.lock().unwrap() = before;
    }

    fn now(&self) -> Arc<UdpSocket> {
        self.outside.lock().unwrap().clone()
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// How often `slow` was begun; it takes until `go`.
#[derive(Default)]
struct Work {
    begun: AtomicUsize,
    go: AtomicBool,
}

impl Work {
    fn serve(self: &Arc<Self>, server: Server) {
        let work = self.clone();
        thread::spawn(move || {
            while let Some(mut request) = server.accept() {
                let bytes = request.take_bytes();
                if *bytes != *b"slow" {
                    let _ = request.reply(bytes);
                    continue;
                }
                work.begun.fetch_add(1, Ordering::SeqCst);
                let work = work.clone();
                thread::spawn(move || {
                    until(|| work.go.load(Ordering::SeqCst));
                    let _ = request.reply("done");
                });
            }
        });
    }
}

fn until(done: impl Fn() -> bool) {
    let end = Instant::now() + GIVE_UP;
    while !done() {
        assert!(Instant::now() < end, "it did not happen");
        sleep(Duration::from_millis(1));
    }
}

/// A sharded server, and a client behind a translator that has made a call.
fn behind_a_translator(work: &Arc<Work>) -> (homa::Sharded, Translator, Client) {
    let sharded = Engine::sharded(ANY.parse().unwrap(), 4, Config::default()).unwrap();
    sharded.serve().unwrap().into_iter().for_each(|server| work.serve(server));
    let translator = Translator::to(sharded.local_addr());
    let client = Client::new().unwrap();
    assert_eq!(client.call(translator.at, "first").unwrap(), *b"first");
    (sharded, translator, client)
}

/// Which of the engines serves a request.
fn serving(sharded: &homa::Sharded) -> Option<usize> {
    sharded.engines().position(|engine| engine.metrics().engine.requests_in_progress > 0)
}

fn options() -> CallOptions {
    CallOptions::deadline(GIVE_UP)
}

#[test]
fn a_call_whose_client_comes_to_another_shard_is_executed_once() {
    // A new port is another engine's in three of four cases.
    for _ in 0..4 {
        let work = Arc::<Work>::default();
        let (_sharded, translator, client) = behind_a_translator(&work);
        let to = translator.at;
        let call = thread::spawn({
            let client = client.clone();
            move || client.call_with(to, "slow", &options()).map(|_| ())
        });
        until(|| work.begun.load(Ordering::SeqCst) == 1);
        translator.change();
        assert_eq!(call.join().unwrap(), Err(CallError::Indeterminate), "{}", translator.server);
        work.go.store(true, Ordering::SeqCst);
        // The client goes on; the first call at the new address may be in doubt as well.
        let _ = client.call(to, "next");
        assert_eq!(client.call(to, "more").unwrap(), *b"more");
        assert_eq!(work.begun.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_client_that_comes_back_to_its_first_shard_has_nothing_executed_twice() {
    let work = Arc::<Work>::default();
    let (sharded, translator, client) = behind_a_translator(&work);
    let (to, first) = (translator.at, translator.now());
    let home = |client: &Client| {
        work.go.store(false, Ordering::SeqCst);
        let begun = work.begun.load(Ordering::SeqCst);
        let call = thread::spawn({
            let client = client.clone();
            move || client.call_with(to, "slow", &options()).map(|_| ())
        });
        until(|| work.begun.load(Ordering::SeqCst) > begun);
        (call, serving(&sharded).expect("one executes it"))
    };
    let done = |call: JoinHandle<Result<(), CallError>>| {
        work.go.store(true, Ordering::SeqCst);
        call.join().unwrap()
    };
    let (call, here) = home(&client);
    done(call).unwrap();
    // To another shard, where a call begins …
    let (call, begun) = loop {
        translator.change();
        let _ = client.call(to, "is it known there?");
        let (call, there) = home(&client);
        if there != here {
            break (call, work.begun.load(Ordering::SeqCst));
        }
        done(call).unwrap();
    };
    // … and back, where that call is unknown.
    translator.change_to(first);
    assert_eq!(call.join().unwrap(), Err(CallError::Indeterminate));
    work.go.store(true, Ordering::SeqCst);
    let _ = client.call(to, "next");
    assert_eq!(client.call(to, "more").unwrap(), *b"more");
    assert_eq!(work.begun.load(Ordering::SeqCst), begun);
}
