//! Parameters of schemes, the divisors of latencies, and the measures.

mod dcpim;
mod phost;
mod rdma;
mod sird;
mod uet;

use serde::{Deserialize, Serialize};

use super::hull::{PacerOptions, PhantomOptions};
use super::nic::NicOptions;
use super::queue_bytes::QueueBytes;
use super::transports::{NdpOptions, PFabricOptions, SwitchOptions};
use super::units::{self, Span};

pub use dcpim::DcpimOptions;
pub use phost::{PHostFirst, PHostOptions};
pub use rdma::{
    DcqcnOptions, DcqcnPresetName, DctcpRdmaOptions, HpccOptions, PowerTcpOptions, RdmaOptions,
    SwiftOptions, TimelyOptions,
};
pub use sird::{SirdFirstName, SirdOptions, SirdOrderName};
pub use uet::{UetOptions, UetPathsName};

/// Parameters that differ from the scheme's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchemeOptions {
    /// Headers around packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<FramingName>,
    /// Largest IP packet, 1500 to 9000 bytes. Default: 1500. Derived numbers (RTTbytes, loads, the
    /// authors' idle times) always assume 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// RTTbytes (Homa §3.2), bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub rtt_bytes: Option<u32>,
    /// Message bytes that a sender may send before the first grant.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub unscheduled_bytes: Option<u32>,
    /// Priority levels that Homa allocates, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Priority levels of the network, 1 to 8. If there are fewer than `levels`, adjacent levels
    /// are merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_levels: Option<u8>,
    /// Levels for scheduled packets (Homa §3.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_levels: Option<u8>,
    /// Degree of overcommitment: messages granted at a time (Homa §3.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommitment: Option<u8>,
    /// Largest message of each unscheduled level but the last, bytes, ascending (Homa §3.4).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub cutoffs: Option<Vec<u32>>,
    /// Ratio of the bytes of one unscheduled level to those of the next higher one. With 1 all
    /// levels carry the same number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutoff_weight: Option<f64>,
    /// The last RTTbytes of a message travel at unscheduled priority (authors' simulator).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_boost: Option<bool>,
    /// Incast control (Homa §3.6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incast_control: Option<bool>,
    /// Time without a packet after which a receiver sends a RESEND, and between further RESENDs
    /// (Homa §3.7); at least 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend_after: Option<Span>,
    /// When switches mark congestion, for schemes whose hosts react to marks (RFC 8257 §3.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<EcnConfig>,
    /// Phantom queues, for the same schemes. They replace the scheme's ECN threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomOptions>,
    /// The pacer in NICs, for schemes whose hosts run TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacer: Option<PacerOptions>,
    /// Offloads of NICs and costs of processors, for schemes whose hosts run TCP or Homa.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicOptions>,
    /// Options of the scheme `pfabric`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfabric: Option<PFabricOptions>,
    /// Options of the scheme `phost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phost: Option<PHostOptions>,
    /// Options of the scheme `ndp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndp: Option<NdpOptions>,
    /// Options of the scheme `sird`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sird: Option<SirdOptions>,
    /// Options of the scheme `dcpim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcpim: Option<DcpimOptions>,
    /// Options of schemes whose hosts run Ultra Ethernet's transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uet: Option<UetOptions>,
    /// Options of schemes whose hosts have RDMA's queue pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaOptions>,
    /// Options of the scheme `hpcc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpcc: Option<HpccOptions>,
    /// Options of the scheme `dcqcn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcqcn: Option<DcqcnOptions>,
    /// Options of the scheme `timely`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timely: Option<TimelyOptions>,
    /// Options of the scheme `dctcp-rdma`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dctcp_rdma: Option<DctcpRdmaOptions>,
    /// Options of the schemes `powertcp` and `theta-powertcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powertcp: Option<PowerTcpOptions>,
    /// Options of the scheme `swift`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swift: Option<SwiftOptions>,
    /// Options of switches that pause their senders, or queue at their inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchOptions>,
    /// Options of schemes whose hosts run TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpOptions>,
}

impl SchemeOptions {
    /// The options for Homa schemes that are set: the key of each, and what it controls.
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

    /// The largest MTU that is given for any hosts.
    pub(crate) fn largest_mtu(&self) -> Option<u32> {
        let Self { mtu, pfabric, phost, ndp, sird, dcpim, uet, rdma, tcp, .. } = self;
        let mtus = [
            *mtu,
            pfabric.and_then(|pfabric| pfabric.mtu),
            phost.and_then(|phost| phost.mtu),
            ndp.and_then(|ndp| ndp.mtu),
            sird.and_then(|sird| sird.mtu),
            dcpim.and_then(|dcpim| dcpim.mtu),
            uet.and_then(|uet| uet.mtu),
            rdma.and_then(|rdma| rdma.payload.map(|payload| payload.saturating_add(100))),
            tcp.as_ref().and_then(|tcp| tcp.mtu),
        ];
        mtus.into_iter().flatten().max()
    }

    /// The tables of hosts' options that are set: the key of each, and what it holds.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let given = [
            ("options.pfabric", self.pfabric.is_some(), "pFabric's parameters"),
            ("options.phost", self.phost.is_some(), "pHost's parameters"),
            ("options.ndp", self.ndp.is_some(), "NDP's parameters"),
            ("options.sird", self.sird.is_some(), "SIRD's parameters"),
            ("options.dcpim", self.dcpim.is_some(), "dcPIM's parameters"),
            ("options.uet", self.uet.is_some(), "Ultra Ethernet's parameters"),
            ("options.rdma", self.rdma.is_some(), "queue pairs"),
            ("options.hpcc", self.hpcc.is_some(), "HPCC's parameters"),
            ("options.dcqcn", self.dcqcn.is_some(), "DCQCN's parameters"),
            ("options.timely", self.timely.is_some(), "TIMELY's parameters"),
            ("options.dctcp_rdma", self.dctcp_rdma.is_some(), "parameters of DCTCP by rate"),
            ("options.powertcp", self.powertcp.is_some(), "PowerTCP's parameters"),
            ("options.swift", self.swift.is_some(), "Swift's parameters"),
            ("options.tcp", self.tcp.is_some(), "TCP's parameters"),
            ("options.pacer", self.pacer.is_some(), "pacers in NICs"),
            ("options.nic", self.nic.is_some(), "NICs with options"),
        ];
        given.into_iter().filter(|(_, given, _)| *given).map(|(name, _, what)| (name, what))
    }
}

/// Parameters of TCP that differ from the scheme's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpOptions {
    /// Congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<AlgorithmName>,
    /// Whether switches may mark packets instead of dropping them and hosts react to marks
    /// (RFC 3168).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// Largest IP packet, 200 to 9000 bytes. Default: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Retransmission timeout (RTO) before the first RTT sample (RFC 6298 §2.1), at least
    /// `min_rto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_rto: Option<Span>,
    /// Minimum RTO (RFC 6298 §2.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rto: Option<Span>,
    /// Maximum RTO (RFC 6298 §2.5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rto: Option<Span>,
    /// Clock granularity G of the RTO (RFC 6298 §2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_granularity: Option<Span>,
    /// How long an ACK waits for a second segment. With `0ns` every segment is acknowledged at
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_ack: Option<Span>,
    /// Maximum bytes in flight besides the limit of the congestion window, as socket buffers set
    /// it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub window: Option<u32>,
    /// Initial congestion window, segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Permanent connections per client and server. With 0 every message uses a new connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// How one of several connections is picked for a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<PickName>,
    /// Whether connections begin with SYN and SYN-ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<bool>,
    /// Whether an idle connection restarts from its initial window (RFC 5681 §4.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_restart: Option<bool>,
    /// Whether three duplicate ACKs retransmit a segment. If false, only RTOs do (DeTail).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_retransmit: Option<bool>,
    /// Selective acknowledgements (RFC 6675).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// Loss detection by time, and tail loss probes (RACK-TLP, RFC 8985).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<bool>,
    /// Whether segments carry time stamps (RFC 7323), 12 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<bool>,
    /// Largest message of each class but the last, bytes, ascending. The first class has the
    /// highest level, and classes do not share connections.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub size_classes: Option<Vec<u32>>,
    /// If more drain bytes than this wait in a host's egress queue, the host marks its packets,
    /// which halves the window as a switch's mark does (DeTail §4.2.4: 65536).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub source_ecn: Option<u32>,
    /// Bytes of a message after which its packets use the next lower level (PIAS), ascending.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub demotion: Option<Vec<u32>>,
    /// Timeouts in a row after which a connection is given up; 0: never. Default: 15.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_timeouts: Option<u32>,
    /// A sender waits until this part of its window, e.g. 3 for a third, may leave as one large
    /// send (Linux: `tcp_tso_win_divisor`). Default: it sends every segment that the window
    /// allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tso_win_divisor: Option<u32>,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmName {
    /// RFC 5681.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257; for schemes whose hosts react to marks.
    Dctcp,
}

/// How one of several connections is picked for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickName {
    /// At random.
    #[default]
    Random,
    /// An idle one, if there is one.
    Idle,
}

/// When the port of a switch marks arriving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnConfig {
    /// Packets are marked if more wire bytes than this wait (K).
    pub threshold: QueueBytes,
    /// Which waiting bytes count.
    #[serde(default)]
    pub scope: EcnScopeName,
    /// Which ports mark.
    #[serde(default)]
    pub links: EcnLinksName,
}

impl EcnConfig {
    /// Marks at every port, by the bytes of the packet's priority level.
    pub const fn new(threshold: QueueBytes) -> Self {
        Self { threshold, scope: EcnScopeName::Queue, links: EcnLinksName::All }
    }
}

/// Which waiting bytes are compared with a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EcnScopeName {
    /// Bytes of the packet's priority level.
    #[default]
    Queue,
    /// Bytes of all levels of the port.
    Port,
}

/// The links at whose ports switches mark packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EcnLinksName {
    /// All.
    #[default]
    All,
    /// Links between switches. Ports to hosts do not mark, because receivers schedule those links
    /// themselves (SIRD; Ultra Ethernet with receiver credit).
    Fabric,
}

/// Headers around packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FramingName {
    /// Headers of the authors' simulator: 1442 message bytes in an unscheduled frame, 1456 in a
    /// scheduled one.
    Paper,
    /// IP protocol 146, as in the Linux kernel module.
    Ip146,
    /// UDP datagrams.
    Udp,
    /// Encrypted UDP datagrams: 16 bytes more for each packet.
    UdpSealed,
}

/// The divisor of latencies. A plan names it, because papers use different ones. The latency of an
/// RPC is divided by the sum of the times of its request and its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowdownBy {
    /// The formula of the Homa authors' code: 1472 bytes per frame, and no switch delay within a
    /// rack.
    #[default]
    Authors,
    /// The same formula with the switch delay within a rack.
    AuthorsCorrected,
    /// The measured time of the same message, alone in the same network under the same scheme.
    Idle,
    /// Like `Idle`, less the time of the first frame on the receiver's link. Those are the divisors
    /// that pHost's published slowdowns in Homa Figure 10 fit (inferred from their shape over size
    /// and from the authors' code, YAPS). One-way messages only.
    IdleFirstOnce,
    /// The best time of any scheme with the same frames: the measured time of the first frame, then
    /// the other frames at the rate of the slowest link.
    Best,
    /// Like `Best`, measured until the sender has received the last ACK. The time of that ACK in an
    /// idle network is added to the latency, too (pFabric, pHost, PIAS). One-way messages only.
    BestAcked,
    /// The message bytes, without headers, at the rate of the slowest link of the path, and the
    /// delays of its links: no frame is stored on the way (SIRD). One-way messages only.
    Bare,
    /// Like `Bare`, and a full frame is stored on the way; measured until the sender has received
    /// the last ACK, whose time in an idle network is added to the latency, too (dcPIM). One-way
    /// messages only.
    BareAcked,
}

/// Measures besides latency, load, drops and cost. A measure costs nothing if it is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measures {
    /// Queue lengths per tier (Homa Table 1).
    pub queues: bool,
    /// Wire bytes per priority level (Homa Figure 14).
    pub priorities: bool,
    /// Share of the time that receivers' links idle although senders wait for grants (Homa Figure
    /// 13).
    pub wasted_bandwidth: bool,
    /// Causes of delay of messages near p99 (Homa Figure 11).
    pub tail_delay: bool,
    /// The parts of every message's latency.
    pub ledger: bool,
    /// Means and percentiles over ranges of sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Report every message larger than this many bytes, e.g. to compare it with the same message
    /// under another scheme.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub flows_above: Option<u32>,
}

/// Ranges of message sizes, and the percentiles to report for each besides the mean. Most papers
/// report latency in this form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// The largest message of each range but the last, bytes, ascending.
    #[serde(deserialize_with = "units::bytes")]
    pub up_to: Vec<u32>,
    /// Percentiles, e.g. 99.9.
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
