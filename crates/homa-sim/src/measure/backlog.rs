//! Decides if a load is sustained, from the backlog of incomplete messages sampled while traffic
//! lasts.
//!
//! Homa §5.2 raises an open-loop load until the backlog grows without bound, but does not define
//! when it does. Our rule: let q2, q3, q4 be the mean backlog in bytes over the second, third and
//! fourth quarter of traffic. The load diverges if the rise from q3 to q4 exceeds [`GROWTH_LIMIT`]
//! of the bytes offered in a quarter, so that at least this share of the traffic accumulates, and
//! also exceeds [`STEADY`] of the previous rise. The second condition is needed because a network
//! that only fills up, which takes long if the largest messages last long, fills ever more slowly,
//! but an overloaded one does not. The first quarter does not count.
//!
//! Filling up takes long: a single link at load L forgets its start in about E(S^2) / E(S) / rate /
//! (1 - L)^2, if S is a message's size. The verdict is reliable after six of these times (with L
//! capped at 0.9), after fifty round trips, and if chance, with a standard deviation of sqrt(n
//! E(S^2)) among n messages, moves a quarter by no more than [`GROWTH_LIMIT`]. A rise of
//! [`PLAIN_GROWTH`] then suffices alone. Even so, of runs within three points of the limit some are
//! judged wrongly: for example, of independent links with W5's sizes and shortest-first service one
//! in three at 0.97, and none at 0.93. For shorter traffic `growth` shows how clear the result is.

use homa_workload::sizes::SizeDistribution;

use crate::scenario::outcome::BacklogOutcome;
use crate::time::SimDuration;

/// Share of the offered bytes that may accumulate.
pub const GROWTH_LIMIT: f64 = 0.01;

/// Smallest ratio of the last rise to the previous one that is not mere filling up.
pub const STEADY: f64 = 0.7;

/// Share of the offered bytes whose accumulation suffices alone, if traffic was long enough.
pub const PLAIN_GROWTH: f64 = 0.03;

/// Relaxation times of a single link before the verdict is reliable.
const RELAXATIONS: f64 = 6.0;

/// Round trips of a full packet before the verdict is reliable, because messages in flight are not
/// a backlog.
const ROUND_TRIPS: f64 = 50.0;

/// Load above which links count as if they had this load. Overloaded links never relax.
const NEARLY_FULL: f64 = 0.9;

/// Seconds of traffic that show if a load is sustained: `per_second` messages of `sizes` on links
/// of `bps` bits per second with `rtt_bytes`.
pub fn needs_seconds(
    (sizes, per_second): (&SizeDistribution, f64),
    load: f64,
    (bps, rtt_bytes): (u64, u32),
) -> f64 {
    let (mean, square) = (sizes.mean_bytes(), sizes.mean_of(|bytes| f64::from(bytes).powi(2)));
    let left = 1.0 - load.min(NEARLY_FULL);
    let per_byte = 8.0 / bps as f64;
    let filled = RELAXATIONS * square / mean * per_byte / (left * left);
    let round_trips = ROUND_TRIPS * f64::from(rtt_bytes) * per_byte;
    let by_chance = 4.0 * square / (mean * GROWTH_LIMIT).powi(2) / per_second;
    filled.max(round_trips).max(by_chance)
}

/// Samples before the rule is applied while traffic lasts, and between two applications.
const LOOK_AFTER: usize = 64;
const LOOK_EVERY: usize = 16;

/// What samples show about a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BacklogVerdict {
    /// Growth over the second half as a share of the bytes offered then.
    pub growth: f64,
    /// The backlog grew without bound.
    pub diverges: bool,
    /// Traffic was long enough for the verdict.
    pub reliable: bool,
}

/// Samples of the backlog.
#[derive(Clone, Debug, Default)]
pub struct BacklogSeries {
    bytes: Vec<u64>,
    messages: Vec<u64>,
}

impl BacklogSeries {
    /// Adds a sample.
    pub fn record(&mut self, bytes: u64, messages: u64) {
        self.bytes.push(bytes);
        self.messages.push(messages);
    }

    /// Takes over the sums of new samples of all partitions of a network; each has as many.
    pub(crate) fn append_sums<'a>(&mut self, parts: impl Iterator<Item = &'a mut Self>) {
        let first = self.bytes.len();
        for part in parts {
            let samples = part.bytes.drain(..).zip(part.messages.drain(..));
            for (place, (bytes, messages)) in (first..).zip(samples) {
                if place == self.bytes.len() {
                    self.record(0, 0);
                }
                self.bytes[place] = self.bytes[place].wrapping_add(bytes);
                self.messages[place] = self.messages[place].wrapping_add(messages);
            }
        }
    }

    /// Whether the rule should be applied to traffic that lasts.
    pub fn is_time_to_look(&self) -> bool {
        self.bytes.len() >= LOOK_AFTER && self.bytes.len().is_multiple_of(LOOK_EVERY)
    }

    /// Applies the rule. `entered_bytes` joined the backlog while the samples were taken. The
    /// verdict is reliable if the samples span `needs_seconds`.
    pub fn verdict(
        &self,
        interval: SimDuration,
        entered_bytes: u64,
        needs_seconds: Option<f64>,
    ) -> BacklogVerdict {
        let quarter = |n: usize| {
            let len = self.bytes.len();
            let part = &self.bytes[n * len / 4..(n + 1) * len / 4];
            part.iter().sum::<u64>() as f64 / part.len().max(1) as f64
        };
        let (q2, q3, q4) = (quarter(1), quarter(2), quarter(3));
        let growth = (q4 - q3) / (entered_bytes as f64 / 4.0).max(1.0);
        let enough = self.bytes.len() >= 16;
        let grows = enough && q3 > q2 && growth > GROWTH_LIMIT;
        let steady = q4 - q3 > STEADY * (q3 - q2);
        let spans = interval.0 as f64 / 1e12 * self.bytes.len() as f64;
        let reliable = needs_seconds.is_some_and(|needs| spans >= needs);
        let diverges = grows && (steady || reliable && growth > PLAIN_GROWTH);
        BacklogVerdict { growth, diverges, reliable }
    }

    /// The verdict with the samples.
    pub fn judge(
        self,
        interval: SimDuration,
        entered_bytes: u64,
        needs_seconds: Option<f64>,
    ) -> BacklogOutcome {
        let BacklogVerdict { growth, diverges, .. } =
            self.verdict(interval, entered_bytes, needs_seconds);
        BacklogOutcome {
            interval_seconds: interval.0 as f64 / 1e12,
            diverges,
            growth,
            needs_seconds,
            bytes: self.bytes,
            messages: self.messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_workload::sizes::Workload;

    fn judged(backlog: impl Fn(u64) -> u64) -> BacklogOutcome {
        judged_by(backlog, 0.4)
    }

    fn judged_by(backlog: impl Fn(u64) -> u64, needs_seconds: f64) -> BacklogOutcome {
        let mut series = BacklogSeries::default();
        for n in 0..400 {
            series.record(backlog(n), 1);
        }
        series.judge(SimDuration::millis(1), 400_000_000, Some(needs_seconds))
    }

    #[test]
    fn a_backlog_that_takes_two_percent_of_the_traffic_diverges() {
        // A million bytes are offered per sample.
        let growing = judged(|n| 5_000_000 + 20_000 * n);
        assert!(growing.diverges && (growing.growth - 0.02).abs() < 1e-9, "{}", growing.growth);
        assert!(!judged(|n| 5_000_000 + 5_000 * n).diverges);
    }

    #[test]
    fn filling_up_and_fluctuation_do_not_diverge() {
        assert!(!judged(|n| 1_000_000 * n.min(90)).diverges);
        let filling = |n: u64| (1e8 * (1.0 - (-(n as f64) / 150.0).exp())) as u64;
        // Less than three time constants; a verdict needs six.
        let filling = judged_by(filling, 0.9);
        assert!(filling.growth > GROWTH_LIMIT && !filling.diverges);
        assert!(!judged(|n| if n / 100 % 2 == 1 { 9_000_000 } else { 0 }).diverges);
        assert!(!BacklogSeries::default().judge(SimDuration::millis(1), 0, None).diverges);
    }

    #[test]
    fn short_traffic_gives_no_verdict() {
        let growing = judged(|n| 5_000_000 + 20_000 * n);
        assert_eq!(growing.is_sustained(), Some(false));
        assert_eq!(judged(|_| 5_000_000).is_sustained(), Some(true));
        let asked =
            |needs_seconds| BacklogOutcome { needs_seconds, ..growing.clone() }.is_sustained();
        assert_eq!((asked(Some(0.41)), asked(None)), (None, None));
        // The runs of Homa's Figure 12 last 9 s for W5 and 220 ms for W2.
        let needs = |name, load, per_second| {
            let sizes = Workload::parse(name).unwrap().sizes().unwrap();
            needs_seconds((&sizes, per_second), load, (10_000_000_000, 9_680))
        };
        let w5 = |load| needs("w5", load, 144.0 * 400.0);
        assert!((8.0..9.0).contains(&w5(0.9)), "{}", w5(0.9));
        assert!(w5(0.8) < w5(0.9) && w5(0.9) == w5(1.2), "{}", w5(0.8));
        assert!(needs("w2", 0.94, 144.0 * 2e6) < 0.22);
        // Messages of one packet need many round trips, or 40,000 messages.
        let short = SizeDistribution::constant(100).unwrap();
        let needs =
            |per_second| needs_seconds((&short, per_second), 0.3, (10_000_000_000, 1_000_000));
        assert_eq!((needs(1e9), needs(1e4)), (50.0 * 800e-6, 4.0));
    }

    #[test]
    fn after_enough_traffic_a_plain_rise_suffices() {
        // 5 % in the last quarter after 10 % in the third.
        let slowing = |n: u64| 1_000_000 * (n.min(200) / 20 + n.saturating_sub(200).min(100) / 10);
        let slowing = |n| slowing(n) + 50_000 * n.saturating_sub(300);
        assert!(judged(slowing).growth > PLAIN_GROWTH && judged(slowing).diverges);
    }
}
