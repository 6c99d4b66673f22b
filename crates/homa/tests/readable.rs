//! Long messages can be read while they arrive, in both directions and through both engines.

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use common::{engine, message};
use homa::driver::memory::{Faults, Network};
use homa::inline::{Completion, Engine, Partial, Wait};
use homa::{CallError, CallOptions, Config};

const SIZE: usize = 300_000;

fn config() -> Config {
    let mut config = Config::default();
    config.protocol.readable_events = true;
    config
}

/// What was read of a message so far: always its beginning, and never less than before.
#[derive(Default)]
struct Reader {
    last: Option<Partial>,
    seen: usize,
    looks: usize,
}

impl Reader {
    fn look(&mut self, engine: &Engine, partial: Partial, whole: &[u8]) {
        // The rest may have come since this was reported.
        let Some(bytes) = engine.read(&partial) else { return };
        assert!(bytes.len() >= partial.readable() && bytes.len() >= self.seen);
        assert!(bytes[self.seen..] == whole[self.seen..bytes.len()]);
        (self.seen, self.looks, self.last) = (bytes.len(), self.looks + 1, Some(partial));
    }
}

#[test]
fn both_messages_of_an_rpc_are_read_before_they_are_whole() {
    let network = Network::new(1, Faults::NONE.lost(10_000).duplicated(10_000));
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), config()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen();
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
    let network = Network::new(1, Faults::default());
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen();
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
fn a_request_refused_while_it_arrives_ends_the_call_and_is_not_seen_again() {
    let network = Network::new(1, Faults::default());
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), config()).unwrap()
    };
    let (mut client, mut server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen();
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
    assert_eq!((result.unwrap_err(), refused), (CallError::Indeterminate, 1));
    assert_eq!(server.in_progress(), (0, 0));
}

#[test]
fn a_task_reads_a_response_piece_by_piece_and_then_has_the_whole() {
    let mut server = Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    server.listen();
    let to = server.local_addr();
    let client = engine("127.0.0.1", config()).client();
    let whole = message(4 << 20, 3);
    let mut reading = pin!(async {
        let mut call = client.call_async(to, whole.clone());
        let mut seen = Vec::new();
        let mut pieces = 0;
        while let Some(piece) = call.arrived(seen.len()).await {
            assert!(!piece.is_empty());
            seen.extend_from_slice(&piece);
            pieces += 1;
        }
        assert!(pieces > 1, "{pieces} pieces");
        assert!(whole.starts_with(&seen));
        assert!(call.await.unwrap()[..] == whole);
    });
    // The server takes a turn only after the task has looked, so the task cannot come too late.
    let mut context = Context::from_waker(Waker::noop());
    while reading.as_mut().poll(&mut context).is_pending() {
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, bytes, .. }) = server.next() {
            server.reply(id, bytes).unwrap();
        }
    }
}
