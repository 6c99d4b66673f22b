//! Refuses scenarios that contradict themselves before a packet moves. Each error names the key and
//! the valid values. Checks that need the network or the workload are made when those are built.

use crate::scenario::{Buffer, Fabric, Scenario, ScenarioError, SlowdownBy};

const MILLION: u32 = 1_000_000;

/// Checks the random faults of all links.
fn check_faults(fabric: &Fabric) -> Result<(), ScenarioError> {
    let wrong = |key: &'static str, must: &'static str| Err(ScenarioError::field(key, must));
    let rates = [
        ("fabric.loss_ppm", fabric.loss_ppm),
        ("fabric.duplicate_ppm", fabric.duplicate_ppm),
        ("fabric.reorder_ppm", fabric.reorder_ppm),
    ];
    if let Some((key, _)) = rates.iter().find(|(_, ppm)| *ppm > MILLION) {
        return wrong(key, "be at most 1000000 packets per million");
    }
    if rates.iter().map(|(_, ppm)| ppm).sum::<u32>() > MILLION {
        let keys = "fabric.loss_ppm, duplicate_ppm and reorder_ppm";
        return wrong(keys, "be at most 1000000 together");
    }
    // The delay is drawn in whole nanoseconds.
    if fabric.reorder_ppm > 0 && !(1..=1_000_000_000).contains(&(fabric.reorder_by.0 / 1_000)) {
        return wrong("fabric.reorder_by", "be 1ns to 1s");
    }
    if fabric.faults_until.is_some_and(|until| until.0 == 0) {
        return wrong("fabric.faults_until", "be above 0: leave out the faults instead");
    }
    Ok(())
}

/// Refuses scenarios that contradict themselves or cannot measure anything.
pub(super) fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    let (stop, fabric) = (&scenario.stop, &scenario.fabric);
    let wrong = |key: &'static str, must: &'static str| Err(ScenarioError::field(key, must));
    if scenario.partitions == 0 {
        return wrong("partitions", "be at least 1");
    }
    if stop.messages == Some(0) {
        return wrong("stop.messages", "be at least 1");
    }
    if stop.time.is_some_and(|time| time.0 <= scenario.warm_up.0) {
        return wrong("stop.time", "be later than `warm_up`: nothing is measured before");
    }
    check_faults(fabric)?;
    if let Some(probes) = scenario.probes {
        if scenario.slowdown != SlowdownBy::Idle {
            return wrong(
                "slowdown",
                "be \"idle\" if there are `probes`, because idle times are no delay",
            );
        }
        if probes.from == probes.to {
            return wrong("probes.to", "be another host than `from`");
        }
        if probes.every.0 == 0 {
            return wrong("probes.every", "be above 0");
        }
        if probes.bytes == 0 {
            return wrong("probes.bytes", "be at least 1");
        }
    }
    if let Some(groups) = &scenario.measures.groups {
        if !groups.up_to.is_sorted_by(|a, b| a < b) {
            return wrong("measures.groups.up_to", "be sizes in ascending order");
        }
        if !groups.percentiles.iter().all(|percent| (0.0001..100.0).contains(percent)) {
            return wrong("measures.groups.percentiles", "be above 0 and below 100");
        }
    }
    match fabric.buffer {
        Buffer::PerPort { bytes: 0 }
        | Buffer::PerLevel { bytes: 0 }
        | Buffer::Shared { bytes: 0, .. } => {
            wrong("fabric.buffer.bytes", "hold at least a frame, such as 131072")
        }
        Buffer::PerLevel { .. } if fabric.preemption => {
            wrong("fabric.buffer", "be of another kind if `preemption` is set")
        }
        Buffer::Shared { alpha_percent: 0, .. } => {
            wrong("fabric.buffer.alpha_percent", "be at least 1: a port's share of what is free")
        }
        _ => Ok(()),
    }
}
