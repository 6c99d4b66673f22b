//! How long workflows took, from their first request to their last response (DeTail §6.5): by
//! class, and within a class by fan-out. Percentiles are exact.

use std::collections::BTreeMap;

use homa_workload::quantile::{Percentile, Sorted};

use crate::scenario::outcome::{LatencyPercentile, WorkflowTimes};
use crate::traffic::Workflows;

/// The percentiles where a plan asks for none.
pub const USUAL: [f64; 3] = [50.0, 99.0, 99.9];

/// Of every class: all of its workflows, then those of each fan-out if there are several.
pub fn times(workflows: &Workflows, percents: &[f64]) -> Vec<WorkflowTimes> {
    let percents = if percents.is_empty() { &USUAL[..] } else { percents };
    let mut found = Vec::new();
    for (class, (name, count)) in workflows.counts().enumerate() {
        let mut all = Vec::new();
        let mut by_fan_out: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for through in workflows.through().iter().filter(|it| usize::from(it.class) == class) {
            all.push(through.took.0);
            by_fan_out.entry(through.fan_out).or_default().push(through.took.0);
        }
        let unfinished = count.begun - count.failed - all.len() as u64;
        let of = |fan_out, times: Vec<u64>| {
            summed_up(
                times,
                percents,
                WorkflowTimes {
                    name: name.to_owned(),
                    fan_out,
                    failed: count.failed,
                    unfinished,
                    ..WorkflowTimes::default()
                },
            )
        };
        found.push(of(None, all));
        if by_fan_out.len() > 1 {
            found.extend(by_fan_out.into_iter().map(|(fan_out, times)| of(Some(fan_out), times)));
        }
    }
    found
}

fn summed_up(times: Vec<u64>, percents: &[f64], empty: WorkflowTimes) -> WorkflowTimes {
    let micros = |ps: u64| ps as f64 / 1e6;
    let count = times.len() as u64;
    let mean_us = times.iter().map(|ps| micros(*ps)).sum::<f64>() / count.max(1) as f64;
    let sorted = Sorted::new(times);
    let percentile = |&percent: &f64| {
        let share = Percentile::millionths((percent * 1e4).round() as u32)?;
        Some(LatencyPercentile { percent, us: micros(sorted.percentile(share)?) })
    };
    WorkflowTimes {
        count,
        mean_us,
        max_us: sorted.values().last().copied().map_or(0.0, micros),
        percentiles: percents.iter().filter_map(percentile).collect(),
        ..empty
    }
}
