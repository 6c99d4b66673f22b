//! `homa bench --incast`: one client asks all other hosts for 10 kB each and keeps many RPCs in
//! progress (Homa §3.6, §5.1): do the responses overrun the client's port at the switch?

use std::time::Duration;

use homa_testbed::check::Verdict as Checked;
use homa_testbed::{Pattern, Rack, RunReport, Transport};
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::Args;
use super::config::{Config, Network, command_line};
use super::queueing::Queueing;
use super::rack::{Racks, plan, undisturbed};
use super::report::{Report, broken, by_name, kept};
use super::screen::{check_line, rack_lines, time};
use crate::failure::{Outcome, Verdict};
use crate::output::{Align, Format, Progress, Table, json, line};

/// Bytes of a request and of a response, as in the measurements of the Homa paper.
const REQUEST: u32 = 100;
const RESPONSE: u32 = 10_000;

/// One row.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(rename = "name", serialize_with = "by_name")]
    transport: Transport,
    /// Whether the switch marked congestion; absent where nobody asked for marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    marks: Option<bool>,
    offered: usize,
    completed: usize,
    errors: usize,
    /// RPCs ever started, warm-up included, and requests executed for them.
    started: u64,
    executed: u64,
    /// RPCs in progress.
    outstanding: u32,
    /// Response bytes per second, in megabits.
    goodput_mbps: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    /// Frames that found no room in a port's buffer.
    frames_dropped: u64,
    cpu_us_per_rpc: f64,
    /// What waited at the client's port.
    queueing: Queueing,
}

impl Row {
    fn of_run(run: &RunReport, marks: Option<bool>, outstanding: u32) -> Self {
        let latencies = run.records.iter().map(|record| record.latency_ns).collect();
        let sorted = Sorted::new(latencies);
        let us = |p| sorted.percentile(p).map(|ns| (ns as f64 / 100.0).round() / 10.0);
        Self {
            transport: run.transport,
            marks,
            offered: run.offered,
            completed: run.records.len(),
            errors: run.failed + run.lost,
            started: run.started,
            executed: run.executed,
            outstanding,
            goodput_mbps: (run.goodput_bytes_per_s() * 8e-5).round() / 10.0,
            p50_us: us(Percentile::P50),
            p99_us: us(Percentile::P99),
            frames_dropped: run.switch.dropped,
            cpu_us_per_rpc: (run.cpu_us_per_rpc * 10.0).round() / 10.0,
            queueing: Queueing::of_run(run, 0..1),
        }
    }

    fn broken(&self) -> Vec<String> {
        broken(self.transport, (self.offered, self.errors), Some((self.started, self.executed)))
    }
}

/// What a row does.
pub fn pattern(args: &Args, outstanding: u32) -> Pattern<'static> {
    Pattern::Incast {
        outstanding: outstanding as usize,
        request_bytes: REQUEST,
        response_bytes: RESPONSE,
        duration: args.duration(),
    }
}

/// Runs every row with `outstanding` RPCs in progress.
pub fn run(args: &Args, mut racks: Racks<'_>, outstanding: u32) -> Outcome {
    let planned = args.rows();
    let row_time = args.duration() + Duration::from_secs(2);
    let progress = Progress::ticking(row_time * planned.len() as u32);
    let table = Table::new(&[
        ("transport", Align::Left, 20),
        ("goodput Mbit/s", Align::Right, 8),
        ("p50", Align::Right, 8),
        ("p99", Align::Right, 8),
        ("frames dropped", Align::Right, 8),
        ("lost RPCs", Align::Right, 6),
    ]);
    progress.step("checking the rack: wire timing and strict priority");
    let (mut rows, mut verdict) = (Vec::new(), Checked::default());
    let mut config = Config::new(args, Network::Rack);
    for (index, &row) in planned.iter().enumerate() {
        let (rack, probes) = racks.of_row(row)?;
        verdict.extend(probes.map(|probes| probes.verdict).unwrap_or_default());
        if index == 0 {
            config = Config::of_rack(args, rack);
            if args.format == Format::Table {
                progress.suspend(|| head(args, outstanding, rack, &table));
            }
        }
        let label = row.label();
        progress.step(&label);
        let plan = plan(args, row.transport, pattern(args, outstanding));
        let run = undisturbed(rack, &plan, (&progress, &verdict))?;
        let row = Row::of_run(&run, row.marks, outstanding);
        progress.suspend(|| {
            eprintln!("{label}: {}", run.verdict);
            if args.format == Format::Table {
                line(table.row(&[
                    label.clone(),
                    format!("{:.1}", row.goodput_mbps),
                    time(row.p50_us),
                    time(row.p99_us),
                    row.frames_dropped.to_string(),
                    row.errors.to_string(),
                ]));
                row.marks.iter().for_each(|_| line(row.queueing.line()));
            }
        });
        verdict.extend(run.verdict);
        rows.push(row);
        progress.revise(rows.len(), planned.len());
    }
    progress.finish();
    let (valid, broken) = (verdict.valid(), rows.iter().flat_map(Row::broken).collect::<Vec<_>>());
    if args.format == Format::Table {
        line(check_line(&verdict));
    }
    let kept = kept(&broken, args.format);
    match args.format {
        Format::Json => {
            json(&Report { config, valid, transports: &rows })?;
        }
        Format::Table => line(format!("Repeat: {}", command_line(args))),
    }
    Ok(if valid && kept { Verdict::Passed } else { Verdict::CheckFailed })
}

fn head(args: &Args, outstanding: u32, rack: &Rack, table: &Table) {
    let control = args.incast_control.name();
    rack_lines(args, rack);
    line(format!(
        "Incast: 1 client, {} servers, {outstanding} RPCs in progress, responses of {RESPONSE} B; \
         Homa's incast control {control}.",
        args.hosts() - 1
    ));
    line(table.head());
}
