//! The rules of both ends one at a time, without a network; and calls over a network with faults.

use homa_proto::{PeerId, RpcId, Submit};

use super::super::tests::{arrival, random_calls};
use crate::topology::HostId;

use super::*;

const GBPS: u64 = 1_000_000_000;

/// A link of 10 Gbit/s, on which a full packet takes 838.4 ns, and a window of four packets.
const CONFIG: RdmaConfig = RdmaConfig {
    wire: WireFormat { payload: 1_000, overhead: 48, control: 60 },
    link: 10 * GBPS,
    least: GBPS / 10,
    window: Some(4_000),
    nack_every: Duration::micros(500),
    timeout: Duration::micros(100),
    acks_first: false,
    int_unit: 1,
};

const DCQCN: DcqcnConfig = DcqcnConfig {
    alpha_every: 1_000,
    cut_every: 4_000,
    rise_every: 300_000,
    gain: 1.0 / 256.0,
    recoveries: 1,
    additive: GBPS / 50,
    hyper: GBPS / 5,
};

type Host = Rdma;

fn host(config: RdmaConfig) -> Host {
    Host::new((config, ControlConfig::Dcqcn(DCQCN)), 0)
}

fn start(sender: &mut Host, now: u64, (to, bytes): (u32, u32)) {
    let what = Submit::OneWay { peer: PeerId(to), length: bytes, cookie: 0 };
    sender.submit(Time(now), what).unwrap();
}

/// The head of the `serial`-th message between two hosts.
fn head(serial: u32) -> Head {
    let id = RpcId(u64::from(serial) * 2 + 2);
    Head { id, to: HostId(0), serial, from_port: 0, to_port: 0, epoch: 0 }
}

/// The receiver expects this byte.
fn expects(expected: u32, is_nack: bool) -> RdmaAnswer {
    RdmaAnswer { expected, is_nack, marked: false, collected: Some(Carried::Nothing) }
}

fn hear(at: &mut Host, now: u64, (from, serial): (u32, u32), answer: RdmaAnswer) {
    let packet = RdmaPacket { head: head(serial), body: RdmaBody::Answer(answer) };
    let _ = at.receive(Time(now), &packet, arrival(from));
}

/// Receivers and offsets of the data that a host sends until `until`, and when.
fn sends(at: &mut Host, from: u64, until: u64) -> Vec<(u64, u32, u32)> {
    let mut sent = Vec::new();
    for now in from..=until {
        at.expire(Time(now));
        while let Some(packet) = at.transmit(Time(now)) {
            if let RdmaBody::Data { piece, .. } = packet.body {
                sent.push((now, packet.head.to.0, piece.offset / 1_000));
            }
        }
    }
    sent
}

#[test]
fn a_pair_sends_at_its_rate_until_its_window_is_full() {
    let mut sender = host(CONFIG);
    start(&mut sender, 0, (1, 9_000));
    let sent = sends(&mut sender, 0, 5_000);
    assert_eq!(sent, [(0, 1, 0), (838, 1, 1), (1_676, 1, 2), (2_515, 1, 3)]);
    hear(&mut sender, 6_000, (1, 0), expects(2_000, false));
    let sent = sends(&mut sender, 6_000, 9_000);
    assert_eq!(sent, [(6_000, 1, 4), (6_838, 1, 5)]);
    let mut free = host(RdmaConfig { window: None, ..CONFIG });
    start(&mut free, 0, (1, 9_000));
    assert_eq!(sends(&mut free, 0, 9_000).len(), 9);
}

#[test]
fn a_paused_host_keeps_data_and_what_is_no_level_above_it() {
    for (acks_first, answers) in [(false, 0), (true, 1)] {
        let mut sender = host(RdmaConfig { acks_first, ..CONFIG });
        start(&mut sender, 0, (1, 9_000));
        assert_eq!(sends(&mut sender, 0, 0).len(), 1);
        sender.pause(Time(1), 1 << DATA_LEVEL);
        let piece = Piece { packet: 0, offset: 0, len: 1_000, total: 9_000 };
        let (resent, collected) = (false, Carried::Nothing);
        let body = RdmaBody::Data { piece, resent, collected };
        let _ = sender.receive(Time(1), &RdmaPacket { head: head(0), body }, arrival(2));
        assert_eq!(sender.has_packet(), acks_first);
        let sent = std::iter::from_fn(|| sender.transmit(Time(2)));
        let sent: Vec<_> = sent.map(|packet| packet.body).collect();
        assert_eq!(sent.len(), answers, "{sent:?}");
        assert!(sends(&mut sender, 3, 2_999).is_empty() && !sender.has_packet());
        sender.pause(Time(3_000), 0);
        assert!(sender.has_packet());
        // The time that has passed is not made up for.
        let sent: Vec<_> = sends(&mut sender, 3_000, 5_000).iter().map(|sent| sent.0).collect();
        assert_eq!(sent, [3_000, 3_838, 4_676]);
    }
}

#[test]
fn pairs_take_turns() {
    let mut sender = host(CONFIG);
    start(&mut sender, 0, (1, 2_000));
    start(&mut sender, 0, (2, 3_000));
    let order: Vec<_> = sends(&mut sender, 0, 5_000).iter().map(|sent| (sent.1, sent.2)).collect();
    assert_eq!(order, [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]);
}

/// Data of one host arrives at the other, except for one packet.
#[test]
fn a_lost_packet_and_all_after_it_are_sent_again() {
    let (mut sender, mut receiver) = (host(CONFIG), host(CONFIG));
    start(&mut sender, 0, (1, 6_000));
    let (mut offsets, mut lost, mut delivered) = (Vec::new(), false, 0);
    for now in 0..20_000 {
        sender.expire(Time(now));
        while let Some(packet) = sender.transmit(Time(now)) {
            let RdmaBody::Data { piece, resent, .. } = packet.body else { continue };
            offsets.push((piece.offset / 1_000, resent));
            if piece.offset == 1_000 && !std::mem::replace(&mut lost, true) {
                continue;
            }
            let _ = receiver.receive(Time(now), &packet, arrival(0));
        }
        while let Some(answer) = receiver.transmit(Time(now)) {
            let _ = sender.receive(Time(now), &answer, arrival(1));
        }
        delivered += std::iter::from_fn(|| receiver.event())
            .filter(|event| matches!(event, Event::Delivered(_)))
            .count();
    }
    let first = [(0, false), (1, false), (2, false)];
    let again = [(1, true), (2, true), (3, false), (4, false), (5, false)];
    assert_eq!(offsets, [&first[..], &again[..]].concat());
    assert_eq!((delivered, sender.timeouts().expired), (1, 0));
    assert_eq!((sender.in_flight(), receiver.in_flight()), ((0, 0), (0, 0)));
}

#[test]
fn a_timeout_goes_back_and_doubles() {
    let mut sender = host(CONFIG);
    start(&mut sender, 0, (1, 2_000));
    let sent = sends(&mut sender, 0, 350_000);
    let starts: Vec<u64> = sent.iter().filter(|sent| sent.2 == 0).map(|sent| sent.0).collect();
    assert_eq!(starts, [0, 100_000, 300_000]);
    assert_eq!(sender.timeouts(), Timeouts { expired: 2, flows: 1, raised: 0 });
    // An answer ends the doubling: the other packet is sent again after 100 us.
    hear(&mut sender, 350_000, (1, 0), expects(1_000, false));
    assert_eq!(sends(&mut sender, 350_000, 460_000), [(450_000, 1, 1)]);
}

#[test]
fn a_message_that_is_not_wanted_ends() {
    let mut sender = host(CONFIG);
    start(&mut sender, 0, (1, 9_000));
    sends(&mut sender, 0, 1_000);
    hear(&mut sender, 2_000, (1, 0), RdmaAnswer { collected: None, ..expects(9_000, false) });
    assert_eq!(sender.in_flight(), (0, 0));
    assert!(matches!(sender.event(), Some(Event::Release { .. })));
}

#[test]
fn marks_come_back_and_slow_a_pair_down() {
    let (mut sender, mut receiver) = (host(CONFIG), host(CONFIG));
    start(&mut sender, 0, (1, 90_000));
    let packet = sender.transmit(Time(0)).unwrap();
    assert!(sender.label(&packet).ect && sender.label(&packet).wire_bytes == 1_048);
    let _ = receiver.receive(Time(10), &packet, PacketMeta { ce: true, ..arrival(0) });
    let answer = receiver.transmit(Time(10)).unwrap();
    assert!(Host::echoes_congestion(&answer));
    assert_eq!(receiver.label(&answer).priority, 0);
    let _ = sender.receive(Time(20), &answer, arrival(1));
    // Cut 4 us after the mark by α/2, which is .492 after four updates.
    sends(&mut sender, 21, 4_030);
    hear(&mut sender, 4_100, (1, 0), expects(5_000, false));
    let sent = sends(&mut sender, 4_100, 9_000);
    let gaps: Vec<u64> = sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.iter().all(|gap| (1_650..1_653).contains(gap)), "{gaps:?}");
}

#[test]
fn answers_can_travel_above_data() {
    let first = host(RdmaConfig { acks_first: true, ..CONFIG });
    let packet = RdmaPacket { head: head(0), body: RdmaBody::Answer(expects(1, false)) };
    assert_eq!(first.label(&packet).priority, 7);
}

#[test]
fn every_call_is_answered_once_and_nothing_is_left() {
    const HPCC: HpccConfig = HpccConfig {
        target: 0.95,
        stages: 0,
        additive: GBPS / 250,
        base_rtt: 8_000,
        window: 10_000,
    };
    let config = RdmaConfig { window: Some(10_000), ..CONFIG };
    for seed in 0..4 {
        for control in [ControlConfig::Hpcc(HPCC), ControlConfig::Dcqcn(DCQCN)] {
            random_calls(seed, move |_, life| Host::new((config, control), life), Host::in_flight);
        }
    }
}
