//! An address that has not proven that it receives gets at most three times the bytes that it sent.

use std::thread;
use std::time::Duration;

use homa::Config;
use homa::inline::{Completion, Engine, Wait};
use homa::proto::{Acks, Body, ResendLength, RpcId};

use super::host::{Host, control, first};

/// Takes turns with a server that answers every request with 16 MB.
fn generous(server: &mut Engine, turns: usize) -> usize {
    let mut answered = 0;
    for _ in 0..turns {
        server.turn();
        while let Some(completion) = server.next() {
            if let Completion::Request { id, .. } = completion {
                let _ = server.reply(id, vec![1; 16 << 20]);
                answered += 1;
            }
        }
    }
    answered
}

fn server() -> Engine {
    let mut server = Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    server.listen().unwrap();
    server
}

#[test]
fn an_unvalidated_sender_gets_at_most_three_times_its_bytes() {
    let all = Body::Resend { offset: 0, length: ResendLength::All, priority: 7 };
    let grant = Body::Grant { offset: 16 << 20, priority: 7 };
    let unknown = Body::RpcUnknown { remembered: None, no_server: false, reason: None };
    let bodies = [
        grant,
        all,
        Body::NeedAck,
        Body::Busy { come_back: None },
        unknown,
        Body::Ack(Acks::default()),
    ];
    let requests: [(usize, u32); 5] =
        [(1, 1), (56, 56), (1, 100_000), (1, 16 << 20), (1_400, 2_000)];
    for (len, total) in requests {
        let mut server = server();
        let mut host = Host::new(server.local_addr());
        for round in 0..40u64 {
            let id = 0x8765_4321_0000_0000 + 2 * (round / 4 + 1);
            if round % 4 == 0 {
                host.send(&first(id, len, total));
            }
            for body in bodies {
                let from = if matches!(body, Body::NeedAck) { id | 1 } else { id };
                host.send(&control(RpcId(from), body));
                // The same about RPCs that do not exist.
                host.send(&control(RpcId(from + 1_000_000), body));
                assert_eq!(generous(&mut server, 2), 0, "the host never answers");
                host.read();
                assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
            }
            thread::sleep(Duration::from_millis(3));
        }
        // Packets that timers send.
        for _ in 0..60 {
            generous(&mut server, 2);
            thread::sleep(Duration::from_millis(5));
        }
        host.read();
        assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
        assert!(host.got.payload > 0, "the host got a challenge");
    }
}

#[test]
fn one_packet_brings_a_few_and_then_silence() {
    for (len, total) in [(1, 1), (56, 56), (1, 100_000), (1_400, 16 << 20)] {
        let mut server = server();
        let mut host = Host::new(server.local_addr());
        host.send(&first(0x8765_4321_0000_0042, len, total));
        let mut got = 0;
        for _ in 0..40 {
            generous(&mut server, 2);
            thread::sleep(Duration::from_millis(5));
            got += host.read().len();
        }
        assert!((1..=4).contains(&got), "{got} datagrams");
        assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
    }
}

#[test]
fn a_client_that_answers_the_challenge_is_served() {
    let mut server = server();
    let mut host = Host::new(server.local_addr());
    host.send(&first(0x8765_4321_0000_0042, 100, 100));
    let mut answered = 0;
    while answered == 0 {
        answered += generous(&mut server, 1);
        host.answer();
    }
    // One packet is enough.
    host.send(&first(0x8765_4321_0000_0044, 100, 100));
    while answered == 1 {
        answered += generous(&mut server, 1);
        host.read();
    }
    server.poll(Wait::No).unwrap();
    assert_eq!(server.metrics().protocol.challenges_sent, 1);
}
