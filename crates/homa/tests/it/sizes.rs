//! Messages of every size arrive complete, over every driver, with and without loss.

use std::thread;
use std::time::Duration;

use bytes::Bytes;
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{Completion, Engine, Wait};
use homa::{CallOptions, Config};

use crate::common::{echo, engine, message};

const SIZES: [usize; 16] = [
    1,
    2,
    99,
    100,
    599,
    600,
    601,
    1399,
    1400,
    1401,
    9_999,
    65_536,
    100_000,
    1_000_000,
    5_000_001,
    16 << 20,
];

/// Echoes messages one after the other between two inline engines on this thread.
fn echo_inline(network: &MemoryNetwork, sizes: &[usize]) -> (Engine, Engine) {
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen().unwrap();
    let options = CallOptions::deadline(Duration::from_secs(60));
    for (cookie, &size) in sizes.iter().enumerate() {
        let request = message(size, cookie as u64);
        client.call(server.local_addr(), request.clone(), cookie as u64, &options).unwrap();
        loop {
            client.poll(Wait::No).unwrap();
            server.poll(Wait::No).unwrap();
            while let Some(completion) = server.next() {
                if let Completion::Request { id, bytes, .. } = completion {
                    server.reply(id, bytes).unwrap();
                }
            }
            if let Some(Completion::Response { cookie: got, result, .. }) = client.next() {
                assert_eq!(got, cookie as u64);
                assert!(result.unwrap()[..] == request, "{size} bytes");
                break;
            }
        }
    }
    (client, server)
}

#[test]
fn every_size_is_echoed_in_memory() {
    let (client, server) = echo_inline(&MemoryNetwork::new(1, NetworkFaults::default()), &SIZES);
    assert_eq!(server.metrics().protocol.requests_delivered, SIZES.len() as u64);
    assert_eq!(client.metrics().engine.send_memory_bytes, 0, "requests are released");
}

#[test]
fn every_size_survives_loss_and_duplication() {
    let faults = NetworkFaults::NONE.lost(10_000).duplicated(10_000);
    for seed in 1..4 {
        let (_, server) = echo_inline(&MemoryNetwork::new(seed, faults), &SIZES);
        let executed = server.metrics().protocol.requests_delivered;
        assert_eq!(executed, SIZES.len() as u64, "each request is executed once (seed {seed})");
    }
}

#[test]
fn lists_of_any_parts_arrive_as_one_message_in_both_directions() {
    let whole = Bytes::from(message(150_000, 7));
    for (ip, longest) in ["127.0.0.1", "::1"].into_iter().zip([3, 20_000]) {
        let server = engine(ip, Config::default()).serve().unwrap();
        let (to, size, accepting) = (server.local_addr(), whole.len(), server.clone());
        let serving = thread::spawn(move || {
            let mut request = accepting.accept().unwrap();
            let bytes = request.take_bytes().into_bytes();
            let (front, back) = (bytes.slice(..size / 3), bytes.slice(size / 3..));
            request.reply([back, front]).unwrap();
        });
        // The parts have lengths from 1 up to the longest, so that they end anywhere in packets.
        let (mut parts, mut rest, mut len) = (Vec::new(), whole.clone(), 1);
        while !rest.is_empty() {
            parts.push(rest.split_to(len.min(rest.len())));
            len = len * 7 % longest + 1;
        }
        let response = engine(ip, Config::default()).client().call(to, parts).unwrap();
        assert!(response[..] == [&whole[size / 3..], &whole[..size / 3]].concat(), "{longest}");
        serving.join().unwrap();
    }
}

#[test]
fn every_size_is_echoed_over_udp_on_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let server = engine(ip, Config::default());
        let to = server.local_addr();
        let echo = echo(server.serve().unwrap());
        let client = engine(ip, Config::default());
        for (seed, size) in SIZES.into_iter().enumerate() {
            let request = message(size, seed as u64);
            let response = client.client().call(to, request.clone()).unwrap();
            assert!(response[..] == request, "{size} bytes over {ip}");
        }
        client.drain(Duration::from_secs(5)).unwrap();
        server.drain(Duration::from_secs(5)).unwrap();
        assert_eq!(echo.join().unwrap(), SIZES.len());
    }
}
