//! What a reader of `homa bench` sees: the rack, its checks, a row per transport, and what to make
//! of it.

use std::time::Duration;

use homa_testbed::check::{SHORT_BYTES, Verdict};
use homa_testbed::link::TCP_RTO_MIN;
use homa_testbed::{IdleTimes, Rack};
use homa_workload::arrivals::Arrival;

use super::config::command_line;
use super::rack::{framing, rack_config};
use super::report::{TransportResult, Undisturbed, kept};
use super::{Args, sentences};
use crate::output::{Align, Format, Table, line};
use crate::values::show_rate;

/// The printer of one command's results.
pub struct Screen<'a> {
    args: &'a Args,
    short: usize,
    /// The size of the median RPC among the short ones, bytes.
    typical: u32,
    table: Table,
}

impl<'a> Screen<'a> {
    /// For the RPCs that will be offered.
    pub fn new(args: &'a Args, arrivals: &[Vec<Arrival>]) -> Self {
        let bytes = arrivals.iter().flatten().map(|arrival| arrival.bytes);
        let mut short: Vec<u32> = bytes.filter(|&bytes| bytes <= SHORT_BYTES).collect();
        short.sort_unstable();
        let title = format!("RPCs <= {SHORT_BYTES} B (n = {})", short.len());
        let table = Table::new(&[
            (&title, Align::Left, 28),
            ("p50", Align::Right, 8),
            ("p99 [95 % interval]", Align::Right, 26),
            ("> 150 kB p50", Align::Right, 12),
            ("lost", Align::Right, 6),
            ("CPU us/RPC", Align::Right, 10),
        ]);
        Self {
            args,
            short: short.len(),
            typical: short.get(short.len() / 2).copied().unwrap_or(SHORT_BYTES),
            table,
        }
    }

    /// Everything above the rows of a rack.
    pub fn rack(&self, rack: &Rack, probes: &Verdict) {
        let args = self.args;
        rack_lines(args, rack);
        line(format!("Check: {}", summary(probes)));
        let faults = faults(args);
        self.load(&format!("of every link, same arrivals for each row{faults}"));
    }

    /// The load, which is a share `of_what`, and the titles of the columns.
    pub fn load(&self, of_what: &str) {
        line(format!(
            "Load: {} ({}), echo, Poisson, {:.0} % {of_what}.",
            self.args.workload.to_string().to_uppercase(),
            self.args.workload.description(),
            self.args.load * 100.0,
        ));
        line(self.table.head());
    }

    /// One transport; an invalid row says so.
    pub fn row(&self, row: &TransportResult, idle: &IdleTimes, valid: bool) {
        // An end that the sample is too small to bound.
        let [low, high] = row.short.p99_ci_us.map(|us| us.map_or("?".into(), |us| time(Some(us))));
        let mut name = row.label();
        if !valid {
            name.push_str(" (INVALID)");
        }
        line(self.table.row(&[
            name,
            time(row.short.p50_us),
            format!("{} {:>19}", time(row.short.p99_us), format!("[{low} - {high}]")),
            time(row.long.p50_us),
            row.errors.to_string(),
            format!("{:.1}", row.cpu_us_per_rpc),
        ]));
        if let (Some(idle), Some(slowdown)) = (idle.at(self.typical), row.short.p99_slowdown) {
            self.denominator(row, idle / 1e3, slowdown);
        }
        if let Some(queueing) = row.queueing.as_ref().filter(|_| row.marks.is_some()) {
            let goodput = row.goodput_mbps.unwrap_or(0.0);
            line(format!("{}; requests of {goodput} Mbit/s", queueing.line()));
        }
        if let Some(calm) = row.short.undisturbed.as_ref().filter(|calm| calm.pauses > 0) {
            line(pauses(calm));
        }
        let faulty = self.args.loss + self.args.duplicate > 0.0;
        if let (true, Some(started), Some(executed)) = (faulty, row.started, row.executed) {
            line(format!(
                "    requests executed: {executed} for {started} RPCs, warm-up and idle included"
            ));
        }
        if let Some(held) = row.memory.as_ref().filter(|_| faulty) {
            let mb = |bytes: u64| bytes as f64 / 1e6;
            let (start, peak) = (held.start_bytes, held.peak_bytes);
            line(format!(
                "    memory of all hosts: {:.1} MB when the load began, at most {:.1} MB (+{:.1})",
                mb(start),
                mb(peak),
                mb(peak - start)
            ));
            if let Some(found) = held.trend() {
                line(format!("    memory {found}"));
            }
        }
        for text in row.twin.iter().flat_map(|twin| twin.lines()) {
            line(text);
        }
    }

    /// What slowdown divides by, beside the bound below it.
    fn denominator(&self, row: &TransportResult, idle_us: f64, slowdown: f64) {
        // What lies between this machine and a peer is not known.
        let wire = match self.args.peer {
            None => {
                let framing = framing(row.transport);
                let wire = rack_config(self.args).wire_round_trip_ns(framing, self.typical);
                format!(" (of it the wire {})", time(Some(wire as f64 / 1e3)))
            }
            Some(_) => String::new(),
        };
        line(format!(
            "    idle, {} B: {}{wire}; p99 of slowdown {slowdown}",
            self.typical,
            time(Some(idle_us)),
        ));
    }

    /// Everything below the rows. True when Homa kept what it promises.
    pub fn foot(&self, rows: &[TransportResult], verdict: &Verdict) -> bool {
        line(check_line(verdict));
        if self.short == 0 {
            line(format!("No RPC of this workload is as small as {SHORT_BYTES} B."));
        }
        let broken: Vec<String> = rows.iter().flat_map(TransportResult::broken).collect();
        let kept = kept(&broken, Format::Table);
        if verdict.valid() {
            sentences::about(self.args, rows).iter().for_each(line);
        } else {
            line(sentences::INVALID);
        }
        line(format!("Repeat: {}", command_line(self.args)));
        kept
    }
}

/// The rack, and the timer of TCP on it where it has a part.
pub fn rack_lines(args: &Args, rack: &Rack) {
    line(format!(
        "Rack: {} hosts x {}, {}, {} B a port, inside this machine; no root needed.",
        args.hosts(),
        show_rate(args.link()),
        args.fabric_text(),
        args.buffer
    ));
    if !args.transports().iter().all(|transport| transport.is_homa()) {
        line(tcp_timer(rack.tcp_rto_min()));
    }
    args.marking_line().iter().for_each(line);
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

/// The machine's pauses and, where nearly all RPCs met none, the tail of those: where many did, the
/// others are the ones that ended soon, and say nothing.
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

/// What all checks together found.
pub fn check_line(verdict: &Verdict) -> String {
    let word = if verdict.valid() { "VALID" } else { "INVALID" };
    format!("Check: {} => {word}", summary(verdict))
}

/// Each check once: a failure with its reason, else that it is ok and the worst share found.
fn summary(verdict: &Verdict) -> String {
    let mut names: Vec<&str> = Vec::new();
    for finding in &verdict.findings {
        if !names.contains(&finding.name) {
            names.push(finding.name);
        }
    }
    let parts = names.iter().map(|&name| {
        let failed = verdict.findings.iter().find(|f| f.name == name && !f.ok);
        match failed {
            Some(finding) => format!("{name} NOT OK ({})", finding.detail),
            None => {
                let all = verdict.findings.iter().filter(|f| f.name == name);
                let worst = all.filter_map(|f| f.percent).min();
                format!("{name}{} ok", worst.map_or(String::new(), |p| format!(" {p} %")))
            }
        }
    });
    parts.collect::<Vec<_>>().join(" | ")
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

/// A time in the unit that suits it; a dash when there is none.
pub fn time(us: Option<f64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 1_000.0 => format!("{us:.0} us"),
        Some(us) if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        Some(us) if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        Some(us) if us < 10_000_000.0 => format!("{:.0} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use homa_testbed::check::Finding;

    use super::*;

    #[test]
    fn a_check_of_several_rows_shows_the_least_share() {
        let finding = |percent| {
            let (name, ok) = ("CPU headroom", percent >= 10);
            let percent = Some(percent);
            Finding { name, detail: "too little".into(), ok, percent }
        };
        let wire = Finding { name: "wire timing", detail: String::new(), ok: true, percent: None };
        let mut verdict = Verdict { findings: vec![wire, finding(61), finding(38)] };
        assert_eq!(summary(&verdict), "wire timing ok | CPU headroom 38 % ok");
        verdict.findings.push(finding(9));
        assert_eq!(summary(&verdict), "wire timing ok | CPU headroom NOT OK (too little)");
    }

    #[test]
    fn a_timer_that_could_not_be_set_is_named() {
        let said = [5, 200].map(|ms| tcp_timer(Duration::from_millis(ms)));
        assert_eq!(said[0], "TCP's minimum RTO: 5 ms.");
        let kernels = "this kernel's 200 ms; from Linux 6.11 on it is set to 5 ms.";
        assert_eq!(said[1], format!("TCP's minimum RTO: {kernels}"));
    }

    #[test]
    fn times_have_about_three_digits_and_a_unit() {
        let shown: Vec<String> =
            [Some(87.4), Some(3_312.0), Some(34_500.0), Some(345_000.0), Some(2e7), None]
                .into_iter()
                .map(time)
                .collect();
        assert_eq!(shown, ["87 us", "3.31 ms", "34.5 ms", "345 ms", "20.0 s", "-"]);
    }
}
