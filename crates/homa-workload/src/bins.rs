//! Latency by message size: bins of equal shares of the messages.
//!
//! [`SizeBins::percent`] cuts the sizes, in ascending order, at every whole percent of the
//! messages. A bin is made of whole sizes, and a size that alone holds a percent or more has a bin
//! to itself: one size per bin at the head of a distribution, many at its tail. So there may be a
//! few more or many fewer than a hundred bins. Reading "at x %" means the bin that holds the
//! message of that rank by size. [`SizeBins::tenths`] cuts at the deciles, the tick labels of
//! Figures 8 and 10 of the Homa paper.
//!
//! Invariants: bounds follow from the distribution alone, not from the measurements, so transports
//! are compared bin by bin; the last bound is the largest size and its cumulative share 1.
//!
//! Left out: slowdown itself. Values come in divided by whatever the experiment divides by.

use crate::quantile::{Percentile, Sorted, Value};
use crate::sizes::SizeDistribution;

/// One bin: all sizes above the bin before, up to `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeBin {
    /// Share of messages in this bin and all before it, 0 to 1.
    pub cum_share: f64,
    /// Its largest message size, bytes.
    pub max_bytes: u32,
}

/// Bins by increasing size.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeBins {
    bins: Vec<SizeBin>,
}

/// The measurements in one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinRow<T> {
    /// Share of messages in this bin and all before it, 0 to 1, by the distribution.
    pub cum_share: f64,
    /// Its largest message size, bytes.
    pub max_bytes: u32,
    /// Number of values measured.
    pub count: usize,
    /// Their median; `None` without values.
    pub p50: Option<T>,
    /// Their 99th percentile; `None` without values.
    pub p99: Option<T>,
}

impl SizeBins {
    /// Bins of 1 % of the messages.
    pub fn percent(sizes: &SizeDistribution) -> Self {
        let mut bins: Vec<SizeBin> = Vec::new();
        let mut cum_share = 0.0;
        // The percent in which the open bin ends; none after a size with a separate bin.
        let mut open = None;
        for (max_bytes, share) in sizes.shares() {
            cum_share += share;
            let cell = (share < 0.01).then(|| percent_of(cum_share));
            if cell.is_some() && cell == open {
                bins.pop();
            }
            bins.push(SizeBin { cum_share, max_bytes });
            open = cell;
        }
        Self::closed(bins)
    }

    /// At most ten bins, which end at the deciles of the sizes.
    pub fn tenths(sizes: &SizeDistribution) -> Self {
        let mut bins: Vec<SizeBin> = (1..=10)
            .map(|tenth| sizes.quantile(f64::from(tenth) / 10.0))
            .map(|max_bytes| SizeBin { cum_share: sizes.share_of_messages(max_bytes), max_bytes })
            .collect();
        bins.dedup();
        Self::closed(bins)
    }

    /// Makes the last share exactly 1, which sums of shares miss by rounding.
    fn closed(mut bins: Vec<SizeBin>) -> Self {
        if let Some(last) = bins.last_mut() {
            last.cum_share = 1.0;
        }
        Self { bins }
    }

    /// The bins, by increasing size.
    pub fn bins(&self) -> &[SizeBin] {
        &self.bins
    }

    /// Index of the bin of messages of `bytes`; larger sizes than any count to the last bin.
    pub fn of_size(&self, bytes: u32) -> usize {
        let index = self.bins.partition_point(|bin| bin.max_bytes < bytes);
        index.min(self.bins.len() - 1)
    }

    /// Index of the bin that holds the message at `share` (0 to 1) of all messages, ranked by size.
    pub fn at_share(&self, share: f64) -> usize {
        let index = self.bins.partition_point(|bin| bin.cum_share < share);
        index.min(self.bins.len() - 1)
    }

    /// Sorts measured (message bytes, value) pairs into the bins; one row per bin, empty ones too.
    pub fn table<T: Value>(&self, measured: impl IntoIterator<Item = (u32, T)>) -> Vec<BinRow<T>> {
        let mut values: Vec<Vec<T>> = self.bins.iter().map(|_| Vec::new()).collect();
        for (bytes, value) in measured {
            values[self.of_size(bytes)].push(value);
        }
        let row = |(bin, values): (&SizeBin, Vec<T>)| {
            let sorted = Sorted::new(values);
            BinRow {
                cum_share: bin.cum_share,
                max_bytes: bin.max_bytes,
                count: sorted.len(),
                p50: sorted.percentile(Percentile::P50),
                p99: sorted.percentile(Percentile::P99),
            }
        };
        self.bins.iter().zip(values).map(row).collect()
    }
}

/// The percent that a cumulative share ends in; a share on the border, up to rounding, ends the
/// lower one.
fn percent_of(cum_share: f64) -> u32 {
    (cum_share * 100.0 - 1e-9).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Workload;

    fn small() -> SizeDistribution {
        let rows = "10,0.004\n20,0.3\n30,0.304\n31,0.308\n32,0.3145\n40,0.99\n50,0.995\n60,1\n";
        SizeDistribution::from_csv(&format!("size_bytes,cumulative_fraction\n{rows}")).unwrap()
    }

    #[test]
    fn frequent_sizes_have_bins_and_rare_ones_share_a_percent() {
        let bounds: Vec<u32> =
            SizeBins::percent(&small()).bins().iter().map(|b| b.max_bytes).collect();
        // 30 and 31 end in the 31st percent, 32 in the 32nd; 50 and 60 are the last.
        assert_eq!(bounds, [10, 20, 31, 32, 40, 60]);
    }

    #[test]
    fn every_built_in_workload_has_bins_of_about_a_percent() {
        for workload in Workload::BUILT_IN {
            let sizes = workload.sizes().unwrap();
            let bins = SizeBins::percent(&sizes);
            let mut before = (0.0, 0);
            for bin in bins.bins() {
                assert!(bin.cum_share > before.0 && bin.max_bytes > before.1, "{workload}");
                let one_size = sizes.share_of_messages(bin.max_bytes - 1) <= before.0 + 1e-12;
                assert!(one_size || bin.cum_share - before.0 < 0.02, "{workload} {bin:?}");
                before = (bin.cum_share, bin.max_bytes);
            }
            assert_eq!(before, (1.0, sizes.max_bytes()));
        }
    }

    #[test]
    fn reading_at_a_share_gives_the_bin_that_holds_it() {
        let bins = SizeBins::percent(&Workload::W3.sizes().unwrap());
        // 6.488 % of W3 are 3 B, the next 3.244 % are 32 B.
        assert_eq!(bins.bins()[bins.at_share(0.05)].max_bytes, 3);
        assert_eq!(bins.bins()[bins.at_share(0.07)].max_bytes, 32);
        assert_eq!(bins.at_share(1.0), bins.bins().len() - 1);
        assert_eq!(bins.at_share(2.0), bins.bins().len() - 1);
    }

    #[test]
    fn ten_buckets_end_at_the_deciles() {
        let bins = SizeBins::tenths(&Workload::W3.sizes().unwrap());
        let bounds: Vec<u32> = bins.bins().iter().map(|b| b.max_bytes).collect();
        assert_eq!(bounds, [36, 77, 110, 158, 268, 313, 402, 573, 1755, 15_158_197]);
        let one = SizeBins::tenths(&SizeDistribution::constant(100).unwrap());
        assert_eq!(one.bins().len(), 1);
        assert_eq!(one.bins()[0].cum_share, 1.0);
    }

    #[test]
    fn rows_count_and_rank_the_values_of_their_bin() {
        let bins = SizeBins::percent(&small());
        let measured = (1..=100u64).map(|v| (20, v)).chain([(31, 7), (30, 9), (99, 5)]);
        let rows = bins.table(measured);
        let counts: Vec<usize> = rows.iter().map(|row| row.count).collect();
        assert_eq!(counts, [0, 100, 2, 0, 0, 1]);
        assert_eq!((rows[1].p50, rows[1].p99), (Some(50), Some(99)));
        assert_eq!((rows[2].p50, rows[2].p99), (Some(7), Some(9)));
        assert_eq!(rows[0].p50, None);
    }
}
