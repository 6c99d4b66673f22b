//! `homa bench`

use std::time::Duration;

use crate::failure::{Outcome, Verdict};
use crate::micro;
use crate::output::Format;
use crate::values;

/// Arguments of `homa bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Unloaded latency, rate and throughput beside raw UDP and TCP on one veth pair.
    #[arg(long)]
    micro: bool,
    /// How long each row is measured.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    duration: Option<Duration>,
    /// Seed of sizes and arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Form of the results.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.micro {
        let time = args.duration.unwrap_or(Duration::from_secs(2));
        micro::run(time, args.seed, args.format)?;
    }
    Ok(Verdict::Passed)
}
