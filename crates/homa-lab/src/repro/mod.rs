//! Published figures, simulated again and compared number by number.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | a figure's plan: runs, published values, tolerances, how the paper draws it |
//! | [`metric`] | which number is read from an outcome |
//! | [`limit`] | which value of an axis is the last that passes |
//! | [`computed`] | numbers that follow from rules without a simulation |
//! | [`tolerance`] | how near is near enough, and what an interval across the limit decides |
//! | [`comparison`] | ratios, reductions, orderings, and the least and the greatest of several |
//! | [`verdict`] | the verdicts |
//! | [`cause`] | why a row is outside, by the direction in which it is |
//! | `numbers` | what each number is called |
//! | [`figure`] | the paper's drawing with our curves beside the published ones |
//! | `file`, `template`, `names` | how a plan's file is read: axes, placeholders, names |
//! | `record` | what was simulated, as a file beside the results |
//!
//! The plans lie in `repro/`, a folder for each paper, and are built into the program.
//! Simulations that several plans need (Figures 10, 11, 14 and Table 1 read the same ones) run
//! once.

pub mod cause;
pub mod comparison;
pub mod computed;
pub mod figure;
mod file;
pub mod limit;
pub mod metric;
mod names;
mod numbers;
pub mod plan;
mod record;
mod template;
pub mod tolerance;
pub mod verdict;

#[cfg(test)]
mod records;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::chart::Chart;
use crate::document::Document;
use crate::embedded::{PLANS, RUN_SETS};
use crate::error::{LabError, PlanFault};
use crate::store::{Manifest, REPRO_FILE, Store, write_json};
use crate::sweep::{self, Options, Progress};
use plan::{Planned, ReproPlan};
use verdict::{Check, Results};

/// All plans, by family, then by name.
pub fn plans() -> Result<Vec<ReproPlan>, PlanFault> {
    let document = |(file, text): &(&str, &str)| Document::new(*file, *text);
    let sets: Vec<Document> = RUN_SETS.iter().map(document).collect();
    PLANS.iter().map(|plan| ReproPlan::parse(&document(plan), &sets)).collect()
}

/// The plan of a file, which may use the sets of runs that are built in and those in the folder
/// `runs` beside it.
fn plan_of(file: &Path) -> Result<ReproPlan, LabError> {
    let mut sets = Vec::new();
    let beside = file.with_file_name("runs");
    if let Ok(entries) = std::fs::read_dir(&beside) {
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        for path in paths {
            sets.push(Document::read(&path)?);
        }
    }
    sets.extend(RUN_SETS.iter().map(|(file, text)| Document::new(*file, *text)));
    Ok(ReproPlan::parse(&Document::read(file)?, &sets)?)
}

/// The plans of these ids, in the order of the paper; all when none is named. What ends in `.toml`
/// is the file of a plan that is not built in. A longer id names rows of its plan, those called so
/// or else those that begin so: only they and the simulations they read are kept. An id of no row
/// of ours (`homa-fig8-hol`) stands for its whole plan, the name of a family for all of its plans.
pub fn select(ids: &[String]) -> Result<Vec<ReproPlan>, LabError> {
    let (files, ids): (Vec<&String>, Vec<&String>) =
        ids.iter().partition(|id| id.ends_with(".toml"));
    let own = files.into_iter().map(|file| plan_of(Path::new(file)));
    let own: Vec<ReproPlan> = own.collect::<Result<_, _>>()?;
    if ids.is_empty() && !own.is_empty() {
        return Ok(own);
    }
    let mut selected = built_in(&ids)?;
    selected.extend(own);
    Ok(selected)
}

fn built_in(ids: &[&String]) -> Result<Vec<ReproPlan>, LabError> {
    let all = plans()?;
    let mut known: Vec<String> = all.iter().map(|plan| plan.id.clone()).collect();
    known.extend(all.iter().map(|plan| plan.family.clone()));
    known.dedup();
    let of = |id: &str| id.split('-').take(2).collect::<Vec<_>>().join("-");
    if let Some(id) = ids.iter().find(|id| !known.contains(&of(id))) {
        return Err(LabError::Unknown { what: "figure", name: of(id), known });
    }
    let mut selected = Vec::new();
    for mut plan in all {
        let named: Vec<&str> =
            ids.iter().map(|id| id.as_str()).filter(|id| of(id) == plan.id).collect();
        let whole = ids.contains(&&plan.family);
        if !named.is_empty() && !whole {
            plan.keep_rows(&named);
        } else if !ids.is_empty() && !whole {
            continue;
        }
        selected.push(plan);
    }
    Ok(selected)
}

/// A figure simulated again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// As `homa repro` names it.
    pub id: String,
    /// The folder of its plan: one for each paper.
    pub family: String,
    /// Processor time of its simulations, those that other figures read, too.
    pub cpu_seconds: f64,
    /// Processor time that a quick look may take.
    pub budget_seconds: Option<f64>,
    /// The title of the figure.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Choices, definitions, explanations.
    pub notes: Vec<String>,
    /// The schemes that were run; the first is compared.
    pub variants: Vec<String>,
    /// Simulations that cannot be run, and why.
    pub refused: Vec<String>,
    /// Shorter runs than the comparison deserves.
    pub quick: bool,
    /// The comparison.
    pub checks: Vec<Check>,
    /// The drawings.
    pub charts: Vec<Chart>,
}

/// Numbers of a figure or of a paper, by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// Within their tolerance.
    pub within: usize,
    /// Outside it.
    pub outside: usize,
    /// The sample is too small to decide.
    pub undecided: usize,
    /// The publication does not say enough to decide.
    pub undecidable: usize,
    /// Without a verdict.
    pub reported: usize,
}

impl VerdictCounts {
    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.within += other.within;
        self.outside += other.outside;
        self.undecided += other.undecided;
        self.undecidable += other.undecidable;
        self.reported += other.reported;
    }
}

/// A figure's numbers as `homa repro --format json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Numbers<'a> {
    id: &'a str,
    checks: Vec<Compared<'a>>,
}

/// One of the [`Numbers`].
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Compared<'a> {
    metric: &'a str,
    published: Option<f64>,
    measured: Option<f64>,
    tolerance: Option<String>,
    pass: Option<bool>,
    undecidable: Option<&'a str>,
}

impl Reproduction {
    /// Its numbers beside the published ones.
    pub fn numbers(&self) -> Numbers<'_> {
        let checks = self.checks.iter().map(|check| Compared {
            metric: &check.metric,
            published: check.published,
            measured: check.measured,
            tolerance: check.tolerance.map(|tolerance| tolerance.to_string()),
            pass: check.pass,
            undecidable: check.undecidable.as_deref(),
        });
        Numbers { id: &self.id, checks: checks.collect() }
    }

    /// Counts of verdicts.
    pub fn tally(&self) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        for check in &self.checks {
            *match check.pass {
                Some(true) => &mut counts.within,
                Some(false) => &mut counts.outside,
                None if check.gates() => &mut counts.undecided,
                None if check.undecidable.is_some() => &mut counts.undecidable,
                None => &mut counts.reported,
            } += 1;
        }
        counts
    }

    /// True when a check failed; in a full run also when one is undecided.
    pub fn failed(&self) -> bool {
        self.checks.iter().any(|check| match check.pass {
            Some(passed) => !passed,
            None => !self.quick && check.gates(),
        })
    }
}

/// The options of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Figures and rows as [`select`] was given them; none: all.
    pub ids: Vec<String>,
    /// Short runs.
    pub quick: bool,
    /// Without the schemes that are only shown beside the compared one.
    pub compared: bool,
}

impl How {
    /// The command that asks for the same.
    pub fn command(&self) -> String {
        let flags = [(self.quick, "--quick"), (self.compared, "--compared")];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag);
        let ids = self.ids.iter().map(String::as_str);
        ["homa", "repro"].into_iter().chain(ids).chain(flags).collect::<Vec<_>>().join(" ")
    }
}

/// Runs the plans' simulations, each once, and compares. Results go to `store`, and are found
/// there. The plans are those that `how` names.
pub fn run(
    plans: &[ReproPlan],
    how: &How,
    store: &Store,
    options: &Options,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<Reproduction>, LabError> {
    let quick = how.quick;
    let mut planned = Vec::new();
    for plan in plans {
        let cells = plan
            .expand(quick)
            .map_err(|(_, reason)| LabError::result(Path::new(&plan.id), reason))?;
        planned.push(cells);
    }
    let cells: Vec<Cell> = planned.iter().flatten().map(|planned| planned.cell.clone()).collect();
    let title = if quick { "Reproductions, quick" } else { "Reproductions" };
    let manifest = Manifest::new(title, &options.program, &cells);
    let every: Vec<&Planned> = planned.iter().flatten().collect();
    store.describe(&manifest, REPRO_FILE, &record::record(&every, how, &options.program)?)?;
    record::forget_old(store)?;
    let refused = sweep::run(&cells, store, options, show)?;
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let mut reproductions = Vec::new();
    for (plan, planned) in plans.iter().zip(planned) {
        let results = Results::read(&planned, store, &options.program)?;
        reproductions.push(Reproduction {
            id: plan.id.clone(),
            family: plan.family.clone(),
            cpu_seconds: results.cpu_seconds(),
            budget_seconds: plan.budget.map(|budget| budget.as_secs_f64()),
            title: plan.title.clone(),
            source: plan.source.clone(),
            notes: plan.notes.clone(),
            variants: plan.shown(),
            refused: refused.iter().filter(|text| text.contains(&plan.id)).cloned().collect(),
            quick,
            checks: verdict::checks(plan, &results, quick),
            charts: figure::charts(plan, &results),
        });
    }
    sweep::tabulate(store, &manifest)?;
    write_json(&store.root().join("checks.json"), &reproductions)?;
    Ok(reproductions)
}
