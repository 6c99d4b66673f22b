//! What `homa sim` prints: the outcome for people.

use homa_sim::scenario::ScenarioOutcome as Simulated;
use homa_sim::scenario::outcome::{KindOutcome, QueueLength, SizeBucket, SizeGroup, WorkflowTimes};
use homa_sim::scheme;

use crate::output::{Align, TextTable, line};

/// Which bins of sizes the table shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Bins {
    /// Those that hold the tenths of the messages by size, 95 and 99 %, and the last.
    #[default]
    Some,
    /// All.
    All,
}

/// Messages below which the slowest hundredth is too few to name a 99th percentile.
const FEW: u64 = 1_000;

/// Processor time, seconds, below which a rate would be that of the clock's steps.
const MEASURABLE: f64 = 0.05;

/// A cutoff that is none.
const NO_LIMIT: u32 = i32::MAX as u32;

/// A share as people read it.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Prints everything measured.
pub fn print(outcome: &Simulated, bins: Bins) {
    let loads = &outcome.loads;
    // A list and a closed loop have no offered load.
    let open = outcome.backlog.needs_seconds.is_some();
    line(format!(
        "{} on {}{} (seed {}): {} messages in {:.3} ms of simulated time",
        outcome.scheme,
        outcome.workload,
        if open { format!(" at load {}", outcome.load) } else { String::new() },
        outcome.seed,
        outcome.messages,
        outcome.simulated_seconds * 1e3
    ));
    if let Some(table) = &outcome.size_table {
        line(format!("sizes: {}; mean {:.1} B", table.form, table.mean_bytes));
    }
    let carried = percent(outcome.utilisation);
    if open {
        line(format!(
            "load: {} in the paper's wire bytes, {} in payload; realised {} and {}; links carried \
             {carried}",
            percent(loads.paper),
            percent(loads.payload),
            percent(loads.realised_paper),
            percent(loads.realised_payload),
        ));
    } else if outcome.traffic_seconds * 2.0 > outcome.simulated_seconds {
        line(format!("links carried {carried} while messages began"));
    }
    match scheme::find(&outcome.scheme) {
        Some(row) if row.is_bound() => {}
        Some(row) if !row.is_homa() => {
            line(format!("RTTbytes of the network: {}", outcome.rtt_bytes));
        }
        Some(_) | None => {
            line(format!("RTTbytes {}; {}", outcome.rtt_bytes, levels(outcome.cutoffs)));
        }
    }
    line("");
    latencies(outcome, bins);
    line("");
    ports(outcome);
    losses_and_delays(outcome);
    pauses(outcome);
    sustained(outcome);
    if scheme::find(&outcome.scheme).is_some_and(|row| row.is_bound()) {
        line(
            "a bound, not a transport: SRPT with perfect knowledge on the receivers' links alone, \
             no control, no queue elsewhere; no mean can be lower, and percentiles hardly",
        );
        let (seconds, megabytes) = (outcome.cpu_seconds, outcome.peak_rss_bytes / 1_000_000);
        return line(format!("{seconds:.2} s of CPU time, {megabytes} MB"));
    }
    let rate = match outcome.cpu_seconds {
        seconds if seconds < MEASURABLE => String::new(),
        _ => format!(" ({:.2} M per second)", outcome.hops_per_cpu_second / 1e6),
    };
    line(format!(
        "{} packet-hops in {:.2} s of CPU time{rate}, {} MB, trace {}",
        outcome.packet_hops,
        outcome.cpu_seconds,
        outcome.peak_rss_bytes / 1_000_000,
        outcome.trace_hash
    ));
}

/// Whether the load is sustained, or what it takes to see.
fn sustained(outcome: &Simulated) {
    let Some(needs) = outcome.backlog.needs_seconds else { return };
    match outcome.backlog.is_sustained() {
        Some(true) => {
            line("this load is sustained: the backlog of unfinished messages stays bounded")
        }
        Some(false) => line("this load is not sustained: the backlog grows without bound"),
        None if outcome.messages == 0 => {}
        None => {
            let times = needs / outcome.traffic_seconds.max(1e-9);
            let messages = two_digits(outcome.messages as f64 * times);
            line(format!(
                "{:.1} ms of traffic do not show whether this load is sustained: that takes {:.0} \
                 ms, about {messages:.0} messages and {:.0} s of CPU time (--messages \
                 {messages:.0}, or stop.messages in a plan)",
                outcome.traffic_seconds * 1e3,
                (needs * 1e3).ceil(),
                (outcome.cpu_seconds * times).ceil()
            ));
        }
    }
}

/// A number rounded up to the first two of its digits, with room for chance: arrivals are random.
fn two_digits(number: f64) -> f64 {
    const ROOM: f64 = 1.05;
    let unit = 10f64.powf((number * ROOM).max(1.0).log10().floor() - 1.0).max(1.0);
    (number * ROOM / unit).ceil() * unit
}

/// Results by kind of hosts, if there are two.
fn kinds(kinds: &[KindOutcome]) {
    let over_all = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
    for kind in kinds {
        line(format!(
            "  {} hosts of {}{}: {} messages, p50 {}, p99 {}, {} not delivered; their links \
             carried {}",
            kind.hosts,
            kind.scheme,
            if kind.beside { " (beside)" } else { "" },
            kind.messages,
            over_all(kind.slowdown.p50),
            over_all(kind.slowdown.p99),
            kind.undelivered,
            percent(kind.utilisation)
        ));
    }
}

/// Latency over ranges of sizes.
fn groups(groups: &[SizeGroup]) {
    for group in groups {
        let sizes = match group.max_bytes {
            Some(max) => format!("{} to {max} B", group.above_bytes + 1),
            None => format!("above {} B", group.above_bytes),
        };
        let class = groups.iter().any(|other| other.class != group.class);
        let class = if class { format!("class {}, ", group.class) } else { String::new() };
        let percentiles = group.percentiles.iter();
        let percentiles: String =
            percentiles.map(|at| format!(", p{} {:.1} us", at.percent, at.us)).collect();
        line(format!(
            "{class}{sizes}: {} messages, mean {:.1} us{percentiles}, longest {:.1} us",
            group.count, group.mean_us, group.max_us
        ));
    }
}

/// How long workflows took.
fn workflows(workflows: &[WorkflowTimes]) {
    for of in workflows.iter().filter(|of| of.count + of.failed + of.unfinished > 0) {
        let fan_out = of.fan_out.map_or_else(String::new, |n| format!(", fan-out {n}"));
        let percentiles = of.percentiles.iter();
        let percentiles: String =
            percentiles.map(|at| format!(", p{} {:.2} ms", at.percent, at.us / 1e3)).collect();
        let times = match (of.mean_us, of.max_us) {
            (Some(mean), Some(max)) => {
                let (mean, max) = (mean / 1e3, max / 1e3);
                format!(", mean {mean:.2} ms{percentiles}, longest {max:.2} ms")
            }
            _ => " through".to_owned(),
        };
        let rest = match of.failed + of.unfinished {
            0 => String::new(),
            _ => format!("; failed {}, unfinished {}", of.failed, of.unfinished),
        };
        line(format!("workflows {}{fan_out}: {}{times}{rest}", of.name, of.count));
    }
}

/// How long messages that wait for each other took, and the collective that they are.
fn completion(outcome: &Simulated) {
    let Some(completion) = outcome.completion else { return };
    let Some(us) = completion.us else {
        return line(format!(
            "not complete: {} of {} messages that wait for each other arrived",
            completion.arrived, completion.messages
        ));
    };
    line(format!(
        "complete after {us:.1} us: {} messages that wait for each other",
        completion.messages
    ));
    let Some(collective) = outcome.collective else { return };
    let (Some(over), Some(bus)) = (collective.over_bound, collective.bus_gbps) else { return };
    line(format!(
        "{} of {} B over {} ranks: {over:.3} times the bound of hosts' links, {:.1} us; bus \
         bandwidth {bus:.2} Gbit/s",
        collective.operation.name(),
        collective.bytes,
        collective.ranks,
        collective.bound_us,
    ));
}

/// Ports shown that are paused when the run ends, those paused longest.
const STUCK_SHOWN: usize = 10;

/// What priority flow control did: at its worst, who waits for whom.
fn pauses(outcome: &Simulated) {
    let expired = outcome.timeouts;
    if expired.expired > 0 {
        line(format!(
            "retransmission timeouts: {} of {} flows, {:.3} % of those that began",
            expired.expired, expired.flows, expired.percent
        ));
    }
    if let Some(pauses) = &outcome.pauses {
        line(format!(
            "pauses: {} ({} control frames) of {} ports, {:.3} ms together, the longest {:.3} ms",
            pauses.count,
            pauses.control_frames,
            pauses.ports.len(),
            pauses.total_us / 1e3,
            pauses.longest_us / 1e3
        ));
    }
    outcome.alarms().iter().for_each(line);
    let Some(pauses) = &outcome.pauses else { return };
    let mut longest: Vec<_> = pauses.stuck.iter().collect();
    longest.sort_by(|a, b| a.since_us.total_cmp(&b.since_us));
    for stuck in longest.iter().take(STUCK_SHOWN) {
        let levels: Vec<String> = stuck.levels.iter().map(u8::to_string).collect();
        line(format!(
            "  {} is paused at level{} {} since {:.3} ms, waits for {}",
            stuck.port,
            if levels.len() == 1 { "" } else { "s" },
            levels.join(" "),
            stuck.since_us / 1e3,
            if stuck.waits_for.is_empty() { "nobody".into() } else { stuck.waits_for.join(", ") }
        ));
    }
    if let more @ 1.. = longest.len().saturating_sub(STUCK_SHOWN) {
        line(format!("  and {more} more; --format json has all"));
    }
}

/// Slowdowns by size, over all messages and of groups, times of workflows.
fn latencies(outcome: &Simulated, bins: Bins) {
    slowdowns(&outcome.slowdown.buckets, bins);
    let over_all = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
    line(format!(
        "over all messages: p50 {}, p99 {}",
        over_all(outcome.slowdown.p50),
        over_all(outcome.slowdown.p99)
    ));
    kinds(&outcome.kinds);
    groups(&outcome.groups);
    workflows(&outcome.workflows);
    completion(outcome);
    if outcome.messages < FEW && outcome.completion.is_none() {
        line(format!(
            "only {} messages were measured: percentiles of so few say little; --messages, or \
             stop.messages and stop.time in a plan, make the run longer",
            outcome.messages
        ));
    }
}

/// How unscheduled bytes choose their level.
fn levels(cutoffs: Option<[u32; 8]>) -> String {
    let Some(cutoffs) = cutoffs else {
        return "cutoffs of unscheduled levels as hosts measure them".to_owned();
    };
    let named = cutoffs.iter().rev().filter(|&&largest| largest > 0 && largest < NO_LIMIT);
    let named: Vec<String> = named.map(u32::to_string).collect();
    match named.len() {
        0 => "one level for unscheduled bytes".to_owned(),
        _ => format!("unscheduled levels of messages up to {} B, and longer", named.join(", ")),
    }
}

/// Queues at ports.
fn ports(outcome: &Simulated) {
    if let Some(queues) = &outcome.queues {
        let show = |name: &str, queue: Option<QueueLength>| {
            if let Some(queue) = queue {
                let (mean, max) = (queue.mean_bytes / 1e3, queue.max_bytes as f64 / 1e3);
                line(format!("queue {name}: mean {mean:.2} kB, max {max:.1} kB"));
            }
        };
        show("TOR up", queues.tor_up);
        show("aggregation down", queues.aggr_down);
        show("TOR down", queues.tor_down);
        show("aggregation up", queues.aggr_up);
        show("core down", queues.core_down);
        show("between switches", queues.fabric);
    }
    if let Some(shares) = outcome.priority_share {
        let shares: Vec<String> =
            shares.iter().map(|share| format!("{:.1}", share * 100.0)).collect();
        line(format!("levels, lowest first, % of the links: {}", shares.join(" ")));
    }
    if let Some(wasted) = outcome.wasted_bandwidth {
        let ends = match outcome.wasted_ci {
            [Some(low), Some(high)] => format!(" (95 %: {} to {})", percent(low), percent(high)),
            _ => String::new(),
        };
        line(format!("wasted bandwidth: {}{ends}", percent(wasted)));
    }
}

/// Lost frames, and the ledger of time.
fn losses_and_delays(outcome: &Simulated) {
    let drops = outcome.drops;
    let missing = outcome.undelivered + outcome.failed + outcome.refused;
    if drops.overflow + drops.fault + missing > 0 {
        line(format!(
            "frames dropped at full buffers {}, lost on links {}; \
             messages given up or lost {}, refused {}, not delivered {}",
            drops.overflow, drops.fault, outcome.failed, outcome.refused, outcome.undelivered
        ));
    }
    if outcome.measured_failed > 0 {
        line(
            "no percentile above knows of those that were given up or lost; one-way messages, \
             which their sender forgets with the last byte, are not sent again after that: RPCs \
             are (traffic.exchange = \"echo\")",
        );
    }
    if let Some(tail) = &outcome.tail_delay {
        line(format!(
            "messages near p99 of up to {} B wait {:.2} us for the rest of lower-priority frames, \
             {:.2} us for others",
            tail.max_bytes, tail.preemption_lag_us, tail.queueing_us
        ));
        for ranks in &tail.around {
            line(format!(
                "  of ranks {} to {} %: {:.2} us and {:.2} us",
                ranks.from * 100.0,
                ranks.to * 100.0,
                ranks.preemption_lag_us,
                ranks.queueing_us
            ));
        }
    }
    if let Some(ledger) = &outcome.ledger {
        for (of, parts) in [("all", &ledger.mean), ("the slowest 1 %", &ledger.tail)] {
            line(format!(
                "time of {of}: sender queue {:.2}, grant wait {:.2}, wire {:.2}, fabric queue \
                 {:.2}, recovery {:.2} us",
                parts.sender_queue_us,
                parts.grant_wait_us,
                parts.wire_us,
                parts.fabric_queue_us,
                parts.recovery_us
            ));
        }
    }
}

/// A row per bin: all of them, or about ten.
fn slowdowns(bins: &[SizeBucket], which: Bins) {
    let table = TextTable::new(
        &["messages", "up to B", "count", "p50 slowdown", "p99 slowdown", "p50 us", "p99 us"]
            .map(|title| (title, Align::Right, 9)),
    );
    line(table.head());
    let shown = match which {
        Bins::Some => about_ten(bins),
        Bins::All => (0..bins.len()).collect(),
    };
    let value = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
    for &at in &shown {
        let bin = &bins[at];
        line(table.row(&[
            format!("{:.0} %", bin.cum_share * 100.0),
            bin.max_bytes.to_string(),
            bin.count.to_string(),
            value(bin.p50),
            value(bin.p99),
            value(bin.p50_us),
            value(bin.p99_us),
        ]));
    }
    if shown.len() < bins.len() {
        line(format!(
            "A row is one bin of sizes, not all messages up to that size; {} of {} bins are shown \
             (--bins all).",
            shown.len(),
            bins.len()
        ));
    }
}

/// The bins that hold the tenths of the messages, 95 and 99 %, and the last.
fn about_ten(bins: &[SizeBucket]) -> Vec<usize> {
    const AT: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
    let holds = |share: f64| bins.iter().position(|bin| bin.cum_share >= share - 1e-9);
    let mut shown: Vec<usize> = AT.into_iter().filter_map(holds).collect();
    shown.dedup();
    shown
}
