//! Parameters of network cards beside the pacer, and of what packets cost a processor (HULL §4.1);
//! what is absent is not done.

use serde::{Deserialize, Serialize};

use super::units::{self, Span};

/// Large send offload, interrupt coalescing and receive offload in every host's NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NicOptions {
    /// Most wire bytes that the host hands over as one; 0: packets are handed over one by one, as
    /// soon as they may be sent. Absent: the card takes one when its wire is free.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub large_send: Option<u32>,
    /// Wire bytes that may wait in the card then; absent: 1,538,000.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub send_queue: Option<u32>,
    /// Frames until an interrupt (rx-frames); 0: each frame interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
    /// From the first frame to an interrupt (rx-usecs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_delay: Option<Span>,
    /// Least time between interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt_gap: Option<Span>,
    /// Most wire bytes of neighbouring frames of a flow that reach the host as one; absent: each by
    /// itself.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub merge: Option<u32>,
    /// What packets cost the host's processor; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuOptions>,
}

/// For how long a processor is busy with one of each; absent: as HULL §4.1's sentences demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuOptions {
    /// An interrupt; absent: 1.2 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<Span>,
    /// A frame that comes; absent: 0.25 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<Span>,
    /// What the network stack is given, a frame or several that were merged; absent: 3 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Span>,
    /// A packet with message bytes or a large send that is handed over; absent: 1.4 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<Span>,
}
