//! `homa swarm`: random scenarios and faults under an independent checker, of Homa's own protocol
//! or of any scheme of the table.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use homa_proto::Coverage;
use homa_sim::engine::Chronicle;
use homa_sim::scheme::{self, SCHEMES, Scheme};
use homa_sim::swarm::any::Trial;
use homa_sim::swarm::{Scenario, SwarmReport, swarm, swarm_of};
use serde::Serialize;

use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{Align, Format, Progress, TextTable, json, line};
use crate::values;

/// Violations shown per failing scenario: the first ones tell most.
const SHOWN: usize = 3;

/// Arguments of `homa swarm`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A scheme of `homa schemes` instead of the protocol that users get: messages in and messages
    /// out are checked, whatever hosts, queues and forwarding it has.
    #[arg(long, value_name = "NAME")]
    scheme: Option<String>,
    /// Number of scenarios.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Seed of the first scenario; the next ones count up from it.
    #[arg(long, default_value_t = 1, value_name = "S", value_parser = values::seed)]
    seed: u64,
    /// Also write the first scenario to standard error, with its faults and its hostile host if it
    /// has one, and without --scheme its every packet and event.
    #[arg(long)]
    trace: bool,
    /// Form of the results.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct SearchReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<&'static str>,
    seeds: u64,
    first_seed: u64,
    /// RPCs accepted, and judged by the checker; with a scheme one-way messages, too.
    rpcs: u64,
    answered: u64,
    /// Ended in a typed error.
    failed: u64,
    packets: u64,
    #[serde(flatten)]
    inside: Option<Inside>,
    failures: Vec<Failing>,
}

/// Results that only Homa's own swarm has.
#[derive(Debug, Serialize)]
struct Inside {
    /// Scenarios with a hostile host.
    hostile: u64,
    cells_reached: usize,
    /// Cells that hosts which follow the rules can reach.
    cells_possible: usize,
    cells: Vec<Cell>,
    counters: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Cell {
    state: &'static str,
    input: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Failing {
    seed: u64,
    replay: String,
    violations: Vec<String>,
}

/// Runs the command; a broken promise is a failed check.
pub fn run(args: &Args) -> Outcome {
    let scheme = args.scheme.as_deref().map(find).transpose()?;
    if args.trace {
        trace(scheme, args.seed);
    }
    let document = document((scheme, args.seed), &search(args, scheme));
    match args.format {
        Format::Json => json(&document)?,
        Format::Table => print(&document),
    }
    Ok(if document.failures.is_empty() { Verdict::Passed } else { Verdict::CheckFailed })
}

/// The row of that name, if it sends messages.
fn find(name: &str) -> Result<&'static Scheme, Failure> {
    scheme::find(name).filter(|row| !row.is_bound()).ok_or_else(|| {
        let rows = SCHEMES.iter().filter(|row| !row.is_bound()).map(|row| row.name);
        let rows: Vec<&str> = rows.collect();
        let error = anyhow::anyhow!("no scheme `{name}` that sends messages");
        Failure::new(error, format!("choose one of {}", rows.join(", ")))
    })
}

/// Writes the first scenario to standard error.
fn trace(scheme: Option<&'static Scheme>, seed: u64) {
    if let Some(scheme) = scheme {
        let trial = Trial::draw(scheme, seed);
        let _ = writeln!(std::io::stderr().lock(), "{trial:#?}");
        return;
    }
    let err = std::io::BufWriter::new(std::io::stderr().lock());
    let mut chronicle = Chronicle(err);
    let scenario = Scenario::draw(seed);
    let _ = writeln!(chronicle.0, "{scenario:#?}");
    homa_sim::swarm::run(&scenario, chronicle);
}

/// Runs the scenarios and shows how far they are, about twice a second.
fn search(args: &Args, scheme: Option<&'static Scheme>) -> SwarmReport {
    let began = Instant::now();
    // A thousand scenarios take about a second.
    let progress = Progress::new(Duration::from_millis(args.seeds));
    let mut shown = began;
    let show = |report: &SwarmReport| {
        if shown.elapsed() < Duration::from_millis(500) {
            return;
        }
        shown = Instant::now();
        progress.step(&format!(
            "{} of {} scenarios, {} RPCs, {} failing",
            report.seeds,
            args.seeds,
            report.calls,
            report.failures.len()
        ));
        progress.spent(Duration::from_millis(report.seeds));
    };
    let report = match scheme {
        Some(scheme) => swarm_of(scheme, (args.seeds, args.seed), show),
        None => swarm(args.seeds, args.seed, show),
    };
    progress.finish();
    report
}

fn document(
    (scheme, first_seed): (Option<&'static Scheme>, u64),
    report: &SwarmReport,
) -> SearchReport {
    let cells = report.coverage.cells();
    let inside = || Inside {
        hostile: report.hostile,
        cells_reached: report.coverage.reached(),
        cells_possible: Coverage::possible(),
        cells: cells.map(|(state, input, count)| Cell { state, input, count }).collect(),
        counters: report.counters.clone(),
    };
    let failures = report.failures.iter().map(|failure| Failing {
        seed: failure.seed,
        replay: failure.replay(),
        violations: failure.violations.iter().map(ToString::to_string).collect(),
    });
    SearchReport {
        scheme: scheme.map(|row| row.name),
        seeds: report.seeds,
        first_seed,
        rpcs: report.calls,
        answered: report.answered,
        failed: report.failed,
        packets: report.packets,
        inside: scheme.is_none().then(inside),
        failures: failures.collect(),
    }
}

fn print(document: &SearchReport) {
    let SearchReport { seeds, rpcs, answered, failed, packets, .. } = document;
    match document.scheme {
        Some(scheme) => line(format!(
            "{seeds} scenarios of {scheme}, {rpcs} messages and RPCs checked ({answered} \
             delivered or answered, {failed} reported failed), {packets} packets"
        )),
        None => line(format!(
            "{seeds} scenarios, {rpcs} RPCs checked ({answered} answered, {failed} failed with a \
             typed error), {packets} packets"
        )),
    }
    if let Some(Inside { hostile, .. }) = &document.inside {
        line(format!("{hostile} scenarios with a hostile host beside the path of the others"));
    }
    if let Some(Inside { cells_reached, cells_possible, cells, .. }) = &document.inside {
        line(format!(
            "{cells_reached} of {cells_possible} state x event cells reached; how often:"
        ));
        line("");
        print_cells(cells);
        line("");
    }
    for failing in &document.failures {
        line(format!("BROKEN: {}", failing.replay));
        for violation in failing.violations.iter().take(SHOWN) {
            line(format!("  {violation}"));
        }
        let more = failing.violations.len().saturating_sub(SHOWN);
        if more > 0 {
            line(format!("  and {more} more"));
        }
    }
    line(match document.failures.len() {
        0 => String::from("every promise was kept"),
        n => format!(
            "{n} of {seeds} scenarios broke a promise; `{} --trace` shows the first",
            document.failures[0].replay
        ),
    });
}

/// One row per state, one column per input; a dot if the two never met.
fn print_cells(cells: &[Cell]) {
    let Some(first) = cells.first() else { return };
    let row_length = cells.iter().take_while(|cell| cell.state == first.state).count();
    let mut columns = vec![("state", Align::Left, 17)];
    columns.extend(cells[..row_length].iter().map(|cell| (cell.input, Align::Right, 7)));
    let table = TextTable::new(&columns);
    line(table.head());
    for row in cells.chunks(row_length) {
        let counts = row.iter().map(|cell| match cell.count {
            0 => String::from("."),
            count => count.to_string(),
        });
        let texts: Vec<String> = std::iter::once(row[0].state.into()).chain(counts).collect();
        line(table.row(&texts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No command shows these keys as long as every promise is kept.
    #[test]
    fn the_keys_of_a_failure_are_in_the_reference_and_no_other() {
        let page = include_str!("../../../../docs/json.md");
        let named =
            page.lines().filter_map(|line| line.strip_prefix("| `failures[].")?.split_once('`'));
        let mut named: Vec<&str> = named.map(|(key, _)| key).collect();
        named.sort_unstable();
        let failing = Failing { seed: 1, replay: String::new(), violations: Vec::new() };
        let failing = serde_json::to_value(failing).expect("plain data");
        let mut keys: Vec<&String> = failing.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, named);
    }
}
