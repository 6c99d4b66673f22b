//! The numbers of an outcome that can be compared, each with a short name.
//!
//! | name | reads | unit |
//! |---|---|---|
//! | `p99@50`, `p50@50` | slowdown of the bin that holds the message at 50 % by size | – |
//! | `p99_to@50`, `p50_to@50` | that of the last bin that ends by 50 %: the published steps | – |
//! | `p99_by_receiver@50`, `…_to@50` | the same of each receiver's own p99, averaged | – |
//! | `p99_us@50`, `p50_us@50` | latency of that bin | µs |
//! | `p99_max@50` | largest p99 slowdown of all bins that begin before 50 % | – |
//! | `p99`, `p50` | slowdown over all messages | – |
//! | `mean_us` | mean latency, needs `measures.ledger` | µs |
//! | `tor_up.mean`, `tor_up.max` | queue of a tier as Homa Table 1 reads it | 1024 B |
//! | `tor_up.mean_residual`, `…max_residual` | with the frame in transmission | 1024 B |
//! | `priority.0` | share of the receivers' links carried by the lowest level | % |
//! | `wasted`, `utilisation`, `goodput` | shares of the receivers' links | % |
//! | `tail.preemption_lag`, `tail.queueing` | what delays messages near p99 | µs |
//! | `response_gbps` | response bytes per time, closed loops only | Gbit/s |
//! | `response_wire_gbps` | the same with headers, in the authors' framing | Gbit/s |
//! | `computed.…` | see [`super::computed`] | |
//! | `max_utilisation`, `max_goodput` | the same at the highest load whose backlog is bounded | % |
//! | `max_concurrent@9` | most RPCs outstanding with a `response_wire_gbps` of 9 or more | RPCs |
//! | `paired_us@10000000` | mean latency of messages above 10 MB that every scheme delivered | µs |
//! | `outcome.…` | any number of the outcome, by its path in the JSON of `homa sim` | as there |
//!
//! So what a measure adds to the outcome is a metric without a change here:
//! `outcome.drops.overflow`, `outcome.priority_share.7` (elements of lists count from 0). The
//! interval of a number `x` is its neighbour `x_ci`, or `low` and `high` beside a `value`.
//!
//! Slowdowns and latencies of bins, wasted bandwidth, utilisation, delays near p99 and rates of
//! responses lie in an interval; the others are taken as they were counted.

use std::fmt;
use std::str::FromStr;

use homa_sim::scenario::outcome::{SizeBucket, TailDelay};
use homa_sim::scenario::{ScenarioOutcome, Traffic};
use homa_workload::framing::Framing;

use super::computed::Computed;
use super::limit::AtLimit;
use super::tolerance::Measured;
use crate::results::{TIERS, Tier};
use crate::store::Stored;

/// Which percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The median.
    P50,
    /// The 99th.
    P99,
}

/// A percentile of a bin's slowdowns, and of whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// That of all messages.
    All(Rank),
    /// The mean over receivers of the 99th of their own messages.
    P99ByReceiver,
}

impl Reading {
    /// Every reading.
    pub const ALL: [Self; 3] = [Self::All(Rank::P50), Self::All(Rank::P99), Self::P99ByReceiver];

    /// As plans name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All(Rank::P50) => "p50",
            Self::All(Rank::P99) => "p99",
            Self::P99ByReceiver => "p99_by_receiver",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reading| reading.name() == name)
    }

    /// As a reader sees it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::All(Rank::P50) => "median",
            Self::All(Rank::P99) => "99th percentile",
            Self::P99ByReceiver => "99th percentile, mean over receivers",
        }
    }

    /// The slowdown of a bin and where it lies.
    pub fn of(self, bin: &SizeBucket) -> Option<Measured> {
        let (value, ends) = match self {
            Self::All(Rank::P50) => (bin.p50?, bin.p50_ci),
            Self::All(Rank::P99) => (bin.p99?, bin.p99_ci),
            Self::P99ByReceiver => {
                let own = bin.by_receiver?;
                (own.p99, own.p99_ci)
            }
        };
        Some(Measured::between(value, ends))
    }
}

/// A number to be read. See the table of this module.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// Slowdown at a percent of messages.
    Slowdown(Reading, f64),
    /// Slowdown of the last bin that ends at or before a percent of messages.
    Step(Reading, f64),
    /// Latency at a percent of messages.
    Latency(Rank, f64),
    /// Largest p99 slowdown up to a percent of messages.
    Largest(f64),
    /// Slowdown over all messages.
    Overall(Rank),
    /// Mean latency.
    Mean,
    /// Queue length: place in [`TIERS`], maximum instead of mean, with the frame in transmission.
    Queue(usize, bool, bool),
    /// Share of a level, 0 the lowest.
    Priority(usize),
    /// Share of wasted bandwidth.
    Wasted,
    /// Share of links that carried frames.
    Utilisation,
    /// Share of links that carried delivered application bytes.
    Goodput,
    /// Preemption lag near p99.
    PreemptionLag,
    /// Queueing near p99.
    Queueing,
    /// Rate of responses to a closed loop.
    ResponseRate,
    /// The same with headers.
    ResponseWireRate,
    /// A number at the highest value of the run's axis that passes, if no lower one fails.
    Limit(AtLimit),
    /// Follows from rules.
    Computed(Computed),
    /// Mean latency of messages larger than this, compared message by message.
    Paired(u32),
    /// A number of the outcome, by its path there.
    Path(String),
}

const KIB: f64 = 1024.0;

/// Names without arguments.
const PLAIN: [(&str, Metric); 12] = [
    ("p99", Metric::Overall(Rank::P99)),
    ("p50", Metric::Overall(Rank::P50)),
    ("mean_us", Metric::Mean),
    ("wasted", Metric::Wasted),
    ("utilisation", Metric::Utilisation),
    ("goodput", Metric::Goodput),
    ("tail.preemption_lag", Metric::PreemptionLag),
    ("tail.queueing", Metric::Queueing),
    ("response_gbps", Metric::ResponseRate),
    ("response_wire_gbps", Metric::ResponseWireRate),
    ("max_utilisation", Metric::Limit(AtLimit::Utilisation)),
    ("max_goodput", Metric::Limit(AtLimit::Goodput)),
];

impl Metric {
    /// True when it needs no simulation.
    pub const fn is_computed(&self) -> bool {
        matches!(self, Self::Computed(_))
    }

    /// Reads it from one outcome; `None` when it was not measured there.
    pub fn read(&self, stored: &Stored) -> Option<Measured> {
        let outcome = &stored.outcome;
        let percent = |share: f64| Measured::exact(share * 100.0);
        match *self {
            Self::Slowdown(reading, at) => reading.of(bin_at(outcome, at)?),
            Self::Step(reading, at) => {
                let bins = &outcome.slowdown.buckets;
                let last = bins.iter().rfind(|bin| bin.cum_share * 100.0 <= at + 1e-6);
                reading.of(last.or(bins.first())?)
            }
            Self::Latency(rank, at) => latency(bin_at(outcome, at)?, rank),
            Self::Largest(to) => largest(outcome, to),
            Self::Overall(Rank::P50) => outcome.slowdown.p50.map(Measured::exact),
            Self::Overall(Rank::P99) => outcome.slowdown.p99.map(Measured::exact),
            Self::Mean => outcome.ledger.as_ref().map(|ledger| {
                let parts = &ledger.mean;
                let waits = parts.sender_queue_us + parts.grant_wait_us + parts.fabric_queue_us;
                Measured::exact(waits + parts.wire_us + parts.recovery_us)
            }),
            Self::Queue(tier, max, residual) => queue(outcome, &TIERS[tier], max, residual),
            Self::Priority(level) => outcome.priority_share.map(|shares| percent(shares[level])),
            Self::Wasted => outcome.wasted_bandwidth.map(|share| {
                let ends = outcome.wasted_ci.map(|end| end.map(|share| share * 100.0));
                Measured::between(share * 100.0, ends)
            }),
            Self::Utilisation => {
                let ends = outcome.utilisation_ci.map(|end| end.map(|share| share * 100.0));
                Some(Measured::between(outcome.utilisation * 100.0, ends))
            }
            Self::Goodput => outcome.goodput.map(percent),
            Self::PreemptionLag => {
                let of = |tail: &TailDelay| {
                    of_tail(tail, tail.preemption_lag_us, tail.preemption_lag_ci)
                };
                outcome.tail_delay.as_ref().map(of)
            }
            Self::Queueing => {
                let of = |tail: &TailDelay| of_tail(tail, tail.queueing_us, tail.queueing_ci);
                outcome.tail_delay.as_ref().map(of)
            }
            Self::ResponseRate => response_rate(stored, f64::from),
            Self::ResponseWireRate => response_rate(stored, with_headers),
            Self::Computed(computed) => Some(Measured::exact(computed.value())),
            Self::Limit(_) => None,
            Self::Paired(above) => {
                let large = outcome.flows.iter().filter(|flow| flow.bytes > above);
                let us: Vec<f64> = large.map(|flow| flow.us).collect();
                (!us.is_empty()).then(|| Measured::exact(us.iter().sum::<f64>() / us.len() as f64))
            }
            Self::Path(ref path) => at_path(outcome, path),
        }
    }
}

/// The number at a path of the outcome's JSON, in its interval where it has one.
fn at_path(outcome: &ScenarioOutcome, path: &str) -> Option<Measured> {
    let document = serde_json::to_value(outcome).ok()?;
    let pointer = |path: &str| format!("/{}", path.replace('.', "/"));
    let found = document.pointer(&pointer(path))?;
    let end = |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_f64);
    match found {
        serde_json::Value::Object(keys) => {
            let value = end(keys.get("value"))?;
            Some(Measured::between(value, [end(keys.get("low")), end(keys.get("high"))]))
        }
        number => {
            let value = number.as_f64()?;
            match document.pointer(&pointer(&format!("{path}_ci"))) {
                Some(ends) => Some(Measured::between(value, [end(ends.get(0)), end(ends.get(1))])),
                None => Some(Measured::exact(value)),
            }
        }
    }
}

/// The bin that holds the message at `percent` of all, by size.
fn bin_at(outcome: &ScenarioOutcome, percent: f64) -> Option<&SizeBucket> {
    let bins = &outcome.slowdown.buckets;
    bins.iter().find(|bin| bin.cum_share * 100.0 >= percent - 1e-6).or(bins.last())
}

/// Latencies have the relative interval of their slowdowns.
fn latency(bin: &SizeBucket, rank: Rank) -> Option<Measured> {
    let us = match rank {
        Rank::P50 => bin.p50_us?,
        Rank::P99 => bin.p99_us?,
    };
    let ratio = Reading::All(rank).of(bin)?;
    let scale = us / ratio.value;
    Some(Measured { value: us, low: ratio.low * scale, high: ratio.high * scale })
}

/// The largest p99 of the bins up to `to` %: no bin's lower end lies above it, and it lies below
/// the highest of the upper ends.
fn largest(outcome: &ScenarioOutcome, to: f64) -> Option<Measured> {
    let bins = &outcome.slowdown.buckets;
    let before = |at: usize| at.checked_sub(1).map_or(0.0, |at| bins[at].cum_share);
    let within = (0..bins.len()).take_while(|&at| before(at) * 100.0 < to - 1e-6);
    let each = within.filter_map(|at| Reading::All(Rank::P99).of(&bins[at]));
    each.reduce(|a, b| Measured {
        value: a.value.max(b.value),
        low: a.low.max(b.low),
        high: a.high.max(b.high),
    })
}

fn queue(outcome: &ScenarioOutcome, tier: &Tier, max: bool, residual: bool) -> Option<Measured> {
    let length = (tier.1)(outcome.queues.as_ref()?)?;
    let bytes = match (max, residual) {
        (false, false) => length.mean_bytes,
        (false, true) => length.mean_bytes_with_residual,
        (true, false) => length.max_bytes as f64,
        (true, true) => length.max_bytes_with_residual as f64,
    };
    Some(Measured::exact(bytes / KIB))
}

/// A mean over the messages near p99; of few of them it decides nothing.
fn of_tail(tail: &TailDelay, us: f64, ends: [Option<f64>; 2]) -> Measured {
    const ENOUGH: u64 = 400;
    Measured::between(us, if tail.messages < ENOUGH { [None; 2] } else { ends })
}

/// Responses delivered, counted in `bytes` of each.
pub(super) fn response_rate(stored: &Stored, bytes: fn(u32) -> f64) -> Option<Measured> {
    let scenario = &stored.cell.scenario;
    let Traffic::Incast { response_bytes, .. } = scenario.traffic else {
        return None;
    };
    let ScenarioOutcome { messages, traffic_seconds, messages_per_second_ci, .. } = stored.outcome;
    let gbits = bytes(response_bytes) * 8.0 / 1e9;
    let ends = messages_per_second_ci.map(|end| end.map(|rate| rate * gbits));
    let seconds = traffic_seconds - scenario.warm_up.0 as f64 / 1e12;
    Some(Measured::between(messages as f64 * gbits / seconds, ends))
}

/// Wire bytes of a message in full packets and one that holds the rest: what a transport sends that
/// does not, as the authors' simulator, begin a new packet where scheduled bytes begin.
pub(super) fn with_headers(bytes: u32) -> f64 {
    let full = Framing::Paper.max_payload();
    let rest = match bytes % full {
        0 => 0,
        rest => Framing::Paper.data_wire_bytes(rest),
    };
    (u64::from(bytes / full) * Framing::Paper.data_wire_bytes(full) + rest) as f64
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = PLAIN.iter().find(|(name, _)| *name == text);
        if let Some((_, metric)) = named {
            return Ok(metric.clone());
        }
        if let Some(path) = text.strip_prefix("outcome.").filter(|path| !path.is_empty()) {
            return Ok(Self::Path(path.to_owned()));
        }
        if let Some(above) = text.strip_prefix("paired_us@").and_then(|above| above.parse().ok()) {
            return Ok(Self::Paired(above));
        }
        let parsed = match text.split_once('@') {
            Some((name, at)) => at_percent(name, at),
            None => of_queue_or_level(text),
        };
        parsed.ok_or_else(|| {
            let names: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
            format!(
                "unknown metric `{text}`; allowed: `p99@50`, `p50@50`, `p99_by_receiver@50`, \
                 `p99_to@50` and so on, `p99_us@50`, `p50_us@50`, `p99_max@50`, \
                 `max_concurrent@9`, `tor_up.mean`, `tor_up.max`, `priority.0`, \
                 `computed.frame_us`, `outcome.drops.overflow`, {}",
                names.join(", ")
            )
        })
    }
}

fn at_percent(name: &str, at: &str) -> Option<Metric> {
    let at = at.parse::<f64>().ok().filter(|at| (0.0..=100.0).contains(at))?;
    if let Some(reading) = Reading::named(name) {
        return Some(Metric::Slowdown(reading, at));
    }
    if let Some(reading) = name.strip_suffix("_to").and_then(Reading::named) {
        return Some(Metric::Step(reading, at));
    }
    Some(match name {
        "p50_us" => Metric::Latency(Rank::P50, at),
        "p99_us" => Metric::Latency(Rank::P99, at),
        "p99_max" => Metric::Largest(at),
        "max_concurrent" => Metric::Limit(AtLimit::Concurrent(at)),
        _ => return None,
    })
}

fn of_queue_or_level(text: &str) -> Option<Metric> {
    let (name, what) = text.split_once('.')?;
    if name == "computed" {
        return Computed::named(what).map(Metric::Computed);
    }
    if name == "priority" {
        return what.parse().ok().filter(|level| *level < 8).map(Metric::Priority);
    }
    let tier = TIERS.iter().position(|(tier, _)| *tier == name)?;
    let (what, residual) = what.strip_suffix("_residual").map_or((what, false), |w| (w, true));
    match what {
        "mean" => Some(Metric::Queue(tier, false, residual)),
        "max" => Some(Metric::Queue(tier, true, residual)),
        _ => None,
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slowdown(reading, at) => write!(f, "{}@{at}", reading.name()),
            Self::Latency(rank, at) => write!(f, "{}_us@{at}", Reading::All(*rank).name()),
            Self::Step(reading, at) => write!(f, "{}_to@{at}", reading.name()),
            Self::Largest(to) => write!(f, "p99_max@{to}"),
            Self::Paired(above) => write!(f, "paired_us@{above}"),
            Self::Limit(AtLimit::Concurrent(least)) => write!(f, "max_concurrent@{least}"),
            Self::Queue(tier, max, residual) => {
                let what = if *max { "max" } else { "mean" };
                let rest = if *residual { "_residual" } else { "" };
                write!(f, "{}.{what}{rest}", TIERS[*tier].0)
            }
            Self::Priority(level) => write!(f, "priority.{level}"),
            Self::Computed(computed) => write!(f, "computed.{}", computed.name()),
            Self::Path(path) => write!(f, "outcome.{path}"),
            other => {
                let named = PLAIN.iter().find(|(_, metric)| metric == other);
                f.write_str(named.map_or("", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use homa_sim::scenario::outcome::ByReceiver;

    use super::*;

    #[test]
    fn each_reading_reads_its_own_value_and_ends() {
        let bin = SizeBucket {
            cum_share: 1.0,
            min_bytes: 1,
            max_bytes: 1,
            count: 500,
            p50: Some(2.0),
            p99: Some(5.0),
            p50_ci: [Some(1.0), Some(3.0)],
            p99_ci: [Some(4.0), Some(6.0)],
            p50_us: Some(10.0),
            p99_us: Some(11.0),
            by_receiver: Some(ByReceiver {
                p99: 8.0,
                p99_ci: [Some(7.0), Some(9.0)],
                receivers: 12,
            }),
        };
        let read = |reading: Reading, bin: &SizeBucket| {
            reading.of(bin).map(|Measured { value, low, high }| (low, value, high))
        };
        let read_all = |bin: &SizeBucket| Reading::ALL.map(|reading| read(reading, bin));
        let all = [Some((1.0, 2.0, 3.0)), Some((4.0, 5.0, 6.0)), Some((7.0, 8.0, 9.0))];
        assert_eq!(read_all(&bin), all);
        let none = SizeBucket { p50: None, p99: None, by_receiver: None, ..bin };
        assert_eq!(read_all(&none), [None; 3]);
    }

    #[test]
    fn headers_are_counted_for_packets_as_they_are_sent() {
        // 9.371 Gbit/s of responses of 10 kB were measured on a link of 10: six full packets of
        // 1538 B and one of 1444 each are 10.0; in the packets of the authors' messages 10.08.
        assert_eq!(with_headers(10_000), 10_672.0);
        assert_eq!((with_headers(1442), with_headers(1)), (1538.0, 97.0));
    }

    #[test]
    fn names_are_read_and_written_alike() {
        let names = [
            "p99@50",
            "p50@99.5",
            "p99_us@5",
            "p50_us@10",
            "p99_max@50",
            "p99_to@75",
            "p99_by_receiver@50",
            "p99_by_receiver_to@75",
            "p99",
            "p50",
            "mean_us",
            "tor_up.mean",
            "aggr_down.max",
            "tor_down.mean_residual",
            "priority.7",
            "wasted",
            "utilisation",
            "goodput",
            "tail.preemption_lag",
            "tail.queueing",
            "response_gbps",
            "response_wire_gbps",
            "max_utilisation",
            "max_goodput",
            "max_concurrent@9",
            "computed.frame_us",
            "computed.w2.top",
            "outcome.drops.overflow",
        ];
        for name in names {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
        let wrong = ["p98@50", "p99@101", "p99@", "tor_left.mean", "priority.8", "tor_up.min", ""];
        for name in wrong.iter().chain(&["p99_by_receiver", "p50_by_receiver@50", "_to@50"]) {
            let message = name.parse::<Metric>().unwrap_err();
            assert!(message.contains("allowed: `p99@50`"), "{message}");
        }
    }
}
