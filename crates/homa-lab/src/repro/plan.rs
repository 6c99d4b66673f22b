//! The plan of one published figure or table: what to simulate, what was published, how near is
//! near enough, and how the paper draws it.
//!
//! ```toml
//! id = "homa-fig10"
//! title = "Tail latency by message size"
//! source = "Homa §5.2 Figure 10"
//! budget = "10m"                  # processor time of a quick look
//! use = "homa-144"                # the runs of repro/homa/runs/homa-144.toml, those that are read
//! variants = ["homa-sim", "k4"]   # schemes or `variant`s; the first is compared
//!
//! [[variant]]                     # a scheme with settings of its own
//! name = "k4"
//! scheme = "homa"
//! set = { "options.overcommitment" = 4 }
//!
//! [scenario]                      # as in any plan; what the plan's own runs have in common
//! stop = { messages = 1_000_000 }
//!
//! [quick]                         # changes for all of them under `--quick`
//! "stop.messages" = 100_000
//!
//! [axes]
//! w = ["w2", "w4"]
//!
//! [[run]]                         # two runs, see [`super::template`]
//! each = ["w"]
//! name = "{w}-cut"
//! like = "{w}"                    # begins as another run
//! set = { "stop.ending" = "cut" }
//!
//! [[check]]
//! row = "homa-fig10-w2-homa"
//! run = "w2"
//! report = ["p50@10,50"]          # shown without a verdict
//! cause.above = "too short a run"  # why it is outside, by direction; see [`super::cause`]
//! [check.points]
//! "p99@50" = [1.90, "10%"]        # metric = [published, tolerance, "full-only", "grows"]
//!
//! [[figure]]
//! kind = "slowdown"
//! title = "W2, 80 % load"
//! runs = ["w2"]
//!
//! [[curve]]                       # a published curve
//! figure = "W2, 80 % load"
//! name = "Homa, published"
//! points = [[50, 1.899]]
//! ```
//!
//! A run may vary along one `axis = { key = "load.fraction", values = [0.5, 0.8] }`; a check then
//! says `at` which value it reads, or uses a metric of the whole axis such as `max_goodput`.
//!
//! A check compares what it reads: `over = "w4"` is the quotient by another run, `reduction =
//! { variant = "dctcp" }` by how many per cent it is below, `ordering = [{ variant = "hull" },
//! { variant = "dctcp" }]` that each side is below the next at every point, and `least` and
//! `greatest` are the least and the greatest number of such sides, for the ends of a published
//! range.

use std::collections::BTreeSet;
use std::time::Duration;

use homa_sim::scenario::{Diverging, Scenario};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::cause::Cause;
use super::comparison::{Compare, Side};
use super::metric::Metric;
use super::tolerance::Tolerance;
use super::{file, names};
use crate::cell::Cell;
use crate::document::Document;
use crate::error::PlanFault;
use crate::settings::{Settings, label};

/// A figure's or table's plan.
#[derive(Clone, Debug)]
pub struct ReproPlan {
    /// The folder it lies in: one for each paper.
    pub family: String,
    /// The first two dash-separated parts of its rows' ids.
    pub id: String,
    /// The title of the figure.
    pub title: String,
    /// Publication, and the source of its values.
    pub source: String,
    /// Choices among disagreeing sources and their reasons; definitions; explained deviations.
    pub notes: Vec<String>,
    /// Processor time that a quick look may take.
    pub budget: Option<Duration>,
    /// Schemes and variants to run; the first is compared with the published values.
    pub variants: Vec<String>,
    /// Variants that are more than the name of a scheme.
    pub named: Vec<Variant>,
    /// The simulations.
    pub runs: Vec<Run>,
    /// The published values.
    pub checks: Vec<Check>,
    /// How to draw it.
    pub figures: Vec<Figure>,
}

/// A scheme with separate settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// As plans and readers name it.
    pub name: String,
    /// The scheme.
    pub scheme: String,
    /// Changes of the scenario, before those of the run.
    #[serde(default)]
    pub set: Table,
}

/// Simulations that differ in scheme, seed and at most one axis.
#[derive(Clone, Debug)]
pub struct Run {
    /// As checks and figures name it.
    pub name: String,
    /// As readers see it; absent: the name.
    pub title: Option<String>,
    /// The scenario before changes.
    pub base: Scenario,
    /// Changes of the scenario, one after the other.
    pub set: Vec<Table>,
    /// Further changes for a quick look.
    pub quick: Vec<Table>,
    /// Seeds; several are pooled.
    pub seeds: Option<Vec<u64>>,
    /// Seeds of a quick look.
    pub quick_seeds: Option<Vec<u64>>,
    /// Schemes, when not the plan's.
    pub variants: Option<Vec<String>>,
    /// The key that varies.
    pub axis: Option<Axis>,
    /// Place among the file's runs; `None` for those of a shared set.
    pub place: Option<usize>,
}

impl Run {
    /// Without a name, and as the file's other runs begin.
    pub(super) fn new(base: &Scenario, quick: &Table) -> Self {
        Self {
            name: String::new(),
            title: None,
            base: base.clone(),
            set: Vec::new(),
            quick: vec![quick.clone()],
            seeds: None,
            quick_seeds: None,
            variants: None,
            axis: None,
            place: None,
        }
    }
}

/// A key that takes several values within one run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The key, a path from the scenario.
    pub key: String,
    /// Its values, numbers in ascending order.
    pub values: Vec<Value>,
    /// Its values in a quick look.
    pub quick: Option<Vec<Value>>,
}

/// Published values of one row.
#[derive(Clone, Debug)]
pub struct Check {
    /// The id of the row.
    pub row: String,
    /// How binding it is.
    pub class: Class,
    /// The run that is read; none when all is computed.
    pub run: Option<String>,
    /// The scheme or variant that is read; absent: the first.
    pub variant: Option<String>,
    /// The value of the run's axis.
    pub at: Option<f64>,
    /// The other side of the comparison.
    pub compare: Compare,
    /// Sides of an ordering, `least` and `greatest` count by how many per cent they are below this
    /// variant.
    pub below: Option<String>,
    /// The numbers.
    pub points: Vec<Point>,
    /// Why the publication cannot decide it: it gets no verdict then.
    pub undecidable: Option<String>,
    /// Why it is outside, if that is known.
    pub cause: Option<Cause>,
    /// Place among the file's checks.
    pub place: usize,
}

impl Check {
    /// The other sides of its comparison.
    pub fn sides(&self) -> &[Side] {
        self.compare.sides()
    }
}

/// How binding a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// A numeric gate.
    #[default]
    A,
    /// A ratio, an ordering or a shape.
    B,
    /// For information: hosts, kernels or switches decide it.
    C,
}

/// A number and its published value.
#[derive(Clone, Debug)]
pub struct Point {
    /// The metric that is read.
    pub metric: Metric,
    /// A label beside the metric.
    pub label: Option<String>,
    /// The published value; absent: only reported.
    pub published: Option<f64>,
    /// How near is near enough; absent: only reported.
    pub tolerance: Option<Tolerance>,
    /// The value grows with the length of the run (maxima), so a quick look that finds too little
    /// decides nothing.
    pub grows: bool,
    /// Short runs say nothing about it: a quick look reports it without a verdict.
    pub full_only: bool,
}

impl Point {
    /// A number that is only reported.
    pub const fn of(metric: Metric) -> Self {
        let (label, published, tolerance) = (None, None, None);
        Self { metric, label, published, tolerance, grows: false, full_only: false }
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of what kind.
    pub kind: FigureKind,
    /// Above it.
    pub title: String,
    /// Beside its vertical axis.
    pub y_label: Option<String>,
    /// Beside its horizontal axis.
    pub x_label: Option<String>,
    /// The metric that is drawn: `p99` or `p50` for slowdowns, any metric for curves.
    pub metric: Option<Metric>,
    /// Of slowdowns: each receiver's own p99, averaged, instead of that of all messages.
    pub by_receiver: bool,
    /// For curves, the metric along the horizontal axis; absent: the runs' own axis.
    pub x_metric: Option<Metric>,
    /// The runs it shows.
    pub runs: Vec<String>,
    /// The rows it shows, for bars; `*` stands for anything.
    pub rows: Vec<String>,
    /// Published curves.
    pub published: Vec<Curve>,
    /// Draw only the first scheme.
    pub first_only: bool,
    /// Place among the file's figures.
    pub place: usize,
}

/// Kinds of drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Slowdown by message size, the horizontal axis linear in messages (Homa Figures 8, 10).
    Slowdown,
    /// A metric along a run's axis (Homa Figures 9, 13).
    Curve,
    /// The points of rows side by side (Homa Figures 11, 12, 14, Table 1).
    Bars,
}

/// A published curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// Horizontal and vertical value; slowdown figures count percent of messages.
    pub points: Vec<[f64; 2]>,
}

/// One simulation of a plan, and which it is.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Place of the run in the plan.
    pub run: usize,
    /// The scheme.
    pub variant: String,
    /// The value of the axis.
    pub at: Option<f64>,
    /// The simulation.
    pub cell: Cell,
}

impl ReproPlan {
    /// Understands a plan; every name in it must be the name of something.
    pub fn parse(document: &Document, sets: &[Document]) -> Result<Self, PlanFault> {
        let mut plan = file::read(document, sets)?;
        names::check(&mut plan, document)?;
        for quick in [false, true] {
            plan.expand(quick).map_err(|(run, message)| match plan.runs[run].place {
                Some(place) => document.fault(&["run", &place.to_string()], message),
                None => {
                    document.fault(&["use"], format!("run `{}`: {message}", plan.runs[run].name))
                }
            })?;
        }
        Ok(plan)
    }

    /// The runs that checks and drawings name, and those of the plan's own.
    pub fn read_runs(&self) -> impl Iterator<Item = &str> {
        let checks = self
            .checks
            .iter()
            .flat_map(|check| check.run.iter().chain(check.sides().iter().map(|side| &side.run)));
        checks.chain(self.figures.iter().flat_map(|figure| &figure.runs)).map(String::as_str)
    }

    /// The schemes that some run has, in the plan's order; the first, which is compared, always.
    pub fn shown(&self) -> Vec<String> {
        let has = |scheme: &String| {
            self.runs
                .iter()
                .any(|run| run.variants.as_ref().unwrap_or(&self.variants).contains(scheme))
        };
        let schemes = self.variants.iter().enumerate();
        let shown = schemes.filter(|(place, scheme)| *place == 0 || has(scheme));
        shown.map(|(_, scheme)| scheme.clone()).collect()
    }

    /// Leaves out the schemes that are only shown beside those that are compared.
    pub fn keep_compared(&mut self) {
        let checks = self.checks.iter();
        let named = checks.flat_map(|check| {
            check
                .variant
                .iter()
                .chain(&check.below)
                .chain(check.sides().iter().filter_map(|side| side.variant.as_ref()))
        });
        let named: BTreeSet<String> = named.cloned().collect();
        let keep = |variants: &mut Vec<String>| {
            let first = variants.first().cloned();
            variants.retain(|variant| Some(variant) == first.as_ref() || named.contains(variant));
        };
        keep(&mut self.variants);
        self.runs.iter_mut().filter_map(|run| run.variants.as_mut()).for_each(keep);
    }

    /// Leaves out all rows but those of these names, and what only the others read. A name that
    /// is no row's stands for the rows that begin with it, and for all when none does.
    pub fn keep_rows(&mut self, names: &[&str]) {
        let mut rows = BTreeSet::new();
        for name in names {
            let beginning = format!("{name}-");
            let all = || self.checks.iter().map(|check| check.row.clone());
            let exact: Vec<String> = all().filter(|row| row == name).collect();
            let begun: Vec<String> = all().filter(|row| row.starts_with(&beginning)).collect();
            if *name == self.id || (exact.is_empty() && begun.is_empty()) {
                return;
            }
            rows.extend(if exact.is_empty() { begun } else { exact });
        }
        self.checks.retain(|check| rows.contains(&check.row));
        let read = self
            .checks
            .iter()
            .flat_map(|check| check.run.iter().chain(check.sides().iter().map(|side| &side.run)));
        let runs: BTreeSet<String> = read.cloned().collect();
        self.runs.retain(|run| runs.contains(&run.name));
        for figure in &mut self.figures {
            figure.runs.retain(|run| runs.contains(run));
            figure.rows.retain(|row| rows.contains(row));
        }
        self.figures.retain(|figure| match figure.kind {
            FigureKind::Bars => drawn(&self.checks, figure).next().is_some(),
            _ => !figure.runs.is_empty(),
        });
    }

    /// All its simulations; an error names the place of its run.
    pub fn expand(&self, quick: bool) -> Result<Vec<Planned>, (usize, String)> {
        let mut planned = Vec::new();
        for (place, run) in self.runs.iter().enumerate() {
            for variant in run.variants.as_ref().unwrap_or(&self.variants) {
                self.expand_run(place, variant, quick, &mut planned).map_err(|m| (place, m))?;
            }
        }
        Ok(planned)
    }

    fn expand_run(
        &self,
        place: usize,
        variant: &str,
        quick: bool,
        planned: &mut Vec<Planned>,
    ) -> Result<(), String> {
        let run = &self.runs[place];
        let named = self.named.iter().find(|named| named.name == variant);
        let scheme = named.map_or(variant, |named| &named.scheme);
        let base = Scenario { scheme: scheme.to_owned(), ..run.base.clone() };
        let mut settings = Settings::of(&base)?;
        let own = named.map(|named| &named.set);
        let quick_changes = run.quick.iter().filter(|_| quick);
        for layer in own.into_iter().chain(&run.set).chain(quick_changes) {
            let changes = layer.iter().map(|(path, value)| (path.as_str(), value.clone()));
            settings.set_all(changes).map_err(|(path, message)| format!("{path}: {message}"))?;
        }
        let values = run.axis.as_ref().map_or(vec![None], |axis| axis.choices(quick));
        let seeds = if quick {
            run.quick_seeds.as_ref().or(run.seeds.as_ref())
        } else {
            run.seeds.as_ref()
        };
        for value in values {
            let mut settings = settings.clone();
            let mut axes =
                vec![("figure".to_owned(), self.id.clone()), ("run".to_owned(), run.name.clone())];
            if let (Some(axis), Some(value)) = (&run.axis, value) {
                settings.set(&axis.key, value.clone())?;
                axes.push((axis.key.clone(), label(value)));
            }
            let scenario = settings.scenario()?;
            for &seed in seeds.map_or(&[scenario.seed][..], Vec::as_slice) {
                let mut scenario = Scenario { seed, ..scenario.clone() };
                // Published runs last as long as they were published.
                scenario.stop.diverging = Diverging::Continue;
                let cell = Cell { axes: axes.clone(), scenario };
                let (variant, at) = (variant.to_owned(), value.and_then(number));
                planned.push(Planned { run: place, variant, at, cell });
            }
        }
        Ok(())
    }

    /// The run of that name.
    pub fn run(&self, name: &str) -> Option<(usize, &Run)> {
        self.runs.iter().enumerate().find(|(_, run)| run.name == name)
    }
}

/// The points that bars show: those of the figure's rows, in its order, that it reads.
pub fn drawn<'a>(
    checks: &'a [Check],
    figure: &'a Figure,
) -> impl Iterator<Item = (&'a Check, &'a Point)> {
    let rows = figure.rows.iter().filter_map(|row| checks.iter().find(|c| c.row == *row));
    rows.flat_map(|row| row.points.iter().map(move |point| (row, point)))
        .filter(|(_, point)| figure.metric.as_ref().is_none_or(|metric| *metric == point.metric))
}

impl Axis {
    fn choices(&self, quick: bool) -> Vec<Option<&Value>> {
        let values = self.quick.as_ref().filter(|_| quick).unwrap_or(&self.values);
        values.iter().map(Some).collect()
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|value| value as f64))
}
