//! DCTCP (SIGCOMM 2010, §3.3) with a rate instead of a window, as HPCC's simulator has it
//! (`rdma-hw.cc`, `HandleAckDctcp`): no slow start, and no delayed acknowledgements.
//!
//! α is the smoothed share of marked acknowledgements per round trip. A mark cuts the rate by α/2,
//! at most once per round trip; a round trip that begins without such a cut adds an increment.
//! Invariant: the rate stays in its range.

use super::control::{RateControl, RateRange, RateSignal, scaled};

/// Parameters of DCTCP by rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DctcpRateConfig {
    /// Weight of the newest share, g.
    pub gain: f64,
    /// The increment per round trip, bit/s.
    pub additive: u64,
    /// Message bytes of a full packet.
    pub payload: u32,
}

/// The state of a queue pair.
#[derive(Clone, Debug)]
pub struct DctcpRate {
    range: RateRange,
    rate: u64,
    alpha: f64,
    /// Marked acknowledgements of this round trip, and how many it has in all.
    marked: u32,
    packets: u32,
    /// The next byte when this round trip began; 0 before the first answer.
    since: u32,
    /// The next byte at the last cut, until everything before it is acknowledged.
    cut_at: Option<u32>,
}

/// α after a round trip in which `marked` of `packets` were marked.
fn smoothed(alpha: f64, gain: f64, (marked, packets): (u32, u32)) -> f64 {
    let share = (f64::from(marked) / f64::from(packets.max(1))).min(1.0);
    (1.0 - gain) * alpha + gain * share
}

impl RateControl for DctcpRate {
    type Config = DctcpRateConfig;
    type Collected = ();

    fn new(_: &DctcpRateConfig, range: RateRange) -> Self {
        let rate = range.most;
        Self { range, rate, alpha: 1.0, marked: 0, packets: 0, since: 0, cut_at: None }
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn acknowledged(&mut self, config: &DctcpRateConfig, signal: &RateSignal<()>) {
        self.marked += u32::from(signal.marked);
        let begins = signal.is_past(self.since);
        if begins {
            let in_flight = match self.since {
                0 => signal.next,
                _ => {
                    self.alpha = smoothed(self.alpha, config.gain, (self.marked, self.packets));
                    self.marked = 0;
                    signal.next.saturating_sub(signal.acknowledged)
                }
            };
            self.packets = in_flight / config.payload.max(1) + 1;
            self.since = signal.next;
        }
        self.cut_at = self.cut_at.filter(|&at| !signal.is_past(at));
        if signal.marked && self.cut_at.is_none() {
            self.rate = self.range.clamp(scaled(self.rate, 1.0 - self.alpha / 2.0));
            self.cut_at = Some(signal.next);
        }
        if begins && self.cut_at.is_none() {
            self.rate = self.range.clamp(self.rate.saturating_add(config.additive));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::Time;

    const GBPS: u64 = 1_000_000_000;
    const RANGE: RateRange = RateRange { least: GBPS, most: 100 * GBPS };
    const CONFIG: DctcpRateConfig =
        DctcpRateConfig { gain: 1.0 / 16.0, additive: 615_000_000, payload: 1_000 };

    #[test]
    fn alpha_follows_the_share_of_marks() {
        for (alpha, marked, packets, expected) in
            [(1.0, 0, 10, 0.9375), (0.0, 5, 10, 0.03125), (0.5, 20, 10, 0.53125)]
        {
            assert_eq!(smoothed(alpha, 1.0 / 16.0, (marked, packets)), expected);
        }
    }

    #[test]
    fn a_mark_cuts_once_per_round_trip_and_others_add() {
        let mut pair = DctcpRate::new(&CONFIG, RANGE);
        let mut answer = |acknowledged, next, marked| {
            let signal = RateSignal { now: Time::ZERO, acknowledged, next, marked, collected: () };
            pair.acknowledged(&CONFIG, &signal);
            (pair.rate, pair.packets)
        };
        // α is 1 at first, and of the first answer's round trip nothing is known.
        assert_eq!(answer(1_000, 10_000, true), (50 * GBPS, 11));
        assert_eq!(answer(2_000, 10_000, true).0, 50 * GBPS, "cut before");
        // Of 11 packets two were marked: α = .9375 + .0625 * 2 / 11. The cut is over, too.
        let (rate, packets) = answer(11_000, 16_000, true);
        let alpha = 0.9375 + 0.0625 * 3.0 / 11.0;
        assert!(rate.abs_diff(scaled(50 * GBPS, 1.0 - alpha / 2.0)) <= 1, "{rate}");
        assert_eq!(packets, 6);
        assert_eq!(answer(17_000, 20_000, false).0, rate + CONFIG.additive);
        assert_eq!(answer(18_000, 21_000, false).0, rate + CONFIG.additive, "the same round trip");
    }
}
