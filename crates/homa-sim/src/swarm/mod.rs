//! The swarm: thousands of small random scenarios under the independent checker.
//!
//! Every scenario follows from one seed, so a failure is one number. Hosts run the protocol's own
//! [`homa_proto::Endpoint`]; the network loses, duplicates, delays; hosts freeze, crash, come back,
//! move to another address; and where addresses are proven, one more host may be hostile.
//! [`swarm_of`] does it with any scheme of the table ([`any`]). Left out: shrinking (scenarios are
//! small).

pub mod any;
mod draw;
mod hostile;
mod promises;
mod resident;
mod run;
mod scenario;

pub use hostile::Hostile;
pub use resident::Resident;
pub use run::{Outcome, run};
pub use scenario::{HostFault, Impaired, Rack, Scenario};

use std::collections::BTreeMap;

use homa_proto::Coverage;

use crate::checker::Violation;
use crate::scheme::Scheme;

/// What a swarm found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Scenarios run.
    pub seeds: u64,
    /// Of these with a hostile host.
    pub hostile: u64,
    /// Calls judged; of other schemes one-way messages, too.
    pub calls: u64,
    /// Of these answered, or delivered.
    pub answered: u64,
    /// Of these failed with a typed error.
    pub failed: u64,
    /// Packets sent.
    pub packets: u64,
    /// What Homa's endpoints counted, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Which inputs met which states.
    pub coverage: Coverage,
    /// Scenarios in which a promise was broken.
    pub failures: Vec<Failure>,
}

/// A scenario in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scheme; `None`: the one of Homa's own swarm.
    pub scheme: Option<&'static str>,
    /// Its seed.
    pub seed: u64,
    /// What was broken, in the order of time.
    pub violations: Vec<Violation>,
}

impl Failure {
    /// The command that runs this scenario again.
    pub fn replay(&self) -> String {
        let scheme = self.scheme.map_or_else(String::new, |name| format!("--scheme {name} "));
        format!("homa swarm {scheme}--seeds 1 --seed {}", self.seed)
    }
}

/// Runs the scenarios of `seeds` seeds from `first` on; `progress` hears of each.
pub fn swarm(seeds: u64, first: u64, progress: impl FnMut(&Report)) -> Report {
    fly(None, (seeds, first), |seed| run(&Scenario::draw(seed), ()), progress)
}

/// The same with a scheme of the table.
pub fn swarm_of(
    scheme: &'static Scheme,
    (seeds, first): (u64, u64),
    progress: impl FnMut(&Report),
) -> Report {
    let one = |seed| any::try_out(&any::Trial::draw(scheme, seed));
    fly(Some(scheme.name), (seeds, first), one, progress)
}

fn fly(
    scheme: Option<&'static str>,
    (seeds, first): (u64, u64),
    one: impl Fn(u64) -> Outcome + std::panic::RefUnwindSafe,
    mut progress: impl FnMut(&Report),
) -> Report {
    let mut report = Report::default();
    for seed in (0..seeds).map(|offset| first.wrapping_add(offset)) {
        let outcome = judged(|| one(seed));
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
            report.failures.push(Failure { scheme, seed, violations: outcome.violations });
        }
        progress(&report);
    }
    report
}

/// A panic of the protocol breaks a promise like any other.
fn judged(run: impl FnOnce() -> Outcome + std::panic::UnwindSafe) -> Outcome {
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        Outcome::broken("nothing panics", "the message is on standard error".to_owned())
    })
}

#[cfg(test)]
mod tests;
