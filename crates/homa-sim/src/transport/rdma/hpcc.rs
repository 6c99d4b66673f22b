//! HPCC (SIGCOMM 2019, §3.2; constants and order of its simulator, `rdma-hw.cc`, `UpdateRateHp`).
//!
//! Each acknowledgement tells what every switch on the path sent and how much waited there. The
//! busiest link, smoothed over a round trip, is compared with η; the rate is divided by the
//! quotient, and an increment is added. The rate that this starts from changes once per round trip,
//! so that each acknowledgement reacts to the same packets in flight only once. Invariant: the rate
//! stays in its range. Left out: a rate for each hop (`MULTI_RATE`), and PINT.

use super::control::{RateControl, RateRange, RateSignal, scaled, smoothed};
use super::telemetry::{IntRecord, IntStack};

/// Parameters of HPCC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HpccConfig {
    /// The utilisation that it aims at, η.
    pub target: f64,
    /// Increases without a look at the utilisation after each division (maxStage).
    pub stages: u32,
    /// The increment, bit/s.
    pub additive: u64,
    /// Round trip of the longest path without queueing, T, ns.
    pub base_rtt: u64,
    /// The window at the rate of the link, bytes.
    pub window: u64,
}

/// The state of a queue pair.
#[derive(Clone, Debug)]
pub struct Hpcc {
    range: RateRange,
    rate: u64,
    /// The rate that acknowledgements of this round trip start from (Rc).
    reference: u64,
    /// Smoothed utilisation of the busiest link.
    utilisation: f64,
    stage: u32,
    /// The next byte at the last change of `reference`; 0 before the first.
    since: u32,
    before: IntStack,
}

/// The utilisation of a link between two records of a port: what it sent, and what waited at both
/// times, which takes a part of the window to send. `link` is the rate of the host's link.
fn link_use(
    (now, before): (&IntRecord, &IntRecord),
    unit: u32,
    (link, window): (u64, u64),
) -> Option<(f64, u64)> {
    let ns = u64::from(now.ns_since(before));
    let rate = now.rate() as f64;
    if ns == 0 || rate == 0.0 {
        return None;
    }
    let sent = now.bytes_since(before, unit) as f64 * 8e9 / ns as f64;
    let queue = now.queue_bytes(unit).min(before.queue_bytes(unit)) as f64;
    Some((sent / rate + queue * link as f64 / rate / window as f64, ns))
}

/// The next rate and stage.
fn next_rate(
    config: &HpccConfig,
    range: RateRange,
    (reference, stage): (u64, u32),
    utilisation: f64,
) -> (u64, u32) {
    let excess = utilisation / config.target;
    let (rate, stage) = match excess >= 1.0 || stage >= config.stages {
        true => (scaled(reference, 1.0 / excess), 0),
        false => (reference, stage + 1),
    };
    (range.clamp(rate.saturating_add(config.additive)), stage)
}

impl RateControl for Hpcc {
    type Config = HpccConfig;
    type Collected = IntStack;
    const MOVES_NEXT: bool = true;

    fn new(_: &HpccConfig, range: RateRange) -> Self {
        Self {
            range,
            rate: range.most,
            reference: range.most,
            utilisation: 1.0,
            stage: 0,
            since: 0,
            before: IntStack::default(),
        }
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn acknowledged(&mut self, config: &HpccConfig, signal: &RateSignal<IntStack>) {
        let stack = signal.collected;
        let before = std::mem::replace(&mut self.before, stack);
        if self.since == 0 {
            self.since = signal.next;
            return;
        }
        // The path changed, so that records are not those of the same ports.
        if before.records().len() != stack.records().len() {
            return;
        }
        let scale = (self.range.most, config.window);
        let busiest = stack.greatest(&before, |pair| link_use(pair, stack.unit, scale));
        let is_past = signal.is_past(self.since);
        if let Some((utilisation, ns)) = busiest {
            self.utilisation = smoothed(self.utilisation, utilisation, (ns, config.base_rtt));
            let (rate, stage) =
                next_rate(config, self.range, (self.reference, self.stage), self.utilisation);
            self.rate = rate;
            if is_past {
                (self.reference, self.stage) = (rate, stage);
            }
        }
        if is_past {
            self.since = signal.next.max(self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimTime;
    use crate::transport::LeavingHop;
    use crate::transport::rdma::control::Collected;
    use homa_proto::Time;

    const GBPS: u64 = 1_000_000_000;
    const RANGE: RateRange = RateRange { least: GBPS, most: 100 * GBPS };
    const CONFIG: HpccConfig = HpccConfig {
        target: 0.95,
        stages: 0,
        additive: 40_000_000,
        base_rtt: 4_160,
        window: 52_000,
    };

    fn hop(ns: u64, sent_bytes: u64, queued_bytes: u32, gbps: u32) -> LeavingHop {
        LeavingHop { at: SimTime(ns * 1_000), sent_bytes, queued_bytes, mbps: gbps * 1_000 }
    }

    #[test]
    fn a_links_use_is_what_it_sent_and_what_waited_at_both_times() {
        for (gbps, ns, bytes, queues, expected) in [
            // Half of 12,500 bytes in 1 us at 100 Gbit/s.
            (100, 1_000, 6_400, (0, 0), 0.512),
            (100, 1_000, 12_800, (0, 0), 1.024),
            // 26,000 of a window of 52,000 bytes; the shorter of both queues counts.
            (100, 1_000, 12_800, (26_000, 80_000), 1.024 + 0.5),
            (100, 1_000, 12_800, (26_000, 0), 1.024),
            // Four times as fast, a link sends the same queue in a quarter of the time.
            (400, 1_000, 12_800, (26_000, 26_000), 0.256 + 0.125),
        ] {
            let before = IntRecord::new(&hop(10, 0, queues.0, gbps), 1);
            let now = IntRecord::new(&hop(10 + ns, bytes, queues.1, gbps), 1);
            let (used, over) = link_use((&now, &before), 1, (100 * GBPS, 52_000)).unwrap();
            assert!((used - expected).abs() < 1e-9, "{used} for {expected}");
            assert_eq!(over, ns);
        }
        let same = IntRecord::new(&hop(10, 0, 0, 100), 1);
        assert_eq!(link_use((&same, &same), 1, (100 * GBPS, 52_000)), None);
    }

    #[test]
    fn a_mean_forgets_over_a_round_trip() {
        assert_eq!(smoothed(1.0, 0.5, (1_040, 4_160)), 0.875);
        assert_eq!(smoothed(1.0, 0.5, (4_160, 4_160)), 0.5);
        assert_eq!(smoothed(1.0, 0.5, (9_999, 4_160)), 0.5);
    }

    #[test]
    fn rates_are_divided_by_the_excess() {
        for (stages, (reference, stage), utilisation, expected) in [
            // 50 / (1.9 / .95) + .04.
            (0, (50 * GBPS, 0), 1.9, (25_040_000_000, 0)),
            // Below the target the quotient is below one, and the rate rises at once.
            (0, (25 * GBPS, 0), 0.475, (50_040_000_000, 0)),
            (0, (90 * GBPS, 0), 0.1, (100 * GBPS, 0)),
            (0, (2 * GBPS, 0), 9.5, (GBPS, 0)),
            // With stages, only the increment is added as long as the target is not reached.
            (5, (50 * GBPS, 0), 0.475, (50_040_000_000, 1)),
            (5, (50 * GBPS, 5), 0.475, (100 * GBPS, 0)),
            (5, (50 * GBPS, 2), 1.9, (25_040_000_000, 0)),
        ] {
            let config = HpccConfig { stages, ..CONFIG };
            let (rate, stage) = next_rate(&config, RANGE, (reference, stage), utilisation);
            assert!(rate.abs_diff(expected.0) <= 1, "{rate} for {}", expected.0);
            assert_eq!(stage, expected.1);
        }
    }

    fn signal(acknowledged: u32, next: u32, hops: &[LeavingHop]) -> RateSignal<IntStack> {
        let mut collected = <IntStack as Collected>::new(Time::ZERO, 1);
        hops.iter().for_each(|hop| collected.stamp(hop));
        RateSignal { now: Time::ZERO, acknowledged, next, marked: false, collected }
    }

    #[test]
    fn the_reference_changes_once_per_round_trip() {
        let mut hpcc = Hpcc::new(&CONFIG, RANGE);
        hpcc.acknowledged(&CONFIG, &signal(1_000, 40_000, &[hop(0, 0, 0, 100)]));
        assert_eq!((hpcc.rate, hpcc.since), (100 * GBPS, 40_000));
        // Twice as busy as it can be, for a whole round trip.
        let busy = hop(4_160, 102_400, 0, 100);
        hpcc.acknowledged(&CONFIG, &signal(2_000, 41_000, &[busy]));
        assert!(hpcc.rate < 50 * GBPS && hpcc.reference == 100 * GBPS, "{hpcc:?}");
        let (rate, later) = (hpcc.rate, hop(8_320, 204_800, 0, 100));
        hpcc.acknowledged(&CONFIG, &signal(41_000, 80_000, &[later]));
        assert!(hpcc.rate.abs_diff(rate) < GBPS, "{hpcc:?}: not divided twice");
        assert_eq!((hpcc.reference, hpcc.since), (hpcc.rate, 80_000));
    }

    #[test]
    fn the_busiest_link_counts_and_other_paths_do_not() {
        let at = |ns, bytes: [u64; 2]| bytes.map(|bytes| hop(ns, bytes, 0, 100));
        let rate_with = |bytes| {
            let mut hpcc = Hpcc::new(&CONFIG, RANGE);
            hpcc.acknowledged(&CONFIG, &signal(1_000, 40_000, &at(0, [0, 0])));
            hpcc.acknowledged(&CONFIG, &signal(2_000, 40_000, &at(4_160, bytes)));
            hpcc.rate
        };
        assert_eq!(rate_with([102_400, 12_800]), rate_with([12_800, 102_400]));
        assert!(rate_with([51_200, 51_200]) > rate_with([102_400, 12_800]));
        let mut hpcc = Hpcc::new(&CONFIG, RANGE);
        hpcc.acknowledged(&CONFIG, &signal(1_000, 40_000, &at(0, [0, 0])));
        hpcc.acknowledged(&CONFIG, &signal(2_000, 40_000, &[hop(4_160, 102_400, 0, 100)]));
        assert_eq!(hpcc.rate, 100 * GBPS, "a path of another length");
    }
}
