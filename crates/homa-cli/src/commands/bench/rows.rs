//! Measures the rows of a pattern of its own (`--incast`, `--fan-out`) one after the other on the
//! rack, and prints each as it finishes. The rack's load (`rack.rs`) has more for each row (idle
//! round trips, the forecast) and a loop of its own.

use std::time::Duration;

use homa_testbed::check::Verdict as Checked;
use homa_testbed::{Pattern, RunReport};
use serde::Serialize;

use super::Args;
use super::config::{Config, Network, command_line};
use super::marking::Planned;
use super::rack::{Racks, plan, undisturbed};
use super::report::{Report, kept};
use super::screen::{check_line, rack_lines};
use crate::failure::{Outcome, Verdict};
use crate::output::{Format, Progress, Table, json, line};

/// What hosts do to one another, and what a row tells of it.
pub trait Rows {
    /// The figures of a run, as they stand in the result.
    type Row: Serialize;

    /// What each row does.
    fn pattern(&self) -> Pattern<'_>;

    /// The figures of a run.
    fn row(&self, run: &RunReport, planned: Planned) -> Self::Row;

    /// Promises that a run broke, as sentences.
    fn broken(&self, row: &Self::Row) -> Vec<String>;

    /// The columns for people; the first one is the transport's.
    fn table(&self) -> Table;

    /// What is offered, above the table.
    fn offered(&self) -> String;

    /// The cells after the transport's.
    fn cells(&self, row: &Self::Row) -> Vec<String>;

    /// A line below a row, about what waited in the switch.
    fn below(&self, row: &Self::Row) -> Option<String>;
}

/// Measures and prints every row.
pub fn run(args: &Args, mut racks: Racks<'_>, of: &impl Rows) -> Outcome {
    let planned = args.rows();
    let row_time = args.duration() + Duration::from_secs(2);
    let progress = Progress::ticking(row_time * planned.len() as u32);
    let table = (args.format == Format::Table).then(|| of.table());
    progress.step("checking the rack: wire timing and strict priority");
    let (mut rows, mut verdict) = (Vec::new(), Checked::default());
    let mut config = Config::new(args, Network::Rack);
    for (index, &row) in planned.iter().enumerate() {
        let (rack, probes) = racks.of_row(row)?;
        verdict.extend(probes.map(|probes| probes.verdict).unwrap_or_default());
        if index == 0 {
            config = Config::of_rack(args, rack);
            if let Some(table) = &table {
                progress.suspend(|| {
                    rack_lines(args, rack);
                    line(of.offered());
                    line(table.head());
                });
            }
        }
        let label = row.label();
        progress.step(&label);
        let plan = plan(args, row.transport, of.pattern());
        let run = undisturbed(rack, &plan, (&progress, &verdict))?;
        let result = of.row(&run, row);
        progress.suspend(|| {
            eprintln!("{label}: {}", run.verdict);
            if let Some(table) = &table {
                let cells: Vec<String> = [label].into_iter().chain(of.cells(&result)).collect();
                line(table.row(&cells));
                of.below(&result).iter().for_each(line);
            }
        });
        verdict.extend(run.verdict);
        rows.push(result);
        progress.revise(rows.len(), planned.len());
    }
    progress.finish();
    if table.is_some() {
        line(check_line(&verdict));
    }
    let broken: Vec<String> = rows.iter().flat_map(|row| of.broken(row)).collect();
    let (valid, kept) = (verdict.valid(), kept(&broken, args.format));
    match args.format {
        Format::Json => json(&Report { config, valid, transports: &rows })?,
        Format::Table => line(format!("Repeat: {}", command_line(args))),
    }
    Ok(if valid && kept { Verdict::Passed } else { Verdict::CheckFailed })
}
