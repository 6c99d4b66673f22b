//! The page of a sweep or of a single simulation: quantities against the swept dimensions, slowdown
//! by size, and a table of all results.

use std::fmt::Write;

use homa_sim::scenario::outcome::{KindOutcome, QueueLength};

use super::Choice;
use super::html::{figures, number, optional};
use super::quantity::{Quantity, usual};
use super::sizes::Panels;
use super::varied::{Run, Varied};
use super::versus::{Drawn, LEAST_SEEDS, View, draw, levels};
use crate::chart::{Chart, escaped};
use crate::error::LabError;
use crate::options::of_results;
use crate::repro::metric::Metric;
use crate::store::{Manifest, PLAN_FILE, REPRO_FILE, Store, Stored};

/// Figures of one kind on a page: more are for `--only`. Of curves with many points, half of it.
const FIGURES: usize = 24;

/// Figures that are shown at once; the others are behind a line to be opened.
const OPEN: usize = 8;

/// Rows of a table that is shown at once.
const ROWS: usize = 40;

/// Alarms that are listed one by one.
const ALARMS: usize = 20;

fn page_title(manifest: &Manifest) -> String {
    if manifest.title.is_empty() { "Simulations".to_owned() } else { manifest.title.clone() }
}

pub(super) fn page(
    store: &Store,
    manifest: &Manifest,
    choice: &Choice,
) -> Result<String, LabError> {
    let mut simulations: Vec<Run> = Vec::new();
    for listed in manifest.cells.iter().filter(|listed| choice.takes(listed)) {
        if store.has(&listed.key) {
            simulations.push((listed.clone(), store.read(&listed.key)?));
        }
    }
    let runs: Vec<Run> = simulations.iter().flat_map(by_kind).collect();
    if runs.is_empty() && !choice.only.is_empty() {
        return Err(none_left(manifest, choice));
    }
    let varied = Varied::of(&runs);
    let title = page_title(manifest);
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    let missing = manifest.cells.iter().filter(|listed| !store.has(&listed.key)).count();
    let _ = writeln!(
        body,
        "<p class=\"soft\">homa {} · {} simulations{}</p>",
        escaped(&manifest.version),
        simulations.len(),
        if missing > 0 { format!(", {missing} missing") } else { String::new() }
    );
    body += &caption(&varied);
    body += &alarms(&simulations);
    let views = View::all(&varied, choice)?;
    body += &against(&runs, &varied, &views, choice)?;
    body += &whole_curves(&Panels::of(&runs, &varied, views.first().copied()), &views);
    if let Some(view) = views.first() {
        body +=
            &kind("Use of priority levels", levels(&runs, &varied, view.x), (FIGURES / 2, false));
    }
    body += &table(&simulations, &Varied::of(&simulations));
    body += &options(&simulations);
    body += &plan(store)?;
    Ok(super::html::page(&title, &body))
}

/// The runs that are drawn of a simulation: if hosts are of two kinds, each kind is a separate
/// scheme.
fn by_kind((listed, stored): &Run) -> Vec<Run> {
    let outcome = &stored.outcome;
    if outcome.kinds.is_empty() {
        return vec![(listed.clone(), stored.clone())];
    }
    let of_kind = |kind: &KindOutcome| {
        let name = match kind.beside {
            true => format!("{} beside {}", kind.scheme, outcome.scheme),
            false => kind.scheme.clone(),
        };
        let (mut listed, mut own) = (listed.clone(), stored.clone());
        listed.axes.retain(|(axis, _)| axis != "scheme");
        listed.axes.push(("scheme".to_owned(), name));
        own.outcome.scheme.clone_from(&kind.scheme);
        own.outcome.slowdown.clone_from(&kind.slowdown);
        own.outcome.utilisation = kind.utilisation;
        (listed, own)
    };
    outcome.kinds.iter().map(of_kind).collect()
}

/// The value of `--only` that no simulation has, and those there are.
fn none_left(manifest: &Manifest, choice: &Choice) -> LabError {
    let has = |(key, value): &(String, String)| {
        let one = Choice { only: vec![(key.clone(), value.clone())], ..Choice::default() };
        manifest.cells.iter().any(|listed| one.takes(listed))
    };
    let culprit = choice.only.iter().find(|only| !has(only)).or(choice.only.first());
    let mut known: Vec<String> = Vec::new();
    let axes = manifest.cells.iter().flat_map(|listed| &listed.axes);
    for (path, value) in axes {
        let text = format!("{path}={value}");
        if !known.contains(&text) {
            known.push(text);
        }
    }
    let name = culprit.map(|(key, value)| format!("{key}={value}")).unwrap_or_default();
    LabError::Unknown { what: "value of an axis", name, known }
}

/// What all simulations share, and how seeds are shown.
fn caption(varied: &Varied) -> String {
    let mut out = String::new();
    if !varied.constants.is_empty() {
        let _ = writeln!(out, "<p>All: {}.</p>", escaped(&varied.constants.join(", ")));
    }
    let areas = match varied.seeds {
        0 | 1 => return out,
        ..LEAST_SEEDS => "an interval of the mean needs three seeds",
        _ => {
            "areas hold the mean with 95 % confidence (Student's interval; cut off at a figure's \
              edge)"
        }
    };
    let _ = writeln!(
        out,
        "<p>{} seeds: lines are their means, small dots single seeds; {areas}; curves by message \
         size are means.</p>",
        varied.seeds
    );
    out
}

/// Alarms that every reader must see, for each simulation that has any.
fn alarms(simulations: &[Run]) -> String {
    let told: Vec<String> = simulations.iter().flat_map(|(_, stored)| stored.alarms()).collect();
    if told.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ul>\n");
    for alarm in told.iter().take(ALARMS) {
        let _ = writeln!(out, "<li class=\"false\">{}</li>", escaped(alarm));
    }
    if let more @ 1.. = told.len().saturating_sub(ALARMS) {
        let _ = writeln!(out, "<li>and {more} more</li>");
    }
    out + "</ul>\n"
}

/// Quantities against the swept dimensions. A quantity that hardly varies is one line of text.
fn against(
    runs: &[Run],
    varied: &Varied,
    views: &[View],
    choice: &Choice,
) -> Result<String, LabError> {
    if !choice.metrics.is_empty() && views.is_empty() {
        return Err(LabError::Choice(
            "nothing was varied, so there is no axis to draw against".into(),
        ));
    }
    let (mut out, mut flat) = (String::new(), Vec::new());
    for (place, view) in views.iter().enumerate() {
        let Drawn { charts, flat: own } = drawn(runs, varied, *view, choice)?;
        flat.extend(own.into_iter().filter(|_| place == 0));
        let heading = format!("Against {}", varied.dimensions[view.x].title);
        out += &kind(&heading, charts, (FIGURES, place == 0));
    }
    if !flat.is_empty() {
        let flat = escaped(&flat.join("; "));
        let _ = writeln!(out, "<p class=\"soft\">Nearly the same everywhere: {flat}.</p>");
    }
    Ok(out)
}

/// The chosen quantities against one axis.
fn drawn(runs: &[Run], varied: &Varied, view: View, choice: &Choice) -> Result<Drawn, LabError> {
    let asked = !choice.metrics.is_empty();
    let quantities = if asked { choice.metrics.clone() } else { usual() };
    let mut all = Drawn::default();
    for quantity in &quantities {
        match draw(runs, varied, view, (quantity, asked)) {
            Some(Drawn { charts, flat }) => {
                all.charts.extend(charts);
                all.flat.extend(flat);
            }
            None if asked => return Err(unmeasured(quantity)),
            None => {}
        }
    }
    Ok(all)
}

/// The first drawings of a page: quantities against the first axis, then curves by message size.
pub(super) fn charts(simulations: &[Run], choice: &Choice) -> Result<Vec<Chart>, LabError> {
    let runs: Vec<Run> = simulations.iter().flat_map(by_kind).collect();
    let varied = Varied::of(&runs);
    let views = View::all(&varied, choice)?;
    let view = views.first().copied();
    let mut charts = match view {
        Some(view) => drawn(&runs, &varied, view, choice)?.charts,
        None => Vec::new(),
    };
    charts.extend(Panels::of(&runs, &varied, view).by_size());
    Ok(charts)
}

fn unmeasured(quantity: &Quantity) -> LabError {
    let why = match quantity {
        Quantity::Percentile { percent, .. } => format!(
            "the plan needs measures.groups = {{ percentiles = [{percent}] }}, without `up_to`"
        ),
        Quantity::Metric(Metric::Path(_)) => "`homa sim --format json` shows the paths".to_owned(),
        Quantity::Metric(_) => {
            "docs/simulator.md in the repository says which key of `measures` it needs".to_owned()
        }
    };
    LabError::Choice(format!("`{quantity}` was not measured in these simulations: {why}"))
}

/// Curves of many points each.
fn whole_curves(panels: &Panels<'_>, views: &[View]) -> String {
    let open = views.is_empty() || 2 * panels.count() <= OPEN;
    let mut out = kind("By message size", panels.by_size(), (FIGURES / 2, open));
    out += &kind("Tails of latency", panels.tails(), (FIGURES, open));
    out += &kind("Over time", panels.backlogs(), (FIGURES / 2, false));
    out
}

/// Figures of one kind under a heading, at most this many, open or folded.
fn kind(heading: &str, mut charts: Vec<Chart>, (most, open): (usize, bool)) -> String {
    let all = charts.len();
    if all == 0 {
        return String::new();
    }
    charts.truncate(most);
    let rest = match all - charts.len() {
        0 => String::new(),
        rest => format!(
            "<p class=\"soft\">{rest} more: choose with <code>homa report DIR --only \
             AXIS=VALUE</code> or <code>--metric NAME</code>.</p>\n"
        ),
    };
    let open = if open { " open" } else { "" };
    let heading = escaped(heading);
    format!(
        "<details{open}><summary><h2>{heading}</h2></summary>\n{}{rest}</details>\n",
        figures(&charts)
    )
}

type Column = (&'static str, fn(&Stored) -> String);

/// What every simulation has.
const COLUMNS: [Column; 14] = [
    ("messages", |s| s.outcome.messages.to_string()),
    ("undelivered", |s| s.outcome.undelivered.to_string()),
    ("failed", |s| s.outcome.failed.to_string()),
    ("refused", |s| s.outcome.refused.to_string()),
    ("slowdown p50", |s| optional(s.outcome.slowdown.p50)),
    ("slowdown p99", |s| optional(s.outcome.slowdown.p99)),
    ("load, wire", |s| percent(s.outcome.loads.realised_paper)),
    ("load, payload", |s| percent(s.outcome.loads.realised_payload)),
    ("utilisation", |s| percent(s.outcome.utilisation)),
    ("goodput", |s| s.outcome.goodput.map_or_else(|| optional(None), percent)),
    ("TOR down, mean kB", |s| queue(s, |q| q.mean_bytes)),
    ("TOR down, max kB", |s| queue(s, |q| q.max_bytes as f64)),
    ("drops", |s| (s.outcome.drops.overflow + s.outcome.drops.fault).to_string()),
    ("backlog", |s| backlog(s.outcome.backlog.is_sustained()).to_owned()),
];

fn backlog(sustained: Option<bool>) -> &'static str {
    match sustained {
        Some(true) => "stable",
        Some(false) => "diverges",
        None => "not known",
    }
}

fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

fn queue(stored: &Stored, of: fn(&QueueLength) -> f64) -> String {
    let length = stored.outcome.queues.as_ref().and_then(|queues| queues.tor_down);
    optional(length.map(|length| of(&length) / 1e3))
}

/// One row per simulation: what sets it apart, then what it measured.
fn table(runs: &[Run], varied: &Varied) -> String {
    let mut heads: Vec<String> = varied.dimensions.iter().map(|one| one.title.clone()).collect();
    heads.push("seed".to_owned());
    heads.extend(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    let open = if runs.len() <= ROWS { " open" } else { "" };
    let mut out = format!(
        "<details{open}><summary><h2>All simulations</h2></summary>\n\
         <div class=\"scroll\"><table class=\"runs\"><thead><tr>{heads}</tr></thead>\n"
    );
    for (listed, stored) in runs {
        let place = varied.place(listed);
        let dimensions = varied.dimensions.iter().zip(&place);
        let mut cells: Vec<String> =
            dimensions.map(|(dimension, &at)| dimension.values[at].clone()).collect();
        cells.push(listed.seed.to_string());
        cells.extend(COLUMNS.iter().map(|(_, of)| of(stored)));
        let cells: String =
            cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out + "</table></div></details>\n"
}

/// The options with which each scheme ran.
fn options(simulations: &[Run]) -> String {
    let mut ran = Vec::new();
    for (_, stored) in simulations {
        let (outcome, label) = (&stored.outcome, stored.cell.label());
        for kind in &outcome.kinds {
            ran.push((&*kind.scheme, label.clone(), &kind.options));
        }
        ran.push((&*outcome.scheme, label, &outcome.options));
    }
    format!(
        "<details><summary>Options of the schemes, defaults included</summary><pre>{}</pre>\
         </details>\n",
        escaped(&of_results(ran.into_iter()))
    )
}

/// The request. A reproduction that was interrupted has its record instead of a plan.
fn plan(store: &Store) -> Result<String, LabError> {
    let record = store.root().join(REPRO_FILE);
    let path = if record.exists() { record } else { store.root().join(PLAN_FILE) };
    let text = std::fs::read_to_string(&path).map_err(|error| LabError::file(&path, error))?;
    Ok(format!("<details><summary>The plan</summary><pre>{}</pre></details>\n", escaped(&text)))
}
