//! What a long tail of round-trip times costs services that need many answers (DeTail §2): how many
//! of `n` workers miss a deadline, and how many retrievals one after the other fit into a page.
//!
//! As in the paper every answer takes one round trip, and round trips are independent. Misses are
//! binomial, so their percentiles are exact; sums of round trips are drawn, 10,000 times as in the
//! paper unless told otherwise. Left out: that congestion slows neighbours together, and the time
//! that workers compute.

use homa_workload::quantile::{Percentile, Sorted};
use homa_workload::rng::Rng;
use homa_workload::text::{TableHead, TextRow, plain, rows};

/// A distribution of round-trip times, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundTrips {
    /// Times and the share of at most that; between two rows times are spread evenly.
    Curve(Vec<(f64, f64)>),
    /// Times that occur, and the share of at most that.
    Counted(Vec<(f64, f64)>),
    /// Normal, and never below 0: what DeTail §2.1 compares with.
    Normal {
        /// Mean and median.
        mean_us: f64,
        /// Standard deviation.
        deviation_us: f64,
    },
}

/// A table that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TableFault {
    /// Line of the mistake, from 1.
    pub line: usize,
    /// The mistake and the allowed values.
    pub message: String,
}

/// The round-trip times of DeTail Figure 1, as far as its text describes them: the least, the
/// median, the 90th percentile, the share above 10 ms that follows from Figure 2, the largest.
pub const DETAIL: [(f64, f64); 5] =
    [(61.0, 0.0), (334.0, 0.5), (1_000.0, 0.9), (10_000.0, 0.986), (14_000.0, 1.0)];

/// Longest round trip of a table, microseconds.
const LONGEST_US: f64 = 1e12;
/// Greatest count of one.
const MOST: f64 = 1e18;

impl RoundTrips {
    /// Reads a table with the columns `us` and `count` (times and how often each was seen), or `us`
    /// and `cumulative_fraction` (times, ascending, and the share of at most that; the last is 1),
    /// or `cumulative_percent` (the last is 100). Other columns are ignored.
    pub fn from_csv(text: &str) -> Result<Self, TableFault> {
        let text = plain(text);
        let mut rows = rows(&text);
        let head = rows.next().ok_or_else(|| fault(1, "an empty table"))?;
        let columns = TripColumns::new(&head)?;
        let mut read: Vec<(f64, f64)> = Vec::new();
        let mut last_line = head.line;
        for row in rows {
            let (time, share) = columns.numbers(&row).ok_or_else(|| {
                fault(row.line, "needs as many fields as the header, and numbers, such as 334,0.5")
            })?;
            if let Some(message) = columns.mistake((time, share), read.last().copied()) {
                return Err(fault(row.line, message));
            }
            read.push((time, share));
            last_line = row.line;
        }
        if columns.counted { Self::counted(read) } else { Self::curve(read) }.ok_or_else(|| {
            fault(
                last_line,
                "the table ends too early: needs a count above 0, or shares up to 1 (100 %)",
            )
        })
    }

    fn curve(mut rows: Vec<(f64, f64)>) -> Option<Self> {
        rows.last().filter(|last| last.1 > 1.0 - 1e-9)?;
        if rows[0].1 > 0.0 {
            // A share at the first time itself.
            rows.insert(0, (rows[0].0, 0.0));
        }
        Some(Self::Curve(rows))
    }

    fn counted(mut rows: Vec<(f64, f64)>) -> Option<Self> {
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: f64 = rows.iter().map(|row| row.1).sum();
        if all <= 0.0 {
            return None;
        }
        let mut sum = 0.0;
        let cumulative = rows.iter().map(|(time, count)| {
            sum += count;
            (*time, sum / all)
        });
        Some(Self::Counted(cumulative.collect()))
    }

    /// The normal distribution whose median is half as long again (DeTail §2.1). The paper does not
    /// say how wide it is; here a quarter of its mean.
    pub fn normal_beside(&self) -> Self {
        let mean_us = 1.5 * self.quantile(0.5);
        Self::Normal { mean_us, deviation_us: mean_us / 4.0 }
    }

    /// The time that a share `u` of round trips do not exceed.
    pub fn quantile(&self, u: f64) -> f64 {
        match self {
            Self::Curve(rows) => {
                let at = rows.partition_point(|row| row.1 < u).clamp(1, rows.len() - 1);
                let ((from, low), (to, high)) = (rows[at - 1], rows[at]);
                if high > low { from + (to - from) * ((u - low) / (high - low)) } else { to }
            }
            Self::Counted(rows) => {
                let at = rows.partition_point(|row| row.1 < u - 1e-12).min(rows.len() - 1);
                rows[at].0
            }
            Self::Normal { mean_us, deviation_us } => {
                (mean_us + deviation_us * standard_normal_quantile(u)).max(0.0)
            }
        }
    }

    /// The share of round trips that take longer than `us`.
    pub fn share_above(&self, us: f64) -> f64 {
        match self {
            Self::Curve(rows) => {
                let at = rows.partition_point(|row| row.0 <= us);
                match (at.checked_sub(1).map(|before| rows[before]), rows.get(at)) {
                    (None, _) => 1.0,
                    (_, None) => 0.0,
                    (Some((from, low)), Some((to, high))) => {
                        1.0 - (low + (high - low) * (us - from) / (to - from))
                    }
                }
            }
            Self::Counted(rows) => {
                let at = rows.partition_point(|row| row.0 <= us);
                1.0 - at.checked_sub(1).map_or(0.0, |at| rows[at].1)
            }
            Self::Normal { mean_us, deviation_us } if *deviation_us == 0.0 => {
                if us < *mean_us {
                    1.0
                } else {
                    0.0
                }
            }
            Self::Normal { mean_us, deviation_us } => normal_tail((us - mean_us) / deviation_us),
        }
    }

    fn sample(&self, rng: &mut Rng) -> f64 {
        self.quantile(rng.uniform())
    }
}

fn fault(line: usize, message: &str) -> TableFault {
    TableFault { line, message: message.to_owned() }
}

/// The columns of a table of round-trip times.
struct TripColumns {
    us: usize,
    share: usize,
    all: usize,
    counted: bool,
    /// What a share is divided by.
    whole: f64,
}

impl TripColumns {
    fn new(row: &TextRow<'_>) -> Result<Self, TableFault> {
        let head = TableHead::new(row);
        let found = head.find("us").ok().and_then(|us| {
            let kinds =
                [("count", 1.0), ("cumulative_fraction", 1.0), ("cumulative_percent", 100.0)];
            let mut kinds = kinds
                .iter()
                .filter_map(|&(name, whole)| Some((head.find(name).ok()?, name, whole)));
            let (share, name, whole) = kinds.next()?;
            let counted = name == "count";
            let columns = Self { us, share, all: head.columns(), counted, whole };
            // Two of them would leave open which one counts.
            kinds.next().is_none().then_some(columns)
        });
        let message = "needs the header `us,count`, `us,cumulative_fraction` or \
                       `us,cumulative_percent`";
        found.ok_or_else(|| fault(row.line, message))
    }

    fn numbers(&self, row: &TextRow<'_>) -> Option<(f64, f64)> {
        let number = |place: usize| -> Option<f64> {
            row.fields[place].parse().ok().filter(|number: &f64| number.is_finite())
        };
        if row.fields.len() != self.all {
            return None;
        }
        Some((number(self.us)?, number(self.share)? / self.whole))
    }

    fn mistake(&self, (time, share): (f64, f64), last: Option<(f64, f64)>) -> Option<&'static str> {
        let falls = last.is_some_and(|last| time <= last.0 || share < last.1);
        if time < 0.0 || share < 0.0 {
            Some("times, counts and shares are not below 0")
        } else if time > LONGEST_US || share > MOST {
            Some("times are at most 1e12 us, 11 days; counts at most 1e18")
        } else if !self.counted && falls {
            Some("times ascend, and shares do not fall")
        } else if !self.counted && share > 1.0 + 1e-9 {
            Some("a cumulative share is at most 1 (100 %)")
        } else {
            None
        }
    }
}

/// The share of a standard normal distribution above `z`: Simpson's rule over its density, to nine
/// digits.
fn normal_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    const STEPS: u32 = 2_000;
    let (end, density) = (z + 12.0, |x: f64| (-x * x / 2.0).exp());
    let width = (end - z) / f64::from(STEPS);
    let weight = |step: u32| match step {
        0 | STEPS => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum = (0..=STEPS).map(|step| weight(step) * density(z + f64::from(step) * width));
    sum.sum::<f64>() * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}

/// The value that a share `u` of a standard normal distribution does not exceed.
fn standard_normal_quantile(u: f64) -> f64 {
    // Abramowitz and Stegun 26.2.23, to 4.5e-4: enough for draws.
    let tail = u.min(1.0 - u).max(1e-300);
    let t = (-2.0 * tail.ln()).sqrt();
    let rational = (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if u < 0.5 { rational - t } else { t - rational }
}

/// Of `workers`, each late with probability `late`: how many are late in all but a share
/// `1 - percentile` of cases (DeTail Figure 2). The binomial distribution, summed in logarithms.
pub fn missed(late: f64, workers: u32, percentile: f64) -> u32 {
    let late = late.clamp(0.0, 1.0);
    if late >= 1.0 {
        return workers;
    }
    let mut share = f64::from(workers) * (-late).ln_1p();
    let mut sum = share.exp();
    let mut missed = 0;
    while sum < percentile && missed < workers && late > 0.0 {
        let (k, n) = (f64::from(missed), f64::from(workers));
        share += ((n - k) / (k + 1.0)).ln() + late.ln() - (-late).ln_1p();
        sum += share.exp();
        missed += 1;
    }
    missed
}

/// The time in which all of `workers` answered, in all but a share `1 - percentile` of cases.
pub fn all_answered(trips: &RoundTrips, workers: u32, percentile: f64) -> f64 {
    trips.quantile(percentile.powf(1.0 / f64::from(workers.max(1))))
}

/// Retrievals one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sequential {
    /// The most that are through in time, at the percentile.
    pub most: u32,
    /// What they take then, microseconds.
    pub took_us: f64,
}

/// Most retrievals that are looked at: more are not found.
pub const LONGEST: u32 = 100_000;

/// How many retrievals one after the other end within `limit_us`, in all but a share
/// `1 - percentile` of `draws` (DeTail Figure 3); at most [`LONGEST`].
pub fn sequential(
    trips: &RoundTrips,
    limit_us: f64,
    percentile: Percentile,
    (draws, seed): (u32, u64),
) -> Sequential {
    let mut rng = Rng::stream(seed, "round trips");
    let mut sums = vec![0.0; draws.max(1) as usize];
    let rank = percentile.rank(sums.len()).unwrap_or(sums.len());
    let mut most = 0;
    // The sums before the last retrieval, which is one too many.
    let mut through = sums.clone();
    while most < LONGEST {
        sums.iter_mut().for_each(|sum| *sum += trips.sample(&mut rng));
        if sums.iter().filter(|sum| **sum <= limit_us).count() < rank {
            break;
        }
        through.copy_from_slice(&sums);
        most += 1;
    }
    let took_us = Sorted::new(through).percentile(percentile).unwrap_or(0.0);
    Sequential { most, took_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_binomial() {
        // By hand: (1 - p)^2 = 0.81, 1 - p^2 = 0.99.
        assert_eq!([0.809, 0.811, 0.989, 0.991].map(|p| missed(0.1, 2, p)), [0, 1, 1, 2]);
        assert_eq!((missed(0.0, 400, 0.999), missed(1.0, 40, 0.5)), (0, 40));
        // Near Poisson: 1 of 10^6 each, a million of them; P(X <= 4) = 0.99634, P(X <= 3) = 0.981.
        assert_eq!([0.981, 0.982, 0.996, 0.997].map(|p| missed(1e-6, 1_000_000, p)), [3, 4, 4, 5]);
    }

    #[test]
    fn a_constant_round_trip_has_closed_forms() {
        let trips = RoundTrips::from_csv("us,count\n250,7\n").unwrap();
        assert_eq!((trips.share_above(249.9), trips.share_above(250.0)), (1.0, 0.0));
        let found = sequential(&trips, 10_000.0, Percentile::P999, (100, 1));
        assert_eq!(found, Sequential { most: 40, took_us: 10_000.0 });
        assert_eq!(all_answered(&trips, 400, 0.999), 250.0);
    }

    #[test]
    fn sums_of_a_normal_distribution_are_normal() {
        let trips = RoundTrips::Normal { mean_us: 500.0, deviation_us: 100.0 };
        // The sum of n is below 500 n + 3.0902 * 100 sqrt(n) at 99.9 %: 393 fit into 202,626 us.
        let found = sequential(&trips, 202_626.0, Percentile::P999, (20_000, 3));
        assert!((391..=395).contains(&found.most), "{found:?}");
        assert!((trips.share_above(696.0) - 0.025).abs() < 1e-5);
        assert!((trips.quantile(0.975) - 696.0).abs() < 0.1);
    }

    #[test]
    fn a_uniform_curve_has_closed_forms() {
        let trips = RoundTrips::from_csv("us,cumulative_fraction\n0,0\n1000,1\n").unwrap();
        assert!((trips.share_above(990.0) - 0.01).abs() < 1e-12);
        // The largest of n uniform times is below x with probability x^n.
        assert!((all_answered(&trips, 10, 0.5) - 1_000.0 * 0.5_f64.powf(0.1)).abs() < 1e-9);
        // Of 12 uniform times the sum is nearly normal, 6000 and 1000.
        let found = sequential(&trips, 9_000.0, Percentile::P999, (20_000, 5));
        assert_eq!(found.most, 12, "{found:?}");
    }

    #[test]
    fn the_papers_distribution_gives_its_misses() {
        let trips = RoundTrips::Curve(DETAIL.to_vec());
        let late = trips.share_above(10_000.0);
        assert!((late - 0.014).abs() < 1e-9);
        // DeTail §2.2.1: 4 of 40 and 14 of 400.
        assert_eq!((missed(late, 40, 0.999), missed(late, 400, 0.999)), (4, 14));
        assert_eq!(missed(trips.normal_beside().share_above(10_000.0), 400, 0.999), 0);
    }

    #[test]
    fn a_wrong_table_names_the_line() {
        let line = |text: &str| RoundTrips::from_csv(text).unwrap_err().line;
        assert_eq!(line("us,share\n"), 1);
        assert_eq!(line("# from tcp_info\nus,count\n10,x\n"), 3);
        assert_eq!(line("us,cumulative_fraction\n10,0.5\n9,1\n"), 3);
        assert_eq!(line("us,cumulative_fraction\n10,0.5\n20,0.9\n"), 3);
        assert_eq!(line("us,count\n10,0\n"), 2);
        assert_eq!(line("us,count\n10,5\n1e13,1\n"), 3);
        assert_eq!(line("us,count,cumulative_fraction\n10,1,1\n"), 1);
        assert_eq!(line("us,count\n10,1\n11\n"), 3);
        assert_eq!(line("us,count\n10,1e308\n11,1e308\n"), 2);
    }

    #[test]
    fn a_table_of_a_spreadsheet_is_read() {
        let table = "\u{feff}US, Count\r\n250,7\r\n";
        assert_eq!(RoundTrips::from_csv(table), RoundTrips::from_csv("us,count\n250,7\n"));
        let turned = "\u{feff}cumulative_percent;host;us\r\n50;a;10\r\n100;b;20\r\n,,\r\n";
        let plain = "us,cumulative_fraction\n10,0.5\n20,1\n";
        assert_eq!(RoundTrips::from_csv(turned), RoundTrips::from_csv(plain));
    }

    #[test]
    fn a_median_of_nothing_is_not_late() {
        let trips = RoundTrips::from_csv("us,count\n0,5\n").unwrap();
        let late = [&trips, &trips.normal_beside()].map(|trips| trips.share_above(10.0));
        assert_eq!(late, [0.0, 0.0]);
        assert_eq!(sequential(&trips, 10.0, Percentile::P99, (100, 1)).most, LONGEST);
    }
}
