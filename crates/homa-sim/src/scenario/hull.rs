//! Parameters of HULL's phantom queues and pacers (NSDI 2012). Defaults are those of the paper.

use serde::{Deserialize, Serialize};

use super::queue_bytes::QueueBytes;
use super::units::{self, Span};

/// A phantom queue at every port of a switch (HULL §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhantomOptions {
    /// Whether there is a phantom queue. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Drain rate as a share of the link's rate (gamma). Default: 0.95 (HULL §6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<f64>,
    /// Packets are marked above this many virtually queued bytes. Default: one BDP of the port, at
    /// least 1000 bytes (HULL §6, at 1 Gbit/s: 1000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<QueueBytes>,
    /// Whether the bytes of a packet count for the packet itself. Default: they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<PhantomOrderName>,
    /// Which packets count. Default: those that leave the port (HULL §2.1, remark 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PhantomPlaceName>,
    /// The queue drains at multiples of this time (HULL §5.1: 800 ns). The default, `0ns`, means
    /// continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
    /// Wire bytes of each packet that do not count. Default: 24 (preamble, gap, checksum).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub uncounted: Option<u16>,
}

/// Whether the bytes of a packet count for the packet itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhantomOrderName {
    /// They do not: the packet is marked if earlier packets exceed the threshold.
    #[default]
    CompareThenAdd,
    /// They do: the packet is marked if it and earlier packets together exceed the threshold.
    AddThenCompare,
}

/// Which packets a phantom queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhantomPlaceName {
    /// Packets that leave the port.
    #[default]
    Series,
    /// Packets that arrive at the port.
    Parallel,
}

/// The pacer in every host's NIC (HULL §4.2). Defaults are those of the paper's testbed (Table 3)
/// if the link is slower than 10 Gbit/s, otherwise those of its simulation (§6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacerOptions {
    /// Whether there is a pacer. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Time between updates of the rate (T_r).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
    /// Weight of the latest period in the measured rate (eta).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Weight of the backlog, per second (beta).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// Probability that an ACK with an ECN echo associates its flow with the pacer (p_a).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// How long a flow stays associated (T_i).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Span>,
    /// Capacity of the token bucket, bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub depth: Option<u32>,
    /// Tokens are added at multiples of this time; `0ns` means continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
}
