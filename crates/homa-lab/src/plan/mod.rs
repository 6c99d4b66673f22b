//! A plan: one scenario, the axes along which it varies, and the seeds.
//!
//! ```toml
//! title = "What load does to W3"
//! seeds = [1, 2, 3]
//!
//! [scenario]
//! scheme = "homa"
//! traffic = { pattern = "all-to-all", workload = "w3" }
//!
//! [axes]
//! "load.fraction" = [0.5, 0.8]
//! "options.overcommitment" = [2, 4]
//! ```
//!
//! Schemes may differ in their settings, which come before those of the axes:
//!
//! ```toml
//! [axes]
//! scheme = ["homa-paper", "homa"]
//!
//! [schemes.homa]
//! "options.mtu" = 4000
//! ```
//!
//! Every combination of axis values runs once per seed: twelve simulations in the first example.
//! Keys that are not given keep the defaults of [`Scenario`]. All simulations are checked before
//! any runs.

use std::path::Path;

use homa_sim::scenario::Scenario;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::anchored::anchored;
use crate::cell::Cell;
use crate::changes::changed;
use crate::document::Document;
use crate::error::{LabError, PlanFault};
use crate::options;
use crate::refusal::Origin;
use crate::settings::{Settings, label, related, unknown_scheme};

/// Most simulations of one plan: more is a mistake in an axis.
const MAX_CELLS: usize = 1_000_000;

/// The key of the scenario that `seeds` varies.
const SEED: &str = "seed";

/// The default pattern if a plan gives only some keys of the traffic.
const PATTERN: (&str, &str) = ("pattern", "all-to-all");

/// What a file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    title: String,
    seeds: Option<Vec<u64>>,
    #[serde(default)]
    scenario: Scenario,
    #[serde(default)]
    axes: Table,
    #[serde(default)]
    schemes: Table,
}

/// A plan, with all its simulations written out.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// For people.
    pub title: String,
    /// The simulations: the last axis varies fastest, then the seed.
    pub cells: Vec<Cell>,
    /// The plan with every default written out; the same simulations again. Options that schemes
    /// choose themselves follow as comments.
    pub resolved: String,
}

#[derive(Serialize)]
struct Resolved<'a> {
    title: &'a str,
    seeds: &'a [u64],
    scenario: &'a Table,
    axes: &'a Table,
    #[serde(skip_serializing_if = "Table::is_empty")]
    schemes: &'a Table,
}

impl Plan {
    /// Reads a plan; `changes` of the command line (`--set`) replace what the file says: the
    /// seeds and the values of an axis too.
    pub fn read(path: &Path, changes: &[(String, Value)]) -> Result<Self, LabError> {
        Ok(Self::parse(&Document::read(path)?, changes)?)
    }

    /// Understands a plan.
    pub fn parse(document: &Document, changes: &[(String, Value)]) -> Result<Self, PlanFault> {
        let file: File = document.parse_with(&["scenario", "traffic"], PATTERN)?;
        if i64::try_from(file.scenario.seed).is_err() {
            let message = format!(
                "whole numbers of a scenario end at {}: `seeds` at the top of the plan takes any \
                 of 64 bits",
                i64::MAX
            );
            return Err(document.fault(&["scenario", "seed"], message));
        }
        let base = changed(&file.scenario, changes)?;
        let listed = replaced(&file.axes, document, changes)?;
        let axes = axes(document, &listed)?;
        if let Some((name, message)) = unknown_scheme(&file.schemes) {
            return Err(document.fault(&["schemes", name], message));
        }
        let seeds = match &file.seeds {
            Some(seeds) if seeds.is_empty() => {
                return Err(document.fault(&["seeds"], "needs at least one seed"));
            }
            Some(seeds) if !changes.iter().any(|(key, _)| key == SEED) => seeds.clone(),
            _ => vec![base.scenario().map_err(|m| document.fault(&["scenario"], m))?.seed],
        };
        let combinations: usize = axes.iter().map(|(_, values)| values.len()).product();
        if combinations.saturating_mul(seeds.len()) > MAX_CELLS {
            return Err(document.fault(&["axes"], format!("make more than {MAX_CELLS} cells")));
        }
        let mut cells = Vec::new();
        for index in 0..combinations {
            let chosen = choose(&axes, index);
            let scenario = combine(document, &base, (&chosen, &file.schemes))?;
            // Bytes and counts are numbers, however the plan writes them.
            let written = Settings::of(&scenario).ok();
            let shown = |(axis, value): &(&str, &Value)| {
                let number = written.as_ref().and_then(|written| written.get(axis));
                let number = number.filter(|number| number.is_integer());
                ((*axis).to_owned(), label(number.unwrap_or(value)))
            };
            let axes: Vec<(String, String)> = chosen.iter().map(shown).collect();
            for &seed in &seeds {
                let scenario = Scenario { seed, ..scenario.clone() };
                cells.push(Cell { axes: axes.clone(), scenario });
            }
        }
        if let Some(twice) = twice(&seeds) {
            let message = format!("{twice} stands there twice: equal seeds give equal results");
            return Err(document.fault(&["seeds"], message));
        }
        let (base, axes, seeds) = (&base, axes.as_slice(), seeds.as_slice());
        Origin { document, changes, base, axes, seeds: seeds.len() }.check(&cells)?;
        let (scenario, axes) = (&anchored(base.table()), &anchored(&listed));
        let schemes = &anchored(&file.schemes);
        let resolved = Resolved { title: &file.title, seeds, scenario, axes, schemes };
        let resolved =
            toml::to_string(&resolved).map_err(|error| document.fault(&[], error.to_string()))?;
        let resolved = resolved + &options::comment(&cells, seeds.len());
        Ok(Self { title: file.title, cells, resolved })
    }
}

impl Plan {
    /// A plan of one simulation, checked like any other; a mistake is one of the `changes` that led
    /// to these settings, or their going together.
    pub fn single(settings: &Settings, changes: &[(String, Value)]) -> Result<Self, PlanFault> {
        let document = Document::new("the scenario", String::new());
        let scenario = settings.scenario().map_err(|message| document.fault(&[], message))?;
        let resolved = Resolved {
            title: "",
            seeds: &[scenario.seed],
            scenario: &anchored(settings.table()),
            axes: &Table::new(),
            schemes: &Table::new(),
        };
        let resolved = toml::to_string(&resolved);
        let resolved = resolved.map_err(|error| document.fault(&[], error.to_string()))?;
        let cells = vec![Cell { axes: Vec::new(), scenario }];
        let (document, base) = (&document, settings);
        let origin = Origin { document, changes, base, axes: &[], seeds: 1 };
        origin.check(&cells).map_err(|fault| {
            // There is no file that has the keys in a table `scenario`.
            let key = fault.key.strip_prefix("scenario").unwrap_or(&fault.key);
            PlanFault { key: key.trim_start_matches('.').to_owned(), ..fault }
        })?;
        let resolved = resolved + &options::comment(&cells, 1);
        Ok(Self { title: String::new(), cells, resolved })
    }
}

/// A key and its values.
pub(crate) type Axis<'a> = (&'a str, &'a [Value]);

/// The axes after the command line: a key that it gives has one value.
fn replaced(
    axes: &Table,
    document: &Document,
    changes: &[(String, Value)],
) -> Result<Table, PlanFault> {
    let mut axes = axes.clone();
    for (key, value) in changes {
        if let Some(values) = axes.get_mut(key) {
            *values = Value::Array(vec![value.clone()]);
        } else if let Some(axis) = axes.keys().find(|axis| related(axis, key)) {
            let message = format!(
                "is decided by the axis `{axis}` of {}: change it there, or give `{axis}`",
                document.file()
            );
            return Err(PlanFault { file: "--set".into(), line: 0, key: key.clone(), message });
        }
    }
    Ok(axes)
}

fn axes<'a>(document: &Document, table: &'a Table) -> Result<Vec<Axis<'a>>, PlanFault> {
    let axis = |(key, value): (&'a String, &'a Value)| match value {
        _ if key == SEED => {
            let message = "seeds are no axis: use `seeds` at the top of the plan: [1, 2, 3]";
            Err(document.fault(&["axes", key], message))
        }
        Value::Array(values) if !values.is_empty() => match twice(values) {
            None => Ok((key.as_str(), values.as_slice())),
            Some(value) => {
                let message = format!("{value} stands there twice: give each value once");
                Err(document.fault(&["axes", key], message))
            }
        },
        Value::Table(inner) if inner.values().any(Value::is_array) => {
            let path = format!("{key}.{}", inner.keys().next().map_or("", String::as_str));
            let message = format!("a path with dots is quoted: \"{path}\" = [0.5, 0.8]");
            Err(document.fault(&["axes", key], message))
        }
        _ => Err(document.fault(&["axes", key], "an axis is a list of values: [0.5, 0.8]")),
    };
    table.iter().map(axis).collect()
}

/// The first value that comes a second time.
fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)).map(|(_, v)| v)
}

/// The combination of number `index`: the last axis varies fastest.
pub(crate) fn choose<'a>(axes: &[Axis<'a>], mut index: usize) -> Vec<(&'a str, &'a Value)> {
    let mut chosen = Vec::new();
    for (axis, values) in axes.iter().rev() {
        chosen.push((*axis, &values[index % values.len()]));
        index /= values.len();
    }
    chosen.reverse();
    chosen
}

fn combine(
    document: &Document,
    base: &Settings,
    (chosen, schemes): (&[(&str, &Value)], &Table),
) -> Result<Scenario, PlanFault> {
    let mut settings = base.clone();
    for (_, scheme) in chosen.iter().filter(|(path, _)| *path == "scheme") {
        let set = settings.set("scheme", (*scheme).clone());
        set.map_err(|message| document.fault(&["axes", "scheme"], message))?;
    }
    let set = settings.set_for_scheme(schemes);
    set.map_err(|(path, message)| document.fault(&["schemes", &path], message))?;
    let base = settings.clone();
    let listed = chosen.iter().map(|(path, value)| (*path, (*value).clone()));
    settings.set_all(listed).map_err(|(path, m)| document.fault(&["axes", &path], m))?;
    settings.scenario().map_err(|message| {
        // Which of the axes is at fault shows when each stands alone.
        let culprit = chosen.iter().find(|(path, value)| {
            let mut alone = base.clone();
            alone.set(path, (*value).clone()).is_err() || alone.scenario().is_err()
        });
        let axis = culprit.or(chosen.last()).map_or("", |(path, _)| path);
        document.fault(&["axes", axis], message)
    })
}

#[cfg(test)]
mod tests;
