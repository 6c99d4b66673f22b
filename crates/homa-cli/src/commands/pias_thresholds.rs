//! `homa pias-thresholds`: the sizes at which PIAS demotes messages, for any distribution of sizes.

use homa_workload::demotion::{self, LEVELS, Setting};
use homa_workload::sizes::{PACKET_BYTES, SizeDistribution, Workload};
use homa_workload::units::Quantity;
use serde::Serialize;

use crate::failure::{Hint, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};
use crate::values;

/// Arguments of `homa pias-thresholds`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// w1 to w5, w1-analytic, web-search, data-mining, imc10, or tables of sizes and cumulative
    /// shares, as `homa workloads` takes them. [default: w1 to w5]
    #[arg(value_name = "NAME|FILE")]
    workloads: Vec<String>,
    /// Load: the share of a link that messages use, above 0 and below 1.
    #[arg(long, default_value_t = 0.8, value_name = "SHARE", value_parser = values::load)]
    load: f64,
    /// Priority levels of the network.
    #[arg(long, default_value_t = LEVELS, value_name = "N",
          value_parser = clap::value_parser!(u8).range(2..=i64::from(LEVELS)))]
    levels: u8,
    /// Message bytes of a packet: thresholds are multiples of it.
    #[arg(long, default_value_t = PACKET_BYTES, value_name = "BYTES",
          value_parser = values::within::<u32>(Quantity::Bytes, 1..=9_000))]
    packet: u32,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// A threshold: a message drops to the next lower level after this many of its bytes were sent.
#[derive(Debug, Serialize)]
struct Threshold {
    bytes: u32,
    packets: u32,
    /// Share of messages that end before.
    messages: f64,
    /// Share of all bytes that are sent at this level or above.
    carried: f64,
}

/// Mean times are those of the model, divided by a message's time alone; absent if there are no
/// such thresholds.
#[derive(Debug, Serialize)]
struct PiasReport {
    workload: String,
    /// Of a table: rows, what lies between them, and units.
    table: Option<String>,
    mean_bytes: f64,
    load: f64,
    levels: u8,
    packet_bytes: u32,
    thresholds: Vec<Threshold>,
    mean: f64,
    mean_one_level: f64,
    mean_equal_split: f64,
    published: Option<[u32; 7]>,
    mean_published: Option<f64>,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let named = args.workloads.iter().map(|name| Workload::parse(name));
    let named = named.collect::<Result<Vec<_>, _>>().hint(FORMAT_HINT)?;
    let workloads = if named.is_empty() { Workload::BUILT_IN.to_vec() } else { named };
    let found = workloads.iter().map(|workload| Ok(find(args, workload, &workload.sizes()?)));
    let found = found.collect::<anyhow::Result<Vec<_>>>().hint(FORMAT_HINT)?;
    match args.format {
        Format::Json => json(&found)?,
        Format::Table => found.iter().for_each(print),
    }
    Ok(Verdict::Passed)
}

const FORMAT_HINT: &str = "name w1 to w5, web-search, data-mining, imc10, or a table with rows of \
                           a size and the share of messages of at most that, such as `1000 40`; \
                           the last share is 1, or 100 in per cent";

fn find(args: &Args, workload: &Workload, sizes: &SizeDistribution) -> PiasReport {
    values::tell_table(&workload.to_string(), sizes);
    let setting = Setting { load: args.load, levels: args.levels, packet: args.packet };
    let best = demotion::optimal(sizes, setting);
    let mean = |thresholds: &[u32]| demotion::mean_time(sizes, setting, thresholds);
    // Published for eight levels and packets of 1460 bytes.
    let as_published = args.levels == LEVELS && args.packet == PACKET_BYTES;
    let published = demotion::published(workload).filter(|_| as_published);
    let threshold = |&bytes: &u32| {
        let carried = sizes.mean_of(|size| f64::from(size.min(bytes))) / sizes.mean_bytes();
        let messages = sizes.share_of_messages(bytes);
        Threshold { bytes, packets: bytes.div_ceil(args.packet), messages, carried }
    };
    PiasReport {
        workload: workload.to_string(),
        table: sizes.form().map(ToString::to_string),
        mean_bytes: sizes.mean_bytes(),
        load: args.load,
        levels: args.levels,
        packet_bytes: args.packet,
        mean: mean(&best),
        mean_one_level: mean(&[]),
        mean_equal_split: mean(&demotion::equal_split(sizes, setting)),
        published,
        mean_published: published.map(|thresholds| mean(&thresholds)),
        thresholds: best.iter().map(threshold).collect(),
    }
}

fn print(found: &PiasReport) {
    let PiasReport { workload, load, levels, .. } = found;
    line(format!("{workload} at {:.0} % load, {levels} levels", load * 100.0));
    let right = |title, width| (title, Align::Right, width);
    let table = TextTable::new(&[
        right("level", 5),
        right("up to bytes", 11),
        right("packets", 9),
        right("messages that end", 17),
        right("bytes sent", 10),
    ]);
    line(table.head());
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    for (place, threshold) in (1..).zip(&found.thresholds) {
        line(table.row(&[
            format!("{}", levels - place),
            threshold.bytes.to_string(),
            threshold.packets.to_string(),
            percent(threshold.messages),
            percent(threshold.carried),
        ]));
    }
    let lowest = usize::from(*levels) - 1 - found.thresholds.len();
    line(table.row(&[lowest.to_string(), "all".into(), String::new(), percent(1.0), percent(1.0)]));
    let published = found.mean_published.map_or_else(String::new, |mean| {
        let bytes = found.published.iter().flatten().map(u32::to_string).collect::<Vec<_>>();
        format!(", thresholds published for 80 % load {mean:.2} ({})", bytes.join(" "))
    });
    line(format!(
        "mean time over that of a message alone, by the model: {:.2}; one level {:.2}, messages \
         split equally {:.2}{published}\n",
        found.mean, found.mean_one_level, found.mean_equal_split,
    ));
}
