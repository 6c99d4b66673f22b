//! RPCs of a process that has ended. If a server asks about them, an open engine at the same
//! address answers.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use homa::{Config, Engine};
use socket2::{Domain, Protocol, Socket, Type};

use crate::alone::{is_alone, process_of, this_test};
use crate::common::message;

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 4100);
const CLIENTS: &str = "127.0.0.2:0";
/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Set in the process that is killed.
const DIES: &str = "HOMA_TEST_DIES";

const DATA: u8 = 0x10;
const NEED_ACK: u8 = 0x17;
const ACK: u8 = 0x18;

/// A server that behaves as the kernel module does.
struct Kernel(Socket);

impl Kernel {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(146))).unwrap();
        socket.bind(&SocketAddr::new(SERVER.ip(), 0).into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self(socket)
    }

    /// Sends NEED_ACK for an RPC of a client's port.
    fn ask(&self, client: SocketAddr, id: u64) {
        let ports = [SERVER.port().to_be_bytes(), client.port().to_be_bytes()].concat();
        let rest = [0, 0, 0, 0, 0, 0, 0, NEED_ACK, 0x50, 0x06, 0, 0, 0, 0, 0xb9, 0x7d];
        let packet = [&ports[..], &rest, &(id + 1).to_be_bytes()].concat();
        self.0.send_to(&packet, &SocketAddr::new(client.ip(), 0).into()).unwrap();
    }

    /// Returns type, client, id and length of the next packet, if one arrives soon.
    fn next(&self) -> Option<(u8, SocketAddr, u64, usize)> {
        let mut buffer = [0; 65_536];
        let n = (&self.0).read(&mut buffer).ok()?;
        let (ip, homa) = buffer[..n].split_at(20);
        let source = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
        let port = u16::from_be_bytes([homa[0], homa[1]]);
        let id = u64::from_be_bytes(homa[20..28].try_into().unwrap());
        Some((homa[11], SocketAddr::from((source, port)), id, homa.len()))
    }

    /// Waits for the next packet of a type.
    fn expect(&self, kind: u8) -> (SocketAddr, u64, usize) {
        let begun = Instant::now();
        loop {
            if let Some((is, client, id, length)) = self.next()
                && is == kind
            {
                return (client, id, length);
            }
            assert!(begun.elapsed() < GIVE_UP, "no packet of type {kind:#x}");
        }
    }
}

/// A process that calls the server until it is killed.
struct Client(Child);

impl Client {
    fn start() -> Self {
        let mut command = process_of(&this_test());
        Self(command.env(DIES, "1").stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open() -> Engine {
    let mut config = Config::linux();
    // It is to live until it is killed.
    config.protocol.loss.timeout = None;
    Engine::raw_ip(CLIENTS.parse().unwrap(), config).unwrap()
}

#[test]
fn a_question_to_a_dead_process_is_answered_by_another() {
    if std::env::var_os(DIES).is_some() {
        let _ = open().client().call(SERVER, message(100, 1));
        return;
    }
    if !is_alone() {
        return;
    }
    let (kernel, others) = (Kernel::new(), [open(), open()]);
    let [other, third] = &others;
    let client = Client::start();
    let (from, id, _) = kernel.expect(DATA);
    assert_ne!(from.port(), other.local_addr().port());
    // While its process lives, an answer in its place would end its call.
    for _ in 0..10 {
        kernel.ask(from, id);
        thread::sleep(Duration::from_millis(10));
    }
    // Among these are its RESENDs.
    for packet in (0..40).map_while(|_| kernel.next()) {
        assert_ne!(packet.0, ACK, "{packet:?} though {from} lives, beside {}", other.local_addr());
    }
    drop(client);
    kernel.ask(from, id);
    let (answers, acknowledged, length) = kernel.expect(ACK);
    assert_eq!((answers, acknowledged, length), (from, id, 80));
    assert_ne!(from.port(), third.local_addr().port());
    // The other one may hear of it later.
    let (begun, mut asked) = (Instant::now(), [0; 2]);
    while asked.iter().sum::<u64>() < 21 && begun.elapsed() < GIVE_UP {
        asked = others.each_ref().map(|engine| engine.metrics().driver.other_ports);
        thread::yield_now();
    }
    assert!(asked == [10, 11] || asked == [11, 10], "one of them answered: {asked:?}");
    for packet in (0..10).map_while(|_| kernel.next()) {
        assert_ne!(packet.0, ACK, "once: {packet:?}");
    }
}
