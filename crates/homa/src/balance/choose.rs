//! The choice of a server: two candidates are drawn at random, and the one with the lower load gets
//! the call (power of two choices, Mitzenmacher 2001). The load is the latency times the calls in
//! progress, with a latency that a slow answer raises at once and fast ones lower in time (peak
//! EWMA, as in Finagle).
//!
//! Invariant: the functions are pure. Time and random numbers are arguments.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// The time in which an old latency loses its weight to a factor of e. A slow server is tried again
/// after a few of these, because an estimate that nothing confirms falls, too.
const TIME_CONSTANT: Duration = Duration::from_secs(10);

/// How fast a server has answered lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    nanos: f64,
    at: Instant,
}

impl Estimate {
    pub(super) fn new(took: Duration, now: Instant) -> Self {
        Self { nanos: took.as_nanos() as f64, at: now }
    }

    /// The estimate after an answer.
    pub(super) fn answered(self, took: Duration, now: Instant) -> Self {
        let took = took.as_nanos() as f64;
        if took >= self.nanos {
            return Self { nanos: took, at: now };
        }
        let weight = self.weight(now);
        Self { nanos: self.nanos * weight + took * (1.0 - weight), at: now }
    }

    /// The estimate after a call that was given up before its answer: it would have taken longer.
    pub(super) fn given_up(self, after: Duration, now: Instant) -> Self {
        let after = after.as_nanos() as f64;
        if after > self.value(now) { Self { nanos: after, at: now } } else { self }
    }

    /// Nanoseconds.
    fn value(self, now: Instant) -> f64 {
        self.nanos * self.weight(now)
    }

    /// The weight that is left of a value of the past.
    fn weight(self, now: Instant) -> f64 {
        let idle = now.saturating_duration_since(self.at);
        (-idle.as_secs_f64() / TIME_CONSTANT.as_secs_f64()).exp()
    }
}

/// What the choice looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing {
    /// `None` if the server has not answered yet.
    pub(super) estimate: Option<Estimate>,
    /// Calls in progress.
    pub(super) outstanding: u32,
}

/// `Less` if the call goes to `a`, `Greater` if it goes to `b`. A server that has not answered yet
/// counts as fast as the other, so that a new one gets its share and no more.
pub(super) fn compare(a: Standing, b: Standing, now: Instant) -> Ordering {
    let load = |estimate: Estimate, standing: Standing| {
        estimate.value(now) * (f64::from(standing.outstanding) + 1.0)
    };
    match (a.estimate, b.estimate) {
        (Some(of_a), Some(of_b)) => load(of_a, a).total_cmp(&load(of_b, b)),
        _ => a.outstanding.cmp(&b.outstanding),
    }
}

/// Two different numbers below `count`, or the same one if there is only one.
pub(super) fn two(count: usize, draws: &mut Draws) -> (usize, usize) {
    let first = draws.below(count);
    if count < 2 {
        return (first, first);
    }
    let second = draws.below(count - 1);
    (first, second + usize::from(second >= first))
}

/// Random numbers from a seed (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `limit`, which is 0 if `limit` is.
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// A number from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_server_with_the_lower_load_is_chosen() {
        let now = Instant::now();
        let of = |ms: Option<u32>, outstanding| Standing {
            estimate: ms.map(|ms| Estimate::new(ms * MS, now)),
            outstanding,
        };
        let table = [
            // Equal latency: the fewer calls.
            (of(Some(1), 0), of(Some(1), 1), Ordering::Less),
            (of(Some(1), 2), of(Some(1), 2), Ordering::Equal),
            // Ten times slower: only beside ten times as many calls.
            (of(Some(10), 0), of(Some(1), 8), Ordering::Greater),
            (of(Some(10), 0), of(Some(1), 10), Ordering::Less),
            (of(Some(10), 1), of(Some(1), 18), Ordering::Greater),
            // Not measured: by calls alone.
            (of(None, 0), of(Some(1), 0), Ordering::Equal),
            (of(None, 1), of(Some(100), 0), Ordering::Greater),
            (of(None, 0), of(None, 3), Ordering::Less),
        ];
        for (a, b, chosen) in table {
            assert_eq!(compare(a, b, now), chosen, "{a:?} {b:?}");
            assert_eq!(compare(b, a, now), chosen.reverse(), "{b:?} {a:?}");
        }
    }

    #[test]
    fn a_slow_answer_counts_at_once_and_fades() {
        let start = Instant::now();
        let slow = Estimate::new(MS, start).answered(100 * MS, start + MS);
        assert_eq!(slow.value(start + MS), 100e6);
        // A single fast answer soon after changes little.
        let soon = slow.answered(MS, start + 100 * MS);
        assert!(soon.value(start + 100 * MS) > 98e6);
        // After ten seconds of fast answers about a third is left, with or without them.
        let later = start + Duration::from_secs(10);
        let answers =
            (1..=100).fold(slow, |estimate, n| estimate.answered(MS, start + n * 100 * MS));
        for left in [answers.value(later), slow.value(later)] {
            assert!((30e6..45e6).contains(&left), "{left}");
        }
    }

    #[test]
    fn a_call_that_was_given_up_only_raises_the_estimate() {
        let now = Instant::now();
        let estimate = Estimate::new(10 * MS, now);
        assert_eq!(estimate.given_up(9 * MS, now), estimate);
        assert_eq!(estimate.given_up(30 * MS, now), Estimate::new(30 * MS, now));
    }

    #[test]
    fn two_different_candidates_are_drawn_evenly() {
        let mut draws = Draws::new(7);
        assert_eq!(two(1, &mut draws), (0, 0));
        let mut pairs = [[0; 4]; 4];
        for _ in 0..12_000 {
            let (a, b) = two(4, &mut draws);
            pairs[a][b] += 1;
        }
        for (a, row) in pairs.iter().enumerate() {
            for (b, &drawn) in row.iter().enumerate() {
                let expected = if a == b { 0..=0 } else { 850..=1150 };
                assert!(expected.contains(&drawn), "{a} {b}: {drawn}");
            }
        }
        let again = |seed| (0..8).map(|_| two(9, &mut Draws::new(seed))).collect::<Vec<_>>();
        assert_eq!(again(3), again(3));
    }
}
