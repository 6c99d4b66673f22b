//! The file of a plan: its keys as they are written, and how they become a [`ReproPlan`].
//!
//! See [`super::plan`] for the form. Mistakes name the file, the line, the key and the allowed
//! values.

use std::collections::BTreeSet;
use std::time::Duration;

use homa_sim::scenario::Scenario;
use homa_workload::nearest::choices;
use homa_workload::units::Quantity;
use serde::Deserialize;
use toml::{Table, Value};

use super::cause::Cause;
use super::comparison::{Compare, Side};
use super::metric::Metric;
use super::plan::{Axis, Check, Class, Curve, Figure, FigureKind, Point, ReproPlan, Run, Variant};
use super::template::{Binding, combinations};
use crate::document::{Document, plain};
use crate::error::PlanFault;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    id: String,
    title: String,
    source: String,
    #[serde(default)]
    notes: Vec<String>,
    budget: Option<String>,
    #[serde(rename = "use")]
    used: Option<String>,
    variants: Option<Vec<String>>,
    #[serde(default)]
    variant: Vec<Variant>,
    #[serde(default)]
    scenario: Scenario,
    #[serde(default)]
    quick: Table,
    #[serde(default)]
    axes: Table,
    #[serde(default)]
    run: Vec<RunItem>,
    #[serde(default)]
    check: Vec<CheckItem>,
    #[serde(default)]
    figure: Vec<FigureItem>,
    #[serde(default)]
    curve: Vec<CurveItem>,
}

/// A file of runs that several plans share.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFile {
    #[serde(default)]
    scenario: Scenario,
    #[serde(default)]
    quick: Table,
    #[serde(default)]
    axes: Table,
    #[serde(default)]
    run: Vec<RunItem>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunItem {
    each: Option<Value>,
    name: String,
    title: Option<String>,
    like: Option<String>,
    #[serde(default)]
    set: Table,
    #[serde(default)]
    quick: Table,
    seeds: Option<Vec<u64>>,
    quick_seeds: Option<Vec<u64>>,
    variants: Option<Vec<String>>,
    axis: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckItem {
    each: Option<Value>,
    row: String,
    #[serde(default)]
    class: Class,
    run: Option<String>,
    variant: Option<String>,
    at: Option<Value>,
    over: Option<Value>,
    reduction: Option<Value>,
    ordering: Option<Vec<Value>>,
    least: Option<Vec<Value>>,
    greatest: Option<Vec<Value>>,
    below: Option<String>,
    label: Option<String>,
    undecidable: Option<String>,
    cause: Option<Value>,
    #[serde(default)]
    points: Table,
    #[serde(default)]
    report: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureItem {
    each: Option<Value>,
    kind: FigureKind,
    title: String,
    y_label: Option<String>,
    x_label: Option<String>,
    metric: Option<String>,
    #[serde(default)]
    by_receiver: bool,
    x_metric: Option<String>,
    #[serde(default)]
    runs: Vec<String>,
    #[serde(default)]
    rows: Vec<String>,
    #[serde(default)]
    first_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveItem {
    figure: String,
    name: String,
    points: Vec<[f64; 2]>,
}

/// A point as a table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PointItem {
    published: Option<f64>,
    tolerance: Option<String>,
    label: Option<String>,
    grows: bool,
    full_only: bool,
}

/// The place of a mistake in a plan.
struct Place<'a> {
    document: &'a Document,
    kind: &'a str,
    at: String,
}

impl Place<'_> {
    fn fault(&self, keys: &[&str], message: impl Into<String>) -> PlanFault {
        let path: Vec<&str> =
            [self.kind, &self.at].into_iter().chain(keys.iter().copied()).collect();
        self.document.fault(&path, message)
    }

    fn bindings(&self, each: Option<&Value>, axes: &Table) -> Result<Vec<Binding>, PlanFault> {
        combinations(each, axes).map_err(|message| self.fault(&["each"], message))
    }
}

/// Understands a plan whose shared runs are in `sets`; names are not looked up yet.
pub(super) fn read(document: &Document, sets: &[Document]) -> Result<ReproPlan, PlanFault> {
    let file: PlanFile = document.parse()?;
    let mut runs = match &file.used {
        Some(name) => shared(document, name, sets)?,
        None => Vec::new(),
    };
    let shared = runs.len();
    let base = (&file.scenario, &file.quick, &file.axes);
    let own = read_runs(document, base, &file.run, &mut runs)?;
    let mut figures = read_figures(document, &file)?;
    for (at, curve) in file.curve.iter().enumerate() {
        let known: Vec<String> = figures.iter().map(|figure| figure.title.clone()).collect();
        let Some(figure) = figures.iter_mut().find(|figure| figure.title == curve.figure) else {
            let message = format!("no figure of this title; allowed: {}", known.join(", "));
            return Err(document.fault(&["curve", &at.to_string(), "figure"], message));
        };
        figure.published.push(Curve { name: curve.name.clone(), points: curve.points.clone() });
    }
    let budget = file.budget.as_deref().map(duration).transpose();
    let variants = file.variants.unwrap_or_else(|| match file.variant.as_slice() {
        [] => vec![Scenario::default().scheme],
        named => named.iter().map(|variant| variant.name.clone()).collect(),
    });
    let mut plan = ReproPlan {
        family: family(document.file()),
        id: file.id,
        title: file.title,
        source: file.source,
        notes: file.notes,
        budget: budget.map_err(|message| document.fault(&["budget"], message))?,
        variants,
        named: file.variant,
        checks: read_checks(document, &file.axes, &file.check)?,
        figures,
        runs,
    };
    plan.runs.iter_mut().skip(shared).zip(own).for_each(|(run, place)| run.place = Some(place));
    // Of shared runs only those that this plan reads.
    let read: BTreeSet<String> = plan.read_runs().map(str::to_owned).collect();
    plan.runs.retain(|run| run.place.is_some() || read.contains(&run.name));
    Ok(plan)
}

/// The folder of a plan below `repro`: the paper's family.
fn family(file: &str) -> String {
    let mut parts = file.rsplit('/').skip(1);
    parts.next().unwrap_or_default().to_owned()
}

fn duration(text: &str) -> Result<Duration, String> {
    match Quantity::Time.parse(text).map(|picos| Duration::from_nanos(picos / 1_000)) {
        Ok(Duration::ZERO) => Err("a processor time is above 0, such as 90s, 10m or 2h".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// The runs of a set, by the name of its file.
fn shared(document: &Document, name: &str, sets: &[Document]) -> Result<Vec<Run>, PlanFault> {
    let stem = |set: &Document| {
        let file = set.file().rsplit('/').next().unwrap_or_default();
        file.trim_end_matches(".toml").to_owned()
    };
    // Two papers may have sets of the same name, and a plan means that of its own paper.
    let folder = document.file().rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_beside =
        |set: &&Document| set.file().strip_suffix(&format!("/runs/{name}.toml")) == Some(folder);
    let named = || sets.iter().filter(|set| stem(set) == name);
    let Some(set) = named().find(is_beside).or_else(|| named().next()) else {
        let known: Vec<String> = sets.iter().map(stem).collect();
        let choices = choices(name, known.iter().map(String::as_str));
        let message = format!("unknown set of runs `{name}`; {choices}");
        return Err(document.fault(&["use"], message));
    };
    let file: SetFile = set.parse()?;
    let mut runs = Vec::new();
    read_runs(set, (&file.scenario, &file.quick, &file.axes), &file.run, &mut runs)?;
    Ok(runs)
}

/// Adds a file's runs to those there are; returns the place of each in the file.
fn read_runs(
    document: &Document,
    (scenario, quick, axes): (&Scenario, &Table, &Table),
    items: &[RunItem],
    runs: &mut Vec<Run>,
) -> Result<Vec<usize>, PlanFault> {
    let mut places = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let place = Place { document, kind: "run", at: at.to_string() };
        for bound in place.bindings(item.each.as_ref(), axes)? {
            let wrong = |key: &'static str| {
                let place = &place;
                move |message| place.fault(&[key], message)
            };
            let text =
                |text: &Option<String>| text.as_ref().map(|text| bound.text(text)).transpose();
            let name = bound.text(&item.name).map_err(wrong("name"))?;
            if runs.iter().any(|run| run.name == name) {
                return Err(place.fault(&["name"], format!("`{name}` is the name of two runs")));
            }
            let mut run = match text(&item.like).map_err(wrong("like"))? {
                None => Run::new(scenario, quick),
                Some(like) => {
                    runs.iter().find(|run| run.name == like).cloned().ok_or_else(|| {
                        let known: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
                        let known = known.join(", ");
                        place.fault(
                            &["like"],
                            format!("no run `{like}` before this; allowed: {known}"),
                        )
                    })?
                }
            };
            run.title = text(&item.title).map_err(wrong("title"))?;
            run.name = name;
            run.set.push(bound.table(&item.set).map_err(wrong("set"))?);
            run.quick.push(bound.table(&item.quick).map_err(wrong("quick"))?);
            run.seeds = item.seeds.clone().or(run.seeds);
            run.quick_seeds = item.quick_seeds.clone().or(run.quick_seeds);
            if let Some(axis) = &item.axis {
                let axis = bound.value(axis).and_then(|axis| {
                    Axis::deserialize(axis).map_err(|error| plain(error.message()))
                });
                run.axis = Some(axis.map_err(wrong("axis"))?);
            }
            let variants = item.variants.as_ref().map(|names| bound.texts(names)).transpose();
            run.variants = variants.map_err(wrong("variants"))?.or(run.variants);
            runs.push(run);
            places.push(at);
        }
    }
    Ok(places)
}

fn read_checks(
    document: &Document,
    axes: &Table,
    items: &[CheckItem],
) -> Result<Vec<Check>, PlanFault> {
    let mut checks = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let place = Place { document, kind: "check", at: at.to_string() };
        for bound in place.bindings(item.each.as_ref(), axes)? {
            checks.push(read_check(&place, at, item, &bound)?);
        }
    }
    Ok(checks)
}

fn read_check(
    place: &Place<'_>,
    at: usize,
    item: &CheckItem,
    bound: &Binding,
) -> Result<Check, PlanFault> {
    let text = |key: &str, text: &Option<String>| {
        let text = text.as_ref().map(|text| bound.text(text)).transpose();
        text.map_err(|message| place.fault(&[key], message))
    };
    let number = |value: &Value| match bound.value(value)? {
        Value::Float(value) => Ok(value),
        Value::Integer(value) => Ok(value as f64),
        other => Err(format!("{other} is no number: write `at = 0.8`")),
    };
    let run = text("run", &item.run)?;
    let side = |key: &str, value: &Value| {
        let side = bound.value(value).and_then(|value| Side::read(run.as_deref(), value));
        side.map_err(|message| place.fault(&[key], message))
    };
    let compare = comparison(place, item, &side)?;
    let cause = item.cause.as_ref().map(|value| Cause::read(bound.value(value)?, &compare));
    let cause = cause.transpose().map_err(|message| place.fault(&["cause"], message))?;
    let mut points = Vec::new();
    for (written, value) in &item.points {
        let wrong = |message: String| place.fault(&["points", written], message);
        let metric: Metric = bound.text(written).and_then(|name| name.parse()).map_err(wrong)?;
        let value = bound.value(value).map_err(wrong)?;
        let mut point = point(metric, value, &compare).map_err(wrong)?;
        if point.label.is_none() {
            point.label = label_of(item, bound, &point.metric).map_err(wrong)?;
        }
        points.push(point);
    }
    for written in &item.report {
        let wrong = |message: String| place.fault(&["report"], message);
        for name in several(&bound.text(written).map_err(wrong)?) {
            let metric: Metric = name.parse().map_err(wrong)?;
            let label = label_of(item, bound, &metric).map_err(wrong)?;
            points.push(Point { label, ..Point::of(metric) });
        }
    }
    Ok(Check {
        row: bound.text(&item.row).map_err(|message| place.fault(&["row"], message))?,
        class: item.class,
        run,
        variant: text("variant", &item.variant)?,
        at: item.at.as_ref().map(number).transpose().map_err(|m| place.fault(&["at"], m))?,
        compare,
        below: text("below", &item.below)?,
        points,
        undecidable: text("undecidable", &item.undecidable)?,
        cause,
        place: at,
    })
}

/// The use that a check makes of its number, whose sides `side` reads.
fn comparison(
    place: &Place<'_>,
    item: &CheckItem,
    side: &dyn Fn(&str, &Value) -> Result<Side, PlanFault>,
) -> Result<Compare, PlanFault> {
    let one = |key: &str, value: Option<&Value>| value.map(|value| side(key, value)).transpose();
    let several = |key: &str, values: Option<&[Value]>| match values {
        Some([] | [_]) => Err(place.fault(&[key], "needs two sides or more")),
        Some(values) => {
            values.iter().map(|value| side(key, value)).collect::<Result<_, _>>().map(Some)
        }
        None => Ok(None),
    };
    let found = [
        one("over", item.over.as_ref())?.map(Compare::Over),
        one("reduction", item.reduction.as_ref())?.map(Compare::Reduction),
        several("ordering", item.ordering.as_deref())?.map(Compare::Ordering),
        several("least", item.least.as_deref())?.map(Compare::Least),
        several("greatest", item.greatest.as_deref())?.map(Compare::Greatest),
    ];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (None, _) => Ok(Compare::Alone),
        (Some(only), None) => Ok(only),
        _ => {
            let message = "has one of `over`, `reduction`, `ordering`, `least` and `greatest`";
            Err(place.fault(&[], message))
        }
    }
}

/// A check's label for a metric: `{metric}` is its name.
fn label_of(item: &CheckItem, bound: &Binding, metric: &Metric) -> Result<Option<String>, String> {
    let bound = bound.with("metric", &metric.to_string());
    item.label.as_ref().map(|label| bound.text(label)).transpose()
}

/// `p99@10,50` is `p99@10` and `p99@50`.
fn several(text: &str) -> Vec<String> {
    match text.split_once('@') {
        Some((name, at)) => at.split(',').map(|at| format!("{name}@{}", at.trim())).collect(),
        None => vec![text.to_owned()],
    }
}

/// `1.98`, `[1.98, "10%", "grows", "full-only"]`, or a table.
fn point(metric: Metric, value: Value, compare: &Compare) -> Result<Point, String> {
    const FORM: &str = "write it as [1.98, \"10%\"], with \"full-only\" or \"grows\" behind";
    let mut point = Point::of(metric);
    let items = match value {
        Value::Table(_) => {
            let item = PointItem::deserialize(value);
            let item = item.map_err(|error| plain(error.message()))?;
            let tolerance = item.tolerance.map(|text| text.parse()).transpose()?;
            let PointItem { published, label, grows, full_only, .. } = item;
            return Ok(Point { published, tolerance, label, grows, full_only, ..point });
        }
        Value::Array(items) => items,
        one => vec![one],
    };
    for (place, item) in items.iter().enumerate() {
        match item {
            Value::Float(value) if place == 0 => point.published = Some(*value),
            Value::Integer(value) if place == 0 => point.published = Some(*value as f64),
            Value::String(flag) if flag == "full-only" => point.full_only = true,
            Value::String(flag) if flag == "grows" => point.grows = true,
            Value::String(text) if point.tolerance.is_none() && point.published.is_some() => {
                point.tolerance = Some(text.parse()?);
            }
            other => return Err(format!("{other} is out of place: {FORM}")),
        }
    }
    if matches!(compare, Compare::Ordering(_)) && point.published.is_some() {
        return Err("an ordering has no published value: write []".to_owned());
    }
    Ok(point)
}

fn read_figures(document: &Document, file: &PlanFile) -> Result<Vec<Figure>, PlanFault> {
    let mut figures = Vec::new();
    for (at, item) in file.figure.iter().enumerate() {
        let place = Place { document, kind: "figure", at: at.to_string() };
        for bound in place.bindings(item.each.as_ref(), &file.axes)? {
            let text = |key: &str, text: &Option<String>| {
                let text = text.as_ref().map(|text| bound.text(text)).transpose();
                text.map_err(|message| place.fault(&[key], message))
            };
            let metric = |key: &str, name: &Option<String>| {
                let metric = text(key, name)?.map(|name| name.parse()).transpose();
                metric.map_err(|message: String| place.fault(&[key], message))
            };
            let texts = |key: &str, list: &[String]| {
                bound.texts(list).map_err(|message| place.fault(&[key], message))
            };
            figures.push(Figure {
                kind: item.kind,
                title: bound.text(&item.title).map_err(|m| place.fault(&["title"], m))?,
                y_label: text("y_label", &item.y_label)?,
                x_label: text("x_label", &item.x_label)?,
                metric: metric("metric", &item.metric)?,
                by_receiver: item.by_receiver,
                x_metric: metric("x_metric", &item.x_metric)?,
                runs: texts("runs", &item.runs)?,
                rows: texts("rows", &item.rows)?,
                published: Vec::new(),
                first_only: item.first_only,
                place: at,
            });
        }
    }
    Ok(figures)
}
