//! Parameters of a scheme, what latencies are divided by, and what is measured.

use serde::{Deserialize, Serialize};

use super::units::Span;

/// Parameters that differ from the scheme's defaults; absent: the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchemeOptions {
    /// Headers around packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<FramingName>,
    /// Largest IP packet, 1500 to 9000 bytes; absent: 1500. Derived numbers (RTTbytes, loads, the
    /// authors' idle times) go on counting frames of 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// RTTbytes (Homa §3.2), bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_bytes: Option<u32>,
    /// Message bytes sent before the first grant.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
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
}

/// What is measured besides latency, load, drops and cost. What is off costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            queues: true,
            priorities: true,
            wasted_bandwidth: false,
            tail_delay: false,
            ledger: false,
        }
    }
}
