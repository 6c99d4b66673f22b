//! Steadiness of traffic: bytes on receivers' links and the number of measured messages delivered,
//! sampled in equal steps of time, so that rates have confidence intervals (batch means).

use homa_workload::interval::{self, GroupMean};

use crate::time::{SimDuration, SimTime};

/// Samples of throughput.
#[derive(Clone, Debug)]
pub struct Throughput {
    every: SimDuration,
    next: SimTime,
    received: Vec<f64>,
    delivered: Vec<f64>,
}

/// Counts so far: wire bytes on receivers' links, and measured messages delivered.
pub type Counted = (f64, u64);

impl Throughput {
    /// Begins with the counts up to `now`; a step lasts `every`.
    pub fn new(now: SimTime, every: SimDuration, counted: Counted) -> Self {
        let mut throughput = Self { every, next: now, received: Vec::new(), delivered: Vec::new() };
        throughput.record(counted);
        throughput
    }

    /// When the next step ends.
    pub fn next(&self) -> SimTime {
        self.next
    }

    /// Ends a step.
    pub fn record(&mut self, (received, delivered): Counted) {
        self.received.push(received);
        self.delivered.push(delivered as f64);
        self.next += self.every;
    }

    /// Wire bytes on receivers' links per second.
    pub fn received(&self) -> Option<GroupMean> {
        self.per_second(&self.received)
    }

    /// Measured messages delivered per second.
    pub fn delivered(&self) -> Option<GroupMean> {
        self.per_second(&self.delivered)
    }

    fn per_second(&self, counter: &[f64]) -> Option<GroupMean> {
        let step = interval::batch_means(counter)?;
        let per_second = 1e12 / self.every.0.max(1) as f64;
        let half_width = step.half_width.map(|half| half * per_second);
        Some(GroupMean { mean: step.mean * per_second, half_width, ..step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_rates() {
        let every = SimDuration::millis(1);
        let mut throughput = Throughput::new(SimTime(5), every, (100.0, 7));
        for n in 1..=40 {
            assert_eq!(throughput.next(), SimTime(5) + SimDuration::millis(n));
            // Every other step is twice as busy, so that batches of two are alike.
            throughput.record((100.0 + n as f64 * 30.0 + (n % 2) as f64 * 10.0, 7 + n));
        }
        let [received, delivered] =
            [throughput.received(), throughput.delivered()].map(Option::unwrap);
        assert!((received.mean - 30_000.0).abs() < 1e-6 && delivered.mean == 1_000.0);
        assert!(received.half_width < Some(1e-6) && delivered.half_width == Some(0.0));
        let short = Throughput::new(SimTime(0), every, (0.0, 0));
        assert_eq!(short.received(), None, "a run shorter than a step");
    }
}
