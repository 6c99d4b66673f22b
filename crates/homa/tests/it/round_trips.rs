//! Round trips of first calls, counted in flights: the handshake proves the client's address, too.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use homa::inline::{Completion, Engine, Wait};
use homa::{CallError, CallOptions, Config, Keys};

/// Calls that are not answered end after this time.
const GIVE_UP: Duration = Duration::from_secs(20);

fn open(at: SocketAddr, keys: bool) -> Engine {
    let config = Config::default();
    let key = || Keys::cluster([1; 32]).unwrap();
    Engine::bind(at, if keys { config.keys(key()) } else { config }).unwrap()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A client and a server, and a path between them that passes one flight at a time.
struct Path {
    client: Engine,
    server: Engine,
    to_client: UdpSocket,
    to_server: UdpSocket,
    /// Whether the server answers requests.
    answers: bool,
    executed: usize,
    responses: Vec<Result<(), CallError>>,
}

impl Path {
    fn new(keys: bool) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let (client, mut server) = (open(any, keys), open(any, keys));
        server.listen().unwrap();
        let (to_client, to_server) = (socket(), socket());
        let (executed, responses) = (0, Vec::new());
        Self { client, server, to_client, to_server, answers: true, executed, responses }
    }

    fn call(&mut self) {
        let (at, options) = (self.to_client.local_addr().unwrap(), CallOptions::deadline(GIVE_UP));
        self.client.call(at, "request", 0, &options).unwrap();
    }

    /// Both ends read what they have got, and send what they have.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.client.poll(Wait::No).unwrap();
            self.server.poll(Wait::No).unwrap();
            while let Some(completion) = self.server.next() {
                if let Completion::Request { id, .. } = completion {
                    self.executed += 1;
                    if self.answers {
                        self.server.reply(id, "response").unwrap();
                    }
                }
            }
            while let Some(completion) = self.client.next() {
                if let Completion::Response { result, .. } = completion {
                    self.responses.push(result.map(|_| ()));
                }
            }
        }
    }

    /// A flight of the client, and then one of the server.
    fn round_trip(&mut self) {
        let mut bytes = [0; 65_536];
        self.settle();
        let at = self.server.local_addr();
        while let Ok((len, _)) = self.to_client.recv_from(&mut bytes) {
            self.to_server.send_to(&bytes[..len], at).unwrap();
        }
        self.settle();
        while let Ok((len, from)) = self.to_server.recv_from(&mut bytes) {
            assert_eq!(from, at);
            self.to_client.send_to(&bytes[..len], self.client.local_addr()).unwrap();
        }
        self.settle();
    }

    /// Round trips until the next call ends.
    fn round_trips(&mut self) -> usize {
        let before = self.responses.len();
        self.call();
        for round_trips in 1..10 {
            self.round_trip();
            if self.responses.len() > before {
                return round_trips;
            }
        }
        panic!("the call does not end")
    }

    /// The server ends, and another one begins at its address.
    fn restart(&mut self) {
        let (at, any) = (self.server.local_addr(), "127.0.0.1:0".parse().unwrap());
        drop(std::mem::replace(&mut self.server, open(any, true)));
        self.server = open(at, true);
        self.server.listen().unwrap();
    }
}

#[test]
fn a_handshake_costs_one_round_trip_and_so_does_a_proof() {
    for keys in [false, true] {
        let mut path = Path::new(keys);
        assert_eq!(path.round_trips(), 2, "a handshake or a challenge, and the call ({keys})");
        assert_eq!(path.round_trips(), 1, "the next call");
        assert_eq!((path.executed, path.responses.len()), (2, 2));
        let challenges = path.server.metrics().protocol.challenges_sent;
        assert_eq!(challenges, u64::from(!keys), "in packets");
    }
}

#[test]
fn a_call_that_ran_before_a_restart_runs_no_second_time() {
    let mut path = Path::new(true);
    path.round_trips();
    path.answers = false;
    path.call();
    path.round_trip();
    assert_eq!(path.executed, 2, "the second call runs, and its server ends");
    path.restart();
    path.answers = true;
    let began = std::time::Instant::now();
    while path.responses.len() < 2 {
        assert!(began.elapsed() < GIVE_UP, "the call does not end");
        path.round_trip();
    }
    assert_eq!(path.responses[1], Err(CallError::Indeterminate));
    assert_eq!(path.executed, 2, "the new server has executed nothing");
    assert_eq!(path.round_trips(), 1, "its session, and the proof of the address, exist");
    assert_eq!(path.executed, 3);
}
