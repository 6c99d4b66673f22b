//! Parts of an outcome that only some scenarios have: flows one by one, probes, rounds, groups of
//! long flows, kinds of hosts, network cards, workflows, pauses, timeouts.
//! [`outcome`](super::outcome) has the rest.

use serde::{Deserialize, Serialize};

use super::outcome::Slowdown;

/// What one message took. Sender and number name it: the same under every scheme, where traffic
/// does not depend on the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowTime {
    /// Sending host.
    pub src: u32,
    /// Its number at that host, from 1.
    pub number: u32,
    /// Message bytes.
    pub bytes: u32,
    /// From submission to delivery, microseconds.
    pub us: f64,
}

/// What became of the messages between hosts of one of two kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// What these hosts run.
    pub scheme: String,
    /// They are those of the scenario's `beside`.
    pub beside: bool,
    /// How many they are.
    pub hosts: u32,
    /// Measured messages that arrived.
    pub messages: u64,
    /// Measured messages that had not arrived when the run ended.
    pub undelivered: u64,
    /// Share of their receiving links that carried frames while traffic lasted; 0 where nothing
    /// was measured.
    pub utilisation: f64,
    /// Latency by message size, divided as that of all messages.
    pub slowdown: Slowdown,
}

/// What probes took beyond their time in the idle network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeDelays {
    /// Probes that arrived.
    pub count: u64,
    /// Probes beside these that took longer than `probes.lost_after`.
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
    /// Where the 99th percentile lies, with 95 % confidence.
    pub p99_us_ci: [Option<f64>; 2],
}

/// How long rounds of RPCs took that began together, each until its last one ended.
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

/// What a group of flows that last longer than the run sent, each on its sender's link: wire bytes,
/// what was sent again included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowGroupRate {
    /// Number of flows.
    pub flows: u32,
    /// Mean over them, Gbit/s.
    pub mean_gbps: f64,
    /// Of the slowest.
    pub min_gbps: f64,
    /// Of the fastest.
    pub max_gbps: f64,
    /// Jain's index: 1 where all have the same.
    pub fairness: f64,
}

/// What network cards and processors did while traffic was measured (HULL §4.1). A burst: packets
/// of one kind, at one host, with less than 50 us between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NicReport {
    /// Mean time for which packets of paced flows waited for tokens.
    pub pacer_wait_us: Option<f64>,
    /// Share of the time for which packets kept the processors of receiving hosts busy.
    pub receiver_cpu: f64,
    /// The same of the busiest host.
    pub busiest_cpu: f64,
    /// Frames that came to receiving hosts, per interrupt.
    pub frames_per_interrupt: Option<f64>,
    /// Message bytes that came to receiving hosts, per packet without any that they sent.
    pub bytes_per_ack: Option<f64>,
    /// Mean message bytes of a burst that a host sent.
    pub burst_bytes: Option<f64>,
    /// Mean time from the start of a burst to that of the host's next one.
    pub burst_period_us: Option<f64>,
    /// Mean number of packets of a burst without message bytes that came to a host.
    pub acks_per_burst: Option<f64>,
    /// Mean time from its first to its last packet.
    pub ack_span_us: Option<f64>,
}

/// How long the workflows of a class took, from their first request to their last response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowTimes {
    /// The class.
    pub name: String,
    /// Only those whose steps have so many requests; absent: all of the class.
    pub fan_out: Option<u32>,
    /// Workflows that were measured and are through.
    pub count: u64,
    /// Workflows that were to be measured, and of which a request was given up.
    pub failed: u64,
    /// Workflows that were to be measured, and were under way when the run ended.
    pub unfinished: u64,
    /// Mean of those that are through, microseconds; absent: none is.
    pub mean_us: Option<f64>,
    /// The longest of them, microseconds.
    pub max_us: Option<f64>,
    /// Those of `measures.groups.percentiles`, else the 50th, 99th and 99.9th.
    pub percentiles: Vec<LatencyPercentile>,
}

/// A percentile of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPercentile {
    /// Per cent.
    pub percent: f64,
    /// Microseconds.
    pub us: f64,
}

/// What priority flow control did (IEEE 802.1Qbb), and who waits for whom when the run ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    /// Control frames sent.
    pub control_frames: u64,
    /// Times that a level of a port was paused.
    pub count: u64,
    /// The longest time that one was paused, microseconds; those that last to the end included.
    pub longest_us: f64,
    /// Ports that have frames of paused levels at the end.
    pub stuck: Vec<StuckPort>,
    /// Of those a circle in which a level of each is locked by one of the next, and the last by the
    /// first: a deadlock. Empty: there is none.
    pub deadlock: Vec<String>,
}

/// A port that waits because it is paused. Ports are named by their two ends: `tor0->aggr1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckPort {
    /// Which.
    pub port: String,
    /// Levels of the frames that wait.
    pub levels: Vec<u8>,
    /// Simulated time since when, microseconds.
    pub since_us: f64,
    /// The ports that the frames in front of it are bound for.
    pub waits_for: Vec<String>,
}

/// What retransmission timers did, all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeoutCounts {
    /// Times that one expired.
    pub expired: u64,
    /// Flows with at least one such time: of TCP, sending ends of connections.
    pub flows: u64,
    /// Per cent of the messages or RPCs submitted that these are.
    pub percent: f64,
}

/// Share of the links of each tier that carried frames while traffic lasted, the mean over links;
/// absent where the network has no such link.
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
    /// TOR to host; the only one of a single switch.
    pub tor_down: Option<f64>,
    /// Between the switches of a graph.
    pub fabric: Option<f64>,
}
