//! Messages in pieces over a socket: requests that are read while they arrive, by threads that wait
//! and by a loop that polls, and messages that are written while they are sent.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::error::WriteError;
use homa::socket::{CallFailure, Id, ReadError, ReceiveError, SendOptions, Socket};
use homa::socket::{SocketEvent, Wanted};
use homa::{CallError, CallOptions, Client, Config, ReplyError, RequestError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::common::message;

const WINDOW: usize = 256 << 10;
const LONG: usize = 4 << 20;
const SOON: Duration = Duration::from_secs(5);

fn socket() -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

fn early() -> Socket {
    let server = socket();
    server.listen_early(WINDOW).unwrap();
    server
}

fn readable(socket: &Socket, within: Duration) -> bool {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::try_from(within).unwrap()).unwrap() > 0
}

/// Receives the first bytes of a request: its id and whole length.
fn request(server: &Socket) -> (Id, usize) {
    match server.receive(Wanted::Requests).unwrap() {
        SocketEvent::Request { id, bytes, total, .. } => {
            assert!(bytes.is_empty() || bytes.len() == total);
            (id, total)
        }
        other => panic!("{other:?}"),
    }
}

/// Reads a request to its end, or until it fails.
fn rest(server: &Socket, id: Id) -> Result<Vec<u8>, ReadError> {
    let mut all = Vec::new();
    while let Some(piece) = server.read(id)? {
        assert!(!piece.is_empty());
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// A call that has sent a part of its request, which the server has read.
fn half_sent(client: &Socket, server: &Socket) -> (Id, Id) {
    let call = client.begin_send(server.local_addr(), LONG, &SendOptions::default()).unwrap();
    client.write(call, &message(LONG, 1)[..300_000]).unwrap();
    let (id, total) = request(server);
    assert_eq!(total, LONG);
    let mut read = 0;
    // A packet that is not full waits for more.
    while read < 200_000 {
        read += server.read(id).unwrap().expect("more to come").len();
    }
    (call, id)
}

/// Reads a request by polling until it fails.
fn poll_to_its_end(server: &Socket, id: Id) -> ReadError {
    loop {
        match server.try_read(id) {
            Ok(piece) => assert!(piece.is_some(), "whole"),
            Err(ReadError::WouldBlock) => {
                assert!(readable(server, SOON));
                match server.try_receive(Wanted::Any) {
                    Ok(SocketEvent::More { id: of, .. }) => assert_eq!(of, id),
                    other => panic!("{other:?}"),
                }
            }
            Err(end) => return end,
        }
    }
}

fn fails_with(client: &Socket, call: Id) -> CallFailure {
    match client.receive(Wanted::Call(call)).unwrap() {
        SocketEvent::Response { result: Err(failure), .. } => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_read_requests_while_they_arrive() {
    let server = early();
    let to = server.local_addr();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let (id, bytes) = match server.receive(Wanted::Requests) {
                        Ok(SocketEvent::Request { id, bytes, .. }) => (id, bytes),
                        end => return assert_eq!(end.unwrap_err(), ReceiveError::Closed),
                    };
                    let all = [&bytes[..], &rest(&server, id).unwrap()].concat();
                    server.reply(id, None, all).unwrap();
                }
            });
        }
        let client = Client::new().unwrap();
        for (n, length) in [0, 1, 1_300, 1_500, 100_000, LONG].into_iter().enumerate() {
            let sent = message(length, n as u64);
            assert!(client.call(to, sent.clone()).unwrap()[..] == sent, "{length} bytes");
        }
        server.close();
    });
}

#[test]
fn a_loop_that_polls_reads_many_requests_at_a_time() {
    const CALLS: usize = 6;
    let server = early();
    let to = server.local_addr();
    let calling = thread::spawn(move || {
        let client = Client::new().unwrap();
        let calls = (0..CALLS as u64).map(|n| client.call_async(to, message(LONG, n)));
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|call| call.wait().unwrap().into_vec()).collect::<Vec<_>>()
    });
    let (mut reading, mut reports, mut answered) = (Vec::new(), 0, 0);
    while answered < CALLS {
        assert!(readable(&server, SOON), "{answered} answered, {} are read", reading.len());
        let id = match server.try_receive(Wanted::Any).unwrap() {
            SocketEvent::Request { id, total, .. } => {
                assert_eq!(total, LONG);
                reading.push((id, Vec::new()));
                id
            }
            SocketEvent::More { id, left, .. } => {
                let (_, all) = reading.iter().find(|(other, _)| *other == id).unwrap();
                assert_eq!(left, LONG - all.len());
                reports += 1;
                id
            }
            other => panic!("{other:?}"),
        };
        let at = reading.iter().position(|(other, _)| *other == id).unwrap();
        loop {
            match server.try_read(id) {
                Ok(Some(piece)) => reading[at].1.extend_from_slice(&piece),
                Err(error) => break assert_eq!(error, ReadError::WouldBlock),
                Ok(None) => {
                    server.reply(id, None, reading.swap_remove(at).1).unwrap();
                    break answered += 1;
                }
            }
        }
    }
    assert!(reports >= CALLS, "{reports}");
    assert!(!readable(&server, Duration::ZERO), "nothing is left");
    let whole: Vec<_> = (0..CALLS as u64).map(|n| message(LONG, n)).collect();
    assert!(calling.join().unwrap() == whole);
}

#[test]
fn a_slow_reader_of_a_socket_bounds_memory() {
    let (client, server) = (socket(), early());
    let call = client.send(server.local_addr(), message(LONG, 7), &SendOptions::default()).unwrap();
    let (id, _) = request(&server);
    let (mut most, mut read) = (0, 0);
    while let Some(piece) = server.read(id).unwrap() {
        thread::sleep(Duration::from_millis(1));
        most = most.max(server.metrics().engine.receive_memory_bytes);
        read += piece.len();
    }
    assert_eq!(read, LONG);
    assert!(most <= 2 * WINDOW as u64, "{most} bytes were held");
    server.reply(id, None, "thanks").unwrap();
    assert!(matches!(
        client.receive(Wanted::Call(call)).unwrap(),
        SocketEvent::Response { result: Ok(_), .. }
    ));
    assert_eq!(server.metrics().engine.receive_memory_bytes, 0);
}

#[test]
fn the_end_of_a_request_is_reported_to_its_reader_once() {
    let (client, server) = (socket(), early());
    let gone = || ReadError::Ended(RequestError::Gone);
    // A thread waits, and the client gives up.
    let (call, id) = half_sent(&client, &server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| rest(&server, id));
        thread::sleep(Duration::from_millis(2));
        assert!(client.abort(call, None));
        assert_eq!(reading.join().unwrap().unwrap_err(), gone());
    });
    assert_eq!((server.read(id), server.is_cancelled(id)), (Err(gone()), Some(true)));
    assert!(server.abort(id, None));
    assert_eq!(server.read(id), Err(ReadError::Unknown));
    // A loop polls.
    let (call, id) = half_sent(&client, &server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| poll_to_its_end(&server, id));
        thread::sleep(Duration::from_millis(2));
        assert!(client.abort(call, None));
        assert_eq!(reading.join().unwrap(), gone());
    });
    assert!(!readable(&server, Duration::ZERO));
    assert!(server.abort(id, None));
    // It was not executed again.
    assert_eq!(server.try_receive(Wanted::Any).unwrap_err(), ReceiveError::WouldBlock);
}

/// Its client is silent, as if its host had died.
#[test]
fn a_deadline_makes_the_descriptor_of_a_reader_readable() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Socket::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (client, server) = (open("10.0.0.1:0"), open("10.0.0.2:0"));
    server.listen_early(WINDOW).unwrap();
    let options = SendOptions::from(CallOptions::deadline(Duration::from_millis(200)));
    let call = client.begin_send(server.local_addr(), LONG, &options).unwrap();
    client.write(call, &[1; 100_000]).unwrap();
    let (id, _) = request(&server);
    network.set_faults(NetworkFaults::NONE.lost(1_000_000));
    let late = ReadError::Ended(RequestError::DeadlineExceeded);
    assert_eq!(poll_to_its_end(&server, id), late);
}

#[test]
fn a_request_may_be_answered_while_a_thread_reads_it() {
    let (client, server) = (socket(), early());
    let (call, id) = half_sent(&client, &server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| rest(&server, id));
        thread::sleep(Duration::from_millis(2));
        server.reply(id, None, "enough").unwrap();
        assert_eq!(reading.join().unwrap().unwrap_err(), ReadError::Unknown);
    });
    assert!(matches!(
        client.receive(Wanted::Call(call)).unwrap(),
        SocketEvent::Response { result: Ok(_), .. }
    ));
    assert_eq!(client.write(call, &[1]), Err(WriteError::Gone));
    assert_eq!(server.metrics().engine.receive_memory_bytes, 0);
}

#[test]
fn closing_and_draining_end_readers_and_receivers() {
    let (client, server) = (socket(), early());
    let (call, id) = half_sent(&client, &server);
    thread::scope(|scope| {
        while server.try_read(id).is_ok() {}
        assert!(server.drain(Duration::ZERO).is_err());
        // It waits as long as a reader wants to be told of more.
        let receiving = scope.spawn(|| {
            loop {
                match server.receive(Wanted::Any) {
                    Ok(event) => assert!(matches!(event, SocketEvent::More { .. })),
                    Err(end) => return end,
                }
            }
        });
        client.write(call, &message(LONG, 1)[300_000..]).unwrap();
        assert!(rest(&server, id).is_ok());
        server.reply(id, None, "done").unwrap();
        assert_eq!(receiving.join().unwrap(), ReceiveError::Closed);
        assert_eq!(server.drain(SOON), Ok(()));
    });
    let server = early();
    let (_call, id) = half_sent(&client, &server);
    thread::scope(|scope| {
        let reading = scope.spawn(|| rest(&server, id));
        thread::sleep(Duration::from_millis(2));
        server.close();
        assert_eq!(reading.join().unwrap().unwrap_err(), ReadError::Closed);
    });
}

#[test]
fn both_messages_of_a_call_are_written_in_pieces() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    for length in [0, 1, 1_500, 1_000_000] {
        let sent = message(length, length as u64);
        let call = client.begin_send(server.local_addr(), length, &SendOptions::default()).unwrap();
        for piece in sent.chunks(13_001) {
            client.write(call, piece).unwrap();
        }
        let Ok(SocketEvent::Request { id, bytes, total, .. }) = server.receive(Wanted::Any) else {
            panic!("no request")
        };
        assert!(bytes[..] == sent && total == length);
        server.begin_reply(id, None, length).unwrap();
        for piece in sent.chunks(7_001) {
            assert_eq!(server.reply(id, None, "whole"), Err(ReplyError::Gone));
            server.write(id, piece).unwrap();
        }
        assert_eq!(server.write(id, &[1]), Err(WriteError::Gone));
        match client.receive(Wanted::Call(call)).unwrap() {
            SocketEvent::Response { result, .. } => assert!(result.unwrap()[..] == sent),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.drain(SOON), Ok(()));
    assert_eq!(server.metrics().engine.send_memory_bytes, 0);
}

#[test]
fn a_writer_learns_of_mistakes_and_of_the_other_ends_end() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    let begin = |to: SocketAddr| client.begin_send(to, 10, &SendOptions::default()).unwrap();
    let call = begin(server.local_addr());
    assert_eq!(client.write(call, &[1; 11]), Err(WriteError::TooLong { left: 10 }));
    client.write(call, &[1; 10]).unwrap();
    assert_eq!(client.write(call, &[1]), Err(WriteError::TooLong { left: 0 }));
    let (id, _) = request(&server);
    assert_eq!(server.write(id, &[1]), Err(WriteError::Gone), "its reply was not begun");
    server.begin_reply(id, None, LONG).unwrap();
    server.write(id, &[2; 100_000]).unwrap();
    // The server gives the response up.
    assert!(server.abort(id, None));
    assert_eq!(fails_with(&client, call), CallFailure::Call(CallError::Abandoned));
    // The client gives up while the response is written.
    let call = client.send(server.local_addr(), "ask", &SendOptions::default()).unwrap();
    let (id, _) = request(&server);
    server.begin_reply(id, None, LONG).unwrap();
    assert!(client.abort(call, None));
    while server.write(id, &[1]).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.is_cancelled(id), None, "it has ended");
    assert_eq!(server.metrics().engine.send_memory_bytes, 0);
}

/// A call whose response is read while it arrives.
fn ask(client: &Socket, server: &Socket, private: bool) -> (Id, Id) {
    let options = SendOptions::default().read_window(WINDOW as u32).cookie(42).private(private);
    let call = client.send(server.local_addr(), "ask", &options).unwrap();
    (call, request(server).0)
}

#[test]
fn threads_read_responses_while_they_arrive() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    for length in [0, 1, 1_500, 100_000, LONG] {
        let (call, id) = ask(&client, &server, length % 2 == 0);
        let sent = message(length, length as u64);
        server.reply(id, None, sent.clone()).unwrap();
        assert!(rest(&client, call).unwrap() == sent, "{length} bytes");
        // The call has ended.
        assert_eq!(client.read(call), Err(ReadError::Unknown));
        assert_eq!(client.try_receive(Wanted::Any).unwrap_err(), ReceiveError::WouldBlock);
    }
    // The response is read while it is written.
    let (call, id) = ask(&client, &server, false);
    let sent = message(LONG, 9);
    server.begin_reply(id, None, LONG).unwrap();
    let mut read = 0;
    for half in sent.chunks(LONG / 2) {
        server.write(id, half).unwrap();
        while read < half.len() / 2 {
            let piece = client.read(call).unwrap().unwrap();
            assert!(sent[read..].starts_with(&piece));
            read += piece.len();
        }
    }
    assert!(sent.ends_with(&rest(&client, call).unwrap()));
    assert_eq!(client.drain(SOON), Ok(()));
}

#[test]
fn a_loop_that_polls_reads_a_response() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    let (call, id) = ask(&client, &server, false);
    let sent = message(LONG, 3);
    server.begin_reply(id, None, LONG).unwrap();
    server.write(id, &sent[..LONG / 2]).unwrap();
    let (mut all, mut reports) = (Vec::new(), 0);
    loop {
        assert!(readable(&client, SOON));
        match client.try_receive(Wanted::Any).unwrap() {
            SocketEvent::More { id, cookie, left, .. } => {
                assert_eq!((id, cookie, left), (call, 42, LONG - all.len()));
            }
            other => panic!("{other:?}"),
        }
        reports += 1;
        let end = loop {
            match client.try_read(call) {
                Ok(Some(piece)) => all.extend_from_slice(&piece),
                end => break end,
            }
        };
        match end {
            Ok(_) => break,
            Err(error) => assert_eq!(error, ReadError::WouldBlock),
        }
        if reports == 1 {
            server.write(id, &sent[LONG / 2..]).unwrap();
        }
    }
    assert!(all == sent && reports > 1, "{reports} reports");
    assert!(!readable(&client, Duration::ZERO));
}

#[test]
fn a_slow_reader_of_a_response_bounds_memory() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    let (call, id) = ask(&client, &server, true);
    server.reply(id, None, message(LONG, 7)).unwrap();
    let (mut most, mut read) = (0, 0);
    while let Some(piece) = client.read(call).unwrap() {
        thread::sleep(Duration::from_millis(1));
        most = most.max(client.metrics().engine.receive_memory_bytes);
        read += piece.len();
    }
    assert_eq!(read, LONG);
    assert!(most <= 2 * WINDOW as u64, "{most} bytes were held");
    assert_eq!(client.metrics().engine.receive_memory_bytes, 0);
}

#[test]
fn the_reader_of_a_response_learns_how_its_call_failed() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    let abandoned = ReadError::Call(CallFailure::Call(CallError::Abandoned));
    for written in [0, 100_000] {
        let (call, id) = ask(&client, &server, false);
        server.begin_reply(id, None, LONG).unwrap();
        server.write(id, &vec![1; written]).unwrap();
        if written > 0 {
            assert!(client.read(call).unwrap().is_some());
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| rest(&client, call));
            assert!(server.abort(id, None));
            assert_eq!(reading.join().unwrap().unwrap_err(), abandoned);
        });
        assert_eq!(client.read(call), Err(ReadError::Unknown));
        assert_eq!(client.try_receive(Wanted::Any).unwrap_err(), ReceiveError::WouldBlock);
    }
    // A loop that polls receives the failure.
    let (call, id) = ask(&client, &server, false);
    assert!(server.abort(id, None));
    assert_eq!(fails_with(&client, call), CallFailure::Call(CallError::Abandoned));
    assert_eq!(client.read(call), Err(ReadError::Unknown));
    // The client aborts, also while a thread reads, or closes its socket.
    let (call, _id) = ask(&client, &server, false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.read(call));
        thread::sleep(Duration::from_millis(2));
        assert!(client.abort(call, None));
        assert_eq!(reading.join().unwrap(), Err(ReadError::Unknown));
    });
    let (call, _id) = ask(&client, &server, false);
    assert!(client.abort(call, Some(7)));
    assert_eq!(client.read(call), Err(ReadError::Call(CallFailure::Aborted(7))));
    let (call, _id) = ask(&client, &server, false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.read(call));
        thread::sleep(Duration::from_millis(2));
        client.close();
        assert_eq!(reading.join().unwrap(), Err(ReadError::Closed));
    });
}

#[test]
fn a_receive_by_id_reports_a_response_to_be_read() {
    let (client, server) = (socket(), socket());
    server.listen().unwrap();
    for private in [false, true] {
        let options = SendOptions::default().read_window(WINDOW as u32).private(private);
        let call = client.send(server.local_addr(), "all", &options).unwrap();
        server.reply(request(&server).0, None, message(LONG, 7)).unwrap();
        let mut all = Vec::new();
        // The rest waits for its reader, so the response is not whole before.
        while all.len() < LONG {
            let SocketEvent::More { left, .. } = client.receive(Wanted::Call(call)).unwrap() else {
                panic!("it was not read")
            };
            assert_eq!(left, LONG - all.len());
            while let Ok(Some(piece)) = client.try_read(call) {
                all.extend_from_slice(&piece);
            }
        }
        assert!(all == message(LONG, 7));
    }
}
