//! `homa top`: what an engine does now, from its metrics endpoint (`homa serve --metrics`, or
//! `homa::metrics::http::Exporter` in a program of one's own).
//!
//! Two scrapes make a report: counters become rates, and histograms become percentiles of the RPCs
//! that ended between the scrapes, also by size.

mod report;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa_workload::units::Quantity;
use serde::Serialize;

use super::scrape::Scrape;
use crate::failure::{Outcome, Verdict};
use crate::output::{self, Format};
use crate::values;
use report::Report;

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Least time between two scrapes: shorter ones would measure the scrapes.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `homa top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The metrics endpoint of the engine, such as 10.0.0.7:9464 (TCP).
    #[arg(value_name = "ADDR", value_parser = values::metrics)]
    endpoint: SocketAddr,
    /// Time between two reports.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = interval)]
    interval: Duration,
    /// Reports to print. [default: until Ctrl-C; 1 with --format json]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = values::within::<u32>(Quantity::Count, 1..=u32::MAX.into()))]
    count: Option<u32>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The JSON document.
#[derive(Serialize)]
struct Reports {
    reports: Vec<Report>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let json = args.format == Format::Json;
    let count = args.count.or(json.then_some(1));
    let mut last = Scrape::of_engine(args.endpoint)?;
    let mut reports = Vec::new();
    let mut done = 0;
    while count.is_none_or(|count| done < count) {
        let due = last.taken + args.interval;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let next = Scrape::of_engine(args.endpoint)?;
        let report = Report::between(&last, &next);
        match json {
            true => reports.push(report),
            false => show(args.endpoint, &report),
        }
        last = next;
        done += 1;
    }
    if json {
        output::json(&Reports { reports })?;
    }
    Ok(Verdict::Passed)
}

/// Prints a report; on a terminal in place of the one before it.
fn show(endpoint: SocketAddr, report: &Report) {
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    output::line(format!("{clear}{}", report.to_text(endpoint)));
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = values::duration(text)?;
    match time < LEAST_INTERVAL {
        true => Err("write at least 100ms".into()),
        false => Ok(time),
    }
}
