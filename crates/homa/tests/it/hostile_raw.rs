//! Attacks over IP protocol 146 by a host that sees every packet and knows all ids. It can write
//! any packet, but cannot take over our addresses. RPCs of other hosts must continue, nothing may
//! be executed, memory must stay within bounds, and our host must not report that Homa is unknown
//! here. Forged reports about UDP datagrams, which need a raw socket, are tested here as well.
//!
//! Raw sockets need a privilege, which each test has in its own network namespace. If the system
//! allows none, the test prints a line and passes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine, Wait};
use homa::proto::{
    AckEntry, Acks, Body, Data, MessageId, Packet, PeerId, ResendLength, RpcId, Span, wire,
};
use homa::{CallError, CallOptions, Config};
use socket2::{Domain, Protocol, Socket, Type};

use crate::alone::is_alone;
use crate::common::message;

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const SERVER_PORT: u16 = 4000;
/// Our addresses and those of the other host, by family.
const HOSTS: [[&str; 2]; 2] = [["127.0.0.1", "127.0.0.66"], ["::1", "fd00::66"]];
const MAX_RPCS: u32 = 200;
/// The length of honest requests and responses.
const LENGTH: usize = 60_000;
const CALLS: u64 = 40;
const LEVEL: u8 = 7;

/// The header of DATA, which shows that the packet begins its message.
const QUOTED: usize = 56;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Polls until `found` returns a value.
fn until<T>(client: &mut Engine, mut found: impl FnMut(&mut Engine) -> Option<T>) -> T {
    let end = Instant::now() + GIVE_UP;
    loop {
        client.poll(Wait::No).unwrap();
        if let Some(found) = found(client) {
            return found;
        }
        assert!(Instant::now() < end, "nothing came: {:?}", client.metrics());
    }
}

/// Waits until the only call ends, and returns its error.
fn end_of_call(client: &mut Engine) -> CallError {
    until(client, |client| match client.next()? {
        Completion::Response { result, .. } => Some(result.unwrap_err()),
        _ => None,
    })
}

/// Polls until `hear` returns a packet. The only call must not end before.
fn hear<T>(client: &mut Engine, mut hear: impl FnMut() -> Option<T>) -> T {
    until(client, |client| {
        let ended = client.next().is_some();
        assert!(!ended, "it ended before it began: {:?}", client.metrics());
        hear()
    })
}

fn engine(port: u16) -> Engine {
    let mut config = Config::linux();
    config.protocol.max_rpcs = MAX_RPCS;
    // A busy machine may pause for longer than the kernel module's 100 ms.
    config.protocol.loss.timeout = Some(homa_proto::Duration::secs(5));
    config.protocol.memory_budget = 4 << 20;
    Engine::raw_ip(SocketAddr::from((HOST, port)), config).unwrap()
}

/// A host that sees all packets on the link, and can write any packet.
struct Stranger {
    ears: Socket,
    mouth: Socket,
    next_id: u64,
}

impl Stranger {
    fn new() -> Self {
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(146))).unwrap();
        let (ears, mouth) = (raw(), raw());
        ears.set_nonblocking(true).unwrap();
        mouth.bind(&SocketAddr::from((STRANGER, 0)).into()).unwrap();
        Self { ears, mouth, next_id: 0 }
    }

    /// Returns the packets that other hosts have sent since the last call.
    fn hear(&self) -> Vec<Packet> {
        let mut heard = Vec::new();
        let mut buffer = [0; 65_536];
        while let Ok(n) = std::io::Read::read(&mut &self.ears, &mut buffer) {
            let ours = buffer[12..20] == [HOST.octets(); 2].concat();
            if let Ok(decoded) = wire::decode(&buffer[20..n], PeerId(0), 0)
                && ours
            {
                heard.push(decoded.packet);
            }
        }
        heard
    }

    fn say(&self, ports: (u16, u16), id: RpcId, body: Body, payload: usize) {
        let (local_port, remote_port) = ports;
        let packet = Packet { peer: PeerId(0), priority: 0, local_port, remote_port, id, body };
        let mut bytes = vec![0; 2000];
        let length = wire::encode(&packet, &mut bytes).unwrap() + payload;
        // The network may refuse the packet.
        let to = SocketAddr::from((HOST, 0)).into();
        let _ = self.mouth.send_to(&bytes[..length], &to);
    }

    /// Sends to both sides every packet that an attacker could send about an RPC of others.
    fn interfere(&self, with: &Packet) {
        let ports = (with.local_port, with.remote_port);
        self.interfere_at(with, ports);
        self.interfere_at(with, (ports.1, ports.0));
    }

    fn interfere_at(&self, with: &Packet, ports: (u16, u16)) {
        let mut acks = Acks::default();
        let server_port = SERVER_PORT;
        acks.push(AckEntry { id: RpcId(with.id.0 & !1), server_port }).unwrap();
        let all = ResendLength::Bytes(u32::MAX);
        let cutoffs = |version| Body::Cutoffs { cutoffs: [1; 8], version, limits: None };
        for body in [
            Body::Ack(acks),
            Body::Grant { offset: u32::MAX, priority: LEVEL },
            Body::Resend { offset: 0, length: all, priority: LEVEL },
            Body::Resend { offset: u32::MAX, length: all, priority: 255 },
            Body::RpcUnknown { remembered: None, no_server: false, reason: None },
            Body::Busy { come_back: None },
            Body::NeedAck,
            Body::Freeze,
            cutoffs(0),
            cutoffs(u16::MAX),
        ] {
            for id in [with.id.0, with.id.0 ^ 1] {
                self.say(ports, RpcId(id), body, 0);
            }
        }
        // The same RPC with other bytes, and the RPC with the same number in the other direction.
        for id in [with.id.0, with.id.0 ^ 1] {
            self.say(ports, RpcId(id), data(0, 100, 100), 100);
            self.say(ports, RpcId(id), data(1_000, 1_000_000, 1400), 1400);
        }
    }

    /// Begins requests that will never be complete. Some contain the last bytes of long messages.
    fn begin(&mut self) {
        for offset in [0, 500_000, 998_600] {
            self.next_id += 2;
            let id = RpcId(self.next_id);
            self.say((9, SERVER_PORT), id, data(offset, 1_000_000, 1400), 1400);
        }
    }
}

fn data(offset: u32, message_length: u32, len: u32) -> Body {
    Body::Data(Data {
        span: Span { message: MessageId(0), offset, len },
        message_length,
        incoming: message_length,
        ack: None,
        cutoff_version: u16::MAX,
        retransmit: false,
        incast: None,
    })
}

#[test]
fn another_host_disturbs_no_rpc_over_raw_ip() {
    if !is_alone() {
        return;
    }
    let (mut client, mut server) = (engine(0), engine(SERVER_PORT));
    server.listen().unwrap();
    let mut stranger = Stranger::new();
    let (mut answered, mut requests) = (0, 0);
    let call = |client: &mut Engine, cookie: u64| {
        let options = CallOptions::default();
        client.call(server_address(), message(LENGTH, cookie), cookie, &options).unwrap();
    };
    call(&mut client, 0);
    while answered < CALLS {
        for engine in [&mut client, &mut server] {
            engine.poll(Wait::No).unwrap();
        }
        for packet in stranger.hear().iter().step_by(4) {
            stranger.interfere(packet);
        }
        stranger.begin();
        match server.next() {
            Some(Completion::Request { id, from, bytes, .. }) => {
                // The attacker may call, too, and never acknowledge the response.
                let honest = from == client.local_addr();
                assert!(honest || from.ip() == STRANGER, "{from}");
                requests += u64::from(honest);
                let response = if honest { bytes.into_vec() } else { vec![1] };
                let replied = server.reply(id, response);
                assert!(!honest || replied.is_ok(), "{replied:?}");
            }
            Some(Completion::Cancelled { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        match client.next() {
            Some(Completion::Response { cookie, result, .. }) => {
                assert!(result.unwrap() == message(LENGTH, cookie)[..], "call {cookie}");
                answered += 1;
                call(&mut client, answered);
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    assert!(requests >= CALLS);
    let (metrics, open) = (server.metrics(), server.in_progress().1);
    assert!(open <= MAX_RPCS as usize, "{open} requests are half open");
    assert!(metrics.engine.send_memory_bytes <= 3 * LENGTH as u64, "{:?}", metrics.engine);
    assert!(metrics.engine.peers <= 2 && client.metrics().engine.peers <= 2);
    let drops: u64 = metrics.protocol.drops().map(|(_, count)| count).sum();
    assert!(drops > 100, "{drops} drops");
}

fn server_address() -> SocketAddr {
    SocketAddr::from((HOST, SERVER_PORT))
}

/// Opens a raw socket that only receives packets to its own address.
fn bound(at: IpAddr, protocol: Protocol) -> Socket {
    let domain = if at.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    socket.bind(&SocketAddr::new(at, 0).into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn icmp(of: IpAddr) -> Protocol {
    if of.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 }
}

/// Builds an ICMP report with this type and code. It quotes the first bytes of a packet of an IP
/// protocol from `from` to `to`.
fn report(code: [u8; 2], from: IpAddr, to: IpAddr, protocol: u8, packet: &[u8]) -> Vec<u8> {
    let [high, length] = (packet.len() as u16 + 20).to_be_bytes();
    let (header, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = vec![0x45, 0, high, length, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            (header, [from.octets(), to.octets()].concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [high, length] = (packet.len() as u16).to_be_bytes();
            let header = vec![0x60, 0, 0, 0, high, length, protocol, 64];
            (header, [from.octets(), to.octets()].concat())
        }
        _ => panic!("two families"),
    };
    let mut icmp =
        [&[code[0], code[1], 0, 0, 0, 0, 0, 0][..], &header, &addresses, packet].concat();
    // The kernel computes the checksum of ICMPv6.
    let words = icmp.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let checksum = !((folded >> 16) + folded) as u16;
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    icmp
}

#[test]
fn reports_about_packets_that_we_did_not_send_end_no_call() {
    if !is_alone() {
        return;
    }
    for [host, stranger] in HOSTS.map(|pair| pair.map(|ip| ip.parse::<IpAddr>().unwrap())) {
        let [missing_host, protocol, port] = match host.is_ipv4() {
            true => [[3, 1], [3, 2], [3, 3]],
            false => [[1, 0], [4, 1], [1, 4]],
        };
        let (ears, mouth) = (bound(stranger, 146.into()), bound(stranger, icmp(host)));
        let mut client = Engine::raw_ip(SocketAddr::new(host, 0), Config::default()).unwrap();
        let to = SocketAddr::new(stranger, SERVER_PORT);
        let mut past = [0; 8];
        // Reports that quote this much of the packet, after a change to the last byte of the id.
        for (reports, expected) in [
            (
                &[(missing_host, QUOTED, 2), (protocol, QUOTED, 1), (port, QUOTED, 0)][..],
                CallError::PortUnreachable,
            ),
            (&[(protocol, 8, 0), (missing_host, QUOTED, 0)], CallError::HostUnreachable),
            (&[(port, QUOTED, 2), (protocol, QUOTED, 0)], CallError::ProtocolUnreachable),
        ] {
            client.call(to, vec![1], 0, &CallOptions::default()).unwrap();
            let mut packet = [0; 2000];
            let skip = if host.is_ipv4() { 20 } else { 0 };
            let heard = |packet: &mut [u8]| std::io::Read::read(&mut &ears, packet).is_ok();
            // The cancellation of the earlier call is no request, and its request has a different
            // id.
            hear(&mut client, || {
                let is_new = heard(&mut packet)
                    && packet[skip + 11] == wire::kind::DATA
                    && packet[skip + 20..][..8] != past;
                is_new.then_some(())
            });
            past.copy_from_slice(&packet[skip + 20..][..8]);
            for &(code, length, change) in reports {
                let mut quoted = packet[skip..][..QUOTED].to_vec();
                quoted[27] = quoted[27].wrapping_add(change);
                let report = report(code, host, stranger, 146, &quoted[..length]);
                mouth.send_to(&report, &SocketAddr::new(host, 0).into()).unwrap();
            }
            assert_eq!(end_of_call(&mut client), expected, "{host}");
            // Packets sent again meanwhile belong to a call that has ended.
            while heard(&mut packet) {}
        }
    }
}

#[test]
fn reports_about_datagrams_that_we_did_not_send_end_no_call() {
    if !is_alone() {
        return;
    }
    for [host, stranger] in HOSTS.map(|pair| pair.map(|ip| ip.parse::<IpAddr>().unwrap())) {
        let v4 = host.is_ipv4();
        let [missing_host, port] = if v4 { [[3, 1], [3, 3]] } else { [[1, 0], [1, 4]] };
        let (ears, mouth) = (UdpSocket::bind((stranger, 0)).unwrap(), bound(stranger, icmp(host)));
        ears.set_nonblocking(true).unwrap();
        let to = ears.local_addr().unwrap();
        let mut client =
            Engine::bind(SocketAddr::new(host, 0), Config::default().plaintext()).unwrap();
        let from = client.local_addr();
        // The request is longer than its unscheduled bytes, so a report that is believed ends the
        // call.
        client.call(to, vec![1; 1_000_000], 0, &CallOptions::default()).unwrap();
        let mut datagram = [0; 2000];
        let len = hear(&mut client, || ears.recv(&mut datagram).ok());
        let honest = &datagram[..len];
        let id = wire::datagram::quoted(honest).unwrap().id.0.to_be_bytes();
        let at = honest.windows(8).position(|bytes| bytes == id).unwrap();
        let mut forged = honest.to_vec();
        forged[at] ^= 1;
        // A report need not quote more than the ports. An attacker that knows only the ports must
        // not be believed.
        for (code, datagram) in [(port, &[][..]), (port, &forged), (missing_host, honest)] {
            let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()];
            let packet = [&ports.concat()[..], &[0; 4], datagram].concat();
            let report = report(code, host, stranger, 17, &packet);
            mouth.send_to(&report, &SocketAddr::new(host, 0).into()).unwrap();
        }
        assert_eq!(end_of_call(&mut client), CallError::HostUnreachable, "{host}");
        assert_eq!(client.metrics().engine.icmp_reports_ignored, 1, "{host}");
    }
}

/// Counts reports of an unknown protocol among the packets of an ICMP socket.
fn protocols_refused(ears: &Socket, v4: bool) -> usize {
    let (header, refused) = if v4 { (20, [3, 2]) } else { (0, [4, 1]) };
    let mut buffer = [0; 2000];
    let heard =
        std::iter::from_fn(|| std::io::Read::read(&mut &*ears, &mut buffer).ok().map(|_| buffer));
    heard.filter(|packet| packet[header..][..2] == refused).count()
}

#[test]
fn a_full_receive_queue_causes_no_protocol_unreachable() {
    if !is_alone() {
        return;
    }
    for [host, stranger] in HOSTS.map(|pair| pair.map(|ip| ip.parse::<IpAddr>().unwrap())) {
        let config = Config::linux().receive_buffer(4096);
        let server = Engine::raw_ip(SocketAddr::new(host, SERVER_PORT), config).unwrap();
        let (mouth, ears) = (bound(stranger, 146.into()), bound(stranger, icmp(host)));
        let flood = || {
            let mut packet = [0; 1000];
            packet[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
            for _ in 0..100 {
                mouth.send_to(&packet, &SocketAddr::new(host, 0).into()).unwrap();
            }
        };
        flood();
        assert_eq!(protocols_refused(&ears, host.is_ipv4()), 0, "{host}");
        drop(server);
        flood();
        assert!(protocols_refused(&ears, host.is_ipv4()) > 0, "{host}: no engine is open");
    }
}
