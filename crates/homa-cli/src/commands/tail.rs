//! `homa tail`: what a tail of round-trip times costs a service that needs many answers (DeTail
//! §2).

use std::path::PathBuf;
use std::time::Duration;

use homa_lab::tail::{LONGEST, RoundTrips, all_answered, missed, sequential};
use homa_workload::quantile::Percentile;
use homa_workload::units::Quantity;
use serde::Serialize;

use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};
use crate::values;

/// Arguments of `homa tail`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measured round-trip times: a table with the header `us,count`, `us,cumulative_fraction`
    /// (ascending, the last fraction 1; times are interpolated linearly between rows), or
    /// `us,cumulative_percent`.
    #[arg(long, value_name = "HISTOGRAM.csv")]
    rtt: PathBuf,
    /// Workers asked at once; several values: 40,400.
    #[arg(long, value_delimiter = ',', default_value = "40", value_name = "N",
          value_parser = values::within::<u32>(Quantity::Count, 1..=10_000_000))]
    fanout: Vec<u32>,
    /// Answers that arrive later are lost.
    #[arg(long, default_value = "10ms", value_parser = values::duration, value_name = "TIME")]
    deadline: Duration,
    /// Time budget of sequential retrievals, such as those of a web page.
    #[arg(long, default_value = "200ms", value_parser = values::duration, value_name = "TIME")]
    page: Duration,
    /// Percentile of workflows, at most 99.9999.
    #[arg(long, default_value = "99.9", value_parser = percentile, value_name = "PERCENT")]
    percentile: f64,
    /// Number of sequences of retrievals to draw at random.
    #[arg(long, default_value = "10000", value_name = "N",
          value_parser = values::within::<u32>(Quantity::Count, 100..=1_000_000))]
    draws: u32,
    /// Seed of the draws.
    #[arg(long, default_value = "1", value_parser = values::seed)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0001..=99.9999).contains(&percent) => Ok(percent),
        _ => Err("a percentile is 0.0001 to 99.9999, such as 99.9".into()),
    }
}

#[derive(Debug, Serialize)]
struct TailReport {
    percentile: f64,
    deadline_us: f64,
    page_us: f64,
    draws: u32,
    seed: u64,
    /// As measured, then the normal distribution of half as long again a median.
    distributions: Vec<OfDistribution>,
}

#[derive(Debug, Serialize)]
struct OfDistribution {
    name: &'static str,
    min_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: Option<f64>,
    late_share: f64,
    fanouts: Vec<OfFanout>,
    sequential_most: u32,
    sequential_took_us: f64,
}

#[derive(Debug, Serialize)]
struct OfFanout {
    fanout: u32,
    none_late_share: f64,
    late: u32,
    late_of_fanout: f64,
    all_answered_us: f64,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let needs = (100.0 / (100.0 - args.percentile)).round();
    if f64::from(args.draws) < needs {
        let few = anyhow::anyhow!("{} draws say nothing about {} %", args.draws, args.percentile);
        return Err(Failure::new(few, format!("raise --draws to {needs} or more")));
    }
    let shown = args.rtt.display();
    let text = homa_workload::text::read(&args.rtt).map_err(|error| {
        Failure::new(anyhow::anyhow!("{shown}: {error}"), "name a file that can be read")
    })?;
    let trips = RoundTrips::from_csv(&text).map_err(|fault| anyhow::anyhow!("{shown}: {fault}"));
    let trips = trips.hint("a histogram has the header `us,count` and a row for each time")?;
    let normal = trips.normal_beside();
    let found = TailReport {
        percentile: args.percentile,
        deadline_us: micros(args.deadline),
        page_us: micros(args.page),
        draws: args.draws,
        seed: args.seed,
        distributions: vec![analyse(args, "measured", &trips), analyse(args, "normal", &normal)],
    };
    match args.format {
        Format::Json => json(&found)?,
        Format::Table => print(&found),
    }
    Ok(Verdict::Passed)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn analyse(args: &Args, name: &'static str, trips: &RoundTrips) -> OfDistribution {
    let share = args.percentile / 100.0;
    let late_share = trips.share_above(micros(args.deadline));
    let of = |&fanout: &u32| {
        let late = missed(late_share, fanout, share);
        OfFanout {
            fanout,
            none_late_share: (1.0 - late_share).powf(f64::from(fanout)),
            late,
            late_of_fanout: f64::from(late) / f64::from(fanout),
            all_answered_us: all_answered(trips, fanout, share),
        }
    };
    let rank = Percentile::millionths((args.percentile * 1e4).round() as u32);
    let rank = rank.unwrap_or(Percentile::P999);
    let page = micros(args.page);
    let sequence = sequential(trips, page, rank, (args.draws, args.seed));
    let is_bounded = !matches!(trips, RoundTrips::Normal { .. });
    OfDistribution {
        name,
        min_us: trips.quantile(1e-12),
        p50_us: trips.quantile(0.5),
        p99_us: trips.quantile(0.99),
        max_us: is_bounded.then(|| trips.quantile(1.0)),
        late_share,
        fanouts: args.fanout.iter().map(of).collect(),
        sequential_most: sequence.most,
        sequential_took_us: sequence.took_us,
    }
}

fn print(found: &TailReport) {
    let percent = found.percentile;
    let milli = |us: f64| format!("{} ms", us / 1e3);
    line(format!(
        "answers are late after {}; counted is what {percent} % of workflows do not exceed",
        milli(found.deadline_us)
    ));
    line(
        "normal: a normal distribution with a median half as long again, to see what the tail \
         costs; answers are taken for independent",
    );
    line("");
    let right = |title, width| (title, Align::Right, width);
    let table = TextTable::new(&[
        ("round trips", Align::Left, 11),
        right("p50 us", 8),
        right("p99 us", 8),
        right("late", 9),
        right("fan-out", 8),
        right("late answers", 8),
        right("none late", 8),
        right("all answered ms", 9),
    ]);
    line(table.head());
    for of in &found.distributions {
        for fanout in &of.fanouts {
            line(table.row(&[
                of.name.to_owned(),
                format!("{:.0}", of.p50_us),
                format!("{:.0}", of.p99_us),
                format!("{:.4} %", of.late_share * 100.0),
                fanout.fanout.to_string(),
                format!("{} ({:.1} %)", fanout.late, fanout.late_of_fanout * 100.0),
                format!("{:.1} %", fanout.none_late_share * 100.0),
                format!("{:.3}", fanout.all_answered_us / 1e3),
            ]));
        }
    }
    line("");
    for of in &found.distributions {
        let more = if of.sequential_most == LONGEST { " or more" } else { "" };
        line(format!(
            "{}: {}{more} retrievals one after the other end within {} ({:.1} ms at {percent} %)",
            of.name,
            of.sequential_most,
            milli(found.page_us),
            of.sequential_took_us / 1e3
        ));
    }
}
