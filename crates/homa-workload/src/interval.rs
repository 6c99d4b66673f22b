//! 95 % confidence intervals: of percentiles, free of any assumption about the distribution, and of
//! means.
//!
//! [`independent`] inverts the binomial law of how many values lie below the true percentile: its
//! ends are order statistics, it is exact, and it holds only when values say nothing about each
//! other.
//!
//! Latencies in one run do: a busy period delays all messages in it, and thousands of values may
//! hold no more news than a hundred. [`correlated`] therefore measures how much the share of values
//! above the percentile wanders between batches of consecutive values, and turns that wandering
//! into order statistics (the interval of R. Woodruff, JASA 1952, with the variance from batch
//! means). Its caveat: a batch must be long against the correlation. What lasts longer than a
//! twentieth of the run, such as a start from empty queues or an overload, is not seen; only
//! several seeds show that.
//!
//! [`mean_of_percentiles`] is another reading: each group's own percentile, averaged. It and
//! [`mean`] have Student's interval, which takes groups for independent: what all of them share,
//! such as the load that a seed drew or hosts that are slow to all others, is not seen.
//!
//! [`batch_means`] is for rates: what a counter gains in a step of time, by how much batches of
//! consecutive steps differ. [`jackknife`] is for what no formula has an error for, such as a mean
//! over the slowest: by how much it changes when a batch is left out (J. Tukey 1958, in groups).
//! Both have the caveat of [`correlated`].
//!
//! An end that the sample is too small to bound is `None`: p99 has no upper end below 368 values.

use std::collections::BTreeMap;

use crate::quantile::{Percentile, Sorted, Value};

/// Probability left out on each side.
const TAIL: f64 = 0.025;

/// Number of batches of [`correlated`].
pub const BATCHES: usize = 20;

/// Student's t for [`BATCHES`] - 1 degrees of freedom, at 1 - [`TAIL`]; [`student_t`] is near it.
const STUDENT_T: f64 = 2.093;

/// A percentile's 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval<T> {
    /// Lower end; `None` when the sample is too small to have one.
    pub low: Option<T>,
    /// Upper end; `None` when the sample is too small to have one.
    pub high: Option<T>,
}

/// The interval for values that are independent of each other.
pub fn independent<T: Value>(sorted: &Sorted<T>, percentile: Percentile) -> Interval<T> {
    let (low, high) = binomial_ranks(sorted.len(), percentile.share());
    ranks_to_values(sorted, low, high)
}

/// The interval for values in the order of their time, such as latencies by arrival. Never narrower
/// than the one of [`independent`]; the same with fewer than two values per batch.
pub fn correlated<T: Value>(in_time_order: &[T], percentile: Percentile) -> Interval<T> {
    let sorted = Sorted::new(in_time_order.to_vec());
    let (mut low, mut high) = binomial_ranks(sorted.len(), percentile.share());
    let n = in_time_order.len();
    if n >= 2 * BATCHES
        && let Some(value) = sorted.percentile(percentile)
    {
        let half = STUDENT_T * share_standard_error(in_time_order, &value);
        let count = n as f64;
        low = low.min((count * (percentile.share() - half)).floor().max(0.0) as usize);
        high = high.max((count * (percentile.share() + half)).ceil() as usize);
    }
    ranks_to_values(&sorted, low, high)
}

/// Student's t at 97.5 % for these degrees of freedom; above ten within 0.007 of it.
pub fn student_t(freedom: usize) -> f64 {
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => T[freedom - 1],
        _ => 1.96 + 2.65 / freedom as f64,
    }
}

/// A mean over groups of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupMean {
    /// The mean; each group counts as often as it has values.
    pub mean: f64,
    /// Half the width of its interval, by how much groups differ, which are taken as independent;
    /// `None` with a single group.
    pub half_width: Option<f64>,
    /// Groups that have values.
    pub groups: usize,
}

impl GroupMean {
    /// The ends of its interval.
    pub fn ends(&self) -> [Option<f64>; 2] {
        [-1.0, 1.0].map(|side| self.half_width.map(|half| self.mean + side * half))
    }
}

/// The mean of each group's own percentile; values come with the number of their group. `None`
/// without values.
pub fn mean_of_percentiles(
    values: impl IntoIterator<Item = (usize, f64)>,
    percentile: Percentile,
) -> Option<GroupMean> {
    let mut groups: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (group, value) in values {
        groups.entry(group).or_default().push(value);
    }
    let own = |values: Vec<f64>| Some((values.len(), Sorted::new(values).percentile(percentile)?));
    weighted_mean(&groups.into_values().filter_map(own).collect::<Vec<_>>())
}

/// The mean of values that are taken as independent; `None` without any.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<GroupMean> {
    weighted_mean(&values.into_iter().map(|value| (1, value)).collect::<Vec<_>>())
}

/// The mean increase of a counter per step, from its values at equal steps of time, over
/// [`BATCHES`] batches of consecutive steps, or over the steps if there are fewer. Steps at the
/// start that are too few for a batch are left out. `None` without a step.
pub fn batch_means(counter: &[f64]) -> Option<GroupMean> {
    let steps = counter.len().checked_sub(1).filter(|steps| *steps > 0)?;
    let batches = steps.min(BATCHES);
    let long = steps / batches;
    let first = steps - batches * long;
    let at = |batch: usize| counter[first + batch * long];
    mean((0..batches).map(|batch| (at(batch + 1) - at(batch)) / long as f64))
}

/// The interval of an estimate from what it is without each of several groups of equal size, which
/// are taken as independent; no ends with fewer than two groups.
pub fn jackknife(value: f64, without: &[f64]) -> [Option<f64>; 2] {
    let groups = without.len() as f64;
    if without.len() < 2 {
        return [None; 2];
    }
    let mean = without.iter().sum::<f64>() / groups;
    let squares: f64 = without.iter().map(|other| (other - mean).powi(2)).sum();
    let half = student_t(without.len() - 1) * (squares * (groups - 1.0) / groups).sqrt();
    [Some(value - half), Some(value + half)]
}

/// The mean of values that count as often as the number beside them.
fn weighted_mean(values: &[(usize, f64)]) -> Option<GroupMean> {
    let total: f64 = values.iter().map(|&(weight, _)| weight as f64).sum();
    let sum: f64 = values.iter().map(|&(weight, value)| weight as f64 * value).sum();
    let mean = (total > 0.0).then(|| sum / total)?;
    let off = |&(weight, value): &(usize, f64)| (weight as f64 * (value - mean)).powi(2);
    let error = values.iter().map(off).sum::<f64>().sqrt() / total;
    let (groups, freedom) = (values.len(), values.len() - 1);
    let half = || student_t(freedom) * (groups as f64 / freedom as f64).sqrt() * error;
    Some(GroupMean { mean, half_width: (freedom > 0).then(half), groups })
}

fn ranks_to_values<T: Value>(sorted: &Sorted<T>, low: usize, high: usize) -> Interval<T> {
    Interval { low: sorted.at_rank(low), high: sorted.at_rank(high) }
}

/// Standard error of the share of values not above `limit`, from the spread between batches; where
/// several values equal it, of the share below it if that one is larger.
fn share_standard_error<T: Value>(in_time_order: &[T], limit: &T) -> f64 {
    let not_above = spread_of_share(in_time_order, |v| v.order(limit).is_le());
    if in_time_order.iter().filter(|v| v.order(limit).is_eq()).nth(1).is_none() {
        return not_above;
    }
    not_above.max(spread_of_share(in_time_order, |v| v.order(limit).is_lt()))
}

fn spread_of_share<T>(in_time_order: &[T], counts: impl Fn(&T) -> bool) -> f64 {
    let n = in_time_order.len();
    let shares: Vec<f64> = (0..BATCHES)
        .map(|batch| &in_time_order[batch * n / BATCHES..(batch + 1) * n / BATCHES])
        .map(|values| values.iter().filter(|v| counts(v)).count() as f64 / values.len() as f64)
        .collect();
    let batches = BATCHES as f64;
    let mean = shares.iter().sum::<f64>() / batches;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    (squares / (batches - 1.0) / batches).sqrt()
}

/// Ranks, from 1, of the order statistics that enclose the percentile `p` of `n` independent values
/// with 95 % confidence, at most 2.5 % on each side; 0 and n + 1 mean that there is no such value.
///
/// For the median of 100 values: 40 and 61, because at most 39 (or at least 61) of them lie below
/// the true median with probability 0.0176.
fn binomial_ranks(n: usize, p: f64) -> (usize, usize) {
    let (first, weights) = binomial_weights(n, p);
    let total: f64 = weights.iter().sum();
    let mut below = 0.0;
    let mut low = first;
    for weight in &weights {
        below += weight / total;
        if below > TAIL {
            break;
        }
        low += 1;
    }
    let mut above = 0.0;
    let mut high = first + weights.len();
    for weight in weights.iter().rev() {
        above += weight / total;
        if above > TAIL {
            break;
        }
        high -= 1;
    }
    (low, high)
}

/// The binomial law of `n` trials up to a factor, from the first count that matters: 1 at the mode,
/// and by the ratio of neighbours outward until a weight vanishes beside it. So no factorial ever
/// overflows.
fn binomial_weights(n: usize, p: f64) -> (usize, Vec<f64>) {
    const NEGLIGIBLE: f64 = 1e-18;
    let odds = p / (1.0 - p);
    let mode = (((n + 1) as f64 * p) as usize).min(n);
    let mut down = vec![1.0];
    let mut first = mode;
    while first > 0 && down[down.len() - 1] > NEGLIGIBLE {
        let ratio = first as f64 / ((n - first + 1) as f64 * odds);
        down.push(down[down.len() - 1] * ratio);
        first -= 1;
    }
    down.reverse();
    let mut weights = down;
    let mut last = mode;
    while last < n && weights[weights.len() - 1] > NEGLIGIBLE {
        let ratio = (n - last) as f64 * odds / (last + 1) as f64;
        weights.push(weights[weights.len() - 1] * ratio);
        last += 1;
    }
    (first, weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn binomial_ranks_are_the_tabulated_ones() {
        // Worked from tables of the binomial law.
        assert_eq!(binomial_ranks(100, 0.5), (40, 61));
        assert_eq!(binomial_ranks(10, 0.5), (2, 9));
        assert_eq!(binomial_ranks(5, 0.5), (0, 6), "five values cannot bound their median");
        assert_eq!(binomial_ranks(6, 0.5), (1, 6));
        assert_eq!(binomial_ranks(0, 0.5), (0, 1));
        // 0.99^368 = 0.0248: the first sample whose maximum bounds p99.
        assert_eq!(binomial_ranks(367, 0.99).1, 368);
        assert_eq!(binomial_ranks(368, 0.99).1, 368);
        // A large sample: n p -/+ 1.96 sqrt(n p (1 - p)) = 9,899,384 and 9,900,616 within two
        // ranks.
        let (low, high) = binomial_ranks(10_000_000, 0.99);
        assert!(low.abs_diff(9_899_384) <= 2 && high.abs_diff(9_900_617) <= 2, "{low} {high}");
    }

    #[test]
    fn ends_the_sample_cannot_bound_are_absent() {
        let sorted = Sorted::new((1..=100u64).collect());
        let p99 = independent(&sorted, Percentile::P99);
        assert_eq!((p99.low, p99.high), (Some(97), None));
        let none = correlated::<u64>(&[], Percentile::P50);
        assert_eq!((none.low, none.high), (None, None));
        let one = correlated(&[5u64], Percentile::P50);
        assert_eq!((one.low, one.high), (None, None));
    }

    /// Sojourn times of an M/M/1 queue at load `rho`, service mean 1, started in equilibrium: their
    /// distribution is exponential with mean 1 / (1 - rho), and busy periods tie neighbours
    /// together.
    fn sojourn_times(rho: f64, n: usize, rng: &mut Rng) -> Vec<f64> {
        let mut waiting = if rng.chance(rho) { rng.exponential(1.0 / (1.0 - rho)) } else { 0.0 };
        (0..n)
            .map(|_| {
                let sojourn = waiting + rng.exponential(1.0);
                waiting = (sojourn - rng.exponential(1.0 / rho)).max(0.0);
                sojourn
            })
            .collect()
    }

    #[test]
    fn under_queueing_only_the_correlated_interval_holds() {
        let mut rng = Rng::stream(11, "coverage");
        let rho = 0.8;
        let truth = -libm::log(0.01) / (1.0 - rho);
        let runs = 200;
        let (mut exact, mut batched) = (0, 0);
        for _ in 0..runs {
            let values = sojourn_times(rho, 40_000, &mut rng);
            let holds = |i: Interval<f64>| {
                i.low.is_none_or(|low| low <= truth) && i.high.is_none_or(|high| truth <= high)
            };
            batched += u32::from(holds(correlated(&values, Percentile::P99)));
            exact += u32::from(holds(independent(&Sorted::new(values), Percentile::P99)));
        }
        assert!(batched >= 180, "covered {batched} of {runs}");
        assert!(exact < 120, "neighbours are not correlated enough for this test: {exact}");
    }

    #[test]
    fn without_correlation_both_intervals_keep_it() {
        let mut rng = Rng::stream(12, "coverage");
        let (mut exact, mut batched) = (0, 0);
        for _ in 0..400 {
            let values: Vec<f64> = (0..2000).map(|_| rng.exponential(1.0)).collect();
            let truth = -libm::log(0.01);
            let holds = |i: Interval<f64>| i.low <= Some(truth) && Some(truth) <= i.high;
            let narrow = independent(&Sorted::new(values.clone()), Percentile::P99);
            let wide = correlated(&values, Percentile::P99);
            assert!(wide.low <= narrow.low && wide.high.is_none_or(|h| Some(h) >= narrow.high));
            exact += u32::from(holds(narrow));
            batched += u32::from(wide.high.is_none() || holds(wide));
        }
        // 95 % of 400 is 380; five standard deviations are 22.
        assert!(exact >= 358 && batched >= exact, "{exact} {batched}");
    }

    /// Values that resemble their neighbours, of mean 1.
    fn wandering(n: usize, rng: &mut Rng) -> Vec<f64> {
        let mut value = 1.0;
        let mut next = || {
            value = 0.9 * value + 0.1 * rng.exponential(1.0);
            value
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn bursts_of_one_largest_value_do_not_look_certain() {
        // 0.8 % of the values are 10, in bursts of some 20: the 99th percentile is 1.
        let mut rng = Rng::stream(14, "coverage");
        let covers = |rng: &mut Rng| {
            let (mut values, mut left) = (Vec::new(), 0u32);
            while values.len() < 20_000 {
                if left == 0 && rng.chance(0.0004) {
                    left = 1 + rng.uniform_below(39);
                }
                values.push(if left > 0 { 10u64 } else { 1 });
                left = left.saturating_sub(1);
            }
            correlated(&values, Percentile::P99).low == Some(1)
        };
        let covered = (0..200).filter(|_| covers(&mut rng)).count();
        assert!(covered >= 185, "{covered} of 200");
    }

    #[test]
    fn a_rate_lies_in_the_interval_of_its_batches() {
        let mut rng = Rng::stream(13, "coverage");
        let (mut batched, mut naive) = (0, 0);
        for _ in 0..200 {
            let gains = wandering(4000, &mut rng);
            let mut counter = vec![0.0];
            counter.extend(gains.iter().scan(0.0, |sum, gain| {
                *sum += gain;
                Some(*sum)
            }));
            let holds = |mean: GroupMean| (mean.mean - 1.0).abs() <= mean.half_width.unwrap();
            batched += u32::from(holds(batch_means(&counter).unwrap()));
            naive += u32::from(holds(mean(gains).unwrap()));
        }
        assert!(batched >= 180 && naive < 120, "covered {batched} and {naive} of 200");
    }

    #[test]
    fn steps_too_few_for_a_batch_are_left_out_at_the_start() {
        // 41 steps: the first one, of 1000, is too much for 20 batches of two.
        let counter: Vec<f64> = (0..=41).map(|n| if n == 0 { -999.0 } else { n as f64 }).collect();
        let steady = batch_means(&counter).unwrap();
        assert_eq!((steady.mean, steady.half_width, steady.groups), (1.0, Some(0.0), BATCHES));
        let three = batch_means(&[0.0, 1.0, 3.0, 6.0]).unwrap();
        assert_eq!((three.mean, three.groups), (2.0, 3));
        assert_eq!(batch_means(&[5.0, 6.0]).map(|one| one.half_width), Some(None));
        assert_eq!((batch_means(&[5.0]), batch_means(&[])), (None, None));
    }

    #[test]
    fn of_a_mean_the_jackknife_is_students_interval() {
        let values = [1.0, 4.0, 2.0, 8.0, 5.0];
        let known = mean(values).unwrap();
        let sum: f64 = values.iter().sum();
        let without: Vec<f64> = values.iter().map(|value| (sum - value) / 4.0).collect();
        let [low, high] = jackknife(known.mean, &without).map(Option::unwrap);
        let [least, most] = known.ends().map(Option::unwrap);
        assert!((low - least).abs() < 1e-9 && (high - most).abs() < 1e-9, "{low} {high}");
        assert_eq!(jackknife(1.0, &[1.0]), [None; 2]);
    }

    #[test]
    fn students_t_is_the_tabulated_one() {
        let table = [(1, 12.706), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (143, 1.977)];
        for (freedom, t) in table {
            assert!((student_t(freedom) - t).abs() < 0.007, "{freedom}: {}", student_t(freedom));
        }
        assert_eq!(student_t(0), f64::INFINITY);
    }

    #[test]
    fn a_group_counts_as_often_as_it_has_values() {
        let mean =
            |values: &[(usize, f64)]| mean_of_percentiles(values.iter().copied(), Percentile::P99);
        // Two values alone: their mean of 1.5 is off by 0.5, times 12.706.
        let two = mean(&[(0, 1.0), (1, 2.0)]).unwrap();
        assert_eq!((two.mean, two.groups), (1.5, 2));
        assert!((two.half_width.unwrap() - 6.353).abs() < 1e-9, "{two:?}");
        // Off by 3 x -1 and 1 x 3, of a total of 4; the p99 of three is their largest.
        let four = mean(&[(9, 0.5), (2, 5.0), (9, 1.0), (9, 0.2)]).unwrap();
        assert_eq!((four.mean, four.groups), (2.0, 2));
        let half = 12.706 * 2f64.sqrt() * 18f64.sqrt() / 4.0;
        assert!((four.half_width.unwrap() - half).abs() < 1e-9, "{four:?}");
        let one = GroupMean { mean: 4.0, half_width: None, groups: 1 };
        assert_eq!(mean(&[(3, 4.0), (3, 1.0)]), Some(one));
        assert_eq!(mean(&[]), None);
    }
}
