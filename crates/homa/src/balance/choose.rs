//! The choice of a server: two candidates are drawn at random, and the one with the lower load gets
//! the call (power of two choices, Mitzenmacher 2001). The load is the latency times the calls in
//! progress, with a latency that a slow answer raises at once and fast ones lower in time (peak
//! EWMA, as in Finagle).
//!
//! Servers of SRV records have a priority and a weight (RFC 2782). Only servers of the best
//! priority are candidates. A server is drawn in proportion to its weight, and a call counts the
//! less there, the greater the weight is. So the weights are shares of the calls while the servers
//! are equally fast, whether few or many calls are in progress.
//!
//! Invariant: the functions are pure. Time and random numbers are arguments.

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

/// What the operator says about a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rank {
    /// Servers with a lower number come first.
    pub(super) priority: u16,
    /// The share of the calls of its priority that it gets, relative to other servers; above zero.
    pub(super) weight: f64,
}

impl Rank {
    /// The rank of all servers whose source has none.
    pub(super) const EQUAL: Self = Self { priority: 0, weight: 1.0 };
}

/// What the choice looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing {
    /// `None` if the server has not answered yet.
    pub(super) estimate: Option<Estimate>,
    /// Calls in progress.
    pub(super) outstanding: u32,
    /// See [`Rank`].
    pub(super) weight: f64,
}

/// Whether the candidate that was drawn first gets the call, and not the second: its load would not
/// be greater. A server that has not answered yet counts as fast as the other, so that a new one
/// gets its share and no more.
pub(super) fn first_gets_it(first: Standing, second: Standing, now: Instant) -> bool {
    let calls = |of: Standing, more: f64| f64::from(of.outstanding) / of.weight + more;
    // The call itself. That the first was drawn, was its weight already: without calls in progress
    // it gets the call, even if the second has a greater weight.
    let of_first = calls(first, 1.0 / first.weight.max(second.weight));
    let of_second = calls(second, 1.0 / second.weight);
    match (first.estimate, second.estimate) {
        (Some(a), Some(b)) => a.value(now) * of_first <= b.value(now) * of_second,
        _ => of_first <= of_second,
    }
}

/// Draws two different candidates, each in proportion to its weight, or the same one twice if there
/// is only one. `weights` is not empty.
pub(super) fn two(weights: &[f64], draws: &mut Draws) -> (usize, usize) {
    let first = draws.one_of(weights, None);
    let second = if weights.len() < 2 { first } else { draws.one_of(weights, Some(first)) };
    (first, second)
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

    /// A number of one of the weights, in proportion to it, but not `without`.
    fn one_of(&mut self, weights: &[f64], without: Option<usize>) -> usize {
        let all = || weights.iter().enumerate().filter(|(n, _)| Some(*n) != without);
        let mut left = self.share() * all().map(|(_, weight)| weight).sum::<f64>();
        let mut last = 0;
        for (n, weight) in all() {
            (last, left) = (n, left - weight);
            if left < 0.0 {
                break;
            }
        }
        last
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
            weight: 1.0,
        };
        let table = [
            // Equal latency: the fewer calls.
            (of(Some(1), 0), of(Some(1), 1), true, false),
            (of(Some(1), 2), of(Some(1), 2), true, true),
            // Ten times slower: only beside ten times as many calls.
            (of(Some(10), 0), of(Some(1), 8), false, true),
            (of(Some(10), 0), of(Some(1), 10), true, false),
            (of(Some(10), 1), of(Some(1), 18), false, true),
            // Not measured: by calls alone.
            (of(None, 0), of(Some(1), 0), true, true),
            (of(None, 1), of(Some(100), 0), false, true),
            (of(None, 0), of(None, 3), true, false),
        ];
        for (a, b, a_first, b_first) in table {
            assert_eq!(first_gets_it(a, b, now), a_first, "{a:?} {b:?}");
            assert_eq!(first_gets_it(b, a, now), b_first, "{b:?} {a:?}");
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
    fn a_call_counts_less_at_a_server_of_greater_weight() {
        let now = Instant::now();
        let of = |weight, outstanding, ms: u32| Standing {
            estimate: Some(Estimate::new(ms * MS, now)),
            outstanding,
            weight,
        };
        let table = [
            // Without calls in progress, the one that was drawn.
            (of(3.0, 0, 1), of(1.0, 0, 1), true, true),
            // Three times as many calls are the same load.
            (of(3.0, 3, 1), of(1.0, 1, 1), true, true),
            (of(3.0, 6, 1), of(1.0, 1, 1), false, true),
            (of(3.0, 2, 1), of(1.0, 1, 1), true, false),
            // A small weight is no share of the load of a great one.
            (of(100.0, 90, 1), of(1.0, 0, 1), true, true),
            (of(100.0, 1, 1), of(1.0, 1, 1), true, false),
            // A great weight does not make a slow server fast.
            (of(3.0, 0, 4), of(1.0, 0, 1), false, true),
        ];
        for (a, b, a_first, b_first) in table {
            assert_eq!(first_gets_it(a, b, now), a_first, "{a:?} {b:?}");
            assert_eq!(first_gets_it(b, a, now), b_first, "{b:?} {a:?}");
        }
    }

    #[test]
    fn candidates_are_drawn_in_proportion_to_their_weights() {
        let mut draws = Draws::new(7);
        let weights = [1.0, 5.0, 1e-3, 4.0];
        let mut drawn = [0i32; 4];
        for _ in 0..10_000 {
            let (first, second) = two(&weights, &mut draws);
            assert_ne!(first, second);
            drawn[first] += 1;
        }
        for (drawn, expected) in drawn.into_iter().zip([1_000i32, 5_000, 1, 4_000]) {
            assert!(drawn.abs_diff(expected) < 150, "{drawn} of {expected}");
        }
    }

    #[test]
    fn two_different_candidates_are_drawn_evenly() {
        let mut draws = Draws::new(7);
        assert_eq!(two(&[1.0], &mut draws), (0, 0));
        let mut pairs = [[0; 4]; 4];
        for _ in 0..12_000 {
            let (a, b) = two(&[1.0; 4], &mut draws);
            pairs[a][b] += 1;
        }
        for (a, row) in pairs.iter().enumerate() {
            for (b, &drawn) in row.iter().enumerate() {
                let expected = if a == b { 0..=0 } else { 850..=1150 };
                assert!(expected.contains(&drawn), "{a} {b}: {drawn}");
            }
        }
        let again =
            |seed| (0..8).map(|_| two(&[1.0; 9], &mut Draws::new(seed))).collect::<Vec<_>>();
        assert_eq!(again(3), again(3));
    }
}
