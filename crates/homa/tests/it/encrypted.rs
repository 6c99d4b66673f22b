//! Encrypted calls over loopback: with the same key they succeed, and with another key or none
//! they end at once with an error that says what to do.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::error::HandshakeRefusal;
use homa::socket::{Socket, SocketEvent, Wanted};
use homa::{CallError, CallOptions, Client, Config, Engine, Keys, PeerIdentity, Sharded, inline};

use crate::common::{echo, engine, message};

/// A call that fails needs far less than the deadline of 10 s.
const SOON: Duration = Duration::from_secs(5);
/// Reached only if a test fails.
const GIVE_UP: Duration = Duration::from_secs(20);

fn with_key(key: u8) -> Config {
    Config::default().keys(Keys::cluster([key; 32]).unwrap())
}

/// Calls a server with one configuration from an engine with another. Returns both engines and the
/// error.
fn refused(server: Config, client: Config) -> (Engine, Engine, CallError) {
    let server = engine("127.0.0.1", server);
    let serving = server.serve().unwrap();
    thread::spawn(move || assert!(serving.accept().is_none(), "a request was executed"));
    let client = engine("127.0.0.1", client);
    let before = Instant::now();
    let error = client.client().call(server.local_addr(), "secret").unwrap_err();
    assert!(before.elapsed() < SOON, "{error} after {:?}", before.elapsed());
    assert!(error.not_executed());
    (server, client, error)
}

fn reason(error: CallError, server: SocketAddr) -> HandshakeRefusal {
    match error {
        CallError::HandshakeRefused { server: at, reason, .. } if at == server => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn engines_with_one_key_call_each_other_encrypted() {
    let (a, b) = (engine("127.0.0.1", with_key(1)), engine("127.0.0.1", with_key(1)));
    for (from, to) in [(&a, &b), (&b, &a)] {
        echo(to.serve().unwrap());
        for len in [0, 1, 100, 1_400, 20_000, 1_000_000] {
            let sent = message(len, 1);
            let got = from.client().call(to.local_addr(), sent.clone()).unwrap();
            assert_eq!(&got[..], &sent[..], "{len} bytes");
        }
    }
    let [a, b] = [a, b].map(|engine| engine.metrics().driver);
    assert_eq!((a.handshakes_completed, b.handshakes_completed), (1, 1), "one session for both");
    assert_eq!((a.sessions, b.sessions), (1, 1));
    assert!(a.datagrams_sealed > 200 && b.datagrams_opened > 200, "{a:?} {b:?}");
    assert_eq!(a.datagrams_forged + b.datagrams_forged, 0);
    assert_eq!(a.datagrams_replayed + b.datagrams_replayed, 0);
}

/// Clients of one kind make one call each, and are drained. Each of them leaves a ticket, so the
/// next one sends its call early. They have an address each, because a server accepts no early data
/// from the address of a session, and the system may give a port twice.
fn leave_tickets<T>(open: fn(&str, Config) -> T, client: fn(&T) -> Client, drain: impl Fn(&T)) {
    let keys = || Keys::cluster([1; 32]).unwrap().early_data();
    let (server, shared) = (engine("127.0.0.1", Config::default().keys(keys())), keys());
    echo(server.serve().unwrap());
    for early in 0..5 {
        let ip = format!("127.0.0.{}", early + 2);
        let opened = open(&ip, Config::default().keys(shared.clone()));
        let idempotent = CallOptions::default().idempotent();
        let answer = client(&opened).call_with(server.local_addr(), "request", &idempotent);
        assert_eq!(answer.unwrap(), *b"request");
        drain(&opened);
        assert_eq!(server.metrics().driver.handshakes_early, early, "all but the first");
    }
}

fn shards(ip: &str, config: Config) -> Sharded {
    Engine::sharded(SocketAddr::new(ip.parse().unwrap(), 0), 2, config).unwrap()
}

#[test]
fn a_drain_leaves_a_ticket_for_the_next_client() {
    leave_tickets(engine, Engine::client, |client| {
        client.drain(GIVE_UP).unwrap();
        assert!(!client.awaits_ticket());
    });
    leave_tickets(shards, Sharded::client, |client| client.drain(GIVE_UP).unwrap());
}

#[cfg(feature = "tokio")]
#[test]
fn a_drain_by_a_task_leaves_a_ticket_for_the_next_client() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    leave_tickets(engine, Engine::client, |client| {
        runtime.block_on(client.drain_async(GIVE_UP)).unwrap();
    });
    leave_tickets(shards, Sharded::client, |client| {
        runtime.block_on(client.drain_async(GIVE_UP)).unwrap();
    });
}

/// Its ticket is one that another engine with the same keys has got.
#[test]
fn a_client_that_admits_no_server_sends_it_nothing_early() {
    let keys = || Keys::cluster([1; 32]).unwrap().early_data();
    let (server, shared) = (engine("127.0.0.1", Config::default().keys(keys())), keys());
    let (serving, at) = (echo(server.serve().unwrap()), server.local_addr());
    let open = || Config::default().keys(shared.clone());
    let idempotent = CallOptions::default().idempotent();
    let first = engine("127.0.0.1", open());
    first.client().call_with(at, "request", &idempotent).unwrap();
    first.drain(GIVE_UP).unwrap();
    let picky = engine("127.0.0.1", open().admit(|_| false));
    let error = picky.client().call_with(at, "request", &idempotent).unwrap_err();
    assert!(error.not_executed());
    assert_eq!(reason(error, at), HandshakeRefusal::NotAdmitted);
    // When this call is answered, the server has received what the picky client sent before it.
    engine("127.0.0.1", open()).client().call(at, "request").unwrap();
    assert_eq!(server.metrics().driver.early_datagrams_opened, 0);
    server.drain(GIVE_UP).unwrap();
    drop(server);
    assert_eq!(serving.join().unwrap(), 2, "the call that was refused was executed");
}

#[test]
fn another_key_is_an_error_that_says_so() {
    let (server, _, error) = refused(with_key(1), with_key(2));
    let at = server.local_addr();
    assert!(error.to_string().contains("same key file"), "{error}");
    assert_eq!(reason(error, at), HandshakeRefusal::OtherKey);
    assert!(server.metrics().driver.handshakes_refused > 0, "the server counts it");
    assert_eq!(server.metrics().driver.sessions, 0);
}

#[test]
fn a_server_without_keys_is_an_error_that_says_so() {
    let (server, client, error) = refused(Config::default(), with_key(2));
    assert!(error.to_string().contains("--plaintext"), "{error}");
    assert_eq!(reason(error, server.local_addr()), HandshakeRefusal::NoKeys);
    assert!(client.metrics().driver.handshakes_refused > 0);
}

#[test]
fn a_client_without_keys_is_an_error_that_says_so() {
    let (server, _, error) = refused(with_key(1), Config::default());
    assert!(error.to_string().contains("--key"), "{error}");
    assert_eq!(reason(error, server.local_addr()), HandshakeRefusal::KeysRequired);
    assert!(server.metrics().driver.datagrams_plaintext_refused > 0, "the server counts it");
}

#[test]
fn a_policy_refuses_peers_by_their_identity() {
    let picky = with_key(1).admit(|identity| identity.to_string() != "cluster");
    let (server, _, error) = refused(picky, with_key(1));
    assert_eq!(reason(error, server.local_addr()), HandshakeRefusal::NotAdmitted);
    assert!(server.metrics().driver.handshakes_refused > 0);
}

#[test]
fn a_server_sees_who_its_client_has_proved_to_be() {
    for (config, expected) in
        [(with_key(1), Some(PeerIdentity::Cluster)), (Config::default(), None)]
    {
        let server = engine("127.0.0.1", config.clone());
        let (serving, at) = (server.serve().unwrap(), server.local_addr());
        let asked = thread::spawn(move || {
            let request = serving.accept().unwrap();
            let identity = request.peer_identity().cloned();
            request.reply("").unwrap();
            identity
        });
        engine("127.0.0.1", config).client().call(at, "who am I?").unwrap();
        assert_eq!(asked.join().unwrap(), expected);
    }
}

#[test]
fn inline_engines_and_sockets_say_who_the_client_is() {
    for (config, expected) in [(with_key(1), Some("cluster")), (Config::default(), None)] {
        let any = "127.0.0.1:0".parse().unwrap();
        let client = engine("127.0.0.1", config.clone()).client();
        let socket = Socket::bind(any, config.clone()).unwrap();
        socket.listen().unwrap();
        let call = client.call_async(socket.local_addr(), "who am I?");
        let Ok(SocketEvent::Request { id, .. }) = socket.receive(Wanted::Requests) else {
            panic!("no request")
        };
        let identity = || socket.peer_identity(id).map(|identity| identity.to_string());
        assert_eq!(identity().as_deref(), expected);
        socket.reply(id, None, "").unwrap();
        assert_eq!(identity(), None, "it is answered");
        drop(call);

        let mut inline = inline::Engine::bind(any, config).unwrap();
        inline.listen().unwrap();
        let call = client.call_async(inline.local_addr(), "who am I?");
        let identity = loop {
            inline.poll(inline::Wait::Forever).unwrap();
            if let Some(inline::Completion::Request { peer_identity, .. }) = inline.next() {
                break peer_identity.map(|identity| identity.to_string());
            }
        };
        assert_eq!(identity.as_deref(), expected);
        drop(call);
    }
}

#[test]
fn raw_ip_with_keys_is_refused() {
    let opened = Engine::raw_ip(
        "127.0.0.1:0".parse().unwrap(),
        Config::linux().keys(Keys::cluster([1; 32]).unwrap()),
    );
    if let Err(homa::OpenError::NeedsNetRaw) = &opened {
        return skip::test("raw sockets need CAP_NET_RAW");
    }
    let error = opened.unwrap_err();
    assert!(error.to_string().contains("cannot be encrypted"), "{error}");
}

/// A client that has a session with a server, and the address of the server, which has ended.
fn with_the_session_of_a_server_that_ended() -> (Engine, SocketAddr) {
    let server = engine("127.0.0.1", with_key(1));
    let at = server.local_addr();
    echo(server.serve().unwrap());
    let client = engine("127.0.0.1", with_key(1));
    client.client().call(at, "before").unwrap();
    server.drain(SOON).unwrap();
    (client, at)
}

#[test]
fn with_a_session_a_closed_port_is_reported() {
    let (client, at) = with_the_session_of_a_server_that_ended();
    // The system's report quotes an encrypted datagram.
    let error = client.client().call(at, "after").unwrap_err();
    assert_eq!(error, CallError::PortUnreachable);
}

#[test]
fn a_restarted_server_gets_a_new_session() {
    let (client, at) = with_the_session_of_a_server_that_ended();
    let bound = || Engine::bind(at, with_key(1));
    let server = std::iter::repeat_with(bound).find_map(Result::ok).unwrap();
    echo(server.serve().unwrap());
    let options = CallOptions::default().idempotent();
    let got = client.client().call_with(at, "after", &options).unwrap();
    assert_eq!(&got[..], b"after");
    let metrics = client.metrics().driver;
    assert_eq!(metrics.handshakes_completed, 2);
}

#[test]
fn a_host_that_calls_again_resumes_and_is_verified_as_before() {
    let config = with_key(1);
    let server = engine("127.0.0.1", with_key(1));
    let (serving, at) = (server.serve().unwrap(), server.local_addr());
    let identities = thread::spawn(move || {
        let requests = std::iter::from_fn(|| serving.accept()).take(2);
        let identity = |request: homa::Request| {
            let identity = request.peer_identity().cloned();
            request.reply("").unwrap();
            identity
        };
        requests.map(identity).collect::<Vec<_>>()
    });
    for handshakes in 1..=2 {
        // Another engine with the same keys, in the same process.
        let client = engine("127.0.0.1", config.clone());
        client.client().call(at, "who am I?").unwrap();
        let metrics = [client.metrics().driver, server.metrics().driver];
        assert_eq!(metrics[1].handshakes_completed, handshakes);
        let resumed = metrics.map(|driver| driver.handshakes_resumed);
        assert_eq!(resumed, [handshakes - 1; 2]);
    }
    let identity = Some(PeerIdentity::Cluster);
    assert_eq!(identities.join().unwrap(), [identity.clone(), identity]);
}

#[test]
fn lost_and_repeated_datagrams_delay_encrypted_calls_only() {
    let network = MemoryNetwork::new(5, NetworkFaults::NONE.lost(100_000).duplicated(100_000));
    let open = |at: &str| {
        let driver = network.driver(at.parse().unwrap()).unwrap();
        Engine::with_driver(Box::new(driver), with_key(1)).unwrap()
    };
    let server = open("10.0.0.2:4000");
    echo(server.serve().unwrap());
    let options = CallOptions::deadline(Duration::from_secs(60));
    for n in 0..20 {
        let client = open("10.0.0.1:0");
        for len in [10, 10_000] {
            let sent = message(len, n);
            let got = client.client().call_with(server.local_addr(), sent.clone(), &options);
            assert_eq!(&got.unwrap()[..], &sent[..]);
        }
    }
    let metrics = server.metrics().driver;
    assert!(metrics.handshakes_completed >= 20 && metrics.datagrams_replayed > 0, "{metrics:?}");
    assert_eq!((metrics.datagrams_forged, metrics.datagrams_plaintext_refused), (0, 0));
}
