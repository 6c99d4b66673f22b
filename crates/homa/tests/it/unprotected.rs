//! Without keys an engine stays on its host, unless plaintext is chosen: the error says both.

use std::net::{SocketAddr, UdpSocket};

use homa::driver::Driver;
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::{
    CallError, CallOptions, Client, Config, Engine, Keys, OpenError, Server, Socket, inline,
};

use crate::common::{echo, engine};

const OTHERS: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Opens an engine at an address in every way, and says what each way answered.
fn opened(ip: &str, config: &Config) -> Vec<Result<(), OpenError>> {
    let (at, config) = (at(ip), || config.clone());
    let local = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
    let mut poller = inline::Engine::bind(local, config()).unwrap();
    vec![
        Engine::bind(at, config()).map(drop),
        Engine::bind(at, config()).and_then(|engine| engine.serve()).map(drop),
        Engine::sharded(at, 2, config()).map(drop),
        Engine::from_socket(UdpSocket::bind(at).unwrap(), config()).map(drop),
        Engine::with_driver(<dyn Driver>::udp(at, 1 << 16).unwrap(), config()).map(drop),
        Engine::bind(local, config()).and_then(|engine| engine.serve_at(at)).map(drop),
        Socket::bind(at, config()).map(drop),
        inline::Engine::bind(at, config()).map(drop),
        inline::Engine::sharded(at, 2, config()).map(drop),
        poller.listen_also(at).map(drop),
    ]
}

/// The same for engines that differ in how they are protected.
fn opened_with_policy(config: &Config) -> Vec<Result<(), OpenError>> {
    let (local, config) = (at("127.0.0.1:0"), || config.clone());
    vec![
        Engine::bind(local, config()).map(drop),
        Client::with(config()).map(drop),
        Socket::bind(local, config()).map(drop),
        inline::Engine::bind(local, config()).map(drop),
    ]
}

#[test]
fn a_policy_about_peers_needs_keys() {
    let policy = |config: Config| config.admit(|_| false);
    for config in [policy(Config::default()), policy(Config::default()).plaintext()] {
        for (way, result) in opened_with_policy(&config).into_iter().enumerate() {
            let error = result.expect_err(&format!("way {way}"));
            assert!(matches!(error, OpenError::PolicyWithoutKeys), "{way}: {error}");
        }
    }
    let keys = Config::default().keys(Keys::cluster([1; 32]).unwrap());
    opened_with_policy(&policy(keys)).into_iter().for_each(|result| result.unwrap());
}

#[test]
fn off_loopback_an_engine_opens_with_keys_or_by_choice() {
    let keys = Config::default().keys(Keys::cluster([1; 32]).unwrap());
    for any in ["0.0.0.0:0", "[::]:0"] {
        for (way, result) in opened(any, &Config::default()).into_iter().enumerate() {
            let error = result.expect_err(&format!("way {way} at {any}"));
            assert!(matches!(error, OpenError::Unprotected { .. }), "{way} at {any}: {error}");
            for remedy in ["homa key new", "Config::keys", "--key", "Config::plaintext()"] {
                assert!(error.to_string().contains(remedy), "{error}");
            }
        }
        for config in [&keys, &Config::default().plaintext()] {
            opened(any, config).into_iter().for_each(|result| result.unwrap());
        }
    }
    assert!(matches!(Server::bind(at("0.0.0.0:0")), Err(OpenError::Unprotected { .. })));
    for loopback in ["127.0.0.1:0", "127.9.8.7:0", "[::1]:0"] {
        opened(loopback, &Config::default()).into_iter().for_each(|result| result.unwrap());
    }
    // IPv4 addresses in IPv6 form are what they stand for.
    let mapped = |ip: &str| Engine::bind(at(&format!("[::ffff:{ip}]:0")), Config::default());
    assert!(matches!(mapped("0.0.0.0"), Err(OpenError::Unprotected { .. })));
    mapped("127.0.0.1").unwrap();
}

#[test]
fn a_client_without_keys_calls_only_its_own_host() {
    let client = Client::new().unwrap();
    for to in OTHERS.map(at) {
        let error = client.call(to, "secret").unwrap_err();
        assert_eq!(error, CallError::Unprotected { to });
        assert!(error.not_executed() && !error.is_retryable() && !error.is_overloaded());
        assert!(error.to_string().contains("--plaintext"), "{error}");
    }
    assert_eq!(client.engine().metrics().driver.datagrams_sent, 0);
    let refused = client.engine().serve();
    assert!(matches!(refused, Err(OpenError::Unprotected { .. })), "{refused:?}");
    for ip in ["127.0.0.1", "::1"] {
        let server = engine(ip, Config::default());
        echo(server.serve().unwrap());
        assert_eq!(client.call(server.local_addr(), "hi").unwrap(), *b"hi");
    }
}

#[test]
fn with_keys_or_by_choice_a_client_calls_other_hosts() {
    let keys = Config::default().keys(Keys::cluster([1; 32]).unwrap());
    for config in [keys, Config::default().plaintext()] {
        let client = Client::with(config).unwrap();
        // Documentation addresses: there is no answer.
        let soon = CallOptions::deadline(std::time::Duration::from_millis(1));
        let error = client.call_with(at(OTHERS[0]), "hello", &soon).unwrap_err();
        assert!(!matches!(error, CallError::Unprotected { .. }), "{error}");
        client.engine().serve().unwrap();
    }
}

#[test]
fn an_engine_that_only_calls_does_not_listen() {
    let config = Config::default().calls_only();
    let mut caller = inline::Engine::bind(at("0.0.0.0:0"), config).unwrap();
    assert!(matches!(caller.listen(), Err(OpenError::Unprotected { .. })));
    let config = Config::default().calls_only();
    let socket = Socket::bind(at("0.0.0.0:0"), config.clone()).unwrap();
    assert!(matches!(socket.listen(), Err(OpenError::Unprotected { .. })));
    let bound = UdpSocket::bind("0.0.0.0:0").unwrap();
    let refused = Server::from_socket(bound, config).unwrap_err();
    assert!(matches!(refused, OpenError::Unprotected { .. }), "{refused}");
    let to = SocketAddr::from(([127, 0, 0, 1], caller.local_addr().port()));
    let asking = std::thread::spawn(move || Client::new().unwrap().call(to, "are you there?"));
    while !asking.is_finished() {
        caller.poll(inline::Wait::For(std::time::Duration::from_millis(1))).unwrap();
        assert!(caller.next().is_none());
    }
    assert_eq!(asking.join().unwrap().unwrap_err(), CallError::PortUnreachable);
}

#[test]
fn engines_in_memory_need_no_keys() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let open = |ip: &str| {
        let driver = network.driver(at(ip)).unwrap();
        Engine::with_driver(Box::new(driver), Config::default()).unwrap()
    };
    let (server, client) = (open("10.0.0.1:1"), open("10.0.0.2:2"));
    echo(server.serve().unwrap());
    assert_eq!(client.client().call(server.local_addr(), "hi").unwrap(), *b"hi");
}
