//! `homa call`: one call and its answer, or the latencies of many.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa::{CallOptions, Client};
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use crate::commands::any_address_for;
use crate::commands::driver::Driver;
use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{Format, json, line};
use crate::values;

/// Arguments of `homa call`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server, such as 10.0.0.7:4000.
    #[arg(value_name = "ADDR", value_parser = values::address)]
    server: SocketAddr,
    /// What carries the packets.
    #[arg(long, value_enum, default_value_t = Driver::Udp)]
    driver: Driver,
    /// The request's bytes, at least one. [default: hello]
    #[arg(long, value_name = "TEXT", conflicts_with = "size", value_parser = values::message_text)]
    data: Option<String>,
    /// Send this many bytes instead of a text, and do not print the answer.
    #[arg(long, value_name = "BYTES", value_parser = values::message_bytes)]
    size: Option<u32>,
    /// Calls to make, one after the other.
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// How long to wait for each answer.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = values::duration)]
    deadline: Duration,
    /// Form of the summary of several calls; of one there is a summary only as JSON, instead of the
    /// answer.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Latencies of several calls in microseconds; absent when none was answered.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Calls made.
    pub calls: usize,
    /// Calls without an answer.
    pub failed: usize,
    /// Bytes of each request.
    pub bytes: usize,
    /// Fastest.
    pub min_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Slowest.
    pub max_us: Option<f64>,
}

impl Summary {
    /// Of `calls` calls, those answered after these nanoseconds.
    pub fn new(calls: usize, bytes: usize, answered_ns: Vec<u64>) -> Self {
        let failed = calls - answered_ns.len();
        let sorted = Sorted::new(answered_ns);
        let us = |ns: Option<u64>| ns.map(|ns| (ns as f64 / 100.0).round() / 10.0);
        Self {
            calls,
            failed,
            bytes,
            min_us: us(sorted.at_rank(1)),
            p50_us: us(sorted.percentile(Percentile::P50)),
            p99_us: us(sorted.percentile(Percentile::P99)),
            max_us: us(sorted.at_rank(sorted.len())),
        }
    }

    /// Prints it, and the hint where no call was answered; any without an answer is a failed check.
    pub fn finish(&self, format: Format, hint: &str) -> Outcome {
        self.print(format)?;
        if self.failed == self.calls {
            eprintln!("hint: {hint}");
        }
        Ok(if self.failed > 0 { Verdict::CheckFailed } else { Verdict::Passed })
    }

    fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return json(self);
        }
        let us = |time: Option<f64>| time.map_or("-".into(), |us| format!("{us:.1}"));
        line(format!(
            "{} calls of {} B, {} without an answer; us: min {}, p50 {}, p99 {}, max {}",
            self.calls,
            self.bytes,
            self.failed,
            us(self.min_us),
            us(self.p50_us),
            us(self.p99_us),
            us(self.max_us)
        ));
        Ok(())
    }
}

/// A client that reaches `server`.
pub fn client_for(server: SocketAddr, driver: Driver) -> Result<Client, Failure> {
    let hint = "check that this machine has an address of the server's family";
    Ok(driver.engine(any_address_for(server), hint)?.client())
}

/// Runs the command. A single call that fails is an error; of several, it is a failed check.
pub fn run(args: &Args) -> Outcome {
    args.driver.check_size(args.size.unwrap_or(0))?;
    let request = match (&args.data, args.size) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(bytes)) => vec![7; bytes as usize],
        (None, None) => b"hello".to_vec(),
    };
    let bytes = request.len();
    let client = client_for(args.server, args.driver)?;
    let options = CallOptions::deadline(args.deadline);
    if args.count == 1 {
        let start = Instant::now();
        let response = client.call_with(args.server, request, &options);
        let response =
            response.map_err(|error| args.driver.failure(args.server, error, "--echo"))?;
        let took = start.elapsed();
        eprintln!("{} B in {:.1} us", response.len(), took.as_nanos() as f64 / 1e3);
        if args.format == Format::Json {
            return Summary::new(1, bytes, vec![took.as_nanos() as u64]).finish(args.format, "");
        }
        if args.size.is_none() {
            // A closed stdout is no reason to fail: the call was made.
            let _ = std::io::stdout().write_all(&response);
        }
        return Ok(Verdict::Passed);
    }
    let (mut answered, mut hint) = (Vec::new(), String::new());
    for _ in 0..args.count {
        let start = Instant::now();
        match client.call_with(args.server, request.clone(), &options) {
            Ok(_) => answered.push(start.elapsed().as_nanos() as u64),
            Err(error) => {
                eprintln!("no answer: {error}");
                hint = args.driver.hint(args.server, &error, "--echo");
            }
        }
    }
    Summary::new(args.count as usize, bytes, answered).finish(args.format, &hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_calls_are_counted_and_leave_no_figure() {
        let summary = Summary::new(3, 100, vec![2_000, 1_000]);
        assert_eq!((summary.failed, summary.min_us, summary.max_us), (1, Some(1.0), Some(2.0)));
        assert_eq!(Summary::new(1, 100, vec![]).p50_us, None);
    }
}
