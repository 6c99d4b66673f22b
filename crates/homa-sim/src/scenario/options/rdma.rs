//! Parameters of RDMA's transport and its congestion controls. Defaults are those of the simulator
//! of HPCC's authors, `alibaba-edu/High-Precision-Congestion-Control`, revision 9f4be2a (`run.py`).

use serde::{Deserialize, Serialize};

use crate::scenario::queue_bytes::QueueBytes;
use crate::scenario::units::{self, Bandwidth, Span};

/// Parameters of queue pairs and of the switches between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdmaOptions {
    /// Message bytes of a full packet. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub payload: Option<u32>,
    /// Round trip of the longest path without queueing, T. Default: that of the network for a full
    /// packet's message bytes and an answer without bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rtt: Option<Span>,
    /// Bytes in flight are limited to what the present rate sends in `base_rtt`. Default: false for
    /// DCQCN and TIMELY.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<bool>,
    /// The lowest rate of a queue pair. Default: 1 Gbit/s, at most a 25th of the link's, under
    /// PowerTCP a 250th.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<Bandwidth>,
    /// Time without an answer after which a sender goes back. It doubles up to six times. Default:
    /// 4.194304 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Time until a receiver asks for the same byte again. Default: 500 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nack_every: Option<Span>,
    /// ACKs travel above data. Default: true for DCQCN and TIMELY, as `run.py` asks (its switches
    /// never do), and for Swift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acks_first: Option<bool>,
    /// Up to this many bytes of its level behind it, a packet is not marked (Kmin). Default: 32 us
    /// of the port's rate for DCQCN, 24 us for DCTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_from: Option<QueueBytes>,
    /// Above this many it always is (Kmax). Default: 128 us for DCQCN, 24 us for DCTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_all: Option<QueueBytes>,
    /// Probability of a mark at `mark_all` bytes (Pmax). Default: 0.2 for DCQCN, 1 for DCTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_most: Option<f64>,
}

/// Parameters of HPCC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HpccOptions {
    /// The utilisation that it aims at, η. Default: 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Increases without a look at the utilisation after each division (maxStage). Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<u32>,
    /// The increment. Default: a 2500th of the link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<Bandwidth>,
    /// Switches count in units of 128 bytes sent and 80 bytes queued, times this. Default:
    /// link/25 Gbit/s, rounded down, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int_unit: Option<u32>,
}

/// Parameters of DCQCN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DcqcnOptions {
    /// Where the defaults of the other keys come from. Default: hpcc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<DcqcnPresetName>,
    /// Time between updates of α. Default: 1 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha_every: Option<Span>,
    /// Time between cuts, at least. Default: 4 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_every: Option<Span>,
    /// Time between rises. Default: 300 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rise_every: Option<Span>,
    /// Weight of the newest update of α, g. Default: 1/256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Rises after a cut that leave the target as it is (F). Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recoveries: Option<u32>,
    /// Increment of the target at the next rise. Default: a 5000th of the link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<Bandwidth>,
    /// Increment at all later ones. Default: a 500th of the link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper: Option<Bandwidth>,
}

/// A set of DCQCN's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DcqcnPresetName {
    /// `dcqcn` of HPCC's simulator.
    Hpcc,
    /// Those of the SIGCOMM 2015 paper: α and cuts every 50 us, rises every 55 us, five recoveries,
    /// 40 and 400 Mbit/s.
    Sigcomm15,
}

/// Parameters of TIMELY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimelyOptions {
    /// Weight of the newest difference of round trips, α. Default: 0.875.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// How much the rate falls, β. Default: 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// Below this round trip the rate rises in any case (Tlow). Default: 50 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Span>,
    /// Above it the rate falls in any case (Thigh). Default: 500 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Span>,
    /// The round trip that differences are divided by. Default: 20 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_rtt: Option<Span>,
    /// The increment. Default: a 1000th of the link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<Bandwidth>,
    /// The increment after five rises in a row. Default: a 200th of the link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper: Option<Bandwidth>,
}

/// Parameters of DCTCP by rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DctcpRdmaOptions {
    /// Weight of the newest share of marks, g. Default: 1/16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The increment per round trip. Default: a full packet's message bytes per `base_rtt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<Bandwidth>,
}

/// Parameters of PowerTCP and θ-PowerTCP. Defaults are those of the simulator of their authors,
/// `inet-tub/ns3-datacenter`, revision 6ddb4a4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerTcpOptions {
    /// The power that they aim at, relative to that of a full link without a queue. Default: 0.95
    /// for PowerTCP, 1.05 for θ-PowerTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The share of the new rate that follows from the power, γ. Default: 0.9 and 0.7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The increment. Default: 3/500 of the link's rate, which is their constant at 25 Gbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<Bandwidth>,
    /// As [`HpccOptions::int_unit`]; for PowerTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int_unit: Option<u32>,
}

/// Parameters of Swift. Windows are full packets. Defaults are those of Google's simulator of Bolt
/// where it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwiftOptions {
    /// The target of a round trip without switches for a window of `scaled_to`. Default: 25 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Span>,
    /// Addition for each switch, ħ. Default: 1 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_switch: Option<Span>,
    /// The largest addition for small windows. Default: 100 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Span>,
    /// The window up to which the addition is `range`. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled_from: Option<f64>,
    /// The window from which on there is none. Default: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled_to: Option<f64>,
    /// Growth per round trip, ai. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additive: Option<f64>,
    /// The part of the excess by which a window is cut, β. Default: 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// The largest cut, as a share of the window (max_mdf). Default: 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_cut: Option<f64>,
    /// The first window. Default: what the link sends in `options.rdma.base_rtt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<f64>,
    /// The least window. Default: 15 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_window: Option<f64>,
    /// The largest window. Default: 373,760 bytes, or what the link sends in `base_rtt` if that is
    /// more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<f64>,
}
