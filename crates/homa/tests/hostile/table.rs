//! Measures the attacks at full size, for the table of `docs/security.md`.
//!
//! Attacker, client and server share the processors of one machine, so sending an attack also costs
//! time. Therefore a client's rates during an attack are compared with its rates while the same
//! packets are sent to a socket that no process reads.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::Config;

use super::attacks::{Attack, HOSTS, PRESSURE};
use super::host::Host;
use super::pressure::{calls, host, serving};

const LASTS: Duration = Duration::from_secs(3);

/// Returns the small and large calls per second of a good client while hosts attack `victim`.
fn rates(server: SocketAddr, attack: &Attack, victim: SocketAddr) -> (f64, f64) {
    let mut hosts: Vec<Host> = (0..HOSTS).map(|n| host(n, victim)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..attack.packets.unwrap_or(u64::MAX) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                (attack.send)(&mut hosts, n);
                if !attack.pause.is_zero() {
                    thread::sleep(attack.pause);
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

#[test]
fn table() {
    let Ok(letters) = std::env::var("HOMA_HOSTILE_TABLE") else {
        return skip::test("HOMA_HOSTILE_TABLE=BDFHK, and a minute alone: it measures");
    };
    println!("| attack | small calls/s | beside the attack | large calls/s | beside the attack |");
    println!("|---|---|---|---|---|");
    for attack in PRESSURE.iter().filter(|attack| letters.contains(&attack.name[..1])) {
        let (server, _) = serving(Config::default());
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let beside = |victim| rates(server.local_addr(), attack, victim);
        let alone = beside(nobody.local_addr().unwrap());
        let besieged = beside(server.local_addr());
        println!(
            "| {} | {:.0} | {:.0} % | {:.0} | {:.0} % |",
            attack.name,
            alone.0,
            100.0 * besieged.0 / alone.0,
            alone.1,
            100.0 * besieged.1 / alone.1,
        );
    }
}
