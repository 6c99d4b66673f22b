//! The report: the difference of two scrapes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use crate::commands::scrape::{MetricSample, Scrape};
use crate::output::{Align, TextTable};

/// Peers in a report.
const MOST_PEERS: usize = 8;
/// Reasons of dropped packets in a report for people. An engine has fewer that occur together.
const MOST_REASONS: usize = 8;
/// Peers that an endpoint lists in each direction, at most.
const LISTED: usize = 16;
/// The sizes of RPCs, as endpoints name them.
const SIZES: [&str; 3] = ["short", "medium", "long"];
/// RPCs by direction, outcome, and size.
const DURATION: &str = "homa_rpc_duration_seconds";

/// What an engine did between two scrapes.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Time between the scrapes.
    seconds: f64,
    /// RPCs that ended, as client and as server.
    rpcs: Vec<Rpcs>,
    /// Calls in progress at the second scrape.
    calls_in_progress: f64,
    /// Requests in progress at the second scrape, replies that are not acknowledged included.
    requests_in_progress: f64,
    /// Peers in the table.
    peers: f64,
    /// Bytes of outgoing messages in memory, and the limit.
    send_memory_bytes: f64,
    send_memory_limit_bytes: f64,
    /// Bytes of incoming messages and of requests that were not accepted, and the limit.
    receive_memory_bytes: f64,
    receive_memory_limit_bytes: f64,
    /// Datagrams and bits that left and came.
    datagrams_sent_per_s: f64,
    datagrams_received_per_s: f64,
    sent_mbps: f64,
    received_mbps: f64,
    /// RESENDs that were sent: bytes were missing here.
    resends_sent_per_s: f64,
    /// RESENDs that came: bytes were missing at a peer.
    resends_received_per_s: f64,
    /// Datagrams that the full receive queue lost.
    receive_overflows_per_s: f64,
    /// Times that the process was not scheduled in time.
    stalls_per_s: f64,
    /// The share of the time in which it did not run although it had something to do.
    stalled_share: f64,
    /// Requests refused because of overload, and requests that expired before they were accepted.
    requests_shed_per_s: f64,
    requests_expired_per_s: f64,
    /// Dropped packets by reason, those that occurred.
    drops_per_s: BTreeMap<String, f64>,
    /// The peers with most RPCs in this time, of those that the endpoint lists.
    busiest: Vec<BusyPeer>,
}

/// RPCs of one direction.
#[derive(Debug, Serialize)]
struct Rpcs {
    direction: String,
    /// That ended with a response.
    ok_per_s: f64,
    /// That ended otherwise.
    other_per_s: f64,
    /// Of those with a response; `None` if there was none.
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    /// Those with a response, by size; sizes that occurred.
    sizes: Vec<RpcsOfSize>,
}

/// RPCs of one direction and size that ended with a response.
#[derive(Debug, Serialize)]
struct RpcsOfSize {
    size: String,
    ok_per_s: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

/// RPCs with one peer.
#[derive(Debug, Serialize)]
struct BusyPeer {
    peer: String,
    direction: String,
    rpcs_per_s: f64,
    failures_per_s: f64,
    mean_us: Option<f64>,
    /// At the second scrape.
    in_progress: f64,
}

/// Differences between two scrapes.
struct Difference<'a> {
    before: &'a Scrape,
    after: &'a Scrape,
    seconds: f64,
}

impl Difference<'_> {
    /// The growth of a counter.
    fn grown(&self, name: &str, sample: &MetricSample) -> f64 {
        sample.grown(name, self.before)
    }

    /// The growth of a counter per second, the sum over all labels.
    fn rate(&self, name: &str) -> f64 {
        let grown = self.after.all(name).iter().map(|sample| self.grown(name, sample));
        total(grown) / self.seconds
    }

    /// The growth of those samples of a counter that have this direction, and an outcome that is
    /// accepted.
    fn rpcs(&self, name: &str, direction: &str, accepts: impl Fn(&str) -> bool) -> f64 {
        let all = self.after.all(name).iter();
        let of = all.filter(|sample| {
            sample.label("direction") == direction && accepts(sample.label("outcome"))
        });
        total(of.map(|sample| self.grown(name, sample)))
    }

    fn direction(&self, direction: &str) -> Rpcs {
        let (count, sum) = (format!("{DURATION}_count"), format!("{DURATION}_sum"));
        let ok = self.rpcs(&count, direction, |outcome| outcome == "ok");
        let other = self.rpcs(&count, direction, |outcome| outcome != "ok");
        let time = self.rpcs(&sum, direction, |outcome| outcome == "ok");
        let buckets = self.buckets(direction, None);
        let sizes = SIZES.iter().map(|size| self.size(direction, size));
        Rpcs {
            direction: direction.to_owned(),
            ok_per_s: ok / self.seconds,
            other_per_s: other / self.seconds,
            mean_us: (ok > 0.0).then(|| time / ok * 1e6),
            p50_us: quantile_us(&buckets, 0.5),
            p99_us: quantile_us(&buckets, 0.99),
            sizes: sizes.filter(|of| of.ok_per_s > 0.0).collect(),
        }
    }

    fn size(&self, direction: &str, size: &str) -> RpcsOfSize {
        let buckets = self.buckets(direction, Some(size));
        RpcsOfSize {
            size: size.to_owned(),
            ok_per_s: buckets.last().map_or(0.0, |(_, count)| count / self.seconds),
            p50_us: quantile_us(&buckets, 0.5),
            p99_us: quantile_us(&buckets, 0.99),
        }
    }

    /// RPCs with a response by time, of one size or all, of all engines: the buckets' upper ends in
    /// seconds, cumulative counts.
    fn buckets(&self, direction: &str, size: Option<&str>) -> Vec<(f64, f64)> {
        let name = format!("{DURATION}_bucket");
        let all = self.after.all(&name).iter();
        let of = all.filter(|sample| {
            sample.label("direction") == direction
                && sample.label("outcome") == "ok"
                && size.is_none_or(|size| sample.label("size") == size)
        });
        let read = |le: &str| le.parse::<f64>().ok().filter(|end| *end >= 0.0);
        let all = of.filter_map(|of| Some((read(of.label("le"))?, self.grown(&name, of))));
        let mut buckets: Vec<(f64, f64)> = all.collect();
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        buckets.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            sum.1 += if same { next.1 } else { 0.0 };
            same
        });
        buckets
    }

    fn busiest(&self) -> Vec<BusyPeer> {
        let name = "homa_peer_rpcs_total";
        // The endpoint lists the busiest. If its list was full, a peer that is new in it may have
        // made its RPCs before.
        let listed = |direction: &str| {
            self.before.all(name).iter().filter(|of| of.label("direction") == direction).count()
        };
        let full = ["client", "server"].map(|of| (of, listed(of) >= LISTED));
        let rpcs = self.after.all(name).iter().filter(|sample| {
            !full.contains(&(sample.label("direction"), true)) || self.before.has(name, sample)
        });
        let counts = rpcs.map(|sample| {
            let in_progress = self.after.same("homa_peer_rpcs_in_progress", sample);
            (sample, self.grown(name, sample), in_progress)
        });
        let mut peers: Vec<(&MetricSample, f64, f64)> =
            counts.filter(|&(_, ended, now)| ended > 0.0 || now > 0.0).collect();
        peers.sort_by(|(_, ended, now), (_, other, then)| (other + then).total_cmp(&(ended + now)));
        peers.truncate(MOST_PEERS);
        peers.into_iter().map(|(of, ended, now)| self.peer(of, ended, now)).collect()
    }

    fn peer(&self, sample: &MetricSample, ended: f64, in_progress: f64) -> BusyPeer {
        // Failures are divided by outcome.
        let of = |name: &str| {
            let all = self.after.all(name).iter();
            let parts = all.filter(|other| other.is_part_of(sample));
            total(parts.map(|part| self.grown(name, part)))
        };
        let time = of("homa_peer_rpc_seconds_total");
        BusyPeer {
            peer: sample.label("peer").to_owned(),
            direction: sample.label("direction").to_owned(),
            rpcs_per_s: ended / self.seconds,
            failures_per_s: of("homa_peer_rpc_failures_total") / self.seconds,
            mean_us: (ended > 0.0).then(|| time / ended * 1e6),
            in_progress,
        }
    }
}

/// A quantile of times in seconds, in microseconds.
fn quantile_us(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    quantile(buckets, share).map(|seconds| seconds * 1e6)
}

/// The quantile of a histogram, linear within a bucket (as Prometheus' `histogram_quantile`).
/// `None` if it is empty.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = buckets.last()?.1;
    let rank = share * total;
    let (mut end_before, mut count_before) = (0.0, 0.0);
    for &(end, count) in buckets {
        if count >= rank && count > 0.0 {
            let inside = ((rank - count_before) / (count - count_before).max(1.0)).clamp(0.0, 1.0);
            let width = if end.is_finite() { end - end_before } else { 0.0 };
            return Some(end_before + inside * width);
        }
        (end_before, count_before) = (end, count);
    }
    None
}

impl Report {
    /// What happened between two scrapes of an endpoint.
    pub fn between(before: &Scrape, after: &Scrape) -> Self {
        let seconds = after.taken.duration_since(before.taken).as_secs_f64().max(1e-3);
        let of = Difference { before, after, seconds };
        let protocol = |name: &str| of.rate(&format!("homa_protocol_{name}_total"));
        let driver = |name: &str| of.rate(&format!("homa_driver_{name}_total"));
        let engine = |name: &str| of.rate(&format!("homa_engine_{name}_total"));
        let gauge = |name: &str| after.value(&format!("homa_engine_{name}"));
        let drops = "homa_protocol_drops_total";
        let mut dropped = BTreeMap::new();
        for sample in after.all(drops) {
            let rate = of.grown(drops, sample) / seconds;
            if rate > 0.0 {
                *dropped.entry(sample.label("reason").to_owned()).or_default() += rate;
            }
        }
        Self {
            seconds,
            rpcs: vec![of.direction("client"), of.direction("server")],
            calls_in_progress: gauge("calls_in_progress"),
            requests_in_progress: gauge("requests_in_progress"),
            peers: gauge("peers"),
            send_memory_bytes: gauge("send_memory_bytes"),
            send_memory_limit_bytes: gauge("send_memory_limit_bytes"),
            receive_memory_bytes: gauge("receive_memory_bytes"),
            receive_memory_limit_bytes: gauge("receive_memory_limit_bytes"),
            datagrams_sent_per_s: driver("datagrams_sent"),
            datagrams_received_per_s: driver("datagrams_received"),
            sent_mbps: driver("bytes_sent") * 8e-6,
            received_mbps: driver("bytes_received") * 8e-6,
            resends_sent_per_s: protocol("resends_sent"),
            resends_received_per_s: protocol("resends_received"),
            receive_overflows_per_s: driver("receive_overflows"),
            stalls_per_s: protocol("stalls"),
            stalled_share: of.rate("homa_engine_stalled_seconds_total"),
            requests_shed_per_s: engine("requests_shed"),
            requests_expired_per_s: engine("requests_expired"),
            drops_per_s: dropped,
            busiest: of.busiest(),
        }
    }

    /// The report for people.
    pub fn to_text(&self, endpoint: SocketAddr) -> String {
        let mut lines = vec![format!(
            "{endpoint}: {:.0} peers, {:.0} calls and {:.0} requests in progress",
            self.peers, self.calls_in_progress, self.requests_in_progress,
        )];
        lines.push(format!(
            "memory: {} to send, {} to receive",
            share(self.send_memory_bytes, self.send_memory_limit_bytes),
            share(self.receive_memory_bytes, self.receive_memory_limit_bytes),
        ));
        lines.push(String::new());
        lines.extend(self.rpc_lines());
        lines.push(String::new());
        lines.push(format!(
            "sent {}/s ({:.1} Mbit/s), received {}/s ({:.1} Mbit/s)",
            count(self.datagrams_sent_per_s),
            self.sent_mbps,
            count(self.datagrams_received_per_s),
            self.received_mbps,
        ));
        lines.push(format!(
            "lost: {}/s RESENDs sent, {}/s received, {}/s receive queue overflows",
            count(self.resends_sent_per_s),
            count(self.resends_received_per_s),
            count(self.receive_overflows_per_s),
        ));
        lines.push(format!(
            "overload: {}/s requests shed, {}/s expired, {}/s stalls of the process ({:.1} % of \
             the time)",
            count(self.requests_shed_per_s),
            count(self.requests_expired_per_s),
            count(self.stalls_per_s),
            self.stalled_share * 100.0,
        ));
        lines.extend(dropped(&self.drops_per_s));
        if !self.busiest.is_empty() {
            lines.push(String::new());
            lines.extend(self.peer_lines());
        }
        lines.push(String::new());
        lines.join("\n")
    }

    fn rpc_lines(&self) -> Vec<String> {
        let columns = [
            ("RPCs as", Align::Left, 8),
            ("answered/s", Align::Right, 10),
            ("other/s", Align::Right, 8),
            ("mean us", Align::Right, 9),
            ("p50 us", Align::Right, 9),
            ("p99 us", Align::Right, 9),
        ];
        let table = TextTable::new(&columns);
        let row = |of: &Rpcs| {
            table.row(&[
                of.direction.clone(),
                count(of.ok_per_s),
                count(of.other_per_s),
                micros(of.mean_us),
                micros(of.p50_us),
                micros(of.p99_us),
            ])
        };
        let of_size = |of: &RpcsOfSize| {
            let (name, rate) = (format!("  {}", of.size), count(of.ok_per_s));
            let none = String::new;
            table.row(&[name, rate, none(), none(), micros(of.p50_us), micros(of.p99_us)])
        };
        let rows = self.rpcs.iter().flat_map(|of| {
            std::iter::once(row(of)).chain(of.sizes.iter().map(of_size)).collect::<Vec<_>>()
        });
        std::iter::once(table.head()).chain(rows).collect()
    }

    fn peer_lines(&self) -> Vec<String> {
        let columns = [
            ("peer", Align::Left, 22),
            ("as", Align::Left, 6),
            ("RPCs/s", Align::Right, 9),
            ("failed/s", Align::Right, 9),
            ("mean us", Align::Right, 9),
            ("now", Align::Right, 6),
        ];
        let table = TextTable::new(&columns);
        // A client of ours is a server to the peer.
        let row = |of: &BusyPeer| {
            let role = if of.direction == "client" { "server" } else { "client" };
            table.row(&[
                of.peer.clone(),
                role.to_owned(),
                count(of.rpcs_per_s),
                count(of.failures_per_s),
                micros(of.mean_us),
                format!("{:.0}", of.in_progress),
            ])
        };
        std::iter::once(table.head()).chain(self.busiest.iter().map(row)).collect()
    }
}

/// The line about dropped packets: the most frequent reasons. An endpoint may list any number.
fn dropped(by_reason: &BTreeMap<String, f64>) -> Option<String> {
    let mut all: Vec<(&String, &f64)> = by_reason.iter().collect();
    all.sort_by(|(_, rate), (_, other)| other.total_cmp(rate));
    let shown = all.iter().take(MOST_REASONS);
    let shown: Vec<String> =
        shown.map(|(reason, rate)| format!("{reason} {}/s", count(**rate))).collect();
    let more = all.len().saturating_sub(MOST_REASONS);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("dropped packets: {}{more}", shown.join(", ")))
}

/// The sum of some numbers. That of none is 0, where [`Iterator::sum`] gives -0.
fn total(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |sum, number| sum + number)
}

/// A rate: a whole number from 10 up, one decimal below.
fn count(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

fn micros(time: Option<f64>) -> String {
    time.map_or("-".into(), |time| format!("{time:.1}"))
}

/// Bytes, and their share of a limit.
fn share(used: f64, limit: f64) -> String {
    format!("{} ({:.1} % of {})", bytes(used), used / limit.max(1.0) * 100.0, bytes(limit))
}

fn bytes(bytes: f64) -> String {
    match bytes {
        b if b < 1e3 => format!("{b:.0} B"),
        b if b < 1e6 => format!("{:.1} kB", b / 1e3),
        b => format!("{:.1} MB", b / 1e6),
    }
}

#[cfg(test)]
mod tests;
