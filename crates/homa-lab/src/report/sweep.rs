//! The page of a sweep or of a single simulation: slowdown by size, and a table of everything.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::html::{figures, number, optional};
use crate::chart::{Chart, escaped};
use crate::error::LabError;
use crate::repro::figure::of_result;
use crate::repro::metric::{Rank, Reading};
use crate::store::{Listed, Manifest, PLAN_FILE, REPRO_FILE, Store, Stored};

/// Curves in one figure: more cannot be told apart.
const CURVES: usize = 7;

fn page_title(manifest: &Manifest) -> String {
    if manifest.title.is_empty() { "Simulations".to_owned() } else { manifest.title.clone() }
}

pub(super) fn page(store: &Store, manifest: &Manifest) -> Result<String, LabError> {
    let mut results: Vec<(&Listed, Stored)> = Vec::new();
    for listed in manifest.cells.iter().filter(|listed| store.has(&listed.key)) {
        results.push((listed, store.read(&listed.key)?));
    }
    let title = page_title(manifest);
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    let missing = manifest.cells.len() - results.len();
    let _ = writeln!(
        body,
        "<p class=\"soft\">homa {} · {} simulations{}</p>",
        escaped(&manifest.version),
        results.len(),
        if missing > 0 { format!(", {missing} missing") } else { String::new() }
    );
    body += &figures(&charts(&by_kind(&results)));
    body += &table(&results);
    body += &plan(store)?;
    Ok(super::html::page(&title, &body))
}

/// The results to be drawn: one per kind where hosts are of two.
fn by_kind<'a>(results: &[(&'a Listed, Stored)]) -> Vec<(&'a Listed, Stored)> {
    let of = |(listed, stored): &(&'a Listed, Stored)| {
        let kinds = stored.outcome.kinds.iter().map(|kind| {
            let mut own = stored.clone();
            (own.outcome.scheme, own.outcome.slowdown) =
                (kind.scheme.clone(), kind.slowdown.clone());
            (*listed, own)
        });
        let kinds: Vec<_> = kinds.collect();
        if kinds.is_empty() { vec![(*listed, stored.clone())] } else { kinds }
    };
    results.iter().flat_map(of).collect()
}

/// One figure per workload and rank, several when there are many curves.
fn charts(results: &[(&Listed, Stored)]) -> Vec<Chart> {
    let seeds = many_seeds(results);
    let mut by_workload: BTreeMap<&str, Vec<(String, &Stored)>> = BTreeMap::new();
    for (listed, stored) in results {
        if stored.outcome.slowdown.buckets.is_empty() {
            continue;
        }
        let curves = by_workload.entry(&stored.outcome.workload).or_default();
        curves.push((curve_name(listed, stored, seeds), stored));
    }
    let mut charts = Vec::new();
    for (workload, curves) in by_workload {
        for part in curves.chunks(CURVES) {
            for rank in [Rank::P99, Rank::P50] {
                charts.push(of_result(&workload.to_uppercase(), part, Reading::All(rank)));
            }
        }
    }
    charts
}

/// What sets a curve apart; the seed only where there are several.
fn curve_name(listed: &Listed, stored: &Stored, seeds: bool) -> String {
    let axes = listed.axes.iter().filter(|(axis, _)| !axis.ends_with("workload"));
    let mut parts: Vec<String> = axes
        .map(|(axis, value)| match axis.rsplit('.').next() {
            Some("scheme") | None => value.clone(),
            Some(key) => format!("{key} {value}"),
        })
        .collect();
    if parts.is_empty() {
        parts.push(format!("{}, load {}", stored.outcome.scheme, stored.outcome.load));
    } else if stored.cell.scenario.beside.is_some() {
        parts.insert(0, stored.outcome.scheme.clone());
    }
    if seeds {
        parts.push(format!("seed {}", listed.seed));
    }
    parts.join(", ")
}

/// True when the plan has several seeds.
fn many_seeds(results: &[(&Listed, Stored)]) -> bool {
    results.windows(2).any(|pair| pair[0].0.seed != pair[1].0.seed)
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
    ("goodput", |s| percent(s.outcome.goodput)),
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

fn queue(stored: &Stored, of: fn(&homa_sim::scenario::outcome::QueueLength) -> f64) -> String {
    let length = stored.outcome.queues.as_ref().and_then(|queues| queues.tor_down);
    optional(length.map(|length| of(&length) / 1e3))
}

fn table(results: &[(&Listed, Stored)]) -> String {
    let seeds = many_seeds(results);
    let mut out = String::from("<div class=\"scroll\"><table><tr><th>simulation</th>");
    for (name, _) in COLUMNS {
        let _ = write!(out, "<th>{name}</th>");
    }
    out += "</tr>\n";
    for (listed, stored) in results {
        let name = curve_name(listed, stored, seeds);
        let name = format!("{}, {name}", stored.outcome.workload.to_uppercase());
        let _ = write!(out, "<tr><td>{}</td>", escaped(&name));
        for (_, of) in COLUMNS {
            let _ = write!(out, "<td>{}</td>", escaped(&of(stored)));
        }
        out += "</tr>\n";
    }
    out + "</table></div>\n"
}

/// What was asked for. A reproduction that was ended midway has its record instead of a plan.
fn plan(store: &Store) -> Result<String, LabError> {
    let record = store.root().join(REPRO_FILE);
    let path = if record.exists() { record } else { store.root().join(PLAN_FILE) };
    let text = std::fs::read_to_string(&path).map_err(|error| LabError::file(&path, error))?;
    Ok(format!("<details><summary>The plan</summary><pre>{}</pre></details>\n", escaped(&text)))
}
