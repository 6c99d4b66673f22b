//! Requests and responses that are written while they are sent: over sockets, with loss, and
//! encrypted; and what the other end learns if their writer gives up.

use std::io::Write;
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::error::WriteError;
use homa::metrics::{Direction, Latency, RpcOutcome};
use homa::{CallError, CallOptions, Config, Engine, Keys, RequestError, Server};

use crate::common::{echo, engine, message};

const GIVE_UP: Duration = Duration::from_secs(60);
const LONG: usize = 1_000_000;

fn ends(config: fn() -> Config) -> (Engine, Server) {
    let (client, server) = (engine("127.0.0.1", config()), engine("127.0.0.1", config()));
    (client, server.serve().unwrap())
}

/// The same over a network that loses and repeats packets.
fn lossy(seed: u64) -> (Engine, Server) {
    let faults = NetworkFaults::NONE.lost(20_000).duplicated(20_000);
    let network = MemoryNetwork::new(seed, faults);
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    (open("10.0.0.1:0"), open("10.0.0.2:0").serve().unwrap())
}

fn keys() -> Config {
    Config::default().keys(Keys::cluster([1; 32]).unwrap())
}

/// Answers with the request, piece by piece as it arrives.
fn echo_in_pieces(server: Server) {
    while let Some(mut request) = server.accept() {
        let bytes = request.take_bytes();
        let mut response = request.reply_writer(bytes.len()).unwrap();
        for piece in bytes.chunks(7_001) {
            response.write_all(piece).unwrap();
        }
        response.finish().unwrap();
    }
}

#[test]
fn messages_of_any_length_are_written_in_pieces() {
    let options = CallOptions::default();
    for (client, server) in [ends(Config::default), ends(keys), lossy(1), lossy(2)] {
        let (to, serving) = (server.local_addr(), server.clone());
        let served = thread::spawn(move || echo_in_pieces(serving));
        for length in [0, 1, 1_300, 1_500, 10_000, 100_000, LONG] {
            for piece in [1 + length / 3, 13_000] {
                let sent = message(length, length as u64);
                let mut request = client.client().call_writer(to, length, &options).unwrap();
                for (n, bytes) in sent.chunks(piece).enumerate() {
                    request.push(bytes).unwrap();
                    if n < 3 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                assert!(request.finish().unwrap().wait().unwrap()[..] == sent, "{length} {piece}");
            }
        }
        let engine = server.engine();
        engine.drain(GIVE_UP).unwrap();
        served.join().unwrap();
        assert_eq!(engine.metrics().engine.send_memory_bytes, 0);
    }
}

#[test]
fn a_pause_of_one_writer_delays_no_other_call() {
    let (client, server) = ends(Config::default);
    let to = server.local_addr();
    echo(server);
    let (sent, options) = (message(LONG, 1), CallOptions::default());
    let mut first = client.client().call_writer(to, LONG, &options).unwrap();
    let mut second = client.client().call_writer(to, LONG, &options).unwrap();
    for half in sent.chunks(LONG / 2) {
        first.push(half).unwrap();
        second.push(half).unwrap();
        for n in 0..10 {
            let other = message(300_000, n);
            assert!(client.client().call(to, other.clone()).unwrap()[..] == other);
        }
    }
    for writer in [first, second] {
        assert!(writer.finish().unwrap().wait().unwrap()[..] == sent);
    }
}

#[test]
fn a_request_that_is_given_up_ends_its_reader() {
    let (client, server) = ends(Config::default);
    let server = server.early(1 << 20);
    let options = CallOptions::default();
    for finish in [true, false] {
        let mut call = client.client().call_writer(server.local_addr(), LONG, &options).unwrap();
        call.push(&[1; 100_000]).unwrap();
        let mut request = server.accept().unwrap();
        assert!(!request.arrived().unwrap().unwrap().is_empty());
        match finish {
            true => {
                let missing = LONG - 100_000;
                assert_eq!(call.finish().unwrap_err(), WriteError::Unfinished { missing });
            }
            false => drop(call),
        }
        let end = loop {
            match request.arrived() {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert_eq!(end, Err(RequestError::Gone));
    }
}

#[test]
fn a_response_that_is_given_up_ends_its_call() {
    for (client, server) in [ends(Config::default), ends(keys), lossy(3)] {
        for written in [0, 100_000] {
            let call = client.client().call_async(server.local_addr(), "a table");
            let mut response = server.accept().unwrap().reply_writer(LONG).unwrap();
            response.push(&vec![1; written]).unwrap();
            let missing = LONG - written;
            assert_eq!(response.left(), missing);
            assert_eq!(response.finish(), Err(WriteError::Unfinished { missing }));
            assert_eq!(call.wait(), Err(CallError::Abandoned), "{written}");
        }
        assert_eq!(server.engine().metrics().engine.send_memory_bytes, 0);
    }
}

#[test]
fn more_than_the_declared_length_is_refused() {
    let (client, server) = ends(Config::default);
    let to = server.local_addr();
    let options = CallOptions::default();
    let mut call = client.client().call_writer(to, 10, &options).unwrap();
    assert_eq!(call.push(&[1; 11]), Err(WriteError::TooLong { left: 10 }));
    call.push(&[1; 10]).unwrap();
    assert_eq!(call.push(&[1]), Err(WriteError::TooLong { left: 0 }));
    let call = call.finish().unwrap();
    let mut response = server.accept().unwrap().reply_writer(3).unwrap();
    assert_eq!(response.push(&[2; 4]), Err(WriteError::TooLong { left: 3 }));
    response.push(&[2; 3]).unwrap();
    response.finish().unwrap();
    assert_eq!(call.wait().unwrap(), [2; 3]);
    let error = client.client().call_writer(to, usize::MAX, &options).unwrap_err();
    assert!(matches!(error, CallError::MessageTooLong { .. }), "{error}");
    let call = client.client().call_async(to, "more");
    let refused = server.accept().unwrap().reply_writer(64 << 20).unwrap_err();
    refused.request.reply("less").unwrap();
    assert_eq!(call.wait().unwrap(), *b"less");
}

#[test]
fn a_writer_learns_that_its_call_has_ended() {
    let (client, server) = ends(Config::default);
    let server = server.early(1 << 20);
    let to = server.local_addr();
    // The server answers before the request is whole.
    let mut call = client.client().call_writer(to, LONG, &CallOptions::default()).unwrap();
    call.push(&[1; 100_000]).unwrap();
    server.accept().unwrap().reply("enough").unwrap();
    while call.push(&[1; 10]).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(call.push(&[1]), Err(WriteError::Gone));
    assert_eq!(call.finish().unwrap().wait().unwrap(), *b"enough");
    // The deadline passes while the writer pauses.
    let options = CallOptions::deadline(Duration::from_millis(30));
    let mut call = client.client().call_writer(to, LONG, &options).unwrap();
    call.push(&[1; 100_000]).unwrap();
    let request = server.accept().unwrap();
    while call.push(&[]).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(call.finish().unwrap().wait(), Err(CallError::DeadlineExceeded));
    drop(request);
    // The client gives up while the response is written.
    let call = client.client().call_async(to, "a table");
    let mut response = server.accept().unwrap().reply_writer(LONG).unwrap();
    drop(call);
    while response.push(&[1]).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(response.finish(), Err(WriteError::Gone));
}

#[test]
fn a_written_response_counts_when_it_is_whole() {
    let (client, server) = ends(Config::default);
    let (to, calling) = (server.local_addr(), client.client());
    let ended = |outcome| {
        let latencies = server.engine().metrics().latencies;
        let ours = |l: &&Latency| l.direction == Direction::Server && l.outcome == outcome;
        latencies.iter().filter(ours).map(|l| l.times.count()).sum::<u64>()
    };
    for whole in [true, false] {
        let call = calling.call_async(to, "a table");
        let mut response = server.accept().unwrap().reply_writer(LONG).unwrap();
        response.push(&vec![1; LONG / 2]).unwrap();
        assert_eq!(ended(RpcOutcome::Ok), u64::from(!whole), "its second half is missing");
        if whole {
            response.push(&vec![2; LONG / 2]).unwrap();
            assert_eq!(call.wait().unwrap().len(), LONG);
        } else {
            drop(response);
            assert_eq!(call.wait().unwrap_err(), CallError::Abandoned);
        }
        assert_eq!((ended(RpcOutcome::Ok), ended(RpcOutcome::Dropped)), (1, u64::from(!whole)));
    }
}
