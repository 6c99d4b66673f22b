//! The rules of both ends one at a time, without a network; for losses see `transport/tests.rs`.

use homa_proto::{PeerId, RpcId, Submit};

use super::*;

pub(super) const CONFIG: NdpConfig = NdpConfig {
    wire: WireFormat::ethernet(1_500, 40, 40),
    link: Rate::gbps(10),
    initial_window: 4,
    timeout: Duration::millis(1),
    paths: 1,
    avoid_bad_paths: false,
    again_first: false,
    seed: 1,
};
const FULL: u32 = CONFIG.wire.payload;
const TIMEOUT: u64 = CONFIG.timeout.0;

fn host() -> Ndp {
    Ndp::new(CONFIG, HostId(0), 0)
}

fn start(sender: &mut Ndp, packets: u32) {
    let what = Submit::OneWay { peer: PeerId(1), length: packets * FULL, cookie: 0 };
    sender.submit(Time::ZERO, what).unwrap();
}

fn head(to: u32, serial: u32) -> Head {
    let id = RpcId(u64::from(serial) * 2 + 2);
    Head { id, to: HostId(to), serial, from_port: 0, to_port: 0, epoch: 0 }
}

/// A packet arrives from host 1.
fn hear(at: &mut Ndp, now: u64, serial: u32, body: NdpBody) {
    let packet = NdpPacket { head: head(0, serial), body, path: 0 };
    let _ = at.receive(Time(now), &packet, PacketMeta::new(HostId(1), 0));
}

/// A switch returns a packet to its sender.
fn returned(at: &mut Ndp, now: u64, packet: u32) {
    let body = NdpBody::Data { piece: CONFIG.wire.piece(packet, 0), pushed: 0, resent: false };
    let arrival = PacketMeta { trimmed: true, returned: true, ..PacketMeta::new(HostId(0), 0) };
    let _ = at.receive(Time(now), &NdpPacket { head: head(1, 0), body, path: 0 }, arrival);
}

/// Data of a message of `packets` packets, or only its header, arrives from host 1.
fn data(at: &mut Ndp, now: u64, serial: u32, (packet, packets): (u32, u32), trimmed: bool) {
    let piece = CONFIG.wire.piece(packet, packets * FULL);
    let body = NdpBody::Data { piece, pushed: 0, resent: false };
    let packet = NdpPacket { head: head(0, serial), body, path: 0 };
    let arrival = PacketMeta { trimmed, ..PacketMeta::new(HostId(1), 0) };
    let _ = at.receive(Time(now), &packet, arrival);
}

fn says(at: &mut Ndp, now: u64) -> Vec<(u32, NdpBody)> {
    let packets = std::iter::from_fn(|| at.transmit(Time(now)));
    packets.map(|packet| (packet.head.serial, packet.body)).collect()
}

/// Serials and numbers of the data it sends.
fn sends(at: &mut Ndp, now: u64) -> Vec<(u32, u32)> {
    let number = |(serial, body)| match body {
        NdpBody::Data { piece, .. } => (serial, piece.packet),
        other => panic!("{other:?}"),
    };
    says(at, now).into_iter().map(number).collect()
}

fn ack(packet: u32, prefix: u32) -> NdpBody {
    NdpBody::Ack { packet, prefix, came_by: 0 }
}

fn pull(count: u32) -> NdpBody {
    NdpBody::Pull { count, end: 0 }
}

fn nack(packet: u32) -> NdpBody {
    NdpBody::Nack { packet, came_by: 0 }
}

#[test]
fn a_window_goes_out_at_once_and_then_one_packet_per_pull() {
    let mut sender = host();
    start(&mut sender, 10);
    start(&mut sender, 2);
    assert_eq!(sends(&mut sender, 0), [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
    hear(&mut sender, 10, 0, ack(0, 1));
    assert_eq!(sends(&mut sender, 10), [], "an ACK is no permit");
    hear(&mut sender, 20, 0, pull(1));
    assert_eq!(sends(&mut sender, 20), [(0, 4)]);
    // Pull 2 was lost; a late copy of pull 1 has no effect.
    hear(&mut sender, 30, 0, pull(3));
    hear(&mut sender, 30, 0, pull(1));
    assert_eq!(sends(&mut sender, 30), [(0, 5), (0, 6)]);
}

#[test]
fn a_packet_named_by_a_nack_goes_first_but_waits_for_a_pull() {
    let mut sender = host();
    start(&mut sender, 10);
    sends(&mut sender, 0);
    hear(&mut sender, 10, 0, nack(2));
    hear(&mut sender, 10, 0, nack(2));
    assert_eq!(sends(&mut sender, 10), []);
    hear(&mut sender, 20, 0, pull(2));
    assert_eq!(sends(&mut sender, 20), [(0, 2), (0, 4)]);
    // It was acknowledged meanwhile, so it is not sent again.
    hear(&mut sender, 30, 0, nack(3));
    hear(&mut sender, 31, 0, ack(3, 2));
    hear(&mut sender, 32, 0, pull(3));
    assert_eq!(sends(&mut sender, 32), [(0, 5)]);
}

#[test]
fn a_pull_that_overtakes_its_nack_is_kept() {
    let mut sender = host();
    start(&mut sender, 2);
    sends(&mut sender, 0);
    hear(&mut sender, 10, 0, pull(1));
    assert_eq!(sends(&mut sender, 10), []);
    hear(&mut sender, 11, 0, nack(0));
    assert_eq!(sends(&mut sender, 11), [(0, 0)]);
    hear(&mut sender, 12, 0, nack(1));
    assert_eq!(sends(&mut sender, 12), [], "it is spent");
}

#[test]
fn a_returned_header_waits_for_a_pull_if_one_is_expected() {
    let mut sender = host();
    start(&mut sender, 10);
    sends(&mut sender, 0);
    hear(&mut sender, 10, 0, nack(0));
    (1..4).for_each(|packet| returned(&mut sender, 20, packet));
    assert_eq!(sends(&mut sender, 20), [], "one pull is expected");
    hear(&mut sender, 30, 0, pull(1));
    assert_eq!(sends(&mut sender, 30), [(0, 3)], "the last that was returned");

    let mut sender = host();
    start(&mut sender, 2);
    sends(&mut sender, 0);
    returned(&mut sender, 10, 0);
    assert_eq!(sends(&mut sender, 10), [], "packet 1 may still be answered");
    returned(&mut sender, 20, 1);
    assert_eq!(sends(&mut sender, 20), [(0, 1)]);
}

#[test]
fn a_packet_without_an_answer_is_resent_after_the_timeout() {
    let mut sender = host();
    start(&mut sender, 10);
    sends(&mut sender, 5);
    for packet in [0, 1, 3] {
        hear(&mut sender, 10, 0, ack(packet, packet.min(2)));
    }
    sender.expire(Time(TIMEOUT + 4));
    assert_eq!(sends(&mut sender, TIMEOUT + 4), []);
    sender.expire(Time(TIMEOUT + 5));
    assert_eq!(sends(&mut sender, TIMEOUT + 5), [(0, 2)], "without a pull");
    // It arrives, but all pulls are lost, so one packet is sent without.
    hear(&mut sender, TIMEOUT + 20, 0, ack(2, 4));
    sender.expire(Time(2 * TIMEOUT + 20));
    assert_eq!(sends(&mut sender, 2 * TIMEOUT + 20), [(0, 4)]);
}

#[test]
fn a_cumulative_ack_replaces_lost_acks() {
    let mut sender = host();
    start(&mut sender, 4);
    sends(&mut sender, 0);
    hear(&mut sender, 10, 0, ack(3, 4));
    assert!(matches!(sender.event(), Some(Event::Release { .. })));
    assert_eq!((sender.in_flight(), sender.has_packet()), ((0, 0), false));
}

#[test]
fn acks_and_nacks_are_immediate_and_pulls_are_paced() {
    let mut receiver = host();
    for packet in 0..4 {
        data(&mut receiver, 10, 0, (packet, 10), packet == 2);
    }
    let said = says(&mut receiver, 10);
    let pull = |count| NdpBody::Pull { count, end: (4 + count) * FULL };
    let expected = [ack(0, 1), pull(1), ack(1, 2), nack(2), ack(3, 2)];
    assert_eq!(said, expected.map(|body| (0, body)));
    assert_eq!(receiver.deadline(), Some(Time(10 + 1_231)), "a packet time of 1230.4 ns later");
    receiver.expire(Time(1_240));
    assert_eq!(says(&mut receiver, 1_240), []);
    for (now, count) in [(1_241, 2), (2_471, 3), (3_702, 4)] {
        receiver.expire(Time(now));
        assert_eq!(says(&mut receiver, now), [(0, pull(count))], "at {now}");
    }
    receiver.expire(Time(9_000));
    assert_eq!((says(&mut receiver, 9_000), receiver.deadline()), (vec![], None));
}

#[test]
fn messages_are_pulled_in_turn() {
    let mut receiver = host();
    for packet in 0..3 {
        data(&mut receiver, 0, 0, (packet, 10), false);
    }
    for packet in 0..2 {
        data(&mut receiver, 0, 1, (packet, 10), false);
    }
    let mut order = Vec::new();
    for now in 0..8 {
        receiver.expire(Time(now * 1_300));
        let pulls = says(&mut receiver, now * 1_300);
        let pulls = pulls.iter().filter(|(_, body)| matches!(body, NdpBody::Pull { .. }));
        order.extend(pulls.map(|(serial, _)| *serial));
    }
    assert_eq!(order, [0, 0, 1, 0, 1]);
}

#[test]
fn after_the_last_packet_only_trimmed_packets_are_pulled() {
    let mut receiver = host();
    data(&mut receiver, 0, 0, (0, 4), false);
    says(&mut receiver, 0);
    data(&mut receiver, 1, 0, (1, 4), true);
    data(&mut receiver, 2, 0, (2, 4), true);
    data(&mut receiver, 3, 0, (3, 4), false);
    says(&mut receiver, 3);
    let mut pulls = 0;
    for now in 1..9 {
        receiver.expire(Time(now * 1_300));
        pulls += says(&mut receiver, now * 1_300).len();
    }
    assert_eq!(pulls, 2);
    // Both arrive: the message is complete, and later copies get an ACK for all of it.
    data(&mut receiver, 20_000, 0, (1, 4), false);
    data(&mut receiver, 20_000, 0, (2, 4), false);
    let last = says(&mut receiver, 20_000).pop();
    assert_eq!(last, Some((0, ack(2, 4))));
    data(&mut receiver, 30_000, 0, (2, 4), false);
    assert_eq!(says(&mut receiver, 30_000), [(0, ack(2, 4))]);
    receiver.expire(Time(30_000));
    assert_eq!(receiver.deadline(), None);
}

/// What a host sends when a short message's packet is repeated behind a long message's permits.
fn repeated(again_first: bool) -> Vec<(u32, u32)> {
    let mut sender = Ndp::new(NdpConfig { again_first, ..CONFIG }, HostId(0), 0);
    start(&mut sender, 10);
    start(&mut sender, 2);
    sends(&mut sender, 0);
    hear(&mut sender, 10, 0, pull(3));
    hear(&mut sender, 11, 1, nack(1));
    hear(&mut sender, 12, 1, pull(2));
    sends(&mut sender, 20)
}

#[test]
fn repeats_go_before_new_packets_if_the_option_says_so() {
    assert_eq!(repeated(false), [(0, 4), (0, 5), (0, 6), (1, 1)]);
    assert_eq!(repeated(true), [(1, 1), (0, 4), (0, 5), (0, 6)]);
}

/// What a host sends when a NACK arrives while the first window is leaving, and then a PULL.
fn nacked_in_the_first_window(again_first: bool) -> Vec<(u32, u32)> {
    let mut sender = Ndp::new(NdpConfig { again_first, ..CONFIG }, HostId(0), 0);
    start(&mut sender, 4);
    for now in 0..2 {
        assert!(sender.transmit(Time(now)).is_some());
    }
    hear(&mut sender, 2, 0, nack(0));
    let mut sent = sends(&mut sender, 3);
    hear(&mut sender, 4, 0, pull(1));
    sent.extend(sends(&mut sender, 5));
    sent
}

#[test]
fn a_repeat_takes_no_place_in_the_first_window_if_it_goes_first() {
    assert_eq!(nacked_in_the_first_window(false), [(0, 0), (0, 2), (0, 3)]);
    assert_eq!(nacked_in_the_first_window(true), [(0, 2), (0, 3), (0, 0)]);
}
