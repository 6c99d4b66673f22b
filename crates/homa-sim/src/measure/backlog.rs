//! Whether a load is sustained: the backlog of incomplete messages, sampled while traffic lasts.
//!
//! The rule (Homa §5.2 raises an open-loop load until the backlog grows without bound; when that is
//! the case is for us to say): let q2, q3, q4 be the mean backlog in bytes over the second, third
//! and fourth quarter of traffic. The load diverges when the rise from q3 to q4 exceeds
//! [`GROWTH_LIMIT`] of the bytes offered in a quarter, so that at least this share of the traffic
//! piles up, and is more than [`STEADY`] of the rise before: a network that fills up, which takes
//! long when the largest messages last long, fills ever more slowly; one that is overloaded does
//! not. The first quarter does not count. The rule needs traffic that lasts several times as long
//! as the largest messages take; `growth` shows how far from decided a shorter run is.

use crate::scenario::outcome::Backlog;
use crate::time::SimDuration;

/// Share of the offered bytes that may pile up.
pub const GROWTH_LIMIT: f64 = 0.01;

/// Least ratio of the last rise to the one before that is no filling up.
pub const STEADY: f64 = 0.7;

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

    /// Applies the rule; `offered_bytes` were submitted while the samples were taken.
    pub fn judge(self, interval: SimDuration, offered_bytes: u64) -> Backlog {
        let quarter = |n: usize| {
            let len = self.bytes.len();
            let part = &self.bytes[n * len / 4..(n + 1) * len / 4];
            part.iter().sum::<u64>() as f64 / part.len().max(1) as f64
        };
        let (q2, q3, q4) = (quarter(1), quarter(2), quarter(3));
        let growth = (q4 - q3) / (offered_bytes as f64 / 4.0).max(1.0);
        let enough = self.bytes.len() >= 16;
        Backlog {
            interval_seconds: interval.0 as f64 / 1e12,
            diverges: enough && q3 > q2 && growth > GROWTH_LIMIT && q4 - q3 > STEADY * (q3 - q2),
            growth,
            bytes: self.bytes,
            messages: self.messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(backlog: impl Fn(u64) -> u64) -> Backlog {
        let mut series = BacklogSeries::default();
        for n in 0..400 {
            series.record(backlog(n), 1);
        }
        series.judge(SimDuration::millis(1), 400_000_000)
    }

    #[test]
    fn a_backlog_that_takes_two_percent_of_the_traffic_diverges() {
        // A million bytes are offered per sample.
        let growing = judged(|n| 5_000_000 + 20_000 * n);
        assert!(growing.diverges && (growing.growth - 0.02).abs() < 1e-9, "{}", growing.growth);
        assert!(!judged(|n| 5_000_000 + 5_000 * n).diverges);
    }

    #[test]
    fn filling_up_and_ups_and_downs_do_not() {
        assert!(!judged(|n| 1_000_000 * n.min(90)).diverges);
        let filling = |n: u64| (1e8 * (1.0 - (-(n as f64) / 150.0).exp())) as u64;
        assert!(judged(filling).growth > GROWTH_LIMIT && !judged(filling).diverges);
        assert!(!judged(|n| if n / 100 % 2 == 1 { 9_000_000 } else { 0 }).diverges);
        assert!(!BacklogSeries::default().judge(SimDuration::millis(1), 0).diverges);
    }
}
