//! `homa bench --fan-out`: partition-aggregate workflows (DeTail §2.2). A host asks many servers at
//! once and is done when the last of them has answered, so that the slowest packet of all decides.
//!
//! Every host is a front end as well as a server. Workflows arrive as a Poisson process, for every
//! row the same; with fewer servers than parts some are asked several times. A workflow that lost a
//! part counts as lost and in no percentile.

use homa_testbed::{Pattern, Rack, Record, RunReport, Transport};
use homa_workload::arrivals::Arrival;
use homa_workload::framing::Framing;
use homa_workload::quantile::{Percentile, Sorted};
use homa_workload::rng::Rng;
use serde::Serialize;

use super::args::{Args, MOST_PARTS};
use super::marking::PlannedRow;
use super::measure;
use super::results::queueing::Queueing;
use super::results::report::broken;
use super::rows::Rows;
use super::units::{by_name, time};

use crate::failure::{Failure, Hint, Outcome};
use crate::output::{Align, TextTable};

/// Bytes of a request.
const REQUEST: u32 = 100;
/// Most RPCs of a row.
const MOST_RPCS: f64 = 5e6;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct WorkflowRow {
    #[serde(rename = "name", serialize_with = "by_name")]
    transport: Transport,
    /// Whether the switch marked congestion; absent if no marks were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    marks: Option<bool>,
    /// Workflows.
    offered: usize,
    completed: usize,
    /// RPCs that failed or never ended.
    errors: usize,
    started: u64,
    executed: u64,
    /// Completion of workflows.
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// Of their RPCs.
    rpc_p50_us: Option<f64>,
    rpc_p99_us: Option<f64>,
    frames_dropped: u64,
    /// Frames lost with a link that failed.
    frames_cut: u64,
    cpu_us_per_rpc: f64,
    queueing: Queueing,
}

impl WorkflowRow {
    fn of_run(run: &RunReport, marks: Option<bool>, args: &Args, offered: usize) -> Self {
        let us = |latencies: &Sorted<u64>, percentile: Option<Percentile>| {
            let ns = latencies.percentile(percentile?)?;
            Some((ns as f64 / 100.0).round() / 10.0)
        };
        let workflows = Sorted::new(completions(&run.records, args.fan_out.unwrap_or(1) as usize));
        let rpcs = Sorted::new(run.records.iter().map(|record| record.latency_ns).collect());
        let [p50, p99] = [Percentile::P50, Percentile::P99].map(Some);
        Self {
            transport: run.transport,
            marks,
            offered,
            completed: workflows.len(),
            errors: run.failed + run.lost,
            started: run.started,
            executed: run.executed,
            p50_us: us(&workflows, p50),
            p99_us: us(&workflows, p99),
            p999_us: us(&workflows, Percentile::millionths(999_000)),
            rpc_p50_us: us(&rpcs, p50),
            rpc_p99_us: us(&rpcs, p99),
            frames_dropped: run.switch.dropped,
            frames_cut: run.switch.cut,
            cpu_us_per_rpc: (run.cpu_us_per_rpc * 10.0).round() / 10.0,
            queueing: Queueing::of_run(run, 0..args.hosts()),
        }
    }
}

/// How long each complete workflow took. The parts of a workflow have the same host and time, so
/// that their records stand together.
fn completions(records: &[Record], parts: usize) -> Vec<u64> {
    let workflows = records.chunk_by(|one, other| one.due_ns == other.due_ns);
    let whole = workflows.filter(|workflow| workflow.len() == parts);
    whole.filter_map(|workflow| workflow.iter().map(|part| part.latency_ns).max()).collect()
}

/// The parts of every host's workflows, by time.
fn schedule(args: &Args, parts: u32) -> Result<Vec<Vec<Arrival>>, Failure> {
    // By TCP's framing whatever the row, so that all have the same.
    let wire = |bytes| Framing::Tcp.data_wire_bytes(bytes);
    // A host sends its requests and, as a server, as many responses.
    let bits = 8.0 * f64::from(parts) * (wire(REQUEST) + wire(args.response)) as f64;
    let mean_gap_ns = 1e9 * bits / (args.load * args.link() as f64);
    let duration_ns = args.duration().as_nanos() as f64;
    let expected = duration_ns / mean_gap_ns * f64::from(parts) * args.hosts() as f64;
    if expected > MOST_RPCS {
        let error = anyhow::anyhow!("about {expected:.1e} RPCs would be started");
        return Err(Failure::new(error, "choose a shorter --duration or a larger --response"));
    }
    let others = args.hosts() - 1;
    let of_host = |host: usize| {
        let stream = |what| Rng::stream(args.seed, &format!("workflows/{what}/host{host}"));
        let (mut gaps, mut peers) = (stream("gaps"), stream("peers"));
        let (mut now, mut all) = (0.0, Vec::new());
        loop {
            now += gaps.exponential(mean_gap_ns);
            if now >= duration_ns {
                return all;
            }
            // Each server once before any is asked again, from a random one on.
            let first = peers.uniform_below(others as u32) as usize;
            all.extend((0..parts as usize).map(|part| Arrival {
                at_ns: now as u64,
                src: host as u16,
                dst: ((host + 1 + (first + part) % others) % args.hosts()) as u16,
                bytes: args.response,
            }));
        }
    };
    Ok((0..args.hosts()).map(of_host).collect())
}

/// Workflows of every host, each with the same number of parts.
struct Workflows {
    args: Args,
    parts: usize,
    arrivals: Vec<Vec<Arrival>>,
}

impl Workflows {
    fn rpcs(&self) -> usize {
        self.arrivals.iter().map(Vec::len).sum()
    }
}

impl Rows for Workflows {
    type Row = WorkflowRow;

    fn pattern(&self) -> Pattern<'_> {
        let duration = self.args.duration();
        Pattern::Open { arrivals: &self.arrivals, request_bytes: Some(REQUEST), duration }
    }

    fn row(
        &self,
        run: &RunReport,
        planned: PlannedRow,
        _rack: &Rack,
    ) -> Result<WorkflowRow, Failure> {
        Ok(WorkflowRow::of_run(run, planned.marks, &self.args, self.rpcs() / self.parts))
    }

    fn broken(&self, row: &WorkflowRow) -> Vec<String> {
        broken(row.transport, (self.rpcs(), row.errors), Some((row.started, row.executed)))
    }

    fn table(&self) -> TextTable {
        TextTable::new(&[
            ("partition-aggregate", Align::Left, 22),
            ("p50", Align::Right, 8),
            ("p99", Align::Right, 8),
            ("p99.9", Align::Right, 8),
            ("p99 of a part", Align::Right, 13),
            ("dropped, cut", Align::Right, 12),
            ("lost RPCs", Align::Right, 9),
        ])
    }

    fn offered(&self) -> String {
        format!(
            "Load: {} workflows, each asks {} servers at once for {} B, Poisson, {:.0} % of every \
             link.",
            self.rpcs() / self.parts,
            self.parts,
            self.args.response,
            self.args.load * 100.0
        )
    }

    fn cells(&self, row: &WorkflowRow) -> Vec<String> {
        vec![
            time(row.p50_us),
            time(row.p99_us),
            time(row.p999_us),
            time(row.rpc_p99_us),
            format!("{}, {}", row.frames_dropped, row.frames_cut),
            row.errors.to_string(),
        ]
    }

    fn below(&self, row: &WorkflowRow, _verbose: bool) -> Vec<String> {
        vec![row.queueing.line()]
    }
}

/// Runs every row.
pub fn run(args: &Args, parts: u32) -> Outcome {
    let parts = parts.min(MOST_PARTS);
    u16::try_from(args.hosts()).hint("a rack has 2 to 250 hosts")?;
    // Refuses a load that cannot be offered, before a rack is built.
    schedule(args, parts)?;
    measure::run(args, false, |args| {
        let arrivals = schedule(args, parts)?;
        Ok(Workflows { args: args.clone(), parts: parts as usize, arrivals })
    })
}

#[cfg(test)]
mod tests {
    use super::super::args::asked;
    use super::*;

    #[test]
    fn the_slowest_part_decides_and_a_lost_part_loses_a_workflow() {
        let part = |due_ns, latency_ns| Record { bytes: 1, due_ns, latency_ns };
        let records = [part(5, 10), part(5, 30), part(9, 70), part(12, 20), part(12, 15)];
        assert_eq!(completions(&records, 2), [30, 20]);
        assert!(completions(&[], 2).is_empty());
    }

    #[test]
    fn every_server_is_asked_once_before_any_is_asked_again() {
        let more = ["--load", "0.5", "--response", "2KB", "--duration", "2s", "--hosts", "4"];
        let args = asked(&[&["--fan-out", "7"], &more[..]].concat());
        let all = schedule(&args, 7).unwrap_or_default();
        assert_eq!(all.len(), 4);
        for (host, arrivals) in all.iter().enumerate() {
            assert!(arrivals.len() > 100 && arrivals.len() % 7 == 0, "{}", arrivals.len());
            assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_ns));
            for workflow in arrivals.chunks(7) {
                let times =
                    |dst| workflow.iter().filter(|part| usize::from(part.dst) == dst).count();
                let asked: Vec<usize> = (0..4).filter(|dst| *dst != host).map(times).collect();
                assert_eq!((times(host), asked.iter().sum::<usize>()), (0, 7));
                assert!(asked.iter().all(|times| (2..=3).contains(times)), "{asked:?}");
            }
        }
        // Half of 100 Mbit/s in requests and responses.
        let parts = all.iter().map(Vec::len).sum::<usize>() as f64 / 4.0;
        let bytes = Framing::Tcp.data_wire_bytes(100) + Framing::Tcp.data_wire_bytes(2_000);
        let load = parts * bytes as f64 * 8.0 / 2.0 / 100e6;
        assert!((load - 0.5).abs() < 0.05, "{load}");
    }
}
