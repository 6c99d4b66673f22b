//! Switches without a simulation: no clock and no socket, because the time is an argument of every
//! call.
//!
//! The software switch of the rack (`homa-testbed`) runs [`SoftwarePort`] and [`PathChooser`] in
//! real time. The simulator's own queueing disciplines ([`crate::fabric::queue`]) decide about
//! waiting frames. The simulator has a faster model of the link behind them ([`crate::fabric`]),
//! and a test checks that both serve alike. Frames are opaque values; a port reads only the methods
//! of [`SwitchFrame`]. Left out: memory shared between ports.

mod paths;
mod port;

pub use paths::{Flow, PathChooser};
pub use port::{Departure, Dropped, SoftwarePort};

use crate::fabric::Marks;

/// The properties of a frame that a switch may read.
pub trait SwitchFrame {
    /// Bytes on the wire, including preamble and inter-frame gap; at most 65,535 are counted.
    fn bytes(&self) -> u32;

    /// Priority level 0 (lowest) to 7; larger values count as 7.
    fn priority(&self) -> u8;

    /// The marks with which it arrives.
    fn marks(&self) -> Marks {
        Marks::NONE
    }

    /// Sets its marks: those of [`SwitchFrame::marks`] and the ones that the switch added.
    fn mark(&mut self, _marks: Marks) {}
}
