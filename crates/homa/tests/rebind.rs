//! Servers that are opened and dropped on one engine. The addresses of dropped servers are free
//! again, for this engine and for others.

mod common;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::{echo, engine, message};
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::{Config, Engine};

/// An engine, an engine that calls it, a function that opens another engine at its addresses, and
/// an address of the first.
type Case = (Engine, Engine, Box<dyn Fn(SocketAddr) -> Option<Engine>>, SocketAddr);

fn over_udp() -> Case {
    let open = || engine("127.0.0.1", Config::default());
    let wants = |at| Engine::bind(at, Config::default()).ok();
    (open(), open(), Box::new(wants), "127.0.0.1:0".parse().unwrap())
}

fn in_memory() -> Case {
    let memory = MemoryNetwork::new(1, NetworkFaults::default());
    let open = move |at: SocketAddr| {
        let driver = memory.driver(at).ok()?;
        Engine::with_driver(Box::new(driver), Config::default()).ok()
    };
    let [first, second] = ["10.0.0.1:1", "10.0.0.2:1"].map(|at| at.parse().unwrap());
    (open(first).unwrap(), open(second).unwrap(), Box::new(open), "10.0.0.1:0".parse().unwrap())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_address_of_a_server_that_is_gone_is_free() {
    for (engine, other, wants, any) in [over_udp(), in_memory()] {
        let stays = echo(engine.serve().unwrap());
        let client = other.client();
        let before = descriptors();
        let mut at = any;
        for round in 0..100 {
            let gone = engine.serve_at(at).unwrap();
            at = gone.local_addr();
            let caller = client.clone();
            let call = thread::spawn(move || caller.call(at, message(50_000, round)).unwrap());
            let request = gone.accept().unwrap();
            drop(gone);
            // The request is still answered, from the address to which it was sent.
            let bytes = request.to_vec();
            request.reply(bytes).unwrap();
            assert!(call.join().unwrap() == message(50_000, round)[..], "round {round}");
            if round % 2 == 0 {
                at = any;
            }
        }
        // Each address stays open until the client has confirmed the response.
        eventually(|| descriptors() < before + 10);
        let gone = engine.serve_at(any).unwrap();
        let at = gone.local_addr();
        assert!(wants(at).is_none(), "{at} is in use");
        drop(gone);
        // The engine may have to be woken first, and the test does not wait for that.
        let mut heir = None;
        eventually(|| {
            heir = wants(at);
            heir.is_some()
        });
        let heir = heir.unwrap();
        let heir = echo(heir.serve().unwrap());
        assert_eq!(client.call(at, "heir").unwrap(), *b"heir");
        assert_eq!(client.call(engine.local_addr(), "first").unwrap(), *b"first");
        drop((engine, stays, heir));
    }
}
