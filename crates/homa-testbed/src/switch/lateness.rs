//! Lateness of the switch: a histogram in microseconds with bounded memory.

use std::fmt;

/// Times above the last bucket count there; 16 ms is longer than any useful answer.
const BUCKETS: usize = 16_384;

/// Counts of lateness in whole microseconds.
#[derive(Clone)]
pub struct Lateness {
    counts: Vec<u32>,
    total: u64,
    max_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_ns: 0 }
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [0.5, 0.99].map(|share| self.quantile_us(share));
        write!(f, "{} times, p50 {p50} us, p99 {p99} us, max {} us", self.total, self.max_us())
    }
}

impl Lateness {
    /// Adds one observation, nanoseconds.
    pub(crate) fn record(&mut self, ns: u64) {
        let bucket = (ns / 1_000).min(BUCKETS as u64 - 1) as usize;
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Observations.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Upper end, in microseconds, of the bucket below which `share` of the observations lie; 0
    /// without observations.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted {
                return bucket as u64 + 1;
            }
        }
        0
    }

    /// The largest, in microseconds, rounded up.
    pub fn max_us(&self) -> u64 {
        self.max_ns.div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_of_the_sample() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.quantile_us(0.5), lateness.max_us()), (0, 0));
        for us in 0..100 {
            lateness.record(us * 1_000 + 1);
        }
        lateness.record(u64::MAX / 2);
        assert_eq!(lateness.quantile_us(0.5), 51);
        assert_eq!(lateness.quantile_us(0.99), 100);
        assert_eq!(lateness.count(), 101);
        assert!(lateness.max_us() > 1_000_000);
    }
}
