//! `homa bench --grpc`: the search service of homa-tonic's example over both transports, at three
//! rates and in overload (feature `grpc`).
//!
//! The transports take turns in rounds, and the medians over the rounds are reported, as in
//! `--micro`. Client, root and leaves share one process and its runtime, on loopback. Left out:
//! networks, which the main job of `homa bench` emulates.

// The folder is a link to the example of homa-tonic: cargo packs its files, as those outside of the
// crate would be missing.
#[path = "search/load.rs"]
mod load;
#[path = "search/service.rs"]
mod service;

use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Builder;

use crate::failure::{Failure, Hint};
use crate::micro::median;
use crate::output::{Align, Format, Progress, TextTable, json, line};
use load::Figures;
use service::{DEADLINE, GrpcTransport, Running, SEARCHES};

/// Rounds over which the medians are taken.
const ROUNDS: u32 = 5;

/// Searches a second.
const RATES: [f64; 3] = [200.0, 800.0, 1_600.0];

/// Overload, beside what the faster transport can do.
const OVERLOAD: f64 = 1.5;

const TRANSPORTS: [(&str, GrpcTransport); 2] =
    [("homa", GrpcTransport::Homa), ("tcp", GrpcTransport::Tcp)];

/// The result, in the shape that scripts rely on.
#[derive(Clone, Debug, Serialize)]
struct GrpcReport {
    /// What each transport can do.
    capacity: Vec<CapacityRow>,
    /// At fixed rates.
    rates: Vec<SearchRow>,
    /// At 1.5 times the greater capacity.
    overload: Vec<SearchRow>,
}

/// Searches a second with [`SEARCHES`] in progress.
#[derive(Clone, Debug, Serialize)]
struct CapacityRow {
    transport: &'static str,
    searches_per_s: f64,
}

/// Searches at one rate over one transport.
#[derive(Clone, Debug, Serialize)]
struct SearchRow {
    transport: &'static str,
    /// Searches a second that were begun.
    offered_per_s: f64,
    /// Those that were answered within the deadline of 100 ms, with all shards.
    answered_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// CPU time of client, root and leaves for one that was answered, microseconds.
    cpu_us_per_answer: f64,
}

/// Measures each row for `time` in all, and prints the report.
pub fn run(time: Duration, format: Format) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.hint("the system refuses threads: raise `ulimit -u`")?;
    let report = runtime.block_on(measure(time))?;
    match format {
        Format::Json => json(&report),
        Format::Table => {
            report.print();
            Ok(())
        }
    }
}

const HINT: &str = "the servers listen on loopback: `ip link set lo up`, and see `homa doctor`";

async fn measure(time: Duration) -> Result<GrpcReport, Failure> {
    let mut running = Vec::new();
    for (name, transport) in TRANSPORTS {
        let service = service::start(transport).await;
        running.push((name, service.map_err(|error| Failure::new(anyhow::anyhow!(error), HINT))?));
    }
    let each = time / ROUNDS;
    let rows = 1 + RATES.len() as u32 + 1;
    let progress = Progress::ticking(time * rows * TRANSPORTS.len() as u32);
    let mut capacities = vec![Vec::new(); running.len()];
    for round in 1..=ROUNDS {
        progress.step(&format!("capacity, round {round} of {ROUNDS}"));
        for ((_, service), of) in running.iter().zip(&mut capacities) {
            of.push(load::capacity(&service.client, each).await);
        }
    }
    let capacities: Vec<f64> = capacities.into_iter().map(median).collect();
    let overload = overload(&capacities)?;
    let mut rates = Vec::new();
    for rate in RATES {
        progress.step(&format!("{rate} searches a second"));
        rates.extend(rounds(&running, rate, each).await);
    }
    progress.step("overload");
    let overload = rounds(&running, overload, each).await;
    progress.finish();
    let capacity = running.iter().zip(capacities).map(|((transport, _), searches)| CapacityRow {
        transport,
        searches_per_s: searches.round(),
    });
    Ok(GrpcReport { capacity: capacity.collect(), rates, overload })
}

/// The rate of overload.
fn overload(capacities: &[f64]) -> Result<f64, Failure> {
    let most = capacities.iter().copied().fold(0.0, f64::max);
    if most > 0.0 {
        return Ok(OVERLOAD * most);
    }
    let error = anyhow::anyhow!("no search was answered within {DEADLINE:?} in most rounds");
    Err(Failure::new(error, "the machine is too busy, or the rounds are too short: --duration 20s"))
}

/// A row of each transport, which take turns.
async fn rounds(running: &[(&'static str, Running)], rate: f64, each: Duration) -> Vec<SearchRow> {
    let mut figures = vec![Vec::new(); running.len()];
    for _ in 0..ROUNDS {
        for ((_, service), of) in running.iter().zip(&mut figures) {
            of.push(load::at_rate(&service.client, rate, each).await);
        }
    }
    let rows = running.iter().zip(figures).map(|((transport, _), rounds)| {
        let of = |figure: fn(&Figures) -> f64| {
            let value = median(rounds.iter().map(figure).collect());
            (value * 100.0).round() / 100.0
        };
        SearchRow {
            transport,
            offered_per_s: of(|figures| figures.offered),
            answered_per_s: of(|figures| figures.answered),
            p50_ms: of(|figures| figures.p50_ms),
            p99_ms: of(|figures| figures.p99_ms),
            cpu_us_per_answer: of(|figures| figures.cpu_us),
        }
    });
    rows.collect()
}

impl GrpcReport {
    fn print(&self) {
        for row in &self.capacity {
            let CapacityRow { transport, searches_per_s } = row;
            let rate = format!("{searches_per_s:.0} searches/s");
            line(format!("{transport}: {rate} with {SEARCHES} in progress"));
        }
        let table = TextTable::new(&[
            ("transport", Align::Left, 9),
            ("offered/s", Align::Right, 9),
            ("in time/s", Align::Right, 9),
            ("p50 ms", Align::Right, 8),
            ("p99 ms", Align::Right, 8),
            ("CPU us", Align::Right, 8),
        ]);
        line(table.head());
        for row in self.rates.iter().chain(&self.overload) {
            line(table.row(&[
                row.transport.to_owned(),
                format!("{:.0}", row.offered_per_s),
                format!("{:.0}", row.answered_per_s),
                format!("{:.2}", row.p50_ms),
                format!("{:.2}", row.p99_ms),
                format!("{:.0}", row.cpu_us_per_answer),
            ]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_capacity_is_a_failure_with_a_remedy() {
        assert_eq!(overload(&[100.0, 200.0]).unwrap(), 300.0);
        let failure = overload(&[0.0, 0.0]).unwrap_err().to_string();
        assert!(failure.contains("--duration"), "{failure}");
    }
}
