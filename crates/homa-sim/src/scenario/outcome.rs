//! Everything a run measured. Shares and loads are fractions of 1, times say their unit.

use serde::{Deserialize, Serialize};

use super::demand::Basis;
use super::options::SlowdownBy;
pub use super::reports::{
    FlowGroupRate, FlowTime, KindOutcome, LatencyPercentile, LinkUse, NicReport, Pauses,
    ProbeDelays, Rounds, StuckPort, TimeoutCounts, WorkflowTimes,
};

/// What came out of one scenario. Field names are the keys of `homa sim --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The scheme's name.
    pub scheme: String,
    /// The workload's name, or the pattern's when it has none.
    pub workload: String,
    /// The load asked for.
    pub load: f64,
    /// Measured messages that arrived (RPCs for echo).
    pub messages: u64,
    /// The seed.
    pub seed: u64,
    /// What the scenario asks for although it may not be what was meant, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Sixteen hexadecimal digits: equal when the same packets moved at the same times.
    pub trace_hash: String,
    /// Packets, data or control, that crossed one link each.
    pub packet_hops: u64,
    /// User CPU time of the event loop.
    pub cpu_seconds: f64,
    /// The quotient of the two.
    pub hops_per_cpu_second: f64,
    /// Largest resident memory of the process so far.
    pub peak_rss_bytes: u64,
    /// Latency by message size.
    pub slowdown: Slowdown,
    /// Queue lengths, when measured.
    pub queues: Option<Queues>,
    /// Share of the receivers' links that each level carried, lowest level first, when measured.
    pub priority_share: Option<[f64; 8]>,
    /// Share of the receivers' links that idled although senders waited for grants, when measured.
    pub wasted_bandwidth: Option<f64>,
    /// The ends of its 95 % interval, by how much receivers differ.
    #[serde(default)]
    pub wasted_ci: [Option<f64>; 2],
    /// Share of the receivers' links that carried frames while traffic lasted.
    pub utilisation: f64,
    /// The ends of its 95 % interval, by how much batches of consecutive steps of time differ.
    #[serde(default)]
    pub utilisation_ci: [Option<f64>; 2],
    /// The same of the links of each tier.
    #[serde(default)]
    pub links: LinkUse,
    /// The ends of the 95 % interval of how many measured messages (RPCs) arrive per second while
    /// traffic lasts, found alike.
    #[serde(default)]
    pub messages_per_second_ci: [Option<f64>; 2],
    /// Share of the receivers' links that application bytes of delivered messages took while
    /// traffic lasted.
    pub goodput: f64,
    /// The load in other terms.
    pub loads: Loads,
    /// Incomplete messages over time.
    pub backlog: Backlog,
    /// What was lost, and where.
    pub drops: Drops,
    /// What delayed messages near p99, when measured.
    pub tail_delay: Option<TailDelay>,
    /// Where the messages' time went, when measured.
    pub ledger: Option<Ledger>,
    /// Latency over ranges of sizes, when measured: by class, then by size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Large messages one by one, when measured, in the order of arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowTime>,
    /// How long workflows took, when traffic has any: by class in the order of names, all of a
    /// class before those of each fan-out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowTimes>,
    /// What priority flow control did, in networks that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Pauses>,
    /// Retransmission timeouts, for transports that have them.
    #[serde(default)]
    pub timeouts: TimeoutCounts,
    /// What became of the messages of each kind of hosts, where there are two: those of the scheme,
    /// then those beside them; a kind without hosts is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindOutcome>,
    /// How long `probes` waited, when there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeDelays>,
    /// How long rounds took, where traffic has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
    /// What flows longer than the run got, by group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow_groups: Vec<FlowGroupRate>,
    /// What network cards and processors did, where they pace or `options.nic` says that they do
    /// anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicReport>,
    /// Simulated time when traffic ended.
    pub traffic_seconds: f64,
    /// Simulated time when the run ended.
    pub simulated_seconds: f64,
    /// Events of the engine.
    pub events: u64,
    /// RTTbytes that hosts begin with, message or wire bytes as the scheme counts them: derived
    /// from the network unless `options.rtt_bytes` says otherwise.
    #[serde(default)]
    pub rtt_bytes: u32,
    /// The largest message of each level's unscheduled bytes, lowest level first, 0 for scheduled
    /// levels; absent where hosts measure them.
    #[serde(default)]
    pub cutoffs: Option<[u32; 8]>,
    /// Messages submitted, measured or not.
    pub submitted: u64,
    /// Measured messages that had not arrived when the run ended, those lost for good included.
    pub undelivered: u64,
    /// Messages that their senders gave up, or that were lost for good (the network is empty and
    /// they have not arrived), measured or not: no percentile knows of them.
    #[serde(default)]
    pub failed: u64,
    /// Those of them that were to be measured.
    #[serde(default)]
    pub measured_failed: u64,
    /// Messages that a transport did not take, measured or not.
    #[serde(default)]
    pub refused: u64,
    /// Those of them that were to be measured.
    #[serde(default)]
    pub measured_refused: u64,
    /// Packets in the fabric when the run ended.
    pub in_flight: u64,
    /// Message bytes submitted, responses included.
    pub offered_bytes: u64,
    /// Message bytes delivered by the end of the run.
    pub delivered_bytes: u64,
}

/// Latency by message size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slowdown {
    /// What latencies were divided by.
    pub by: SlowdownBy,
    /// Mean over all messages.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Median over all messages.
    pub p50: Option<f64>,
    /// 99th percentile over all messages.
    pub p99: Option<f64>,
    /// By size, each bin 1 % of the messages, or one size at the head.
    pub buckets: Vec<Bucket>,
}

/// One bin of sizes. Intervals hold with 95 % confidence; an end is absent when the sample cannot
/// bound it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
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
    /// Where the median lies.
    pub p50_ci: [Option<f64>; 2],
    /// Where the 99th percentile lies.
    pub p99_ci: [Option<f64>; 2],
    /// Median latency, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of latency, microseconds.
    pub p99_us: Option<f64>,
    /// The 99th percentile of slowdown as the Homa authors' analysis takes it.
    #[serde(default)]
    pub by_receiver: Option<ByReceiver>,
}

/// Latency of the messages of one class in a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Which of the traffic's kinds of messages, from 0; most traffic has one.
    pub class: u8,
    /// Larger than this, bytes; 0 in the first range.
    pub above_bytes: u32,
    /// At most this; absent in the last range.
    pub max_bytes: Option<u32>,
    /// Messages measured.
    pub count: u64,
    /// Mean of their slowdowns.
    pub mean: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    #[serde(default)]
    pub max_us: f64,
    /// Those that were asked for.
    pub percentiles: Vec<GroupPercentile>,
}

/// A percentile over a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupPercentile {
    /// Per cent.
    pub percent: f64,
    /// Of slowdown.
    pub slowdown: f64,
    /// Of latency, microseconds.
    pub us: f64,
}

/// A percentile of each receiver's own messages, averaged over the receivers, each of which counts
/// as often as it has messages: how the published curves of Homa Figure 10 were made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByReceiver {
    /// 99th percentile of slowdown.
    pub p99: f64,
    /// Where the mean of the 99th percentiles lies, by how much receivers differ; nowhere with a
    /// single receiver.
    pub p99_ci: [Option<f64>; 2],
    /// Receivers that had messages in the bin.
    pub receivers: u32,
}

/// Queue lengths of each tier in wire bytes. `mean` and `max` as Homa Table 1 reads them: seen by
/// arriving frames, the frame in transmission left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// Host to TOR: the NIC, which the transport keeps empty.
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
    /// TOR to those hosts that receive, where others do not: without the ports on which only
    /// acknowledgements return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<QueueLength>,
}

/// Queue lengths over the ports of one tier, wire bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueLength {
    /// Mean seen by arriving frames: waiting frames only.
    pub mean_bytes: f64,
    /// Most seen by an arriving frame: waiting frames only.
    pub max_bytes: u64,
    /// Mean seen by arriving frames, the unsent rest of the frame in transmission included (as
    /// the authors' code counted).
    pub mean_bytes_with_residual: f64,
    /// Most, counted so.
    pub max_bytes_with_residual: u64,
    /// Mean over time of waiting frames.
    pub time_mean_bytes: f64,
    /// What 1 % of arriving frames find at most, to 64 bytes: waiting frames only.
    #[serde(default)]
    pub p1_bytes: u64,
    /// What half of them find.
    #[serde(default)]
    pub p50_bytes: u64,
    /// What 99 % of them find.
    #[serde(default)]
    pub p99_bytes: u64,
    /// Most that waited at all ports of the tier at once, to a frame per port: of a single switch,
    /// the memory it needs.
    #[serde(default)]
    pub together_max_bytes: u64,
    /// Frames that arrived.
    pub frames: u64,
}

/// The load in other terms, as shares of the host links' rate. 0 where all traffic starts at once,
/// as that of a permutation: it is no share of any time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// As asked for.
    pub asked: f64,
    /// In these bytes.
    pub basis: Basis,
    /// The same messages in the authors' wire bytes.
    pub paper: f64,
    /// The same messages in application bytes.
    pub payload: f64,
    /// What the seed really drew, in the authors' wire bytes.
    pub realised_paper: f64,
    /// What the seed really drew, in application bytes.
    pub realised_payload: f64,
    /// What really crossed the senders' links while traffic lasted, all packets.
    pub realised_wire: f64,
}

/// Incomplete messages, sampled while traffic lasted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Between samples, seconds.
    pub interval_seconds: f64,
    /// Bytes of submitted messages that had not been delivered, all hosts.
    pub bytes: Vec<u64>,
    /// Number of such messages.
    pub messages: Vec<u64>,
    /// Whether it grew without bound by the rule of `measure::backlog`.
    pub diverges: bool,
    /// Growth over the second half as a share of what was offered then.
    pub growth: f64,
    /// Seconds that the samples have to span before the rule says anything; absent where the
    /// scenario chooses no load.
    #[serde(default)]
    pub needs_seconds: Option<f64>,
}

impl Backlog {
    /// Whether the load is sustained; `None` where traffic was too short to tell, or is a list or a
    /// closed loop.
    pub fn is_sustained(&self) -> Option<bool> {
        let spanned = self.interval_seconds * self.bytes.len() as f64;
        (spanned >= self.needs_seconds?).then_some(!self.diverges)
    }
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Frames that found a full buffer.
    pub overflow: u64,
    /// Frames lost to a fault or a dead link.
    pub fault: u64,
    /// Packets that a transport refused (duplicates after a retransmission, for example).
    pub refused: u64,
}

/// What delayed the last packet of messages near p99 (Homa Figure 11), means in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TailDelay {
    /// Largest message looked at, bytes.
    pub max_bytes: u32,
    /// Messages looked at.
    pub messages: u64,
    /// Waiting for the rest of a frame of lower priority that was being sent.
    pub preemption_lag_us: f64,
    /// Waiting for frames of the same or higher priority.
    pub queueing_us: f64,
    /// The ends of the preemption lag's 95 % interval, by how much it changes when a twentieth of
    /// the messages, in the order of delivery, is left out.
    #[serde(default)]
    pub preemption_lag_ci: [Option<f64>; 2],
    /// Those of queueing.
    #[serde(default)]
    pub queueing_ci: [Option<f64>; 2],
    /// By place: at the sender's NIC, TOR up, core down, TOR down.
    pub by_hop: Vec<HopDelay>,
    /// The same of other ranks: how much depends on what is taken for near.
    #[serde(default)]
    pub around: Vec<RanksDelay>,
}

/// What delayed the last packet of the messages of some ranks, means in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksDelay {
    /// From this share of each bin's messages, by latency.
    pub from: f64,
    /// To this share.
    pub to: f64,
    /// Messages looked at.
    pub messages: u64,
    /// See [`TailDelay`].
    pub preemption_lag_us: f64,
    /// See [`TailDelay`].
    pub queueing_us: f64,
}

/// The waits at one place, means in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopDelay {
    /// `nic`, `tor_up`, `aggr_down`, `tor_down`.
    pub hop: String,
    /// See [`TailDelay`].
    pub preemption_lag_us: f64,
    /// See [`TailDelay`].
    pub queueing_us: f64,
}

/// Where the messages' time went: five parts that sum to the latency, exactly, message by message.
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
    /// Waiting at the sender behind other messages with bytes that might be sent.
    pub sender_queue_us: f64,
    /// Waiting at the sender for a grant.
    pub grant_wait_us: f64,
    /// Serialisation, propagation and fixed delays.
    pub wire_us: f64,
    /// Waiting in the fabric's ports.
    pub fabric_queue_us: f64,
    /// Waiting for a lost packet to be sent again.
    pub recovery_us: f64,
}
