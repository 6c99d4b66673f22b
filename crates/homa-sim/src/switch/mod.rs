//! Switches without a simulator around them: no clock, no socket; time comes in with every call.
//!
//! The software switch of the rack (`homa-testbed`) runs [`Port`] and [`Paths`] in real time. What
//! happens to frames that wait is decided by the simulator's own queueing disciplines
//! ([`crate::fabric::queue`]); the simulator has a faster model of the link behind them
//! ([`crate::fabric`]), and a test that both serve alike. Frames are opaque values; a port reads
//! only what [`Frame`] offers. Left out: memory shared between ports. Beside it lie parts of other
//! switches: counters of drain bytes and priority flow control ([`drain_bytes`], [`pfc`]).

pub mod drain_bytes;
mod paths;
pub mod pfc;
mod port;

pub use paths::{Flow, Paths};
pub use port::{Departure, Dropped, Port};

use crate::fabric::Marks;

/// Priority levels of a port; level 0 is served last.
pub const LEVELS: usize = homa_proto::LEVELS;

/// What a switch may know of a frame.
pub trait Frame {
    /// Bytes on the wire, preamble and inter-frame gap included; more than 65,535 count as that.
    fn bytes(&self) -> u32;

    /// Priority level 0 (lowest) to 7; larger values count as 7.
    fn priority(&self) -> u8;

    /// The marks with which it comes.
    fn marks(&self) -> Marks {
        Marks::NONE
    }

    /// A switch marks it: those of [`Frame::marks`] and what was added.
    fn mark(&mut self, _marks: Marks) {}
}
