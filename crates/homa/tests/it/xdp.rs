//! Engines over AF_XDP, on veth pairs between network namespaces that the tests create.
//!
//! The tests need the capabilities of root outside of user namespaces. Without them they print a
//! line and pass.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::{Driver, Gather, Outbox, Train, TrainPiece};
use homa::metrics::Metrics;
use homa::proto::{LinkId, Span};
use homa::{CallOptions, Config, Engine, OpenError};
use homa_bpf::Capabilities;
use socket2::{Domain, Protocol, Socket, Type};

use crate::alone::{process_of, this_test};
use crate::common::{echo, message};
use crate::hosts::Host;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
const PORT: u16 = 4000;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);

/// Two hosts and the cable between them.
pub struct Net {
    pub client: Host,
    pub server: Host,
}

impl Net {
    /// Creates the hosts. `None` if the system allows no namespaces or AF_XDP cannot be used.
    /// Prints the reason.
    pub fn new() -> Option<Self> {
        let has = Capabilities::of_this_process();
        if !has.has(Capabilities::SYS_ADMIN) || !has.has(Capabilities::NET_ADMIN) {
            skip::test("root (AF_XDP, and network namespaces)");
            return None;
        }
        let [client, server] = Host::pair()?;
        let tried = client.run(|| <dyn Driver>::xdp(SocketAddr::from((CLIENT, 0)), 1 << 20));
        if let Err(error) = tried {
            skip::test(&format!("AF_XDP ({error})"));
            return None;
        }
        Some(Self { client, server })
    }

    fn set_mtu(&self, mtu: u16) {
        self.client.ip(&format!("link set near mtu {mtu}"));
        self.server.ip(&format!("link set far mtu {mtu}"));
    }
}

/// A driver with which an engine uses the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Xdp,
    Udp,
}

impl Way {
    /// Processes that other tests start have copies of descriptors for a moment. Therefore a port
    /// that was just closed may still be in use.
    fn open(self, host: &Host, at: SocketAddr, config: &Config) -> Engine {
        let open = || match self {
            Self::Xdp => Engine::xdp(at, config.clone().plaintext()),
            Self::Udp => Engine::bind(at, config.clone().plaintext()),
        };
        let begun = Instant::now();
        host.run(|| {
            loop {
                let busy = |e: &_| matches!(e, OpenError::Bind { .. } | OpenError::Xdp { .. });
                match open() {
                    Err(e) if busy(&e) && begun.elapsed() < GIVE_UP => thread::sleep(PAUSE),
                    opened => break opened.unwrap(),
                }
            }
        })
    }
}

/// Echoes messages of these sizes several times between two ends. Returns the metrics of client and
/// server.
fn converse(
    net: &Net,
    ways: [Way; 2],
    (from, at, to): (IpAddr, IpAddr, IpAddr),
    sizes: &[usize],
    config: &Config,
) -> [Metrics; 2] {
    let server = ways[1].open(&net.server, SocketAddr::new(at, 0), config);
    let port = server.local_addr().port();
    // The server also looks up routes in its own host.
    let served = net.server.run(|| echo(server.serve().unwrap()));
    let client = ways[0].open(&net.client, SocketAddr::new(from, 0), config);
    call_all(&net.client, &client, SocketAddr::new(to, port), sizes);
    let counted = [client.metrics(), server.metrics()];
    server.drain(GIVE_UP).unwrap();
    served.join().unwrap();
    for (metrics, way) in counted.iter().zip(ways) {
        let text = metrics.to_openmetrics();
        assert_eq!(metrics.driver.frames_malformed, 0, "{ways:?}");
        assert_eq!(metrics.driver.frames_sent > 0, way == Way::Xdp, "{ways:?} {to}: {text}");
    }
    counted
}

fn call_all(host: &Host, client: &Engine, to: SocketAddr, sizes: &[usize]) {
    host.run(|| {
        for n in 0..10 {
            for &size in sizes {
                let bytes = message(size, n);
                let options = CallOptions::deadline(GIVE_UP);
                let answer = client.client().call_with(to, bytes.clone(), &options).unwrap();
                assert!(*answer == *bytes, "{size} B came back changed");
            }
            // By then the next hop is known.
            thread::sleep(Duration::from_millis(6));
        }
    });
}

fn ips(v4: bool) -> (IpAddr, IpAddr) {
    match v4 {
        true => (CLIENT.into(), SERVER.into()),
        false => ("fd08::1".parse().unwrap(), "fd08::2".parse().unwrap()),
    }
}

#[test]
fn messages_of_all_sizes_pass_between_both_kinds_of_peer() {
    let Some(net) = Net::new() else { return };
    for ways in [[Way::Xdp, Way::Xdp], [Way::Xdp, Way::Udp], [Way::Udp, Way::Xdp]] {
        for v4 in [true, false] {
            let (from, to) = ips(v4);
            let sizes = [1, 100, 1_400, 20_000, 2_000_000];
            let counted = converse(&net, ways, (from, to, to), &sizes, &Config::default());
            if ways == [Way::Xdp, Way::Xdp] {
                for metrics in &counted {
                    assert!(metrics.driver.frames_received > 0, "{to}");
                }
                let ends = (from, to, to);
                for metrics in converse(&net, ways, ends, &[100; 5], &Config::default()) {
                    let (frames, all) =
                        (metrics.driver.frames_received, metrics.driver.datagrams_received);
                    assert!(frames * 4 > all * 3, "{frames} of {all} datagrams in frames");
                }
            }
        }
    }
}

#[test]
fn a_server_at_every_address_answers_from_the_address_asked() {
    let Some(net) = Net::new() else { return };
    net.server.ip("addr add 10.8.0.3/24 dev far");
    let to = [IpAddr::from([10, 8, 0, 3]), ips(false).1];
    for (at, to) in [("0.0.0.0", to[0]), ("::", to[0]), ("::", to[1])] {
        let at = at.parse().unwrap();
        let from = ips(to.is_ipv4()).0;
        let ways = [Way::Xdp, Way::Xdp];
        let [_, server] = converse(&net, ways, (from, at, to), &[100], &Config::default());
        assert!(server.driver.frames_received > 0, "{at}");
    }
}

#[test]
fn frames_pass_through_interfaces_of_vlans() {
    let Some(net) = Net::new() else { return };
    for (host, link, n) in [(&net.client, "near", 1), (&net.server, "far", 2)] {
        let vlan = format!("link add link {link} name {link}.7 type vlan id 7");
        let made = host.run(|| Command::new("ip").args(vlan.split(' ')).status());
        if !made.is_ok_and(|made| made.success()) {
            return skip::test("VLANs (8021q)");
        }
        host.ip(&format!("addr add 10.9.0.{n}/24 dev {link}.7"));
        host.ip(&format!("link set {link}.7 up"));
    }
    let (from, to): (IpAddr, IpAddr) = ([10, 9, 0, 1].into(), [10, 9, 0, 2].into());
    for ways in [[Way::Xdp, Way::Xdp], [Way::Xdp, Way::Udp], [Way::Udp, Way::Xdp]] {
        converse(&net, ways, (from, to, to), &[100, 200_000], &Config::default());
    }
}

#[test]
fn an_interface_without_driver_support_works_in_generic_mode() {
    let Some(net) = Net::new() else { return };
    let made = net
        .server
        .run(|| Command::new("ip").args(["link", "add", "br0", "type", "bridge"]).status());
    if !made.is_ok_and(|made| made.success()) {
        return skip::test("bridges");
    }
    for step in ["set far master br0", "set br0 up"] {
        net.server.ip(&format!("link {step}"));
    }
    net.server.ip("addr del 10.8.0.2/24 dev far");
    net.server.ip("addr add 10.8.0.2/24 dev br0");
    let (from, to) = ips(true);
    let ways = [Way::Xdp, Way::Xdp];
    let [_, server] = converse(&net, ways, (from, to, to), &[100, 200_000], &Config::default());
    assert!(server.driver.frames_received > 0);
}

#[test]
fn packets_are_as_large_as_a_frame_holds_without_a_setting() {
    let Some(net) = Net::new() else { return };
    net.set_mtu(9000);
    for v4 in [true, false] {
        let (from, to) = ips(v4);
        let ways = [Way::Xdp, Way::Xdp];
        for end in converse(&net, ways, (from, to, to), &[3_600; 10], &Config::default()) {
            // All but the first, which are three packets of 1500 bytes.
            let (packets, frames) = (end.protocol.data_sent, end.driver.frames_received);
            assert!((100..150).contains(&packets) && frames >= 90, "{packets}, {frames}");
        }
        for ways in [[Way::Xdp, Way::Udp], [Way::Udp, Way::Xdp]] {
            let sizes = [1, 100, 8_000, 20_000, 2_000_000];
            let ends = converse(&net, ways, (from, to, to), &sizes, &Config::default());
            for (end, way) in ends.iter().zip(ways) {
                let mean = end.protocol.data_bytes_sent / end.protocol.data_sent;
                let fits = if way == Way::Xdp { 2_500..3_800 } else { 5_000..9_000 };
                assert!(fits.contains(&mean), "{ways:?} {way:?}: {mean}");
            }
        }
    }
}

#[test]
fn packets_larger_than_a_frame_take_the_sockets_way() {
    let Some(net) = Net::new() else { return };
    net.set_mtu(9000);
    let config = Config::default().mtu(9000);
    let (from, to) = ips(true);
    let ways = [Way::Xdp, Way::Xdp];
    let [_, server] = converse(&net, ways, (from, to, to), &[100, 1_000_000], &config);
    let per_datagram = server.driver.bytes_received / server.driver.datagrams_received;
    assert!(per_datagram > 4_000, "{per_datagram} B per datagram");
}

#[test]
fn a_link_whose_mtu_shrinks_continues_to_work() {
    let Some(net) = Net::new() else { return };
    let (from, to) = ips(true);
    let config = Config::default();
    let server = Way::Xdp.open(&net.server, SocketAddr::new(to, PORT), &config);
    let served = echo(server.serve().unwrap());
    let client = Way::Xdp.open(&net.client, SocketAddr::new(from, 0), &config);
    for mtu in [1500, 1000] {
        net.set_mtu(mtu);
        call_all(&net.client, &client, SocketAddr::new(to, PORT), &[500_000]);
    }
    assert!(client.metrics().engine.path_mtu_lowered > 0);
    server.drain(GIVE_UP).unwrap();
    served.join().unwrap();
}

#[test]
fn foreign_frames_pass_and_malformed_ones_are_counted() {
    let Some(net) = Net::new() else { return };
    net.server.ip("address add 10.8.0.9/24 dev far");
    let server = Way::Xdp.open(&net.server, SocketAddr::from((SERVER, PORT)), &Config::default());
    let served = echo(server.serve().unwrap());
    // A port of another socket.
    let other = net.server.run(|| UdpSocket::bind((SERVER, PORT + 1)).unwrap());
    other.set_read_timeout(Some(GIVE_UP)).unwrap();
    let asks = net.client.run(|| UdpSocket::bind((CLIENT, 0)).unwrap());
    asks.send_to(b"hello", (SERVER, PORT + 1)).unwrap();
    let (length, from) = other.recv_from(&mut [0; 16]).unwrap();
    assert_eq!((length, from), (5, asks.local_addr().unwrap()));
    // UDP packets that no system would deliver, because the checksum is wrong, or a length is too
    // short or exceeds the packet.
    let raw = net.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(17))));
    let raw = raw.unwrap();
    for (length, checksum) in [(20_u16, 0x1234_u16), (2000, 0), (7, 0)] {
        let mut udp = [50_000_u16, PORT, length, checksum].map(u16::to_be_bytes).concat();
        udp.extend([1; 12]);
        raw.send_to(&udp, &SocketAddr::from((SERVER, 0)).into()).unwrap();
    }
    // Packets from another address that the server itself has.
    let raw = net.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))));
    let header = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 8, 0, 9, 10, 8, 0, 2];
    let udp = [50_000_u16, PORT, 20, 0].map(u16::to_be_bytes).concat();
    let packet = [&header[..], &udp, &[1; 12]].concat();
    raw.unwrap().send_to(&packet, &SocketAddr::from((SERVER, 0)).into()).unwrap();
    let begun = Instant::now();
    while server.metrics().driver.frames_malformed < 4 {
        assert!(begun.elapsed() < GIVE_UP, "{}", server.metrics().to_openmetrics());
        thread::sleep(Duration::from_millis(5));
    }
    let client = Way::Udp.open(&net.client, SocketAddr::from((CLIENT, 0)), &Config::default());
    call_all(&net.client, &client, SocketAddr::from((SERVER, PORT)), &[100]);
    assert_eq!(server.metrics().driver.frames_malformed, 4);
    server.drain(GIVE_UP).unwrap();
    served.join().unwrap();
}

#[test]
fn the_port_of_an_ended_server_is_free_after_address_changes() {
    let Some(net) = Net::new() else { return };
    let server = Way::Xdp.open(&net.server, SocketAddr::from((SERVER, 0)), &Config::default());
    let served = net.server.run(|| echo(server.serve().unwrap()));
    drop(net.server.run(|| server.serve_at(SocketAddr::from((SERVER, PORT))).unwrap()));
    let other = net.server.run(|| {
        let begun = Instant::now();
        loop {
            match UdpSocket::bind((SERVER, PORT)) {
                Err(_) if begun.elapsed() < GIVE_UP => thread::sleep(Duration::from_millis(1)),
                bound => break bound.unwrap(),
            }
        }
    });
    other.set_read_timeout(Some(GIVE_UP)).unwrap();
    let client = Way::Udp.open(&net.client, SocketAddr::from((CLIENT, 0)), &Config::default());
    net.server.ip("address add 10.8.0.9/24 dev far");
    // Waits until the driver knows the new address.
    let known = || server.metrics().driver.frames_malformed > 0;
    let raw =
        |kind| net.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(kind))));
    let (udp_only, with_header) = (raw(17).unwrap(), raw(255).unwrap());
    let udp = |port: u16| [50_000_u16, port, 20, 0].map(u16::to_be_bytes).concat();
    let header = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 8, 0, 9, 10, 8, 0, 2];
    let spoofed = [&header[..], &udp(server.local_addr().port()), &[1; 12]].concat();
    let begun = Instant::now();
    while !known() {
        assert!(begun.elapsed() < GIVE_UP);
        call_all(&net.client, &client, server.local_addr(), &[100]);
        with_header.send_to(&spoofed, &SocketAddr::from((SERVER, 0)).into()).unwrap();
    }
    let hello = [&udp(PORT)[..], &[1; 12]].concat();
    udp_only.send_to(&hello, &SocketAddr::from((SERVER, 0)).into()).unwrap();
    assert_eq!(other.recv_from(&mut [0; 32]).unwrap().0, 12);
    server.drain(GIVE_UP).unwrap();
    served.join().unwrap();
}

#[test]
fn frames_of_an_interface_that_is_down_are_not_queued() {
    struct NoMessages;
    impl Gather for NoMessages {
        fn bytes(&self, _: Span) -> &[u8] {
            &[]
        }
    }
    let Some(net) = Net::new() else { return };
    let link = LinkId(0);
    let mut driver =
        net.client.run(|| <dyn Driver>::xdp(SocketAddr::from((CLIENT, 0)), 1 << 20).unwrap());
    let (to, tos, pieces) = (SocketAddr::from((SERVER, PORT)), 0, 0..1);
    let (datagram, len, source) = (100, 100, None);
    let train = Train { to, link, socket: 0, source, tos, datagram, len, pieces };
    let (bytes, pieces) = (vec![0; 100], vec![TrainPiece::Buffered(0..100)]);
    let outbox = Outbox { bytes, pieces, trains: vec![train] };
    let mut goes_in_a_frame = || {
        let before = driver.counters().frames_sent;
        driver.send(&outbox, &NoMessages);
        (driver.counters().frames_sent > before, driver.queued(link))
    };
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < GIVE_UP);
        if !goes_in_a_frame().0 {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        net.client.ip("link set near down");
        let (went, queued) = goes_in_a_frame();
        net.client.ip("link set near up");
        // Otherwise the driver already knew the address, and left the packet to the system.
        if went {
            return assert_eq!(queued, Some(0));
        }
    }
}

#[test]
fn no_frame_memory_is_lost_when_too_many_frames_arrive() {
    let Some(net) = Net::new() else { return };
    let at = SocketAddr::from((SERVER, PORT));
    let mut driver = net.server.run(|| <dyn Driver>::xdp(at, 1 << 16).unwrap());
    // The system would leave checksums to a card, and keep such packets for itself.
    let sender = net.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(17))));
    let sender = sender.unwrap();
    let send = |payload: u16| {
        let udp = [50_000, PORT, 10, 0, payload].map(u16::to_be_bytes).concat();
        sender.send_to(&udp, &SocketAddr::from((SERVER, 0)).into()).unwrap();
    };
    let mut drain = || {
        let mut got = 0;
        loop {
            match driver.receive(true) {
                0 => return (got, driver.counters().frames_received),
                trains => got += trains,
            }
        }
    };
    // The first packet waits until the next hop is resolved.
    send(0);
    thread::sleep(Duration::from_millis(50));
    let (_, mut before) = drain();
    let mut each = Vec::new();
    for _ in 0..4 {
        (0..2_000).for_each(send);
        thread::sleep(Duration::from_millis(20));
        let (_, after) = drain();
        each.push(after - before);
        before = after;
    }
    assert!(each[0] >= 512 && each.iter().all(|&frames| frames == each[0]), "{each:?}");
    assert!(each[0] < 2_000, "there was room for all");
}

#[test]
fn only_one_engine_can_use_an_interface() {
    let Some(net) = Net::new() else { return };
    let first = Way::Xdp.open(&net.client, SocketAddr::from((CLIENT, 0)), &Config::default());
    let open = |at: &str| {
        let at = at.parse().unwrap();
        net.client.run(|| Engine::xdp(at, Config::default())).unwrap_err()
    };
    let error = open("10.8.0.1:0");
    assert!(matches!(&error, OpenError::Xdp { interface, .. } if interface == "near"), "{error}");
    assert!(error.to_string().contains("ip link show"), "{error}");
    let error = open("127.0.0.1:0");
    assert!(matches!(error, OpenError::NoInterface { .. }), "{error}");
    drop(first);
    Way::Xdp.open(&net.client, SocketAddr::from((CLIENT, 0)), &Config::default());
}

/// Set in the process that is killed, and in the process without privileges.
const CHILD: &str = "HOMA_TEST_XDP_CHILD";

fn child(host: &Host, user: Option<u32>) -> std::io::Result<Child> {
    let mut command = process_of(&this_test());
    host.run(|| {
        command.env(CHILD, "1");
        if let Some(user) = user {
            command.uid(user);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    })
}

/// Returns the output of `ip` about the client's interface.
fn link(net: &Net) -> String {
    let shown = net.client.run(|| Command::new("ip").args(["link", "show", "near"]).output());
    String::from_utf8_lossy(&shown.unwrap().stdout).into_owned()
}

#[test]
fn a_process_that_is_killed_leaves_nothing_attached() {
    let at = SocketAddr::from((CLIENT, PORT));
    if std::env::var_os(CHILD).is_some() {
        let _engine = Engine::xdp(at, Config::default().plaintext()).unwrap();
        thread::sleep(GIVE_UP);
        return;
    }
    let Some(net) = Net::new() else { return };
    assert!(!link(&net).contains("xdp"), "{}", link(&net));
    let mut child = child(&net.client, None).unwrap();
    let begun = Instant::now();
    while !link(&net).contains("xdp") {
        assert!(begun.elapsed() < GIVE_UP, "{}", link(&net));
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel removes the program when the last descriptor of the process is closed.
    while link(&net).contains("xdp") {
        assert!(begun.elapsed() < GIVE_UP, "{}", link(&net));
        thread::sleep(PAUSE);
    }
    let again = Way::Xdp.open(&net.client, at, &Config::default());
    assert_eq!(again.local_addr(), at);
}

#[test]
fn without_the_privilege_the_error_lists_what_is_missing() {
    if std::env::var_os(CHILD).is_some() {
        let error = Engine::xdp(SocketAddr::from((CLIENT, 0)), Config::default()).unwrap_err();
        assert!(matches!(error, OpenError::NeedsXdp { .. }), "{error}");
        println!("refused: {error}");
        return;
    }
    let Some(net) = Net::new() else { return };
    // Other users may be unable to read the folder of the test.
    let Ok(child) = child(&net.client, Some(65_534)) else {
        return skip::test("a folder of tests that every user can read");
    };
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    let [said, log] = [&stdout, &stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(said.contains("lacks CAP_NET_ADMIN, CAP_BPF, CAP_NET_RAW"), "{said}\n{log}");
}
