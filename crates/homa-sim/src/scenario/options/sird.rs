//! Parameters of SIRD. Defaults are those of its evaluation (NSDI 2025; the authors' simulator,
//! `nsdi25/large-scale-common.default`), as multiples of the bandwidth-delay product of a host.

use serde::{Deserialize, Serialize};

use crate::scenario::units::{self, Span};

/// Parameters of SIRD (NSDI 2025). BDP is `bdp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SirdOptions {
    /// Bytes of a full IP packet; absent: 1500.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// The bandwidth-delay product of a host, wire bytes. Default: RTTbytes of the network, rounded
    /// up to full packets.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub bdp: Option<u32>,
    /// Credit that a receiver may have at all senders (B), BDP. Default: 1.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<f64>,
    /// Credit that a receiver may have at one sender (SBmax), BDP. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_credit: Option<f64>,
    /// A sender that holds more credit than this and has several messages to send marks its data
    /// (SThr), BDP. Default: 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csn_threshold: Option<f64>,
    /// Messages of at most this many wire bytes are sent without asking (UnschT), BDP. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsolicited: Option<f64>,
    /// Weight of the latest period in the marked fraction (g). Default: 0.08.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The least credit of a sender whose host marks, share of `sender_credit`. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_floor: Option<f64>,
    /// The least credit of a sender whose packets switches mark, share of `sender_credit`.
    /// Default: 0.03.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_floor: Option<f64>,
    /// Which message a receiver grants next. Default: the one with the fewest bytes missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<SirdOrderName>,
    /// Share of a sender's link for the receiver of its shortest message; the rest is divided
    /// equally. Default: 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest_share: Option<f64>,
    /// What travels at the higher of two priority levels. Default: control and unsolicited data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<SirdFirstName>,
    /// How long a sender waits for an answer, and a receiver for credit to come back as data.
    /// Default: 20 round trips, at least 1 ms (inferred; the authors' simulator has no losses).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend: Option<Span>,
}

/// Which message a receiver of SIRD grants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SirdOrderName {
    /// The one with the fewest bytes missing.
    Srpt,
    /// All in turn.
    Fair,
}

/// What travels at the higher of SIRD's two priority levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SirdFirstName {
    /// Control packets and unsolicited data.
    Unsolicited,
    /// Control packets.
    Control,
    /// Nothing: all packets have the same level.
    Nothing,
}
