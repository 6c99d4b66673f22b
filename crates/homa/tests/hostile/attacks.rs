//! The attacks at full size, one packet at a time.

use std::time::Duration;

use homa::proto::{Acks, Body, ResendLength, RpcId};

use super::host::{Host, control, first, part};
use super::pressure::invented;

/// The number of attacking hosts.
pub const HOSTS: usize = 200;
/// The epoch of the hosts that answer as clients do.
const ANSWERING: u64 = 0x8765_4321_0000_0000;

/// An attack.
pub struct Attack {
    /// The name, with its letter in the table of `docs/security.md`.
    pub name: &'static str,
    /// The time between two packets.
    pub pause: Duration,
    /// The number of packets, if the attack ends by itself.
    pub packets: Option<u64>,
    /// Sends the `n`th packet from one of [`HOSTS`] hosts.
    pub send: fn(&mut [Host], u64),
}

fn by_turns(hosts: &mut [Host], n: u64, bytes: &[u8]) {
    let count = hosts.len() as u64;
    hosts[(n % count) as usize].send(bytes);
}

const TEN_THOUSAND_A_SECOND: Duration = Duration::from_micros(100);

/// Attacks that slow down a good client, in the order of the table.
pub const PRESSURE: [Attack; 8] = [
    Attack {
        name: "B. spoofed: one byte of an announced 100 KB, 500 a second",
        pause: Duration::from_millis(2),
        packets: None,
        send: |hosts, n| by_turns(hosts, n, &first(invented(n), 1, 100_000)),
    },
    Attack {
        name: "B. 8 hosts that answer: 500 such requests each, at once",
        pause: Duration::ZERO,
        packets: Some(4_000),
        send: |hosts, n| {
            hosts[..8].iter_mut().for_each(|host| drop(host.answer()));
            by_turns(&mut hosts[..8], n, &first(ANSWERING + 2 * n, 1, 100_000));
        },
    },
    Attack {
        name: "D. half-open requests of 200 B, 30,000 at once",
        pause: Duration::ZERO,
        packets: Some(30_000),
        send: |hosts, n| by_turns(hosts, n, &first(invented(n), 56, 200)),
    },
    Attack {
        name: "D. the same, 10,000 a second",
        pause: TEN_THOUSAND_A_SECOND,
        packets: None,
        send: |hosts, n| by_turns(hosts, n, &first(invented(n), 56, 200)),
    },
    Attack {
        name: "F. one byte at offset 50,000 of 100 KB, 10,000 a second",
        pause: TEN_THOUSAND_A_SECOND,
        packets: None,
        send: |hosts, n| by_turns(hosts, n, &part(invented(n), 50_000, &[1], 100_000)),
    },
    Attack {
        name: "F. 8 hosts that answer: the same, 10,000 a second",
        pause: TEN_THOUSAND_A_SECOND,
        packets: None,
        send: |hosts, n| {
            hosts[(n % 8) as usize].answer();
            by_turns(&mut hosts[..8], n, &part(ANSWERING + 2 * n, 50_000, &[1], 100_000));
        },
    },
    Attack {
        name: "H. GRANTs that refer to no RPC, 10,000 a second",
        pause: TEN_THOUSAND_A_SECOND,
        packets: None,
        send: |hosts, n| {
            let grant = Body::Grant { offset: 1 << 20, priority: 7 };
            by_turns(hosts, n, &control(RpcId(invented(n)), grant));
        },
    },
    Attack {
        name: "K. small requests of one client that answers, 20,000 a second",
        pause: Duration::from_micros(50),
        packets: None,
        send: |hosts, n| {
            hosts[0].send(&first(ANSWERING + 2 * n, 20, 20));
            hosts[0].answer();
        },
    },
];

/// Attacks with another aim: the owner of a source address, memory of past calls, or clocks.
pub const OTHERS: [Attack; 3] = [
    Attack {
        name: "A, C. requests for long responses, and GRANT and RESEND for these",
        pause: Duration::from_millis(2),
        packets: None,
        send: |hosts, n| {
            let (count, id) = (hosts.len() as u64, invented(n));
            let host = &mut hosts[(n % count) as usize];
            host.send(&first(id, 56, 56));
            host.send(&control(RpcId(id), Body::Grant { offset: 16 << 20, priority: 7 }));
            let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
            host.send(&control(RpcId(id), all));
        },
    },
    Attack {
        name: "H. new epochs of clients that are not validated, from one host",
        pause: Duration::from_millis(2),
        packets: None,
        send: |hosts, n| hosts[9].send(&first(invented(n), 20, 20)),
    },
    Attack {
        name: "J. CUTOFFS, RPC_UNKNOWN and ACK that refer to no RPC",
        pause: Duration::from_millis(2),
        packets: None,
        send: |hosts, n| {
            let cutoffs = Body::Cutoffs { cutoffs: [1; 8], version: n as u16, limits: None };
            let unknown = Body::RpcUnknown { remembered: None, no_server: true, reason: None };
            for body in [cutoffs, unknown, Body::Ack(Acks::default())] {
                by_turns(hosts, n, &control(RpcId(invented(n)), body));
            }
        },
    },
];
