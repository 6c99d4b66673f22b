//! The rows in sentences that can be quoted: the tails compared, the columns in which Homa is not
//! best, and the limits of a rack on one machine. Every number comes from valid rows.

use homa_testbed::Transport;

use super::report::{Judged, TransportResult};
use super::table::interval;
use crate::commands::bench::args::Args;
use crate::commands::bench::fabric::FabricShape;
use crate::commands::bench::units::{grouped, rate, time};

/// The sentences, in order.
pub fn about(args: &Args, rows: &[Judged<TransportResult>]) -> Vec<String> {
    let valid: Vec<_> = rows.iter().filter(|row| row.valid).map(|row| &row.row).collect();
    let simulated = rows.iter().any(|row| !row.measured());
    let mut sentences = Vec::new();
    if let Some(homa) = valid.iter().find(|row| row.transport.is_homa()) {
        let others: Vec<_> =
            valid.iter().copied().filter(|row| row.transport != homa.transport).collect();
        sentences.extend(tails(args, homa, &others, simulated));
        if !others.is_empty() {
            sentences.push(not_best(homa, &others));
        }
    }
    sentences.push(match simulated {
        true => "Not shown: processors, kernels and real network cards; simulated hosts take a \
                 constant time per message."
            .into(),
        false => not_shown(args),
    });
    sentences
}

fn not_shown(args: &Args) -> String {
    format!(
        "Not shown: real switches and network cards, links above {}, {}, encryption, receive-side \
         kernel cost; all hosts share this machine's cores.",
        rate(args.link()),
        match args.network.fabric {
            FabricShape::SingleSwitch => "more than one switch",
            FabricShape::LeafSpine => "switches that pause senders (PFC)",
        }
    )
}

/// A transport in a sentence.
fn over(row: &TransportResult) -> String {
    let name = match row.transport {
        Transport::Homa => "Homa",
        Transport::HomaFlat => "Homa with one priority level",
        Transport::HomaSharded => "Homa with two engines a host",
        Transport::TcpClassed => "TCP with priority classes",
        Transport::TcpPool => "a pool of TCP connections",
        Transport::Tcp => "one TCP connection",
        Transport::TcpEcn => "TCP with ECN",
        Transport::Dctcp => "DCTCP",
        Transport::Grpc => "gRPC on TCP",
        Transport::GrpcProxy => "gRPC through proxies on Homa",
        other => other.name(),
    };
    match row.marks {
        Some(false) => format!("{name} without marks"),
        _ => name.into(),
    }
}

/// The 99th percentiles compared. TCP is what Homa is compared with, if it has a row.
fn tails(
    args: &Args,
    homa: &TransportResult,
    others: &[&TransportResult],
    simulated: bool,
) -> Option<String> {
    let own = homa.short.p99_us.filter(|&us| us > 0.0)?;
    let tcp: Vec<&TransportResult> =
        others.iter().copied().filter(|row| !row.transport.is_homa()).collect();
    let others = if tcp.is_empty() { others } else { &tcp };
    let tail = |row: &TransportResult, us: f64| {
        let within = interval(row.short.p99_ci_us);
        let within = within.map_or(String::new(), |interval| format!(" [{interval}]"));
        format!("{}{within} over {}", time(Some(us)), over(row))
    };
    let mut compared = vec![tail(homa, own)];
    compared.extend(others.iter().filter_map(|row| {
        let us = row.short.p99_us?;
        Some(format!("{} ({} times)", tail(row, us), ratio(us / own)))
    }));
    let start = format!(
        "{} {:.0} % load of {} links, 99 % of RPCs up to {} B took at most ",
        if simulated { "In simulation, at" } else { "At" },
        args.load * 100.0,
        rate(args.link()),
        grouped(homa.short.max_bytes.into()),
    );
    let lossy = [homa].into_iter().chain(others.iter().copied()).filter(|row| row.errors > 0);
    let lost: Vec<String> = lossy.map(|row| format!("{} over {}", row.errors, over(row))).collect();
    let end = match lost.is_empty() {
        true => ".".into(),
        false => format!("; RPCs that did not complete are left out ({}).", lost.join(", ")),
    };
    Some(format!("{start}{}{end}", listed(&compared)))
}

/// Items as in a sentence.
fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A ratio: a digit after the point if it is small.
fn ratio(ratio: f64) -> String {
    match ratio {
        ..20.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

/// A figure of a row, the smaller the better.
type Figure = (&'static str, fn(&TransportResult) -> Option<f64>, fn(f64) -> String);

const FIGURES: [Figure; 5] = [
    ("the median of short RPCs", |row| row.short.p50_us, |us| time(Some(us))),
    ("the tail of short RPCs", |row| row.short.p99_us, |us| time(Some(us))),
    ("the median of RPCs above 150 kB", |row| row.long.p50_us, |us| time(Some(us))),
    ("lost RPCs", |row| Some(row.errors as f64), |count| format!("{count:.0}")),
    ("CPU time per RPC", |row| row.cpu_us_per_rpc, |us| format!("{us:.1} us")),
];

fn not_best(homa: &TransportResult, others: &[&TransportResult]) -> String {
    let beaten: Vec<String> = FIGURES
        .iter()
        .filter_map(|(name, figure, show)| {
            let own = figure(homa)?;
            let better = others.iter().filter_map(|row| Some((figure(row)?, row.label())));
            let (best, label) = better.min_by(|a, b| a.0.total_cmp(&b.0))?;
            (best < own)
                .then(|| format!("{name} ({} against {} over {label})", show(own), show(best)))
        })
        .collect();
    match beaten.is_empty() {
        true => "Homa is best in each of these columns.".into(),
        false => format!("Homa is not best in {}.", beaten.join(", nor in ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::asked;
    use super::super::report::{Long, Short};
    use super::*;

    fn row(transport: Transport, p99_us: f64, cpu: f64) -> TransportResult {
        TransportResult {
            transport,
            marks: None,
            offered: 10,
            completed: 10,
            errors: 0,
            cpu_us_per_rpc: Some(cpu),
            started: None,
            executed: None,
            memory: None,
            short: Short {
                max_bytes: 1500,
                count: 10,
                p50_us: Some(100.0),
                p99_us: Some(p99_us),
                undisturbed: None,
                p99_ci_us: [None, None],
                p50_slowdown: None,
                p99_slowdown: None,
            },
            long: Long { min_bytes: 150_000, p50_us: None },
            buckets: Vec::new(),
            goodput_mbps: None,
            queueing: None,
            twin: None,
            idle_us: None,
        }
    }

    fn tail(rows: &[Judged<TransportResult>]) -> String {
        about(&asked(&["--link", "25Mbps"]), rows)[0].clone()
    }

    #[test]
    fn the_tails_are_compared_with_their_intervals_and_ratios() {
        let mut homa = row(Transport::Homa, 600.0, 20.0);
        homa.short.p99_ci_us = [Some(550.0), Some(1_200.0)];
        let tcp = row(Transport::Tcp, 345_000.0, 30.0);
        let flat = row(Transport::HomaFlat, 900.0, 20.0);
        let rows = [homa, flat, tcp].map(Judged::valid);
        assert_eq!(
            tail(&rows),
            "At 80 % load of 25 Mbit/s links, 99 % of RPCs up to 1,500 B took at most 600 us [550 \
             us - 1.20 ms] over Homa and 345 ms over one TCP connection (575 times)."
        );
        let simulated = rows.map(|row| Judged::simulated(row.row));
        assert!(tail(&simulated).starts_with("In simulation, at 80 % load"));
    }

    #[test]
    fn a_row_that_was_disturbed_is_not_compared() {
        let homa = Judged::valid(row(Transport::Homa, 600.0, 20.0));
        let tcp = Judged { valid: false, ..Judged::valid(row(Transport::Tcp, 1_200.0, 30.0)) };
        assert!(!tail(&[homa, tcp]).contains("TCP"));
    }

    #[test]
    fn tails_without_the_lost_rpcs_say_so() {
        let mut tcp = row(Transport::Tcp, 1_200.0, 30.0);
        tcp.errors = 7;
        let text = tail(&[row(Transport::Homa, 600.0, 20.0), tcp].map(Judged::valid));
        let end = "did not complete are left out (7 over one TCP connection).";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_column_in_which_homa_is_beaten_has_both_numbers() {
        let (homa, tcp) = (row(Transport::Homa, 600.0, 20.0), row(Transport::Tcp, 345_000.0, 12.5));
        assert_eq!(
            not_best(&homa, &[&tcp]),
            "Homa is not best in CPU time per RPC (20.0 us against 12.5 us over tcp)."
        );
        let worse = row(Transport::Tcp, 345_000.0, 30.0);
        assert!(not_best(&homa, &[&worse]).starts_with("Homa is best in each"));
    }
}
