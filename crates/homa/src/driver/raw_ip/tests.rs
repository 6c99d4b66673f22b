//! Tests of the raw IP driver with the real kernel over loopback. Without CAP_NET_RAW they print a
//! line and pass. `tests/it/raw_ip.rs` runs with the privilege in a network namespace.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use homa_proto::{LinkId, MessageId, Span};

use super::*;
use crate::driver::udp::control;
use crate::driver::{TrainPiece, wait};
use crate::inline::{Completion, Engine, Wait};
use crate::{CallOptions, Config};

struct TestMessage(Vec<u8>);

impl Gather for TestMessage {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.0[span.offset as usize..][..span.len as usize]
    }
}

fn open(at: &str) -> Option<RawIpDriver> {
    match RawIpDriver::new(at.parse().unwrap(), 1 << 20) {
        Err(OpenError::NeedsNetRaw) => {
            eprintln!("not run: needs CAP_NET_RAW");
            None
        }
        other => Some(other.unwrap()),
    }
}

/// Fills an outbox with `count` packets: a header of 28 bytes between two ports, and `payload`
/// bytes of a message.
fn outbox(
    from: u16,
    to: SocketAddr,
    tos: u8,
    count: usize,
    payload: usize,
) -> (Outbox, TestMessage) {
    let mut outbox = Outbox::default();
    let message = TestMessage((0..count * payload).map(|i| i as u8).collect());
    let len = 28 + payload;
    for index in 0..count {
        let start = outbox.bytes.len();
        outbox.bytes.extend_from_slice(&from.to_be_bytes());
        outbox.bytes.extend_from_slice(&to.port().to_be_bytes());
        outbox.bytes.extend_from_slice(&[0; 24]);
        let offset = (index * payload) as u32;
        outbox.pieces.push(TrainPiece::Buffered(start..outbox.bytes.len()));
        outbox.pieces.push(TrainPiece::Message(Span {
            message: MessageId(0),
            offset,
            len: payload as u32,
        }));
    }
    let mut host = to;
    host.set_port(0);
    outbox.trains.push(Train {
        to: host,
        link: LinkId(0),
        socket: 0,
        source: None,
        tos,
        datagram: len,
        len: count * len,
        pieces: 0..outbox.pieces.len(),
    });
    (outbox, message)
}

/// Waits for `count` packets. Returns their joined payloads, and the sender and number of the last
/// packet.
fn collect(driver: &mut RawIpDriver, count: usize) -> (Vec<u8>, SocketAddr, usize) {
    let (mut bytes, mut seen) = (Vec::new(), 0);
    let mut last = None;
    while seen < count {
        let n = driver.receive(true);
        if n == 0 {
            assert!(wait(&driver.handles(), None, Some(Duration::from_secs(5))).unwrap());
        }
        for index in 0..n {
            let received = driver.received(index);
            assert_eq!(received.bytes.len(), received.datagram, "one packet at a time");
            bytes.extend_from_slice(&received.bytes[28..]);
            last = Some((received.from, received.socket));
        }
        seen += n;
    }
    let (from, number) = last.unwrap();
    (bytes, from, number)
}

#[test]
fn packets_cross_both_families_one_by_one_with_their_ports() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let (Some(mut a), Some(mut b)) = (open(ip), open(ip)) else { return };
        let (from, to) = (a.local()[0], b.local()[0]);
        assert!(from.port() >= 0x8000);
        let (outbox, message) = outbox(from.port(), to, 0xe0, 20, 1396);
        a.send(&outbox, &message);
        let (bytes, sender, _) = collect(&mut b, 20);
        assert_eq!((bytes == message.0, sender), (true, from), "{ip}");
        assert_eq!(a.counters().send_calls, 1, "one system call for the batch");
        assert_eq!(a.receive(true), 0, "both sockets have the address, one the port");
    }
}

#[test]
fn packets_have_the_class_of_their_trains() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let (Some(mut a), Some(b)) = (open(ip), open(ip)) else { return };
        let socket = &b.handles()[0];
        control::ask_for_class(socket);
        // Packets of other tests arrive there, too. Over IPv4 they start with an IP header.
        let (from, len) = (a.local()[0].port(), 28 + 10);
        let is_ours = |packet: &[u8]| {
            let start = packet.len().checked_sub(len);
            start.is_some_and(|start| port_at(&packet[start..], 0) == Some(from))
        };
        for class in [0xe0, 0x00, 0x20] {
            let (outbox, message) = outbox(from, b.local()[0], class, 1, 10);
            a.send(&outbox, &message);
            let mut next = control::next_class(socket);
            while !is_ours(&next.1) {
                next = control::next_class(socket);
            }
            assert_eq!(next.0, class, "{ip}");
        }
    }
}

#[test]
fn a_packet_behind_many_for_other_ports_is_found_at_once() {
    let (Some(mut a), Some(b)) = (open("127.0.0.1:0"), open("127.0.0.1:0")) else { return };
    let (Some(mut sender), from) = (open("127.0.0.1:0"), 9) else { return };
    // The filter drops no packets of this type.
    let (mut others, message) = outbox(from, b.local()[0], 0, 1_000, 0);
    others.bytes.chunks_mut(28).for_each(|packet| packet[filter::AT_TYPE] = filter::NEED_ACK);
    sender.send(&others, &message);
    let (ours, message) = outbox(from, a.local()[0], 0, 1, 10);
    sender.send(&ours, &message);
    // What other tests send arrives there, too, and may be for a port that is closed by now.
    let arrived = a.receive(true);
    let found = (0..arrived).filter(|index| a.received(*index).bytes[28..] == message.0[..]);
    assert_eq!(found.count(), 1, "of {arrived}");
    assert!(a.counters().other_ports >= 1_000, "{:?}", a.counters());
}

#[test]
fn a_socket_at_every_address_has_both_families_and_many_ports() {
    let (Some(mut a), Some(mut b)) = (open("[::]:0"), open("127.0.0.1:0")) else { return };
    let second = b.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(b.bind(second).is_err(), "the port is taken");
    for number in [0, 1] {
        let to = b.local()[number];
        assert!(a.reaches(0, to.ip()));
        let (outbox, message) = outbox(a.local()[0].port(), to, 0x60, 1, 10);
        a.send(&outbox, &message);
        let (_, from, got) = collect(&mut b, 1);
        assert_eq!((from.ip(), got), (to.ip(), number));
    }
}

#[test]
fn a_socket_receives_at_a_new_port_if_its_filter_is_refused() {
    let (Some(mut a), Some(mut b)) = (open("[::1]:0"), open("[::1]:0")) else { return };
    // Fills the memory that the kernel allows for options of the socket.
    let options = UdpSocket::from(b.first_handle().try_clone_to_owned().unwrap());
    let group = |n: u16| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x146, n);
    let refused = (0..u16::MAX).find(|&n| options.join_multicast_v6(&group(n), 1).is_err());
    assert!(refused.is_some());
    let to = b.bind("[::1]:0".parse().unwrap()).unwrap();
    let (outbox, message) = outbox(a.local()[0].port(), to, 0, 1, 10);
    a.send(&outbox, &message);
    assert_eq!(collect(&mut b, 1).2, 1);
}

#[test]
fn tcp_in_disguise_is_received_and_other_tcp_is_not() {
    let Some(mut driver) = open("127.0.0.1:0") else { return };
    let to = driver.local()[0];
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP) };
    // SAFETY: just created, and owned by nothing else.
    let tcp = UdpSocket::from(unsafe {
        <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd)
    });
    let mut packet = [0; 29];
    packet[..2].copy_from_slice(&7777u16.to_be_bytes());
    packet[2..4].copy_from_slice(&to.port().to_be_bytes());
    // First a plain reset of a connection, then a reset that is a Homa packet.
    for (flags, urgent, payload) in [(4, 0, 1), (6, 0xb97d, 2)] {
        packet[12] = 0x50;
        packet[13] = flags;
        packet[18..20].copy_from_slice(&u16::to_be_bytes(urgent));
        packet[28] = payload;
        tcp.send_to(&packet, (to.ip(), 0)).unwrap();
    }
    let (bytes, from, ..) = collect(&mut driver, 1);
    assert_eq!((&bytes[..], from.port()), (&[2][..], 7777));
    assert_eq!(driver.counters().tcp_hijack_received, 1);
}

#[test]
fn engines_speak_the_kernels_profile_and_know_each_others_ports() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let engine = || match Engine::raw_ip(ip.parse().unwrap(), Config::linux()) {
            Err(OpenError::NeedsNetRaw) => None,
            other => Some(other.unwrap()),
        };
        let (Some(mut client), Some(mut server)) = (engine(), engine()) else { return };
        server.listen().unwrap();
        let request: Vec<u8> = (0..100_000u32).map(|i| (i * 31) as u8).collect();
        let options = CallOptions::default();
        client.call(server.local_addr(), request.clone(), 7, &options).unwrap();
        let response = loop {
            client.poll(Wait::No).unwrap();
            server.poll(Wait::No).unwrap();
            if let Some(Completion::Request { id, from, bytes, .. }) = server.next() {
                assert_eq!(from, client.local_addr());
                server.reply(id, bytes).unwrap();
            }
            if let Some(Completion::Response { result, .. }) = client.next() {
                break result.unwrap();
            }
        };
        assert!(response == *request);
        // 28 packets of 1424 bytes (1404 over IPv6) and a shorter packet add up to exactly 40,000
        // bytes.
        let per_packet = if client.local_addr().is_ipv4() { 1424u32 } else { 1404 };
        let packets = 40_000u32.div_ceil(per_packet) + 60_000u32.div_ceil(per_packet);
        assert_eq!(client.metrics().protocol.data_sent, u64::from(packets));
    }
}

#[test]
fn without_the_privilege_the_error_says_how_to_get_it() {
    let text = OpenError::NeedsNetRaw.to_string();
    assert!(text.contains("CAP_NET_RAW") && text.contains("setcap cap_net_raw+ep"), "{text}");
}

#[test]
fn a_closed_port_is_free_for_others_and_receives_nothing() {
    let (Some(mut a), Some(mut b)) = (open("127.0.0.1:0"), open("127.0.0.1:0")) else { return };
    let at = b.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let first = b.local()[0];
    let (from, heir) = (a.local()[0].port(), |a: &mut RawIpDriver| a.bind(at));
    assert!(heir(&mut a).is_err(), "taken");
    b.unbind(1);
    assert!(!b.reaches(1, at.ip()));
    for to in [at, first] {
        let (outbox, message) = outbox(from, to, 0, 1, 10);
        a.send(&outbox, &message);
    }
    assert_eq!(collect(&mut b, 1).2, 0, "the one to the open port");
    assert_eq!(heir(&mut a).unwrap(), at);
    assert_eq!(b.bind("127.0.0.1:0".parse().unwrap()).unwrap(), b.local()[1]);
}
