//! Raw IP between two network namespaces: the program against packets as the Linux kernel module
//! sends them (layout of Linux `homa_wire.h`, branch main), without root. Also AF_XDP, if this
//! process is root outside of user namespaces.
//!
//! One process without a test harness, because namespaces are available only before the first
//! thread. If they are refused, the test says so and is skipped.

// Other tests use the rest of it.
#[allow(dead_code)]
mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{code, program, stderr};
use homa::driver::{Driver, Gather, Outbox, Train, TrainPiece, UnreachableReport};
use homa_proto::{LinkId, Quoted, RpcId, Span, Unreachable};
use homa_testbed::{Namespace, VethPair, isolate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

const SERVER: Ipv4Addr = VethPair::ADDRESSES[0];
const CLIENT: Ipv4Addr = VethPair::ADDRESSES[1];
const HOMA: i32 = 146;
const TCP: i32 = 6;
const ICMP: i32 = 1;
/// Only reached when something is broken.
const GIVE_UP: Duration = Duration::from_secs(10);

/// How the harness begins the line by which tests are counted.
const RESULT: &str = "test result: ok.";

/// Gets the server's host and the client's.
type Test = fn(&Namespace, &Namespace);

fn main() {
    let pair = match isolate().and_then(|inside| VethPair::new(&inside, 1500)) {
        Ok(pair) => pair,
        Err(error) => {
            skip::test("namespaces (see `homa doctor`)");
            return println!("raw_ip: {error}\n{RESULT} 0 passed; 0 failed; 6 ignored;");
        }
    };
    let [server, client] = &pair.ends;
    let tests: [(&str, Test); 6] = [
        ("the program answers itself and cp_node", the_program_answers_itself),
        ("a kernel client is served", a_kernel_client_is_served),
        ("a kernel server is called", a_kernel_server_is_called),
        ("what ICMP says reaches the driver", what_icmp_says_reaches_the_driver),
        ("without the privilege the remedy is named", without_the_privilege_the_remedy_is_named),
        ("AF_XDP speaks with both kinds of peer", af_xdp_speaks_with_both_kinds_of_peer),
    ];
    for (name, test) in tests {
        test(server, client);
        println!("raw_ip: {name}: ok");
    }
    println!("{RESULT} {} passed; 0 failed; 0 ignored;", tests.len());
}

/// Runs `job` on a thread in `host`.
fn within<T: Send>(host: &Namespace, job: impl FnOnce() -> T + Send) -> T {
    host.run(|| Ok(job())).expect("the namespace can be entered")
}

fn homa_in(host: &Namespace, arguments: &[&str]) -> Output {
    within(host, || program().args(arguments).output().expect("the program starts"))
}

/// A running server; ends with the test, whatever becomes of it.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// A server in `host`, listening.
fn serve(host: &Namespace, arguments: &[&str]) -> Serving {
    serve_over("raw-ip", host, arguments)
}

fn serve_over(driver: &str, host: &Namespace, arguments: &[&str]) -> Serving {
    let mut child = within(host, || {
        let mut command = program();
        command.args(["serve", "--driver", driver, "--metrics", "--bind"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    let (mut line, mut byte) = (String::new(), [0]);
    let stdout = child.stdout.as_mut().expect("piped");
    while !line.ends_with('\n') && stdout.read(&mut byte).is_ok_and(|n| n > 0) {
        line.push(byte[0].into());
    }
    assert!(line.starts_with("listening on "), "{line}");
    Serving(child)
}

/// Ends a server; what it counted.
fn end(mut server: Serving) -> Vec<String> {
    Command::new("kill").arg(server.0.id().to_string()).status().expect("kill is there");
    let stdout = server.0.stdout.take().expect("piped");
    let said = BufReader::new(stdout).lines().map(|line| line.expect("text")).collect();
    assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
    said
}

/// A raw socket as a kernel host would have it, in `host`.
fn raw(host: &Namespace, protocol: i32) -> Socket {
    within(host, || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(protocol)));
        let socket = socket.expect("root of the namespace may");
        socket.set_read_timeout(Some(GIVE_UP)).expect("a timeout");
        socket
    })
}

fn send(socket: &Socket, to: Ipv4Addr, packet: &[u8]) {
    socket.send_to(packet, &SocketAddr::from((to, 0)).into()).expect("it leaves");
}

/// The next Homa packet of a type to a port: its IP header and itself.
fn receive(socket: &Socket, kind: u8, port: u16) -> (Vec<u8>, Vec<u8>) {
    let mut buffer = [0; 65_536];
    loop {
        let n = (&mut &*socket).read(&mut buffer).expect("a packet in time");
        let (ip, homa) = buffer[..n].split_at(20);
        if homa[2..4] == port.to_be_bytes() && homa[11] == kind {
            return (ip.to_vec(), homa.to_vec());
        }
    }
}

/// The common header as the module writes it, with a checksum that is not verified.
fn header(ports: (u16, u16), kind: u8, id: u64) -> Vec<u8> {
    let mut packet = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let doff = if kind == 0x10 { 0xe0 } else { 0x50 };
    packet.extend([0, 0, 0, 0, 0, 0, 0, kind, doff, 0x06, 0, 0, 0x6a, 0x72, 0xb9, 0x7d]);
    packet.extend(id.to_be_bytes());
    packet
}

/// DATA of one packet: the offset is in the common header's sequence, as the module has it.
fn data(ports: (u16, u16), id: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = header(ports, 0x10, id);
    let length = (payload.len() as u32).to_be_bytes();
    packet.extend([length, length].concat());
    packet.extend([0; 16]);
    packet.extend([0xff; 4]);
    packet.extend(payload);
    packet
}

fn the_program_answers_itself(server: &Namespace, client: &Namespace) {
    let child = serve(server, &["0.0.0.0:4000", "--cp-node", "--ports", "2"]);
    let call =
        homa_in(client, &["call", "10.78.0.1:4001", "--driver", "raw-ip", "--size", "200kB"]);
    assert_eq!(code(&call), 0, "{}", stderr(&call));
    let load = ["--workload", "w2", "--load", "0.1", "--duration", "300ms", "--format", "json"];
    let node = ["bench", "--peer", "10.78.0.1:4000", "--cp-node", "--ports", "2"];
    let bench = homa_in(client, &[&node[..], &["--driver", "raw-ip"], &load[..]].concat());
    let report = common::document(&bench);
    assert_eq!((code(&bench), &report["valid"]), (0, &true.into()), "{report}");
    assert!(report["completed"].as_u64() > Some(0) && report["completed"] == report["offered"]);
    assert_eq!(report["driver"], "raw-ip");
    let metrics = end(child);
    assert!(metrics.iter().any(|l| l == "homa_driver_other_ports_total 0"), "{metrics:?}");
}

fn a_kernel_client_is_served(server: &Namespace, client: &Namespace) {
    let child = serve(server, &["0.0.0.0:4000", "--echo"]);
    let (peer, ports) = (raw(client, HOMA), (0x8000, 4000));
    // Small ids, as a kernel's; the second request is in disguise as TCP.
    let ways = [raw(client, HOMA), raw(client, TCP)];
    for (id, way) in [2, 4].into_iter().zip(&ways) {
        send(way, SERVER, &data(ports, id, b"hello"));
        let (ip, answer) = receive(&peer, 0x10, 0x8000);
        // DF, no fragment, protocol, and level 6 before CUTOFFS from us.
        assert_eq!((ip[1], ip[6], ip[9]), (0xc0, 0x40, 146));
        let mut expected = data((4000, 0x8000), id + 1, b"hello");
        // We send no checksum, and the offset in both places.
        expected[16..18].fill(0);
        expected[52..56].fill(0);
        assert_eq!(answer, expected);
        let (ip, question) = receive(&peer, 0x17, 0x8000);
        assert_eq!((ip[1], question.len()), (0xe0, 28), "NEED_ACK at the highest level");
        let mut ack = header(ports, 0x18, id);
        ack.resize(80, 0);
        send(&peer, SERVER, &ack);
    }
    let metrics = end(child);
    for expected in [
        "homa_protocol_acks_received_total 2",
        "homa_driver_tcp_hijack_received_total 1",
        "homa_engine_requests_in_progress 0",
    ] {
        assert!(metrics.iter().any(|line| line == expected), "{expected} of {metrics:?}");
    }
}

fn a_kernel_server_is_called(server: &Namespace, client: &Namespace) {
    // Another engine of the same host does not mind packets for our port.
    let other = serve(server, &["0.0.0.0:4000", "--echo"]);
    let peer = raw(server, HOMA);
    let answers = std::thread::spawn(move || {
        let (ip, request) = receive(&peer, 0x10, 4100);
        let port = u16::from_be_bytes([request[0], request[1]]);
        let id = u64::from_be_bytes(request[20..28].try_into().expect("8 bytes"));
        assert_eq!((ip[1], ip[6], port >= 0x8000, id % 2), (0xc0, 0x40, true, 0));
        assert_eq!(request.len(), 56 + 5);
        // CUTOFFS of the module, with a checksum, then the response.
        let mut cutoffs = header((4100, port), 0x15, id + 1);
        [0u32, 0, 0, 0, 1_000_000, 15_000, 2_800, 200]
            .iter()
            .for_each(|cutoff| cutoffs.extend(cutoff.to_be_bytes()));
        cutoffs.extend([0, 1]);
        send(&peer, CLIENT, &cutoffs);
        send(&peer, CLIENT, &data((4100, port), id + 1, b"world"));
        let (ip, ack) = receive(&peer, 0x18, 4100);
        assert_eq!((ip[1], ack.len()), (0xe0, 80), "the fixed length, the highest level");
        assert_eq!(ack[20..28], id.to_be_bytes());
    });
    let call = homa_in(client, &["call", "10.78.0.1:4100", "--driver", "raw-ip"]);
    assert_eq!((code(&call), &call.stdout[..]), (0, &b"world"[..]), "{}", stderr(&call));
    answers.join().expect("the client acknowledged before it ended");
    end(other);
}

/// A message of no bytes.
struct Nothing;

impl Gather for Nothing {
    fn bytes(&self, _: Span) -> &[u8] {
        &[]
    }
}

fn what_icmp_says_reaches_the_driver(server: &Namespace, client: &Namespace) {
    let mut driver = within(client, || {
        <dyn Driver>::raw_ip(SocketAddr::from((CLIENT, 0)), 1 << 16).expect("root may")
    });
    let ours = driver.local()[0].port();
    // No program speaks Homa there, and the kernel reports it.
    let packet = header((ours, 4100), 0x17, 3);
    let outbox = Outbox {
        bytes: packet.clone(),
        pieces: vec![TrainPiece::Buffered(0..28)],
        trains: vec![Train {
            to: SocketAddr::from((SERVER, 0)),
            link: LinkId(0),
            socket: 0,
            source: None,
            tos: 0xe0,
            datagram: 28,
            len: 28,
            pieces: 0..1,
        }],
    };
    driver.send(&outbox, &Nothing);
    let mut next = || loop {
        driver.receive(true);
        match driver.unreachable() {
            Some(report) => break report,
            None => wait(&*driver),
        }
    };
    let host = SocketAddr::from((SERVER, 0));
    assert_eq!(
        next(),
        UnreachableReport {
            to: host,
            what: Unreachable::Protocol,
            quoted: Some(Quoted { id: RpcId(3), begins: false })
        }
    );
    // A path that takes less, another process's port, and a port without socket, as a kernel host
    // reports it. Only the last concerns us.
    let icmp = raw(server, ICMP);
    for (reason, ports) in [(4, (ours, 4101)), (3, (ours ^ 1, 4102)), (3, (ours, 4100))] {
        let mut packet = data(ports, 2, b"");
        // Our own packets have the offset here.
        packet[52..].fill(0);
        send(&icmp, CLIENT, &unreachable(reason, &packet));
    }
    let port = SocketAddr::from((SERVER, 4100));
    assert_eq!(
        next(),
        UnreachableReport {
            to: port,
            what: Unreachable::Port(4100),
            quoted: Some(Quoted { id: RpcId(2), begins: true })
        }
    );
}

/// Sleeps until the driver has something to receive.
fn wait(driver: &dyn Driver) {
    let mut polled = [PollFd::new(driver.first_handle(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(GIVE_UP).expect("a short time");
    assert_eq!(poll(&mut polled, timeout), Ok(1), "nothing was reported");
}

/// ICMP destination unreachable about a packet from CLIENT to SERVER.
fn unreachable(reason: u8, packet: &[u8]) -> Vec<u8> {
    let mut icmp = vec![3, reason, 0, 0, 0, 0, 0x03, 0xe8];
    icmp.extend([0x45, 0, 0, 20 + packet.len() as u8, 0, 0, 0x40, 0, 64, 146, 0, 0]);
    icmp.extend([CLIENT.octets(), SERVER.octets()].concat());
    icmp.extend(packet);
    let pairs = icmp.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum = pairs.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    icmp
}

fn without_the_privilege_the_remedy_is_named(_: &Namespace, client: &Namespace) {
    let tried = within(client, || {
        program().args(["call", "10.78.0.1:4000", "--driver", "raw-ip"]).uid(65_534).output()
    });
    match tried {
        Ok(output) => {
            assert_eq!(code(&output), 2);
            assert!(stderr(&output).contains("CAP_NET_RAW"), "{}", stderr(&output));
            // The file that needs the capability, wherever it is: it may not be on the PATH.
            let remedy = format!("cap_net_raw+ep '{}'", env!("CARGO_BIN_EXE_homa"));
            assert!(stderr(&output).contains(&remedy), "{}", stderr(&output));
        }
        Err(error) => println!("raw_ip: not tried, no other user can run the program: {error}"),
    }
}

fn af_xdp_speaks_with_both_kinds_of_peer(server: &Namespace, client: &Namespace) {
    let at = SocketAddr::from((CLIENT, 0));
    let tried = within(client, || <dyn Driver>::xdp(at, 1 << 20).map(drop));
    if let Err(error) = tried {
        return skip::part(&format!("AF_XDP ({error})"));
    }
    for (serves, calls) in [("xdp", "auto"), ("udp", "xdp"), ("xdp", "udp")] {
        let child = serve_over(serves, server, &["10.78.0.1:4000", "--echo", "--plaintext"]);
        let call = ["call", "10.78.0.1:4000", "--count", "50", "--size", "100..20kB"];
        let call = homa_in(client, &[&call[..], &["--driver", calls, "--plaintext"]].concat());
        assert_eq!(code(&call), 0, "{serves} {calls}: {}", stderr(&call));
        let ping = ["ping", "10.78.0.1:4000", "--count", "3", "--interval", "10ms"];
        let ping = homa_in(client, &[&ping[..], &["--driver", calls, "--plaintext"]].concat());
        assert_eq!((code(&ping), stderr(&ping).contains("--driver udp")), (0, false), "{ping:?}");
        let metrics = end(child);
        let frames = |line: &String| match line.strip_prefix("homa_driver_frames_sent_total ") {
            Some(count) => count != "0",
            None => false,
        };
        assert_eq!(metrics.iter().any(frames), serves == "xdp", "{metrics:?}");
    }
    let bench = ["bench", "--peer", "10.78.0.1:4000", "--driver", "auto", "--duration", "300ms"];
    let load = ["--workload", "w2", "--load", "0.1", "--plaintext", "--format", "json"];
    let child = serve_over("auto", server, &["10.78.0.1:4000", "--echo", "--plaintext"]);
    let report = common::document(&homa_in(client, &[&bench[..], &load[..]].concat()));
    assert_eq!(report["config"]["driver"], "xdp", "what auto stood for: {report}");
    end(child);
}
