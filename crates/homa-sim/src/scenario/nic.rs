//! Parameters of NICs besides the pacer, and of the processor time that packets take (HULL §4.1). A
//! feature is off if its parameter is absent.

use serde::{Deserialize, Serialize};

use super::units::{self, Span};

/// Large send offload, interrupt coalescing and receive offload in every host's NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NicOptions {
    /// Maximum wire bytes that the host hands to the NIC as one large send. With 0 it hands over
    /// packets one by one, as soon as they may be sent. Default: the NIC takes one packet whenever
    /// its wire is free.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub large_send: Option<u32>,
    /// Wire bytes that may wait in the NIC if `large_send` is set. Default: 1,538,000.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub send_queue: Option<u32>,
    /// Frames per interrupt (rx-frames). With 0 every frame interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
    /// Maximum time from the first frame to its interrupt (rx-usecs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_delay: Option<Span>,
    /// Minimum time between interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_gap: Option<Span>,
    /// Who sets the minimum time between interrupts, instead of `interrupt_gap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<InterruptsName>,
    /// Maximum wire bytes of consecutive frames of a flow that are merged before the host receives
    /// them. Default: no frames are merged.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub merge: Option<u32>,
    /// Processor time that packets take. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuOptions>,
}

/// A rule for the minimum time between interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptsName {
    /// Linux' driver `e1000e` at 1 Gbit/s: 50 or 250 us, by what the card sends and receives.
    E1000e,
}

/// Processor time per event. The defaults reproduce the statements of HULL §4.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuOptions {
    /// Time per interrupt. Default: 1.2 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<Span>,
    /// Time per received frame. Default: 0.25 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<Span>,
    /// Time per delivery to the network stack, i.e. per frame or merged frames. Default: 3 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Span>,
    /// Time per packet with message bytes, or large send, that the host hands over. Default: 1.4
    /// us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<Span>,
}
