//! Parameters of a scheme, what latencies are divided by, and what is measured.

use serde::{Deserialize, Serialize};

use super::hull::{PacerOptions, PhantomOptions};
use super::nic::NicOptions;
use super::transports::{NdpOptions, PFabricOptions, PHostOptions, SwitchOptions};
use super::units::{self, Span};

/// Parameters that differ from the scheme's defaults; absent: the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchemeOptions {
    /// Headers around packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<FramingName>,
    /// Largest IP packet, 1500 to 9000 bytes; absent: 1500. Derived numbers (RTTbytes, loads, the
    /// authors' idle times) go on counting frames of 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// RTTbytes (Homa §3.2), bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub rtt_bytes: Option<u32>,
    /// Message bytes sent before the first grant.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub unscheduled_bytes: Option<u32>,
    /// Priority levels that are allocated, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Priority levels of the network, 1 to 8: with fewer, adjacent levels are merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_levels: Option<u8>,
    /// Levels for scheduled packets (Homa §3.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_levels: Option<u8>,
    /// Messages granted at a time (Homa §3.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommitment: Option<u8>,
    /// Largest message of each unscheduled level but the last, bytes, ascending (Homa §3.4).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub cutoffs: Option<Vec<u32>>,
    /// How many times the bytes of an unscheduled level the next lower one gets; 1: all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutoff_weight: Option<f64>,
    /// The last RTTbytes of a message travel at unscheduled priority (authors' simulator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_boost: Option<bool>,
    /// Incast control (Homa §3.6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incast_control: Option<bool>,
    /// Silence after which a RESEND is sent, and then again (Homa §3.7); at least 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend_after: Option<Span>,
    /// Where switches mark congestion, for schemes whose hosts heed it (RFC 8257 §3.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<EcnConfig>,
    /// Phantom queues, for the same schemes; replaces the scheme's own threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomOptions>,
    /// The pacer in NICs, for schemes whose hosts run TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacer: Option<PacerOptions>,
    /// What NICs and processors do, for schemes whose hosts run TCP or Homa.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicOptions>,
    /// Of the scheme `pfabric`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfabric: Option<PFabricOptions>,
    /// Of the scheme `phost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phost: Option<PHostOptions>,
    /// Of the scheme `ndp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndp: Option<NdpOptions>,
    /// Of schemes whose switches queue at their inputs, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchOptions>,
    /// Of schemes whose hosts run TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpOptions>,
}

impl SchemeOptions {
    /// The options of Homa's own that are given, and what each sets.
    pub fn homas(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let given = [
            ("options.framing", self.framing.is_some(), "a choice of headers"),
            ("options.mtu", self.mtu.is_some(), "their MTU under this key"),
            ("options.rtt_bytes", self.rtt_bytes.is_some(), "RTTbytes"),
            ("options.unscheduled_bytes", self.unscheduled_bytes.is_some(), "unscheduled bytes"),
            ("options.levels", self.levels.is_some(), "priority levels to allocate"),
            ("options.network_levels", self.network_levels.is_some(), "levels to merge"),
            ("options.scheduled_levels", self.scheduled_levels.is_some(), "scheduled levels"),
            ("options.overcommitment", self.overcommitment.is_some(), "overcommitment"),
            ("options.cutoffs", self.cutoffs.is_some(), "cutoffs"),
            ("options.cutoff_weight", self.cutoff_weight.is_some(), "cutoffs"),
            ("options.tail_boost", self.tail_boost.is_some(), "a boost of the last bytes"),
            ("options.incast_control", self.incast_control.is_some(), "incast control"),
            ("options.resend_after", self.resend_after.is_some(), "RESENDs"),
        ];
        given.into_iter().filter(|(_, given, _)| *given).map(|(name, _, what)| (name, what))
    }
}

/// What differs from the defaults of a scheme whose hosts run TCP; absent: the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpOptions {
    /// What governs the congestion window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<AlgorithmName>,
    /// Switches may mark instead of drop, and hosts heed the marks (RFC 3168).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// Largest IP packet, 200 to 9000 bytes; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Retransmission timeout before the first measurement (RFC 6298 §2.1), at least `min_rto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_rto: Option<Span>,
    /// Least retransmission timeout (RFC 6298 §2.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rto: Option<Span>,
    /// Greatest retransmission timeout (RFC 6298 §2.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rto: Option<Span>,
    /// Granularity of the timers' clock (RFC 6298 §2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_granularity: Option<Span>,
    /// How long an acknowledgement waits for a second segment; `0ns`: every one is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_ack: Option<Span>,
    /// Most bytes sent and not acknowledged, whatever the congestion window is: what sockets'
    /// buffers allow.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub window: Option<u32>,
    /// First congestion window, segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Permanent connections per client and server; 0: a new one per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Which of several connections takes a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<PickName>,
    /// Connections begin with SYN and SYN-ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<bool>,
    /// A silent connection starts again from its initial window (RFC 5681 §4.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_restart: Option<bool>,
    /// Three duplicates send a segment again; otherwise only timeouts do (DeTail).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_retransmit: Option<bool>,
    /// Selective acknowledgements (RFC 6675).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// Losses by time, probes of the tail (RFC 8985).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<bool>,
    /// Segments carry time stamps (RFC 7323), 12 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// Largest message of each class but the last, bytes, ascending: the first class has the
    /// highest level and each class connections of its own.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub size_classes: Option<Vec<u32>>,
    /// Drain bytes in a host's own egress queue above which its packets are marked, which halves
    /// the window as a switch's mark does (DeTail §4.2.4: 65536).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub source_ecn: Option<u32>,
    /// Bytes of a message before its packets fall to the next lower level (PIAS), ascending.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub demotion: Option<Vec<u32>>,
}

/// A congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmName {
    /// RFC 5681.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257; for schemes whose hosts heed marks.
    Dctcp,
}

/// Which connection of several takes a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickName {
    /// Any.
    #[default]
    Random,
    /// One that has nothing to do, if there is one.
    Idle,
}

/// Where the port of a switch marks arriving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnConfig {
    /// When more wire bytes wait than these (K).
    #[serde(deserialize_with = "units::bytes")]
    pub threshold: u32,
    /// Which of them are counted.
    #[serde(default)]
    pub scope: EcnScopeName,
}

/// Which waiting bytes are compared with a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EcnScopeName {
    /// Those of the packet's own priority level.
    #[default]
    Queue,
    /// Those of all levels of the port.
    Port,
}

/// Headers around packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FramingName {
    /// The authors' simulator: 1442 message bytes in an unscheduled frame, 1456 in a scheduled one.
    Paper,
    /// IP protocol 146, as the Linux kernel module.
    Ip146,
    /// UDP datagrams.
    Udp,
}

/// What a latency is divided by. Papers differ, so a plan names it. That of an RPC: by the times of
/// the request one way and of the response the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowdownBy {
    /// As the Homa authors coded it: 1472 bytes per frame, and no switch delay within a rack.
    #[default]
    Authors,
    /// The same with the switch delay that their formula drops within a rack.
    AuthorsCorrected,
    /// The time of the same message, alone in the same network under the same scheme, as measured.
    Idle,
    /// The best of any scheme with the same frames: the first one's time, as measured, and the
    /// others' at the rate of the slowest link behind it.
    Best,
    /// The same until the sender has the last acknowledgement, whose time alone is added to the
    /// latency, too (pFabric, pHost, PIAS); one-way messages only.
    BestAcked,
}

/// What is measured besides latency, load, drops and cost. What is off costs nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measures {
    /// Queue lengths per tier (Homa Table 1).
    pub queues: bool,
    /// Wire bytes per priority level (Homa Figure 14).
    pub priorities: bool,
    /// Time that receivers idle although senders wait for grants (Homa Figure 13).
    pub wasted_bandwidth: bool,
    /// What delays messages near p99 (Homa Figure 11).
    pub tail_delay: bool,
    /// Where every message's time went.
    pub ledger: bool,
    /// Means and percentiles over ranges of sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Every message larger than this, bytes, by itself: to be compared with the same message under
    /// another scheme.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub flows_above: Option<u32>,
}

/// Ranges of message sizes, and what is said of each besides the mean: as most papers but Homa's
/// report latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// The largest message of each range but the last, bytes, ascending.
    #[serde(deserialize_with = "units::bytes")]
    pub up_to: Vec<u32>,
    /// Percentiles, such as 99.9.
    pub percentiles: Vec<f64>,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            queues: true,
            priorities: true,
            wasted_bandwidth: false,
            tail_delay: false,
            ledger: false,
            groups: None,
            flows_above: None,
        }
    }
}
