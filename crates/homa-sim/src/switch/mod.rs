//! Output-queued switch models as state machines: no clock, no socket, no simulator.
//!
//! Time comes in with every call. The software switch of the rack (`homa-testbed`) runs this
//! [`Port`] in real time; the simulator has a faster one of its own ([`crate::fabric`]), and a test
//! that both serve alike. Frames are opaque values; a model reads only what [`Frame`] offers. Left
//! out: ECN marking, shared memory between ports, forwarding. Beside it lie parts of other
//! switches: counters of drain bytes and priority flow control ([`drain_bytes`], [`pfc`]).

pub mod drain_bytes;
pub mod pfc;
mod port;
mod queue;

pub use port::{Departure, Port};
pub use queue::{Dropped, LevelCounters, QueueCounters, StrictPriorityQueue};

/// Priority levels of a port; level 0 is served last.
pub const LEVELS: usize = homa_proto::LEVELS;

/// What a switch may know of a frame.
pub trait Frame {
    /// Bytes on the wire, preamble and inter-frame gap included.
    fn bytes(&self) -> u32;

    /// Priority level 0 (lowest) to 7; larger values count as 7.
    fn priority(&self) -> u8;
}
