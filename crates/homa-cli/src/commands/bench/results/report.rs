//! The result of `homa bench` in the shape that scripts rely on.
//!
//! Times are microseconds; a figure without a single RPC behind it is absent (`null`), never zero.

use homa_testbed::check::SHORT_BYTES;
use homa_testbed::{IdleTimes, Pauses, RackConfig, Record, RunReport, Transport};
use homa_workload::bins::SizeBins;
use homa_workload::interval::correlated;
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::forecast::Twin;
use super::memory::Memory;
use super::queueing::Queueing;
use crate::commands::bench::config::Config;
use crate::commands::bench::marking::PlannedRow;
use crate::commands::bench::units::by_name;
use crate::output::{Format, line};

/// The smallest RPC of the "long" figures, bytes.
pub const LONG_BYTES: u32 = 150_000;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport<'a, R> {
    /// The resolved request.
    pub config: Config,
    /// Whether every row that was asked for is there and valid.
    pub valid: bool,
    /// Why the rows are simulated; absent if they are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_simulated: Option<String>,
    /// One entry per row.
    pub transports: &'a [Judged<R>],
}

/// The source of a row's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// From real sockets.
    Measured,
    /// From the simulator.
    Simulated,
}

/// A row, and whether its figures can be trusted.
#[derive(Clone, Debug, Serialize)]
pub struct Judged<R> {
    /// The figures.
    #[serde(flatten)]
    pub row: R,
    /// Whether the rack's checks of itself held while the row was measured.
    pub valid: bool,
    /// The check that failed, as a sentence; `None` if the row is valid.
    pub reason: Option<String>,
    /// The source of the figures.
    pub source: Source,
    /// RPCs were still in progress when the time for the command was over, which breaks no promise
    /// if the machine disturbed the row.
    #[serde(skip)]
    pub cut_short: bool,
}

impl<R> Judged<R> {
    /// A row from real sockets that nothing disturbed.
    pub fn valid(row: R) -> Self {
        Self { row, valid: true, reason: None, source: Source::Measured, cut_short: false }
    }

    /// A row from the simulator, which nothing can disturb.
    pub fn simulated(row: R) -> Self {
        Self { source: Source::Simulated, ..Self::valid(row) }
    }

    /// Whether the figures come from real sockets.
    pub fn measured(&self) -> bool {
        self.source == Source::Measured
    }
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct TransportResult {
    /// Over what: its name on the command line.
    #[serde(rename = "name", serialize_with = "by_name")]
    pub transport: Transport,
    /// Whether the switch marked congestion; absent if no marks were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<bool>,
    /// RPCs that were to be started.
    pub offered: usize,
    /// RPCs whose response arrived.
    pub completed: usize,
    /// RPCs that failed or never ended.
    pub errors: usize,
    /// Processor time of client and server together, without the kernel's work for arriving frames,
    /// which runs on the switch's thread; `None` if the row is simulated.
    pub cpu_us_per_rpc: Option<f64>,
    /// RPCs that the rack's hosts ever started, warm-up and idle round trips included; absent if
    /// the servers are not part of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// Requests that servers executed for them: more than `started` when some ran twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<u64>,
    /// Memory of this process under load, for Homa, which keeps all its state in the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// RPCs of at most [`SHORT_BYTES`].
    pub short: Short,
    /// RPCs of at least [`LONG_BYTES`].
    pub long: Long,
    /// All RPCs by size.
    pub buckets: Vec<SizeBucket>,
    /// Request bytes of completed RPCs per second, all hosts together, in megabits, from the first
    /// arrival to the last end; only on the rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_mbps: Option<f64>,
    /// Queueing at the rack's switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
    /// The simulator's forecast, with `--twin`, of transports that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin: Option<Twin>,
    /// Idle round trip of a typical short RPC, for people, microseconds.
    #[serde(skip)]
    pub idle_us: Option<f64>,
}

/// Figures of the short RPCs.
#[derive(Clone, Debug, Serialize)]
pub struct Short {
    /// The bound.
    pub max_bytes: u32,
    /// How many completed.
    pub count: usize,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Those that met no pause of this machine, for people: the document's shape is fixed.
    #[serde(skip)]
    pub undisturbed: Option<Undisturbed>,
    /// 95 % confidence interval of the 99th percentile.
    pub p99_ci_us: [Option<f64>; 2],
    /// Latency over the same transport's idle round trip of that size: median.
    pub p50_slowdown: Option<f64>,
    /// The same: 99th percentile.
    pub p99_slowdown: Option<f64>,
}

/// Figures of the short RPCs during which no thread of the rack paused. An RPC that waits long is
/// more likely to meet a pause, so these figures are slightly too good.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    /// The shortest pause that counts.
    pub pause_us: f64,
    /// Pauses in the run.
    pub pauses: usize,
    /// Share of the run's time that they took.
    pub paused_share: f64,
    /// Share of the short RPCs that met none.
    pub share: f64,
    /// 99th percentile of their latency.
    pub p99_us: Option<f64>,
}

/// Figures of the long RPCs.
#[derive(Clone, Debug, Serialize)]
pub struct Long {
    /// The bound.
    pub min_bytes: u32,
    /// Median latency.
    pub p50_us: Option<f64>,
}

/// RPCs of about the same size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeBucket {
    /// Share of messages up to this size in the workload.
    pub cum_share: f64,
    /// Largest size.
    pub max_bytes: u32,
    /// How many completed.
    pub count: usize,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Median slowdown.
    pub p50_slowdown: Option<f64>,
    /// 99th percentile of the slowdown.
    pub p99_slowdown: Option<f64>,
}

impl TransportResult {
    /// Reduces a run on the rack.
    pub fn of_run(
        run: &RunReport,
        marks: Option<bool>,
        rack: &RackConfig,
        bins: &SizeBins,
    ) -> Self {
        let mut result = Self::new(
            run.transport,
            (run.offered, run.failed + run.lost),
            Some(run.cpu_us_per_rpc),
            (&run.records, &run.idle),
            bins,
        );
        result.marks = marks;
        result.goodput_mbps = Some(hundredth(run.goodput_bytes_per_s() * 8e-6));
        result.queueing = Some(Queueing::of_run(run, 0..rack.hosts));
        result.short.undisturbed = Some(undisturbed(run, rack));
        (result.started, result.executed) = (Some(run.started), Some(run.executed));
        // Proxies are other processes.
        let held = run.memory.filter(|_| run.transport.is_homa() && !run.transport.is_grpc());
        result.memory = held.map(|held| Memory::of_run(held, rack));
        result
    }

    /// The figures of a simulated row. Its records are in no order of time, so that the interval of
    /// the 99th percentile is not known.
    pub fn simulated(
        planned: PlannedRow,
        offered: usize,
        (records, idle): (&[Record], &IdleTimes),
        bins: &SizeBins,
    ) -> Self {
        let counts = (offered, offered.saturating_sub(records.len()));
        let mut result = Self::new(planned.transport, counts, None, (records, idle), bins);
        result.marks = planned.marks;
        result.short.p99_ci_us = [None, None];
        result
    }

    /// The row's name for people.
    pub fn label(&self) -> String {
        PlannedRow { transport: self.transport, marks: self.marks }.label()
    }

    /// Promises of Homa that this row broke.
    pub fn broken(&self) -> Vec<String> {
        let ran = self.started.zip(self.executed);
        let mut broken = broken(self.transport, (self.offered, self.errors), ran);
        let grew = |held: &&Memory| held.judged && held.flat == Some(false);
        if let Some(found) = self.memory.as_ref().filter(grew).and_then(Memory::trend) {
            broken.push(format!("FAILED: under {}, memory {found}.", self.transport));
        }
        broken
    }

    /// Reduces records in the order of their time. `counts`: offered, errors.
    pub fn new(
        transport: Transport,
        counts: (usize, usize),
        cpu_us_per_rpc: Option<f64>,
        (records, idle): (&[Record], &IdleTimes),
        bins: &SizeBins,
    ) -> Self {
        let short: Vec<&Record> = records.iter().filter(|r| r.bytes <= SHORT_BYTES).collect();
        let short_us: Vec<f64> = short.iter().map(|r| us(r)).collect();
        let interval = correlated(&short_us, Percentile::P99);
        let slowdowns = short.iter().filter_map(|r| slowdown(r, idle)).collect();
        let (slowdowns, sorted) = (Sorted::new(slowdowns), Sorted::new(short_us));
        let long = records.iter().filter(|r| r.bytes >= LONG_BYTES).map(us).collect();
        Self {
            transport,
            marks: None,
            offered: counts.0,
            completed: records.len(),
            errors: counts.1,
            cpu_us_per_rpc: cpu_us_per_rpc.map(tenth),
            started: None,
            executed: None,
            memory: None,
            short: Short {
                max_bytes: SHORT_BYTES,
                count: sorted.len(),
                p50_us: sorted.percentile(Percentile::P50).map(tenth),
                p99_us: sorted.percentile(Percentile::P99).map(tenth),
                undisturbed: None,
                p99_ci_us: [interval.low.map(tenth), interval.high.map(tenth)],
                p50_slowdown: slowdowns.percentile(Percentile::P50).map(hundredth),
                p99_slowdown: slowdowns.percentile(Percentile::P99).map(hundredth),
            },
            long: Long {
                min_bytes: LONG_BYTES,
                p50_us: Sorted::new(long).percentile(Percentile::P50).map(tenth),
            },
            buckets: buckets(records, idle, bins),
            goodput_mbps: None,
            queueing: None,
            twin: None,
            idle_us: None,
        }
    }
}

/// Prints broken promises so that readers of that format see them: among the results, or on stderr
/// beside the document.
pub fn print_broken(broken: &[String], format: Format) {
    for text in broken {
        match format {
            Format::Table => line(text),
            Format::Json => eprintln!("{text}"),
        }
    }
}

/// Promises of Homa that a row broke. `ran`: RPCs started, requests executed.
pub fn broken(
    transport: Transport,
    (offered, errors): (usize, usize),
    ran: Option<(u64, u64)>,
) -> Vec<String> {
    if !transport.is_homa() {
        return Vec::new();
    }
    let lost =
        (errors > 0).then(|| format!("FAILED: {transport} lost {errors} of {offered} RPCs."));
    let twice = ran.filter(|(started, executed)| executed > started).map(|(started, executed)| {
        format!(
            "FAILED: {transport} executed {executed} requests for {started} RPCs: some ran twice."
        )
    });
    lost.into_iter().chain(twice).collect()
}

fn undisturbed(run: &RunReport, rack: &RackConfig) -> Undisturbed {
    let short: Vec<&Record> = run.records.iter().filter(|r| r.bytes <= SHORT_BYTES).collect();
    let calm = |r: &&&Record| !run.pauses.meet(r.due_ns, r.due_ns + r.latency_ns);
    let calm = Sorted::new(short.iter().filter(calm).map(|r| us(r)).collect());
    let thousandth = |share: f64| (share * 1e3).round() / 1e3;
    Undisturbed {
        pause_us: tenth(Pauses::shortest_ns(rack) as f64 / 1e3),
        pauses: run.pauses.count(),
        paused_share: thousandth(run.pauses.total_ns() as f64 / 1e9 / run.elapsed_s),
        share: thousandth(calm.len() as f64 / short.len().max(1) as f64),
        p99_us: calm.percentile(Percentile::P99).map(tenth),
    }
}

fn buckets(records: &[Record], idle: &IdleTimes, bins: &SizeBins) -> Vec<SizeBucket> {
    let latencies = bins.table(records.iter().map(|r| (r.bytes, us(r))));
    let slowdowns = bins.table(records.iter().filter_map(|r| Some((r.bytes, slowdown(r, idle)?))));
    latencies
        .into_iter()
        .zip(slowdowns)
        .map(|(latency, slowdown)| SizeBucket {
            cum_share: latency.cum_share,
            max_bytes: latency.max_bytes,
            count: latency.count,
            p50_us: latency.p50.map(tenth),
            p99_us: latency.p99.map(tenth),
            p50_slowdown: slowdown.p50.map(hundredth),
            p99_slowdown: slowdown.p99.map(hundredth),
        })
        .collect()
}

fn us(record: &Record) -> f64 {
    record.latency_ns as f64 / 1e3
}

fn slowdown(record: &Record, idle: &IdleTimes) -> Option<f64> {
    Some(record.latency_ns as f64 / idle.at(record.bytes)?)
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use homa_workload::sizes::SizeDistribution;

    fn result(records: &[Record]) -> TransportResult {
        let table = "size_bytes,cumulative_fraction\n100,0.5\n200000,1\n";
        let sizes = SizeDistribution::from_csv(table).expect("a valid table");
        let idle = IdleTimes::new(vec![(100, 50_000), (200_000, 1_000_000)]);
        let bins = SizeBins::percent(&sizes);
        TransportResult::new(
            Transport::Homa,
            (records.len() + 1, 1),
            Some(2.04),
            (records, &idle),
            &bins,
        )
    }

    #[test]
    fn short_and_long_rpcs_are_never_mixed() {
        let record = |bytes, latency_ns| Record { bytes, due_ns: 0, latency_ns };
        let mut records = vec![record(200_000, 9_000_000)];
        records.extend((1..=100).map(|n| record(100, n * 1000)));
        let result = result(&records);
        assert_eq!(result.short.count, 100);
        assert_eq!(result.short.p99_us, Some(99.0));
        assert_eq!(result.short.p99_slowdown, Some(1.98));
        assert_eq!(result.long.p50_us, Some(9_000.0));
        assert_eq!((result.offered, result.completed, result.errors), (102, 101, 1));
        let counts: Vec<usize> = result.buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [100, 1]);
        assert_eq!(result.buckets[1].p50_slowdown, Some(9.0));
    }

    #[test]
    fn lost_and_repeated_rpcs_are_homas_failure_and_not_tcps() {
        let homa = Transport::Homa;
        assert_eq!(broken(homa, (10, 0), Some((12, 12))), Vec::<String>::new());
        assert_eq!(broken(homa, (10, 1), None), ["FAILED: homa lost 1 of 10 RPCs."]);
        let twice = broken(Transport::HomaFlat, (10, 0), Some((12, 13)));
        assert!(twice[0].contains("executed 13 requests for 12 RPCs"), "{twice:?}");
        assert!(broken(Transport::Tcp, (10, 3), Some((12, 9))).is_empty());
    }

    #[test]
    fn memory_that_grows_under_loss_is_homas_failure() {
        let rack = |loss| {
            let faults = homa_testbed::Faults { loss, ..Default::default() };
            RackConfig { faults, ..RackConfig::default() }
        };
        let held = |early_bytes, late_bytes, (loss, seconds)| {
            let lasted = Duration::from_secs(seconds);
            let trend = Some(homa_testbed::Trend { early_bytes, late_bytes, lasted });
            let held = homa_testbed::Memory { start_bytes: 1, peak_bytes: 2, trend };
            let memory = Some(Memory::of_run(held, &rack(loss)));
            TransportResult { memory, ..result(&[]) }
        };
        let said = |row: &TransportResult| row.memory.as_ref().and_then(Memory::trend);
        let flat = held(90_000_000, 98_000_000, (0.01, 60));
        let text = "flat ok (from 90.0 MB in the second quarter of the load to the last +8.0 MB; \
                    decided by 10 %: 9.0 MB)";
        assert_eq!(said(&flat).as_deref(), Some(text));
        let lost = flat.broken();
        let grew = held(20_000_000, 25_000_000, (0.01, 60));
        let text = "GREW 5.0 MB (from 20.0 MB in the second quarter of the load to the last +5.0 \
                    MB; decided by 4.0 MB)";
        assert_eq!(said(&grew).as_deref(), Some(text));
        assert_eq!(grew.broken()[lost.len()..], [format!("FAILED: under homa, memory {text}.")]);
        let short = held(20_000_000, 25_000_000, (0.01, 20));
        assert!(said(&short).is_some_and(|text| text.ends_with("; too short to count)")));
        for calm in [(0.0, 60), (0.01, 20)] {
            let calm = held(20_000_000, 25_000_000, calm);
            assert_eq!(calm.broken(), lost);
            assert_eq!(calm.memory.map(|held| held.flat), Some(Some(false)));
        }
    }

    #[test]
    fn no_rpc_gives_no_figure_instead_of_zero() {
        let result = result(&[]);
        assert_eq!(result.short.p50_us, None);
        assert_eq!(result.long.p50_us, None);
        assert_eq!(result.short.p99_ci_us, [None, None]);
    }
}
