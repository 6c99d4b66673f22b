//! The rate of a receiver's pulls where the network's core carries less than its hosts
//! (`uet-htsim` 40ccb05, `oversubscribed_cc.cpp`).
//!
//! Credit paces the last hop. In an oversubscribed core, every receiver would pull at the rate of
//! its link, and most packets would be trimmed. So a receiver looks at what arrived about every 1.5
//! round trips: packets that a switch before the last hop trimmed, and a mean share of marked ones
//! above .3, lower its rate; otherwise it grows by .01, and if nothing was marked, by that doubled
//! for every increase before it in a row. Credit alone has this; with windows, senders notice.
//!
//! Invariant: the rate is between .9 of what the core carries for a host and 1. Periods are looked
//! at when something happens, with the same outcome as at their ends; after 64 that nothing looked
//! at, a new one begins.

use homa_proto::Time;
use homa_workload::rng::Rng;

/// The mean share of marked packets to aim at.
const TARGET: f64 = 0.3;
/// Weight of a period's share of marks in the mean.
const WEIGHT: f64 = 0.5;
/// What the rate grows by, and the part of the marks above the target that it falls by.
const INCREASE: f64 = 0.01;
const DECREASE: f64 = 0.5;
/// Periods after which a host that received nothing has its full rate again, whatever it was.
const RECOVERED: u32 = 64;

/// What arrived in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Arrivals {
    packets: u32,
    marked: u32,
    trimmed_at_last: u32,
    trimmed_before: u32,
}

/// The state between periods.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    /// The part of the link's rate.
    rate: f64,
    /// Mean share of marked packets.
    mean: f64,
    /// Increases in a row.
    increases: u32,
}

impl Pace {
    /// After a period with these arrivals.
    fn after(self, arrivals: Arrivals, least: f64) -> Self {
        let Arrivals { packets, marked, trimmed_at_last, trimmed_before } = arrivals;
        let whole = packets.saturating_sub(trimmed_at_last).saturating_sub(trimmed_before);
        let share = if whole == 0 { 0.0 } else { f64::from(marked) / f64::from(whole) };
        let mean = self.mean * (1.0 - WEIGHT) + WEIGHT * share;
        let (mut rate, mut falls) = (self.rate, false);
        if trimmed_before > 0 {
            rate -= f64::from(trimmed_before) / f64::from(packets.max(1));
            falls = true;
        }
        if mean > TARGET {
            rate *= 1.0 - (mean - TARGET) * DECREASE;
            falls = true;
        }
        let increases = if falls { 0 } else { self.increases + 1 };
        if !falls {
            let doublings = if marked == 0 { self.increases.min(16) } else { 0 };
            rate += INCREASE * f64::from(1_u32 << doublings);
        }
        Self { rate: rate.clamp(least, 1.0), mean, increases }
    }
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataArrival {
    /// Whole, and marked or not.
    Whole {
        /// A switch marked it.
        marked: bool,
    },
    /// Without its payload.
    Trimmed {
        /// The last switch trimmed it.
        last_hop: bool,
    },
}

/// See the module's description.
#[derive(Clone, Debug)]
pub(super) struct CoreRate {
    pace: Pace,
    /// The least rate.
    least: f64,
    base_rtt: u64,
    arrivals: Arrivals,
    /// When the period ends.
    ends: Time,
    rng: Rng,
}

impl CoreRate {
    /// For a core that carries a part of `1 / oversubscription` of what hosts send, and a round
    /// trip of `base_rtt` ns.
    pub fn new(oversubscription: f64, base_rtt: u64, mut rng: Rng) -> Self {
        let ends = Time(period(base_rtt, &mut rng));
        let pace = Pace { rate: 1.0, mean: 0.0, increases: 0 };
        let least = (0.9 / oversubscription).clamp(0.01, 1.0);
        Self { pace, least, base_rtt, arrivals: Arrivals::default(), ends, rng }
    }

    /// A packet arrived.
    pub fn saw(&mut self, now: Time, arrival: DataArrival) {
        self.advance(now);
        let arrivals = &mut self.arrivals;
        arrivals.packets += 1;
        match arrival {
            DataArrival::Whole { marked } => arrivals.marked += u32::from(marked),
            DataArrival::Trimmed { last_hop: true } => arrivals.trimmed_at_last += 1,
            DataArrival::Trimmed { last_hop: false } => arrivals.trimmed_before += 1,
        }
    }

    /// The bytes whose time a pull of `bytes` takes now.
    pub fn stretched(&mut self, now: Time, bytes: u32) -> u32 {
        self.advance(now);
        (f64::from(bytes) / self.pace.rate) as u32
    }

    /// Ends the periods that are over.
    fn advance(&mut self, now: Time) {
        for _ in 0..RECOVERED {
            if now < self.ends {
                return;
            }
            let arrivals = std::mem::take(&mut self.arrivals);
            self.pace = self.pace.after(arrivals, self.least);
            self.ends.0 += period(self.base_rtt, &mut self.rng);
        }
        self.ends = Time(now.0 + period(self.base_rtt, &mut self.rng));
    }
}

/// The length of a period, ns: 1.5 round trips, a quarter less or more so that receivers do not
/// act together.
fn period(base_rtt: u64, rng: &mut Rng) -> u64 {
    ((0.75 + rng.uniform() / 2.0) * 1.5 * base_rtt as f64).max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Pace = Pace { rate: 1.0, mean: 0.0, increases: 0 };

    #[test]
    fn trims_before_the_last_hop_and_many_marks_lower_the_rate() {
        let arrivals = Arrivals { packets: 100, ..Arrivals::default() };
        let rate = |arrivals| FULL.after(arrivals, 0.225).rate;
        assert_eq!(rate(arrivals), 1.0);
        assert_eq!(rate(Arrivals { trimmed_at_last: 50, ..arrivals }), 1.0);
        assert_eq!(rate(Arrivals { trimmed_before: 25, ..arrivals }), 0.75);
        assert_eq!(rate(Arrivals { trimmed_before: 99, ..arrivals }), 0.225, "the least");
        // The mean of none and all is .5, .2 above the target.
        assert_eq!(rate(Arrivals { marked: 100, ..arrivals }), 0.9);
        assert_eq!(rate(Arrivals { marked: 60, ..arrivals }), 1.0, "at the target");
    }

    #[test]
    fn without_marks_each_increase_is_twice_the_last() {
        let arrivals = Arrivals { packets: 100, ..Arrivals::default() };
        let mut pace = Pace { rate: 0.3, ..FULL };
        let mut rates = Vec::new();
        for _ in 0..4 {
            pace = pace.after(arrivals, 0.225);
            rates.push((pace.rate * 100.0).round() as u32);
        }
        assert_eq!(rates, [31, 33, 37, 45]);
        pace = pace.after(Arrivals { marked: 1, ..arrivals }, 0.225);
        assert_eq!((pace.rate * 100.0).round() as u32, 46);
        // The increase with marks counts as one in the row.
        pace = pace.after(arrivals, 0.225);
        assert_eq!((pace.rate * 100.0).round() as u32, 78);
    }

    #[test]
    fn whole_packets_with_marks_stretch_the_time_of_a_pull() {
        let pull = |marked| {
            let mut core = CoreRate::new(4.0, 10_000, Rng::stream(1, "pulls"));
            for packet in 0..10 {
                core.saw(Time(1), DataArrival::Whole { marked: packet < marked });
            }
            core.stretched(Time(20_000), 900)
        };
        // With all ten marked, the mean is .5, and the rate .9.
        assert_eq!([pull(0), pull(6), pull(10)], [900, 900, 1_000]);
    }

    #[test]
    fn an_idle_host_pulls_at_its_full_rate_again() {
        let mut core = CoreRate::new(4.0, 10_000, Rng::stream(1, "pulls"));
        for _ in 0..100 {
            core.saw(Time(1), DataArrival::Trimmed { last_hop: false });
        }
        assert_eq!(core.stretched(Time(20_000), 1_000), 4_444);
        assert_eq!(core.stretched(Time(10_000_000_000), 1_000), 1_000);
    }
}
