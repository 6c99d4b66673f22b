//! Round trips of first calls, counted in flights: the handshake proves the client's address, too,
//! and idempotent requests leave beside it if the client has a ticket.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use homa::inline::{Completion, Engine, Wait};
use homa::{CallError, CallOptions, Config, Keys};

/// Calls that are not answered end after this time.
const GIVE_UP: Duration = Duration::from_secs(20);

fn key() -> Keys {
    Keys::cluster([1; 32]).unwrap()
}

fn open(at: SocketAddr, keys: Option<&Keys>) -> Engine {
    Engine::bind(at, Config::default().keys(keys.cloned())).unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A client and a server, and a path between them that passes one flight at a time.
struct Path {
    client: Engine,
    client_keys: Option<Keys>,
    server: Engine,
    server_keys: Option<Keys>,
    to_client: UdpSocket,
    to_server: UdpSocket,
    /// Whether the server answers requests, and with what.
    answers: bool,
    response: Vec<u8>,
    executed: usize,
    responses: Vec<Result<(), CallError>>,
}

impl Path {
    fn new(client_keys: Option<Keys>, server_keys: Option<Keys>) -> Self {
        let client = open(any(), client_keys.as_ref());
        let mut server = open(any(), server_keys.as_ref());
        server.listen().unwrap();
        Self {
            client,
            client_keys,
            server,
            server_keys,
            to_client: socket(),
            to_server: socket(),
            answers: true,
            response: b"response".to_vec(),
            executed: 0,
            responses: Vec::new(),
        }
    }

    /// Both ends allow early data, and the client has a ticket.
    fn with_a_ticket() -> Self {
        let mut path = Self::new(Some(key().early_data()), Some(key().early_data()));
        path.round_trips_of("request", true);
        path.reconnect();
        path
    }

    /// Another engine with the client's keys, at another address.
    fn reconnect(&mut self) {
        self.client = open(any(), self.client_keys.as_ref());
        self.to_server = socket();
    }

    fn call(&mut self) {
        self.call_with("request", false);
    }

    fn call_with(&mut self, request: impl Into<Vec<u8>>, idempotent: bool) {
        let options = CallOptions::deadline(GIVE_UP);
        let options = if idempotent { options.idempotent() } else { options };
        let at = self.to_client.local_addr().unwrap();
        self.client.call(at, request.into(), 0, &options).unwrap();
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
                        self.server.reply(id, self.response.clone()).unwrap();
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
        self.round_trips_of("request", false)
    }

    fn round_trips_of(&mut self, request: impl Into<Vec<u8>>, idempotent: bool) -> usize {
        let before = self.responses.len();
        self.call_with(request, idempotent);
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
        let (at, keys) = (self.server.local_addr(), self.server_keys.take());
        drop(std::mem::replace(&mut self.server, open(any(), keys.as_ref())));
        // Another process has no tickets.
        self.server_keys = keys.map(|_| key().early_data());
        self.server = open(at, self.server_keys.as_ref());
        self.server.listen().unwrap();
    }

    /// Calls that ended without an error, and how many of them the server has executed.
    fn ended(&self) -> (usize, usize) {
        assert!(self.responses.iter().all(Result::is_ok), "{:?}", self.responses);
        (self.responses.len(), self.executed)
    }
}

#[test]
fn a_handshake_costs_one_round_trip_and_so_does_a_proof() {
    for keys in [false, true] {
        let mut path = Path::new(keys.then(key), keys.then(key));
        assert_eq!(path.round_trips(), 2, "a handshake or a challenge, and the call ({keys})");
        assert_eq!(path.round_trips(), 1, "the next call");
        assert_eq!((path.executed, path.responses.len()), (2, 2));
        let challenges = path.server.metrics().protocol.challenges_sent;
        assert_eq!(challenges, u64::from(!keys), "in packets");
    }
}

#[test]
fn a_call_that_ran_before_a_restart_runs_no_second_time() {
    let mut path = Path::new(Some(key()), Some(key()));
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

#[test]
fn early_data_save_an_idempotent_call_a_round_trip() {
    let mut path = Path::with_a_ticket();
    assert_eq!(path.round_trips_of("request", true), 1, "beside the handshake");
    assert_eq!(path.round_trips_of("request", false), 1, "the session and the proof exist");
    path.reconnect();
    assert_eq!(path.round_trips_of("request", false), 2, "it may run only once");
    assert_eq!(path.ended(), (4, 4));
    let [client, server] = [&path.client, &path.server].map(|engine| engine.metrics().driver);
    assert_eq!((client.handshakes_early, server.handshakes_early), (1, 2));
    assert_eq!((server.early_datagrams_opened, server.early_datagrams_refused), (1, 0));
    assert_eq!(server.handshakes_resumed, 2);
}

#[test]
fn early_data_of_about_a_thousand_bytes_save_a_round_trip() {
    let mut path = Path::with_a_ticket();
    assert_eq!(path.round_trips_of(vec![7; 900], true), 1);
    // The handshake ends, with another ticket.
    path.round_trip();
    path.reconnect();
    assert_eq!(path.round_trips_of(vec![7; 1_200], true), 2, "it is too long");
    assert_eq!(path.ended(), (3, 3));
}

#[test]
fn without_consent_of_both_ends_nothing_is_sent_early() {
    for (of_client, of_server) in [(key(), key().early_data()), (key().early_data(), key())] {
        let mut path = Path::new(Some(of_client), Some(of_server));
        path.round_trips_of("request", true);
        path.reconnect();
        assert_eq!(path.round_trips_of("request", true), 2);
        assert_eq!(path.ended(), (2, 2));
        let driver = path.server.metrics().driver;
        assert_eq!((driver.handshakes_early, driver.handshakes_resumed), (0, 1));
    }
}

#[test]
fn only_the_idempotent_one_of_two_calls_is_sent_early() {
    let mut path = Path::with_a_ticket();
    path.call_with("once", false);
    path.settle();
    path.call_with("again", true);
    path.round_trip();
    assert_eq!(path.ended(), (2, 2), "the other one waits for the handshake");
    path.round_trip();
    assert_eq!(path.ended(), (3, 3));
}

#[test]
fn a_restarted_server_answers_an_early_call_as_any_other() {
    let mut path = Path::with_a_ticket();
    path.restart();
    assert_eq!(path.round_trips_of("request", true), 2);
    assert_eq!(path.ended(), (2, 2));
    let driver = path.server.metrics().driver;
    assert_eq!((driver.handshakes_early, driver.handshakes_resumed), (0, 0));
}

#[test]
fn a_long_response_to_an_early_call_waits_for_the_proof() {
    let mut path = Path::with_a_ticket();
    path.response = vec![3; 5_000];
    assert_eq!(path.round_trips_of("request", true), 1, "three times the bytes of the client");
    path.round_trip();
    path.reconnect();
    path.response = vec![3; 10_000];
    let early = path.round_trips_of("request", true);
    let mut later = Path::with_a_ticket();
    later.response.clone_from(&path.response);
    let late = later.round_trips_of("request", false);
    assert!(1 < early && early < late, "{early} and {late}");
    assert_eq!((path.ended(), later.ended()), ((3, 3), (2, 2)));
}

#[test]
fn early_data_that_are_lost_are_sent_again() {
    let mut path = Path::with_a_ticket();
    path.call_with("request", true);
    path.settle();
    let mut bytes = [0; 65_536];
    let at = path.server.local_addr();
    while let Ok((len, _)) = path.to_client.recv_from(&mut bytes) {
        // The level of a fragment.
        if bytes[16 + 29] != 2 {
            path.to_server.send_to(&bytes[..len], at).unwrap();
        }
    }
    let began = std::time::Instant::now();
    while path.responses.len() < 2 {
        assert!(began.elapsed() < GIVE_UP, "the call does not end");
        path.round_trip();
    }
    assert_eq!(path.ended(), (2, 2));
    assert_eq!(path.server.metrics().driver.early_datagrams_opened, 0);
}

/// It runs no timers, after which it would not expect the ticket any more.
#[test]
fn an_engine_that_has_ended_awaits_no_ticket() {
    let mut path = Path::with_a_ticket();
    let config = Config::default().keys(path.client_keys.clone());
    let client = homa::Engine::bind(any(), config).unwrap();
    let (caller, at) = (client.client(), path.to_client.local_addr().unwrap());
    let options = CallOptions::deadline(GIVE_UP).idempotent();
    let call = std::thread::spawn(move || caller.call_with(at, "request", &options));
    let mut bytes = [0; 65_536];
    // The end of the client's handshake, which follows the server's answer, never arrives.
    while path.executed < 2 {
        while let Ok((len, _)) = path.to_client.recv_from(&mut bytes) {
            path.to_server.send_to(&bytes[..len], path.server.local_addr()).unwrap();
        }
        path.settle();
    }
    while !call.is_finished() {
        while let Ok((len, _)) = path.to_server.recv_from(&mut bytes) {
            path.to_client.send_to(&bytes[..len], client.local_addr()).unwrap();
        }
        path.settle();
    }
    assert_eq!(call.join().unwrap().unwrap(), *b"response");
    assert!(client.awaits_ticket());
    client.hand_over(GIVE_UP).unwrap();
    assert!(!client.awaits_ticket());
    client.drain(Duration::MAX).unwrap();
}

#[test]
fn the_lost_end_of_an_early_handshake_is_repeated() {
    let mut path = Path::with_a_ticket();
    assert_eq!(path.round_trips_of("request", true), 1);
    // The client's last messages to TLS are lost, but it has a session.
    while path.to_client.recv(&mut [0; 65_536]).is_ok() {}
    path.call();
    let began = std::time::Instant::now();
    while path.responses.len() < 3 {
        assert!(began.elapsed() < GIVE_UP, "the call does not end");
        path.round_trip();
    }
    assert_eq!(path.ended(), (3, 3));
    assert_eq!(path.client.metrics().driver.handshakes_completed, 1, "the server has it, too");
}
