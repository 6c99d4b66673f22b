//! Followed RPCs by direction, size and time, from two scrapes of one process.

use std::collections::BTreeMap;

use crate::commands::scrape::{MetricSample, Scrape};

/// The slowest of this share count as slow, and more if they share their group.
pub const SLOW: f64 = 0.05;

/// Followed RPCs of one direction and size that took about as long.
#[derive(Default)]
pub struct Group {
    pub rpcs: f64,
    pub bytes: f64,
    seconds: BTreeMap<String, f64>,
}

impl Group {
    /// All time, seconds.
    pub fn all(&self) -> f64 {
        self.seconds.values().sum()
    }

    /// The time of a stage, seconds.
    pub fn time(&self, stage: &str) -> f64 {
        self.seconds.get(stage).copied().unwrap_or(0.0)
    }

    fn add(&mut self, other: &Self) {
        self.rpcs += other.rpcs;
        self.bytes += other.bytes;
        for (stage, seconds) in &other.seconds {
            *self.seconds.entry(stage.clone()).or_default() += seconds;
        }
    }
}

/// Groups by direction and size, and within that by time in nanoseconds.
pub type Groups = BTreeMap<(String, String), BTreeMap<u64, Group>>;

/// Those that ended between two scrapes.
pub fn groups(before: &Scrape, after: &Scrape) -> Groups {
    let mut groups = Groups::new();
    let mut each = |name: &str, put: &dyn Fn(&mut Group, &MetricSample, f64)| {
        for sample in after.all(name) {
            let key = (sample.label("direction").to_owned(), sample.label("size").to_owned());
            let up_to = sample.label("up_to").parse::<f64>().unwrap_or(0.0) * 1e9;
            let group = groups.entry(key).or_default().entry(up_to as u64).or_default();
            put(group, sample, sample.grown(name, before));
        }
    };
    each("homa_rpc_stage_rpcs_total", &|group, _, grown| group.rpcs += grown);
    each("homa_rpc_stage_bytes_total", &|group, _, grown| group.bytes += grown);
    each("homa_rpc_stage_seconds_total", &|group, sample, grown| {
        *group.seconds.entry(sample.label("stage").to_owned()).or_default() += grown;
    });
    groups
}

/// The slowest groups together, and the number of all RPCs.
pub fn slowest(groups: &BTreeMap<u64, Group>) -> (Group, f64) {
    let all: f64 = groups.values().map(|group| group.rpcs).sum();
    let mut slow = Group::default();
    for group in groups.values().rev().filter(|group| group.rpcs > 0.0) {
        slow.add(group);
        if slow.rpcs >= SLOW * all {
            break;
        }
    }
    (slow, all)
}

/// The growth of a counter, the sum over all engines.
pub fn grown(name: &str, before: &Scrape, after: &Scrape) -> f64 {
    after.all(name).iter().fold(0.0, |sum, sample| sum + sample.grown(name, before))
}

/// The time between two scrapes, seconds.
pub fn watched(before: &Scrape, after: &Scrape) -> f64 {
    after.taken.duration_since(before.taken).as_secs_f64().max(1e-3)
}
