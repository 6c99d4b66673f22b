//! The rules of both ends one at a time, without a network; and calls over a network with faults.

use homa_proto::{PeerId, RpcId, Submit};

use super::super::tests::random_calls;
use super::*;
use crate::topology::HostId;

const CONFIG: PHostConfig = PHostConfig {
    wire: WireFormat::ethernet(1_500, 40, 40),
    link: Rate::gbps(10),
    free_tokens: 4,
    free_for_long: true,
    window: 4,
    downgrade: 120,
    expiry: 15,
    resend: 120,
    levels: PHostLevels::Blind,
    token_slots: false,
};
const FULL: u32 = CONFIG.wire.payload;
/// A packet time, 1230.4 ns, rounded up.
const TIME: u64 = 1_231;

fn host() -> PHost {
    PHost::new(CONFIG, 0)
}

fn start(sender: &mut PHost, now: u64, packets: u32) {
    let what = Submit::OneWay { peer: PeerId(1), length: packets * FULL, cookie: 0 };
    sender.submit(Time(now), what).unwrap();
}

fn hear(at: &mut PHost, now: u64, serial: u32, body: PHostBody) {
    let id = RpcId(u64::from(serial) * 2 + 2);
    let head = Head { id, to: HostId(0), serial, from_port: 0, to_port: 0, epoch: 0 };
    let _ = at.receive(Time(now), &PHostPacket { head, body }, PacketMeta::new(HostId(1), 0));
}

fn says(at: &mut PHost, now: u64) -> Vec<(u32, PHostBody)> {
    let packets = std::iter::from_fn(|| at.transmit(Time(now)));
    packets.map(|packet| (packet.head.serial, packet.body)).collect()
}

/// Serials, packets and tokens of the data it sends; RTSs are ignored.
fn sends(at: &mut PHost, now: u64) -> Vec<(u32, u32, u32)> {
    let data = |(serial, body)| match body {
        PHostBody::Data { piece, token, .. } => Some((serial, piece.packet, token)),
        PHostBody::Rts { .. } => None,
        other => panic!("{other:?}"),
    };
    says(at, now).into_iter().filter_map(data).collect()
}

fn token(packet: u32, token: u32, left: u32) -> PHostBody {
    PHostBody::Token { packet, token, left, end: 0 }
}

fn data(packet: u32, packets: u32, token: u32) -> PHostBody {
    let piece = CONFIG.wire.piece(packet, packets * FULL);
    let free = packets.min(4) * FULL;
    PHostBody::Data { piece, token, free, resent: false }
}

/// The tokens that a receiver issues from `from` on, polled once per packet time.
fn tokens(at: &mut PHost, from: u64, times: u64) -> Vec<(u32, u32)> {
    let mut given = Vec::new();
    for n in 0..times {
        let now = from + n * TIME;
        at.expire(Time(now));
        for (serial, body) in says(at, now) {
            if let PHostBody::Token { packet, .. } = body {
                given.push((serial, packet));
            }
        }
    }
    given
}

#[test]
fn a_message_is_announced_and_its_free_tokens_are_spent_at_once() {
    let mut sender = host();
    start(&mut sender, 0, 10);
    let said = says(&mut sender, 0);
    assert_eq!(said[0], (0, PHostBody::Rts { length: 10 * FULL }));
    let expected: Vec<_> = (0..4).map(|n| (0, data(n, 10, n))).collect();
    assert_eq!(said[1..], expected);
    hear(&mut sender, 100, 0, token(4, 4, 6));
    assert_eq!(sends(&mut sender, 100), [(0, 4, 4)]);
}

#[test]
fn the_message_with_the_fewest_packets_left_goes_first() {
    let mut sender = host();
    start(&mut sender, 0, 10);
    start(&mut sender, 0, 2);
    assert_eq!(sends(&mut sender, 0)[..2], [(1, 0, 0), (1, 1, 1)]);
    hear(&mut sender, 9, 1, token(0, 2, 2));
    hear(&mut sender, 9, 0, token(4, 4, 1));
    assert_eq!(sends(&mut sender, 9), [(0, 4, 4), (1, 0, 2)], "as the receivers count");
}

#[test]
fn a_token_is_good_for_one_and_a_half_packet_times() {
    let mut sender = host();
    start(&mut sender, 0, 10);
    says(&mut sender, 0);
    hear(&mut sender, 1_000, 0, token(4, 4, 6));
    assert_eq!(sends(&mut sender, 1_000 + 1_846), [(0, 4, 4)]);
    hear(&mut sender, 5_000, 0, token(5, 5, 5));
    assert_eq!(sends(&mut sender, 5_000 + 1_847), []);
    // Free tokens are valid for one packet time more each.
    let mut sender = host();
    start(&mut sender, 0, 10);
    assert_eq!(
        sender.transmit(Time(0)).map(|p| p.body),
        Some(PHostBody::Rts { length: 10 * FULL })
    );
    assert_eq!(sends(&mut sender, 5 * TIME).len(), 4);
    let mut sender = host();
    start(&mut sender, 0, 10);
    assert_eq!(sends(&mut sender, 6 * TIME), []);
}

#[test]
fn a_token_per_packet_time_goes_to_the_shortest_message() {
    let mut receiver = host();
    hear(&mut receiver, 0, 0, PHostBody::Rts { length: 20 * FULL });
    hear(&mut receiver, 0, 1, PHostBody::Rts { length: 9 * FULL });
    assert_eq!(tokens(&mut receiver, 0, 3), [], "its free tokens are all unanswered");
    for packet in 0..3 {
        hear(&mut receiver, 3 * TIME, 0, data(packet, 20, packet));
        hear(&mut receiver, 3 * TIME, 1, data(packet, 9, packet));
    }
    // The first token went out with the first data; then the shorter message gets them, until four
    // of its tokens are unanswered.
    let given = tokens(&mut receiver, 3 * TIME, 8);
    assert_eq!(given[1..], [(1, 4), (1, 5), (1, 6), (0, 5), (0, 6)]);
}

#[test]
fn a_source_that_does_not_answer_is_downgraded_for_a_while() {
    let mut receiver = host();
    hear(&mut receiver, 0, 0, PHostBody::Rts { length: 9 * FULL });
    hear(&mut receiver, 0, 0, data(0, 9, 0));
    hear(&mut receiver, 0, 1, PHostBody::Rts { length: 20 * FULL });
    for packet in 0..4 {
        hear(&mut receiver, 1, 1, data(packet, 20, packet));
    }
    // Message 0 has the fewer packets missing, and four unanswered tokens after one more.
    assert_eq!(tokens(&mut receiver, 1, 6), [(0, 4), (1, 4), (1, 5), (1, 6), (1, 7)]);
    // Twelve packet times after its last token it gets one more.
    let (before, after) = (tokens(&mut receiver, 6 * TIME, 6), tokens(&mut receiver, 12 * TIME, 2));
    assert_eq!((before, after), (vec![], vec![(0, 5)]));
    hear(&mut receiver, 14 * TIME, 0, data(4, 9, 4));
    let again = tokens(&mut receiver, 14 * TIME, 4);
    assert_eq!(again[..2], [(0, 6), (0, 7)], "it answers");
}

#[test]
fn missing_packets_get_new_tokens_and_the_whole_is_acknowledged() {
    let mut receiver = host();
    hear(&mut receiver, 0, 0, PHostBody::Rts { length: 3 * FULL });
    hear(&mut receiver, 10, 0, data(0, 3, 0));
    hear(&mut receiver, 10, 0, data(2, 3, 2));
    assert_eq!(tokens(&mut receiver, 10, 11), []);
    assert_eq!(tokens(&mut receiver, 12 * TIME + 10, 1), [(0, 1)]);
    hear(&mut receiver, 14 * TIME, 0, data(1, 3, 3));
    assert_eq!(says(&mut receiver, 14 * TIME), [(0, PHostBody::Ack)]);
    // The ACK is lost.
    hear(&mut receiver, 20 * TIME, 0, PHostBody::Rts { length: 3 * FULL });
    assert_eq!(says(&mut receiver, 20 * TIME), [(0, PHostBody::Ack)]);
    assert_eq!(receiver.in_flight(), (0, 0));
}

#[test]
fn a_lost_rts_is_repeated_with_backoff() {
    let mut sender = host();
    start(&mut sender, 0, 1);
    says(&mut sender, 0);
    let mut at = Vec::new();
    while at.len() < 4 {
        let now = sender.deadline().unwrap();
        sender.expire(now);
        if says(&mut sender, now.0).iter().any(|(_, body)| matches!(body, PHostBody::Rts { .. })) {
            at.push(now.0 / TIME);
        }
    }
    assert_eq!(at, [23, 71, 167, 359], "after 24, 48, 96, 192 packet times");
    hear(&mut sender, 1_000_000, 0, PHostBody::Ack);
    assert!(matches!(sender.event(), Some(Event::Release { .. })));
}

#[test]
fn control_goes_first_and_blind_or_short_data_second() {
    let level = |levels, body| {
        let sender = PHost::new(PHostConfig { levels, ..CONFIG }, 0);
        let id = RpcId(2);
        let head = Head { id, to: HostId(1), serial: 0, from_port: 0, to_port: 0, epoch: 0 };
        sender.label(&PHostPacket { head, body }).priority
    };
    let (blind, short) = (PHostLevels::Blind, PHostLevels::ShortMessages);
    let bodies = [PHostBody::Ack, data(0, 4, 0), data(0, 4, 9), data(0, 5, 0), data(4, 5, 4)];
    assert_eq!(bodies.map(|body| level(blind, body)), [7, 6, 5, 6, 5]);
    assert_eq!(bodies.map(|body| level(short, body)), [7, 6, 6, 5, 5]);
    assert_eq!(bodies.map(|body| level(PHostLevels::One, body)), [7, 6, 6, 6, 6]);
}

/// A receiver with YAPS's token slots.
fn slotted() -> PHost {
    PHost::new(PHostConfig { token_slots: true, free_for_long: false, ..CONFIG }, 0)
}

fn rts(packets: u32) -> PHostBody {
    PHostBody::Rts { length: packets * FULL }
}

/// When tokens go out until `until`, by running the timers.
fn token_times(at: &mut PHost, until: u64) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(now) = at.deadline().filter(|now| now.0 <= until) {
        at.expire(now);
        let tokens = says(at, now.0).into_iter();
        let tokens = tokens.filter(|(_, body)| matches!(body, PHostBody::Token { .. }));
        times.extend(tokens.map(|_| now.0));
    }
    times
}

#[test]
fn slots_of_packets_that_come_unasked_pass_unused() {
    let mut receiver = slotted();
    // A message of three packets, all of them free, and then a long one.
    hear(&mut receiver, 0, 0, data(0, 3, 0));
    assert_eq!(says(&mut receiver, 0), [], "its packets come unasked");
    let mut plain = PHost::new(PHostConfig { free_for_long: false, ..CONFIG }, 0);
    hear(&mut plain, 0, 0, rts(20));
    assert_eq!(says(&mut plain, 0).len(), 1, "a token goes out at once");
    // The number is set, not added: the long message has no free packets.
    hear(&mut receiver, 0, 1, rts(20));
    assert!(!receiver.slots.has_passing());
    let mut free = slotted();
    hear(&mut free, 0, 1, rts(20));
    says(&mut free, 0);
    hear(&mut free, 100, 0, data(0, 3, 0));
    let times = token_times(&mut free, 6 * TIME);
    assert!(times[0] > 3 * TIME, "three slots pass first: {times:?}");
}

#[test]
fn a_receiver_with_blocked_messages_sleeps_until_its_time() {
    let (mut slotted, mut plain) = (slotted(), host());
    plain.config.free_for_long = false;
    for receiver in [&mut slotted, &mut plain] {
        hear(receiver, 0, 0, rts(20));
        says(receiver, 0);
        // Four unanswered tokens block it for twelve packet times.
        token_times(receiver, 6 * TIME);
        // An answer unblocks it.
        hear(receiver, 7 * TIME, 0, data(0, 20, 0));
    }
    let end = 11 * TIME;
    assert!(!token_times(&mut plain, end).is_empty() || plain.granting.is_empty());
    assert!(token_times(&mut slotted, end).is_empty(), "it sleeps");
    assert!(!token_times(&mut slotted, 20 * TIME).is_empty(), "it wakes at the end of the block");
}

#[test]
fn every_call_is_answered_once_despite_faults() {
    let times = PHostConfig { downgrade: 210, resend: 210, ..CONFIG };
    let config = PHostConfig { free_tokens: 7, window: 7, ..times };
    for seed in 0..8 {
        random_calls(seed, move |_, life| PHost::new(config, life), PHost::in_flight);
    }
}
