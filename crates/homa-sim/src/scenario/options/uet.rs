//! Parameters of Ultra Ethernet's transport. Defaults are those of the authors' simulator,
//! `ultraethernet/uet-htsim`, revision 40ccb05, which follows version 1.0 of the standard.

use serde::{Deserialize, Serialize};

use crate::scenario::units::{self, Span};

/// Parameters of Ultra Ethernet's transport. BDP is that of `base_rtt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UetOptions {
    /// Wire bytes of a full packet, 64 of them headers. Default: 4150.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub mtu: Option<u32>,
    /// Round trip of a full packet and its acknowledgement over the longest empty path. Default:
    /// that of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rtt: Option<Span>,
    /// Full packets that a port holds before it trims. Default: BDP, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u32>,
    /// Up to this many full packets behind it, a packet is not marked (Kmin). At most
    /// `queue_packets`. Default: a fifth of BDP in packets, or of `queue_packets` if that is less,
    /// rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_from: Option<u32>,
    /// Above this many full packets behind it, a packet is always marked (Kmax). At most
    /// `queue_packets`. Default: four fifths of the same, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_all: Option<u32>,
    /// Queueing delay that windows aim at. Default: three quarters of `base_rtt`. Refused if only
    /// credit holds senders back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Span>,
    /// Initial window, and speculative credit, full packets. Default: `max_window` of the longest
    /// path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Maximum window, and the most credit of a message, BDP of the path. Default: 1.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<f64>,
    /// How a sender chooses the paths of packets. Default: mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<UetPathsName>,
    /// Entropy values of a flow, a power of two of at most 32768; 1: a single path. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropies: Option<u32>,
    /// Wire bytes after which a receiver acknowledges; 1: each packet. Default: 16384.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub ack_every: Option<u32>,
    /// RTO of a packet without any answer. It doubles each time that the packet is sent again.
    /// Default: 15 us and the time of six full queues at a host's link, or of one at every link of
    /// the longest path if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// How a sender of Ultra Ethernet chooses the paths of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UetPathsName {
    /// All entropy values in turn.
    Oblivious,
    /// In turn, without those whose packets were marked, trimmed or lost.
    Bitmap,
    /// Those of acknowledgements without a mark (REPS, EuroSys 2026).
    Reps,
    /// Those of acknowledgements without a mark, else by the bitmap.
    Mixed,
}
