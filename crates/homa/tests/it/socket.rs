//! The socket: one queue for requests and responses, its descriptor, and threads that share it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use homa::socket::{CallFailure, ReceiveError, SendOptions, Socket, SocketEvent, Wanted};
use homa::{CallError, CallOptions, Config, OpenError, ReplyError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn socket() -> Socket {
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    socket.listen().unwrap();
    socket
}

fn readable(socket: &Socket, within: Duration) -> bool {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::try_from(within).unwrap()).unwrap() > 0
}

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_secs(5);

fn request(socket: &Socket) -> (homa::socket::Id, SocketAddr, Vec<u8>) {
    match socket.receive(Wanted::Requests).unwrap() {
        SocketEvent::Request { id, from, bytes, .. } => (id, from, bytes.into_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_that_closes_ends_the_calls_of_its_clients() {
    let (a, b) = (socket(), socket());
    let (to, client) = (b.local_addr(), a.client());
    let awaited = client.call_async(to, "awaited");
    let blocked = thread::spawn(move || {
        client.call_with(to, "blocked", &CallOptions::deadline(Duration::MAX))
    });
    let requests = [(); 2].map(|()| request(&b).0);
    a.close();
    assert_eq!(blocked.join().unwrap(), Err(CallError::ShuttingDown));
    assert_eq!(awaited.wait(), Err(CallError::ShuttingDown));
    // The server need not answer them any more.
    while requests.iter().any(|&id| b.is_cancelled(id) == Some(false)) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_shares_its_engine_with_a_socket() {
    let (a, b) = (socket(), socket());
    let (to, client) = (b.local_addr(), a.client());
    let serving = thread::spawn(move || {
        for _ in 0..3 {
            let Ok(SocketEvent::Request { id, bytes, .. }) = b.receive(Wanted::Any) else {
                panic!()
            };
            b.reply(id, None, bytes.into_vec()).unwrap();
        }
        b.drain(SOON).unwrap();
    });
    let own = a.send(to, "own", &SendOptions::default()).unwrap();
    let long = vec![7; 1_000_000];
    assert!(client.call(to, long.clone()).unwrap() == long[..]);
    assert_eq!(client.call_async(to, "short").wait().unwrap(), *b"short");
    let Ok(SocketEvent::Response { id, result, .. }) = a.receive(Wanted::Any) else { panic!() };
    assert_eq!((id, &result.unwrap()[..]), (own, &b"own"[..]));
    serving.join().unwrap();
    // The socket receives all requests of its engine.
    for other in [client.engine().serve(), client.engine().serve_at("127.0.0.1:0".parse().unwrap())]
    {
        assert!(matches!(other, Err(OpenError::InUse { .. })));
    }
}

#[test]
fn the_descriptor_is_readable_exactly_if_receive_succeeds() {
    let (a, b) = (socket(), socket());
    assert!(!readable(&b, NOW));
    assert_eq!(b.try_receive(Wanted::Any).unwrap_err(), ReceiveError::WouldBlock);
    for cookie in 0..3 {
        let options = SendOptions::default().cookie(cookie);
        a.send(b.local_addr(), vec![1; 100], &options).unwrap();
    }
    for _ in 0..3 {
        assert!(readable(&b, SOON));
        assert!(readable(&b, NOW), "looking changes nothing");
        let Ok(SocketEvent::Request { id, from, bytes, .. }) = b.try_receive(Wanted::Any) else {
            panic!("readable, and nothing to receive");
        };
        assert_eq!(from, a.local_addr());
        b.reply(id, Some(from), bytes.into_vec()).unwrap();
    }
    assert!(!readable(&b, NOW));
    let mut cookies = BTreeSet::new();
    while cookies.len() < 3 {
        assert!(readable(&a, SOON));
        match a.try_receive(Wanted::Any).unwrap() {
            SocketEvent::Response { cookie, result, from, .. } => {
                assert_eq!((result.unwrap().len(), from), (100, b.local_addr()));
                cookies.insert(cookie);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!readable(&a, NOW));
    a.close();
    assert!(readable(&a, NOW));
    assert_eq!(a.try_receive(Wanted::Any).unwrap_err(), ReceiveError::Closed);
    let refused = a.send(b.local_addr(), vec![1], &SendOptions::default());
    assert_eq!(refused.unwrap_err(), CallError::ShuttingDown);
}

#[test]
fn a_private_call_is_only_received_by_its_id() {
    let (a, b) = (socket(), socket());
    let options = SendOptions::default().private(true);
    let call = a.send(b.local_addr(), b"secret".to_vec(), &options).unwrap();
    let (id, ..) = request(&b);
    b.reply(id, None, b"answer".to_vec()).unwrap();
    // This message was sent later. When it arrives, the first response has arrived, too.
    let second = a.send(b.local_addr(), b"second".to_vec(), &SendOptions::default()).unwrap();
    let (id, ..) = request(&b);
    b.reply(id, None, b"answer".to_vec()).unwrap();
    match a.receive(Wanted::Any).unwrap() {
        SocketEvent::Response { id, .. } => assert_eq!(id, second),
        other => panic!("{other:?}"),
    }
    assert!(!readable(&a, NOW));
    let SocketEvent::Response { id, result, .. } = a.receive(Wanted::Call(call)).unwrap() else {
        panic!("not a response")
    };
    assert_eq!((id, &result.unwrap()[..]), (call, &b"answer"[..]));
    assert_eq!(a.receive(Wanted::Call(call)).unwrap_err(), ReceiveError::UnknownCall);
}

#[test]
fn an_answer_is_given_once_to_the_client_that_asked() {
    let (a, b) = (socket(), socket());
    a.send(b.local_addr(), vec![1], &SendOptions::default()).unwrap();
    let (id, from, _) = request(&b);
    assert_eq!(b.reply(id, Some(b.local_addr()), vec![2]), Err(ReplyError::Gone));
    assert_eq!(b.reply(id, Some(from), vec![2]), Ok(()));
    assert_eq!(b.reply(id, Some(from), vec![2]), Err(ReplyError::Gone));
    assert!(matches!(a.receive(Wanted::Any), Ok(SocketEvent::Response { .. })));
}

#[test]
fn an_aborted_call_ends_and_its_server_may_still_answer() {
    let (a, b) = (socket(), socket());
    let silent = a.send(b.local_addr(), vec![1], &SendOptions::default()).unwrap();
    let loud = a.send(b.local_addr(), vec![1], &SendOptions::default()).unwrap();
    let requests = [request(&b), request(&b)];
    assert!(a.abort(silent, None));
    assert!(!a.abort(silent, None));
    assert!(!readable(&a, NOW));
    a.abort_all(Some(42));
    match a.receive(Wanted::Any).unwrap() {
        SocketEvent::Response { id, result, .. } => {
            assert_eq!((id, result.unwrap_err()), (loud, CallFailure::Aborted(42)));
        }
        other => panic!("{other:?}"),
    }
    // The clients' cancellations arrive before packets that they sent later.
    let third = a.send(b.local_addr(), vec![3], &SendOptions::default()).unwrap();
    let (id, _, bytes) = request(&b);
    assert_eq!(bytes, [3]);
    for (id, from, _) in requests {
        assert_eq!(b.reply(id, Some(from), vec![2]), Ok(()), "giving up is no error");
    }
    assert!(b.abort(id, None), "a request can be given up as well");
    assert!(a.abort(third, None));
}

#[test]
fn a_call_that_fails_says_which_and_why() {
    let (a, b) = (socket(), socket());
    let soon = CallOptions::deadline(Duration::from_millis(30));
    let options = SendOptions::from(soon).cookie(9);
    let call = a.send(b.local_addr(), vec![1], &options).unwrap();
    match a.receive(Wanted::Responses).unwrap() {
        SocketEvent::Response { id, cookie, result, .. } => {
            assert_eq!((id, cookie), (call, 9));
            assert_eq!(result.unwrap_err(), CallFailure::Call(CallError::DeadlineExceeded));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drain_lets_waiting_threads_receive_their_responses() {
    let (a, b) = (Arc::new(socket()), socket());
    let send = |private| {
        let options = SendOptions::default().private(private);
        a.send(b.local_addr(), vec![1; 100], &options).unwrap()
    };
    let (named, any) = (send(true), send(false));
    let requests = [request(&b), request(&b)];
    let receive = |wanted| {
        let a = a.clone();
        thread::spawn(move || a.receive(wanted))
    };
    let waits = [receive(Wanted::Call(named)), receive(Wanted::Any), receive(Wanted::Responses)];
    let for_requests = receive(Wanted::Requests);
    let drain = thread::spawn({
        let a = a.clone();
        move || a.drain(SOON)
    });
    // No request will come, because the thread has learned that the drain began.
    assert_eq!(for_requests.join().unwrap().unwrap_err(), ReceiveError::Closed);
    assert_eq!(a.try_receive(Wanted::Any).unwrap_err(), ReceiveError::WouldBlock);
    assert!(!readable(&a, NOW));
    for (id, from, bytes) in requests {
        b.reply(id, Some(from), bytes).unwrap();
    }
    let ends = waits.map(|wait| match wait.join().unwrap() {
        Ok(SocketEvent::Response { id, result, .. }) => Ok((id, result.unwrap().len())),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    });
    assert_eq!(ends[0], Ok((named, 100)));
    // One of the other threads gets the response. Nothing is left for the second thread.
    assert!(ends[1..].contains(&Ok((any, 100))), "{ends:?}");
    assert!(ends[1..].contains(&Err(ReceiveError::Closed)), "{ends:?}");
    drain.join().unwrap().unwrap();
    assert!(readable(&a, NOW));
}

#[test]
fn many_threads_share_two_sockets_as_client_and_server() {
    let sockets = [Arc::new(socket()), Arc::new(socket())];
    const THREADS: usize = 4;
    const CALLS: usize = 250;
    let workers: Vec<_> = (0..2 * THREADS)
        .map(|worker| {
            let (here, there) = (sockets[worker % 2].clone(), sockets[1 - worker % 2].local_addr());
            thread::spawn(move || {
                for i in 0..CALLS {
                    let bytes = vec![worker as u8; 1 + i * 37 % 3000];
                    let private = i % 3 == 0;
                    let options = SendOptions::default().private(private);
                    let call = here.send(there, bytes.clone(), &options).unwrap();
                    loop {
                        match here.receive(Wanted::CallOrRequests(call)) {
                            Ok(SocketEvent::Request { id, bytes, .. }) => {
                                here.reply(id, None, bytes.into_vec()).unwrap();
                            }
                            Ok(SocketEvent::Response { id, result, .. }) => {
                                assert_eq!((id, &result.unwrap()[..]), (call, &bytes[..]));
                                break;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                // Other sockets may still wait for responses from this one.
                loop {
                    match here.receive(Wanted::Requests) {
                        Ok(SocketEvent::Request { id, bytes, .. }) => {
                            here.reply(id, None, bytes.into_vec()).unwrap();
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => {
                            assert_eq!(error, ReceiveError::Closed);
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    let all = (THREADS * CALLS) as u64;
    while sockets.iter().any(|socket| socket.metrics().protocol.responses_delivered < all) {
        thread::sleep(Duration::from_millis(1));
    }
    sockets.iter().for_each(|socket| socket.close());
    for worker in workers {
        worker.join().unwrap();
    }
}
