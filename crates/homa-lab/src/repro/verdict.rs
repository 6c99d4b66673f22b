//! The comparison of what was measured with what was published.

use homa_sim::scenario::Ending;
use serde::{Deserialize, Serialize};

use super::metric::Metric;
use super::plan::{self, Class, Planned, Point, ReproPlan};
use super::tolerance::{Measured, Tolerance, judge};
use crate::error::LabError;
use crate::store::{Store, Stored};

/// One number compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Row and metric: `homa-fig10-w2-homa p99@50`.
    pub metric: String,
    /// What readers see.
    pub label: String,
    /// The row's id.
    pub row: String,
    /// How binding it is.
    pub class: Class,
    /// What was published.
    pub published: Option<f64>,
    /// What the compared scheme gave.
    pub measured: Option<f64>,
    /// Where the true value lies with 95 % confidence; absent ends are unbounded.
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
    /// What the other schemes of the plan's runs gave.
    pub others: Vec<(String, Option<f64>)>,
}

impl Check {
    /// True when it is to be decided: there is a published value and a tolerance.
    pub fn gates(&self) -> bool {
        self.published.is_some() && self.tolerance.is_some()
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

    /// A metric of a run under a scheme, its seeds pooled.
    pub fn measure(
        &self,
        metric: Metric,
        run: usize,
        variant: &str,
        at: Option<f64>,
    ) -> Option<Measured> {
        if let Metric::Limit(what) = metric {
            let all: Vec<&Stored> = self.of(run, variant, None).collect();
            return what.of(&all);
        }
        let seeds: Option<Vec<Measured>> =
            self.of(run, variant, at).map(|stored| metric.read(stored)).collect();
        Measured::pooled(&seeds?)
    }
}

/// All checks of a plan, in its order.
pub fn checks(plan: &ReproPlan, results: &Results, quick: bool) -> Vec<Check> {
    let rows = plan.checks.iter();
    rows.flat_map(|row| row.points.iter().map(|point| check(plan, results, row, point, quick)))
        .collect()
}

/// What a point of a row gives under a scheme.
pub fn measure(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    metric: Metric,
    variant: &str,
) -> Option<Measured> {
    if let Metric::Computed(computed) = metric {
        return Some(Measured::exact(computed.value()));
    }
    let read = |name: &Option<String>, variant: &str| {
        let (place, _) = plan.run(name.as_deref()?)?;
        results.measure(metric, place, variant, row.at)
    };
    let measured = read(&row.run, variant)?;
    match row.over {
        Some(_) => measured.over(read(&row.over, plan.variants.first()?)?),
        None => Some(measured),
    }
}

/// Messages that a point's runs sent and no percentile knows of, in words.
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
    metric: Metric,
    variant: &str,
) -> Unknown {
    if metric.is_computed() {
        return Unknown::default();
    }
    let limit = match metric {
        Metric::Limit(what) => Some(what),
        _ => None,
    };
    let at = row.at.filter(|_| limit.is_none());
    let first = plan.variants.first().map_or("", String::as_str);
    let (mut counts, mut others) = ([0; 3], [0; 2]);
    for (name, variant) in [(&row.run, variant), (&row.over, first)] {
        let place = name.as_deref().and_then(|name| plan.run(name));
        let Some((place, _)) = place else { continue };
        // Of what does not pass only where it lies is read.
        let read = |stored: &&Stored| limit.is_none_or(|what| what.passes(stored));
        for stored in results.of(place, variant, at).filter(read) {
            let outcome = &stored.outcome;
            let cut = stored.cell.scenario.stop.ending == Ending::Cut;
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

/// Counts of messages in words; `None` when all are 0.
fn said(of: &str, counts: &[u64]) -> Option<String> {
    let named = counts.iter().zip(["failed", "refused", "not delivered"]);
    let named: Vec<String> = named
        .filter(|(count, _)| **count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!named.is_empty()).then(|| format!("{of}: {}", named.join(", ")))
}

fn check(
    plan: &ReproPlan,
    results: &Results,
    row: &plan::Check,
    point: &Point,
    quick: bool,
) -> Check {
    let compared = row.variant.as_ref().or(plan.variants.first()).map_or("", String::as_str);
    let mut measured = measure(plan, results, row, point.metric, compared);
    if quick && point.grows {
        measured = measured.map(|measured| Measured { high: f64::INFINITY, ..measured });
    }
    let Unknown { missing, aside } = unknown(plan, results, row, point.metric, compared);
    let pass = match (measured, point.published, point.tolerance) {
        _ if quick && point.full_only || missing.is_some() => None,
        (Some(measured), Some(published), Some(tolerance)) => judge(measured, published, tolerance),
        _ => None,
    };
    let others = plan.shown().into_iter().filter(|variant| variant != compared).map(|variant| {
        let other = measure(plan, results, row, point.metric, &variant);
        (variant, other.map(|measured| measured.value))
    });
    Check {
        metric: format!("{} {}", row.row, point.metric),
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
        others: if point.metric.is_computed() { Vec::new() } else { others.collect() },
    }
}
