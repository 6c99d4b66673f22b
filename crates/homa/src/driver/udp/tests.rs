//! Tests of the UDP driver with the real kernel over loopback.

use std::time::Duration;

use homa_proto::wire::datagram::Writer;
use homa_proto::{Body, LinkId, MessageId, Packet, PeerId, Quoted, RpcId, Span};

use socket2::{Domain, Socket, Type};

use super::*;
use crate::driver::{Train, TrainPiece, wait};

/// One outgoing message.
struct TestMessage(Vec<u8>);

impl Gather for TestMessage {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.0[span.offset as usize..][..span.len as usize]
    }
}

fn pair(ip: &str) -> (UdpDriver, UdpDriver) {
    let open = || UdpDriver::new(SocketAddr::new(ip.parse().unwrap(), 0), 1 << 20).unwrap();
    (open(), open())
}

/// A train of `datagrams` datagrams: each a 4-byte header and `payload` bytes of the message.
fn train(
    to: SocketAddr,
    tos: u8,
    datagrams: usize,
    payload: usize,
) -> (Outbox, TestMessage, Vec<u8>) {
    let mut outbox = Outbox::default();
    let message = TestMessage((0..datagrams * payload).map(|i| i as u8).collect());
    let mut expected = Vec::new();
    for index in 0..datagrams {
        let start = outbox.bytes.len();
        outbox.bytes.extend_from_slice(&(index as u32).to_be_bytes());
        let span =
            Span { message: MessageId(0), offset: (index * payload) as u32, len: payload as u32 };
        outbox.pieces.push(TrainPiece::Buffered(start..outbox.bytes.len()));
        outbox.pieces.push(TrainPiece::Message(span));
        expected.extend_from_slice(&outbox.bytes[start..]);
        expected.extend_from_slice(message.bytes(span));
    }
    let pieces = 0..outbox.pieces.len();
    let len = expected.len();
    outbox.trains.push(Train {
        to,
        link: LinkId(0),
        socket: 0,
        source: None,
        tos,
        datagram: 4 + payload,
        len,
        pieces,
    });
    (outbox, message, expected)
}

/// Receives until `len` bytes have arrived. Also returns the number of trains.
fn collect(driver: &mut UdpDriver, len: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut trains) = (Vec::new(), 0);
    while bytes.len() < len {
        let n = driver.receive(false);
        if n == 0 {
            wait(&driver.handles(), None, Some(Duration::from_secs(5))).unwrap();
        }
        for index in 0..n {
            let train = driver.received(index);
            bytes.extend_from_slice(train.bytes);
            trains += 1;
        }
    }
    (bytes, trains)
}

#[test]
fn a_train_keeps_its_bytes_on_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = pair(ip);
        let (outbox, message, expected) = train(b.local()[0], 0xa0, 10, 1400);
        a.send(&outbox, &message);
        let (bytes, _) = collect(&mut b, expected.len());
        assert!(bytes == expected, "{ip}");
        assert_eq!(b.counters().datagrams_received, 10);
        assert_eq!(a.counters().send_calls, 1, "one system call for the train");
    }
}

#[test]
fn packets_have_the_class_of_their_train_not_the_default() {
    for (from, to) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let (mut a, _) = pair(from);
        let listener = UdpSocket::bind(SocketAddr::new(to.parse().unwrap(), 0)).unwrap();
        let at = listener.local_addr().unwrap();
        control::ask_for_class(&listener);
        // One class, then another, then alternating classes, including none.
        let turns = (0..60).map(|n| [0x00, 0x20, 0xa0][n % 3]);
        let classes = [0xa0; 100].into_iter().chain([0x60; 200]).chain(turns).chain([0; 200]);
        for (n, class) in classes.enumerate() {
            let (outbox, message, _) = train(at, class, 1, 10);
            a.send(&outbox, &message);
            assert_eq!(control::next_class(&listener).0, class, "{from}: packet {n}");
        }
    }
}

#[test]
fn an_offloaded_train_crosses_the_kernel_in_one_piece() {
    let (mut a, mut b) = pair("127.0.0.1");
    let (outbox, message, expected) = train(b.local()[0], 0x20, 40, 150);
    a.send(&outbox, &message);
    let (bytes, trains) = collect(&mut b, expected.len());
    assert_eq!((bytes == expected, trains), (true, 1));
    assert_eq!(b.counters().trains_received, 1);
}

#[test]
fn without_offload_the_same_datagrams_arrive_one_by_one() {
    let (a, mut b) = pair("127.0.0.1");
    let mut a = a.without_offload();
    let (outbox, message, expected) = train(b.local()[0], 0xe0, 10, 1400);
    a.send(&outbox, &message);
    let (bytes, trains) = collect(&mut b, expected.len());
    assert_eq!((bytes == expected, trains), (true, 10));
}

#[test]
fn refused_segmentation_falls_back_to_single_datagrams() {
    let (mut a, mut b) = pair("127.0.0.1");
    // No kernel takes that many segments, because UDP_MAX_SEGMENTS is 64 or 128. The call fails
    // with EINVAL.
    let (outbox, message, expected) = train(b.local()[0], 0, 300, 10);
    a.send(&outbox, &message);
    let (bytes, _) = collect(&mut b, expected.len());
    assert!(bytes == expected);
    assert_eq!(a.counters().offload_fallbacks, 1);
    assert_eq!(a.counters().datagrams_sent, 300);
    // The kernel splits the next train again.
    let (outbox, message, expected) = train(b.local()[0], 0, 40, 150);
    a.send(&outbox, &message);
    assert_eq!(collect(&mut b, expected.len()).1, 1);
}

#[test]
fn an_error_without_its_report_does_not_lose_the_next_packet() {
    let (_, mut b) = pair("127.0.0.1");
    let (outbox, message, expected) = train(b.local()[0], 0, 2, 100);
    // Without IP_RECVERR a report only sets the socket's error.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    socket.connect(closed).unwrap();
    socket.send(b"to a closed port").unwrap();
    let mut batch = SendBatch::default();
    let (mut reports, mut counters) = (IcmpReports::default(), DriverCounters::default());
    batch.fill(&outbox.trains, &outbox, &message, false, (false, 0));
    let sent =
        batch.flush_all(socket.as_raw_fd(), &outbox.trains, &mut reports, &mut counters, |_| {
            panic!("there is no report")
        });
    assert!(sent.is_ok() && counters.trains_refused == 0, "{sent:?} {counters:?}");
    assert_eq!(collect(&mut b, expected.len()).0, expected);
}

#[test]
fn a_train_that_cannot_be_cut_costs_the_others_nothing() {
    let (mut a, mut b) = pair("127.0.0.1");
    let (mut outbox, message, expected) = train(b.local()[0], 0, 40, 150);
    // A client seems to send from port 0, to which no packet can be sent.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let refused = Train { to: nowhere, ..outbox.trains[0].clone() };
    outbox.trains.insert(0, refused);
    a.send(&outbox, &message);
    let (bytes, trains) = collect(&mut b, expected.len());
    assert_eq!((bytes == expected, trains), (true, 1));
    assert_eq!((a.counters().offload_fallbacks, a.counters().trains_refused), (1, 40));
}

#[test]
fn an_ipv6_socket_speaks_ipv4() {
    let mut a = UdpDriver::new("[::]:0".parse().unwrap(), 1 << 16).unwrap();
    let mut b = UdpDriver::new("127.0.0.1:0".parse().unwrap(), 1 << 16).unwrap();
    let (outbox, message, expected) = train(b.local()[0], 0x60, 3, 100);
    a.send(&outbox, &message);
    let (bytes, _) = collect(&mut b, expected.len());
    assert!(bytes == expected);
    assert!(b.received(0).from.is_ipv4());
}

#[test]
fn a_mapped_address_is_the_ipv4_address_that_it_maps() {
    let mut a = UdpDriver::new("[::ffff:127.0.0.1]:0".parse().unwrap(), 1 << 16).unwrap();
    let (_, mut b) = pair("127.0.0.1");
    assert!(a.local()[0].is_ipv4());
    assert!(a.reaches(0, b.local()[0].ip()));
    let (outbox, message, expected) = train(b.local()[0], 0x60, 3, 100);
    a.send(&outbox, &message);
    assert_eq!(collect(&mut b, expected.len()).0, expected);
    assert_eq!(b.received(0).from, a.local()[0]);
}

#[test]
fn a_port_without_socket_is_reported_unreachable() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, b) = pair(ip);
        let to = b.local()[0];
        drop(b);
        let (outbox, message, _) = train(to, 0, 1, 10);
        a.send(&outbox, &message);
        wait(&a.handles(), None, Some(Duration::from_secs(5))).unwrap();
        a.receive(false);
        assert_eq!(
            a.unreachable(),
            Some(UnreachableReport { to, what: Missing::Port.at(to.port()), quoted: None }),
            "{ip}"
        );
        assert_eq!(a.unreachable(), None);
    }
}

#[test]
fn a_report_shows_which_packet_came_back() {
    let packet = |id, body| Packet {
        peer: PeerId(0),
        priority: 7,
        local_port: 4000,
        remote_port: 4001,
        id: RpcId(id),
        body,
    };
    let remembered = Some(homa_proto::Duration::millis(1));
    let unknown = Body::RpcUnknown { remembered, no_server: true, reason: None };
    let acks = Body::Ack(homa_proto::Acks::default());
    let bytes = Body::Data(homa_proto::Data {
        span: Span { message: MessageId(0), offset: 0, len: 9 },
        message_length: 9,
        incoming: 9,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        incast: None,
    });
    for (packets, shown) in [
        (vec![packet(9, unknown), packet(7, Body::Busy { come_back: None })], (9, false)),
        (vec![packet(7, Body::Busy { come_back: None })], (7, false)),
        (vec![packet(4, acks), packet(6, acks), packet(8, bytes)], (8, true)),
    ] {
        let (mut driver, dead) = pair("127.0.0.1");
        let to = dead.local()[0];
        drop(dead);
        let mut outbox = Outbox { bytes: vec![0; 300], ..Outbox::default() };
        let mut writer = Writer::new(&mut outbox.bytes, 1).unwrap();
        for packet in &packets {
            writer.push(packet).unwrap();
        }
        let len = writer.len();
        outbox.pieces.push(TrainPiece::Buffered(0..len));
        let (socket, source, tos, datagram, pieces) = (0, None, 0, len, 0..1);
        let link = LinkId(0);
        outbox.trains.push(Train { to, link, socket, source, tos, datagram, len, pieces });
        driver.send(&outbox, &TestMessage(Vec::new()));
        assert!(wait(&driver.handles(), None, Some(Duration::from_secs(5))).unwrap(), "reported");
        driver.receive(true);
        let quoted = Some(Quoted { id: RpcId(shown.0), begins: shown.1 });
        let what = Missing::Port.at(to.port());
        assert_eq!(driver.unreachable(), Some(UnreachableReport { to, what, quoted }));
    }
}

#[test]
fn a_report_during_a_batch_is_read_and_does_not_wake_pollers() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = pair(ip);
        let dead = pair(ip).0.local()[0];
        let (mut outbox, message, expected) = train(b.local()[0], 0, 1, 10);
        let first = Train { to: dead, ..outbox.trains[0].clone() };
        outbox.trains.insert(0, first);
        // The kernel stops at the second train, and drops the report about the first.
        a.send(&outbox, &message);
        assert_eq!(collect(&mut b, expected.len()).0, expected, "{ip}");
        a.receive(false);
        assert_eq!(
            a.unreachable(),
            Some(UnreachableReport { to: dead, what: Missing::Port.at(dead.port()), quoted: None }),
            "{ip}"
        );
        assert_eq!(a.counters().trains_refused, 0);
        let ready = wait(&a.handles(), None, Some(Duration::ZERO)).unwrap();
        assert!(!ready, "{ip}: poll would not block");
    }
}

#[test]
fn a_report_that_a_call_swallowed_is_found_by_an_empty_receive() {
    let (mut a, b) = pair("127.0.0.1");
    let to = b.local()[0];
    drop(b);
    let (outbox, message, _) = train(to, 0, 1, 10);
    a.send(&outbox, &message);
    assert!(a.sockets[0].as_ref().unwrap().take_error().unwrap().is_some());
    assert!(wait(&a.handles(), None, Some(Duration::ZERO)).unwrap());
    a.receive(true);
    assert!(!wait(&a.handles(), None, Some(Duration::ZERO)).unwrap());
    assert_eq!(
        a.unreachable(),
        Some(UnreachableReport { to, what: Missing::Port.at(to.port()), quoted: None })
    );
}

#[test]
fn an_overflowing_receive_queue_is_counted() {
    let (mut a, _) = pair("127.0.0.1");
    let mut b = UdpDriver::new("127.0.0.1:0".parse().unwrap(), 1 << 12).unwrap();
    let (outbox, message, _) = train(b.local()[0], 0, 1, 1000);
    for _ in 0..200 {
        a.send(&outbox, &message);
    }
    // The kernel reports losses along with the next datagrams that fit.
    while b.receive(true) > 0 {}
    a.send(&outbox, &message);
    wait(&b.handles(), None, Some(Duration::from_secs(5))).unwrap();
    b.receive(true);
    let counters = b.counters();
    assert!(counters.receive_overflows > 0, "{counters:?}");
    assert_eq!(counters.receive_overflows + counters.datagrams_received, 201);
}

#[test]
fn each_link_sends_from_its_socket_and_the_first_receives() {
    for (at, ip) in [("127.0.0.1", "127.0.0.1"), ("[::]", "127.0.0.1"), ("[::]", "::1")] {
        let mut a = UdpDriver::new(format!("{at}:0").parse().unwrap(), 1 << 20).unwrap();
        let (mut b, _) = pair(ip);
        let port = a.local()[0].port();
        for link in [3, 0, 5, 3, 4] {
            let (mut outbox, message, expected) = train(b.local()[0], 0, 1, 10);
            outbox.trains[0].link = LinkId(link);
            a.send(&outbox, &message);
            collect(&mut b, expected.len());
            assert_eq!(b.received(0).from.port(), port, "{at} by link {link}");
        }
        assert_eq!(a.link_sockets[0].senders().count(), 3);
        assert_eq!(a.queued(LinkId(5)), Some(0));
        // The datagrams come from many ports, which a group of sockets would spread.
        let to = SocketAddr::new(ip.parse().unwrap(), port);
        for _ in 0..50 {
            let (mut b, _) = pair(ip);
            let (outbox, message, expected) = train(to, 0, 1, 10);
            b.send(&outbox, &message);
            collect(&mut a, expected.len());
        }
        // Trains of any peer are still coalesced.
        let (mut b, _) = pair(ip);
        let (outbox, message, expected) = train(to, 0, 20, 1_000);
        b.send(&outbox, &message);
        assert_eq!(collect(&mut a, expected.len()).1, 1);
        for shares in [false, true] {
            for at in [format!("{at}:{port}"), format!("127.0.0.1:{port}"), format!("[::]:{port}")]
            {
                let at: SocketAddr = at.parse().unwrap();
                let thief = Socket::new(Domain::for_address(at), Type::DGRAM, None).unwrap();
                thief.set_reuse_port(shares).unwrap();
                assert!(thief.bind(&at.into()).is_err(), "{at} beside {:?}", a.local());
            }
        }
    }
}

#[test]
fn a_full_queue_delays_only_packets_of_its_link() {
    let (mut a, mut b) = pair("127.0.0.1");
    let to = b.local()[0];
    let (outbox, message, expected) = train(to, 0, 1, 10);
    let by = |link, outbox: &Outbox| {
        let trains = outbox.trains.iter();
        let trains = trains.map(|train| Train { link: LinkId(link), ..train.clone() }).collect();
        Outbox { bytes: outbox.bytes.clone(), pieces: outbox.pieces.clone(), trains }
    };
    a.send(&by(1, &outbox), &message);
    collect(&mut b, expected.len());
    let why = Full::Device;
    let mut mixed = by(1, &outbox);
    mixed.trains.push(Train { link: LinkId(2), ..mixed.trains[0].clone() });
    mixed.trains.push(mixed.trains[0].clone());
    let from = (&mixed, &message as &dyn Gather);
    let others = a.backlog.set_aside(&mixed.trains, from, (0, 4, why), &mut a.counters);
    assert_eq!(others.iter().map(|train| train.link).collect::<Vec<_>>(), [LinkId(2)]);
    let bytes = 2 * expected.len() - 4;
    assert_eq!(a.backlog(), [LinkBacklog { link: LinkId(1), bytes, socket: None }]);
    a.resume(LinkId(2));
    assert_eq!(a.backlog().len(), 1, "of another link");
    a.resume(LinkId(1));
    assert_eq!(a.backlog(), []);
    assert_eq!(collect(&mut b, bytes).0.len(), bytes);
}

#[test]
fn one_driver_serves_several_ports_but_none_twice() {
    let (mut a, mut b) = pair("127.0.0.1");
    let second = b.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(b.bind(SocketAddr::new("::1".parse().unwrap(), second.port())).is_err());
    let (outbox, message, expected) = train(second, 0, 1, 10);
    a.send(&outbox, &message);
    collect(&mut b, expected.len());
    assert_eq!(b.received(0).socket, 1);
}

#[test]
fn a_datagram_that_reaches_the_wrong_shard_is_dropped() {
    let at = "127.0.0.1:0".parse().unwrap();
    let steering = Steering::new(4, 7 << 32);
    let mut group = UdpDriver::group(at, 1 << 20, steering).unwrap();
    // This has the same effect as renumbering the sockets.
    Steering::new(4, 9 << 32).attach(group[0].first_handle().as_raw_fd()).unwrap();
    let senders: Vec<_> = (0..64).map(|_| UdpSocket::bind(at).unwrap()).collect();
    let to = group[0].local()[0];
    senders.iter().for_each(|sender| assert_eq!(sender.send_to(b"hello", to).unwrap(), 5));
    let (mut kept, mut dropped) = (0, 0);
    for (number, driver) in group.iter_mut().enumerate() {
        // Loopback delivers at once. A batch can be empty because it took datagrams of other tests.
        for _ in 0..64 {
            for index in 0..driver.receive(true) {
                let from = driver.received(index).from;
                assert_eq!(steering.shard_of(from), number, "{from}");
                kept += 1;
            }
        }
        dropped += driver.counters().trains_misdirected;
    }
    assert!(kept > 0 && dropped > 0, "{kept} kept");
    assert_eq!(kept + dropped, 64);
}
