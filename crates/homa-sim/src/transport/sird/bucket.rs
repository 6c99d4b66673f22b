//! How much credit a receiver lets one sender have (authors' simulator: `update_nw_state`,
//! `update_sn_state`).
//!
//! Two loops share the rule of DCTCP. One follows the marks of senders that hold more credit than
//! they can spend (csn), the other those of congested links between switches (ECN), and the smaller
//! limit holds. Without marks both stand at the most that one sender may have.
//!
//! The period of an average and the pause between cuts are counted in packets of the smaller limit,
//! as in the simulator. Two of its details are left out: packets without data count there, too, and
//! marked packets also raise a limit (`nw_ecn_burst_`). Here only unmarked data does.

/// The parameters of both loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AimdRule {
    /// Wire bytes of a full packet.
    pub full: u32,
    /// The most that one sender may have (SBmax), wire bytes.
    pub most: u32,
    /// Weight of the latest period in the marked fraction (g).
    pub gain: f64,
}

/// The marks of a data packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    /// The sender holds more credit than its threshold (congested sender notification).
    pub csn: bool,
    /// A link between switches was congested.
    pub ecn: bool,
}

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Aimd {
    limit: f64,
    /// The limit does not fall below this, at least one packet. A sender may have two packets less
    /// a byte even so, because it cannot spend less than a packet (`CreditedSender::account`).
    floor: f64,
    /// Average share of marked packets (F).
    fraction: f64,
    /// Marked packets of this period.
    marked: u32,
    /// Packets since the last cut.
    since_cut: u32,
    /// How many packets must pass until the next cut.
    cut_after: u32,
}

impl Aimd {
    fn new(rule: &AimdRule, floor: u32) -> Self {
        Self {
            limit: f64::from(rule.most),
            floor: f64::from(floor.max(rule.full).min(rule.most)),
            fraction: 0.0,
            marked: 0,
            since_cut: 0,
            cut_after: rule.most / rule.full,
        }
    }

    /// A packet arrived while `window` bytes were allowed; `period` is the number of packets of the
    /// period if it ends here.
    fn on_packet(&mut self, rule: &AimdRule, marked: bool, (window, period): (u32, Option<u32>)) {
        let full = f64::from(rule.full);
        self.since_cut += 1;
        self.marked += u32::from(marked);
        if let Some(packets) = period {
            let share = f64::from(self.marked) / f64::from(packets);
            self.fraction += rule.gain * (share - self.fraction);
            self.marked = 0;
        }
        if !marked {
            self.limit += full * full / f64::from(window);
        } else if self.since_cut >= self.cut_after {
            self.limit *= 1.0 - self.fraction / 2.0;
            self.since_cut = 0;
            self.cut_after = (1.5 * f64::from(window) / full) as u32;
        }
        self.limit = self.limit.clamp(self.floor, f64::from(rule.most));
    }
}

/// The limit on the credit of one sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bucket {
    host: Aimd,
    network: Aimd,
    /// Packets of this period so far.
    seen: u32,
    /// Packets of a period.
    period: u32,
}

impl Bucket {
    /// A full bucket whose two loops do not go below these floors.
    pub fn new(rule: &AimdRule, (host, network): (u32, u32)) -> Self {
        let (host, network) = (Aimd::new(rule, host), Aimd::new(rule, network));
        Self { host, network, seen: 0, period: 1 }
    }

    /// Wire bytes that the sender may have.
    pub fn limit(&self) -> u32 {
        self.host.limit.min(self.network.limit) as u32
    }

    /// A data packet of the sender arrived.
    pub fn on_packet(&mut self, rule: &AimdRule, marked: Marked) {
        let window = self.limit();
        self.seen += 1;
        let period = (self.seen >= self.period).then_some(self.seen);
        self.host.on_packet(rule, marked.csn, (window, period));
        self.network.on_packet(rule, marked.ecn, (window, period));
        if period.is_some() {
            self.seen = 0;
            self.period = (self.limit() / rule.full).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: AimdRule = AimdRule { full: 1_538, most: 100_000, gain: 0.08 };
    const CSN: Marked = Marked { csn: true, ecn: false };
    const ECN: Marked = Marked { csn: false, ecn: true };

    /// The limits of both loops after these packets.
    fn after(packets: &[(u32, Marked)]) -> (u32, u32) {
        let mut bucket = Bucket::new(&RULE, (10_000, 3_000));
        for &(count, marked) in packets {
            for _ in 0..count {
                bucket.on_packet(&RULE, marked);
            }
        }
        (bucket.host.limit as u32, bucket.network.limit as u32)
    }

    #[test]
    fn each_loop_follows_its_marks_with_the_rule_of_dctcp() {
        let clear = Marked::default();
        for (packets, host, network) in [
            (&[(1_000_u32, clear)] as &[(u32, Marked)], 100_000, 100_000),
            // The first cut comes once a window of 65 packets has passed. By then one period of one
            // packet, and none of 65, has ended: F = 0.08.
            (&[(64, CSN)], 100_000, 100_000),
            (&[(65, CSN)], 96_000, 100_000),
            (&[(65, ECN)], 100_000, 96_000),
            // The next cut comes 1.5 windows later, 97 packets, with F = 1 - 0.92 ^ 3.
            (&[(65 + 96, CSN)], 96_000, 100_000),
            (&[(65 + 97, CSN)], 85_377, 100_000),
            // An unmarked packet adds 1538 * 1538 / window.
            (&[(65, CSN), (1, clear)], 96_024, 100_000),
            (&[(65, CSN), (1_000, clear)], 100_000, 100_000),
        ] {
            assert_eq!(after(packets), (host, network), "{packets:?}");
        }
    }

    #[test]
    fn limits_stop_at_their_floors_and_the_smaller_one_holds() {
        assert_eq!(after(&[(100_000, Marked { csn: true, ecn: true })]), (10_000, 3_000));
        let mut bucket = Bucket::new(&RULE, (10_000, 3_000));
        for _ in 0..100_000 {
            bucket.on_packet(&RULE, CSN);
        }
        assert_eq!(bucket.limit(), 10_000);
        // A sender may always have one packet, however slow its link is.
        let slow = AimdRule { most: 2_000, ..RULE };
        let mut bucket = Bucket::new(&slow, (200, 60));
        for _ in 0..10_000 {
            bucket.on_packet(&slow, ECN);
        }
        assert_eq!(bucket.limit(), 1_538);
    }
}
