//! Traces: what happened to every packet, for eyes, for Wireshark, and for a judge.
//!
//! | module | what it is |
//! |---|---|
//! | [`event`] | typed events and the probe that keeps them |
//! | [`pcapng`] | the packets as a capture file with real Homa headers |
//! | [`verify`] | replays events and checks that physics holds |
//!
//! A trace holds every packet of a run: record small ones.

pub mod event;
pub mod pcapng;
pub mod verify;

pub use event::{Recorder, TraceEvent};
pub use pcapng::Capture;
pub use verify::{Verifier, Violation};
