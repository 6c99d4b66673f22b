//! The attacks at full size, measured: the table of `docs/security.md`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::proto::{Body, RpcId};
use homa::{Config, Engine};

use super::host::{Host, control, first, part};
use super::pressure::{calls, host, invented, serving};

const LASTS: Duration = Duration::from_secs(3);

/// Small and large calls a second of a good client beside an attack.
fn rates(server: &Engine, mut attack: impl FnMut(u64) + Send) -> (f64, f64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                attack(n);
            }
        });
        let begun = Instant::now();
        let (small, large) = calls(server.local_addr(), |_, _| begun.elapsed() < LASTS);
        over.store(true, Ordering::Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        (small as f64 / seconds, large as f64 / seconds)
    })
}

/// An attack: what its hosts send at each step, and the pause between two.
type Attack = (&'static str, fn(&mut [Host], u64), Duration);

const ATTACKS: [Attack; 5] = [
    (
        "B. one byte of an announced 100 KB, 500 a second",
        |hosts, n| send(hosts, n, first(invented(n), 1, 100_000)),
        Duration::from_millis(2),
    ),
    (
        "D. half-open requests of 200 B, 10,000 a second",
        |hosts, n| send(hosts, n, first(invented(n), 56, 200)),
        Duration::from_micros(100),
    ),
    (
        "F. one byte at offset 50,000 of 100 KB, 10,000 a second",
        |hosts, n| send(hosts, n, part(invented(n), 50_000, &[1], 100_000)),
        Duration::from_micros(100),
    ),
    (
        "H. GRANTs about nothing, 10,000 a second",
        |hosts, n| {
            let grant = Body::Grant { offset: 1 << 20, priority: 7 };
            send(hosts, n, control(RpcId(invented(n)), grant));
        },
        Duration::from_micros(100),
    ),
    (
        "K. small requests of one client that answers, 20,000 a second",
        |hosts, n| {
            hosts[0].send(&first(0x8765_4321_0000_0000 + 2 * n, 20, 20));
            drop(hosts[0].answer());
        },
        Duration::from_micros(50),
    ),
];

fn send(hosts: &mut [Host], n: u64, bytes: Vec<u8>) {
    let count = hosts.len() as u64;
    hosts[(n % count) as usize].send(&bytes);
}

#[test]
fn table() {
    if std::env::var_os("HOMA_HOSTILE_TABLE").is_none() {
        return eprintln!("not run: it measures; set HOMA_HOSTILE_TABLE, and run it alone");
    }
    println!("| attack | small calls/s | beside it | large calls/s | beside it |");
    println!("|---|---|---|---|---|");
    for (name, attack, pause) in ATTACKS {
        let (server, _) = serving(Config::default());
        let mut hosts: Vec<Host> = (0..200).map(|n| host(n, server.local_addr())).collect();
        let alone = rates(&server, |_| thread::sleep(Duration::from_millis(10)));
        let beside = rates(&server, |n| {
            attack(&mut hosts, n);
            thread::sleep(pause);
        });
        let metrics = server.metrics();
        println!(
            "| {name} | {:.0} | {:.0} % | {:.0} | {:.0} % |",
            alone.0,
            100.0 * beside.0 / alone.0,
            alone.1,
            100.0 * beside.1 / alone.1,
        );
        eprintln!("{:?}, peers {}", metrics.protocol.strangers_dropped, metrics.engine.peers);
    }
}
