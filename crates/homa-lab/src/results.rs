//! Outcomes as tables: one row per simulation, one row per simulation and size bin, and the ledger
//! of the messages' time.
//!
//! The cost of a run (CPU time, memory) is left out, because these tables are equal on every
//! machine.

use homa_sim::scenario::outcome::{Ledger, LedgerParts, QueueLength, Queues, SizeBucket};
use homa_sim::scenario::{Bandwidth, ScenarioOutcome, Span};

use crate::store::Stored;
use crate::table::{Table, Values};

/// Keys of the scenario that have separate columns.
const OWN_COLUMNS: [&str; 2] = ["scheme", "seed"];

/// The names of all axes without separate columns, in the order in which they are first met.
fn axes(results: &[Stored]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in results.iter().flat_map(|stored| &stored.cell.axes) {
        if !names.contains(name) && !OWN_COLUMNS.contains(&name.as_str()) {
            names.push(name.clone());
        }
    }
    names
}

/// The columns that identify a simulation: axes and seed.
fn add_place<'a>(
    table: &mut Table,
    names: &[String],
    rows: impl Iterator<Item = &'a Stored> + Clone,
) {
    for name in names {
        let value = |stored: &'a Stored| {
            let found = stored.cell.axes.iter().find(|(axis, _)| axis == name);
            found.map(|(_, value)| value.as_str())
        };
        // No column of ours has a dot in its name, so none is met twice.
        let path = if name.contains('.') { name.clone() } else { format!("axis.{name}") };
        let (column, values) = axis_column(path, &rows.clone().map(value).collect::<Vec<_>>());
        table.add(column, values);
    }
    table.integer("seed", rows.map(|stored| Some(stored.outcome.seed)));
}

/// Values of an axis that are numbers of one unit.
pub(crate) struct Numbers {
    /// The values.
    pub values: Vec<f64>,
    /// `Gbit/s`, `µs`, or none.
    pub unit: &'static str,
}

/// An axis as numbers: plain, rates in Gbit/s, or times in microseconds; `None` if a value is none
/// of them.
pub(crate) fn axis_numbers(values: &[Option<&str>]) -> Option<Numbers> {
    let (name, column) = axis_column(String::new(), values);
    let known = match column {
        Values::Integer(whole) => {
            whole.into_iter().map(|value| value.map(|value| value as f64)).collect()
        }
        Values::Real(real) => real.into_iter().collect::<Option<Vec<f64>>>(),
        Values::Text(_) => None,
    };
    let unit = match name.as_str() {
        "_gbps" => "Gbit/s",
        "_us" => "µs",
        _ => "",
    };
    known.map(|values| Numbers { values, unit })
}

/// An axis as a column of the one type that all its values have: whole numbers, numbers, rates in
/// Gbit/s and times in microseconds (the name then ends with the unit), else text. A row of a plan
/// without that axis has no value.
fn axis_column(path: String, values: &[Option<&str>]) -> (String, Values) {
    fn all<T>(values: &[Option<&str>], read: impl Fn(&str) -> Option<T>) -> Option<Vec<Option<T>>> {
        let read = |value: &Option<&str>| value.map_or(Some(None), |text| read(text).map(Some));
        values.iter().map(read).collect()
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let gbps = |text: &str| text.parse::<Bandwidth>().ok().map(|rate| rate.0 as f64 / 1e9);
    let micros = |text: &str| text.parse::<Span>().ok().map(|span| span.0 as f64 / 1e6);
    if let Some(whole) = all(values, |text| text.parse().ok()) {
        (path, Values::Integer(whole))
    } else if let Some(real) = all(values, number) {
        (path, Values::Real(real))
    } else if let Some(rates) = all(values, gbps) {
        (path + "_gbps", Values::Real(rates))
    } else if let Some(times) = all(values, micros) {
        (path + "_us", Values::Real(times))
    } else {
        let text = values.iter().map(|value| value.unwrap_or_default().to_owned());
        (path, Values::Text(text.collect()))
    }
}

/// One row per simulation.
pub fn summary(results: &[Stored]) -> Table {
    let mut table = Table::default();
    add_place(&mut table, &axes(results), results.iter());
    let out = || results.iter().map(|stored| &stored.outcome);
    table.text("scheme", out().map(|o| o.scheme.clone()));
    table.text("workload", out().map(|o| o.workload.clone()));
    table.real("load", out().map(|o| Some(o.load)));
    table.text("trace_hash", out().map(|o| o.trace_hash.clone()));
    table.integer("messages", out().map(|o| Some(o.messages)));
    table.integer("submitted", out().map(|o| Some(o.submitted)));
    table.integer("undelivered", out().map(|o| Some(o.undelivered)));
    table.integer("failed", out().map(|o| Some(o.failed)));
    table.integer("measured_failed", out().map(|o| Some(o.measured_failed)));
    table.integer("refused", out().map(|o| Some(o.refused)));
    table.integer("measured_refused", out().map(|o| Some(o.measured_refused)));
    table.integer("packet_hops", out().map(|o| Some(o.packet_hops)));
    table.real("slowdown_p50", out().map(|o| o.slowdown.p50));
    table.real("slowdown_p99", out().map(|o| o.slowdown.p99));
    table.real("utilisation", out().map(|o| Some(o.utilisation)));
    table.real("goodput", out().map(|o| o.goodput));
    table.real("wasted_bandwidth", out().map(|o| o.wasted_bandwidth));
    table.real("load_paper", out().map(|o| Some(o.loads.paper)));
    table.real("load_payload", out().map(|o| Some(o.loads.payload)));
    table.real("load_realised_paper", out().map(|o| Some(o.loads.realised_paper)));
    table.real("load_realised_payload", out().map(|o| Some(o.loads.realised_payload)));
    table.real("load_realised_wire", out().map(|o| Some(o.loads.realised_wire)));
    let diverges = out().map(|o| o.backlog.is_sustained().map(|sustained| u64::from(!sustained)));
    table.integer("diverges", diverges);
    table.real("backlog_growth", out().map(|o| Some(o.backlog.growth)));
    add_queues(&mut table, results);
    for level in 0..8 {
        let share = out().map(|o| o.priority_share.map(|shares| shares[level]));
        table.real(&format!("priority_{level}_share"), share);
    }
    table.integer("drops_overflow", out().map(|o| Some(o.drops.overflow)));
    table.integer("drops_fault", out().map(|o| Some(o.drops.fault)));
    table.integer("drops_refused", out().map(|o| Some(o.drops.refused)));
    let tail = || out().map(|o| o.tail_delay.as_ref());
    table.real("tail_preemption_lag_us", tail().map(|t| t.map(|t| t.preemption_lag_us)));
    table.real("tail_queueing_us", tail().map(|t| t.map(|t| t.queueing_us)));
    table.real("traffic_seconds", out().map(|o| Some(o.traffic_seconds)));
    table.real("simulated_seconds", out().map(|o| Some(o.simulated_seconds)));
    table
}

/// A tier by its name in the JSON document.
pub type Tier = (&'static str, fn(&Queues) -> Option<QueueLength>);

/// All tiers.
pub const TIERS: [Tier; 7] = [
    ("host_up", |queues| queues.host_up),
    ("tor_up", |queues| queues.tor_up),
    ("aggr_down", |queues| queues.aggr_down),
    ("tor_down", |queues| queues.tor_down),
    ("aggr_up", |queues| queues.aggr_up),
    ("core_down", |queues| queues.core_down),
    ("fabric", |queues| queues.fabric),
];

fn add_queues(table: &mut Table, results: &[Stored]) {
    for (tier, of) in TIERS {
        let lengths = || results.iter().map(|s| s.outcome.queues.as_ref().and_then(of));
        table.real(&format!("{tier}_mean_bytes"), lengths().map(|q| q.map(|q| q.mean_bytes)));
        table.integer(&format!("{tier}_max_bytes"), lengths().map(|q| q.map(|q| q.max_bytes)));
    }
}

/// A row of [`slowdown`].
struct SlowdownRow<'a> {
    stored: &'a Stored,
    scheme: &'a str,
    /// If hosts are of two kinds: 1 for those of `beside`, 0 for the others.
    beside: Option<u64>,
    bin: &'a SizeBucket,
}

/// All bins; if hosts are of two kinds, those of each kind instead.
fn slowdown_rows(stored: &Stored) -> impl Iterator<Item = SlowdownRow<'_>> {
    let ScenarioOutcome { scheme, slowdown, kinds, .. } = &stored.outcome;
    let all = kinds.is_empty().then_some((scheme, None, slowdown));
    let kinds = kinds.iter().map(|kind| (&kind.scheme, Some(kind.beside.into()), &kind.slowdown));
    all.into_iter().chain(kinds).flat_map(move |(scheme, beside, slowdown)| {
        let rows = slowdown.buckets.iter();
        rows.map(move |bin| SlowdownRow { stored, scheme, beside, bin })
    })
}

/// One row per simulation and size bin; if there are two kinds of hosts, per kind, too.
pub fn slowdown(results: &[Stored]) -> Table {
    let mut table = Table::default();
    let all: Vec<SlowdownRow<'_>> = results.iter().flat_map(slowdown_rows).collect();
    let rows = || all.iter();
    add_place(&mut table, &axes(results), rows().map(|row| row.stored));
    table.text("scheme", rows().map(|row| row.scheme.to_owned()));
    table.integer("beside", rows().map(|row| row.beside));
    table.text("workload", rows().map(|row| row.stored.outcome.workload.clone()));
    table.real("load", rows().map(|row| Some(row.stored.outcome.load)));
    let bins = || rows().map(|row| row.bin);
    table.real("cum_share", bins().map(|bin| Some(bin.cum_share)));
    table.integer("min_bytes", bins().map(|bin| Some(u64::from(bin.min_bytes))));
    table.integer("max_bytes", bins().map(|bin| Some(u64::from(bin.max_bytes))));
    table.integer("messages", bins().map(|bin| Some(bin.count)));
    let mut real =
        |name: &str, of: fn(&SizeBucket) -> Option<f64>| table.real(name, bins().map(of));
    real("slowdown_p50", |bin| bin.p50);
    real("slowdown_p50_low", |bin| bin.p50_ci[0]);
    real("slowdown_p50_high", |bin| bin.p50_ci[1]);
    real("slowdown_p99", |bin| bin.p99);
    real("slowdown_p99_low", |bin| bin.p99_ci[0]);
    real("slowdown_p99_high", |bin| bin.p99_ci[1]);
    real("slowdown_p99_by_receiver", |bin| bin.by_receiver.map(|own| own.p99));
    real("slowdown_p99_by_receiver_low", |bin| bin.by_receiver?.p99_ci[0]);
    real("slowdown_p99_by_receiver_high", |bin| bin.by_receiver?.p99_ci[1]);
    real("latency_p50_us", |bin| bin.p50_us);
    real("latency_p99_us", |bin| bin.p99_us);
    table
}

/// A row of [`ledger`]: its simulation, bin, and parts (means, means of the slowest 1 %).
struct LedgerRow<'a> {
    stored: &'a Stored,
    /// Absent: all messages.
    bin: Option<&'a SizeBucket>,
    messages: u64,
    parts: [&'a LedgerParts; 2],
}

fn ledger_rows<'a>(stored: &'a Stored, ledger: &'a Ledger) -> impl Iterator<Item = LedgerRow<'a>> {
    let bins = stored.outcome.slowdown.buckets.iter();
    let parts = ledger.buckets.iter().zip(&ledger.tail_buckets);
    let rows = bins.zip(parts).map(move |(bin, (mean, tail))| {
        let messages = bin.count;
        LedgerRow { stored, bin: Some(bin), messages, parts: [mean, tail] }
    });
    let messages = stored.outcome.messages;
    let parts = [&ledger.mean, &ledger.tail];
    rows.chain(std::iter::once(LedgerRow { stored, bin: None, messages, parts }))
}

/// One row per simulation whose ledger was kept and size bin, and one for all its messages, in
/// which what tells bins apart is absent; `None` when no ledger was kept.
pub fn ledger(results: &[Stored]) -> Option<Table> {
    type Part = (&'static str, fn(&LedgerParts) -> f64);
    const PARTS: [Part; 5] = [
        ("sender_queue_us", |parts| parts.sender_queue_us),
        ("grant_wait_us", |parts| parts.grant_wait_us),
        ("wire_us", |parts| parts.wire_us),
        ("fabric_queue_us", |parts| parts.fabric_queue_us),
        ("recovery_us", |parts| parts.recovery_us),
    ];
    let kept = results.iter().filter_map(|s| Some((s, s.outcome.ledger.as_ref()?)));
    let rows: Vec<LedgerRow<'_>> =
        kept.flat_map(|(stored, ledger)| ledger_rows(stored, ledger)).collect();
    if rows.is_empty() {
        return None;
    }
    let mut table = Table::default();
    add_place(&mut table, &axes(results), rows.iter().map(|row| row.stored));
    let out = || rows.iter().map(|row| &row.stored.outcome);
    table.text("scheme", out().map(|o| o.scheme.clone()));
    table.text("workload", out().map(|o| o.workload.clone()));
    table.real("load", out().map(|o| Some(o.load)));
    let bins = || rows.iter().map(|row| row.bin);
    table.real("cum_share", bins().map(|bin| Some(bin?.cum_share)));
    table.integer("min_bytes", bins().map(|bin| Some(u64::from(bin?.min_bytes))));
    table.integer("max_bytes", bins().map(|bin| Some(u64::from(bin?.max_bytes))));
    table.integer("messages", rows.iter().map(|row| Some(row.messages)));
    for (of, prefix) in ["mean", "tail"].into_iter().enumerate() {
        for (name, part) in PARTS {
            let value = |row: &LedgerRow<'_>| (row.messages > 0).then(|| part(row.parts[of]));
            table.real(&format!("{prefix}_{name}"), rows.iter().map(value));
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[&str]) -> (String, Values) {
        let values: Vec<_> = values.iter().map(|text| (*text != "-").then_some(*text)).collect();
        axis_column("a.b".to_owned(), &values)
    }

    #[test]
    fn an_axis_has_the_type_of_its_values_and_its_unit_by_name() {
        let named = |name: &str, values| (name.to_owned(), values);
        let whole = Values::Integer(vec![Some(1), None, Some(20)]);
        assert_eq!(column(&["1", "-", "20"]), named("a.b", whole));
        let real = Values::Real(vec![Some(0.3), Some(1.0)]);
        assert_eq!(column(&["0.3", "1"]), named("a.b", real));
        let rates = Values::Real(vec![Some(10.0), Some(0.5)]);
        assert_eq!(column(&["10Gbps", "500Mbps"]), named("a.b_gbps", rates));
        let times = Values::Real(vec![Some(0.25), Some(2000.0)]);
        assert_eq!(column(&["250ns", "2ms"]), named("a.b_us", times));
        for mixed in [["1", "w4"], ["10Gbps", "2ms"], ["0.3", "nan"]] {
            let text = Values::Text(mixed.map(String::from).to_vec());
            assert_eq!(column(&mixed), named("a.b", text), "{mixed:?}");
        }
    }
}
