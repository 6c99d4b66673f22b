//! What to make of the rows, in plain sentences: the tails compared, where Homa is not best, what a
//! rack on one machine does not show. Every number comes from the rows.

use homa_testbed::Transport;

use super::Args;
use super::fabric::Wired;
use super::report::TransportResult;
use super::screen::time;
use crate::values::show_rate;

/// The row the others are compared with.
const SUBJECT: Transport = Transport::Homa;

/// Instead of them when the rack failed its own checks.
pub const INVALID: &str = "These rows do not count: this machine, not the network, decided them. \
                           Stop other work, or choose fewer --hosts or a slower --link, and run \
                           it again.";

/// The sentences, in order.
pub fn about(args: &Args, rows: &[TransportResult]) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(homa) = rows.iter().find(|row| row.transport == SUBJECT) {
        let others: Vec<_> = rows.iter().filter(|row| row.transport != SUBJECT).collect();
        sentences.extend(tails(homa, &others));
        if !others.is_empty() {
            sentences.push(not_best(homa, &others));
        }
    }
    sentences.push(format!(
        "Not shown: real switches and network cards, links above {}, {}, encryption, what arriving \
         frames cost a kernel; all hosts share this machine's cores.",
        show_rate(args.link()),
        match args.fabric {
            Wired::SingleSwitch => "more than one switch",
            Wired::LeafSpine => "switches that pause senders (PFC)",
        }
    ));
    sentences
}

fn tails(homa: &TransportResult, others: &[&TransportResult]) -> Option<String> {
    let own = homa.short.p99_us.filter(|&us| us > 0.0)?;
    let compared: Vec<String> = others
        .iter()
        .filter_map(|row| {
            let us = row.short.p99_us?;
            Some(format!("{} {} ({:.1} times)", row.label(), time(Some(us)), us / own))
        })
        .collect();
    let max = homa.short.max_bytes;
    let start = format!("99 % of RPCs <= {max} B end within {} over homa", time(Some(own)));
    let compared = match compared.is_empty() {
        true => start,
        false => format!("{start}; the others need: {}", compared.join(", ")),
    };
    let lossy = [homa].into_iter().chain(others.iter().copied()).filter(|row| row.errors > 0);
    let lost: Vec<String> = lossy.map(|row| format!("{} by {}", row.errors, row.label())).collect();
    Some(match lost.is_empty() {
        true => format!("{compared}."),
        false => {
            format!("{compared}; of completed RPCs only, without those lost: {}.", lost.join(", "))
        }
    })
}

/// A figure of a row, where less is better.
type Figure = (&'static str, fn(&TransportResult) -> Option<f64>, fn(f64) -> String);

const FIGURES: [Figure; 5] = [
    ("the median of short RPCs", |row| row.short.p50_us, |us| time(Some(us))),
    ("the tail of short RPCs", |row| row.short.p99_us, |us| time(Some(us))),
    ("the median of RPCs above 150 kB", |row| row.long.p50_us, |us| time(Some(us))),
    ("lost RPCs", |row| Some(row.errors as f64), |count| format!("{count:.0}")),
    ("CPU time per RPC", |row| Some(row.cpu_us_per_rpc), |us| format!("{us:.1} us")),
];

fn not_best(homa: &TransportResult, others: &[&TransportResult]) -> String {
    let beaten: Vec<String> = FIGURES
        .iter()
        .filter_map(|(name, figure, show)| {
            let own = figure(homa)?;
            let better = others.iter().filter_map(|row| Some((figure(row)?, row.label())));
            let (best, who) = better.min_by(|a, b| a.0.total_cmp(&b.0))?;
            (best < own)
                .then(|| format!("{name} ({} against {} over {who})", show(own), show(best)))
        })
        .collect();
    match beaten.is_empty() {
        true => "No other row is better than homa in any of these columns.".into(),
        false => format!("Homa is not best in {}.", beaten.join(", nor in ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Long, Short};
    use super::*;

    fn row(transport: Transport, p99_us: f64, cpu: f64) -> TransportResult {
        TransportResult {
            transport,
            marks: None,
            offered: 10,
            completed: 10,
            errors: 0,
            cpu_us_per_rpc: cpu,
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
        }
    }

    #[test]
    fn the_tails_are_compared_with_their_ratio() {
        let (homa, tcp) = (row(Transport::Homa, 600.0, 20.0), row(Transport::Tcp, 345_000.0, 30.0));
        assert_eq!(
            tails(&homa, &[&tcp]).as_deref(),
            Some(
                "99 % of RPCs <= 1500 B end within 600 us over homa; the others need: tcp 345 ms \
                 (575.0 times)."
            )
        );
    }

    #[test]
    fn tails_without_the_lost_rpcs_are_called_so() {
        let (homa, mut tcp) =
            (row(Transport::Homa, 600.0, 20.0), row(Transport::Tcp, 1_200.0, 30.0));
        tcp.errors = 7;
        let text = tails(&homa, &[&tcp]).unwrap_or_default();
        let end = "tcp 1.20 ms (2.0 times); of completed RPCs only, without those lost: 7 by tcp.";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn where_homa_is_beaten_is_said_with_both_numbers() {
        let (homa, tcp) = (row(Transport::Homa, 600.0, 20.0), row(Transport::Tcp, 345_000.0, 12.5));
        assert_eq!(
            not_best(&homa, &[&tcp]),
            "Homa is not best in CPU time per RPC (20.0 us against 12.5 us over tcp)."
        );
        let worse = row(Transport::Tcp, 345_000.0, 30.0);
        assert!(not_best(&homa, &[&worse]).starts_with("No other row is better"));
    }
}
