//! The attacks at full size, measured: the table of `docs/security.md`.
//!
//! On a machine where attacker, client and server share the processors, an attack costs by being
//! made. So a client's rates beside it are compared with those beside the same packets sent to a
//! socket that nobody reads.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::Config;
use homa::proto::{Body, RpcId};

use super::host::{Host, control, first, part};
use super::pressure::{calls, host, invented, serving};

const LASTS: Duration = Duration::from_secs(3);
const HOSTS: usize = 200;

/// Small and large calls a second of a good client beside an attack.
fn rates(server: SocketAddr, attack: impl Fn(u64) -> Option<Duration> + Sync) -> (f64, f64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                let pause = attack(n).unwrap_or(LASTS / 100);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        });
        let begun = Instant::now();
        let (small, large) = calls(server, |_, _| begun.elapsed() < LASTS);
        over.store(true, Ordering::Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        (small as f64 / seconds, large as f64 / seconds)
    })
}

/// An attack: what its hosts send at each step; the pause until the next, none when it is over.
type Attack = (&'static str, fn(&mut [Host], u64) -> Option<Duration>);

const ATTACKS: [Attack; 8] = [
    ("B. spoofed: one byte of an announced 100 KB, 500 a second", |hosts, n| {
        send(hosts, n, first(invented(n), 1, 100_000));
        Some(Duration::from_millis(2))
    }),
    ("B. 8 hosts that answer: 500 such requests each, at once", |hosts, n| {
        hosts[..8].iter_mut().for_each(|host| drop(host.answer()));
        (n < 4000).then(|| {
            send(&mut hosts[..8], n, first(0x8765_4321_0000_0000 + 2 * n, 1, 100_000));
            Duration::ZERO
        })
    }),
    ("D. half-open requests of 200 B, 30,000 at once", |hosts, n| {
        (n < 30_000).then(|| {
            send(hosts, n, first(invented(n), 56, 200));
            Duration::ZERO
        })
    }),
    ("D. the same, 10,000 a second", |hosts, n| {
        send(hosts, n, first(invented(n), 56, 200));
        Some(Duration::from_micros(100))
    }),
    ("F. one byte at offset 50,000 of 100 KB, 10,000 a second", |hosts, n| {
        send(hosts, n, part(invented(n), 50_000, &[1], 100_000));
        Some(Duration::from_micros(100))
    }),
    ("F. 8 hosts that answer: the same, 10,000 a second", |hosts, n| {
        hosts[(n % 8) as usize].answer();
        send(&mut hosts[..8], n, part(0x8765_4321_0000_0000 + 2 * n, 50_000, &[1], 100_000));
        Some(Duration::from_micros(100))
    }),
    ("H. GRANTs about nothing, 10,000 a second", |hosts, n| {
        let grant = Body::Grant { offset: 1 << 20, priority: 7 };
        send(hosts, n, control(RpcId(invented(n)), grant));
        Some(Duration::from_micros(100))
    }),
    ("K. small requests of one client that answers, 20,000 a second", |hosts, n| {
        hosts[0].send(&first(0x8765_4321_0000_0000 + 2 * n, 20, 20));
        hosts[0].answer();
        Some(Duration::from_micros(50))
    }),
];

fn send(hosts: &mut [Host], n: u64, bytes: Vec<u8>) {
    let count = hosts.len() as u64;
    hosts[(n % count) as usize].send(&bytes);
}

#[test]
fn table() {
    let Ok(letters) = std::env::var("HOMA_HOSTILE_TABLE") else {
        return skip::test("HOMA_HOSTILE_TABLE=BDFHK, and a minute alone: it measures");
    };
    println!("| attack | small calls/s | beside the attack | large calls/s | beside the attack |");
    println!("|---|---|---|---|---|");
    for (name, attack) in ATTACKS.iter().filter(|(name, _)| letters.contains(&name[..1])) {
        let (server, _) = serving(Config::default());
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let beside = |victim| {
            let hosts: Vec<Host> = (0..HOSTS).map(|n| host(n, victim)).collect();
            let hosts = std::sync::Mutex::new(hosts);
            rates(server.local_addr(), |n| attack(&mut hosts.lock().unwrap(), n))
        };
        let alone = beside(nobody.local_addr().unwrap());
        let besieged = beside(server.local_addr());
        println!(
            "| {name} | {:.0} | {:.0} % | {:.0} | {:.0} % |",
            alone.0,
            100.0 * besieged.0 / alone.0,
            alone.1,
            100.0 * besieged.1 / alone.1,
        );
    }
}
