//! `homa call`: one call and its answer, or the latencies of many.

mod load;
mod pace;
mod summary;

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa::CallOptions;

use crate::commands::driver::Driver;
use crate::commands::protection::Protection;
use homa_workload::units::Quantity;

use crate::failure::{Outcome, Verdict};
use crate::output::Format;
use crate::values::{self, Sizes};
use load::Load;
use pace::Pace;
pub use summary::Ended;

/// Most calls in progress if a rate is given; if there are more, the server does not keep up.
const OPEN_LOOP: usize = 1000;

/// Arguments of `homa call`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server, such as 10.0.0.7:4000.
    #[arg(value_name = "ADDR", value_parser = values::server)]
    server: SocketAddr,
    /// What carries the packets.
    #[arg(long, value_enum, default_value_t = Driver::Udp)]
    driver: Driver,
    #[command(flatten)]
    protection: Protection,
    /// The request's bytes. [default: hello]
    #[arg(long, value_name = "TEXT", conflicts_with = "size")]
    data: Option<String>,
    /// Send this many bytes instead of a text, and do not print the answer: a size, a range such as
    /// 100..10kB, a workload such as w4, or a file of sizes (`homa workloads`).
    #[arg(long, value_name = "SIZES", value_parser = values::sizes)]
    size: Option<Sizes>,
    /// Calls to make. [default: 1; with --duration, no limit]
    #[arg(long, value_name = "N", group = "length")]
    #[arg(value_parser = values::within::<u32>(Quantity::Count, 1..=u32::MAX.into()))]
    count: Option<u32>,
    /// Make calls for this long.
    #[arg(long, value_name = "TIME", value_parser = values::duration, group = "length")]
    duration: Option<Duration>,
    /// Calls per second, as a Poisson process; latency is measured from when a call was due. Fails
    /// if more than 5 % fewer calls end per second. Without it, a call starts when another one
    /// ends.
    #[arg(long, value_name = "N", requires = "length", value_parser = values::rate_of_calls)]
    rate: Option<f64>,
    /// Maximum number of calls in progress. [default: 1; 1000 with --rate]
    #[arg(long, value_name = "N", requires = "length")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How long to wait for each answer.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = values::duration)]
    deadline: Duration,
    /// A call may run twice, so one that the server lost is made again.
    #[arg(long)]
    idempotent: bool,
    /// Format of the summary of several calls. A single call prints its answer, or as JSON its
    /// summary.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Args {
    fn options(&self) -> CallOptions {
        let options = CallOptions::deadline(self.deadline);
        if self.idempotent { options.idempotent() } else { options }
    }
}

/// Runs the command. A single call that fails is an error; of several, it is a failed check.
pub fn run(args: &Args) -> Outcome {
    if let Some(Sizes::Workload(sizes)) = &args.size {
        values::tell_table("--size", sizes);
    }
    args.driver.check_size(args.size.as_ref().map_or(0, Sizes::largest))?;
    match (args.count, args.duration) {
        (None | Some(1), None) => one(args),
        _ => many(args),
    }
}

/// One call: prints its answer.
fn one(args: &Args) -> Outcome {
    let text = args.data.as_deref().unwrap_or("hello").as_bytes();
    let request = args.size.as_ref().map_or_else(|| text.to_vec(), |s| vec![7; s.any() as usize]);
    let bytes = request.len();
    let client = args.driver.client(args.server, &args.protection)?;
    let options = args.options();
    let start = Instant::now();
    let response = client.call_with(args.server, request, &options);
    let response = response.map_err(|error| args.driver.failure(args.server, error, "--echo"))?;
    let took = start.elapsed();
    eprintln!("{} B in {:.1} us", response.len(), took.as_nanos() as f64 / 1e3);
    if args.format == Format::Json {
        let mut ended = Ended::default();
        ended.answered(bytes, took);
        return ended.summary(took).finish(args.format, "");
    }
    if args.size.is_none() {
        // A closed stdout is no reason to fail: the call was made.
        let _ = std::io::stdout().write_all(&response);
    }
    Ok(Verdict::Passed)
}

/// Many calls: prints how long they took and why some had no answer.
fn many(args: &Args) -> Outcome {
    let text = args.data.as_deref().unwrap_or("hello").as_bytes();
    let few = if args.rate.is_some() { OPEN_LOOP } else { 1 };
    let load = Load {
        server: args.server,
        sizes: args.size.as_ref().unwrap_or(&Sizes::Range(1, 1)),
        text: args.size.is_none().then_some(text),
        options: args.options(),
        rate: args.rate,
        concurrency: args.concurrency.map_or(few, usize::from),
        count: args.count.map_or(u64::MAX, u64::from),
        duration: args.duration,
    };
    let mut engine = args.driver.inline(args.server, &args.protection)?;
    let loaded = load.run(&mut engine)?;
    let hint = loaded.error.map_or_else(
        || "give it more time: no call had ended".to_owned(),
        |error| args.driver.hint(args.server, &error, "--echo"),
    );
    let rates = loaded.pace.as_ref().and_then(Pace::rates);
    let summary = loaded.ended.summary(loaded.took).at_rates(rates);
    let outcome = summary.finish(args.format, &hint)?;
    summary.bars(args.format);
    Ok(outcome)
}
