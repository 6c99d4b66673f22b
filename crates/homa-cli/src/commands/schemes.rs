//! `homa schemes`: what can be simulated.

use homa_sim::scheme::{SCHEMES, Scheme};
use serde::Serialize;

use crate::failure::{Outcome, Verdict};
use crate::output::{Align, Format, Table, json, line};

/// Arguments of `homa schemes`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Form of the results.
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

/// What becomes of packets, where there are any.
fn of_packets(scheme: &Scheme, part: &dyn ToString) -> String {
    if scheme.is_bound() { "none".to_owned() } else { part.to_string() }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let rows = SCHEMES.iter().map(|scheme| Row {
        name: scheme.name,
        paper: scheme.paper,
        host: scheme.host.to_string(),
        queue: of_packets(scheme, &scheme.queue),
        forwarding: of_packets(scheme, &scheme.forwarding),
        nic: of_packets(scheme, &scheme.nic),
    });
    let rows: Vec<Row> = rows.collect();
    match args.format {
        Format::Json => json(&rows)?,
        Format::Table => {
            let left = |title, width| (title, Align::Left, width);
            let table = Table::new(&[
                left("scheme", 12),
                left("host", 36),
                left("switch queue", 16),
                left("forwarding", 10),
                left("NIC", 5),
                left("described in", 20),
            ]);
            line(table.head());
            for row in &rows {
                let Row { name, paper, host, queue, forwarding, nic } = row;
                let cells = [*name, host, queue, forwarding, nic, *paper];
                line(table.row(&cells.map(String::from)));
            }
        }
    }
    Ok(Verdict::Passed)
}
