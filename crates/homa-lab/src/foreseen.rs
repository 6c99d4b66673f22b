//! Warnings about a plan before its first simulation runs.

use std::collections::BTreeSet;

use homa_sim::experiment::foresee;
use homa_sim::scenario::{Scenario, SlowdownBy};

use crate::plan::Plan;

/// Combinations of the axes that are looked at. More take too long before a sweep, and every result
/// has its warnings.
const LOOKED_AT: usize = 40;

impl Plan {
    /// Warnings about results that will be wrong, or that are easily misread, as far as this is
    /// known before the simulations run.
    pub fn foreseen(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.separate_divisors().into_iter().collect();
        let mut seen: Vec<Scenario> = Vec::new();
        for cell in &self.cells {
            let alike = Scenario { seed: 0, ..cell.scenario.clone() };
            if seen.contains(&alike) {
                continue;
            }
            if seen.len() == LOOKED_AT {
                break;
            }
            // A scenario that is refused stops the run with its error.
            for warning in foresee(&cell.scenario).unwrap_or_default() {
                let told = match cell.axes[..] {
                    [] => warning,
                    _ => format!("{warning} (in {})", cell.label()),
                };
                warnings.push(told);
            }
            seen.push(alike);
        }
        warnings
    }

    /// A warning if slowdowns of several schemes have different divisors.
    fn separate_divisors(&self) -> Option<String> {
        let idle = [SlowdownBy::Idle, SlowdownBy::IdleFirstOnce];
        let by_idle = self.cells.iter().filter(|cell| idle.contains(&cell.scenario.slowdown));
        let schemes: BTreeSet<&str> = by_idle.map(|cell| &*cell.scenario.scheme).collect();
        (schemes.len() > 1).then(|| {
            let schemes: Vec<&str> = schemes.into_iter().collect();
            format!(
                "`slowdown = \"idle\"` divides the latencies of each scheme by those of the same \
                 scheme in an idle network, so a scheme that is slow alone looks good beside the \
                 others ({}): `best` has one divisor for all",
                schemes.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::plan::Plan;

    fn foreseen(text: &str) -> Vec<String> {
        let plan = Plan::parse(&Document::new("plan.toml", text.to_owned()), &[]);
        plan.unwrap_or_else(|fault| panic!("{fault:?}")).foreseen()
    }

    #[test]
    fn idle_times_of_several_schemes_are_warned_of() {
        let compared = |by: &str| {
            foreseen(&format!(
                "seeds = [1, 2]\n[scenario]\nslowdown = \"{by}\"\nload.fraction = 0.1\n\
                 [axes]\nscheme = [\"homa\", \"dctcp\"]"
            ))
        };
        assert_eq!(compared("best"), [""; 0]);
        let told = compared("idle");
        assert!(told.len() == 1 && told[0].contains("dctcp, homa"), "{told:?}");
    }

    #[test]
    fn loads_that_no_link_carries_are_warned_of() {
        let told = foreseen(
            "[scenario]\nscheme = \"phost\"\ntraffic = { workload = \"w1\" }\n\
             [axes]\n\"load.fraction\" = [0.5, 0.8]",
        );
        assert!(told.len() == 1 && told[0].contains("load.basis"), "{told:?}");
        assert!(told[0].contains("load.fraction=0.8"), "{told:?}");
        let narrow = "[scenario]\nload.fraction = 0.5\n\
                      fabric.shape = { kind = \"leaf-spine\", racks = 4, hosts_per_rack = 16, \
                      spines = 1 }";
        let told = foreseen(narrow);
        assert!(told.len() == 1 && told[0].contains("load.links"), "{told:?}");
    }
}
