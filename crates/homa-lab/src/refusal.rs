//! Simulations that would be refused, found before the first one runs, so that a sweep of hours
//! does not end at a misspelt workload in its last row.
//!
//! The simulator finds the mistake; the plan finds its place: in an axis, on the command line, or
//! in the scenario.

use homa_sim::experiment::validate;
use homa_sim::scenario::{Scenario, ScenarioError, Shape, Traffic};
use toml::Value;

use crate::cell::Cell;
use crate::document::Document;
use crate::error::PlanFault;
use crate::plan::{Axis, choose};
use crate::settings::{Settings, related};

/// The sources of a plan's simulations.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub document: &'a Document,
    pub changes: &'a [(String, Value)],
    pub base: &'a Settings,
    pub axes: &'a [Axis<'a>],
    /// Simulations of one combination of the axes.
    pub seeds: usize,
}

impl Origin<'_> {
    /// The first simulation that would be refused, as a mistake at a key.
    pub fn check(&self, cells: &[Cell]) -> Result<(), PlanFault> {
        let places = (0..cells.len()).step_by(self.seeds.max(1));
        for (index, place) in places.enumerate() {
            // No seed is better than another.
            if let Err(error) = validate(&cells[place].scenario) {
                return Err(self.explain(index, &cells[place], &error));
            }
        }
        Ok(())
    }

    fn explain(&self, index: usize, cell: &Cell, error: &ScenarioError) -> PlanFault {
        let keys = keys(error, &cell.scenario);
        let concerned = |name: &str| keys.iter().any(|key| related(key, name));
        // The message at a key does not name the key again.
        let message = |key: &str| {
            let named = error.at().is_some_and(|at| key == at || key.ends_with(&format!(".{at}")));
            let reason = if named { error.reason() } else { error.to_string() };
            match self.axes {
                [] => reason,
                _ => format!("{reason} (in {})", cell.label()),
            }
        };
        let given = |axis: &str| self.changes.iter().any(|(name, _)| name == axis);
        let axes = || self.axes.iter().map(|(axis, _)| *axis).filter(|axis| !given(axis));
        // Of several axes, the one that has better values.
        let mut named: Vec<&str> = axes().filter(|axis| concerned(axis)).collect();
        named.sort_by_key(|axis| !self.is_cured_by(index, axis));
        if let Some(axis) = named.first() {
            return self.document.fault(&["axes", axis], message(axis));
        }
        if let Some((name, _)) = self.changes.iter().rev().find(|(name, _)| concerned(name)) {
            let (key, message) = (name.clone(), message(name));
            return PlanFault { file: "--set".into(), line: 0, key, message };
        }
        let path = |key: &str| -> Vec<String> {
            ["scenario"].into_iter().chain(key.split('.')).map(str::to_owned).collect()
        };
        let fault = |path: &[String]| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            self.document.fault(&path, message(&path.join(".")))
        };
        if let Some(path) = keys.iter().map(|key| path(key)).find(|path| self.document.has(path)) {
            return fault(&path);
        }
        // The mistake has no line of its own, because a value contradicts an axis or the scenario.
        if let Some(axis) = axes().find(|axis| self.is_cured_by(index, axis)) {
            return self.document.fault(&["axes", axis], message(axis));
        }
        let path = keys.first().map_or_else(|| vec!["scenario".to_owned()], |key| path(key));
        fault(&path)
    }

    /// Whether another value of one axis makes the simulation one that can be run.
    fn is_cured_by(&self, index: usize, axis: &str) -> bool {
        let values = self.axes.iter().find(|(name, _)| *name == axis).map_or(&[][..], |(_, v)| v);
        values.iter().any(|value| {
            let mut settings = self.base.clone();
            let chosen = choose(self.axes, index);
            let listed = chosen.iter().map(|(name, old)| {
                (*name, if *name == axis { value.clone() } else { (*old).clone() })
            });
            let set = settings.set_all(listed).is_ok();
            set && settings.scenario().is_ok_and(|scenario| validate(&scenario).is_ok())
        })
    }
}

/// The keys of a scenario that the simulator complains about.
fn keys(error: &ScenarioError, scenario: &Scenario) -> Vec<String> {
    match error {
        ScenarioError::File { path, .. } => {
            let traffic = match &scenario.traffic {
                Traffic::AllToAll { workload, .. }
                | Traffic::ClientsServers { workload, .. }
                | Traffic::ManyToOne { workload, .. } => Some(("traffic.workload", workload)),
                Traffic::Flows { file, .. } => Some(("traffic.file", file)),
                _ => None,
            };
            let graph = match &scenario.fabric.shape {
                Shape::Graph { file, .. } => Some(("fabric.shape.file", file)),
                _ => None,
            };
            let named = traffic.into_iter().chain(graph).filter(|(_, value)| *value == path);
            named.map(|(key, _)| key.to_owned()).collect()
        }
        _ => error.at().map(listed).unwrap_or_default(),
    }
}

/// `traffic.clients and servers` are two keys of one table.
fn listed(field: &str) -> Vec<String> {
    let table = field.rsplit_once(" and ").map_or(field, |(first, _)| first);
    let table = table.split(", ").next().and_then(|first| first.rsplit_once('.'));
    let names = field.split(" and ").flat_map(|part| part.split(", "));
    let whole = |name: &str| match table {
        Some((table, _)) if !name.contains('.') => format!("{table}.{name}"),
        _ => name.to_owned(),
    };
    names.map(whole).collect()
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::plan::Plan;
    use crate::settings::assignment;

    use super::*;

    #[track_caller]
    fn assert_refused(text: &str, changes: &[&str], parts: &[&str]) {
        let changes: Vec<_> = changes.iter().map(|text| assignment(text).unwrap()).collect();
        let fault = Plan::parse(&Document::new("plan.toml", text), &changes).unwrap_err();
        let shown = fault.to_string();
        for part in parts {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn a_value_that_no_simulation_takes_is_refused_where_it_stands() {
        let text = "[scenario]\nseed = 1\n[axes]\n\"traffic.workload\" = [\"w1\", \"w9\"]\n";
        assert_refused(text, &[], &["plan.toml:4: `axes.traffic.workload`: ", "w9", "seed=1"]);
        let text = "[scenario]\nseed = 1\nscheme = \"hama\"\n";
        assert_refused(text, &[], &["plan.toml:3: `scenario.scheme`: unknown scheme `hama`"]);
        let said = "--set scheme: unknown scheme `hama`; did you mean `homa`?";
        assert_refused("", &["scheme=hama"], &[said]);
        let text = "[scenario.options]\nmtu = 100\n";
        assert_refused(text, &[], &["plan.toml:2: `scenario.options.mtu`: ", "1500 to 9000"]);
        let text = "[scenario.traffic]\npattern = \"clients-servers\"\nworkload = \"w4\"\n\
                    clients = 100\nservers = 100\n";
        assert_refused(text, &[], &["plan.toml:4: `scenario.traffic.clients`: ", "144"]);
        let text = "[axes]\n\"load.fraction\" = [0.5, 0.8]\n";
        assert_refused(text, &["load.fraction=0"], &["--set load.fraction: must be", "above 0"]);
        let text = "[scenario]\ntraffic = { pattern = \"flows\", file = \"/none.csv\" }\n";
        assert_refused(text, &[], &["plan.toml:2: `scenario.traffic.file`: /none.csv: "]);
    }

    #[test]
    fn of_several_axes_the_one_with_better_values_is_named() {
        let text = "[axes]\n\"options.overcommitment\" = [1, 2]\n\
                    \"options.levels\" = [8, 9]\n\"load.fraction\" = [0.5]\n";
        assert_refused(text, &[], &["plan.toml:3: `axes.options.levels`: "]);
        let text = "[scenario.traffic]\npattern = \"all-to-all\"\nworkload = \"w1\"\n\
                    exchange = \"echo\"\n[axes]\n\"load.fraction\" = [0.5, 0.8]\n\
                    scheme = [\"homa\", \"homa-sim\"]\n";
        assert_refused(text, &[], &["plan.toml:7: `axes.scheme`: ", "one-way messages only"]);
    }

    #[test]
    fn keys_are_told_from_the_words_of_the_simulator() {
        assert_eq!(listed("load.fraction"), ["load.fraction"]);
        assert_eq!(listed("slowdown"), ["slowdown"]);
        assert_eq!(listed("traffic.clients and servers"), ["traffic.clients", "traffic.servers"]);
        let all = ["options.levels", "options.scheduled_levels", "options.cutoffs"];
        assert_eq!(listed("options.levels, scheduled_levels and cutoffs"), all);
    }
}
