//! Traces: what happened to every packet, for eyes, for Wireshark, and for a judge.
//!
//! | module | what it is |
//! |---|---|
//! | [`event`] | typed events and the probe that tells of them |
//! | [`pcapng`] | the packets as a capture file with real Homa headers |
//! | [`checked`] | what was checked, and what is wrong |
//! | [`verify`] | hears events and checks that physics holds |
//!
//! Kept in memory, a trace holds every packet of a run: keep small ones.

pub mod checked;
pub mod event;
pub mod pcapng;
pub mod verify;

pub use checked::{Checked, Count, Violation};
pub use event::{Listener, Recorder, TraceEvent};
pub use pcapng::Capture;
pub use verify::Verifier;
