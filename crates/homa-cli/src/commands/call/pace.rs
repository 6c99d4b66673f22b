//! Whether calls were made at the rate that was asked for.
//!
//! Load that is offered at a rate measures the server at that rate only if the server, the network
//! and this machine keep up: then the n-th call ends as long after the first one ended as it was
//! due after the first one. If they do not keep up, calls end ever later, and the latencies are
//! those of the program's own backlog.

use std::fmt;
use std::time::Duration;

/// Rates that differ by more than this share are not the same.
const TOLERANCE: f64 = 0.05;

/// A delay that a busy machine causes now and then, nanoseconds: it decides nothing.
const JITTER_NS: u64 = 10_000_000;

/// When calls were due, and when calls ended, nanoseconds after the start, each in ascending order.
#[derive(Debug, Default)]
pub struct Pace {
    due_ns: Vec<u64>,
    ended_ns: Vec<u64>,
}

/// Calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Calls that were due.
    pub offered: f64,
    /// Calls that ended.
    pub reached: f64,
    /// They differ by more than 5 %, and by more than chance.
    pub is_behind: bool,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Pace {
    /// A call begins that was due this long after the start.
    pub fn due(&mut self, after: Duration) {
        self.due_ns.push(nanos(after));
    }

    /// A call ends this long after the start, with or without an answer.
    pub fn ended(&mut self, after: Duration) {
        self.ended_ns.push(nanos(after));
    }

    /// Both rates; `None` if fewer than two calls ended.
    ///
    /// They are taken at that call of the last tenth which ended with the least delay, so that a
    /// pause of the machine that the calls catch up with counts for nothing, and neither does a
    /// slow last call.
    pub fn rates(&self) -> Option<Rates> {
        let first_end = *self.ended_ns.first()?;
        let first_due = *self.due_ns.first()?;
        let since_first = self.due_ns.iter().zip(&self.ended_ns);
        let since_first = since_first.map(|(due, ended)| (due - first_due, ended - first_end));
        let count = since_first.len();
        let last_tenth = since_first.enumerate().skip((count - count / 10 - 1).max(1));
        let delay = |(_, (due, ended)): &(usize, (u64, u64))| ended.saturating_sub(*due);
        let at @ (calls, (due, ended)) = last_tenth.min_by_key(delay)?;
        let per_second = |ns: u64| calls as f64 / (ns.max(1) as f64 / 1e9);
        let (offered, reached) = (per_second(due), per_second(ended));
        let is_behind = reached < (1.0 - TOLERANCE) * offered && delay(&at) > JITTER_NS;
        Some(Rates { offered, reached, is_behind })
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered, reached, .. } = self;
        write!(f, "offered {offered:.1} calls/s, reached {reached:.1} calls/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of calls that are due every so many microseconds, by the delay of each end.
    fn rates(calls: u64, every_us: u64, delay_us: impl Fn(u64) -> u64) -> Rates {
        let mut pace = Pace::default();
        let mut ends: Vec<u64> = (0..calls).map(|n| n * every_us + delay_us(n)).collect();
        ends.sort_unstable();
        for (n, end) in (0..calls).zip(ends) {
            pace.due(Duration::from_micros(n * every_us));
            pace.ended(Duration::from_micros(end));
        }
        pace.rates().unwrap()
    }

    #[test]
    fn calls_that_end_ever_later_are_behind() {
        // Due every 200 us, answered every 445 us.
        let slow = rates(10_000, 200, |n| 100 + 245 * n);
        assert!(slow.is_behind && (slow.offered - 5_000.0).abs() < 0.1, "{slow}");
        assert!((slow.reached - 2_247.2).abs() < 0.1, "{slow}");
        assert_eq!(slow.to_string(), "offered 5000.0 calls/s, reached 2247.2 calls/s");
        assert!(rates(10_000, 200, |n| 12 * n).is_behind, "6 % slower");
        assert!(!rates(10_000, 200, |n| 8 * n).is_behind, "4 % slower");
    }

    #[test]
    fn long_latencies_alone_are_not_behind() {
        assert!(!rates(1_000, 1_000, |_| 300_000).is_behind, "a distant server");
        assert!(!rates(10, 1_000, |n| 1 + n * 500).is_behind, "too short to tell");
        let last_is_slow = rates(100, 10_000, |n| if n == 99 { 5_000_000 } else { 100 });
        assert!(!last_is_slow.is_behind, "{last_is_slow}");
        // Nothing ends for 200 ms, and all that was due meanwhile at once.
        let pause = rates(1_000, 1_000, |n| 100 + 1_000 * 980_u64.saturating_sub(n).min(200));
        assert!(!pause.is_behind, "{pause}");
    }

    #[test]
    fn one_call_has_no_rate() {
        let mut pace = Pace::default();
        assert_eq!(pace.rates(), None);
        pace.due(Duration::ZERO);
        pace.ended(Duration::from_millis(1));
        assert_eq!(pace.rates(), None);
    }
}
