//! The rules of both ends one at a time, without a network; and calls over a network with faults.

use homa_proto::{PeerId, RpcId, Submit};

use super::super::tests::random_calls;
use super::*;
use crate::topology::HostId;

/// A BDP of ten full packets.
const CONFIG: SirdConfig = SirdConfig {
    wire: WireFormat::ethernet(1_500, 42, 46),
    link: Rate::gbps(10),
    bdp: 15_380,
    credit: 23_070,
    sender_credit: 15_380,
    csn_threshold: 7_690,
    unsolicited: 15_380,
    gain: 0.08,
    host_floor: 1_538,
    network_floor: 1_538,
    order: SirdOrder::Srpt,
    shortest_share: 500,
    first: SirdFirst::Unsolicited,
    resend: Duration::millis(1),
};
const PAYLOAD: u32 = CONFIG.wire.payload;
const FULL: u32 = CONFIG.wire.full();
/// A packet time, 1230.4 ns, rounded up.
const TIME: u64 = 1_231;
const MS: u64 = 1_000_000;

fn host() -> Sird {
    Sird::new(CONFIG, 0)
}

fn start(sender: &mut Sird, now: u64, (to, packets): (u32, u32)) {
    let what = Submit::OneWay { peer: PeerId(to), length: packets * PAYLOAD, cookie: 0 };
    sender.submit(Time(now), what).unwrap();
}

/// The head of the `serial`-th message between two hosts.
fn head(serial: u32) -> Head {
    let id = RpcId(u64::from(serial) * 2 + 2);
    Head { id, to: HostId(0), serial, from_port: 0, to_port: 0, epoch: 0 }
}

fn hear(at: &mut Sird, now: u64, (from, serial): (u32, u32), body: SirdBody) {
    let packet = SirdPacket { head: head(serial), body };
    let _ = at.receive(Time(now), &packet, PacketMeta::new(HostId(from), 0));
}

fn says(at: &mut Sird, now: u64) -> Vec<(u32, u32, SirdBody)> {
    let packets = std::iter::from_fn(|| at.transmit(Time(now)));
    packets.map(|packet| (packet.head.to.0, packet.head.serial, packet.body)).collect()
}

/// Receivers, serials and packets of the data it sends.
fn sends(at: &mut Sird, now: u64) -> Vec<(u32, u32, u32)> {
    let said = says(at, now).into_iter();
    let data = said.filter_map(|(to, serial, body)| match body {
        SirdBody::Data { piece, .. } => Some((to, serial, piece.packet)),
        _ => None,
    });
    data.collect()
}

fn request(packets: u32, sent: u32) -> SirdBody {
    SirdBody::Request { length: packets * PAYLOAD, unsolicited: 0, sent }
}

fn data(packet: u32, packets: u32, unsolicited: u32) -> SirdBody {
    let piece = CONFIG.wire.piece(packet, packets * PAYLOAD);
    SirdBody::Data { piece, unsolicited, csn: false, resent: false }
}

fn credit(bytes: u32) -> SirdBody {
    SirdBody::Credit { bytes, again: None, end: 0 }
}

/// The credits that a receiver sends from `from` on, polled once per packet time: receiver of the
/// credit, serial, and the packet that is asked for again.
fn credits(at: &mut Sird, from: u64, times: u64) -> Vec<(u32, u32, Option<u32>)> {
    let mut given = Vec::new();
    for n in 0..times {
        let now = from + n * TIME;
        at.expire(Time(now));
        for (to, serial, body) in says(at, now) {
            if let SirdBody::Credit { again, .. } = body {
                given.push((to, serial, again));
            }
        }
    }
    given
}

#[test]
fn short_messages_are_sent_at_once_and_long_ones_ask() {
    let mut sender = host();
    start(&mut sender, 0, (1, 10));
    assert_eq!(sends(&mut sender, 0), (0..10).map(|n| (1, 0, n)).collect::<Vec<_>>());
    start(&mut sender, 0, (2, 11));
    let asked = SirdBody::Request { length: 11 * PAYLOAD, unsolicited: 0, sent: 0 };
    assert_eq!(says(&mut sender, 0), [(2, 0, asked)]);
    hear(&mut sender, 9, (2, 0), credit(FULL));
    assert_eq!(sends(&mut sender, 9), [(2, 0, 0)]);
    assert!(!sender.has_packet());
}

#[test]
fn any_message_to_a_receiver_may_spend_its_credit() {
    let mut sender = host();
    start(&mut sender, 0, (1, 40));
    start(&mut sender, 0, (1, 20));
    says(&mut sender, 0);
    // Credit for the long message goes to the short one, and a credit that is too small waits.
    hear(&mut sender, 9, (1, 0), credit(FULL));
    assert_eq!(sends(&mut sender, 9), [(1, 1, 0)]);
    hear(&mut sender, 10, (1, 1), credit(FULL - 1));
    assert_eq!(sends(&mut sender, 10), []);
    hear(&mut sender, 11, (1, 1), credit(1));
    assert_eq!(sends(&mut sender, 11), [(1, 1, 1)]);
}

#[test]
fn half_of_the_link_is_shared_and_half_is_the_shortest_messages() {
    let mut sender = host();
    for (to, packets) in [(1, 300), (2, 200), (3, 100)] {
        start(&mut sender, 0, (to, packets));
    }
    says(&mut sender, 0);
    for to in 1..4 {
        hear(&mut sender, 9, (to, 0), credit(40 * FULL));
    }
    let first: Vec<u32> = (0..24)
        .filter_map(|_| match sender.transmit(Time(9)) {
            Some(SirdPacket { head, body: SirdBody::Data { .. } }) => Some(head.to.0),
            _ => None,
        })
        .collect();
    let count = |to| first.iter().filter(|&&sent| sent == to).count();
    assert_eq!((count(1), count(2), count(3)), (4, 4, 16), "{first:?}");
}

#[test]
fn a_sender_with_much_credit_and_two_messages_marks_its_data() {
    let marks = |messages: &[(u32, u32)]| {
        let mut sender = host();
        for &(to, packets) in messages {
            start(&mut sender, 0, (to, packets));
        }
        says(&mut sender, 0);
        hear(&mut sender, 9, (1, 0), credit(8 * FULL));
        let said = says(&mut sender, 9).into_iter();
        let csn = said.filter_map(|(_, _, body)| match body {
            SirdBody::Data { csn, .. } => Some(csn),
            _ => None,
        });
        csn.collect::<Vec<bool>>()
    };
    // After each of the first two packets, more than five packets' credit is left.
    let marked = [true, true, false, false, false, false, false, false];
    assert_eq!(marks(&[(1, 40), (2, 40)]), marked);
    assert_eq!(marks(&[(1, 40), (1, 50)]), marked);
    assert_eq!(marks(&[(1, 40)]), [false; 8], "a single message is not held up");
}

#[test]
fn a_credit_per_packet_time_goes_to_the_shortest_message() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), request(30, 0));
    hear(&mut receiver, 0, (2, 0), request(20, 0));
    assert_eq!(says(&mut receiver, 0).len(), 1, "the first asked when the link was free");
    let given = credits(&mut receiver, TIME, 30);
    // Ten of one sender, and fifteen of all.
    let expected = [vec![(2, 0, None); 10], vec![(1, 0, None); 4]].concat();
    assert_eq!(given, expected);
    // Each packet that arrives makes room for one.
    hear(&mut receiver, 40 * TIME, (2, 0), data(0, 20, 0));
    assert_eq!(credits(&mut receiver, 40 * TIME, 5), [(2, 0, None)]);
    hear(&mut receiver, 50 * TIME, (1, 0), data(0, 30, 0));
    assert_eq!(credits(&mut receiver, 50 * TIME, 5), [(1, 0, None)], "the other's is used up");
}

#[test]
fn unsolicited_bytes_count_before_they_arrive() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), data(0, 10, 10));
    assert_eq!(receiver.budget.out, i64::from(9 * FULL));
    hear(&mut receiver, 0, (2, 0), request(30, 0));
    assert_eq!(says(&mut receiver, 0).len(), 1);
    assert_eq!(credits(&mut receiver, TIME, 20).len(), 5, "15 - 9 - 1");
    for packet in 1..10 {
        hear(&mut receiver, 30 * TIME, (1, 0), data(packet, 10, 10));
    }
    assert_eq!(credits(&mut receiver, 31 * TIME, 20).len(), 4, "up to ten of one sender");
}

#[test]
fn a_fair_receiver_grants_in_turn() {
    let mut receiver = Sird::new(SirdConfig { order: SirdOrder::Fair, ..CONFIG }, 0);
    for from in 1..4 {
        hear(&mut receiver, 0, (from, 0), request(20 * from, 0));
    }
    let first = says(&mut receiver, 0).first().map(|said| said.0);
    let given: Vec<u32> = credits(&mut receiver, TIME, 8).iter().map(|given| given.0).collect();
    assert_eq!((first, given), (Some(1), vec![2, 3, 1, 2, 3, 1, 2, 3]));
}

#[test]
fn credit_that_another_message_spent_is_given_again() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), request(30, 0));
    says(&mut receiver, 0);
    assert_eq!(credits(&mut receiver, TIME, 20).len(), 9);
    // The second message of this sender arrives with the credit of the first.
    hear(&mut receiver, 30 * TIME, (1, 1), request(3, 0));
    for packet in 0..3 {
        hear(&mut receiver, 31 * TIME, (1, 1), data(packet, 3, 0));
    }
    let owed = credits(&mut receiver, 31 * TIME, 10);
    assert_eq!(owed, [(1, 1, None); 3], "for the rest of the first");
    assert_eq!(receiver.budget.out, i64::from(10 * FULL));
}

#[test]
fn an_odd_rest_of_credit_does_not_block_the_next_one() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), request(30, 0));
    says(&mut receiver, 0);
    assert_eq!(credits(&mut receiver, TIME, 20).len(), 9);
    // Marks lower the limit to one packet.
    let bucket = &mut receiver.sources.get(0).unwrap().bucket;
    (0..10_000).for_each(|_| bucket.on_packet(&CONFIG.rule(), Marked { csn: true, ecn: true }));
    assert_eq!(bucket.limit(), FULL);
    // Seven packets of the message, and another message of two and a half, spend all but half a
    // packet of its credit.
    let half = 2 * PAYLOAD + PAYLOAD / 2 - 40;
    for (serial, length, packets) in [(1, half, 3), (0, 30 * PAYLOAD, 7)] {
        for packet in 0..packets {
            let piece = CONFIG.wire.piece(packet, length);
            let body = SirdBody::Data { piece, unsolicited: 0, csn: true, resent: false };
            hear(&mut receiver, 30 * TIME, (1, serial), body);
        }
    }
    assert_eq!(credits(&mut receiver, 30 * TIME, 10), [(1, 1, None)], "and no more than that");
    assert_eq!(receiver.budget.out, i64::from(FULL + FULL / 2));
}

#[test]
fn marks_of_senders_and_switches_lower_the_limit_of_one_sender() {
    for (csn, ce) in [(true, false), (false, true)] {
        let mut receiver = host();
        let limit = |receiver: &mut Sird| receiver.sources.get(0).unwrap().bucket.limit();
        for packet in 0..100 {
            let SirdBody::Data { piece, .. } = data(packet, 200, 0) else { unreachable!() };
            let body = SirdBody::Data { piece, unsolicited: 0, csn, resent: false };
            let packet = SirdPacket { head: head(0), body };
            let arrival = PacketMeta { ce, ..PacketMeta::new(HostId(1), 0) };
            let _ = receiver.receive(Time(0), &packet, arrival);
        }
        assert!(limit(&mut receiver) < 10_000, "{}", limit(&mut receiver));
    }
}

#[test]
fn lost_data_is_asked_for_again() {
    let mut receiver = host();
    for packet in [0, 2, 4] {
        hear(&mut receiver, 0, (1, 0), data(packet, 5, 5));
    }
    assert_eq!(credits(&mut receiver, 0, 20), []);
    // The sender hears nothing for a millisecond.
    let late = SirdBody::Request { length: 5 * PAYLOAD, unsolicited: 5, sent: 5 };
    hear(&mut receiver, MS, (1, 0), late);
    let said: Vec<_> = says(&mut receiver, MS).into_iter().map(|(_, _, body)| body).collect();
    assert!(matches!(said[..], [SirdBody::Credit { again: Some(1), .. }]), "{said:?}");
    assert_eq!(credits(&mut receiver, MS + TIME, 5), [(1, 0, Some(3))]);
    for packet in [1, 3] {
        hear(&mut receiver, MS + 9 * TIME, (1, 0), data(packet, 5, 5));
    }
    assert_eq!(says(&mut receiver, MS + 9 * TIME), [(1, 0, SirdBody::Ack)]);
    // The acknowledgement is lost.
    hear(&mut receiver, 3 * MS, (1, 0), late);
    assert_eq!(says(&mut receiver, 3 * MS), [(1, 0, SirdBody::Ack)]);
    assert_eq!((receiver.in_flight(), receiver.budget.out), ((0, 0), 0));
}

#[test]
fn a_sender_repeats_what_is_asked_for_and_says_how_far_it_is() {
    let mut sender = host();
    start(&mut sender, 0, (1, 5));
    assert_eq!(sends(&mut sender, 0).len(), 5);
    let mut at = Vec::new();
    while at.len() < 5 {
        let now = sender.deadline().unwrap();
        sender.expire(now);
        for (_, _, body) in says(&mut sender, now.0) {
            let late = SirdBody::Request { length: 5 * PAYLOAD, unsolicited: 5, sent: 5 };
            assert_eq!(body, late);
            at.push(now.0 / MS);
        }
    }
    assert_eq!(at, [1, 3, 7, 15, 25], "after 1, 2, 4, 8, 10 ms");
    let again = SirdBody::Credit { bytes: FULL, again: Some(3), end: 0 };
    hear(&mut sender, 30 * MS, (1, 0), again);
    assert_eq!(sends(&mut sender, 30 * MS), [(1, 0, 3)]);
    // Credit that comes after the last packet is not kept.
    hear(&mut sender, 30 * MS, (1, 0), credit(9 * FULL));
    assert_eq!(sender.held, 0);
    hear(&mut sender, 31 * MS, (1, 0), SirdBody::Ack);
    assert!(matches!(sender.event(), Some(Event::Release { .. })));
    assert_eq!((sender.in_flight(), sender.has_packet()), ((0, 0), false));
}

#[test]
fn lost_credit_is_given_again() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), request(20, 0));
    says(&mut receiver, 0);
    assert_eq!(credits(&mut receiver, TIME, 20).len(), 9);
    // All ten were lost. After a millisecond the budget is free again, and once the sender says how
    // far it is, its message is granted from there.
    receiver.expire(Time(2 * MS));
    assert_eq!(credits(&mut receiver, 2 * MS, 30).len(), 10, "the other ten packets");
    hear(&mut receiver, 4 * MS, (1, 0), request(20, 0));
    says(&mut receiver, 4 * MS);
    assert_eq!(credits(&mut receiver, 4 * MS + TIME, 30).len(), 9);
    assert_eq!(receiver.budget.out, i64::from(10 * FULL));
}

#[test]
fn a_restarted_sender_has_no_credit_of_its_former_life() {
    let mut receiver = host();
    hear(&mut receiver, 0, (1, 0), request(30, 0));
    says(&mut receiver, 0);
    assert_eq!(credits(&mut receiver, TIME, 20).len(), 9);
    let hear_life = |receiver: &mut Sird, epoch, body| {
        let packet = SirdPacket { head: Head { epoch, ..head(0) }, body };
        let _ = receiver.receive(Time(30 * TIME), &packet, PacketMeta::new(HostId(1), 0));
    };
    hear_life(&mut receiver, 1, request(30, 0));
    says(&mut receiver, 30 * TIME);
    assert_eq!(credits(&mut receiver, 31 * TIME, 20).len(), 9);
    // Data of the former life was on the way for long.
    hear_life(&mut receiver, 0, data(0, 30, 0));
    assert_eq!(receiver.budget.out, i64::from(10 * FULL));
}

#[test]
fn control_and_unsolicited_data_go_first() {
    let level = |first, body| {
        let sender = Sird::new(SirdConfig { first, ..CONFIG }, 0);
        let label = sender.label(&SirdPacket { head: head(0), body });
        (label.priority, label.ect)
    };
    let bodies = [SirdBody::Ack, credit(FULL), data(0, 20, 4), data(4, 20, 4)];
    for (first, levels) in [
        (SirdFirst::Unsolicited, [7, 7, 7, 0]),
        (SirdFirst::Control, [7, 7, 0, 0]),
        (SirdFirst::Nothing, [0, 0, 0, 0]),
    ] {
        let found = bodies.map(|body| level(first, body));
        assert_eq!(found.map(|(level, _)| level), levels);
        assert_eq!(found.map(|(_, ect)| ect), [false, false, true, true], "only data is marked");
    }
}

#[test]
fn every_call_is_answered_once_despite_faults() {
    for seed in 0..8 {
        random_calls(seed, move |_, life| Sird::new(CONFIG, life), Sird::in_flight);
    }
}
