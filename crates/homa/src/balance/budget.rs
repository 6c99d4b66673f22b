//! How much more than one attempt a call may take on average, and when a call is late.
//!
//! A budget is a bucket of tokens (RFC 3290 §5.1.1): each call adds a share of one, and each
//! further attempt takes one. So when every call fails or is slow, the servers get the given share
//! of attempts more, not a multiple.

use std::time::{Duration, Instant};

use crate::metrics::Histogram;

/// Further attempts that calls have left.
#[derive(Clone, Debug)]
pub(super) struct AttemptBudget {
    tokens: f64,
    per_call: f64,
    most: f64,
    per_second: f64,
    at: Option<Instant>,
}

impl AttemptBudget {
    /// A share of the calls.
    pub(super) fn share(per_call: f64) -> Self {
        Self { tokens: 0.0, per_call: per_call.max(0.0), most: 20.0, per_second: 0.0, at: None }
    }

    /// Also some in each second, and these at the beginning, for clients that call seldom.
    pub(super) fn or_per_second(self, per_second: f64) -> Self {
        let most = (10.0 * per_second).max(self.most);
        Self { tokens: per_second, per_second, most, ..self }
    }

    /// A call begins.
    pub(super) fn call(&mut self, now: Instant) {
        let idle = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let more = self.per_call + self.per_second * idle.as_secs_f64();
        (self.at, self.tokens) = (Some(now), (self.tokens + more).min(self.most));
    }

    /// Takes one attempt, if one is left.
    pub(super) fn take(&mut self) -> bool {
        // The sum of many shares is not exact.
        let left = self.tokens >= 1.0 - 1e-9;
        if left {
            self.tokens -= 1.0;
        }
        left
    }
}

/// Calls after which the delay is computed anew, and the fewest with which there is one.
const EVERY: u64 = 100;

/// Calls after which the older half is forgotten.
const HALF: u64 = 2_000;

/// The times of recent calls.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentTimes {
    newer: Histogram,
    older: Histogram,
    late: Option<Duration>,
}

impl RecentTimes {
    pub(super) fn record(&mut self, took: Duration) {
        self.newer.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if self.newer.count().is_multiple_of(EVERY) {
            let mut both = self.older.clone();
            both.add(&self.newer);
            self.late = both.percentile(95.0);
        }
        if self.newer.count() >= HALF {
            self.older = std::mem::take(&mut self.newer);
        }
    }

    /// The time that 95 % of recent calls did not exceed; `None` before there are enough.
    pub(super) fn late(&self) -> Option<Duration> {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_share_of_the_calls() {
        let now = Instant::now();
        let mut budget = AttemptBudget::share(0.05);
        let mut taken = 0;
        for _ in 0..1_000 {
            budget.call(now);
            taken += u32::from(budget.take());
        }
        assert_eq!(taken, 50);
        // Attempts that are not used can be used later, but at most 20 at once.
        (0..100_000).for_each(|_| budget.call(now));
        assert_eq!((0..100).filter(|_| budget.take()).count(), 20);
        let mut none = AttemptBudget::share(0.0);
        none.call(now);
        assert!(!none.take());
    }

    #[test]
    fn a_client_that_calls_seldom_may_repeat_some_calls() {
        let start = Instant::now();
        let mut budget = AttemptBudget::share(0.2).or_per_second(10.0);
        budget.call(start);
        assert_eq!((0..100).filter(|_| budget.take()).count(), 10);
        budget.call(start + Duration::from_secs(1));
        assert_eq!((0..100).filter(|_| budget.take()).count(), 10);
    }

    #[test]
    fn a_call_is_late_after_the_time_of_most_recent_ones() {
        let mut times = RecentTimes::default();
        let calls = |times: &mut RecentTimes, number: u64, ms| {
            (0..number).for_each(|_| times.record(Duration::from_millis(ms)));
        };
        calls(&mut times, EVERY - 1, 10);
        assert_eq!(times.late(), None);
        calls(&mut times, 1, 10);
        let close = |late: Option<Duration>, ms: f64| {
            let late = late.unwrap().as_secs_f64() * 1e3;
            assert!((ms..1.13 * ms).contains(&late), "{late} ms");
        };
        close(times.late(), 10.0);
        // One in ten is slow, then none any more.
        for _ in 0..100 {
            calls(&mut times, 9, 10);
            calls(&mut times, 1, 50);
        }
        close(times.late(), 50.0);
        calls(&mut times, 2 * HALF, 10);
        close(times.late(), 10.0);
    }
}
