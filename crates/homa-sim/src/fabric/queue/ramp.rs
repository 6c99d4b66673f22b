//! Marks whose probability rises with the queue, as RED has it, but of the queue at this instant
//! instead of its mean (DCQCN, SIGCOMM 2015, §3.1; UET 1.0).
//!
//! Invariant: decisions use whole numbers only. Left out: averages, and drops instead of marks.

use homa_workload::rng::Rng;

/// A ramp: nothing is marked up to `from` bytes (Kmin), and everything above `all` bytes (Kmax).
/// In between the probability rises linearly to `most` (Pmax).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnRamp {
    /// Wire bytes up to which nothing is marked.
    pub from: u32,
    /// Wire bytes above which everything is marked, at least `from`.
    pub all: u32,
    /// Probability at `all` bytes, parts of a million.
    pub most: u32,
}

/// The probability one, in parts of a million.
pub(crate) const CERTAIN: u32 = 1_000_000;

/// Draws are below this.
const DRAWS: u32 = 1 << 31;

impl EcnRamp {
    /// A ramp that ends at probability one.
    pub const fn to_one(from: u32, all: u32) -> Self {
        Self { from, all, most: CERTAIN }
    }

    /// Whether a packet is marked at a queue of `bytes`. Draws only between the two thresholds.
    #[inline]
    pub fn marks(self, bytes: u32, rng: &mut Rng) -> bool {
        match bytes {
            _ if bytes > self.all => true,
            _ if bytes <= self.from => false,
            _ => self.marks_at(bytes, rng.uniform_below(DRAWS)),
        }
    }

    /// The decision for a draw below [`DRAWS`], between the two thresholds.
    fn marks_at(self, bytes: u32, draw: u32) -> bool {
        let (span, part) = (self.all - self.from, bytes - self.from);
        let limit = u128::from(part) * u128::from(DRAWS) * u128::from(self.most);
        u128::from(draw) * u128::from(span) * u128::from(CERTAIN) < limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_rises_linearly() {
        let ramp = EcnRamp::to_one(1_000, 3_000);
        let draw = |share: f64| (share * f64::from(DRAWS)) as u32;
        for (bytes, share) in [(1_001, 0.000_5), (2_000, 0.5), (3_000, 1.0)] {
            assert!(ramp.marks_at(bytes, draw(share) - 2), "{bytes}");
            assert!(share == 1.0 || !ramp.marks_at(bytes, draw(share) + 2), "{bytes}");
        }
    }

    /// HPCC's switches at 100 Gbit/s: a fifth at 1600 kB.
    #[test]
    fn it_may_end_below_one_and_jump() {
        let ramp = EcnRamp { from: 400_000, all: 1_600_000, most: 200_000 };
        let draw = |share: f64| (share * f64::from(DRAWS)) as u32;
        for (bytes, share) in [(1_000_000, 0.1), (1_600_000, 0.2)] {
            assert!(ramp.marks_at(bytes, draw(share) - 2), "{bytes}");
            assert!(!ramp.marks_at(bytes, draw(share) + 2), "{bytes}");
        }
        let mut rng = Rng::stream(1, "ramp");
        assert!((0..100).all(|_| ramp.marks(1_600_001, &mut rng)));
    }

    #[test]
    fn outside_the_ramp_nothing_is_drawn() {
        let ramp = EcnRamp::to_one(1_000, 3_000);
        let (mut rng, mut same) = (Rng::stream(1, "ramp"), Rng::stream(1, "ramp"));
        assert!(!ramp.marks(1_000, &mut rng) && ramp.marks(3_001, &mut rng));
        assert_eq!(rng.next_u64(), same.next_u64());
        let step = EcnRamp::to_one(2_000, 2_000);
        assert!(!step.marks(2_000, &mut rng) && step.marks(2_001, &mut rng));
        let marked = (0..10_000).filter(|_| ramp.marks(2_000, &mut rng)).count();
        assert!((4_800..5_200).contains(&marked), "{marked} of 10000 at a half");
    }
}
