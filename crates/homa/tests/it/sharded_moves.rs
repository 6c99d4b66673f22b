//! A client whose address changes during a call. Its packets then reach another engine of the
//! shards, which does not know the call. The call must still be executed only once.
//!
//! A relay plays the address translator between them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use homa::{CallError, CallOptions, Client, Config, Engine, Server};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);
const ANY: &str = "127.0.0.1:0";

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket
}

/// Forwards datagrams between one client and a server, from its own port.
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

    /// Moves the client to a new port. Datagrams to the old port are lost.
    fn change(&self) {
        *self.outside.lock().unwrap() = Arc::new(socket());
    }

    /// Moves the client to a port that it had before.
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

/// Counts the `slow` and `given up` requests that were begun. Each takes until `go` exceeds the
/// number of those begun before.
#[derive(Default)]
struct Work {
    begun: AtomicUsize,
    go: AtomicUsize,
}

impl Work {
    fn serve(self: &Arc<Self>, server: Server) {
        let work = self.clone();
        thread::spawn(move || {
            while let Some(mut request) = server.accept() {
                let bytes = request.take_bytes();
                if *bytes != *b"slow" && *bytes != *b"given up" {
                    let _ = request.reply(bytes);
                    continue;
                }
                let before = work.begun.fetch_add(1, Ordering::SeqCst);
                let work = work.clone();
                thread::spawn(move || {
                    until(|| work.go.load(Ordering::SeqCst) > before);
                    if *bytes == *b"slow" {
                        let _ = request.reply("done");
                    }
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

/// Opens a sharded server, and a client behind a translator that has made a call.
fn behind_a_translator(work: &Arc<Work>) -> (homa::Sharded, Translator, Client) {
    let sharded = Engine::sharded(ANY.parse().unwrap(), 4, Config::default()).unwrap();
    sharded.serve().unwrap().into_iter().for_each(|server| work.serve(server));
    let translator = Translator::to(sharded.local_addr());
    let client = Client::new().unwrap();
    assert_eq!(client.call(translator.at, "first").unwrap(), *b"first");
    (sharded, translator, client)
}

fn options() -> CallOptions {
    CallOptions::deadline(GIVE_UP)
}

#[test]
fn a_call_runs_once_if_its_client_moves_to_another_shard() {
    // In three of four cases a new port belongs to another engine.
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
        work.go.store(usize::MAX, Ordering::SeqCst);
        // The client continues. The first call from the new address may also be in doubt.
        let _ = client.call(to, "next");
        assert_eq!(client.call(to, "more").unwrap(), *b"more");
        assert_eq!(work.begun.load(Ordering::SeqCst), 1);
    }
}

/// A call that is begun, and the number of the engine that executes it.
type Begun = (JoinHandle<Result<(), CallError>>, usize);

fn begin(
    what: &'static str,
    work: &Work,
    sharded: &homa::Sharded,
    client: &Client,
    to: SocketAddr,
) -> Begun {
    let before = work.begun.load(Ordering::SeqCst);
    let served = |engine: Engine| engine.metrics().protocol.requests_delivered;
    let counts: Vec<_> = sharded.engines().map(served).collect();
    let client = client.clone();
    let call = thread::spawn(move || client.call_with(to, what, &options()).map(|_| ()));
    until(|| work.begun.load(Ordering::SeqCst) > before);
    let by = sharded.engines().map(served).zip(counts).position(|(now, before)| now > before);
    (call, by.expect("one executes it"))
}

/// Begins a call at a different engine than `home`, because the client's address has changed.
fn begin_elsewhere(
    home: usize,
    work: &Work,
    sharded: &homa::Sharded,
    (client, translator): (&Client, &Translator),
) -> Begun {
    loop {
        translator.change();
        let _ = client.call(translator.at, "is it known there?");
        let (call, there) = begin("slow", work, sharded, client, translator.at);
        if there != home {
            return (call, there);
        }
        work.go.store(work.begun.load(Ordering::SeqCst), Ordering::SeqCst);
        let _ = call.join().unwrap();
    }
}

#[test]
fn no_call_runs_twice_if_a_client_returns_to_its_first_shard() {
    for gives_up in [false, true] {
        let work = Arc::<Work>::default();
        let (sharded, translator, client) = behind_a_translator(&work);
        let (to, first) = (translator.at, translator.now());
        let what = if gives_up { "given up" } else { "slow" };
        let (call, home) = begin(what, &work, &sharded, &client, to);
        if !gives_up {
            work.go.store(1, Ordering::SeqCst);
            call.join().unwrap().unwrap();
        }
        let (call, _) = begin_elsewhere(home, &work, &sharded, (&client, &translator));
        // Other clients' packets make all shards look for clients that left.
        for _ in 0..20 {
            assert_eq!(Client::new().unwrap().call(sharded.local_addr(), "hi").unwrap(), *b"hi");
        }
        // The first shard drops the rest of it under the old address.
        work.go.fetch_max(1, Ordering::SeqCst);
        until(|| sharded.engines().nth(home).unwrap().metrics().engine.requests_in_progress == 0);
        let begun = work.begun.load(Ordering::SeqCst);
        translator.change_to(first);
        assert_eq!(call.join().unwrap(), Err(CallError::Indeterminate), "{gives_up}");
        work.go.store(usize::MAX, Ordering::SeqCst);
        let _ = client.call(to, "next");
        assert_eq!(client.call(to, "more").unwrap(), *b"more");
        assert_eq!(work.begun.load(Ordering::SeqCst), begun, "{gives_up}");
    }
}
