//! The swarm: thousands of small random scenarios under the independent checker.
//!
//! Every scenario follows from one seed, so a failure is one number. Hosts run the protocol's own
//! [`homa_proto::Endpoint`]; the network loses, duplicates, delays; hosts freeze, crash, come back.
//! Left out: shrinking (scenarios are small), other transports.

mod application;
mod draw;
mod promises;
mod run;
mod scenario;

pub use run::{Outcome, run};
pub use scenario::{HostFault, Impaired, PlannedCall, Rack, Scenario};

use std::collections::BTreeMap;

use homa_proto::Coverage;

use crate::checker::Violation;
use crate::time::SimTime;

/// What a swarm found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Scenarios run.
    pub seeds: u64,
    /// Calls judged.
    pub calls: u64,
    /// Of these answered.
    pub answered: u64,
    /// Of these failed with a typed error.
    pub failed: u64,
    /// Packets sent.
    pub packets: u64,
    /// What the endpoints counted, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Which inputs met which states.
    pub coverage: Coverage,
    /// Scenarios in which a promise was broken.
    pub failures: Vec<Failure>,
}

/// A scenario in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What was broken, in the order of time.
    pub violations: Vec<Violation>,
}

impl Failure {
    /// The command that runs this scenario again.
    pub fn replay(&self) -> String {
        format!("homa swarm --seeds 1 --seed {}", self.seed)
    }
}

/// Runs the scenarios of `seeds` seeds from `first` on; `progress` hears of each.
pub fn swarm(seeds: u64, first: u64, mut progress: impl FnMut(&Report)) -> Report {
    let mut report = Report::default();
    for seed in (0..seeds).map(|offset| first.wrapping_add(offset)) {
        let outcome = run_seed(seed);
        report.seeds += 1;
        report.calls += outcome.calls;
        report.answered += outcome.answered;
        report.failed += outcome.failed;
        report.packets += outcome.packets;
        for (name, value) in outcome.counters {
            *report.counters.entry(name).or_default() += value;
        }
        report.coverage.merge(&outcome.coverage);
        if !outcome.violations.is_empty() {
            report.failures.push(Failure { seed, violations: outcome.violations });
        }
        progress(&report);
    }
    report
}

/// A panic of the protocol breaks a promise like any other.
fn run_seed(seed: u64) -> Outcome {
    std::panic::catch_unwind(|| run(&Scenario::draw(seed), ())).unwrap_or_else(|_| Outcome {
        violations: vec![Violation {
            at: SimTime::ZERO,
            host: None,
            rule: "nothing panics",
            detail: String::from("the message is on standard error"),
        }],
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests;
