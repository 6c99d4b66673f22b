//! The result of `homa bench --micro`: its shape for scripts and its tables for readers.

use serde::Serialize;

use crate::output::{Align, TextTable, line};

/// The result, in the shape that scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub struct MicroReport {
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
    /// RivalRatio whom.
    #[serde(skip)]
    pub beside: Option<RivalRatio>,
}

/// Small echo RPCs per second.
#[derive(Clone, Debug, Serialize)]
pub struct RateRow {
    /// Who carries them.
    pub transport: &'static str,
    /// Connections, or server engines; of each pair in `homa-sharded`. One peer: 100 B; many: sizes
    /// of W1.
    pub peers: usize,
    /// RPCs in progress per peer.
    pub outstanding: usize,
    /// Completed per second.
    pub rpcs_per_s: f64,
    /// CPU time of both sides for one, microseconds.
    pub cpu_us_per_rpc: f64,
    /// How often a thread of either side went to sleep for one.
    pub sleeps_per_rpc: f64,
    /// RivalRatio whom.
    #[serde(skip)]
    pub beside: Option<RivalRatio>,
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
    /// RivalRatio whom.
    #[serde(skip)]
    pub beside: Option<RivalRatio>,
}

/// The median over the rounds of a row's figure divided by its rival's of the same round: a
/// disturbance that outlasts two neighbours leaves it alone.
#[derive(Clone, Copy, Debug)]
pub struct RivalRatio {
    /// The rival.
    pub rival: &'static str,
    /// How many times its figure.
    pub ratio: f64,
}

fn ratio(beside: Option<RivalRatio>) -> String {
    beside.map_or(String::new(), |b| format!("{:.2} x {}", b.ratio, b.rival))
}

fn us(value: f64) -> String {
    format!("{value:.1}")
}

const fn left(title: &'static str, width: usize) -> (&'static str, Align, usize) {
    (title, Align::Left, width)
}

const fn right(title: &'static str, width: usize) -> (&'static str, Align, usize) {
    (title, Align::Right, width)
}

impl MicroReport {
    /// The tables.
    pub fn print(&self) {
        self.print_echo();
        self.print_rate();
        self.print_throughput();
    }

    fn print_echo(&self) {
        if self.echo.is_empty() {
            return;
        }
        line("One RPC at a time, veth between two namespaces, one core a side");
        line(
            "(homa-blocking sleeps like its rivals; homa-default looks for a while before it does; \
             homa-inline-sealed encrypts; homa-xdp is homa-inline past the system's network stack; \
             homa-tokio awaits)",
        );
        let table = TextTable::new(&[
            left("path", 18),
            right("bytes", 7),
            right("p50 us", 8),
            right("p99 us", 8),
            left("p50 beside", 10),
        ]);
        line(table.head());
        for row in &self.echo {
            line(table.row(&[
                row.path.into(),
                row.bytes.to_string(),
                us(row.p50_us),
                us(row.p99_us),
                ratio(row.beside),
            ]));
        }
    }

    fn print_rate(&self) {
        if self.rate.is_empty() {
            return;
        }
        line("\nSmall RPCs per second (one peer: 100 B; 64 peers: sizes of W1)");
        line(
            "(homa-pair: both sides on one core; homa-sharded: two such pairs, a core each, whose \
             servers share an address; homa-tokio: a service written with futures; CPU time and \
             sleeps of threads are for one RPC, both sides together)",
        );
        let table = TextTable::new(&[
            left("transport", 18),
            right("peers", 7),
            right("in progress", 8),
            right("RPC/s", 10),
            right("CPU us", 7),
            right("sleeps", 7),
            left("beside", 10),
        ]);
        line(table.head());
        for row in &self.rate {
            line(table.row(&[
                row.transport.into(),
                row.peers.to_string(),
                row.outstanding.to_string(),
                format!("{:.3} M", row.rpcs_per_s / 1e6),
                format!("{:.2}", row.cpu_us_per_rpc),
                format!("{:.3}", row.sleeps_per_rpc),
                ratio(row.beside),
            ]));
        }
    }

    fn print_throughput(&self) {
        if self.throughput.is_empty() {
            return;
        }
        line("\nLarge requests, 4 in progress, 16 B replies");
        let table = TextTable::new(&[
            left("transport", 18),
            right("bytes", 7),
            right("MB/s", 8),
            left("beside", 10),
        ]);
        line(table.head());
        for row in &self.throughput {
            line(table.row(&[
                row.transport.into(),
                row.bytes.to_string(),
                format!("{}", row.mb_per_s),
                ratio(row.beside),
            ]));
        }
    }
}
