//! The comparison of measured with published values.

use std::collections::{BTreeMap, BTreeSet};

use homa_sim::scenario::TrafficEnding;
use serde::{Deserialize, Serialize};

use super::comparison::{Compare, Side, measure, of_side, ordered};
use super::metric::Metric;
use super::numbers;
use super::plan::{self, Class, Planned, Point, ReproPlan};
use super::tolerance::{Measured, Tolerance, judge};
use crate::error::LabError;
use crate::store::{Store, Stored};

/// One number compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, which no other number of the plan has: `homa-fig10-w2-homa p99@50`.
    pub metric: String,
    /// The label in tables.
    pub label: String,
    /// The row's id.
    pub row: String,
    /// How binding it is.
    pub class: Class,
    /// The published value.
    pub published: Option<f64>,
    /// The number of the compared scheme.
    pub measured: Option<f64>,
    /// The 95 % confidence interval; absent ends are unbounded.
    pub interval: [Option<f64>; 2],
    /// How near is near enough.
    pub tolerance: Option<Tolerance>,
    /// The verdict; absent without a published value, or when the sample cannot decide.
    pub pass: Option<bool>,
    /// Measured messages that the number knows nothing of, in words: it decides nothing then.
    #[serde(default)]
    pub missing: Option<String>,
    /// Messages that failed or were refused and were not to be measured, those of the warm-up for
    /// example, in words: the number stands.
    #[serde(default)]
    pub aside: Option<String>,
    /// An ordering: the verdict says whether each side is below the next.
    #[serde(default)]
    pub ordering: bool,
    /// Why the publication cannot decide it: there is no verdict.
    #[serde(default)]
    pub undecidable: Option<String>,
    /// Why it is outside, if it is and if that is known.
    #[serde(default)]
    pub cause: Option<String>,
    /// The numbers of the other schemes of the plan's runs. For an ordering, those of the sides
    /// after the first; for the least or the greatest of several, the side that has it.
    pub others: Vec<(String, Option<f64>)>,
}

impl Check {
    /// True when it is to be decided: an ordering, or a published value with a tolerance, unless
    /// the publication cannot decide it.
    pub fn gates(&self) -> bool {
        let compared = self.ordering || self.published.is_some() && self.tolerance.is_some();
        compared && self.undecidable.is_none()
    }
}

/// Outcomes of a plan's simulations.
#[derive(Debug)]
pub struct Results {
    list: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    run: usize,
    variant: String,
    at: Option<f64>,
    stored: Stored,
}

impl Results {
    /// Reads those that are stored.
    pub fn read(planned: &[Planned], store: &Store, program: &str) -> Result<Self, LabError> {
        let entry = |planned: &Planned| {
            let mut stored = store.read(&planned.cell.key(program))?;
            stored.cell.axes.clone_from(&planned.cell.axes);
            let (run, variant, at) = (planned.run, planned.variant.clone(), planned.at);
            Ok(Entry { run, variant, at, stored })
        };
        let there = planned.iter().filter(|planned| store.has(&planned.cell.key(program)));
        Ok(Self { list: there.map(entry).collect::<Result<_, LabError>>()? })
    }

    /// Processor time of all of them, each simulation once.
    pub fn cpu_seconds(&self) -> f64 {
        let mut seen: Vec<&Stored> = Vec::new();
        for entry in &self.list {
            if !seen.iter().any(|stored| stored.cell.scenario == entry.stored.cell.scenario) {
                seen.push(&entry.stored);
            }
        }
        seen.iter().map(|stored| stored.outcome.cpu_seconds).sum()
    }

    /// The results of a run under a scheme: all seeds, at one value of the axis or at all.
    pub fn of<'a>(
        &'a self,
        run: usize,
        variant: &'a str,
        at: Option<f64>,
    ) -> impl Iterator<Item = &'a Stored> {
        let matching = move |entry: &&Entry| {
            let here = match (at, entry.at) {
                (Some(wanted), Some(value)) => (wanted - value).abs() < 1e-9,
                (Some(_), None) => false,
                (None, _) => true,
            };
            entry.run == run && entry.variant == variant && here
        };
        self.list.iter().filter(matching).map(|entry| &entry.stored)
    }

    /// The values of a run's axis under a scheme, ascending.
    pub fn values(&self, run: usize, variant: &str) -> Vec<f64> {
        let of_run = self.list.iter().filter(|e| e.run == run && e.variant == variant);
        let mut values: Vec<f64> = of_run.filter_map(|entry| entry.at).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// The schemes that a run has results of.
    pub(super) fn variants(&self, run: usize) -> BTreeSet<&str> {
        let of_run = self.list.iter().filter(|entry| entry.run == run);
        of_run.map(|entry| entry.variant.as_str()).collect()
    }

    /// The latencies of a run's messages above a size, all seeds.
    pub(super) fn flows(
        &self,
        run: usize,
        variant: &str,
        at: Option<f64>,
        above: u32,
    ) -> BTreeMap<FlowName, f64> {
        let of_run = self.of(run, variant, at).map(|stored| &stored.outcome);
        let named = of_run.flat_map(|outcome| {
            let large = outcome.flows.iter().filter(move |flow| flow.bytes > above);
            large.map(|flow| ((outcome.seed, flow.src, flow.number), flow.us))
        });
        named.collect()
    }

    /// A metric of a run under a scheme, its seeds pooled.
    pub fn measure(
        &self,
        metric: &Metric,
        run: usize,
        variant: &str,
        at: Option<f64>,
    ) -> Option<Measured> {
        if let Metric::Limit(what) = *metric {
            let all: Vec<&Stored> = self.of(run, variant, None).collect();
            return what.of(&all);
        }
        let seeds: Option<Vec<Measured>> =
            self.of(run, variant, at).map(|stored| metric.read(stored)).collect();
        Measured::pooled(&seeds?)
    }
}

/// Seed, sender and number of a message.
pub(super) type FlowName = (u64, u32, u32);

/// All checks of a plan, in its order.
pub fn checks(plan: &ReproPlan, results: &Results, quick: bool) -> Vec<Check> {
    let rows = plan.checks.iter();
    let points = rows.flat_map(|row| row.points.iter().map(move |point| (row, point)));
    let named = points.zip(numbers::names(plan));
    named.map(|((row, point), name)| check(plan, results, (row, point), name, quick)).collect()
}

/// Messages that a point's runs sent and that no percentile includes, in words.
#[derive(Debug, Default)]
struct Unknown {
    /// Measured: those that failed or were refused, and those under way at the end of a run that
    /// was to deliver all. An open loop that is cut leaves some under way by design.
    missing: Option<String>,
    /// Not measured: those that failed or were refused.
    aside: Option<String>,
}

fn unknown(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    metric: &Metric,
    variant: &str,
) -> Unknown {
    if metric.is_computed() {
        return Unknown::default();
    }
    let limit = match *metric {
        Metric::Limit(what) => Some(what),
        _ => None,
    };
    let (mut counts, mut others) = ([0; 3], [0; 2]);
    for (name, variant, at) in sources(plan, row, variant) {
        let Some((place, _)) = plan.run(name) else { continue };
        let at = at.filter(|_| limit.is_none());
        // Only the position is read of a run that does not pass.
        let read = |stored: &&Stored| limit.is_none_or(|what| what.passes(stored));
        for stored in results.of(place, variant, at).filter(read) {
            let outcome = &stored.outcome;
            let cut = stored.cell.scenario.stop.ending == TrafficEnding::Cut;
            let late = if cut { 0 } else { outcome.undelivered };
            let measured = [outcome.measured_failed, outcome.measured_refused];
            for (sum, count) in counts.iter_mut().zip([measured[0], measured[1], late]) {
                *sum += count;
            }
            for (place, all) in [outcome.failed, outcome.refused].into_iter().enumerate() {
                others[place] += all - measured[place];
            }
        }
    }
    Unknown { missing: said("messages", &counts), aside: said("not measured", &others) }
}

/// A run, its scheme or variant, and the value of its axis.
type Source<'a> = (&'a str, &'a str, Option<f64>);

/// The results that a row reads, each once. A row of several sides does not read its own run, and
/// reads each side also under the variant that the sides are compared with.
fn sources<'a>(
    plan: &'a ReproPlan,
    row: &'a plan::Check,
    variant: &'a str,
) -> impl Iterator<Item = Source<'a>> {
    let several = row.compare.is_of_sides();
    let first = plan.variants.first().map_or("", String::as_str);
    let usual = row.variant.as_deref().filter(|_| several).unwrap_or(first);
    let own = row.run.as_deref().filter(|_| !several).map(|run| (run, variant, row.at));
    let sides = row.sides().iter().flat_map(move |side| {
        let own = side.variant.as_deref().unwrap_or(usual);
        let variants = [Some(own), row.below.as_deref()].into_iter().flatten();
        variants.map(move |variant| (&*side.run, variant, side.at.or(row.at)))
    });
    let mut seen: Vec<Source<'a>> = Vec::new();
    own.into_iter().chain(sides).filter(move |source| {
        let new = !seen.contains(source);
        seen.extend(new.then_some(*source));
        new
    })
}

/// Counts of messages in words; `None` when all are 0.
fn said(of: &str, counts: &[u64]) -> Option<String> {
    let named = counts.iter().zip(["failed", "refused", "not delivered"]);
    let named: Vec<String> = named
        .filter(|(count, _)| **count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!named.is_empty()).then(|| format!("{of}: {}", named.join(", ")))
}

/// The name of one of several sides: the parts in which they differ.
fn name_of(side: &Side, sides: &[Side]) -> String {
    let parts: [fn(&Side) -> Option<String>; 4] = [
        |side| side.variant.clone(),
        |side| Some(side.run.clone()),
        |side| side.at.map(|at| at.to_string()),
        |side| side.metric.as_ref().map(ToString::to_string),
    ];
    let differing = parts.iter().filter(|part| sides.iter().any(|other| part(other) != part(side)));
    let named: Vec<String> = differing.filter_map(|part| part(side)).collect();
    if named.is_empty() { side.run.clone() } else { named.join(" ") }
}

/// The side whose number, times `sign`, is the least, and its number; none unless all are measured.
fn extreme_side(
    sides: &[Side],
    of: impl Fn(&Side) -> Option<Measured>,
    sign: f64,
) -> Vec<(String, Option<f64>)> {
    let all: Option<Vec<(&Side, f64)>> =
        sides.iter().map(|side| Some((side, of(side)?.value))).collect();
    let won = all.into_iter().flatten().min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)));
    won.map(|(side, value)| (name_of(side, sides), Some(value))).into_iter().collect()
}

/// The cause of a row that is outside.
fn outside_because(
    row: &plan::Check,
    point: &Point,
    measured: Option<Measured>,
    pass: Option<bool>,
) -> Option<String> {
    let cause = row.cause.as_ref().filter(|_| pass == Some(false))?;
    let compared = point.published.zip(point.tolerance);
    let limits = compared.map(|(published, tolerance)| tolerance.limits(published));
    cause.of(measured.map_or(f64::NAN, |measured| measured.value), limits).map(str::to_owned)
}

fn check(
    plan: &ReproPlan,
    results: &Results,
    (row, point): (&plan::Check, &Point),
    metric: String,
    quick: bool,
) -> Check {
    let compared = row.variant.as_ref().or(plan.variants.first()).map_or("", String::as_str);
    let mut measured = measure(plan, results, row, &point.metric, compared);
    if quick && point.grows {
        measured = measured.map(|measured| Measured { high: f64::INFINITY, ..measured });
    }
    let is_ordering = matches!(row.compare, Compare::Ordering(_));
    let Unknown { missing, aside } = unknown(plan, results, row, &point.metric, compared);
    let pass = match (measured, point.published, point.tolerance) {
        _ if row.undecidable.is_some() => None,
        _ if quick && point.full_only || missing.is_some() => None,
        _ if is_ordering => ordered(plan, results, row, &point.metric, row.sides()),
        (Some(measured), Some(published), Some(tolerance)) => judge(measured, published, tolerance),
        _ => None,
    };
    let others = plan.shown().into_iter().filter(|variant| variant != compared).map(|variant| {
        let other = measure(plan, results, row, &point.metric, &variant);
        (variant, other.map(|measured| measured.value))
    });
    let of = |side: &Side| of_side(plan, results, row, &point.metric, side, row.at);
    Check {
        metric,
        label: point.label.clone().unwrap_or_else(|| point.metric.to_string()),
        row: row.row.clone(),
        class: row.class,
        published: point.published,
        measured: measured.map(|measured| measured.value),
        interval: measured.map_or([None; 2], Measured::ends),
        tolerance: point.tolerance,
        pass,
        missing,
        aside,
        ordering: is_ordering,
        undecidable: row.undecidable.clone(),
        cause: outside_because(row, point, measured, pass),
        others: match &row.compare {
            _ if point.metric.is_computed() => Vec::new(),
            Compare::Least(sides) => extreme_side(sides, of, 1.0),
            Compare::Greatest(sides) => extreme_side(sides, of, -1.0),
            Compare::Ordering(sides) => {
                let rest = sides.iter().skip(1);
                rest.map(|side| (name_of(side, sides), of(side).map(|it| it.value))).collect()
            }
            _ => others.collect(),
        },
    }
}
