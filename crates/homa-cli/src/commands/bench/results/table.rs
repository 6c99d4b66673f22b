//! The table of `homa bench` in one piece, and the lines around it: the rack and the load above,
//! the names of the rows and details below.

use std::time::Duration;

use homa_testbed::check::SHORT_BYTES;
use homa_testbed::link::TCP_RTO_MIN;
use homa_testbed::{Rack, Transport};
use homa_workload::arrivals::Arrival;

use super::report::{Judged, TransportResult, Undisturbed};
use crate::commands::bench::args::Args;
use crate::commands::bench::marking::PlannedRow;
use crate::commands::bench::rows::Rows;
use crate::commands::bench::setup::{framing, rack_config};
use crate::commands::bench::units::{rate, time};
use crate::output::{Align, TextTable, line};

/// Prints the titles and one line per row.
pub fn print<R: Rows>(of: &R, labels: &[String], rows: &[Judged<R::Row>]) {
    let table = of.table();
    line(table.head());
    for (label, row) in labels.iter().zip(rows) {
        let mark = match (row.valid, row.measured()) {
            (false, _) => " (disturbed)",
            (true, false) => " (simulated)",
            (true, true) => "",
        };
        let cells = [format!("{label}{mark}")].into_iter().chain(of.cells(&row.row));
        line(table.row(&cells.collect::<Vec<_>>()));
    }
}

/// The meanings of the names of the rows.
pub fn legend<R>(planned: &[PlannedRow], rows: &[Judged<R>]) -> Vec<String> {
    let mut named: Vec<Transport> = Vec::new();
    for row in planned {
        if !named.contains(&row.transport) {
            named.push(row.transport);
        }
    }
    let mut lines: Vec<String> = named
        .into_iter()
        .map(|transport| format!("  {:<12} {}", transport.name(), explained(transport)))
        .collect();
    if rows.iter().any(|row| !row.valid) {
        lines.push("  (disturbed)  the machine, not the network, decided this row".into());
    }
    lines
}

/// A transport in a few words.
fn explained(transport: Transport) -> &'static str {
    match transport {
        Transport::Homa => "Homa over UDP, six priority levels of the switch",
        Transport::HomaFlat => "Homa with one priority level, as if switches ignored DSCP",
        Transport::HomaSharded => "Homa with two engines at each host's address",
        Transport::TcpClassed => {
            "kernel TCP: small RPCs on their own connection and in their own DSCP class, a pool \
             for the rest"
        }
        Transport::TcpPool => "kernel TCP, eight connections per pair of hosts",
        Transport::Tcp => "kernel TCP, one connection per pair of hosts",
        Transport::TcpEcn => "the same, slowed down by ECN marks of the switch",
        Transport::Dctcp => "the kernel's DCTCP, one connection per pair of hosts",
        Transport::Grpc => "gRPC on kernel TCP, one connection of HTTP/2 per pair of hosts",
        Transport::GrpcProxy => {
            "the same programs of gRPC, a `homa proxy` beside each, between them Homa"
        }
        _ => "",
    }
}

/// The columns of RPCs under load, `short` of them short.
pub fn loaded(short: usize) -> TextTable {
    let title = format!("RPCs <= {SHORT_BYTES} B (n = {short})");
    TextTable::new(&[
        (&title, Align::Left, 24),
        ("p50", Align::Right, 7),
        ("p99", Align::Right, 7),
        ("95 % interval", Align::Right, 19),
        ("> 150 kB p50", Align::Right, 12),
        ("lost", Align::Right, 4),
        ("CPU us/RPC", Align::Right, 10),
    ])
}

/// The cells of one transport after its name.
pub fn cells(row: &TransportResult) -> Vec<String> {
    vec![
        time(row.short.p50_us),
        time(row.short.p99_us),
        interval(row.short.p99_ci_us).unwrap_or_else(|| "-".into()),
        time(row.long.p50_us),
        row.errors.to_string(),
        row.cpu_us_per_rpc.map_or("-".into(), |us| format!("{us:.1}")),
    ]
}

/// An interval; `None` if the sample bounds it on neither side.
pub fn interval(ends: [Option<f64>; 2]) -> Option<String> {
    let end = |us: Option<f64>| us.map_or("?".into(), |us| time(Some(us)));
    ends.iter().any(Option::is_some).then(|| format!("{} - {}", end(ends[0]), end(ends[1])))
}

/// Sizes of the RPCs that count as short, ascending, bytes.
pub fn short_sizes(arrivals: &[Vec<Arrival>]) -> Vec<u32> {
    let bytes = arrivals.iter().flatten().map(|arrival| arrival.bytes);
    let mut short: Vec<u32> = bytes.filter(|&bytes| bytes <= SHORT_BYTES).collect();
    short.sort_unstable();
    short
}

/// The size of the median RPC among the short ones, bytes.
pub fn typical(short: &[u32]) -> Option<u32> {
    short.get(short.len() / 2).copied()
}

/// The load, which is a share `of_what`.
pub fn load_line(args: &Args, of_what: &str) -> String {
    format!(
        "Load: {} ({}), echo, Poisson, {:.0} % {of_what}{}.",
        args.workload.to_string().to_uppercase(),
        args.workload.description(),
        args.load * 100.0,
        faults(args)
    )
}

/// Lines about one transport, below the table.
pub fn below(
    args: &Args,
    row: &TransportResult,
    typical: Option<u32>,
    verbose: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let (true, Some(typical)) = (verbose, typical) {
        lines.extend(denominator(args, row, typical));
    }
    if let Some(queueing) = row.queueing.as_ref().filter(|_| verbose || row.marks.is_some()) {
        let goodput = row.goodput_mbps.unwrap_or(0.0);
        lines.push(format!("{}; requests of {goodput} Mbit/s", queueing.line()));
    }
    if let (true, Some(calm)) = (verbose, &row.short.undisturbed) {
        lines.push(pauses(calm));
    }
    let faulty = args.loss + args.duplicate > 0.0;
    if let (true, Some(started), Some(executed)) = (faulty || verbose, row.started, row.executed) {
        lines.push(format!(
            "    requests executed: {executed} for {started} RPCs, warm-up and idle included"
        ));
    }
    if let Some(held) = row.memory.as_ref().filter(|_| faulty || verbose) {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let (start, peak) = (held.start_bytes, held.peak_bytes);
        lines.push(format!(
            "    memory of all hosts: {:.1} MB when the load began, at most {:.1} MB (+{:.1})",
            mb(start),
            mb(peak),
            mb(peak - start)
        ));
        lines.extend(held.trend().map(|found| format!("    memory {found}")));
    }
    lines.extend(row.twin.iter().flat_map(|twin| twin.lines()));
    lines
}

/// The idle round trip that slowdown divides by, beside its part on the wire.
fn denominator(args: &Args, row: &TransportResult, typical: u32) -> Option<String> {
    let idle_us = row.idle_us?;
    let slowdown = row.short.p99_slowdown?;
    // The wire between this machine and a peer is not known.
    let wire = match args.peer {
        None => {
            let wire = rack_config(args).wire_round_trip_ns(framing(row.transport), typical);
            format!(" ({} of it on the wire)", time(Some(wire as f64 / 1e3)))
        }
        Some(_) => String::new(),
    };
    let idle = time(Some(idle_us));
    Some(format!("    idle round trip of {typical} B: {idle}{wire}; p99 of slowdown {slowdown}"))
}

/// The rack, and the timer of TCP on it if TCP has a row. `None`: a rack that is simulated.
pub fn rack_lines(args: &Args, rack: Option<&Rack>) -> Vec<String> {
    let place = match rack {
        Some(_) => "emulated inside this machine",
        None => "simulated",
    };
    let mut lines = vec![format!(
        "Rack: {} hosts x {}, {}, {} B of buffer a port, {place}.",
        args.hosts(),
        rate(args.link()),
        args.network.text(),
        args.buffer
    )];
    if !args.transports().iter().all(|transport| transport.is_homa()) {
        lines.push(tcp_timer(rack.map_or(TCP_RTO_MIN, Rack::tcp_rto_min)));
    }
    lines.extend(args.marks.line());
    lines
}

/// How soon TCP sends a lost segment again, which decides its tail.
fn tcp_timer(least: Duration) -> String {
    match least {
        TCP_RTO_MIN => format!("TCP's minimum RTO: {} ms.", least.as_millis()),
        kernels => format!(
            "TCP's minimum RTO: this kernel's {} ms; from Linux 6.11 on it is set to {} ms.",
            kernels.as_millis(),
            TCP_RTO_MIN.as_millis()
        ),
    }
}

/// The machine's pauses and, if nearly all RPCs met none, the tail of those. If many met one, the
/// others are the ones that ended soon, so that their tail means nothing.
fn pauses(calm: &Undisturbed) -> String {
    let mut text = format!(
        "    {} pauses of this machine, {} or longer, {:.1} % of the time",
        calm.pauses,
        time(Some(calm.pause_us)),
        calm.paused_share * 100.0,
    );
    if calm.share >= 0.9 {
        let (share, p99) = (calm.share * 100.0, time(calm.p99_us));
        text.push_str(&format!("; p99 of the {share:.1} % that met none: {p99}"));
    }
    text
}

fn faults(args: &Args) -> String {
    match (args.loss > 0.0, args.duplicate > 0.0) {
        (false, false) => String::new(),
        _ => format!(
            "; {} % of frames lost, {} % delivered twice",
            args.loss * 100.0,
            args.duplicate * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::asked;
    use super::*;

    #[test]
    fn a_timer_that_could_not_be_set_is_named() {
        let said = [5, 200].map(|ms| tcp_timer(Duration::from_millis(ms)));
        assert_eq!(said[0], "TCP's minimum RTO: 5 ms.");
        let kernels = "this kernel's 200 ms; from Linux 6.11 on it is set to 5 ms.";
        assert_eq!(said[1], format!("TCP's minimum RTO: {kernels}"));
    }

    #[test]
    fn every_row_that_can_be_asked_for_is_explained() {
        for transport in Transport::ALL {
            let all = legend::<()>(&asked(&["--transport", transport.name()]).rows(), &[]);
            assert_eq!(all.len(), 1);
            assert!(all[0].len() > 30 && all[0].contains(transport.name()), "{all:?}");
        }
    }

    #[test]
    fn a_line_of_the_table_fits_a_terminal() {
        let table = loaded(8_120);
        let row = ["homa-flat (simulated)", "1.03 ms", "93.5 ms", "93.5 ms - 93.6 ms", "605 ms"];
        let cells: Vec<String> =
            row.iter().copied().chain(["0", "105.7"]).map(Into::into).collect();
        assert!(table.row(&cells).chars().count() <= 100, "{}", table.row(&cells));
        assert_eq!(table.row(&cells).chars().count(), table.head().chars().count());
    }
}
