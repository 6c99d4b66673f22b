//! The rules of both ends one at a time, without a network; and calls over a network with faults.

use homa_proto::{PeerId, Rate, RpcId, Submit};

use super::super::tests::random_calls;
use super::*;

/// A BDP of ten full packets.
pub(super) const CONFIG: UetConfig = UetConfig {
    wire: WireFormat::bare(1_064, 64, 64),
    control: UetControl::Nscc,
    nscc: NsccConfig {
        full: 1_064,
        payload: 1_000,
        link: Rate::gbps(10),
        base_rtt: 8_512,
        bdp: 10_640,
        target: 6_384,
        initial: 10_640,
        most: 1_500,
    },
    rccc: RcccConfig {
        full: 1_064,
        link: Rate::gbps(10),
        initial: 10_640,
        most: 15_960,
        base_rtt: 8_512,
        oversubscription: 1_000,
    },
    paths: UetPaths::Mixed,
    evs: 64,
    ack_every: 4_000,
    timeout: Duration::micros(100),
    seed: 1,
};

const FULL: u64 = 1_064;
const US: u64 = 1_000;

fn host() -> Uet {
    Uet::new(CONFIG, HostId(0), 0)
}

fn start(sender: &mut Uet, now: u64, (to, packets): (u32, u32)) {
    let what = Submit::OneWay { peer: PeerId(to), length: packets * 1_000, cookie: 0 };
    sender.submit(Time(now), what).unwrap();
}

/// The head of the `serial`-th message between two hosts.
fn head(serial: u32) -> Head {
    let id = RpcId(u64::from(serial) * 2 + 2);
    Head { id, to: HostId(0), serial, from_port: 0, to_port: 0, epoch: 0 }
}

fn hear(at: &mut Uet, now: u64, (from, serial): (u32, u32), body: UetBody) {
    let packet = UetPacket { head: head(serial), body, ev: 7 };
    let _ = at.receive(Time(now), &packet, PacketMeta::new(HostId(from), 0));
}

/// Receivers and packets of the data that it sends, as often as it may.
fn sends(at: &mut Uet, now: u64) -> Vec<(u32, u32)> {
    let packets = std::iter::from_fn(|| at.transmit(Time(now)));
    let data = packets.filter_map(|packet| match packet.body {
        UetBody::Data { piece, .. } => Some((packet.head.to.0, piece.packet)),
        _ => None,
    });
    data.collect()
}

/// All packets before `prefix` arrived.
fn prefix(prefix: u32) -> UetBody {
    let packet = prefix.saturating_sub(1);
    let received = u64::from(prefix) * FULL;
    let ack = UetAck { packet, prefix, from: prefix + 1, received, ..UetAck::default() };
    UetBody::Ack { ack, resent: false, came_by: 7 }
}

fn nack(packet: u32) -> UetBody {
    UetBody::Nack { packet, came_by: 7, last_hop: false, marked: false }
}

#[test]
fn a_window_is_sent_at_once_and_acknowledgements_free_it() {
    let mut sender = host();
    start(&mut sender, 0, (1, 40));
    assert_eq!(sends(&mut sender, 0), (0..10).map(|n| (1, n)).collect::<Vec<_>>());
    assert!(!sender.has_packet());
    hear(&mut sender, 9 * US, (1, 0), prefix(4));
    assert_eq!(sends(&mut sender, 9 * US)[..4], [(1, 10), (1, 11), (1, 12), (1, 13)]);
}

#[test]
fn the_last_packet_and_the_one_that_fills_the_window_ask() {
    let mut sender = host();
    start(&mut sender, 0, (1, 40));
    start(&mut sender, 0, (2, 3));
    let asking = |sender: &mut Uet| {
        let packets: Vec<UetPacket> = std::iter::from_fn(|| sender.transmit(Time(0))).collect();
        let asks = |packet: UetPacket| match packet.body {
            UetBody::Data { piece, asks: true, .. } => Some((packet.head.to.0, piece.packet)),
            _ => None,
        };
        packets.into_iter().filter_map(asks).collect::<Vec<_>>()
    };
    // With the ninth packet and one more, the window is full.
    assert_eq!(asking(&mut sender), [(2, 2), (1, 8), (1, 9)]);
}

#[test]
fn messages_take_turns() {
    let mut sender = host();
    start(&mut sender, 0, (1, 3));
    start(&mut sender, 0, (2, 2));
    assert_eq!(sends(&mut sender, 0), [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]);
}

#[test]
fn trimmed_packets_are_sent_again_first_and_cost_their_bytes() {
    let mut sender = host();
    start(&mut sender, 0, (1, 40));
    sends(&mut sender, 0);
    hear(&mut sender, 9 * US, (1, 0), nack(5));
    hear(&mut sender, 9 * US, (1, 0), nack(5));
    // In flight are nine packets, and so large is the window now.
    assert_eq!(sends(&mut sender, 9 * US), []);
    hear(&mut sender, 10 * US, (1, 0), nack(3));
    hear(&mut sender, 10 * US, (1, 0), prefix(3));
    assert_eq!(sends(&mut sender, 10 * US), [(1, 3), (1, 5), (1, 10)]);
}

#[test]
fn unanswered_packets_are_sent_again_and_the_wait_doubles() {
    let mut sender = host();
    start(&mut sender, 0, (1, 1));
    assert_eq!(sends(&mut sender, 0), [(1, 0)]);
    for (now, due) in [(100, true), (299, false), (300, true), (699, false), (700, true)] {
        sender.expire(Time(now * US));
        let expected: &[(u32, u32)] = if due { &[(1, 0)] } else { &[] };
        assert_eq!(sends(&mut sender, now * US), expected, "{now}");
    }
    assert_eq!((sender.timeouts().expired, sender.timeouts().flows), (3, 1));
    hear(&mut sender, 701 * US, (1, 0), prefix(1));
    assert_eq!(sender.in_flight(), (0, 0));
}

#[test]
fn a_packet_lost_three_times_does_not_hold_up_the_next_one() {
    let mut sender = host();
    start(&mut sender, 0, (1, 2));
    assert_eq!(sends(&mut sender, 0), [(1, 0), (1, 1)]);
    for now in [9, 14, 19] {
        hear(&mut sender, now * US, (1, 0), nack(0));
        assert_eq!(sends(&mut sender, now * US), [(1, 0)]);
    }
    // Packet 0 waits until 819 us now.
    let due = [(100, Some(1)), (299, None), (300, Some(1)), (700, Some(1)), (818, None)];
    for (now, packet) in due.into_iter().chain([(819, Some(0))]) {
        sender.expire(Time(now * US));
        let expected: Vec<(u32, u32)> = packet.map(|packet| (1, packet)).into_iter().collect();
        assert_eq!(sends(&mut sender, now * US), expected, "{now}");
    }
}

#[test]
fn ten_control_packets_go_before_data() {
    let mut sender = host();
    start(&mut sender, 0, (1, 40));
    for packet in 0..25 {
        let piece = CONFIG.wire.piece(packet, 80_000);
        hear(&mut sender, 0, (2, 0), UetBody::Data { piece, asks: true, resent: false, target: 0 });
    }
    let kinds = std::iter::from_fn(|| sender.transmit(Time(0)));
    let kinds =
        kinds.map(|packet| if matches!(packet.body, UetBody::Data { .. }) { 'd' } else { 'c' });
    let order: String = kinds.collect();
    assert_eq!(order, format!("{0}d{0}dccccc{1}", "c".repeat(10), "d".repeat(8)));
}

#[test]
fn a_trimmed_packet_is_answered_with_its_path_and_place() {
    let mut receiver = host();
    let piece = CONFIG.wire.piece(2, 40_000);
    let body = UetBody::Data { piece, asks: false, resent: false, target: 0 };
    let packet = UetPacket { head: head(0), body, ev: 33 };
    let plain = PacketMeta::new(HostId(1), 0);
    let arrival = PacketMeta { trimmed: true, last_hop: true, ..plain };
    let _ = receiver.receive(Time(0), &packet, arrival);
    let answer = receiver.transmit(Time(0)).unwrap();
    let nack = UetBody::Nack { packet: 2, came_by: 33, last_hop: true, marked: false };
    assert_eq!((answer.body, answer.ev, answer.head.to), (nack, 33, HostId(1)));
    // It arrived whole in the meantime, so that its header is a copy.
    let _ = receiver.receive(Time(1), &packet, plain);
    let _ = receiver.receive(Time(2), &packet, arrival);
    let answers: Vec<UetBody> =
        std::iter::from_fn(|| receiver.transmit(Time(2))).map(|packet| packet.body).collect();
    assert!(answers.iter().all(|body| matches!(body, UetBody::Ack { .. })), "{answers:?}");
    assert_eq!(answers.len(), 2);
}

#[test]
fn answers_about_packets_that_there_are_not_change_nothing() {
    let mut sender = host();
    start(&mut sender, 0, (1, 12));
    sends(&mut sender, 0);
    hear(&mut sender, 1, (1, 0), nack(u32::MAX));
    let (from, bitmap) = (u32::MAX - 3, u64::MAX);
    let ack = UetAck { packet: u32::MAX, prefix: 0, from, bitmap, received: 0, marked: true };
    hear(&mut sender, 1, (1, 0), UetBody::Ack { ack, resent: true, came_by: u16::MAX });
    let ack = UetAck { prefix: u32::MAX, ..ack };
    hear(&mut sender, 2, (1, 0), UetBody::Ack { ack, resent: true, came_by: u16::MAX });
    assert_eq!(sends(&mut sender, 2), [(1, 10), (1, 11)]);
    let mut receiver = host();
    let piece = Piece { packet: u32::MAX, offset: 0, len: 1_000, total: 3_000 };
    hear(&mut receiver, 0, (1, 0), UetBody::Data { piece, asks: true, resent: false, target: 0 });
    assert_eq!(receiver.refused(), 1);
}

/// A sender that needs credit, with ten packets of speculative credit.
fn credited() -> Uet {
    Uet::new(UetConfig { control: UetControl::Rccc, ..CONFIG }, HostId(0), 0)
}

#[test]
fn a_sender_spends_its_speculative_credit_and_waits_for_pulls() {
    let mut sender = credited();
    start(&mut sender, 0, (1, 40));
    assert_eq!(sends(&mut sender, 0), (0..10).map(|n| (1, n)).collect::<Vec<_>>());
    // Without a window, an acknowledgement frees nothing.
    hear(&mut sender, 9 * US, (1, 0), prefix(4));
    assert_eq!(sends(&mut sender, 9 * US), []);
    // 16 quanta are 4,096 bytes: three packets, and the fourth uses them up.
    hear(&mut sender, 10 * US, (1, 0), UetBody::Pull { quanta: 16 });
    assert_eq!(sends(&mut sender, 10 * US), (10..14).map(|n| (1, n)).collect::<Vec<_>>());
    hear(&mut sender, 11 * US, (1, 0), nack(5));
    assert_eq!(sends(&mut sender, 11 * US), [], "not even again");
    // A trimmed packet, too, ends the speculation of another message.
    start(&mut sender, 11 * US, (2, 40));
    let first = sender.transmit(Time(11 * US)).unwrap();
    assert_eq!(first.head.to, HostId(2));
    hear(&mut sender, 11 * US, (2, 0), nack(0));
    assert_eq!(sends(&mut sender, 11 * US), []);
    hear(&mut sender, 12 * US, (1, 0), UetBody::Pull { quanta: 20 });
    assert_eq!(sends(&mut sender, 12 * US), [(1, 5)]);
}

#[test]
fn with_both_a_packet_needs_credit_and_room_in_the_window() {
    let mut sender = Uet::new(UetConfig { control: UetControl::Both, ..CONFIG }, HostId(0), 0);
    start(&mut sender, 0, (1, 40));
    assert_eq!(sends(&mut sender, 0).len(), 10);
    hear(&mut sender, 9 * US, (1, 0), UetBody::Pull { quanta: 40 });
    assert_eq!(sends(&mut sender, 9 * US), [], "the window is full");
    hear(&mut sender, 10 * US, (1, 0), prefix(2));
    assert_eq!(sends(&mut sender, 10 * US), [(1, 10), (1, 11)]);
    // A packet that the last switch trimmed is the credit's concern, not the window's.
    let body = UetBody::Nack { packet: 3, came_by: 7, last_hop: true, marked: false };
    hear(&mut sender, 11 * US, (1, 0), body);
    assert_eq!(sends(&mut sender, 11 * US), [(1, 3)]);
}

#[test]
fn a_sender_without_credit_asks_for_it_after_a_timeout() {
    let mut sender = credited();
    start(&mut sender, 0, (1, 12));
    sends(&mut sender, 0);
    let asks = |sender: &mut Uet, now: u64| {
        sender.expire(Time(now * US));
        let packets = std::iter::from_fn(|| sender.transmit(Time(now * US)));
        packets.map(|packet| packet.body).collect::<Vec<_>>()
    };
    // All 12 packets are still to be sent, and no credit is left: 12,768 bytes are 50 quanta.
    let rts = UetBody::Rts { length: 12_000, target: 50 };
    assert_eq!(asks(&mut sender, 100), [rts]);
    // Nothing is in flight, and the request may be lost: the waits double.
    assert_eq!(asks(&mut sender, 299), []);
    assert_eq!(asks(&mut sender, 300), [rts]);
    hear(&mut sender, 310 * US, (1, 0), UetBody::Pull { quanta: 50 });
    assert_eq!(sends(&mut sender, 310 * US).len(), 12);
}

#[test]
fn the_packet_that_uses_up_the_credit_asks_for_an_answer() {
    let mut sender = credited();
    start(&mut sender, 0, (1, 40));
    start(&mut sender, 0, (2, 40));
    let packets: Vec<UetPacket> = std::iter::from_fn(|| sender.transmit(Time(0))).collect();
    let data = |packet: &UetPacket| match packet.body {
        UetBody::Data { piece, asks, target, .. } => (packet.head.to.0, piece.packet, asks, target),
        _ => panic!("{packet:?}"),
    };
    let data: Vec<_> = packets.iter().map(data).collect();
    assert!(data.iter().all(|&(_, packet, asks, _)| asks == (packet == 9)), "{data:?}");
    // 15,960 bytes at most, less 9,576 of speculative credit, shared by two; then all for one.
    assert_eq!(data[0], (1, 0, false, 3_192_u32.div_ceil(256)));
    assert_eq!(data[19], (2, 9, true, 15_960_u32.div_ceil(256)));
}

#[test]
fn a_trimmed_last_packet_is_asked_for_after_a_timeout() {
    let mut sender = credited();
    start(&mut sender, 0, (1, 1));
    assert_eq!(sends(&mut sender, 0), [(1, 0)]);
    hear(&mut sender, 9 * US, (1, 0), nack(0));
    // The pull that a header earns grants nothing, because nothing more was asked for.
    hear(&mut sender, 10 * US, (1, 0), UetBody::Pull { quanta: 0 });
    sender.expire(Time(109 * US));
    assert_eq!(sender.transmit(Time(109 * US)).map(|packet| packet.body), None);
    sender.expire(Time(110 * US));
    let rts = sender.transmit(Time(110 * US)).map(|packet| packet.body);
    assert_eq!(rts, Some(UetBody::Rts { length: 1_000, target: 5 }));
    assert_eq!((sender.timeouts().expired, sender.timeouts().flows), (1, 1));
    hear(&mut sender, 111 * US, (1, 0), UetBody::Pull { quanta: 5 });
    assert_eq!(sends(&mut sender, 111 * US), [(1, 0)]);
}

#[test]
fn a_receiver_pulls_what_a_request_asks_for() {
    let mut receiver = credited();
    hear(&mut receiver, 0, (1, 0), UetBody::Rts { length: 12_000, target: 20 });
    receiver.expire(Time(0));
    let pulls = |receiver: &mut Uet, now: u64| {
        let packets = std::iter::from_fn(|| receiver.transmit(Time(now)));
        packets.map(|packet| (packet.body, packet.ev)).collect::<Vec<_>>()
    };
    // Four packets are 16 quanta; they take 3.31 us at 9.9 Gbit/s.
    assert_eq!(pulls(&mut receiver, 0), [(UetBody::Pull { quanta: 16 }, 1)]);
    assert_eq!(receiver.deadline(), Some(Time(3_310)));
    receiver.expire(Time(3_310));
    assert_eq!(pulls(&mut receiver, 3_310), [(UetBody::Pull { quanta: 20 }, 2)]);
    // An unknown message, and one that is complete.
    let piece = CONFIG.wire.piece(0, 900);
    let data = UetBody::Data { piece, asks: true, resent: false, target: 0 };
    hear(&mut receiver, 4_000, (2, 0), data);
    pulls(&mut receiver, 4_000);
    hear(&mut receiver, 5_000, (2, 0), UetBody::Rts { length: 900, target: 9 });
    let (answer, _) = pulls(&mut receiver, 5_000)[0];
    assert!(matches!(answer, UetBody::Ack { ack: UetAck { prefix: 1, .. }, .. }), "{answer:?}");
}

#[test]
fn every_call_is_answered_once_despite_faults() {
    for seed in 0..12 {
        let paths = [UetPaths::Mixed, UetPaths::Reps, UetPaths::Bitmap, UetPaths::Oblivious];
        let control = [UetControl::Nscc, UetControl::Rccc, UetControl::Both][seed as usize % 3];
        let config = UetConfig { seed, control, paths: paths[seed as usize % 4], ..CONFIG };
        random_calls(seed, move |host, life| Uet::new(config, host, life), Uet::in_flight);
    }
}
