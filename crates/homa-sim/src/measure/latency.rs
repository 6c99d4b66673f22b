//! Latency by message size. Every measured message is kept, so that percentiles are exact.
//!
//! Bins follow from the distribution of sizes, not from the measured messages: each has 1 % of the
//! messages, or one size that alone has more. Within a bin, messages are in the order of their
//! delivery, which confidence intervals need to see the correlation of neighbours.
//!
//! Besides the percentiles over all messages there is the one of the Homa authors' analysis: each
//! receiver's own p99, averaged ([`ByReceiver`]). The two agree if every receiver has many
//! messages; with few, the average shows less of the slowest messages.

use std::collections::BTreeMap;

use homa_workload::bins::SizeBins;
use homa_workload::interval::{self, Interval};
use homa_workload::quantile::{Percentile, Sorted};
use homa_workload::sizes::SizeDistribution;

use crate::scenario::outcome::{ByReceiver, GroupPercentile, SizeBucket, SizeGroup, Slowdown};
use crate::scenario::{Groups, SlowdownBy};
use crate::time::SimDuration;

use super::ideal::Alone;

/// One measured message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time from submission to delivery.
    pub latency: SimDuration,
    /// Message bytes.
    pub bytes: u32,
    /// Switches on its path, on which the idle time depends besides the size.
    pub switches: u32,
    /// The receiving host; for an RPC, the server.
    pub receiver: u32,
    /// Its class, as numbered by its source.
    pub class: u8,
}

/// All measured messages, by bin.
#[derive(Clone, Debug)]
pub struct Latencies {
    bins: SizeBins,
    least: Vec<u32>,
    samples: Vec<Vec<Sample>>,
}

impl Latencies {
    /// Bins for the sizes of a workload.
    pub fn new(sizes: &SizeDistribution) -> Self {
        let bins = SizeBins::percent(sizes);
        let mut least = vec![u32::MAX; bins.bins().len()];
        for (bytes, _) in sizes.shares() {
            let bin = bins.of_size(bytes);
            least[bin] = least[bin].min(bytes);
        }
        let samples = vec![Vec::new(); least.len()];
        Self { bins, least, samples }
    }

    /// The bin of a message size.
    pub fn bin(&self, bytes: u32) -> usize {
        self.bins.of_size(bytes)
    }

    /// Number of bins.
    pub fn bins(&self) -> usize {
        self.samples.len()
    }

    /// Adds a message.
    pub fn record(&mut self, sample: Sample) {
        let bin = self.bin(sample.bytes);
        self.samples[bin].push(sample);
    }

    /// Number of messages.
    pub fn count(&self) -> u64 {
        self.samples.iter().map(|samples| samples.len() as u64).sum()
    }

    /// The samples of every bin, each in the order of delivery.
    pub fn samples(&self) -> &[Vec<Sample>] {
        &self.samples
    }

    /// Takes over the samples of `other`, which has the same bins.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let both = self.samples.iter_mut().zip(&mut other.samples);
        both.for_each(|(own, other)| own.append(other));
    }

    /// Takes all samples out.
    pub fn take_samples(&mut self) -> Vec<Vec<Sample>> {
        let none = vec![Vec::new(); self.samples.len()];
        std::mem::replace(&mut self.samples, none)
    }

    /// The messages of one class.
    pub fn of_class(&self, class: u8) -> Self {
        let own = |samples: &Vec<Sample>| {
            samples.iter().filter(|sample| sample.class == class).copied().collect()
        };
        Self { samples: self.samples.iter().map(own).collect(), ..self.clone() }
    }

    /// Slowdowns: each latency, divided by the idle time `alone` for its bytes and switches.
    pub fn slowdown(&self, by: SlowdownBy, alone: &dyn Fn(u32, u32) -> Alone) -> Slowdown {
        let of = |sample: &Sample| alone(sample.bytes, sample.switches).slowdown(sample.latency);
        let mut all = Vec::with_capacity(self.count() as usize);
        let mut buckets = Vec::with_capacity(self.samples.len());
        for (index, samples) in self.samples.iter().enumerate() {
            let slowdowns: Vec<f64> = samples.iter().map(of).collect();
            buckets.push(self.bucket(index, &slowdowns));
            all.extend(slowdowns);
        }
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let mean = (!all.is_empty()).then_some(mean);
        let all = Sorted::new(all);
        Slowdown {
            by,
            mean,
            p50: all.percentile(Percentile::P50),
            p99: all.percentile(Percentile::P99),
            buckets,
        }
    }

    /// Latency over ranges of sizes, by class and then by size. Ranges without messages are left
    /// out.
    pub fn groups(&self, wanted: &Groups, alone: &dyn Fn(u32, u32) -> Alone) -> Vec<SizeGroup> {
        let mut members: BTreeMap<(u8, usize), Vec<(f64, u64)>> = BTreeMap::new();
        for sample in self.samples.iter().flatten() {
            let range = wanted.up_to.partition_point(|largest| *largest < sample.bytes);
            let slowdown = alone(sample.bytes, sample.switches).slowdown(sample.latency);
            let member = (slowdown, sample.latency.0);
            members.entry((sample.class, range)).or_default().push(member);
        }
        let of = |((class, range), members): ((u8, usize), Vec<(f64, u64)>)| {
            let (slowdowns, latencies): (Vec<f64>, Vec<u64>) = members.into_iter().unzip();
            let count = slowdowns.len();
            let mean = slowdowns.iter().sum::<f64>() / count as f64;
            let mean_us = latencies.iter().map(|ps| *ps as f64).sum::<f64>() / count as f64 / 1e6;
            let (slowdowns, latencies) = (Sorted::new(slowdowns), Sorted::new(latencies));
            let percentile = |&percent: &f64| {
                let share = Percentile::millionths((percent * 1e4).round() as u32)?;
                let us = latencies.percentile(share)? as f64 / 1e6;
                Some(GroupPercentile { percent, slowdown: slowdowns.percentile(share)?, us })
            };
            SizeGroup {
                class,
                above_bytes: range.checked_sub(1).map_or(0, |below| wanted.up_to[below]),
                max_bytes: wanted.up_to.get(range).copied(),
                count: count as u64,
                mean,
                mean_us,
                max_us: latencies.values().last().map_or(0.0, |ps| *ps as f64 / 1e6),
                percentiles: wanted.percentiles.iter().filter_map(percentile).collect(),
            }
        };
        members.into_iter().map(of).collect()
    }

    fn bucket(&self, index: usize, slowdowns: &[f64]) -> SizeBucket {
        let samples = &self.samples[index];
        let times = Sorted::new(samples.iter().map(|sample| sample.latency.0).collect());
        let micros = |percentile| times.percentile(percentile).map(|ps| ps as f64 / 1e6);
        let sorted = Sorted::new(slowdowns.to_vec());
        let ends = |interval: Interval<f64>| [interval.low, interval.high];
        let bin = self.bins.bins()[index];
        SizeBucket {
            cum_share: bin.cum_share,
            min_bytes: self.least[index],
            max_bytes: bin.max_bytes,
            count: samples.len() as u64,
            p50: sorted.percentile(Percentile::P50),
            p99: sorted.percentile(Percentile::P99),
            p50_ci: ends(interval::correlated(slowdowns, Percentile::P50)),
            p99_ci: ends(interval::correlated(slowdowns, Percentile::P99)),
            p50_us: micros(Percentile::P50),
            p99_us: micros(Percentile::P99),
            by_receiver: by_receiver(samples, slowdowns),
        }
    }
}

fn by_receiver(samples: &[Sample], slowdowns: &[f64]) -> Option<ByReceiver> {
    let receivers = samples.iter().map(|sample| sample.receiver as usize);
    let values = receivers.zip(slowdowns.iter().copied());
    let own = interval::mean_of_percentiles(values, Percentile::P99)?;
    Some(ByReceiver { p99: own.mean, p99_ci: own.ends(), receivers: own.groups as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_divided_by_its_own_idle_time() {
        let text = "size_bytes,cumulative_fraction\n10,0.5\n20,1\n";
        let sizes = SizeDistribution::from_csv(text).unwrap();
        let mut latencies = Latencies::new(&sizes);
        for n in 1..=100 {
            let latency = SimDuration(n * 1_000_000);
            let switches = 1 + 2 * (n as u32 % 2);
            latencies.record(Sample {
                latency,
                bytes: 10,
                switches,
                receiver: n as u32 % 3,
                class: 0,
            });
        }
        latencies.record(Sample {
            latency: SimDuration(7_000_000),
            bytes: 20,
            switches: 3,
            receiver: 0,
            class: 0,
        });
        let ideal = |_, switches: u32| SimDuration(u64::from(switches) * 1_000_000).into();
        let slowdown = latencies.slowdown(SlowdownBy::Idle, &ideal);
        // 2, 4, ... 100 through one switch, 1/3 ... 33 through three.
        let head = &slowdown.buckets[0];
        assert_eq!((head.count, head.min_bytes, head.max_bytes), (100, 10, 10));
        assert_eq!((head.p99, head.p99_us), (Some(98.0), Some(99.0)));
        assert_eq!(head.p99_ci[1], None, "a hundred values do not bound their p99");
        assert_eq!(slowdown.buckets[1].p50, Some(7.0 / 3.0));
        assert_eq!(latencies.count(), 101);
    }

    #[test]
    fn groups_divide_messages_by_class_and_size() {
        let mut latencies = Latencies::new(&SizeDistribution::constant(10).unwrap());
        for (bytes, class, us) in [(10, 0, 4), (10, 0, 8), (11, 0, 30), (10, 1, 6), (10, 0, 3)] {
            let latency = SimDuration(us * 1_000_000);
            latencies.record(Sample { latency, bytes, switches: 1, receiver: 0, class });
        }
        let wanted = Groups { up_to: vec![10, 20], percentiles: vec![50.0, 99.9] };
        let groups = latencies.groups(&wanted, &|_, _| SimDuration(2_000_000).into());
        let place =
            |group: &SizeGroup| (group.class, group.above_bytes, group.max_bytes, group.count);
        let places: Vec<_> = groups.iter().map(place).collect();
        assert_eq!(places, [(0, 0, Some(10), 3), (0, 10, Some(20), 1), (1, 0, Some(10), 1)]);
        assert_eq!((groups[0].mean, groups[0].mean_us), (2.5, 5.0));
        let percentiles = groups[0].percentiles.iter().map(|p| (p.percent, p.slowdown, p.us));
        assert_eq!(percentiles.collect::<Vec<_>>(), [(50.0, 2.0, 4.0), (99.9, 4.0, 8.0)]);
    }

    /// The bin of messages of one size, by receiver and slowdown.
    fn bin(messages: impl Iterator<Item = (u32, u64)>) -> SizeBucket {
        let mut latencies = Latencies::new(&SizeDistribution::constant(10).unwrap());
        for (receiver, slowdown) in messages {
            let latency = SimDuration(slowdown * 1_000_000);
            latencies.record(Sample { latency, bytes: 10, switches: 1, receiver, class: 0 });
        }
        let ideal = |_, _| SimDuration(1_000_000).into();
        latencies.slowdown(SlowdownBy::Idle, &ideal).buckets.remove(0)
    }

    #[test]
    fn a_percentile_by_receiver_is_a_mean_of_percentiles() {
        // One receiver with 1 to 200, one with a single message.
        let two = bin((1..=200).map(|n| (4, n)).chain([(7, 1000)]));
        assert_eq!((two.p50, two.p99), (Some(101.0), Some(199.0)));
        let own = two.by_receiver.unwrap();
        assert_eq!((own.p99, own.receivers), ((200.0 * 198.0 + 1000.0) / 201.0, 2));
        assert!(own.p99_ci[0].unwrap() < own.p99 && own.p99 < own.p99_ci[1].unwrap());
        let one = bin((1..=200).map(|n| (4, n))).by_receiver.unwrap();
        assert_eq!((one.p99, one.p99_ci, one.receivers), (198.0, [None; 2], 1));
    }

    #[test]
    fn with_one_message_per_receiver_it_is_the_mean_of_all() {
        let own = bin((0..100).map(|n| (n, u64::from(n) + 1))).by_receiver.unwrap();
        assert_eq!((own.p99, own.receivers), (50.5, 100));
        // A margin of 2.9: the standard deviation of 1 to 100 over 10, times Student's 1.98.
        let [low, high] = own.p99_ci.map(Option::unwrap);
        assert!((high - low - 2.0 * 1.987 * 2.901).abs() < 0.01, "{low} to {high}");
    }
}
