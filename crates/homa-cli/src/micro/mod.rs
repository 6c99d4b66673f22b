//! `homa bench --micro`: latency, rate and throughput of Homa beside honest rivals on one veth
//! pair.
//!
//! Rivals and Homa take turns in rounds and the medians over the rounds are reported, so a
//! disturbance of the machine hits every row alike. Left out: load and mixed sizes, which the main
//! job of `homa bench` measures.

mod echo;
mod framing;
mod homa_rows;
mod pair;
mod stats;
mod tcp_batched;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use homa_workload::rng::Rng;
use homa_workload::sizes::Workload;
use serde::Serialize;

use crate::failure::{Failure, Hint};
use crate::output::{Align, Format, Progress, Table, json, line};
use echo::Wait;
use pair::Pair;
use tcp_batched::RateLoad;

/// Rounds over which the medians are taken.
const ROUNDS: u32 = 5;
/// Sizes of the echo rows, bytes.
const ECHO_SIZES: [usize; 2] = [100, 10_000];
/// Size of the throughput row, bytes, and how many are in progress.
const LARGE: usize = 1_000_000;
const LARGE_OUTSTANDING: usize = 4;

/// The result, in the shape that scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One RPC at a time.
    pub echo: Vec<EchoRow>,
    /// Small RPCs per second, one core a side.
    pub rate: Vec<RateRow>,
    /// Large messages.
    pub throughput: Vec<ThroughputRow>,
}

/// Latency of one echo at a time.
#[derive(Clone, Debug, Serialize)]
pub struct EchoRow {
    /// How the bytes travel and how both sides wait.
    pub path: &'static str,
    /// Request and reply size.
    pub bytes: usize,
    /// Median over the rounds of the round's median.
    pub p50_us: f64,
    /// Median over the rounds of the round's 99th percentile.
    pub p99_us: f64,
}

/// Small echo RPCs per second.
#[derive(Clone, Debug, Serialize)]
pub struct RateRow {
    /// Who carries them.
    pub transport: &'static str,
    /// Connections, or server engines. One peer: 100 B; many: sizes of W1.
    pub peers: usize,
    /// RPCs in progress per peer.
    pub outstanding: usize,
    /// Completed per second.
    pub rpcs_per_s: f64,
}

/// Requests of one large size.
#[derive(Clone, Debug, Serialize)]
pub struct ThroughputRow {
    /// Who carries them.
    pub transport: &'static str,
    /// Request size; the reply has 16 B.
    pub bytes: usize,
    /// Request bytes per second, in units of 1e6.
    pub mb_per_s: f64,
}

/// What is measured, once per round.
type Measure<T> = Box<dyn Fn(&Pair, Duration) -> io::Result<T>>;

/// A row that is being measured.
struct Row<L, T> {
    label: L,
    measure: Measure<T>,
    rounds: Vec<T>,
}

impl<L: fmt::Debug, T> Row<L, T> {
    fn new(label: L, measure: impl Fn(&Pair, Duration) -> io::Result<T> + 'static) -> Self {
        Self { label, measure: Box::new(measure), rounds: Vec::new() }
    }

    fn round(&mut self, pair: &Pair, time: Duration) -> anyhow::Result<()> {
        let measured = (self.measure)(pair, time);
        self.rounds.push(measured.with_context(|| format!("row {:?}", self.label))?);
        Ok(())
    }
}

/// Every row of the report.
struct Plan {
    echo: Vec<Row<(&'static str, usize), stats::Tail>>,
    rate: Vec<Row<(&'static str, usize, usize), f64>>,
    throughput: Vec<Row<&'static str, f64>>,
}

impl Plan {
    fn new(w1: Arc<[u32]>) -> Self {
        let mut echo = Vec::new();
        for bytes in ECHO_SIZES {
            echo.push(Row::new(("raw-udp-spin", bytes), move |pair, time| {
                echo::udp(pair, Wait::Spin, bytes, time)
            }));
            echo.push(Row::new(("raw-udp-blocking", bytes), move |pair, time| {
                echo::udp(pair, Wait::Block, bytes, time)
            }));
            echo.push(Row::new(("tcp-spin", bytes), move |pair, time| {
                echo::tcp(pair, Wait::Spin, bytes, time)
            }));
            echo.push(Row::new(("tcp-blocking", bytes), move |pair, time| {
                echo::tcp(pair, Wait::Block, bytes, time)
            }));
            echo.push(Row::new(("homa-inline", bytes), move |pair, time| {
                homa_rows::echo_inline(pair, bytes, time)
            }));
            echo.push(Row::new(("homa-blocking", bytes), move |pair, time| {
                homa_rows::echo_blocking(pair, bytes, time)
            }));
        }
        let small: Arc<[u32]> = Arc::new([100]);
        let loads = [(1, 64, &small), (1, 256, &small), (64, 2, &w1)];
        let mut rate = Vec::new();
        for (peers, outstanding, sizes) in loads {
            let load = RateLoad { peers, outstanding, sizes: Arc::clone(sizes) };
            let same = load.clone();
            rate.push(Row::new(("tcp-batched", peers, outstanding), move |pair, time| {
                tcp_batched::rate(pair, &load, time)
            }));
            rate.push(Row::new(("homa", peers, outstanding), move |pair, time| {
                homa_rows::rate(pair, &same, time)
            }));
        }
        let throughput = vec![
            Row::new("tcp", |pair: &Pair, time| {
                tcp_batched::throughput(pair, LARGE, LARGE_OUTSTANDING, time)
            }),
            Row::new("homa", |pair: &Pair, time| {
                homa_rows::throughput(pair, LARGE, LARGE_OUTSTANDING, time)
            }),
        ];
        Self { echo, rate, throughput }
    }

    fn rows(&self) -> u32 {
        (self.echo.len() + self.rate.len() + self.throughput.len()) as u32
    }

    fn round(&mut self, pair: &Pair, time: Duration, mut done: impl FnMut()) -> anyhow::Result<()> {
        for row in &mut self.echo {
            row.round(pair, time)?;
            done();
        }
        for row in &mut self.rate {
            row.round(pair, time)?;
            done();
        }
        for row in &mut self.throughput {
            row.round(pair, time)?;
            done();
        }
        Ok(())
    }

    fn report(self) -> Report {
        let tenth = |value: f64| (value * 10.0).round() / 10.0;
        let echo = self.echo.into_iter().map(|row| EchoRow {
            path: row.label.0,
            bytes: row.label.1,
            p50_us: tenth(stats::median(row.rounds.iter().map(|t| t.p50_us).collect())),
            p99_us: tenth(stats::median(row.rounds.iter().map(|t| t.p99_us).collect())),
        });
        let rate = self.rate.into_iter().map(|row| RateRow {
            transport: row.label.0,
            peers: row.label.1,
            outstanding: row.label.2,
            rpcs_per_s: stats::median(row.rounds).round(),
        });
        let throughput = self.throughput.into_iter().map(|row| ThroughputRow {
            transport: row.label,
            bytes: LARGE,
            mb_per_s: stats::median(row.rounds).round(),
        });
        Report { echo: echo.collect(), rate: rate.collect(), throughput: throughput.collect() }
    }
}

/// Sizes of the fan-out rows: the same for every transport.
fn sizes_of_w1(seed: u64) -> Result<Arc<[u32]>, Failure> {
    let sizes = Workload::W1.sizes().hint("this is a bug in homa: its table W1 is unreadable")?;
    let mut rng = Rng::stream(seed, "micro sizes");
    Ok((0..4096).map(|_| sizes.sample(&mut rng)).collect())
}

/// Measures every row for `time` in all and prints the report.
pub fn run(time: Duration, seed: u64, format: Format) -> Result<(), Failure> {
    let w1 = sizes_of_w1(seed)?;
    let pair = Pair::build().hint("`homa doctor` names the setting that decides")?;
    let mut plan = Plan::new(w1);
    let rounds = time.mul_f64(1.0 / f64::from(ROUNDS));
    let progress = Progress::new(time * plan.rows());
    let mut finished = 0;
    for round in 1..=ROUNDS {
        progress.step(&format!("round {round} of {ROUNDS}"));
        plan.round(&pair, rounds, || {
            finished += 1;
            progress.spent(rounds * finished);
        })
        .hint("run it again on an idle machine; `homa doctor` shows what this machine can do")?;
    }
    progress.finish();
    let report = plan.report();
    match format {
        Format::Json => json(&report),
        Format::Table => {
            print(&report);
            Ok(())
        }
    }
}

fn print(report: &Report) {
    let left = |title, width| (title, Align::Left, width);
    let right = |title, width| (title, Align::Right, width);
    line("One RPC at a time, veth between two namespaces, one core a side");
    let table =
        Table::new(&[left("path", 18), right("bytes", 7), right("p50 us", 8), right("p99 us", 8)]);
    line(table.head());
    for row in &report.echo {
        let cells = [row.path.into(), row.bytes.to_string(), us(row.p50_us), us(row.p99_us)];
        line(table.row(&cells));
    }
    line("\nSmall RPCs per second (one peer: 100 B; 64 peers: sizes of W1)");
    let table = Table::new(&[
        left("transport", 18),
        right("peers", 7),
        right("in progress", 8),
        right("RPC/s", 10),
    ]);
    line(table.head());
    for row in &report.rate {
        line(table.row(&[
            row.transport.into(),
            row.peers.to_string(),
            row.outstanding.to_string(),
            format!("{:.3} M", row.rpcs_per_s / 1e6),
        ]));
    }
    line("\nLarge requests, 4 in progress, 16 B replies");
    let table = Table::new(&[left("transport", 18), right("bytes", 7), right("MB/s", 8)]);
    line(table.head());
    for row in &report.throughput {
        let cells = [row.transport.into(), row.bytes.to_string(), format!("{}", row.mb_per_s)];
        line(table.row(&cells));
    }
}

fn us(value: f64) -> String {
    format!("{value:.1}")
}
