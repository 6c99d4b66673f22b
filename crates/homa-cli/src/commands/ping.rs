//! `homa ping`: how long a small RPC takes to a server and back.

mod priorities;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa::CallOptions;
use homa_workload::units::Quantity;

use super::call::Ended;
use super::driver::Driver;
use super::protection::Protection;
use crate::failure::Outcome;
use crate::output::{Format, line};
use crate::values;

/// Arguments of `homa ping`.
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
    /// RPCs to send. [default: 5; 20 of each class with --priorities]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = values::within::<u32>(Quantity::Count, 1..=u32::MAX.into()))]
    count: Option<u32>,
    /// Bytes of each request.
    #[arg(long, default_value = "100", value_name = "BYTES", value_parser = values::message_bytes)]
    size: u32,
    /// Pause between RPCs.
    #[arg(long, default_value = "200ms", value_name = "TIME", value_parser = values::duration)]
    interval: Duration,
    /// How long to wait for each answer.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = values::duration)]
    deadline: Duration,
    /// Find out whether the path honours DSCP: fill it with bulk of class CS0, at most 512 kB at a
    /// time, and send --count RPCs of each class, CS0 to CS5. The exit code is 1 unless it does,
    /// also if nothing can be decided.
    #[arg(long, conflicts_with = "interval")]
    priorities: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Runs the command; an RPC without an answer is a failed check.
pub fn run(args: &Args) -> Outcome {
    args.driver.check_size(args.size)?;
    if args.priorities {
        return priorities::run(args);
    }
    let client = args.driver.client(args.server, &args.protection)?;
    let options = CallOptions::deadline(args.deadline);
    let (mut ended, mut hint) = (Ended::default(), String::new());
    let began = Instant::now();
    for sequence in 1..=args.count.unwrap_or(5) {
        if sequence > 1 {
            std::thread::sleep(args.interval);
        }
        let start = Instant::now();
        let result = client.call_with(args.server, vec![7; args.size as usize], &options);
        let time = start.elapsed();
        let said = match result {
            Ok(response) => {
                ended.answered(args.size as usize, time);
                format!("{} B back in {:.1} us", response.len(), time.as_nanos() as f64 / 1e3)
            }
            Err(error) => {
                ended.failed(args.size as usize, &error);
                hint = args.driver.hint(args.server, &error, "--echo");
                error.to_string()
            }
        };
        if args.format == Format::Table {
            line(format!("{} #{sequence}: {said}", args.server));
        }
    }
    ended.summary(began.elapsed()).finish(args.format, &hint)
}
