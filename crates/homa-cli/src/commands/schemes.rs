//! `homa schemes`: what can be simulated.

use homa_sim::scheme::{SCHEMES, Scheme};
use serde::Serialize;

use crate::failure::{Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};

/// Arguments of `homa schemes`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    paper: &'static str,
    host: String,
    queue: String,
    forwarding: String,
    nic: String,
}

/// A part of a scheme that handles packets, if it has packets.
fn of_packets(scheme: &Scheme, part: &dyn ToString) -> String {
    if scheme.is_bound() { "none".to_owned() } else { part.to_string() }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let rows = SCHEMES.iter().map(|scheme| Row {
        name: scheme.name,
        paper: scheme.paper,
        host: scheme.host().to_string(),
        queue: of_packets(scheme, &scheme.queue),
        forwarding: of_packets(scheme, &scheme.forwarding),
        nic: of_packets(scheme, &scheme.nic),
    });
    let rows: Vec<Row> = rows.collect();
    match args.format {
        Format::Json => json(&rows)?,
        Format::Table => {
            let titles = ["scheme", "host", "switch queue", "forwarding", "NIC", "described in"];
            let cells = |row: &Row| {
                let Row { name, paper, host, queue, forwarding, nic } = row;
                [*name, host, queue, forwarding, nic, *paper].map(String::from)
            };
            let cells: Vec<_> = rows.iter().map(cells).collect();
            let longest = |column: usize| cells.iter().map(|row| row[column].len()).max();
            let columns = titles.iter().enumerate();
            let columns =
                columns.map(|(at, title)| (*title, Align::Left, longest(at).unwrap_or(0)));
            let table = TextTable::new(&columns.collect::<Vec<_>>());
            line(table.head());
            cells.iter().for_each(|row| line(table.row(row)));
        }
    }
    Ok(Verdict::Passed)
}
