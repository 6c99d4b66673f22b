//! The result of a [`Verifier`](super::Verifier).

use std::fmt;

use homa_proto::Rate;

use crate::time::LinkRate;

/// A law of physics that a trace breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Index of the event, from 0.
    pub event: u64,
    /// The violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what)
    }
}

/// Frames and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Wire bytes.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Events read.
    pub events: u64,
    /// Frames that hosts sent.
    pub sent: Count,
    /// Extra copies made by links that duplicate.
    pub copied: Count,
    /// Frames delivered to receivers.
    pub received: Count,
    /// Frames lost on the way.
    pub lost: Count,
    /// Frames neither received nor lost when the run ended.
    pub in_flight: Count,
}

/// The simulator rounds link rates to whole Mbit/s, with a minimum of one.
pub(super) fn link_rate(rate: Rate) -> LinkRate {
    LinkRate::new(Rate::mbps((rate.0 / 1_000_000).max(1)))
}
