//! Engines over sockets that the application bound.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use homa::inline::{self, Completion, Wait};
use homa::{CallError, CallOptions, Client, Config, Engine, OpenError, Server, SocketFault};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::common::{echo, engine, message};

#[test]
fn a_bound_socket_carries_calls_both_ways() {
    for at in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let socket = UdpSocket::bind(at).unwrap();
        let local = socket.local_addr().unwrap();
        let server = Server::from_socket(socket, Config::default().plaintext()).unwrap();
        assert_eq!(server.local_addr(), local);
        let serving = server.engine().clone();
        let thread = echo(server);
        // Long messages need what `bind` sets: segmentation, and a large queue.
        let request = message(300_000, 7);
        let client = Client::new().unwrap();
        assert!(client.call(local, request.clone()).unwrap() == request[..], "{at}");
        // The same socket calls others.
        let other = engine(&local.ip().to_string(), Config::default().plaintext());
        let answering = echo(other.serve().unwrap());
        assert_eq!(serving.client().call(other.local_addr(), "out").unwrap(), *b"out", "{at}");
        other.drain(Duration::from_secs(60)).unwrap();
        serving.drain(Duration::from_secs(60)).unwrap();
        answering.join().unwrap();
        thread.join().unwrap();
    }
}

/// What lies in the queue arrived before the engine set its options, such as the one that reports
/// the local address of a datagram.
#[test]
fn requests_that_arrived_before_the_engine_are_answered() {
    for (at, to) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.9"),
        ("[::]:0", "127.0.0.9"),
        ("[::]:0", "::1"),
    ] {
        let socket = UdpSocket::bind(at).unwrap();
        let to = (to.parse::<std::net::IpAddr>().unwrap(), socket.local_addr().unwrap().port());
        let client = engine(if to.0.is_ipv4() { "127.0.0.1" } else { "::1" }, Config::default());
        let calling = client.client();
        let call = thread::spawn(move || calling.call(to.into(), "early"));
        while client.metrics().driver.datagrams_sent == 0 {
            thread::yield_now();
        }
        // As long as a process may take to start.
        thread::sleep(Duration::from_millis(40));
        let server = Server::from_socket(socket, Config::default().plaintext()).unwrap();
        let engine = server.engine().clone();
        let serving = echo(server);
        assert_eq!(call.join().unwrap().unwrap(), *b"early", "{at}");
        engine.drain(Duration::from_secs(60)).unwrap();
        serving.join().unwrap();
    }
}

#[test]
fn a_descriptor_that_cannot_be_used_is_named() {
    let open = |fd: OwnedFd| match Engine::from_socket(fd, Config::default()) {
        Err(OpenError::Socket(fault)) => fault,
        other => panic!("{other:?}"),
    };
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(open(file.into()), SocketFault::NoSocket));
    let unix = UnixDatagram::unbound().unwrap();
    assert!(matches!(open(unix.into()), SocketFault::Family { family: 1 }));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(matches!(open(tcp.into()), SocketFault::NotUdp { kind: 1, protocol: 6 }));
    let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = connected.local_addr().unwrap();
    connected.connect(to).unwrap();
    assert!(matches!(open(connected.into()), SocketFault::Connected { to: at } if at == to));
    let mapped = UdpSocket::bind("[::ffff:127.0.0.1]:0").unwrap();
    assert!(matches!(open(mapped.into()), SocketFault::Mapped { .. }));
    let unbound = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), None).unwrap();
    let fault = open(unbound);
    assert!(matches!(fault, SocketFault::NotBound));
    assert!(OpenError::Socket(fault).to_string().contains("bind it first"));
}

/// An engine that ends must leave a socket in order that others have, too.
#[test]
fn a_socket_can_be_used_by_one_engine_after_another() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let client = engine("127.0.0.1", Config::default()).client();
    for life in 0..3 {
        let server = Engine::from_socket(socket.try_clone().unwrap(), Config::default()).unwrap();
        let serving = echo(server.serve().unwrap());
        let options = CallOptions::default().idempotent();
        assert!(client.call_with(to, format!("life {life}"), &options).is_ok(), "life {life}");
        server.drain(Duration::from_secs(60)).unwrap();
        serving.join().unwrap();
        drop(server);
    }
    // What lies in the socket of an engine that ends is refused there, and not by the next one.
    let open = || inline::Engine::from_socket(socket.try_clone().unwrap(), Config::default());
    let mut server = open().unwrap();
    server.listen().unwrap();
    let mut client =
        inline::Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let options = CallOptions::deadline(Duration::from_secs(60));
    let call = |client: &mut inline::Engine, n| client.call(to, "x", n, &options).unwrap();
    call(&mut client, 0);
    while client.next().is_none() {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, .. }) = server.next() {
            server.reply(id, "done").unwrap();
        }
    }
    call(&mut client, 1);
    let before = client.metrics().driver.datagrams_sent;
    while client.metrics().driver.datagrams_sent == before {
        client.flush();
    }
    drop(server);
    let _next = open().unwrap();
    let ended = loop {
        client.poll(Wait::Forever).unwrap();
        if let Some(Completion::Response { result, .. }) = client.next() {
            break result;
        }
    };
    assert_eq!(ended, Err(CallError::PortUnreachable));
}
