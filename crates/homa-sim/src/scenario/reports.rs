//! Parts of an outcome that only some scenarios have: single flows, probes, rounds, collectives,
//! groups of long flows, results by scheme, NICs, workflows, pauses and timeouts.
//! [`outcome`](super::outcome) has the rest.

use serde::{Deserialize, Serialize};

use super::collective::Operation;
use super::options::SchemeOptions;
use super::outcome::Slowdown;

/// The latency of one message. Sender and number identify it, and they are the same under every
/// scheme if traffic does not depend on the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowTime {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    #[serde(default)]
    pub dst: u32,
    /// Number of the message at the sending host, from 1.
    pub number: u32,
    /// Message bytes.
    pub bytes: u32,
    /// When it was submitted, microseconds.
    #[serde(default)]
    pub start_us: f64,
    /// From submission to delivery, microseconds.
    pub us: f64,
    /// `us` divided by the time that `slowdown` defines. Absent in older results.
    #[serde(default)]
    pub slowdown: Option<f64>,
}

/// How the user's table of sizes was understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeTable {
    /// Rows, what lies between them, and units: `12 points, linear between points, shares in per
    /// cent, sizes in bytes`.
    pub form: String,
    /// Mean size of the messages, bytes, to a tenth.
    pub mean_bytes: f64,
    /// The mean that the table's first line states, in its unit of sizes.
    pub stated_mean: Option<f64>,
}

/// Results of one of the two schemes that share the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// Name of the scheme.
    pub scheme: String,
    /// Its options as it ran, with all defaults written out.
    #[serde(default)]
    pub options: SchemeOptions,
    /// Whether it is the scheme of `beside`.
    pub beside: bool,
    /// Number of hosts that run it.
    pub hosts: u32,
    /// Measured messages that arrived.
    pub messages: u64,
    /// Measured messages that had not arrived when the run ended.
    pub undelivered: u64,
    /// Share of these hosts' downlinks that carried frames while traffic lasted; 0 if nothing was
    /// measured.
    pub utilisation: f64,
    /// Latency by message size, with the same divisor as that of all messages.
    pub slowdown: Slowdown,
}

/// How much longer probes took than in the idle network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeDelays {
    /// Probes that arrived.
    pub count: u64,
    /// Probes, not in `count`, that took longer than `probes.lost_after`.
    #[serde(default)]
    pub lost: u64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 95 % interval of the 99th percentile.
    pub p99_us_ci: [Option<f64>; 2],
}

/// Times of rounds: RPCs that begin together, measured until the last one of them has ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// Rounds that began after the warm-up and ended.
    pub count: u64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// How long messages took that wait for each other, and the computations between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionTime {
    /// Number of messages.
    pub messages: u64,
    /// Those that arrived. A message does not begin if one that it waits for failed or was lost.
    pub arrived: u64,
    /// From the first beginning to the last end, microseconds; absent unless all have ended.
    pub us: Option<f64>,
}

/// The time of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveTime {
    /// The operation.
    pub operation: Operation,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of every rank's buffer.
    pub bytes: u64,
    /// Until the last rank has its last message, microseconds; absent if that is not reached.
    pub us: Option<f64>,
    /// The least time that hosts' links allow, microseconds: message bytes without headers, and no
    /// delays.
    pub bound_us: f64,
    /// `us` divided by `bound_us`.
    pub over_bound: Option<f64>,
    /// The bus bandwidth of NCCL's tests, Gbit/s. At the bound it is the rate of a host's link.
    pub bus_gbps: Option<f64>,
}

/// Rates of a group of flows that last longer than the run, measured on the senders' links in wire
/// bytes, including retransmissions. If a host sends several flows, each of them counts the bytes
/// of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowGroupRate {
    /// Number of flows.
    pub flows: u32,
    /// Mean over them, Gbit/s.
    pub mean_gbps: f64,
    /// Rate of the slowest, Gbit/s.
    pub min_gbps: f64,
    /// Rate of the fastest, Gbit/s.
    pub max_gbps: f64,
    /// Jain's index, which is 1 if all rates are equal.
    pub fairness: f64,
    /// Mean of the rates at which their receivers' links carried frames, of these and of any other
    /// flows, Gbit/s. Absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_gbps: Option<f64>,
}

/// Activity of NICs and processors while traffic was measured (HULL §4.1). A burst is a sequence of
/// packets of one kind at one host with less than 50 us between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NicReport {
    /// Mean time for which packets of paced flows waited for tokens.
    pub pacer_wait_us: Option<f64>,
    /// Share of the time that the processors of receiving hosts spent on packets.
    pub receiver_cpu: f64,
    /// The same for the busiest host.
    pub busiest_cpu: f64,
    /// Frames received per interrupt, at receiving hosts.
    pub frames_per_interrupt: Option<f64>,
    /// Message bytes received per packet without message bytes that was sent, at receiving hosts.
    pub bytes_per_ack: Option<f64>,
    /// Mean message bytes of a burst that a host sent.
    pub burst_bytes: Option<f64>,
    /// Mean time from the start of a burst to the start of the host's next one.
    pub burst_period_us: Option<f64>,
    /// Mean number of packets in a received burst of packets without message bytes.
    pub acks_per_burst: Option<f64>,
    /// Mean time from the first to the last packet of such a burst.
    pub ack_span_us: Option<f64>,
}

/// How long the workflows of a class took, from their first request to their last response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTimes {
    /// Name of the class.
    pub name: String,
    /// Requests per step. If absent, the entry counts all workflows of the class.
    pub fan_out: Option<u32>,
    /// Measured workflows that are complete.
    pub count: u64,
    /// Workflows that should have been measured, but a request of them failed.
    pub failed: u64,
    /// Workflows that should have been measured, but were incomplete when the run ended.
    pub unfinished: u64,
    /// Mean time of complete workflows, microseconds; absent if there are none.
    pub mean_us: Option<f64>,
    /// Maximum time of complete workflows, microseconds; absent if there are none.
    pub max_us: Option<f64>,
    /// The percentiles of `measures.groups.percentiles`, by default the 50th, 99th and 99.9th.
    pub percentiles: Vec<LatencyPercentile>,
}

/// A percentile of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPercentile {
    /// Per cent, e.g. 99.9.
    pub percent: f64,
    /// Microseconds.
    pub us: f64,
}

/// Activity of priority flow control (IEEE 802.1Qbb), and which port waits for which when the run
/// ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    /// Control frames sent.
    pub control_frames: u64,
    /// How often a level of a port was paused.
    pub count: u64,
    /// The longest pause of a level, microseconds, including pauses that last until the end.
    pub longest_us: f64,
    /// The pauses of all levels of all ports together, microseconds, including those that last
    /// until the end.
    #[serde(default)]
    pub total_us: f64,
    /// The ports that were paused. A port is named after its two ends, e.g. `h3->tor0`.
    #[serde(default)]
    pub ports: Vec<PausedPortTimes>,
    /// Ports that hold frames of paused levels at the end.
    pub stuck: Vec<StuckPort>,
    /// A deadlock: a cycle of these ports in which a level of each port waits for a level of the
    /// next, and the last port waits for the first. Empty if there is none.
    pub deadlock: Vec<String>,
}

/// The pauses of one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PausedPortTimes {
    /// Name of the port.
    pub port: String,
    /// How often a level of it was paused.
    pub count: u64,
    /// The pauses of its levels together, microseconds, including those that last until the end.
    pub paused_us: f64,
}

/// A port that waits because it is paused. A port is named after its two ends, e.g. `tor0->aggr1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckPort {
    /// Name of the port.
    pub port: String,
    /// Levels of the waiting frames.
    pub levels: Vec<u8>,
    /// Simulated time when the pause began, microseconds.
    pub since_us: f64,
    /// The ports to which the next switch would forward the waiting frames.
    pub waits_for: Vec<String>,
}

/// Retransmission timeouts (RTOs) of all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeoutCounts {
    /// Number of RTOs.
    pub expired: u64,
    /// Flows with at least one RTO. A flow of TCP is the sending end of a connection.
    pub flows: u64,
    /// `flows` in per cent of the messages or RPCs submitted.
    pub percent: f64,
    /// Those of messages or RPCs at a level above 0 that the traffic chooses; absent if it chooses
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<RaisedTimeouts>,
}

/// Retransmission timeouts of messages at a level above 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RaisedTimeouts {
    /// Flows with at least one RTO.
    pub flows: u64,
    /// In per cent of the messages or RPCs submitted at such levels.
    pub percent: f64,
}

/// Utilisation of the links of each tier while traffic lasted, the mean over links. Absent if the
/// network has no such link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// Host to TOR.
    pub host_up: Option<f64>,
    /// TOR to aggregation or spine.
    pub tor_up: Option<f64>,
    /// Aggregation to core.
    pub aggr_up: Option<f64>,
    /// Core to aggregation.
    pub core_down: Option<f64>,
    /// Aggregation or spine to TOR.
    pub aggr_down: Option<f64>,
    /// TOR to host; the only tier below a single switch.
    pub tor_down: Option<f64>,
    /// Between the switches of a graph.
    pub fabric: Option<f64>,
}
