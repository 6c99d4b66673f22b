//! Parameters of HULL's parts (NSDI 2012); what is absent follows the paper.

use serde::{Deserialize, Serialize};

use super::units::{self, Span};

/// A phantom queue at every port of a switch (HULL §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PhantomOptions {
    /// False: there is none; absent: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Drain rate, share of the link's (gamma); absent: 0.95 (HULL §6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<f64>,
    /// Bytes virtually queued beyond which packets are marked; absent: 1000 (HULL §6).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub threshold: Option<u32>,
    /// Whether a packet counts itself; absent: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<PhantomOrderName>,
    /// Which packets are counted; absent: those that leave (HULL §2.1, remark 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PhantomPlaceName>,
    /// It drains at multiples of this time (HULL §5.1: 800 ns); `0ns` and absent: continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
    /// Wire bytes of each packet that are not counted; absent: 24 (preamble, gap, checksum).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub uncounted: Option<u16>,
}

/// Whether a packet counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhantomOrderName {
    /// It is marked for what others left.
    #[default]
    CompareThenAdd,
    /// It is.
    AddThenCompare,
}

/// Which packets a phantom queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhantomPlaceName {
    /// Those that leave the port.
    #[default]
    Series,
    /// Those that arrive at it.
    Parallel,
}

/// The pacer in every host's NIC (HULL §4.2). Absent: the paper's testbed below 10 Gbit/s (Table
/// 3), its simulation (§6.3) from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacerOptions {
    /// False: there is none; absent: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Between changes of the rate (T_r).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
    /// Weight of the latest period (eta).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Weight of the backlog, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// That an echo of a mark associates its flow (p_a).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// How long a flow stays associated (T_i).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Span>,
    /// Most tokens, bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub depth: Option<u32>,
    /// Tokens come at multiples of this time; `0ns`: continuously.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
}
