//! Traces record what happened to every packet: for reading, for Wireshark and for a checker.
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | typed events, and the probe that reports them |
//! | [`pcapng`] | the packets as a capture file with real Homa headers |
//! | [`checked`] | how much was checked, and the violations found |
//! | [`verify`] | reads events and checks that they obey physics |
//!
//! A trace in memory holds every packet of a run, so keep such runs short.

pub mod checked;
pub mod event;
pub mod pcapng;
pub mod verify;

pub use checked::{Checked, Count, Violation};
pub use event::{Recorder, TraceEvent, TraceListener};
pub use pcapng::Capture;
pub use verify::Verifier;
