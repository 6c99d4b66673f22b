//! Parameters of pFabric, NDP and DeTail's switches. Defaults follow their papers and the
//! network.
//!
//! BDP is the bandwidth-delay product in packets: RTTbytes of the network divided by the size of a
//! full packet.

use serde::{Deserialize, Serialize};

use super::units::{self, Span};

/// Parameters of pFabric (SIGCOMM 2013).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PFabricOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets are sent without Ethernet framing and are 38 bytes smaller, as ns-2 counts. Default:
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// Initial window of a flow, packets. Default: BDP (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Maximum window, packets. Default: one less than a port's queue holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<u32>,
    /// Packets that can wait at a port of a switch, unless `fabric.buffer` sets a limit. Default:
    /// 2 BDP (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// RTO. Default: three round trips (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// After this many RTOs in a row a flow sends only probes. Default: 5 (pFabric §4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_after: Option<u32>,
}

/// Parameters of NDP (SIGCOMM 2017).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NdpOptions {
    /// Bytes of a full IP packet. Default: 1500. The paper uses 9000.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets of a message that are sent before the first pull. Default: BDP plus a port's queue.
    /// The paper uses 30 of 9000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Full packets that can wait at a port. Default: 8 (NDP §3.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// RTO of a packet for which neither an ACK, a NACK nor its returned header has arrived.
    /// Default: 5 ms (the authors' code).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Whether senders avoid paths with unusually many NACKs. Default: true (NDP §3.1.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoid_bad_paths: Option<bool>,
    /// Whether packets that are sent again leave a host before new packets of all messages, and the
    /// packet for a permit is chosen when the permit arrives, as in the authors' simulator (htsim).
    /// Default: false. Packets leave in the order of their permits, and each is the next of its
    /// message at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_first: Option<bool>,
}

/// Switches that replace those of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchKind {
    /// Switches that drop frames if a queue is full (DeTail's flow hashing).
    Combined,
    /// Switches that pause their senders before a queue is full (DeTail).
    Lossless,
    /// Output-queued switches whose ports share memory, and whose inputs pause their senders when
    /// they reach a share of what is free (HPCC's simulator). Queues and marks stay those of the
    /// scheme.
    Shared,
}

/// Parameters of switches that queue at inputs and outputs (DeTail §4.2), and of those that share
/// memory. The memory of each side of a port of the former is `fabric.buffer`, by default 131,072
/// wire bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchOptions {
    /// Replaces the scheme's switches. Default: the scheme's switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SwitchKind>,
    /// Rate of the crossbar as a multiple of the fastest link's rate. Default: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<u32>,
    /// Time from a frame's last bit to the forwarding decision. Default: none, because
    /// `fabric.switch_delay` includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Span>,
    /// Whether inputs have one queue per output. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_outputs: Option<bool>,
    /// Whether output queues drop frames without room, and frames of lower levels do not count
    /// against a frame; for switches that do not pause. Default: false. Frames without room at
    /// their output wait at their input then, and all levels count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_drops: Option<bool>,
    /// Number of levels for which thresholds must be safe, or which have a reserve and headroom in
    /// shared memory. Default: 8, for queue pairs over shared memory 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priorities: Option<u8>,
    /// An input pauses its sender above this many drain bytes. Default: derived from the link by
    /// DeTail's rule (§4.3.1).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub pause: Option<u32>,
    /// An input resumes its sender below this many drain bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub unpause: Option<u32>,
    /// Time from the arrival of a pause frame at a sender until the sender stops. Default: 512 bit
    /// times up to 1 Gbit/s (DeTail §4.3.1), above that the time that IEEE 802.3 allows at the rate
    /// of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Span>,
    /// Wire bytes that all ports of a switch share. This and the next four are of the kind
    /// `shared`. Default: 16 MiB for a host's link of 50 Gbit/s, and in proportion.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub memory: Option<u64>,
    /// A level of an input is paused when it holds this share of the free bytes, for links as fast
    /// as those of hosts. It doubles with the rate of faster ones, up to 1. Default: 0.125.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Wire bytes that each level of an input has besides. Default: 4096.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub reserve: Option<u32>,
    /// A level continues when it is this many bytes below its limit. Default: 3072.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub resume_gap: Option<u32>,
    /// Wire bytes of each level for what arrives after it was paused. Default: what the link and
    /// `response` require, and a frame.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub headroom: Option<u32>,
}
