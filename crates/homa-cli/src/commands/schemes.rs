//! `homa schemes`: what can be simulated, and with which options a scheme runs.

use homa_lab::changes::Changes;
use homa_lab::options::listed;
use homa_lab::settings::{assignment, label};
use homa_sim::experiment::resolved;
use homa_sim::scheme::{SCHEMES, Scheme, find};
use serde::Serialize;
use toml::Value;

use super::sim::plan_failure;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};

/// Arguments of `homa schemes`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One scheme: prints every option with the value that it runs with if a plan does not set it.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A key of the scenario, such as fabric.host_link=100Gbps, because defaults follow the
    /// network; may be repeated. [default: the 144 hosts of the Homa paper]
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment, requires = "name")]
    set: Vec<(String, Value)>,
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
    /// Only of a single scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<SchemeOption>>,
}

/// An option with the value that the scheme runs with.
#[derive(Debug, Serialize)]
struct SchemeOption {
    key: String,
    value: Value,
}

/// A part of a scheme that handles packets, if it has packets.
fn of_packets(scheme: &Scheme, part: &dyn ToString) -> String {
    if scheme.is_bound() { "none".to_owned() } else { part.to_string() }
}

fn row(scheme: &Scheme) -> Row {
    Row {
        name: scheme.name,
        paper: scheme.paper,
        host: scheme.host().to_string(),
        queue: of_packets(scheme, &scheme.queue),
        forwarding: of_packets(scheme, &scheme.forwarding),
        nic: of_packets(scheme, &scheme.nic),
        options: None,
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    match &args.name {
        Some(name) => one(name, args)?,
        None => all(args.format)?,
    }
    Ok(Verdict::Passed)
}

fn all(format: Format) -> Result<(), Failure> {
    let rows: Vec<Row> = SCHEMES.iter().map(row).collect();
    if format == Format::Json {
        return json(&rows);
    }
    let titles = ["scheme", "host", "switch queue", "forwarding", "NIC", "described in"];
    let cells = |row: &Row| {
        let Row { name, paper, host, queue, forwarding, nic, options: _ } = row;
        [*name, host, queue, forwarding, nic, *paper].map(String::from)
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    let longest = |column: usize| cells.iter().map(|row| row[column].len()).max();
    let columns = titles.iter().enumerate();
    let columns = columns.map(|(at, title)| (*title, Align::Left, longest(at).unwrap_or(0)));
    let table = TextTable::new(&columns.collect::<Vec<_>>());
    line(table.head());
    cells.iter().for_each(|row| line(table.row(row)));
    line("`homa schemes NAME` prints the options of one of them.");
    Ok(())
}

fn one(name: &str, args: &Args) -> Result<(), Failure> {
    let changes =
        Changes { scheme: Some(name.to_owned()), set: args.set.clone(), ..Changes::default() };
    let plan = changes.single(None).map_err(plan_failure)?;
    let scenario = &plan.cells[0].scenario;
    let hint = "`homa schemes` lists all";
    let all = resolved(scenario).hint(hint)?;
    let options: Vec<SchemeOption> = all
        .iter()
        .take(1)
        .flat_map(|(_, options)| listed(options))
        .map(|(key, value)| SchemeOption { key, value })
        .collect();
    let found = find(&scenario.scheme);
    let row = row(found.ok_or_else(|| anyhow::anyhow!("unknown scheme `{name}`")).hint(hint)?);
    if args.format == Format::Json {
        return json(&Row { options: Some(options), ..row });
    }
    line(format!("{}: {}", row.name, row.paper));
    line(format!("  host: {}", row.host));
    line(format!("  switch queue: {}", row.queue));
    line(format!("  forwarding: {}", row.forwarding));
    line(format!("  NIC: {}", row.nic));
    let longest = options.iter().map(|option| option.key.len()).max().unwrap_or(0);
    let table = TextTable::new(&[("option", Align::Left, longest), ("value", Align::Left, 5)]);
    line(table.head());
    for SchemeOption { key, value } in &options {
        line(table.row(&[key.clone(), label(value)]));
    }
    Ok(())
}
