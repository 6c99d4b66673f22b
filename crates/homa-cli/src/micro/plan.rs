//! The measurements, their order, and how the rounds are reduced to figures.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::async_rows;
use super::echo::{self, EchoWait};
use super::homa_rows::{self, Carrier, Sleep};
use super::pair::Pair;
#[cfg(feature = "quinn")]
use super::quinn_rows;
use super::report::{EchoRow, MicroReport, RateRow, RivalRatio, ThroughputRow};
use super::shards;
use super::stats::{self, Tail};
use super::tcp_batched::{self, RateLoad};
#[cfg(feature = "tonic")]
use super::tonic_rows;
use crate::cpu::Usage;

/// Sizes of the echo rows, bytes.
const ECHO_SIZES: [usize; 2] = [100, 10_000];
/// Size of the throughput row, bytes, and how many are in progress.
const LARGE: usize = 1_000_000;
const LARGE_OUTSTANDING: usize = 4;

/// Homa's rows over AF_XDP.
const XDP: &str = "homa-xdp";
/// Homa's rows with keys.
const SEALED: &str = "homa-sealed";
/// Homa's rows in which both sides poll.
const HOMA: [(&str, Carrier); 3] =
    [("homa", Carrier::Udp), (SEALED, Carrier::Sealed), (XDP, Carrier::Xdp)];

/// Homa's rows of services that are written with futures, and their rival.
const TOKIO: &str = "homa-tokio";
const TONIC: &str = "tonic";
/// The rival of Homa's rows with keys.
const QUINN: &str = "quinn";

/// Rows of pairs of client and shard, each pair on a core: one, and two.
const ONE_PAIR: &str = "homa-pair";
const SHARDED: &str = "homa-sharded";

/// One measurement, made once per round.
type Measure<T> = Box<dyn Fn(&Pair, Duration) -> io::Result<T>>;

/// A row that is being measured.
struct MicroRow<T> {
    /// Who carries the RPCs, and how.
    who: &'static str,
    /// Which RPCs: rows of one load are comparable.
    load: (usize, usize),
    measure: Measure<T>,
    rounds: Vec<T>,
}

impl<T> MicroRow<T> {
    fn new(
        who: &'static str,
        load: (usize, usize),
        measure: impl Fn(&Pair, Duration) -> io::Result<T> + 'static,
    ) -> Self {
        Self { who, load, measure: Box::new(measure), rounds: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{}/{}x{}", self.who, self.load.0, self.load.1)
    }

    fn round(&mut self, pair: &Pair, time: Duration) -> anyhow::Result<()> {
        let measured = (self.measure)(pair, time);
        self.rounds.push(measured.with_context(|| format!("row {}", self.name()))?);
        Ok(())
    }

    fn median(&self, figure: impl Fn(&T) -> f64) -> f64 {
        stats::median(self.rounds.iter().map(figure).collect())
    }
}

/// RPCs per second, and what each cost both sides together.
struct Rate {
    rpcs_per_s: f64,
    cpu_us: f64,
    sleeps: f64,
}

/// Adds the costs to a measurement of RPCs per second. The figure of the counted part of a round
/// stands for all of it.
fn with_costs(
    measure: impl Fn(&Pair, Duration) -> io::Result<f64>,
) -> impl Fn(&Pair, Duration) -> io::Result<Rate> {
    move |pair, time| {
        let before = Usage::now();
        let rpcs_per_s = measure(pair, time)?;
        let rpcs = (rpcs_per_s * time.as_secs_f64()).max(1.0);
        let used = Usage::now().since(before);
        let (cpu_us, sleeps) = (used.cpu.as_secs_f64() * 1e6 / rpcs, used.sleeps as f64 / rpcs);
        Ok(Rate { rpcs_per_s, cpu_us, sleeps })
    }
}

/// A row's figure beside that of its rival under the same load, if that was measured.
fn beside<T>(
    rows: &[MicroRow<T>],
    row: &MicroRow<T>,
    figure: impl Fn(&T) -> f64,
) -> Option<RivalRatio> {
    let rival = match row.who {
        "homa-inline" => "raw-udp-spin",
        XDP if row.load.1 == 1 => "raw-udp-spin",
        "homa-blocking" => "raw-udp-blocking",
        TOKIO if row.load.1 == 1 => "homa-blocking",
        TOKIO => TONIC,
        SEALED | "homa-inline-sealed" => QUINN,
        "homa" | XDP if row.load == (LARGE, LARGE_OUTSTANDING) => "tcp",
        "homa" | XDP => "tcp-batched",
        SHARDED => ONE_PAIR,
        _ => return None,
    };
    let other = rows.iter().find(|other| other.who == rival && other.load == row.load)?;
    let rounds = row.rounds.iter().zip(&other.rounds);
    let ratios = rounds.map(|(ours, theirs)| figure(ours) / figure(theirs).max(f64::MIN_POSITIVE));
    Some(RivalRatio { rival, ratio: stats::median(ratios.collect()) })
}

/// Every row of the report.
pub struct Plan {
    echo: Vec<MicroRow<Tail>>,
    rate: Vec<MicroRow<Rate>>,
    throughput: Vec<MicroRow<f64>>,
}

impl Plan {
    /// All rows; those with many peers use the sizes `w1`.
    pub fn new(w1: Arc<[u32]>) -> Self {
        Self { echo: echo_rows(), rate: rate_rows(w1), throughput: throughput_rows() }
    }

    /// Keeps the rows whose name, as `homa/64x2`, contains one of the texts.
    pub fn keep_only(&mut self, texts: &[String]) {
        let wanted = |name: String| texts.iter().any(|text| name.contains(text));
        self.echo.retain(|row| wanted(row.name()));
        self.rate.retain(|row| wanted(row.name()));
        self.throughput.retain(|row| wanted(row.name()));
    }

    /// Leaves out the rows over AF_XDP; true if there were any.
    pub fn leave_out_xdp(&mut self) -> bool {
        let before = self.rows();
        self.echo.retain(|row| row.who != XDP);
        self.rate.retain(|row| row.who != XDP);
        self.throughput.retain(|row| row.who != XDP);
        self.rows() < before
    }

    /// The rows' names, as [`Plan::keep_only`] reads them.
    pub fn names(&self) -> Vec<String> {
        let rates = self.rate.iter().map(MicroRow::name);
        let throughputs = self.throughput.iter().map(MicroRow::name);
        self.echo.iter().map(MicroRow::name).chain(rates).chain(throughputs).collect()
    }

    /// Number of rows.
    pub fn rows(&self) -> u32 {
        (self.echo.len() + self.rate.len() + self.throughput.len()) as u32
    }

    /// Measures every row once for `time`.
    pub fn round(
        &mut self,
        pair: &Pair,
        time: Duration,
        mut done: impl FnMut(),
    ) -> anyhow::Result<()> {
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

    /// The medians.
    pub fn report(&self) -> MicroReport {
        let tenth = |value: f64| (value * 10.0).round() / 10.0;
        let thousandth = |value: f64| (value * 1000.0).round() / 1000.0;
        let echo = self.echo.iter().map(|row| EchoRow {
            path: row.who,
            bytes: row.load.0,
            p50_us: tenth(row.median(|t| t.p50_us)),
            p99_us: tenth(row.median(|t| t.p99_us)),
            beside: beside(&self.echo, row, |t| t.p50_us),
        });
        let rate = self.rate.iter().map(|row| RateRow {
            transport: row.who,
            peers: row.load.0,
            outstanding: row.load.1,
            rpcs_per_s: row.median(|rate| rate.rpcs_per_s).round(),
            cpu_us_per_rpc: thousandth(row.median(|rate| rate.cpu_us)),
            sleeps_per_rpc: thousandth(row.median(|rate| rate.sleeps)),
            beside: beside(&self.rate, row, |rate| rate.rpcs_per_s),
        });
        let throughput = self.throughput.iter().map(|row| ThroughputRow {
            transport: row.who,
            bytes: row.load.0,
            mb_per_s: row.median(|&rate| rate).round(),
            beside: beside(&self.throughput, row, |&rate| rate),
        });
        MicroReport { echo: echo.collect(), rate: rate.collect(), throughput: throughput.collect() }
    }
}

fn echo_rows() -> Vec<MicroRow<Tail>> {
    let mut rows = Vec::new();
    for bytes in ECHO_SIZES {
        let load = (bytes, 1);
        for (who, wait) in [("raw-udp-spin", EchoWait::Spin), ("raw-udp-blocking", EchoWait::Block)]
        {
            rows.push(MicroRow::new(who, load, move |p, time| echo::udp(p, wait, bytes, time)));
        }
        for (who, wait) in [("tcp-spin", EchoWait::Spin), ("tcp-blocking", EchoWait::Block)] {
            rows.push(MicroRow::new(who, load, move |p, time| echo::tcp(p, wait, bytes, time)));
        }
        let inline = [
            ("homa-inline", Carrier::Udp),
            ("homa-inline-sealed", Carrier::Sealed),
            (XDP, Carrier::Xdp),
        ];
        for (who, carrier) in inline {
            rows.push(MicroRow::new(who, load, move |p, time| {
                homa_rows::echo_inline(p, carrier, bytes, time)
            }));
        }
        for (who, sleep) in [("homa-blocking", Sleep::AtOnce), ("homa-default", Sleep::Default)] {
            rows.push(MicroRow::new(who, load, move |p, time| {
                homa_rows::echo_blocking(p, sleep, bytes, time)
            }));
        }
        rows.push(MicroRow::new(TOKIO, load, move |p, time| async_rows::echo(p, bytes, time)));
        #[cfg(feature = "tonic")]
        rows.push(MicroRow::new(TONIC, load, move |p, time| tonic_rows::echo(p, bytes, time)));
        #[cfg(feature = "quinn")]
        rows.push(MicroRow::new(QUINN, load, move |p, time| quinn_rows::echo(p, bytes, time)));
    }
    rows
}

fn rate_rows(w1: Arc<[u32]>) -> Vec<MicroRow<Rate>> {
    let small: Arc<[u32]> = Arc::new([100]);
    let mut rows = Vec::new();
    for (peers, outstanding, sizes) in [(1, 64, &small), (1, 256, &small), (64, 2, &w1)] {
        let load = RateLoad { peers, outstanding, sizes: Arc::clone(sizes) };
        type OfLoad = fn(&Pair, &RateLoad, Duration) -> io::Result<f64>;
        let mut add = |who, measure: OfLoad| {
            let load = load.clone();
            let measure = with_costs(move |pair, time| measure(pair, &load, time));
            rows.push(MicroRow::new(who, (peers, outstanding), measure));
        };
        add("homa", |pair, load, time| homa_rows::rate(pair, Carrier::Udp, load, time));
        add(SEALED, |pair, load, time| homa_rows::rate(pair, Carrier::Sealed, load, time));
        add(XDP, |pair, load, time| homa_rows::rate(pair, Carrier::Xdp, load, time));
        if peers == 1 {
            add(ONE_PAIR, |pair, load, time| shards::rate(pair, 1, load, time));
            add(SHARDED, |pair, load, time| shards::rate(pair, 2, load, time));
            add(TOKIO, async_rows::rate);
            #[cfg(feature = "tonic")]
            add(TONIC, tonic_rows::rate);
            #[cfg(feature = "quinn")]
            add(QUINN, quinn_rows::rate);
        }
        add("tcp-batched", tcp_batched::rate);
    }
    rows
}

fn throughput_rows() -> Vec<MicroRow<f64>> {
    let (bytes, outstanding) = (LARGE, LARGE_OUTSTANDING);
    let load = (bytes, outstanding);
    let mut rows = vec![MicroRow::new("tcp", load, move |p, time| {
        tcp_batched::throughput(p, bytes, outstanding, time)
    })];
    for (who, carrier) in HOMA {
        rows.push(MicroRow::new(who, load, move |p, time| {
            homa_rows::throughput(p, carrier, bytes, outstanding, time)
        }));
    }
    rows
}
