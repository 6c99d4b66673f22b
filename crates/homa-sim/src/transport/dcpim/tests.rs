//! The rules of hosts over a wire with a fixed delay; and calls over a network with faults.

use std::collections::BTreeMap;

use homa_proto::{PeerId, Submit};

use super::super::tests::random_calls;
use super::*;

/// Two rounds of 10 us, two channels, and a BDP of four packets.
const CONFIG: DcpimConfig = DcpimConfig {
    wire: WireFormat::ethernet(1_500, 40, 40),
    link: Rate::gbps(10),
    short: 4,
    rounds: 2,
    channels: 2,
    round: Duration(10_000),
    sorted_rounds: 2,
    window: 6,
    window_timeout: Duration(12_000),
    resend: Duration(15_000),
    grace: Duration(4_000),
    notify: Duration(1_000_000),
    seed: 1,
};
const PAYLOAD: u32 = CONFIG.wire.payload;
/// One way from host to host.
const DELAY: u64 = 3_000;
/// A packet time, 1230.4 ns.
const PACKET: f64 = 1_230.4;

/// Whether a packet is lost.
type IsLost = fn(&DcpimPacket) -> bool;

/// Hosts, and the packets between them. Host n has number n.
struct Wire {
    hosts: Vec<Dcpim>,
    flying: BTreeMap<(u64, u64), (u32, DcpimPacket)>,
    /// The packets that were sent, each with its time and sender.
    log: Vec<(u64, u32, DcpimPacket)>,
    /// Packets for which this is true are lost.
    loses: IsLost,
    /// Nothing is lost from then on.
    clean_from: u64,
}

impl Wire {
    fn new(config: DcpimConfig, hosts: u32) -> Self {
        let hosts = (0..hosts).map(|host| Dcpim::new(config, HostId(host), 0)).collect();
        let (flying, log) = (BTreeMap::new(), Vec::new());
        Self { hosts, flying, log, loses: |_| false, clean_from: u64::MAX }
    }

    fn submit(&mut self, now: u64, (from, to, packets): (u32, u32, u32)) {
        self.run(now);
        let what = Submit::OneWay { peer: PeerId(to), length: packets * PAYLOAD, cookie: 0 };
        self.hosts[from as usize].submit(Time(now), what).unwrap();
        self.drain(now);
    }

    /// Takes all packets that hosts want to send.
    fn drain(&mut self, now: u64) {
        for (from, host) in (0..).zip(&mut self.hosts) {
            while host.event().is_some() {}
            while let Some(packet) = host.transmit(Time(now)) {
                self.log.push((now, from, packet));
                if now >= self.clean_from || !(self.loses)(&packet) {
                    let key = (now + DELAY, self.log.len() as u64);
                    self.flying.insert(key, (from, packet));
                }
            }
        }
    }

    /// Runs until a time.
    fn run(&mut self, until: u64) {
        loop {
            let deadlines = self.hosts.iter().filter_map(|host| host.deadline());
            let arrival = self.flying.keys().next().map(|&(at, _)| Time(at));
            let Some(now) = deadlines.chain(arrival).min().filter(|now| now.0 <= until) else {
                return;
            };
            while let Some(next) = self.flying.first_entry().filter(|next| next.key().0 <= now.0) {
                let (from, packet) = next.remove();
                let at = &mut self.hosts[packet.head.to.0 as usize];
                let _ = at.receive(now, &packet, PacketMeta::new(HostId(from), 0));
            }
            for host in &mut self.hosts {
                host.expire(now);
            }
            self.drain(now.0);
        }
    }

    /// Times, senders and receivers of the packets for which `of` has a value, with the value.
    fn sent<T>(&self, of: impl Fn(DcpimBody) -> Option<T>) -> Vec<(u64, u32, u32, T)> {
        let log = self.log.iter();
        log.filter_map(|(at, from, packet)| Some((*at, *from, packet.head.to.0, of(packet.body)?)))
            .collect()
    }

    fn accepted(&self) -> Vec<(u64, u32, u32, u32)> {
        self.sent(|body| match body {
            DcpimBody::Accept { channels, .. } => Some(channels.count),
            _ => None,
        })
    }

    /// Tokens: number of the packet and level.
    fn tokens(&self) -> Vec<(u64, u32, u32, (u32, u8))> {
        self.sent(|body| match body {
            DcpimBody::Token { packet, level, .. } => Some((packet, level)),
            _ => None,
        })
    }

    fn data(&self) -> Vec<(u64, u32, u32, u32)> {
        self.sent(|body| match body {
            DcpimBody::Data { piece, .. } => Some(piece.packet),
            _ => None,
        })
    }

    fn is_done(&self) -> bool {
        self.hosts.iter().all(|host| host.in_flight() == (0, 0))
    }
}

#[test]
fn a_short_message_is_sent_at_once_a_longer_one_announced() {
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(1, (0, 1, 4));
    assert_eq!(wire.data(), [(1, 0, 1, 0), (1, 0, 1, 1), (1, 0, 1, 2), (1, 0, 1, 3)]);
    wire.submit(2, (0, 1, 5));
    assert_eq!(wire.data().len(), 4);
    wire.run(100_000);
    assert!(wire.is_done());
}

#[test]
fn a_match_takes_a_round_and_may_begin_before_the_data_phase() {
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(1, (0, 1, 20));
    wire.run(200_000);
    let at = |of: fn(DcpimBody) -> bool| wire.sent(|body| of(body).then_some(()))[0].0;
    assert_eq!(at(|body| matches!(body, DcpimBody::Request { .. })), 10_000, "the next round");
    assert_eq!(at(|body| matches!(body, DcpimBody::Grant { .. })), 15_000, "half a round later");
    assert_eq!(wire.accepted()[0], (20_000, 1, 0, 2), "the end of the round");
    // The round was the last of its matching, so that tokens are those of the data phase.
    assert_eq!(wire.tokens()[0], (20_000, 1, 0, (0, 2)));
    assert_eq!(wire.data()[0].0, 20_000 + DELAY);
    assert!(wire.is_done());

    // After the first round of a matching the channels are not in use, and tokens go out at once.
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(10_001, (0, 1, 200));
    wire.run(100_000);
    assert_eq!(wire.accepted()[0].0, 30_000);
    let levels: Vec<_> = wire.tokens().iter().map(|&(at, _, _, (_, level))| (at, level)).collect();
    assert_eq!(levels[0], (30_000, 7));
    let phase = levels.iter().find(|&&(_, level)| level == 2);
    assert_eq!(phase, Some(&(40_000, 2)), "the data phase");
}

#[test]
fn a_permutation_is_matched_completely() {
    let mut wire = Wire::new(CONFIG, 8);
    for host in 0..8 {
        wire.submit(1, (host, (host + 3) % 8, 500));
    }
    wire.run(20_000);
    let accepted: Vec<_> = wire.accepted().iter().map(|&(_, at, from, n)| (at, from, n)).collect();
    assert_eq!(accepted, (0..8).map(|at| (at, (at + 5) % 8, 2)).collect::<Vec<_>>());
    wire.run(3_000_000);
    assert!(wire.is_done());
    // All channels of all links carry tokens: 500 packets take little more than their own time.
    let end = wire.data().last().map_or(0, |data| data.0);
    assert!((end as f64) < 30_000.0 + 1.05 * 500.0 * PACKET, "{end}");
}

#[test]
fn a_sender_serves_the_shortest_message_first() {
    let mut wire = Wire::new(CONFIG, 4);
    wire.submit(1, (0, 1, 100));
    wire.submit(1, (0, 2, 10));
    wire.submit(1, (0, 3, 60));
    wire.run(21_000);
    // The short message needs two channels for its 10 packets, as a channel carries 8.
    assert_eq!(wire.accepted(), [(20_000, 2, 0, 2)]);
    // Without it, the next one gets both channels.
    wire.run(41_000);
    assert_eq!(wire.accepted()[1..], [(30_000, 3, 0, 2)]);
}

#[test]
fn tokens_go_out_at_the_share_of_the_channels() {
    // 8 packets need one of two channels.
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(1, (0, 1, 8));
    wire.run(60_000);
    let times: Vec<_> = wire.tokens().iter().map(|token| token.0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = (2.0 * PACKET) as u64;
    assert!(gaps[..3].iter().all(|gap| gap.abs_diff(expected) <= 1), "{gaps:?}");
    // Half of the window of 6 may be unanswered before a token. Then each answer permits another.
    assert_eq!(times[..4].iter().filter(|&&at| at <= 20_000 + 2 * DELAY).count(), 3, "{times:?}");
}

#[test]
fn a_window_that_is_not_answered_stops_tokens_for_a_while() {
    let mut wire = Wire::new(CONFIG, 2);
    wire.loses = |packet| matches!(packet.body, DcpimBody::Data { .. });
    wire.submit(1, (0, 1, 200));
    wire.run(39_900);
    let times: Vec<_> = wire.tokens().iter().map(|token| token.0).collect();
    // One more than the window of 6, and after the timeout two: one for a token that counts as lost
    // and one beyond the window.
    assert_eq!(times.iter().filter(|&&at| at < 28_000).count(), 7, "{times:?}");
    assert_eq!(times[7], times[6] + 12_000, "{times:?}");
}

#[test]
fn packets_that_do_not_arrive_get_tokens_again() {
    // The first copy of the second packet of a long message is lost.
    let first = |packet: &DcpimPacket| match packet.body {
        DcpimBody::Data { piece, resent, .. } => piece.packet == 1 && !resent,
        _ => false,
    };
    let mut wire = Wire::new(CONFIG, 2);
    wire.loses = first;
    wire.submit(1, (0, 1, 8));
    wire.run(300_000);
    assert!(wire.is_done());
    let tokens = wire.tokens();
    let last = tokens.iter().rfind(|token| token.3.0 == 7).unwrap().0;
    let again: Vec<_> = tokens.iter().filter(|token| token.3.0 == 1).collect();
    assert_eq!(again.len(), 2);
    assert!(again[1].0 >= last + 15_000, "a BDP time after the last token");

    // One of a short message: it is matched.
    let mut wire = Wire::new(CONFIG, 2);
    wire.loses = first;
    wire.submit(1, (0, 1, 3));
    wire.run(300_000);
    assert!(wire.is_done());
    assert_eq!((wire.accepted().len(), wire.tokens().len()), (1, 1));
    assert!(wire.accepted()[0].0 >= 3_000 + (3.0 * PACKET) as u64 + 15_000);
}

#[test]
fn lost_control_packets_delay_a_message_and_do_not_stop_it() {
    let cases: [(&str, IsLost); 6] = [
        ("notifications", |packet| matches!(packet.body, DcpimBody::Notify { .. })),
        ("requests", |packet| matches!(packet.body, DcpimBody::Request { .. })),
        ("grants", |packet| matches!(packet.body, DcpimBody::Grant { .. })),
        ("acceptances", |packet| matches!(packet.body, DcpimBody::Accept { .. })),
        ("tokens", |packet| matches!(packet.body, DcpimBody::Token { .. })),
        ("acks", |packet| matches!(packet.body, DcpimBody::Ack)),
    ];
    for (what, loses) in cases {
        for packets in [3, 9] {
            let mut wire = Wire::new(CONFIG, 2);
            (wire.loses, wire.clean_from) = (loses, 400_000);
            wire.submit(1, (0, 1, packets));
            wire.run(50_000_000);
            assert!(wire.is_done(), "{packets} packets without {what}");
            assert!(wire.hosts.iter().all(|host| host.deadline().is_none()), "{what}: at rest");
        }
    }
}

#[test]
fn tokens_expire_after_the_data_phase() {
    let mut host = Dcpim::new(CONFIG, HostId(0), 0);
    let what = Submit::OneWay { peer: PeerId(1), length: 9 * PAYLOAD, cookie: 0 };
    host.submit(Time(0), what).unwrap();
    let head = host.transmit(Time(0)).unwrap().head;
    let token =
        |packet| DcpimBody::Token { packet, number: packet, left: 9, end: 0, epoch: 1, level: 2 };
    let hear = |host: &mut Dcpim, now, body| {
        let _ = host.receive(Time(now), &DcpimPacket { head, body }, PacketMeta::new(HostId(1), 0));
    };
    // Epoch 1 ends at 40 us, and tokens are valid for 4 us more.
    hear(&mut host, 43_000, token(0));
    hear(&mut host, 43_000, token(1));
    assert!(host.transmit(Time(44_000)).is_some());
    assert!(host.transmit(Time(44_001)).is_none());
    hear(&mut host, 44_001, token(2));
    assert!(host.transmit(Time(44_001)).is_none());
}

#[test]
fn requests_that_come_too_late_count_only_if_all_do() {
    let mut host = Dcpim::new(CONFIG, HostId(0), 0);
    let what = Submit::OneWay { peer: PeerId(1), length: 9 * PAYLOAD, cookie: 0 };
    host.submit(Time(0), what).unwrap();
    let head = host.transmit(Time(0)).unwrap().head;
    let channels = Channels { count: 2, prompt: 2 };
    let mut grants_at = |round: u64, now| {
        let body = DcpimBody::Request { round, left: 9, channels };
        let _ = host.receive(Time(now), &DcpimPacket { head, body }, PacketMeta::new(HostId(1), 0));
        let at = host.deadline().filter(|at| at.0 < now + 10_000)?;
        host.expire(at);
        host.transmit(at).map(|_| at.0)
    };
    assert_eq!(grants_at(1, 14_999), Some(15_000));
    assert_eq!(grants_at(2, 25_000), None, "the second half of its round");
    assert_eq!(grants_at(2, 31_000), None, "the next round");
    for round in 4..u64::from(4 + PATIENT_EPOCHS * 2 - 2) {
        assert_eq!(grants_at(round, 10_000 * round + 6_000), None);
    }
    assert_eq!(grants_at(20, 206_000), Some(215_000));
}

#[test]
fn surplus_channels_go_back() {
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(1, (0, 1, 100));
    wire.run(20_000);
    let accept =
        wire.log.iter().find(|(_, _, packet)| matches!(packet.body, DcpimBody::Accept { .. }));
    let accept = accept.unwrap().2;
    wire.run(24_000);
    assert_eq!(wire.hosts[1].current[0].channels.count, 2);
    // A copy of the acceptance, or one for channels that were granted twice.
    let _ = wire.hosts[0].receive(Time(24_000), &accept, PacketMeta::new(HostId(1), 0));
    wire.drain(24_000);
    wire.run(28_000);
    assert_eq!(wire.hosts[1].current[0].channels.count, 0);
    wire.run(3_000_000);
    assert!(wire.is_done());
}

#[test]
fn a_sender_that_is_silent_is_not_asked_for_ever() {
    let mut wire = Wire::new(CONFIG, 2);
    wire.submit(1, (0, 1, 100));
    wire.run(9_000);
    // The sender dies.
    wire.hosts[0] = Dcpim::new(CONFIG, HostId(0), 1);
    wire.run(1_000_000_000);
    assert_eq!(wire.hosts[1].deadline(), None);
    let last = wire.log.last().unwrap().0;
    assert!((50_000_000..51_000_000).contains(&last), "{last}");
}

#[test]
fn levels_follow_the_size() {
    let levels = [1, 7, 8, 49, 50, 343, 344, 2_401, 2_402, 16_807, 16_808, u32::MAX];
    let levels = levels.map(|packets| level(packets, 49));
    assert_eq!(levels, [6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]);
    assert_eq!(level(16_808, 0), 6);
}

#[test]
fn a_channel_carries_whole_packets_in_a_data_phase() {
    // dcPIM's evaluation: 27.12 us, four channels, 120 ns a packet.
    let evaluation = DcpimConfig {
        wire: WireFormat::bare(1_500, 40, 40),
        link: Rate::gbps(100),
        rounds: 4,
        channels: 4,
        round: Duration(6_781),
        ..CONFIG
    };
    assert_eq!((evaluation.carries(), CONFIG.carries()), (56, 8));
}

#[test]
fn every_call_is_answered_once_despite_faults() {
    let config =
        DcpimConfig { short: 8, rounds: 4, channels: 4, sorted_rounds: 1, window: 8, ..CONFIG };
    for seed in 0..8 {
        let config = DcpimConfig { seed, ..config };
        random_calls(seed, move |host, life| Dcpim::new(config, host, life), Dcpim::in_flight);
    }
}
