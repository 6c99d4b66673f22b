//! TIMELY (SIGCOMM 2015, §4.3) as HPCC's simulator has it (`rdma-hw.cc`, `UpdateRateTimely`): the
//! rate follows the slope of the round-trip time.
//!
//! Once per round trip, the rate rises if the round trip took less than `low` or did not grow. It
//! falls with the slope if it grew, and with the excess if it took more than `high`. After five
//! rises in a row, rises are larger. Invariant: the rate stays in its range. Left out: segments of
//! 16 to 64 kB, which the paper's cards needed for time stamps.

use super::control::{RateControl, RateRange, RateSignal, scaled};
use super::telemetry::SentAt;

/// Parameters of TIMELY. Times are ns, rates bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimelyConfig {
    /// Weight of the newest difference of round trips, α.
    pub alpha: f64,
    /// How much the rate falls, β.
    pub beta: f64,
    /// Below this round trip the rate rises in any case.
    pub low: u64,
    /// Above it the rate falls in any case.
    pub high: u64,
    /// The round trip that differences are divided by.
    pub least_rtt: u64,
    /// The increment.
    pub additive: u64,
    /// The increment after five rises in a row.
    pub hyper: u64,
}

/// Rises in a row after which they are larger.
const RISES: u32 = 5;

/// The state of a queue pair.
#[derive(Clone, Debug)]
pub struct Timely {
    range: RateRange,
    rate: u64,
    /// The last round trip and the smoothed difference, ns.
    rtt: u64,
    difference: f64,
    rises: u32,
    /// The next byte at the last decision; 0 before the first answer.
    since: u32,
}

/// The rate's factor, or `None` if it rises.
fn factor(config: &TimelyConfig, rtt: u64, difference: f64) -> Option<f64> {
    let slope = difference / config.least_rtt as f64;
    match rtt {
        _ if rtt < config.low => None,
        _ if rtt > config.high => Some(1.0 - config.beta * (1.0 - config.high as f64 / rtt as f64)),
        _ if slope <= 0.0 => None,
        _ => Some((1.0 - config.beta * slope).max(0.0)),
    }
}

impl RateControl for Timely {
    type Config = TimelyConfig;
    type Collected = SentAt;

    fn new(_: &TimelyConfig, range: RateRange) -> Self {
        Self { range, rate: range.most, rtt: 0, difference: 0.0, rises: 0, since: 0 }
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn acknowledged(&mut self, config: &TimelyConfig, signal: &RateSignal<SentAt>) {
        if self.since > 0 && !signal.is_past(self.since) {
            return;
        }
        let rtt = signal.now.since(signal.collected.0).0;
        if self.since > 0 {
            let difference = rtt as f64 - self.rtt as f64;
            self.difference = (1.0 - config.alpha) * self.difference + config.alpha * difference;
            let (rate, rises) = match factor(config, rtt, self.difference) {
                None => {
                    let more = if self.rises < RISES { config.additive } else { config.hyper };
                    (self.rate.saturating_add(more), self.rises + 1)
                }
                Some(factor) => (scaled(self.rate, factor), 0),
            };
            (self.rate, self.rises) = (self.range.clamp(rate), rises);
        }
        if signal.next > self.since {
            (self.since, self.rtt) = (signal.next, rtt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::Time;

    const GBPS: u64 = 1_000_000_000;
    const CONFIG: TimelyConfig = TimelyConfig {
        alpha: 0.875,
        beta: 0.8,
        low: 50_000,
        high: 500_000,
        least_rtt: 20_000,
        additive: 100_000_000,
        hyper: 500_000_000,
    };

    #[test]
    fn the_slope_decides_between_the_two_limits() {
        for (rtt, difference, expected) in [
            (49_999, 9_000.0, None),
            (50_000, 0.0, None),
            (50_000, -1.0, None),
            // A slope of a quarter costs a fifth of the rate.
            (50_000, 5_000.0, Some(0.8)),
            (500_000, 50_000.0, Some(0.0)),
            // Twice the upper limit costs 40 %, whatever the slope is.
            (1_000_000, -9_000.0, Some(0.6)),
        ] {
            let factor = factor(&CONFIG, rtt, difference);
            let near = factor.zip(expected).is_none_or(|(a, b)| (a - b).abs() < 1e-12);
            assert!(
                near && factor.is_some() == expected.is_some(),
                "{rtt} {difference}: {factor:?}"
            );
        }
    }

    #[test]
    fn after_five_rises_in_a_row_a_rate_rises_faster() {
        let range = RateRange { least: GBPS, most: 100 * GBPS };
        let mut pair = Timely::new(&CONFIG, range);
        pair.rate = 10 * GBPS;
        let answer = |pair: &mut Timely, sent: u64, rtt: u64, bytes: (u32, u32)| {
            let (acknowledged, next) = bytes;
            let (now, collected) = (Time(sent + rtt), SentAt(Time(sent)));
            let signal = RateSignal { now, acknowledged, next, marked: false, collected };
            pair.acknowledged(&CONFIG, &signal);
            pair.rate
        };
        assert_eq!(answer(&mut pair, 0, 20_000, (1_000, 9_000)), 10 * GBPS, "the first answer");
        assert_eq!(answer(&mut pair, 5, 20_000, (9_000, 9_000)), 10 * GBPS, "the same round trip");
        for rise in 1..=6 {
            let bytes = (rise * 10_000, rise * 10_000 + 9_000);
            let more =
                u64::from(rise.min(5)) * CONFIG.additive + if rise > 5 { CONFIG.hyper } else { 0 };
            assert_eq!(answer(&mut pair, 5, 20_000, bytes), 10 * GBPS + more, "{rise}");
        }
        // From 20 to 60 us: a slope of .875 * 2, which costs all of the rate.
        assert_eq!(answer(&mut pair, 0, 60_000, (90_000, 99_000)), GBPS);
    }
}
