//! `homa bench --incast`: one client asks all other hosts for 10 kB each and keeps many RPCs in
//! progress (Homa §3.6, §5.1): do the responses overrun the client's port at the switch?

use homa_testbed::{Pattern, Rack, RunReport, Transport};
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::args::Args;
use super::marking::PlannedRow;
use super::measure;
use super::results::queueing::Queueing;
use super::results::report::broken;
use super::rows::Rows;
use super::units::{by_name, time};
use crate::failure::{Failure, Outcome};
use crate::output::{Align, TextTable};

/// Bytes of a request and of a response, as in the measurements of the Homa paper.
const REQUEST: u32 = 100;
const RESPONSE: u32 = 10_000;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct IncastRow {
    #[serde(rename = "name", serialize_with = "by_name")]
    transport: Transport,
    /// Whether the switch marked congestion; absent if no marks were asked for.
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
    /// Queueing at the client's port.
    queueing: Queueing,
}

impl IncastRow {
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
}

/// The load of a row.
pub fn pattern(args: &Args, outstanding: u32) -> Pattern<'static> {
    Pattern::Incast {
        outstanding: outstanding as usize,
        request_bytes: REQUEST,
        response_bytes: RESPONSE,
        duration: args.duration(),
    }
}

/// RPCs in progress under these arguments.
struct Incast(Args, u32);

impl Rows for Incast {
    type Row = IncastRow;

    fn pattern(&self) -> Pattern<'_> {
        pattern(&self.0, self.1)
    }

    fn row(
        &self,
        run: &RunReport,
        planned: PlannedRow,
        _rack: &Rack,
    ) -> Result<IncastRow, Failure> {
        Ok(IncastRow::of_run(run, planned.marks, self.1))
    }

    fn broken(&self, row: &IncastRow) -> Vec<String> {
        broken(row.transport, (row.offered, row.errors), Some((row.started, row.executed)))
    }

    fn table(&self) -> TextTable {
        TextTable::new(&[
            ("transport", Align::Left, 20),
            ("goodput Mbit/s", Align::Right, 8),
            ("p50", Align::Right, 8),
            ("p99", Align::Right, 8),
            ("frames dropped", Align::Right, 8),
            ("lost RPCs", Align::Right, 6),
        ])
    }

    fn offered(&self) -> String {
        format!(
            "Incast: 1 client, {} servers, {} RPCs in progress, responses of {RESPONSE} B; \
             Homa's incast control {}.",
            self.0.hosts() - 1,
            self.1,
            self.0.incast_control.name()
        )
    }

    fn cells(&self, row: &IncastRow) -> Vec<String> {
        vec![
            format!("{:.1}", row.goodput_mbps),
            time(row.p50_us),
            time(row.p99_us),
            row.frames_dropped.to_string(),
            row.errors.to_string(),
        ]
    }

    fn below(&self, row: &IncastRow, verbose: bool) -> Vec<String> {
        let shown = verbose || row.marks.is_some();
        shown.then(|| row.queueing.line()).into_iter().collect()
    }
}

/// Runs every row with `outstanding` RPCs in progress.
pub fn run(args: &Args, outstanding: u32) -> Outcome {
    measure::run(args, false, |args| Ok(Incast(args.clone(), outstanding)))
}
