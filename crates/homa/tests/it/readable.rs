//! Long messages can be read while they arrive, in both directions and with both kinds of engine.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{Completion, Engine, Partial, Wait};
use homa::{CallError, CallOptions, Client, Config};

use crate::common::message;

const SIZE: usize = 300_000;

fn config() -> Config {
    let mut config = Config::default();
    config.protocol.readable_events = true;
    config
}

/// The bytes of a message that were read so far. They always start at the beginning, and never
/// become fewer.
#[derive(Default)]
struct Reader {
    last: Option<Partial>,
    seen: usize,
    looks: usize,
}

impl Reader {
    fn look(&mut self, engine: &Engine, partial: Partial, whole: &[u8]) {
        // The rest may have arrived since this was reported.
        let Some(bytes) = engine.read(&partial) else { return };
        assert!(bytes.len() >= partial.readable() && bytes.len() >= self.seen);
        assert!(bytes[self.seen..] == whole[self.seen..bytes.len()]);
        (self.seen, self.looks, self.last) = (bytes.len(), self.looks + 1, Some(partial));
    }
}

#[test]
fn both_messages_of_an_rpc_are_read_before_they_are_whole() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE.lost(10_000).duplicated(10_000));
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), config()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen().unwrap();
    let whole = message(SIZE, 1);
    let options = CallOptions::default();
    let id = client.call(server.local_addr(), whole.clone(), 7, &options).unwrap();
    let (mut request, mut response) = (Reader::default(), Reader::default());
    loop {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        match server.next() {
            Some(Completion::Readable { message, .. }) => {
                assert!(message.request().is_some() && message.response_of().is_none());
                request.look(&server, message, &whole);
            }
            Some(Completion::Request { id, bytes, .. }) => {
                assert_eq!(request.last.and_then(|last| last.request()), Some(id));
                assert!(request.last.is_some_and(|last| server.read(&last).is_none()), "delivered");
                server.reply(id, bytes).unwrap();
            }
            _ => {}
        }
        match client.next() {
            Some(Completion::Readable { message, cookie, .. }) => {
                assert_eq!((message.response_of(), cookie), (Some(id), 7));
                response.look(&client, message, &whole);
            }
            Some(Completion::Response { result, .. }) => {
                assert!(result.unwrap()[..] == whole);
                break;
            }
            _ => {}
        }
    }
    assert!(request.looks > 3 && response.looks > 3, "several pieces each");
}

#[test]
fn nothing_is_reported_unless_asked_for() {
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen().unwrap();
    client.call(server.local_addr(), vec![1; SIZE], 7, &CallOptions::default()).unwrap();
    loop {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        match server.next() {
            Some(Completion::Request { .. }) => break,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

#[test]
fn a_request_refused_while_arriving_ends_the_call() {
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), config()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen().unwrap();
    client.call(server.local_addr(), vec![1; SIZE], 7, &CallOptions::default()).unwrap();
    let mut refused = 0;
    let result = loop {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        match server.next() {
            Some(Completion::Readable { message, .. }) => {
                refused += usize::from(server.refuse(message.request().unwrap()));
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if let Some(Completion::Response { result, .. }) = client.next() {
            break result;
        }
    };
    assert_eq!((result.unwrap_err(), refused), (CallError::Abandoned, 1));
    assert_eq!(server.in_progress(), (0, 0));
}

/// Polls a task that calls a server which echoes. The server takes a turn only after the task has
/// looked, so the task never misses a piece.
fn with_echo<F: Future<Output = ()>>(
    faults: NetworkFaults,
    task: impl FnOnce(Client, SocketAddr) -> F,
) {
    let network = MemoryNetwork::new(1, faults);
    let driver = |at: &str| Box::new(network.driver(at.parse().unwrap()).unwrap());
    let mut server = Engine::with_driver(driver("10.0.0.2:0"), Config::default()).unwrap();
    server.listen().unwrap();
    let client = homa::Engine::with_driver(driver("10.0.0.1:0"), config()).unwrap().client();
    let mut reading = pin!(task(client, server.local_addr()));
    let mut context = Context::from_waker(Waker::noop());
    while reading.as_mut().poll(&mut context).is_pending() {
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, bytes, .. }) = server.next() {
            server.reply(id, bytes).unwrap();
        }
    }
}

#[test]
fn a_task_reads_a_response_in_pieces_and_then_as_a_whole() {
    with_echo(NetworkFaults::NONE.lost(10_000).duplicated(10_000), async |client, to| {
        let whole = message(4 << 20, 3);
        let mut call = client.call_async(to, whole.clone());
        let mut seen = Vec::new();
        let mut pieces = 0;
        while let Some(piece) = call.arrived(seen.len()).await {
            assert!(!piece.is_empty());
            if pieces % 2 == 0 {
                // More bytes arrive while the piece is read.
                client.call_async(to, "ping").await.unwrap();
            }
            seen.extend_from_slice(&piece);
            pieces += 1;
        }
        assert!(pieces > 1, "{pieces} pieces");
        assert!(whole.starts_with(&seen));
        assert!(call.await.unwrap()[..] == whole);
    });
}

#[test]
fn a_part_that_is_read_stays_valid_when_the_response_completes() {
    with_echo(NetworkFaults::NONE, async |client, to| {
        let whole = message(4 << 20, 4);
        let mut call = client.call_async(to, whole.clone());
        let mut seen = 0;
        let mut place = None;
        while let Some(piece) = call.arrived(seen).await {
            assert!(piece[..] == whole[seen..seen + piece.len()]);
            seen += piece.len();
            // By now there is memory for the whole message.
            if seen > 200_000 {
                while client.engine().metrics().engine.calls_in_progress > 0 {
                    client.call_async(to, "ping").await.unwrap();
                }
                place = Some(piece.as_ptr_range().end);
            }
        }
        let response = call.await.unwrap();
        assert!(response[..] == whole);
        assert_eq!(place, Some(response[..seen].as_ptr_range().end));
    });
}
