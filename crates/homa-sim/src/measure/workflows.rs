//! Times of workflows, from their first request to their last response (DeTail §6.5), by class and
//! within a class by fan-out. Percentiles are exact.

use std::collections::BTreeMap;

use homa_workload::quantile::{Percentile, Sorted};

use crate::scenario::outcome::{LatencyPercentile, WorkflowTimes};
use crate::traffic::{ClassCount, Workflows};

/// The percentiles, if a plan sets none.
pub const USUAL: [f64; 3] = [50.0, 99.0, 99.9];

/// For every class: all of its workflows, then those of each fan-out if there are several.
pub fn times(workflows: &Workflows, percents: &[f64]) -> Vec<WorkflowTimes> {
    let percents = if percents.is_empty() { &USUAL[..] } else { percents };
    let mut found = Vec::new();
    for (class, (name, counts)) in workflows.counts().enumerate() {
        let mut by_fan_out: BTreeMap<u32, Vec<u64>> =
            counts.keys().map(|fan_out| (*fan_out, Vec::new())).collect();
        for finished in workflows.finished().iter().filter(|it| usize::from(it.class) == class) {
            by_fan_out.entry(finished.fan_out).or_default().push(finished.took.0);
        }
        let count = counts.values().fold(ClassCount::default(), |all, one| ClassCount {
            begun: all.begun + one.begun,
            failed: all.failed + one.failed,
        });
        let all = by_fan_out.values().flatten().copied().collect();
        found.push(summed_up((name, None), count, all, percents));
        if by_fan_out.len() > 1 {
            found.extend(by_fan_out.into_iter().map(|(fan_out, times)| {
                let count = counts.get(&fan_out).copied().unwrap_or_default();
                summed_up((name, Some(fan_out)), count, times, percents)
            }));
        }
    }
    found
}

fn summed_up(
    (name, fan_out): (&str, Option<u32>),
    ClassCount { begun, failed }: ClassCount,
    times: Vec<u64>,
    percents: &[f64],
) -> WorkflowTimes {
    let micros = |ps: u64| ps as f64 / 1e6;
    let count = times.len() as u64;
    let sum: f64 = times.iter().map(|ps| micros(*ps)).sum();
    let sorted = Sorted::new(times);
    let percentile = |&percent: &f64| {
        let share = Percentile::millionths((percent * 1e4).round() as u32)?;
        Some(LatencyPercentile { percent, us: micros(sorted.percentile(share)?) })
    };
    WorkflowTimes {
        name: name.to_owned(),
        fan_out,
        count,
        failed,
        unfinished: begun - failed - count,
        mean_us: (count > 0).then(|| sum / count as f64),
        max_us: sorted.values().last().copied().map(micros),
        percentiles: percents.iter().filter_map(percentile).collect(),
    }
}
