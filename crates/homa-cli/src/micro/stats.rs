//! Reduction of samples to the figures that are printed.

use std::time::Duration;

/// The median and the tail of one round, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// The exact quantile of sorted samples: the smallest one that at least a share `q` does not
/// exceed.
fn quantile(sorted: &[u64], q: f64) -> u64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Reduces a round's latencies in nanoseconds; `None` when there are none.
pub fn tail(mut latencies: Vec<u64>) -> Option<Tail> {
    if latencies.is_empty() {
        return None;
    }
    latencies.sort_unstable();
    let us = |q| quantile(&latencies, q) as f64 / 1e3;
    Some(Tail { p50_us: us(0.5), p99_us: us(0.99) })
}

/// The median of a figure over the rounds; 0 when no round was run.
pub fn median(mut rounds: Vec<f64>) -> f64 {
    if rounds.is_empty() {
        return 0.0;
    }
    rounds.sort_by(f64::total_cmp);
    let middle = rounds.len() / 2;
    match rounds.len() % 2 {
        1 => rounds[middle],
        _ => (rounds[middle - 1] + rounds[middle]) / 2.0,
    }
}

/// Something done `count` times in `time`, per second.
pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_and_never_interpolated() {
        let tail = tail((1..=100).map(|us| us * 1000).collect()).expect("there are samples");
        assert_eq!(tail, Tail { p50_us: 50.0, p99_us: 99.0 });
    }

    #[test]
    fn one_slow_round_does_not_move_the_median() {
        assert_eq!(median(vec![1.0, 90.0, 2.0]), 2.0);
        assert_eq!(median(vec![1.0, 2.0, 3.0, 90.0]), 2.5);
    }

    #[test]
    fn nothing_measured_is_not_a_panic() {
        assert_eq!(tail(vec![]), None);
        assert_eq!(median(vec![]), 0.0);
    }
}
