//! Everything a run measured. Shares and loads are fractions of 1. The name of a time ends with its
//! unit, e.g. `mean_us`.
//!
//! An interval `*_ci` has two ends; an end is `None` if the sample is too small to bound it.

use serde::{Deserialize, Serialize};

use super::demand::Basis;
use super::options::{SchemeOptions, SlowdownBy};
pub use super::reports::{
    CollectiveTime, CompletionTime, FlowGroupRate, FlowTime, KindOutcome, LatencyPercentile,
    LinkUse, NicReport, PausedPortTimes, Pauses, ProbeDelays, RaisedTimeouts, Rounds, SizeTable,
    StuckPort, TimeoutCounts, WorkflowTimes,
};

/// The results of one scenario. Field names are the keys of `homa sim --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioOutcome {
    /// Name of the scheme.
    pub scheme: String,
    /// Name of the workload, or of the traffic pattern if it has no workload.
    pub workload: String,
    /// How the table of sizes was understood, if the workload is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_table: Option<SizeTable>,
    /// The load that the scenario asks for.
    pub load: f64,
    /// Measured messages that arrived (RPCs for echo).
    pub messages: u64,
    /// The seed.
    pub seed: u64,
    /// Partitions of the network in which it was simulated.
    #[serde(default = "one")]
    pub partitions: u32,
    /// Settings of the scenario that are probably mistakes, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The scheme's options as it ran, with all defaults written out.
    #[serde(default)]
    pub options: SchemeOptions,
    /// Sixteen hexadecimal digits. Two runs have the same hash if the same packets moved at the
    /// same times.
    pub trace_hash: String,
    /// Hops of data and control packets; a packet counts once for each link that it crosses.
    pub packet_hops: u64,
    /// User CPU time of the event loop.
    pub cpu_seconds: f64,
    /// `packet_hops` divided by `cpu_seconds`.
    pub hops_per_cpu_second: f64,
    /// Largest resident memory of the process so far.
    pub peak_rss_bytes: u64,
    /// Latency by message size.
    pub slowdown: Slowdown,
    /// Queue lengths, if measured.
    pub queues: Option<Queues>,
    /// Share of the receivers' links that each level carried, lowest level first, if measured.
    pub priority_share: Option<[f64; 8]>,
    /// Share of the receivers' links that idled although senders waited for grants, if measured.
    pub wasted_bandwidth: Option<f64>,
    /// 95 % interval of `wasted_bandwidth`, from the differences between receivers.
    #[serde(default)]
    pub wasted_ci: [Option<f64>; 2],
    /// Share of the receivers' links that carried frames while traffic lasted.
    pub utilisation: f64,
    /// 95 % interval of `utilisation`, from the differences between batches of consecutive samples.
    #[serde(default)]
    pub utilisation_ci: [Option<f64>; 2],
    /// Utilisation of the links of each tier.
    #[serde(default)]
    pub links: LinkUse,
    /// 95 % interval of the measured messages (RPCs) that arrive per second while traffic lasts,
    /// from the differences between batches of consecutive samples.
    #[serde(default)]
    pub messages_per_second_ci: [Option<f64>; 2],
    /// Share of the receivers' links that application bytes of delivered messages used while
    /// traffic lasted; `None` if nothing was delivered.
    pub goodput: Option<f64>,
    /// The load in different units, and the load that was realised.
    pub loads: Loads,
    /// Incomplete messages over time.
    pub backlog: BacklogOutcome,
    /// Lost frames by cause, and refused packets.
    pub drops: Drops,
    /// Causes of delay of messages near p99, if measured.
    pub tail_delay: Option<TailDelay>,
    /// The parts of the messages' latency, if measured.
    pub ledger: Option<Ledger>,
    /// Latency by range of sizes, if measured, ordered by class, then by size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SizeGroup>,
    /// Every large message, if measured, in the order of arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowTime>,
    /// CompletionTime times of workflows, if traffic has any. Classes are ordered by name, and the
    /// entry of a whole class precedes those of its fan-outs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowTimes>,
    /// Activity of priority flow control, if the network has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Pauses>,
    /// Retransmission timeouts, for transports that have them.
    #[serde(default)]
    pub timeouts: TimeoutCounts,
    /// Results by scheme, if two schemes share the network: first the scenario's scheme, then
    /// that of `beside`. A scheme without hosts is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindOutcome>,
    /// How long `probes` waited, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeDelays>,
    /// Times of rounds of RPCs, if traffic consists of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
    /// How long messages that wait for each other took, if traffic consists of such messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<CompletionTime>,
    /// The time of the collective operation, if traffic is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveTime>,
    /// Rates of flows that last longer than the run, by group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow_groups: Vec<FlowGroupRate>,
    /// Activity of NICs and processors, if NICs pace or `options.nic` sets anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicReport>,
    /// Simulated time when traffic ended.
    pub traffic_seconds: f64,
    /// Simulated time when the run ended.
    pub simulated_seconds: f64,
    /// Events of the engine.
    pub events: u64,
    /// RTTbytes that hosts begin with, in message or wire bytes as the scheme counts them. They are
    /// derived from the network unless `options.rtt_bytes` is set.
    #[serde(default)]
    pub rtt_bytes: u32,
    /// The largest message whose unscheduled bytes use each level, lowest level first, 0 for
    /// scheduled levels. Absent if hosts measure cutoffs during the run.
    #[serde(default)]
    pub cutoffs: Option<[u32; 8]>,
    /// Messages submitted, measured or not.
    pub submitted: u64,
    /// Measured messages that had not arrived when the run ended, including those lost for good.
    pub undelivered: u64,
    /// Messages that failed, measured or not: their sender gave up, or they were lost for good,
    /// i.e. the network is empty and they have not arrived. Percentiles do not include them.
    #[serde(default)]
    pub failed: u64,
    /// Failed messages that should have been measured.
    #[serde(default)]
    pub measured_failed: u64,
    /// Messages that a transport refused to send, measured or not.
    #[serde(default)]
    pub refused: u64,
    /// Refused messages that should have been measured.
    #[serde(default)]
    pub measured_refused: u64,
    /// Packets in the fabric when the run ended.
    pub in_flight: u64,
    /// Message bytes submitted, responses included.
    pub offered_bytes: u64,
    /// Message bytes delivered by the end of the run.
    pub delivered_bytes: u64,
}

/// Partitions of older results.
fn one() -> u32 {
    1
}

/// Latency by message size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    /// The divisor of latencies.
    pub by: SlowdownBy,
    /// Mean over all messages.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Median over all messages.
    pub p50: Option<f64>,
    /// 99th percentile over all messages.
    pub p99: Option<f64>,
    /// Bins of sizes in ascending order. Each holds 1 % of the messages, or more if these have the
    /// same size.
    pub buckets: Vec<SizeBucket>,
}

/// One bin of sizes. Intervals hold with 95 % confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// Share of messages in this bin and all before it, by the distribution.
    pub cum_share: f64,
    /// Its smallest size in bytes.
    pub min_bytes: u32,
    /// Its largest size in bytes.
    pub max_bytes: u32,
    /// Messages measured.
    pub count: u64,
    /// Median slowdown.
    pub p50: Option<f64>,
    /// 99th percentile of slowdown.
    pub p99: Option<f64>,
    /// Interval of the median.
    pub p50_ci: [Option<f64>; 2],
    /// Interval of the 99th percentile.
    pub p99_ci: [Option<f64>; 2],
    /// Median latency, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of latency, microseconds.
    pub p99_us: Option<f64>,
    /// The 99th percentile of slowdown as the Homa authors' analysis computes it.
    #[serde(default)]
    pub by_receiver: Option<ByReceiver>,
}

/// Latency of the messages of one class in a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeGroup {
    /// Class of the messages, from 0. Most traffic has one class.
    pub class: u8,
    /// Messages are larger than this, bytes; 0 in the first range.
    pub above_bytes: u32,
    /// Messages are at most as large as this, bytes; absent in the last range.
    pub max_bytes: Option<u32>,
    /// Messages measured.
    pub count: u64,
    /// Mean slowdown.
    pub mean: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// Maximum latency, microseconds.
    #[serde(default)]
    pub max_us: f64,
    /// The percentiles that `measures.groups.percentiles` lists.
    pub percentiles: Vec<GroupPercentile>,
}

/// A percentile over a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPercentile {
    /// Per cent, e.g. 99.9.
    pub percent: f64,
    /// This percentile of slowdown.
    pub slowdown: f64,
    /// This percentile of latency, microseconds.
    pub us: f64,
}

/// A percentile that is computed for each receiver's messages and then averaged over receivers,
/// weighted by their numbers of messages. The published curves of Homa Figure 10 are of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByReceiver {
    /// 99th percentile of slowdown.
    pub p99: f64,
    /// 95 % interval of that mean, from the differences between receivers. It has no ends if there
    /// is a single receiver.
    pub p99_ci: [Option<f64>; 2],
    /// Receivers that had messages in the bin.
    pub receivers: u32,
}

/// Queue lengths of each tier in wire bytes. `mean` and `max` are defined as in Homa Table 1:
/// arriving frames see them, and the frame in transmission is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// Host to TOR, i.e. the NIC, whose queue the transport keeps empty.
    pub host_up: Option<QueueLength>,
    /// TOR to spine.
    pub tor_up: Option<QueueLength>,
    /// Spine to TOR (in a fat tree: aggregation to TOR).
    pub aggr_down: Option<QueueLength>,
    /// TOR to host; the only tier of a single switch.
    pub tor_down: Option<QueueLength>,
    /// Aggregation to core (fat tree).
    pub aggr_up: Option<QueueLength>,
    /// Core to aggregation (fat tree).
    pub core_down: Option<QueueLength>,
    /// Between the switches of a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<QueueLength>,
    /// TOR to hosts that receive messages, if some hosts do not. It leaves out ports that carry
    /// only returning acknowledgements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<QueueLength>,
    /// The most bytes that waited at all ports of a TOR switch at one time, accurate to one frame
    /// per port. Absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tor_max_bytes: Option<u64>,
}

/// Queue lengths over the ports of one tier, wire bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueLength {
    /// Mean of the waiting frames that arriving frames see.
    pub mean_bytes: f64,
    /// Maximum of the waiting frames that arriving frames see.
    pub max_bytes: u64,
    /// Mean that arriving frames see, including the unsent rest of the frame in transmission (as
    /// the authors' code counted).
    pub mean_bytes_with_residual: f64,
    /// Maximum that arriving frames see, including that rest.
    pub max_bytes_with_residual: u64,
    /// Mean of the waiting frames over time.
    pub time_mean_bytes: f64,
    /// First percentile of the waiting frames that arriving frames see, to 64 bytes.
    #[serde(default)]
    pub p1_bytes: u64,
    /// Median of the same.
    #[serde(default)]
    pub p50_bytes: u64,
    /// 99th percentile of the same.
    #[serde(default)]
    pub p99_bytes: u64,
    /// Maximum sum over all ports of the tier at one time, accurate to one frame per port. For a
    /// single switch this is the memory it needs.
    #[serde(default)]
    pub together_max_bytes: u64,
    /// Frames that arrived.
    pub frames: u64,
}

/// The load in different units, as shares of the host links' rate. It is 0 if all traffic starts at
/// once, e.g. for a permutation, because there is no time to relate it to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// The load that the scenario asks for.
    pub asked: f64,
    /// The bytes that `asked` counts.
    pub basis: Basis,
    /// The same load in the authors' wire bytes.
    pub paper: f64,
    /// The same load in application bytes.
    pub payload: f64,
    /// The load asked for as a share of the busiest link between two switches, if packets are
    /// spread evenly. Absent without such links, and if the scenario does not choose the load.
    #[serde(default)]
    pub core: Option<f64>,
    /// Load of the messages that were drawn, in the authors' wire bytes.
    pub realised_paper: f64,
    /// Load of the messages that were drawn, in application bytes.
    pub realised_payload: f64,
    /// Load of the messages that were drawn, in the wire bytes of all packets that hosts sent. If
    /// the run did not wait until the network was empty, packets after the end of traffic are
    /// missing.
    pub realised_wire: f64,
}

/// Incomplete messages, sampled while traffic lasted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BacklogOutcome {
    /// Time between samples, seconds.
    pub interval_seconds: f64,
    /// Bytes of submitted messages that had not been delivered, all hosts.
    pub bytes: Vec<u64>,
    /// Number of such messages.
    pub messages: Vec<u64>,
    /// Whether the backlog grew without bound by the rule of `measure::backlog`.
    pub diverges: bool,
    /// Growth over the second half as a share of the bytes offered then.
    pub growth: f64,
    /// Seconds that the samples must span before the rule applies. Absent if the traffic has no
    /// load to choose.
    #[serde(default)]
    pub needs_seconds: Option<f64>,
}

impl BacklogOutcome {
    /// Whether the load is sustained. `None` if traffic was too short to tell, or if it is a list
    /// or a closed loop.
    pub fn is_sustained(&self) -> Option<bool> {
        let spanned = self.interval_seconds * self.bytes.len() as f64;
        (spanned >= self.needs_seconds?).then_some(!self.diverges)
    }
}

/// Losses by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Frames that found a full buffer.
    pub overflow: u64,
    /// Frames lost to a fault or a dead link.
    pub fault: u64,
    /// Packets that a transport refused, e.g. duplicates after a retransmission.
    pub refused: u64,
    /// Frames whose payload a full switch cut off and whose header found room at that port. They
    /// count in none of the others unless the header is lost later.
    #[serde(default)]
    pub trimmed: u64,
}

/// Causes of delay of the last packet of messages near p99 (Homa Figure 11), means in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TailDelay {
    /// Largest message that is considered, bytes.
    pub max_bytes: u32,
    /// Number of messages considered.
    pub messages: u64,
    /// Waiting for the rest of a frame of lower priority that was being sent.
    pub preemption_lag_us: f64,
    /// Waiting for frames of the same or higher priority.
    pub queueing_us: f64,
    /// 95 % interval of the preemption lag, from how much it changes if a twentieth of the
    /// messages, in the order of delivery, is left out.
    #[serde(default)]
    pub preemption_lag_ci: [Option<f64>; 2],
    /// 95 % interval of queueing, found in the same way.
    #[serde(default)]
    pub queueing_ci: [Option<f64>; 2],
    /// Delay by hop: at the sender's NIC, TOR up, core down, TOR down.
    pub by_hop: Vec<HopDelay>,
    /// The same for other ranks, to show how much the result depends on the choice of ranks.
    #[serde(default)]
    pub around: Vec<RanksDelay>,
}

/// Causes of delay of the last packet of messages of some ranks, means in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksDelay {
    /// Lowest rank by latency, as a share of each bin's messages.
    pub from: f64,
    /// Highest rank.
    pub to: f64,
    /// Number of messages considered.
    pub messages: u64,
    /// See [`TailDelay`].
    pub preemption_lag_us: f64,
    /// See [`TailDelay`].
    pub queueing_us: f64,
}

/// The waits at one hop, means in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopDelay {
    /// `nic`, `tor_up`, `aggr_down`, `tor_down`.
    pub hop: String,
    /// See [`TailDelay`].
    pub preemption_lag_us: f64,
    /// See [`TailDelay`].
    pub queueing_us: f64,
}

/// The parts of the messages' latency. For every message the five parts sum exactly to its latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Means over all messages, microseconds.
    pub mean: LedgerParts,
    /// Means over the slowest 1 % of each bin's messages, microseconds.
    pub tail: LedgerParts,
    /// Means by bin of the slowdown table, microseconds.
    pub buckets: Vec<LedgerParts>,
    /// Means over the slowest 1 % of each bin, microseconds.
    pub tail_buckets: Vec<LedgerParts>,
    /// Messages whose parts did not sum to their latency: always 0.
    pub unbalanced: u64,
}

/// Parts of a latency, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerParts {
    /// Waiting at the sender behind other messages although bytes of this one may be sent.
    pub sender_queue_us: f64,
    /// Waiting at the sender for a grant.
    pub grant_wait_us: f64,
    /// Serialisation, propagation and fixed delays.
    pub wire_us: f64,
    /// Waiting in the fabric's ports.
    pub fabric_queue_us: f64,
    /// Waiting for the retransmission of a lost packet.
    pub recovery_us: f64,
}
