//! Random whole numbers, uniform and log-uniform.

use homa_workload::rng::Rng;

/// Draws for a random stream.
pub(super) trait Draw {
    /// Uniform from `low` to `high`, both included; at most 2^32 values apart.
    fn between(&mut self, low: u64, high: u64) -> u64;

    /// From `low` (at least 1) to `high`, both included, with every octave equally likely.
    fn log_between(&mut self, low: u64, high: u64) -> u64;

    /// One of the choices, each equally likely.
    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T;
}

impl Draw for Rng {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).min(u64::from(u32::MAX) - 1) as u32;
        low + u64::from(self.uniform_below(span + 1))
    }

    fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let octaves = u64::from(high.max(1).ilog2() - low.max(1).ilog2());
        let octave = low.max(1).ilog2() + self.between(0, octaves) as u32;
        let (first, last) = (1 << octave, (1 << octave) + ((1u64 << octave) - 1));
        self.between(low.max(first), high.min(last))
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.uniform_below(choices.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_ranges_and_reach_both_ends() {
        let mut rng = Rng::stream(1, "draw");
        for (low, high) in [(1, 1), (3, 5), (1, 1000), (7, 9)] {
            let mut seen = (false, false);
            for _ in 0..20_000 {
                for value in [rng.between(low, high), rng.log_between(low, high)] {
                    assert!((low..=high).contains(&value), "{value} of {low}..={high}");
                    seen = (seen.0 || value == low, seen.1 || value == high);
                }
            }
            assert_eq!(seen, (true, true), "{low}..={high}");
        }
    }
}
