//! `homa workloads`: the message-size distributions and their key figures.

use homa_workload::sizes::Workload;
use serde::Serialize;

use crate::failure::{Hint, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};
use crate::values;

/// Bytes of a message that travel in one full Ethernet frame, in the Homa simulator's framing.
const ONE_PACKET: u32 = 1442;

/// Arguments of `homa workloads`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Workload to describe instead: w1-analytic, web-search, data-mining, imc10, or a table of
    /// sizes and cumulative shares. Its rows are steps with the header
    /// `size_bytes,cumulative_fraction`, otherwise points with lines between them, in fractions or
    /// per cent; `steps:FILE`, `linear:FILE`, `percent:FILE`, `fraction:FILE`, `packets=1460:FILE`
    /// and `bytes:FILE` decide what the table leaves open.
    #[arg(value_name = "NAME|FILE")]
    file: Option<String>,
}

/// The key figures of a workload. Sizes are application bytes of one message; shares are 0 to 1.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    description: &'static str,
    /// Of a table: rows, what lies between them, and units.
    table: Option<String>,
    mean_bytes: f64,
    min_bytes: u32,
    p50_bytes: u32,
    p90_bytes: u32,
    p99_bytes: u32,
    max_bytes: u32,
    /// Share of messages that fit one packet.
    messages_in_one_packet: f64,
    /// Share of all bytes in messages of at most 1000 B.
    bytes_up_to_1000: f64,
    /// Share of all bytes in messages of at most 10,000 B.
    bytes_up_to_10000: f64,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let named = match &args.file {
        Some(file) => vec![Workload::parse(file).hint(FORMAT_HINT)?],
        None => Workload::BUILT_IN.to_vec(),
    };
    let workloads = named.iter().map(figures).collect::<anyhow::Result<Vec<_>>>();
    let workloads = workloads.hint(FORMAT_HINT)?;
    match args.format {
        Format::Json => json(&workloads)?,
        Format::Table => print(&workloads),
    }
    Ok(Verdict::Passed)
}

const FORMAT_HINT: &str = "a table has rows of a size and the share of messages of at most that, \
                           such as `1000 40`; the last share is 1, or 100 in per cent";

fn figures(workload: &Workload) -> anyhow::Result<Figures> {
    let sizes = workload.sizes()?;
    values::tell_table(&workload.to_string(), &sizes);
    let share = |value: f64| (value * 1e4).round() / 1e4;
    Ok(Figures {
        name: workload.to_string(),
        description: workload.description(),
        table: sizes.form().map(ToString::to_string),
        mean_bytes: (sizes.mean_bytes() * 10.0).round() / 10.0,
        min_bytes: sizes.min_bytes(),
        p50_bytes: sizes.quantile(0.5),
        p90_bytes: sizes.quantile(0.9),
        p99_bytes: sizes.quantile(0.99),
        max_bytes: sizes.max_bytes(),
        messages_in_one_packet: share(sizes.share_of_messages(ONE_PACKET)),
        bytes_up_to_1000: share(sizes.share_of_bytes(1_000)),
        bytes_up_to_10000: share(sizes.share_of_bytes(10_000)),
    })
}

fn print(workloads: &[Figures]) {
    let right = |title, width| (title, Align::Right, width);
    let table = TextTable::new(&[
        ("name", Align::Left, 4),
        ("what it is", Align::Left, 30),
        right("mean B", 9),
        right("p50 B", 7),
        right("p99 B", 9),
        right("largest B", 9),
        right("one packet", 6),
        right("bytes in <= 10 kB", 6),
    ]);
    line(table.head());
    for w in workloads {
        line(table.row(&[
            w.name.clone(),
            w.description.into(),
            format!("{:.0}", w.mean_bytes),
            w.p50_bytes.to_string(),
            w.p99_bytes.to_string(),
            w.max_bytes.to_string(),
            format!("{:.1} %", w.messages_in_one_packet * 100.0),
            format!("{:.1} %", w.bytes_up_to_10000 * 100.0),
        ]));
    }
}
