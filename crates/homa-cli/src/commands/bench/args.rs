//! The arguments of `homa bench`, with what each defaults to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homa_testbed::{Transport, UnknownTransport};
use homa_workload::sizes::Workload;
use homa_workload::units::Quantity;

use super::decide::{ARRIVALS, LINK};
use super::fabric::{FabricArgs, FabricShape};
use super::marking::{MarkingArgs, PlannedRow};
use crate::commands::driver::Driver;
use crate::commands::protection::Protection;
use crate::failure::Failure;
use crate::output::Format;
use crate::values;

/// How long each row of `--micro` is measured unless told otherwise, over all rounds.
pub const MICRO_DURATION: Duration = Duration::from_secs(2);

/// The same of each row of `--grpc`.
#[cfg(feature = "grpc")]
pub const GRPC_DURATION: Duration = Duration::from_secs(10);

/// Options that only the rack has.
const RACK_ONLY: [&str; 13] = [
    "transport",
    "hosts",
    "buffer",
    "cc",
    "loss",
    "duplicate",
    "incast_control",
    "phantom_queue",
    "ecn_threshold",
    "fabric",
    "forwarding",
    "degrade",
    "fan_out",
];

/// Most servers that a workflow asks at once.
pub const MOST_PARTS: u32 = 1_000;

/// Arguments of `homa bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Unloaded latency, rate and throughput beside raw UDP and TCP on one veth pair, instead of
    /// the rack.
    #[arg(long, conflicts_with_all = ["peer", "incast", "workload", "load"])]
    #[arg(conflicts_with_all = RACK_ONLY, conflicts_with = "link")]
    pub micro: bool,
    /// A search service over gRPC on loopback, by homa-tonic and by tonic over TCP: latency, CPU
    /// time, and answers in time at 1.5 x capacity. Needs the feature `grpc` of homa-rpc-cli.
    #[arg(long, conflicts_with_all = ["micro", "peer", "incast", "workload", "load"])]
    #[arg(conflicts_with_all = RACK_ONLY, conflicts_with = "link")]
    pub grpc: bool,
    /// With --micro: measure only rows whose name contains one of these texts, separated by commas.
    /// Names look like homa-inline/100x1 (bytes) and tcp-batched/64x2 (peers x RPCs in progress).
    #[arg(long, value_delimiter = ',', value_name = "TEXT,…", requires = "micro")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub only: Vec<String>,
    /// With --micro: largest IP packet, for all rows: 9000 are jumbo frames.
    #[arg(long, default_value_t = 1500, value_name = "BYTES", requires = "micro")]
    #[arg(value_parser = values::within::<u16>(Quantity::Bytes, 1_500..=9_000))]
    pub mtu: u16,
    /// Put load on a running `homa serve --echo` at this address and port, instead of the rack.
    #[arg(long, value_name = "ADDR", value_parser = values::server)]
    #[arg(conflicts_with = "incast", conflicts_with_all = RACK_ONLY)]
    pub peer: Option<SocketAddr>,
    /// With --peer: what carries the packets.
    #[arg(long, value_enum, default_value_t = Driver::Udp, requires = "peer")]
    pub driver: Driver,
    #[command(flatten)]
    pub protection: Protection,
    /// With --peer: speak to the `cp_node server` of the Linux kernel module, or to `homa serve
    /// --cp-node`, and report every second as `cp_node client` does.
    #[arg(long, requires = "peer")]
    pub cp_node: bool,
    /// With --cp-node: number of consecutive server ports, from ADDR's up, to spread requests over.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "cp_node")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub ports: u8,
    /// With --cp-node: ask for responses of 100 bytes (the module's `--one-way`).
    #[arg(long, requires = "cp_node")]
    pub short_responses: bool,
    /// Transports to compare, in this order, separated by commas.
    ///
    /// homa, homa-flat (one priority level), tcp-classed (a pool; small RPCs have a connection and
    /// a DSCP class of their own), tcp-pool (8 connections per pair), tcp (one per pair); not by
    /// default: homa-sharded (two engines at each host's address, as on two cores), tcp-ecn (tcp
    /// that reacts to ECN marks), dctcp (the kernel's, if it has one).
    /// [default: the first five]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = transport)]
    pub transport: Vec<Transport>,
    /// Message sizes: w1 to w5, a table (`homa workloads --help`), or one size in bytes. Cut at
    /// 1 MB.
    #[arg(long, default_value = "w3", value_name = "NAME|FILE", value_parser = workload)]
    pub workload: Workload,
    /// Share of each host's link taken by requests, responses and their headers.
    #[arg(long, default_value = "0.8", value_name = "SHARE", value_parser = values::load)]
    pub load: f64,
    /// Hosts on the rack; each is client and server. [default: 5; 4 with --fabric leaf-spine]
    #[arg(long, value_name = "N")]
    pub hosts: Option<usize>,
    #[command(flatten)]
    pub network: FabricArgs,
    /// Rate of every link. [default: the fastest of 100, 50, 25 and 12.5 Mbit/s at which a trial
    /// shows that this machine keeps up]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub link: Option<u64>,
    /// Time in which RPCs arrive, for each transport, at least 100ms. [default: on the rack 3 to
    /// 8s, so that all rows end within three minutes; 8s for --peer; 2s for --micro;
    /// 10s for --grpc]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Buffer of every switch port, shared by all priorities, wire bytes.
    #[arg(long, default_value = "131072", value_name = "BYTES", value_parser = values::bytes)]
    pub buffer: u64,
    #[command(flatten)]
    pub marks: MarkingArgs,
    /// Congestion control of the TCP rows.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    pub cc: String,
    /// Probability that the switch drops a frame. The command fails if a Homa RPC is lost for good
    /// or executed twice, or if memory grows in a run of 50 s or more.
    #[arg(long, default_value = "0", value_name = "P", value_parser = values::probability)]
    pub loss: f64,
    /// Probability that the switch delivers a frame twice. The command fails as with --loss.
    #[arg(long, default_value = "0", value_name = "P", value_parser = values::probability)]
    pub duplicate: f64,
    /// Incast instead of the load: one client calls all other hosts, with 10 kB responses and this
    /// many RPCs in progress (at most 100000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(conflicts_with_all = ["workload", "load"])]
    pub incast: Option<u32>,
    /// Partition-aggregate workflows instead of single RPCs: each host asks this many servers at
    /// once and waits for all (at most 1000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    #[arg(conflicts_with_all = ["workload", "incast", "twin", "chart"])]
    pub fan_out: Option<u32>,
    /// With --fan-out: bytes of each response (DeTail §6: 2KB).
    #[arg(long, default_value = "2KB", value_name = "BYTES", value_parser = values::message_bytes)]
    #[arg(requires = "fan_out")]
    pub response: u32,
    /// Whether Homa limits the unscheduled bytes of responses when many RPCs are in progress.
    #[arg(long, value_enum, default_value_t = Switch::On, value_name = "on|off")]
    pub incast_control: Switch,
    /// Seed of sizes and arrivals. Every transport gets the same RPCs.
    #[arg(long, default_value_t = 1, value_name = "S", value_parser = values::seed)]
    pub seed: u64,
    /// Also forecast each measured row by simulating the same RPCs on the same rack, and give the
    /// bound that clairvoyant SRPT sets on each receiver's link. For TCP, with --cc cubic or reno.
    #[arg(long, conflicts_with_all = ["micro", "peer", "incast"])]
    pub twin: bool,
    /// Draw the 99th percentiles by message size into this SVG file.
    /// [default: homa-bench.svg beside a table, if the current folder can be written; none with
    /// --format json]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["micro", "peer", "incast"])]
    pub chart: Option<PathBuf>,
    /// Measure on the rack even if its check beforehand fails because the machine is busy with
    /// other work, instead of simulating the rows. Each row is measured once, even if it is
    /// disturbed.
    #[arg(long, conflicts_with_all = ["micro", "peer"])]
    pub anyway: bool,
    /// Exit with status 1 if a row is not valid or if the comparison is simulated.
    #[arg(long, conflicts_with_all = ["micro", "peer"])]
    pub strict: bool,
    /// Also print the checks of every row, its idle round trip and the pauses of the machine.
    #[arg(long, conflicts_with = "micro")]
    pub verbose: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// A rule that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// In force.
    On,
    /// Not in force.
    Off,
}

impl Switch {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// A shorter row has too few RPCs for any figure.
const SHORTEST: Duration = Duration::from_millis(100);

fn duration(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        time if time < SHORTEST => Err("a row is measured for at least 100ms".into()),
        time => Ok(time),
    }
}

fn workload(text: &str) -> Result<Workload, String> {
    Workload::parse(text).map_err(|error| error.to_string())
}

fn transport(text: &str) -> Result<Transport, String> {
    text.parse().map_err(|error: UnknownTransport| error.to_string())
}

impl Args {
    /// The rows, in order.
    pub fn transports(&self) -> Vec<Transport> {
        match self.transport.is_empty() {
            true => Transport::COMPARED.to_vec(),
            false => self.transport.clone(),
        }
    }

    /// Server ports of `--cp-node`.
    pub fn ports(&self) -> usize {
        self.ports.into()
    }

    /// The rows, in order.
    pub fn rows(&self) -> Vec<PlannedRow> {
        self.marks.rows(self.transports())
    }

    /// Hosts on the rack. Two leaf switches share them, so that their number is even there.
    pub fn hosts(&self) -> usize {
        self.hosts.unwrap_or(match self.network.fabric {
            FabricShape::SingleSwitch => 5,
            FabricShape::LeafSpine => 4,
        })
    }

    /// Rate of every link, bits per second.
    pub fn link(&self) -> u64 {
        self.link.unwrap_or(LINK)
    }

    /// Time in which RPCs arrive.
    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or(ARRIVALS)
    }

    /// Refuses a congestion control that the kernel does not have, before anything is built.
    pub fn check_congestion_control(&self) -> Result<(), Failure> {
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        // If the list cannot be read, the sockets will report a missing one when they are opened.
        let Ok(available) = std::fs::read_to_string(path) else { return Ok(()) };
        let lacks = |cc: &str| !available.split_whitespace().any(|name| name == cc);
        let none = |cc: &str| anyhow::anyhow!("this kernel has no congestion control `{cc}`");
        if lacks(&self.cc) {
            let hint = format!("choose --cc among: {}", available.trim());
            return Err(Failure::new(none(&self.cc), hint));
        }
        let rows = self.transports();
        match rows.iter().filter_map(|row| row.own_congestion_control()).find(|cc| lacks(cc)) {
            None => Ok(()),
            Some(cc) => {
                let hint = format!("load it (modprobe tcp_{cc}), or choose the row tcp-ecn");
                Err(Failure::new(none(cc), hint))
            }
        }
    }
}

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

impl Args {
    /// The arguments of `homa bench` without options.
    pub fn defaults() -> Self {
        <Program as clap::Parser>::parse_from(["homa"]).args
    }
}

/// Parses arguments as the command line does, for tests.
#[cfg(test)]
pub fn asked(arguments: &[&str]) -> Args {
    <Program as clap::Parser>::parse_from(["homa"].iter().chain(arguments)).args
}
