//! The swarm: thousands of small random scenarios, each observed by the independent checker.
//!
//! Every scenario follows from one seed, so a number is enough to reproduce a failure. Hosts run
//! the protocol's own [`homa_proto::Endpoint`]. The network loses, duplicates and delays packets;
//! hosts freeze, crash, come back, or move to another address; and if addresses are validated, one
//! more host may be hostile. [`swarm_of`] does the same with any scheme of the table ([`any`]).
//! Left out: shrinking, because scenarios are small.

pub mod any;
mod draw;
mod hostile;
mod promises;
mod resident;
mod run;
mod scenario;

pub use hostile::Hostile;
pub use resident::SwarmHost;
pub use run::{SwarmOutcome, run};
pub use scenario::{HostFault, Impaired, Scenario, SwarmNetwork};

use std::collections::BTreeMap;

use homa_proto::Coverage;

use crate::checker::Violation;
use crate::scheme::Scheme;

/// Results of a swarm.
#[derive(Clone, Debug, Default)]
pub struct SwarmReport {
    /// Scenarios run.
    pub seeds: u64,
    /// How many of them had a hostile host.
    pub hostile: u64,
    /// Calls that were checked; with other schemes, one-way messages too.
    pub calls: u64,
    /// How many of these were answered, or delivered.
    pub answered: u64,
    /// How many of these failed with a typed error.
    pub failed: u64,
    /// Packets sent.
    pub packets: u64,
    /// Counters of Homa's endpoints, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Which inputs occurred in which states.
    pub coverage: Coverage,
    /// Scenarios in which a promise was broken.
    pub failures: Vec<FailedScenario>,
}

/// A scenario in which a promise was broken.
#[derive(Clone, Debug)]
pub struct FailedScenario {
    /// The scheme; `None` for Homa's own swarm.
    pub scheme: Option<&'static str>,
    /// The seed of the scenario.
    pub seed: u64,
    /// The violations, in order of time.
    pub violations: Vec<Violation>,
}

impl FailedScenario {
    /// The command that reruns this scenario.
    pub fn replay(&self) -> String {
        let scheme = self.scheme.map_or_else(String::new, |name| format!("--scheme {name} "));
        format!("homa swarm {scheme}--seeds 1 --seed {}", self.seed)
    }
}

/// Runs the scenarios of `seeds` seeds from `first` on, and calls `progress` after each.
pub fn swarm(seeds: u64, first: u64, progress: impl FnMut(&SwarmReport)) -> SwarmReport {
    run_all(None, (seeds, first), |seed| run(&Scenario::draw(seed), ()), progress)
}

/// The same with a scheme of the table.
pub fn swarm_of(
    scheme: &'static Scheme,
    (seeds, first): (u64, u64),
    progress: impl FnMut(&SwarmReport),
) -> SwarmReport {
    let one = |seed| any::run_trial(&any::Trial::draw(scheme, seed));
    run_all(Some(scheme.name), (seeds, first), one, progress)
}

fn run_all(
    scheme: Option<&'static str>,
    (seeds, first): (u64, u64),
    one: impl Fn(u64) -> SwarmOutcome + std::panic::RefUnwindSafe,
    mut progress: impl FnMut(&SwarmReport),
) -> SwarmReport {
    let mut report = SwarmReport::default();
    for seed in (0..seeds).map(|offset| first.wrapping_add(offset)) {
        let outcome = catch_panic(|| one(seed));
        report.seeds += 1;
        report.hostile += u64::from(outcome.hostile);
        report.calls += outcome.calls;
        report.answered += outcome.answered;
        report.failed += outcome.failed;
        report.packets += outcome.packets;
        for (name, value) in outcome.counters {
            *report.counters.entry(name).or_default() += value;
        }
        report.coverage.merge(&outcome.coverage);
        if !outcome.violations.is_empty() {
            report.failures.push(FailedScenario { scheme, seed, violations: outcome.violations });
        }
        progress(&report);
    }
    report
}

/// Reports a panic as a broken promise, because nothing may panic.
fn catch_panic(run: impl FnOnce() -> SwarmOutcome + std::panic::UnwindSafe) -> SwarmOutcome {
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        SwarmOutcome::broken("nothing panics", "the message is on standard error".to_owned())
    })
}

#[cfg(test)]
mod tests;
