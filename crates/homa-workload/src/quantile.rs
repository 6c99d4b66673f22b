//! Exact percentiles of recorded values, by nearest rank: the p-quantile of n values is the one of
//! rank ceil(p n), so that at least the share p of the values is not above it. Nothing is
//! interpolated and nothing is binned: every percentile is a value that occurred.
//!
//! Shares are counted in millionths, as integers: 0.99 · 100 is 99 here and not a little more.
//!
//! Left out: streaming sketches; ten million recorded values sort in a second.

use std::cmp::Ordering;

/// A share of the values, in millionths; between 0 and 1, both excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile {
    millionths: u32,
}

impl Percentile {
    /// The median.
    pub const P50: Self = Self { millionths: 500_000 };
    /// The 99th percentile.
    pub const P99: Self = Self { millionths: 990_000 };
    /// The 99.9th percentile.
    pub const P999: Self = Self { millionths: 999_000 };

    /// A percentile given in millionths (990,000 is p99); `None` unless between 0 and 1,000,000.
    pub const fn millionths(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths >= 1_000_000 {
            return None;
        }
        Some(Self { millionths })
    }

    /// The share as a number between 0 and 1.
    pub fn share(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }

    /// Nearest rank among `n` values, 1 to n; `None` when there are none.
    pub fn rank(self, n: usize) -> Option<usize> {
        let rank = (n as u128 * u128::from(self.millionths)).div_ceil(1_000_000);
        (n > 0).then_some(rank as usize)
    }
}

/// A value that can be ranked.
pub trait Value: Copy {
    /// A total order.
    fn order(&self, other: &Self) -> Ordering;
}

impl Value for u64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Ranked as IEEE 754 orders all floats: a NaN of positive sign counts as larger than everything.
impl Value for f64 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }
}

/// Values in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted<T> {
    values: Vec<T>,
}

impl<T: Value> Sorted<T> {
    /// Sorts them.
    pub fn new(mut values: Vec<T>) -> Self {
        values.sort_unstable_by(T::order);
        Self { values }
    }

    /// The values, smallest first.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The percentile by nearest rank; `None` without values.
    pub fn percentile(&self, percentile: Percentile) -> Option<T> {
        self.at_rank(percentile.rank(self.len())?)
    }

    /// The value of a rank, counted from 1; `None` outside 1 to n.
    pub fn at_rank(&self, rank: usize) -> Option<T> {
        self.values.get(rank.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_the_value_of_its_nearest_rank() {
        let hundred = Sorted::new((1..=100u64).rev().collect());
        assert_eq!(hundred.percentile(Percentile::P50), Some(50));
        assert_eq!(hundred.percentile(Percentile::P99), Some(99), "not 100 by a rounding error");
        assert_eq!(hundred.percentile(Percentile::P999), Some(100));
        let three = Sorted::new(vec![30u64, 10, 20]);
        assert_eq!(three.percentile(Percentile::P50), Some(20));
        assert_eq!(three.percentile(Percentile::millionths(1).unwrap()), Some(10));
        assert_eq!(Sorted::<u64>::new(vec![]).percentile(Percentile::P50), None);
    }

    #[test]
    fn at_least_the_share_is_not_above_and_no_smaller_value_does() {
        for n in [1usize, 7, 99, 100, 101, 1000, 12_345] {
            let sorted = Sorted::new((0..n as u64).collect());
            for percentile in [Percentile::P50, Percentile::P99, Percentile::P999] {
                let value = sorted.percentile(percentile).unwrap();
                let not_above = value as usize + 1;
                let needed = |count: usize| {
                    count as u64 * 1_000_000 >= n as u64 * u64::from(percentile.millionths)
                };
                assert!(needed(not_above) && !needed(not_above - 1), "n {n}: {value}");
            }
        }
    }

    #[test]
    fn floats_are_ranked_and_shares_of_0_and_1_refused() {
        let sorted = Sorted::new(vec![2.5, f64::NAN, -1.0]);
        assert_eq!(sorted.percentile(Percentile::P50), Some(2.5));
        assert_eq!(sorted.at_rank(0), None);
        assert_eq!(Percentile::millionths(0), None);
        assert_eq!(Percentile::millionths(1_000_000), None);
        assert_eq!(Percentile::millionths(990_000), Some(Percentile::P99));
    }
}
