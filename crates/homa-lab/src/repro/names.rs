//! Every name in a plan is the name of something: schemes, runs, rows; and each drawing can show
//! what it is to read.

use std::collections::BTreeSet;

use homa_sim::scheme;
use homa_workload::nearest::choices;

use super::metric::{Metric, Rank};
use super::plan::{Figure, FigureKind, ReproPlan, drawn};
use crate::document::Document;
use crate::error::PlanFault;

/// Checks all names, and replaces patterns of rows by the rows.
pub(super) fn check(plan: &mut ReproPlan, document: &Document) -> Result<(), PlanFault> {
    variants(plan, document)?;
    checks(plan, document)?;
    let rows: Vec<String> = plan.checks.iter().map(|check| check.row.clone()).collect();
    for figure in &mut plan.figures {
        let mut found: Vec<String> = Vec::new();
        for pattern in &figure.rows {
            let before = found.len();
            found.extend(rows.iter().filter(|row| matches(pattern, row)).cloned());
            if found.len() == before {
                let place = figure.place.to_string();
                let choices = choices(pattern, rows.iter().map(String::as_str));
                let message = format!("unknown row `{pattern}`; {choices}");
                return Err(document.fault(&["figure", &place, "rows"], message));
            }
        }
        figure.rows = found;
    }
    figures(plan, document)
}

/// Whether a row fits a pattern, in which `*` stands for anything.
fn matches(pattern: &str, row: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == row,
        Some((start, end)) => {
            let rest = row.strip_prefix(start);
            rest.is_some_and(|rest| rest.len() >= end.len() && rest.ends_with(end))
        }
    }
}

fn variants(plan: &ReproPlan, document: &Document) -> Result<(), PlanFault> {
    let schemes = || scheme::SCHEMES.iter().map(|scheme| scheme.name);
    let named = || plan.named.iter().map(|variant| variant.name.as_str());
    for (place, variant) in plan.named.iter().enumerate() {
        if scheme::find(&variant.scheme).is_none() {
            let choices = choices(&variant.scheme, schemes());
            let message = format!("unknown scheme `{}`; {choices}", variant.scheme);
            return Err(document.fault(&["variant", &place.to_string(), "scheme"], message));
        }
    }
    let unknown = |name: &str| {
        if scheme::find(name).is_some() || named().any(|known| known == name) {
            return None;
        }
        Some(format!("unknown scheme `{name}`; {}", choices(name, named().chain(schemes()))))
    };
    let first_unknown = |names: &[String]| names.iter().find_map(|name| unknown(name));
    if let Some(message) = first_unknown(&plan.variants) {
        return Err(document.fault(&["variants"], message));
    }
    for run in &plan.runs {
        if let (Some(place), Some(names)) = (run.place, &run.variants)
            && let Some(message) = first_unknown(names)
        {
            return Err(document.fault(&["run", &place.to_string(), "variants"], message));
        }
    }
    for check in &plan.checks {
        let sides = check.sides().iter().filter_map(|side| side.variant.as_deref());
        let own = check.variant.as_deref().into_iter().chain(check.below.as_deref());
        if let Some(message) = own.chain(sides).find_map(unknown) {
            return Err(document.fault(&["check", &check.place.to_string(), "variant"], message));
        }
    }
    Ok(())
}

/// The error for a name that is not a run.
fn no_run(plan: &ReproPlan, name: &str) -> Option<String> {
    if plan.run(name).is_some() {
        return None;
    }
    let names = plan.runs.iter().map(|run| run.name.as_str());
    Some(format!("unknown run `{name}`; {}", choices(name, names)))
}

fn checks(plan: &ReproPlan, document: &Document) -> Result<(), PlanFault> {
    for check in &plan.checks {
        let at = check.place.to_string();
        let fault = |keys: &[&str], message: String| {
            let path: Vec<&str> = ["check", &at].into_iter().chain(keys.iter().copied()).collect();
            Err(document.fault(&path, message))
        };
        if let Some(message) = check.run.as_deref().and_then(|name| no_run(plan, name)) {
            return fault(&["run"], message);
        }
        let key = check.compare.key();
        if let Some(message) = check.sides().iter().find_map(|side| no_run(plan, &side.run)) {
            return fault(&[key], message);
        }
        if check.below.is_some() && !check.compare.is_of_sides() {
            return fault(&["below"], "comes with `ordering`, `least` or `greatest`".to_owned());
        }
        let needs_run = check.points.iter().any(|point| !point.metric.is_computed());
        if check.run.is_none() && check.sides().is_empty() && needs_run {
            return fault(&[], "needs a `run` to read its metrics from".to_owned());
        }
        if !check.row.starts_with(&plan.id) {
            let message = format!("belongs to another plan: it must begin with `{}`", plan.id);
            return fault(&["row"], message);
        }
    }
    Ok(())
}

fn figures(plan: &ReproPlan, document: &Document) -> Result<(), PlanFault> {
    for figure in &plan.figures {
        let at = figure.place.to_string();
        let wrong = |(key, message): (&str, String)| document.fault(&["figure", &at, key], message);
        if let Some(message) = figure.runs.iter().find_map(|name| no_run(plan, name)) {
            return Err(wrong(("runs", message)));
        }
        reading(figure).map_err(wrong)?;
        bars(plan, figure).map_err(wrong)?;
    }
    Ok(())
}

/// Bars have to show something; an error names the key.
fn bars(plan: &ReproPlan, figure: &Figure) -> Result<(), (&'static str, String)> {
    if figure.kind != FigureKind::Bars || drawn(&plan.checks, figure).next().is_some() {
        return Ok(());
    }
    let rows = plan.checks.iter().filter(|check| figure.rows.contains(&check.row));
    let there = rows.flat_map(|row| &row.points).map(|point| format!("`{}`", point.metric));
    let there: Vec<String> = there.collect::<BTreeSet<_>>().into_iter().collect();
    match figure.metric.as_ref().filter(|_| !there.is_empty()) {
        Some(metric) => {
            let there = there.join(", ");
            Err(("metric", format!("no point of its rows is `{metric}`; allowed: {there}")))
        }
        None => Err(("rows", "have no point to be drawn".to_owned())),
    }
}

/// Checks that a slowdown figure reads percentiles; an error names the key.
fn reading(figure: &Figure) -> Result<(), (&'static str, String)> {
    let slowdown = figure.kind == FigureKind::Slowdown;
    let p99 = match &figure.metric {
        None | Some(Metric::Overall(Rank::P99)) => true,
        Some(Metric::Overall(Rank::P50)) => false,
        Some(metric) if slowdown => {
            let message = format!("`{metric}` is no percentile of all; allowed: `p99`, `p50`");
            return Err(("metric", message));
        }
        Some(_) => false,
    };
    if figure.by_receiver && !(slowdown && p99) {
        let message = "is allowed with kind `slowdown` and metric `p99`".to_owned();
        return Err(("by_receiver", message));
    }
    if figure.x_metric.is_some() && figure.kind != FigureKind::Curve {
        return Err(("x_metric", "is allowed with kind `curve`".to_owned()));
    }
    Ok(())
}
