//! The plan of one published figure or table: what to simulate, what was published, how near is
//! near enough, and how the paper draws it.
//!
//! ```toml
//! id = "homa-fig10"
//! title = "Tail latency by message size"
//! source = "Homa §5.2 Figure 10"
//! notes = ["W2 uses five unscheduled levels, as the authors' code; Figure 4 shows six."]
//! variants = ["homa-sim", "homa-paper", "homa"]   # schemes; the first is compared
//!
//! [scenario]                      # as in any plan; what runs have in common
//! stop = { messages = 1_000_000 }
//!
//! [quick]                         # changes for all runs under `--quick`
//! "stop.messages" = 100_000
//!
//! [[run]]
//! name = "w2"
//! set = { "traffic.workload" = "w2" }
//!
//! [[check]]
//! row = "homa-fig10-w2-homa"
//! run = "w2"
//! points = [{ metric = "p99@50", published = 1.90, tolerance = "10%" }]
//!
//! [[figure]]
//! kind = "slowdown"
//! title = "W2, 80 % load"
//! metric = "p99"
//! runs = ["w2"]
//! published = [{ name = "Homa, published", points = [[50, 1.899]] }]
//! ```
//!
//! A run may vary along one `axis = { key = "load.fraction", values = [0.5, 0.8] }`; a check then
//! says `at` which value it reads, or uses a metric of the whole axis such as `max_goodput`.

use std::collections::BTreeSet;

use homa_sim::scenario::Scenario;
use homa_sim::scheme;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::metric::{Metric, Rank};
use super::tolerance::Tolerance;
use crate::cell::Cell;
use crate::document::Document;
use crate::error::PlanFault;
use crate::settings::{Settings, label};

/// A figure's or table's plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReproPlan {
    /// The first two dash-separated parts of its rows' ids.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// Where it was published, and whence its values.
    pub source: String,
    /// Choices among disagreeing sources and their reasons; definitions; explained deviations.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Schemes to run; the first is compared with what was published.
    #[serde(default = "homa_variants")]
    pub variants: Vec<String>,
    /// What all runs have in common.
    #[serde(default)]
    pub scenario: Scenario,
    /// Changes of all runs for a quick look.
    #[serde(default)]
    pub quick: Table,
    /// The simulations.
    #[serde(default, rename = "run")]
    pub runs: Vec<Run>,
    /// The published values.
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
    /// How to draw it.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

fn homa_variants() -> Vec<String> {
    ["homa-sim", "homa-paper", "homa"].map(String::from).to_vec()
}

/// Simulations that differ in scheme, seed and at most one axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// As checks and figures name it.
    pub name: String,
    /// As readers see it; absent: the name.
    pub title: Option<String>,
    /// Changes of the scenario.
    #[serde(default)]
    pub set: Table,
    /// Further changes for a quick look.
    #[serde(default)]
    pub quick: Table,
    /// Seeds; several are pooled.
    pub seeds: Option<Vec<u64>>,
    /// Seeds of a quick look.
    pub quick_seeds: Option<Vec<u64>>,
    /// Schemes, when not the plan's.
    pub variants: Option<Vec<String>>,
    /// What varies.
    pub axis: Option<Axis>,
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The id of the row.
    pub row: String,
    /// How binding it is.
    #[serde(default)]
    pub class: Class,
    /// The run that is read; none when all is computed.
    pub run: Option<String>,
    /// The run by whose value, under the plan's first scheme, the measured one is divided.
    pub over: Option<String>,
    /// The scheme that is read; absent: the first.
    pub variant: Option<String>,
    /// The value of the run's axis.
    pub at: Option<f64>,
    /// The numbers.
    pub points: Vec<Point>,
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

/// A number and what was published for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// What is read.
    pub metric: Metric,
    /// What readers see beside the metric.
    pub label: Option<String>,
    /// What was published; absent: only reported.
    pub published: Option<f64>,
    /// How near is near enough; absent: only reported.
    pub tolerance: Option<Tolerance>,
    /// The value grows with the length of the run (maxima), so a quick look that finds too little
    /// decides nothing.
    #[serde(default)]
    pub grows: bool,
    /// Short runs say nothing about it: a quick look reports it without a verdict.
    #[serde(default)]
    pub full_only: bool,
}

/// A drawing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Of what kind.
    pub kind: FigureKind,
    /// Above it.
    pub title: String,
    /// Beside its vertical axis.
    pub y_label: Option<String>,
    /// Beside its horizontal axis.
    pub x_label: Option<String>,
    /// What is drawn: `p99` or `p50` for slowdowns, any metric for curves.
    pub metric: Option<Metric>,
    /// Of slowdowns: each receiver's own p99, averaged, instead of that of all messages.
    #[serde(default)]
    pub by_receiver: bool,
    /// Of curves: what is read along the horizontal axis; absent: the runs' own axis.
    pub x_metric: Option<Metric>,
    /// The runs it shows.
    #[serde(default)]
    pub runs: Vec<String>,
    /// The rows it shows, for bars.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Published curves.
    #[serde(default)]
    pub published: Vec<Curve>,
    /// Draw only the first scheme.
    #[serde(default)]
    pub first_only: bool,
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
    pub fn parse(document: &Document) -> Result<Self, PlanFault> {
        let plan: Self = document.parse()?;
        plan.check_names(document)?;
        for quick in [false, true] {
            plan.expand(quick)
                .map_err(|(run, message)| document.fault(&["run", &run.to_string()], message))?;
        }
        Ok(plan)
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

    /// Leaves out the schemes that are only shown beside the one that is compared.
    pub fn keep_compared(&mut self) {
        self.variants.truncate(1);
        for variants in self.runs.iter_mut().filter_map(|run| run.variants.as_mut()) {
            variants.truncate(1);
        }
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
        let read = self.checks.iter().flat_map(|check| [&check.run, &check.over]).flatten();
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
        let base = Scenario { scheme: variant.to_owned(), ..self.scenario.clone() };
        let mut settings = Settings::of(&base)?;
        let mut layers = vec![&run.set];
        if quick {
            layers.extend([&self.quick, &run.quick]);
        }
        for layer in layers {
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
                let scenario = Scenario { seed, ..scenario.clone() };
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

    fn check_names(&self, document: &Document) -> Result<(), PlanFault> {
        let known: Vec<&str> = scheme::SCHEMES.iter().map(|scheme| scheme.name).collect();
        let unknown =
            |variants: &[String]| variants.iter().find(|v| scheme::find(v).is_none()).cloned();
        if let Some(name) = unknown(&self.variants) {
            let message = format!("unknown scheme `{name}`; allowed: {}", known.join(", "));
            return Err(document.fault(&["variants"], message));
        }
        let mut names = BTreeSet::new();
        for (place, run) in self.runs.iter().enumerate() {
            let at = place.to_string();
            if !names.insert(run.name.as_str()) {
                return Err(document.fault(&["run", &at, "name"], "is the name of two runs"));
            }
            if let Some(name) = run.variants.as_deref().and_then(unknown) {
                let message = format!("unknown scheme `{name}`; allowed: {}", known.join(", "));
                return Err(document.fault(&["run", &at, "variants"], message));
            }
        }
        let no_run = |name: &str| {
            let names: Vec<&str> = names.iter().copied().collect();
            format!("unknown run `{name}`; allowed: {}", names.join(", "))
        };
        for (place, check) in self.checks.iter().enumerate() {
            let at = place.to_string();
            for (key, name) in [("run", &check.run), ("over", &check.over)] {
                if let Some(name) = name.as_deref().filter(|name| !names.contains(name)) {
                    return Err(document.fault(&["check", &at, key], no_run(name)));
                }
            }
            let needs_run = check.points.iter().any(|point| !point.metric.is_computed());
            if check.run.is_none() && needs_run {
                let message = "needs a `run` to read its metrics from";
                return Err(document.fault(&["check", &at], message));
            }
            if !check.row.starts_with(&self.id) {
                let message = format!("belongs to another plan: it must begin with `{}`", self.id);
                return Err(document.fault(&["check", &at, "row"], message));
            }
        }
        for (place, figure) in self.figures.iter().enumerate() {
            let at = place.to_string();
            if let Some(name) = figure.runs.iter().find(|name| !names.contains(name.as_str())) {
                return Err(document.fault(&["figure", &at, "runs"], no_run(name)));
            }
            let rows = || self.checks.iter().map(|check| check.row.as_str());
            if let Some(row) = figure.rows.iter().find(|row| !rows().any(|known| known == *row)) {
                let message = format!("unknown row `{row}`");
                return Err(document.fault(&["figure", &at, "rows"], message));
            }
            let wrong = |(key, message)| document.fault(&["figure", &at, key], message);
            figure.check_reading().map_err(wrong)?;
            self.check_bars(figure).map_err(wrong)?;
        }
        Ok(())
    }

    /// Bars have to show something; an error names the key.
    fn check_bars(&self, figure: &Figure) -> Result<(), (&'static str, String)> {
        if figure.kind != FigureKind::Bars || drawn(&self.checks, figure).next().is_some() {
            return Ok(());
        }
        let rows = self.checks.iter().filter(|check| figure.rows.contains(&check.row));
        let there = rows.flat_map(|row| &row.points).map(|point| format!("`{}`", point.metric));
        let there: Vec<String> = there.collect::<BTreeSet<_>>().into_iter().collect();
        match figure.metric.filter(|_| !there.is_empty()) {
            Some(metric) => {
                let there = there.join(", ");
                Err(("metric", format!("no point of its rows is `{metric}`; allowed: {there}")))
            }
            None => Err(("rows", "have no point to be drawn".to_owned())),
        }
    }
}

/// The points that bars show: those of the figure's rows, in its order, that it reads.
pub fn drawn<'a>(
    checks: &'a [Check],
    figure: &'a Figure,
) -> impl Iterator<Item = (&'a Check, &'a Point)> {
    let rows = figure.rows.iter().filter_map(|row| checks.iter().find(|c| c.row == *row));
    rows.flat_map(|row| row.points.iter().map(move |point| (row, point)))
        .filter(|(_, point)| figure.metric.is_none_or(|metric| metric == point.metric))
}

impl Figure {
    /// What a slowdown figure reads has to be a percentile; an error names the key.
    fn check_reading(&self) -> Result<(), (&'static str, String)> {
        let slowdown = self.kind == FigureKind::Slowdown;
        let p99 = match self.metric {
            None | Some(Metric::Overall(Rank::P99)) => true,
            Some(Metric::Overall(Rank::P50)) => false,
            Some(metric) if slowdown => {
                let message = format!("`{metric}` is no percentile of all; allowed: `p99`, `p50`");
                return Err(("metric", message));
            }
            Some(_) => false,
        };
        if self.by_receiver && !(slowdown && p99) {
            let message = "is allowed with kind `slowdown` and metric `p99`".to_owned();
            return Err(("by_receiver", message));
        }
        if self.x_metric.is_some() && self.kind != FigureKind::Curve {
            return Err(("x_metric", "is allowed with kind `curve`".to_owned()));
        }
        Ok(())
    }
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
