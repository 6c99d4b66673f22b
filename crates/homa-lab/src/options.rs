//! The options that schemes run with, those included that a plan leaves to their defaults: as a
//! table that a plan can hold, as comments of a resolved plan, and as rows for people.
//!
//! Schemes differ in what they do if an option is not set (a connection for each message or one for
//! each pair of hosts, thresholds, windows), and some defaults follow the network. A comparison can
//! only be judged if they are in front of the reader.

use std::collections::BTreeMap;
use std::fmt::Write;

use homa_sim::experiment::resolved;
use homa_sim::scenario::{Measures, Scenario, SchemeOptions, Span, Stop};
use toml::{Table, Value};

use crate::cell::Cell;

/// The most blocks that are written out. More are a sweep of networks, and the results of each
/// simulation have its options.
const BLOCKS: usize = 40;

/// The options that are set, by their path from the scenario, such as `options.tcp.mtu`.
pub fn listed(options: &SchemeOptions) -> Vec<(String, Value)> {
    let mut list = Vec::new();
    flatten("options", &Table::try_from(options).unwrap_or_default(), &mut list);
    list
}

fn flatten(path: &str, table: &Table, list: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let path = format!("{path}.{key}");
        match value {
            Value::Table(inner) => flatten(&path, inner, list),
            value => list.push((path, value.clone())),
        }
    }
}

/// Options of one scheme, and the simulation in which they were met first.
type Block = (String, String, SchemeOptions);

/// Different options of the same scheme are different blocks.
#[derive(Default)]
struct Blocks(Vec<Block>);

impl Blocks {
    fn add(&mut self, scheme: &str, label: &str, options: &SchemeOptions) {
        let known = self.0.iter().any(|(name, _, own)| name == scheme && own == options);
        if !known {
            self.0.push((scheme.to_owned(), label.to_owned(), options.clone()));
        }
    }

    /// As tables of a plan, one for each scheme; several of one scheme say where they hold.
    fn text(mut self) -> String {
        self.0.sort_by(|a, b| a.0.cmp(&b.0));
        let mut text = String::new();
        for (scheme, label, options) in self.0.iter().take(BLOCKS) {
            if self.0.iter().filter(|block| block.0 == *scheme).count() > 1 {
                let _ = writeln!(text, "# with {label}");
            }
            let _ = writeln!(text, "[schemes.{scheme}]");
            for (path, value) in listed(options) {
                let _ = writeln!(text, "\"{path}\" = {value}");
            }
        }
        if let more @ 1.. = self.0.len().saturating_sub(BLOCKS) {
            let _ = writeln!(text, "# and {more} more: `options` of each result has them");
        }
        text
    }
}

/// The options of finished simulations, as tables of a plan.
pub fn of_results<'a>(
    results: impl Iterator<Item = (&'a str, String, &'a SchemeOptions)>,
) -> String {
    let mut blocks = Blocks::default();
    results.for_each(|(scheme, label, options)| blocks.add(scheme, &label, options));
    blocks.text()
}

/// The options of a plan's simulations as comments that follow the plan; `seeds` is the number of
/// simulations of one combination.
pub(crate) fn comment(cells: &[Cell], seeds: usize) -> String {
    let mut blocks = Blocks::default();
    let mut known = BTreeMap::new();
    for cell in cells.iter().step_by(seeds.max(1)) {
        let scenario = &cell.scenario;
        // Nothing else decides the options, and a network takes time to build.
        let decides = Scenario {
            seed: 0,
            warm_up: Span(0),
            stop: Stop::default(),
            load: Scenario::default().load,
            measures: Measures::default(),
            ..scenario.clone()
        };
        let key = serde_json::to_string(&decides).unwrap_or_default();
        if known.insert(key, ()).is_none() {
            // A scenario that is refused here was refused before.
            for (scheme, options) in resolved(scenario).unwrap_or_default() {
                blocks.add(&scheme, &cell.label(), &options);
            }
        }
    }
    let mut comment = String::from(
        "\n# The options of each scheme, defaults included. Uncommented, they change nothing.\n",
    );
    for line in blocks.text().lines() {
        let _ = writeln!(comment, "# {line}");
    }
    comment
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::plan::Plan;

    fn parse(text: &str) -> Plan {
        Plan::parse(&Document::new("plan.toml", text), &[]).unwrap()
    }

    #[test]
    fn a_resolved_plan_has_every_option_of_its_schemes() {
        let plan =
            parse("[axes]\nscheme = [\"homa\", \"dctcp\"]\n\"load.fraction\" = [0.3, 0.5]\n");
        for said in [
            "# [schemes.dctcp]\n",
            "# \"options.tcp.connections\" = ",
            "# \"options.tcp.initial_window\" = ",
            "# \"options.ecn.threshold\" = ",
            "# [schemes.homa]\n",
            "# \"options.rtt_bytes\" = 9680\n",
        ] {
            assert_eq!(plan.resolved.matches(said).count(), 1, "{said}: {}", plan.resolved);
        }
        assert!(!plan.resolved.contains("# with "), "one network: {}", plan.resolved);
        let networks = parse("[axes]\n\"fabric.host_link\" = [\"10Gbps\", \"100Gbps\"]\n");
        for said in ["# # with fabric.host_link=10Gbps", "# \"options.rtt_bytes\" = 9680\n"] {
            assert!(networks.resolved.contains(said), "{said}: {}", networks.resolved);
        }
    }

    #[test]
    fn the_options_of_a_resolved_plan_can_be_uncommented() {
        let plan = parse("[axes]\nscheme = [\"tcp\", \"ndp\", \"hull\", \"detail\", \"pias\"]\n");
        let bare = |line: &str| line.strip_prefix("# ").unwrap_or(line).to_owned();
        let lines = plan.resolved.lines().filter(|line| !line.starts_with("# The options"));
        let text: Vec<String> = lines.map(bare).collect();
        let again = parse(&text.join("\n"));
        assert_eq!(again.cells.len(), 5);
        let tcp = again.cells[0].scenario.options.tcp.as_ref().unwrap();
        assert!(tcp.connections.is_some() && tcp.min_rto.is_some(), "{tcp:?}");
        // What they resolve to does not change.
        let comment =
            |plan: &Plan| plan.resolved.split("\n# The options").nth(1).map(str::to_owned);
        assert_eq!(comment(&plan), comment(&again));
    }
}
