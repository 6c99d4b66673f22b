//! What a [`Verifier`](super::Verifier) found.

use std::fmt;

/// A law of physics that a trace breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The event, counted from 0.
    pub event: u64,
    /// What is wrong.
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

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Events.
    pub events: u64,
    /// Sent by hosts.
    pub sent: Count,
    /// Made by links that duplicate.
    pub copied: Count,
    /// Given to receivers.
    pub received: Count,
    /// Lost.
    pub lost: Count,
    /// Neither, at the end of the run.
    pub under_way: Count,
}
