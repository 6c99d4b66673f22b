//! Parameters of pFabric, pHost, NDP and DeTail's switches; what is absent follows their papers and
//! the network.

use serde::{Deserialize, Serialize};

use super::units::{self, Span};

/// Of pFabric (SIGCOMM 2013). BDP: the packets that RTTbytes of the network make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PFabricOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets are not in Ethernet frames: 38 bytes less each, as ns-2 counts; absent: they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// The window that a flow begins with, packets; absent: BDP (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// The largest window, packets; absent: one less than a port's queue holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<u32>,
    /// Packets that wait at a port of a switch, unless `fabric.buffer` sets a limit; absent: 2 BDP
    /// (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// Until a packet is taken for lost; absent: three round trips (pFabric §5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Timeouts in a row from which on a flow probes; absent: 5 (pFabric §4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_after: Option<u32>,
}

/// Of pHost (CoNEXT 2015). A packet time: of a full packet on the host's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PHostOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets are not in Ethernet frames: 38 bytes less each, as YAPS counts; absent: they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<bool>,
    /// Packets that may be sent without tokens; absent: BDP (pHost §3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_tokens: Option<u32>,
    /// Messages that need more than those get them, too; absent: true. YAPS: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_for_long: Option<bool>,
    /// Unanswered tokens at which a message is downgraded; absent: BDP (pHost §3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// How long, packet times; absent: three round trips (pHost §3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downgrade: Option<f64>,
    /// How long a token is good for, packet times; absent: 1.5 (pHost §3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<f64>,
    /// Until packets that are missing get tokens again, packet times; absent: three round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend: Option<f64>,
    /// Which data has the higher of two priorities; absent: what was sent without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<PHostFirst>,
    /// Packets that wait at a port of a switch, unless `fabric.buffer` sets a limit; absent: 3 BDP
    /// (pHost §4.1: 36 KB).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
}

/// Data of pHost that goes before other data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PHostFirst {
    /// What was sent without tokens (Homa §2.2).
    Blind,
    /// Messages that free tokens suffice for (YAPS).
    Short,
    /// None: all data has one priority.
    All,
}

/// Of NDP (SIGCOMM 2017).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NdpOptions {
    /// Bytes of a full IP packet; absent: 1500. The paper: 9000.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Packets that a message pushes at once; absent: BDP and a port's queue. The paper: 30 of 9000
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Full packets that wait at a port; absent: 8 (NDP §3.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// Until a packet of which nothing was heard is sent again; absent: 5 ms (the authors' code).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Senders avoid paths with outstandingly many NACKs; absent: true (NDP §3.1.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoid_bad_paths: Option<bool>,
}

/// Switches that queue at their inputs, under schemes that have others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchKind {
    /// They drop what does not fit (DeTail's flow hashing).
    Combined,
    /// They pause their senders before they must drop (DeTail).
    Lossless,
}

/// Of switches that queue at their inputs, too (DeTail §4.2). How much a port holds on each side:
/// `fabric.buffer`; absent there: 131,072 wire bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchOptions {
    /// Whose switches; absent: the scheme's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SwitchKind>,
    /// Rate of the crossbar as a multiple of the fastest link's; absent: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<u32>,
    /// From a frame's last bit to the forwarding engine's verdict; absent: none, it is in
    /// `fabric.switch_delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Span>,
    /// Inputs have a queue per output; absent: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_outputs: Option<bool>,
    /// Levels for which pauses must come in time; absent: 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priorities: Option<u8>,
    /// Drain bytes above which an input pauses its sender; absent: by DeTail's rule (§4.3.1) from
    /// the link.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub pause: Option<u32>,
    /// Drain bytes below which the sender may go on.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub unpause: Option<u32>,
    /// From a control frame's being at a sender to its effect there; absent: 512 bit times up to 1
    /// Gbit/s (DeTail §4.3.1), above that what IEEE 802.3 allows at the rate of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Span>,
}
