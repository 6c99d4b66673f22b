//! Tests of the layer between two drivers, and with peers that do not follow the rules.

use std::net::UdpSocket;

use homa_proto::wire::datagram;
use homa_proto::{Body, Packet, PeerId, RpcId, Span};

use super::frame::FULL;
use super::*;
use crate::driver::memory::{MemoryNetwork, NetworkFaults};
use crate::driver::udp::UdpDriver;
use crate::secure::Handshake;

struct Nothing;
impl Gather for Nothing {
    fn bytes(&self, _: Span) -> &[u8] {
        &[]
    }
}

fn seal(inner: impl Driver + 'static, key: u8) -> Sealed {
    Sealed::new(Box::new(inner), Keys::cluster([key; 32]).unwrap(), None, 100, 0)
}

fn udp(key: u8) -> Sealed {
    seal(UdpDriver::new("127.0.0.1:0".parse().unwrap(), 1 << 20).unwrap(), key)
}

/// Datagrams of `len` bytes with one packet each, as one train.
fn train(to: SocketAddr, datagrams: usize, len: usize) -> Outbox {
    let (body, id) = (Body::NeedAck, RpcId(0x8000_0000_0000_0002));
    let packet = Packet { peer: PeerId(0), priority: 0, local_port: 1, remote_port: 2, id, body };
    let mut bytes = vec![0; datagrams * len];
    for (number, datagram) in bytes.chunks_mut(len).enumerate() {
        datagram::encode(&packet, number as u64, datagram).unwrap();
        datagram[len - 1] = number as u8;
    }
    let len_of_all = bytes.len();
    Outbox {
        bytes,
        pieces: vec![TrainPiece::Buffered(0..len_of_all)],
        trains: vec![Train {
            to,
            link: LinkId::default(),
            socket: 0,
            source: None,
            tos: 0,
            datagram: len,
            len: len_of_all,
            pieces: 0..1,
        }],
    }
}

/// Runs both drivers until `done`; returns the trains that arrived at `b`, as lengths of datagrams
/// and bytes.
fn run(
    a: &mut Sealed,
    b: &mut Sealed,
    done: impl Fn(&Sealed, usize) -> bool,
) -> Vec<(usize, Vec<u8>)> {
    let mut arrived = Vec::new();
    let mut now = Time::ZERO;
    while !done(b, arrived.len()) {
        now += Duration::millis(1);
        a.receive(true);
        a.expire(now);
        for index in 0..b.receive(true) {
            let train = b.received(index);
            arrived.push((train.datagram, train.bytes.to_vec()));
        }
        b.expire(now);
        assert!(
            now < Time::ZERO + Duration::secs(100),
            "nothing arrived: {:?}",
            (a.counters(), b.counters())
        );
    }
    arrived
}

#[test]
fn a_train_stays_a_train_and_arrives_as_it_was_sent() {
    let (mut a, mut b) = (udp(1), udp(1));
    let to = b.local()[0];
    for (datagrams, len) in [(1, 60), (5, 1000), (40, 1400)] {
        let outbox = train(to, datagrams, len);
        let before = (a.counters().trains_sent, b.counters().trains_received);
        a.send(&outbox, &Nothing);
        let arrived = run(&mut a, &mut b, |_, trains| trains > 0);
        let mut bytes: Vec<u8> = arrived.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        for (number, datagram) in bytes.chunks_mut(len).enumerate() {
            // The packet number is the session's; nothing else may change.
            datagram[8..16].copy_from_slice(&(number as u64).to_be_bytes());
        }
        assert_eq!(bytes, outbox.bytes, "{datagrams} of {len} bytes");
        assert!(arrived.iter().all(|(datagram, _)| *datagram == len));
        if before.0 > 1 {
            assert_eq!(a.counters().trains_sent - before.0, 1, "one train left");
            assert_eq!(b.counters().trains_received - before.1, 1, "one train arrived");
        }
    }
    assert_eq!(b.counters().datagrams_opened, 46);
}

#[test]
fn only_handshakes_are_sent_to_a_peer_without_a_session() {
    let mut a = udp(1);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_nonblocking(true).unwrap();
    a.send(&train(peer.local_addr().unwrap(), 3, 100), &Nothing);
    let mut bytes = [0; 65_536];
    let mut frames = 0;
    while let Ok(len) = peer.recv(&mut bytes) {
        assert!(
            HandshakeDatagram::is_in(&bytes[..len])
                && HandshakeDatagram::read(&bytes[..len]).is_some()
        );
        frames += 1;
    }
    assert!(frames > 0);
}

#[test]
fn what_waits_for_a_silent_peer_is_bounded_and_given_up() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let mut a = seal(network.driver("10.0.0.1:1".parse().unwrap()).unwrap(), 1);
    let _silent = network.driver("10.0.0.2:2".parse().unwrap()).unwrap();
    let outbox = train("10.0.0.2:2".parse().unwrap(), 40, 1000);
    for _ in 0..50 {
        a.send(&outbox, &Nothing);
    }
    let dropped = a.counters().datagrams_without_session;
    assert!(dropped >= 50 * 40 - 262, "{dropped}");
    let mut turns = 0;
    while let Some(deadline) = a.deadline() {
        a.expire(deadline.max(Time(1)));
        turns += 1;
        assert!(turns < 100, "the timers end");
    }
    assert_eq!(a.counters().handshakes_unanswered, 1);
    assert_eq!(a.counters().datagrams_without_session, 50 * 40, "nothing waits any more");
    assert!(a.opening.is_empty() && a.by_id.is_empty());
}

#[test]
fn handshakes_of_unknown_senders_are_bounded() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let mut server = seal(network.driver("10.0.0.1:1".parse().unwrap()).unwrap(), 1);
    let keys = Keys::cluster([1; 32]).unwrap();
    let mut hello = Handshake::client(&keys, ([10, 0, 0, 1], 1).into(), 1).unwrap();
    let flight = hello.flight(FULL - frame::FRONT);
    let mut now = Time(1);
    for n in 0..6_000u32 {
        if n.is_multiple_of(5) {
            now += PAUSE;
            server.expire(now);
        }
        let way = Way {
            to: SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 5)),
            socket: 0,
            source: None,
        };
        for part in &flight {
            server.accept(way, FULL, &HandshakeDatagram::flight(true, n.into(), 7, part));
        }
        server.flush();
    }
    assert!(server.accepting.len() <= 1024 && server.accepted_first.len() <= 1024);
    // Each fragment of the others was dropped.
    let throttled = server.counters().handshakes_throttled / flight.len() as u64;
    let (begun, pauses) = (6_000 - throttled, 6_000 / 5);
    assert!(begun > 1024 && begun <= 3 * pauses, "{begun} in {pauses} pauses");
    assert_eq!(server.sessions.len(), 0, "no client was verified");
}

/// The server's places are always taken before the client's datagrams arrive.
#[test]
fn a_client_connects_during_a_flood_from_other_addresses() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let open = |at: &str| seal(network.driver(at.parse().unwrap()).unwrap(), 1);
    let (mut server, mut client) = (open("10.0.0.1:1"), open("10.0.0.2:2"));
    let keys = Keys::cluster([1; 32]).unwrap();
    let mut hello = Handshake::client(&keys, ([10, 0, 0, 1], 1).into(), 1).unwrap();
    let flight = hello.flight(600);
    client.send(&train(server.local()[0], 1, 100), &Nothing);
    let (mut now, mut arrived) = (Time(1), 0);
    while arrived == 0 {
        now += Duration::millis(1);
        assert!(now < Time::ZERO + Duration::secs(2), "{:?}", server.counters());
        server.expire(now);
        for n in 0..20 {
            let to = SocketAddr::from(([10, 1, now.0 as u8, n], 5));
            let (way, guessed) = (Way { to, socket: 0, source: None }, [n; 16]);
            let frame = HandshakeDatagram::flight(true, now.0, 7, &flight[0]);
            server.accept(way, FULL, &frame.with_cookie(&guessed));
        }
        arrived += server.receive(true);
        client.receive(true);
        client.expire(now);
    }
    assert_eq!(server.sessions.len(), 1);
    assert!(server.counters().handshakes_throttled > 10, "{:?}", server.counters());
    assert_eq!(client.counters().handshakes_completed, 1);
}

#[test]
fn a_cookie_of_a_flood_is_accepted_for_some_seconds() {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let mut server = seal(network.driver("10.0.0.1:1".parse().unwrap()).unwrap(), 1);
    let at = "10.0.0.9:9".parse().unwrap();
    let mut host = network.driver(at).unwrap();
    let keys = Keys::cluster([1; 32]).unwrap();
    let mut hello = Handshake::client(&keys, ([10, 0, 0, 1], 1).into(), 1).unwrap();
    let flight = hello.flight(600);
    // A second of the flood, in which the host sends its flight with this cookie. Returns whether
    // the server takes it, and the cookie of its answer.
    let mut second = |now: u64, id: u64, cookie: &[u8]| {
        server.expire(Time::ZERO + Duration::secs(now));
        for n in 0..5 {
            let to = SocketAddr::from(([10, 1, now as u8, n], 5));
            let frame = HandshakeDatagram::flight(true, now, 7, &flight[0]);
            server.accept(Way { to, socket: 0, source: None }, FULL, &frame);
        }
        let way = Way { to: at, socket: 0, source: None };
        let frame = HandshakeDatagram::flight(true, id, 7, &flight[0]).with_cookie(cookie);
        server.accept(way, FULL, &frame);
        server.flush();
        let answer = (host.receive(true) > 0).then(|| host.received(0).bytes.to_vec());
        let cookie = answer.and_then(|bytes| match HandshakeDatagram::read(&bytes) {
            Some(HandshakeDatagram::Retry { cookie, .. }) => Some(cookie.to_vec()),
            _ => None,
        });
        (server.accepting.contains_key(&(way, id)), cookie)
    };
    let mut cookies = [1, 2].map(|id| second(1, id, &[]).1.expect("a cookie"));
    assert!(cookies[0] != cookies[1]);
    assert!(second(9, 1, &cookies[0]).0, "after eight seconds");
    assert!(!second(10, 3, &cookies[1]).0, "of another handshake");
    for now in 11..32 {
        assert!(second(now, 100 + now, &[]).1.is_some());
    }
    let (taken, other) = second(32, 2, &cookies[1]);
    assert!(!taken, "after 31 seconds");
    cookies[1] = other.expect("another cookie");
    assert!(second(33, 2, &cookies[1]).0);
}

#[test]
fn an_address_that_never_answers_gets_three_times_its_bytes() {
    let mut server = udp(1);
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    host.connect(server.local()[0]).unwrap();
    host.set_nonblocking(true).unwrap();
    let keys = Keys::cluster([1; 32]).unwrap();
    let (mut sent, mut got, mut room) = (0, 0, [0; 65_536]);
    for id in 0..5 {
        let mut hello = Handshake::client(&keys, ([127, 0, 0, 1], 1).into(), 1).unwrap();
        let mut parts = hello.flight(600);
        // A short fragment asks for the whole flight of the server.
        parts.extend(vec![(parts[0].0, 0, vec![1]); 5]);
        for (turn, part) in parts.iter().cycle().take(50).enumerate() {
            let mut bytes = Vec::new();
            HandshakeDatagram::flight(true, id, 7, part).write(0, &mut bytes);
            if turn % 7 == 6 {
                // Also datagrams that are no handshakes: of an unknown session, and in plaintext.
                bytes = vec![1, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
                bytes.resize(60, 7);
            }
            host.send(&bytes).unwrap();
            sent += bytes.len() + 28;
            server.receive(true);
            server.set_challenge(Some((7, Duration::millis(9))));
            server.expire(Time(1));
            while let Ok(len) = host.recv(&mut room) {
                got += len + 28;
            }
            assert!(got <= 3 * sent, "{got} for {sent} bytes");
        }
    }
    assert!(got > sent / 2, "the server answers: {got} for {sent} bytes");
}

fn early_keys() -> Keys {
    Keys::cluster([1; 32]).unwrap().early_data()
}

/// Both ends after a first handshake: the client's keys have a ticket that allows early data.
struct WithTicket {
    network: MemoryNetwork,
    client: Sealed,
    server: Sealed,
    of_client: Keys,
}

fn with_ticket(admission: Option<Arc<Admission>>) -> WithTicket {
    let network = MemoryNetwork::new(1, NetworkFaults::NONE);
    let inner = |at: &str| Box::new(network.driver(at.parse().unwrap()).unwrap());
    let mut server = Sealed::new(inner("10.0.0.1:1"), early_keys(), admission, 100, 0);
    let of_client = early_keys();
    let mut client = Sealed::new(inner("10.0.0.2:2"), of_client.clone(), None, 100, 0);
    client.send(&train(server.local()[0], 1, 100), &Nothing);
    run(&mut client, &mut server, |_, trains| trains > 0);
    client.receive(true);
    WithTicket { network, client, server, of_client }
}

/// A client with the key sends early data that a server must not execute twice.
#[test]
fn early_data_that_may_not_run_twice_are_dropped() {
    use homa_proto::wire::datagram::RequestExtensions;
    use homa_proto::{Data, MessageId};
    let WithTicket { mut server, of_client, .. } = with_ticket(None);
    let request = |idempotent: bool, length: u32| {
        let span = Span { message: MessageId(0), offset: 0, len: 5 };
        let (incoming, ack, incast) = (length, None, None);
        let body = Body::Data(Data {
            span,
            message_length: length,
            incoming,
            ack,
            cutoff_version: 0,
            retransmit: false,
            incast,
        });
        let (local_port, remote_port) = (1, 2);
        let packet =
            Packet { peer: PeerId(0), priority: 0, local_port, remote_port, id: RpcId(2), body };
        let extensions = RequestExtensions { idempotent, ..RequestExtensions::NONE };
        let mut bytes = vec![0; 200];
        let mut writer = datagram::Writer::new(&mut bytes, 1).unwrap();
        writer.push_request(&packet, &extensions).unwrap();
        let len = writer.len();
        bytes.truncate(len);
        bytes
    };
    let control = train(server.local()[0], 1, 100).bytes;
    let way = Way { to: "10.0.0.3:3".parse().unwrap(), socket: 0, source: None };
    let mut attacker = Handshake::client(&of_client, server.local()[0], 7).unwrap();
    let mut parts = attacker.flight(FULL - frame::FRONT);
    let refused = [request(false, 5), request(true, 6), control, vec![1; 60], vec![]];
    for bytes in refused.iter().chain([&request(true, 5)]) {
        parts.push(attacker.seal_early(bytes).unwrap());
    }
    for part in &parts {
        server.accept(way, FULL, &HandshakeDatagram::flight(true, 9, 7, part));
    }
    assert_eq!(server.counts.early_datagrams_refused, refused.len() as u64);
    assert_eq!((server.counts.early_datagrams_opened, server.counts.handshakes_early), (1, 1));
    assert!(server.is_early_data(server.arrivals.len() - 1));
}

/// The policy of an engine sees only peers that are verified: by their ticket, or their handshake.
#[test]
fn early_data_of_a_client_that_is_refused_are_not_opened() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let asked = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&asked);
    // The first client is admitted.
    let once: Arc<Admission> = Arc::new(move |_| counts.fetch_add(1, Ordering::Relaxed) == 0);
    let WithTicket { mut server, of_client, .. } = with_ticket(Some(once));
    let way = |host| Way { to: SocketAddr::from(([10, 0, 0, host], 3)), socket: 0, source: None };
    let mut stranger = Handshake::client(&early_keys(), server.local()[0], 7).unwrap();
    for part in &stranger.flight(FULL - frame::FRONT) {
        server.accept(way(4), FULL, &HandshakeDatagram::flight(true, 8, 7, part));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the stranger has proved nothing");
    let mut hello = Handshake::client(&of_client, server.local()[0], 7).unwrap();
    let mut parts = hello.flight(FULL - frame::FRONT);
    parts.push(hello.seal_early(b"request").unwrap());
    for part in &parts {
        server.accept(way(3), FULL, &HandshakeDatagram::flight(true, 9, 7, part));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let counts = server.counts;
    assert_eq!((counts.handshakes_refused, counts.handshakes_early), (1, 0));
    assert_eq!((counts.early_datagrams_opened, counts.early_datagrams_refused), (0, 0));
    assert_eq!((server.unvalidated, server.sessions.len()), (0, 1));
}

/// A host on the path of one client delivers its first flight under the address of another one.
#[test]
fn early_data_take_nothing_from_a_session_of_their_address() {
    let WithTicket { mut client, mut server, of_client, .. } = with_ticket(None);
    let mut hello = Handshake::client(&of_client, server.local()[0], 7).unwrap();
    let mut parts = hello.flight(FULL - frame::FRONT);
    parts.push(hello.seal_early(b"request").unwrap());
    let way = Way { to: client.local()[0], socket: 0, source: None };
    assert!(server.sessions.has(&way));
    for part in &parts {
        server.accept(way, FULL, &HandshakeDatagram::flight(true, 9, 7, part));
    }
    assert_eq!(server.counts.handshakes_early, 0);
    let before = client.counters().datagrams_opened;
    server.send(&train(way.to, 1, 100), &Nothing);
    client.receive(true);
    assert_eq!(client.counters().datagrams_opened, before + 1);
}

/// The engine keeps sending to a client with early data that never proves its address.
#[test]
fn an_unvalidated_client_gets_three_times_its_bytes_and_ends() {
    let WithTicket { network, mut server, of_client, .. } = with_ticket(None);
    let to: SocketAddr = "10.0.0.3:3".parse().unwrap();
    let mut victim = network.driver(to).unwrap();
    let way = Way { to, socket: 0, source: None };
    let mut hello = Handshake::client(&of_client, server.local()[0], 7).unwrap();
    let (mut sent, mut got) = (0, 0);
    let flight = hello.flight(FULL - frame::FRONT);
    // An attacker holds them back.
    let mut late = [0; 2].map(|_| hello.seal_early(&[1; 60]).unwrap()).into_iter();
    for part in &flight {
        server.accept(way, FULL, &HandshakeDatagram::flight(true, 9, 7, part));
        sent += FULL + 28;
    }
    assert_eq!((server.unvalidated, server.sessions.len()), (1, 2));
    let mut now = Time::ZERO + Duration::secs(1);
    for _ in 0..60 {
        now += Duration::millis(100);
        server.expire(now);
        if [3_500, 4_500].contains(&(now.0 / 1_000_000)) {
            let part = late.next().unwrap();
            server.accept(way, FULL, &HandshakeDatagram::flight(true, 9, 7, &part));
            sent += FULL + 28;
        }
        if now < Time::ZERO + Duration::secs(5) {
            server.send(&train(to, 3, 300), &Nothing);
        }
        for index in 0..victim.receive(true) {
            let train = victim.received(index);
            got += train.bytes.len() + 28 * train.bytes.len().div_ceil(train.datagram);
        }
        assert!(got <= 3 * sent, "{got} for {sent}");
    }
    assert!(2 * got > sent, "it is answered: {got} for {sent}");
    // One came in time. The other's response might leave after the end.
    assert_eq!((late.len(), server.counts.early_datagrams_refused), (0, 1));
    assert_eq!((server.unvalidated, server.sessions.len()), (0, 1));
    assert!(!server.accepting.contains_key(&(way, 9)));
    assert!(server.opening.is_empty(), "nothing more is sent to it");
}
