//! A deterministic packet-level simulator that runs Homa's own protocol code.
//!
//! A [`scenario`] describes a run, and [`experiment`] executes it. Hosts run a [`transport`], and
//! each port of a switch has a queueing discipline ([`fabric::queue`]).
//!
//! Equal scenarios give equal results on any machine. Results depend only on integers: picoseconds
//! ([`SimTime`]), bytes, and named streams of random numbers from the seed. They never depend on,
//! for example, the wall clock or the order of a hash map.
#![forbid(unsafe_code)]

pub mod checker;
pub mod clairvoyant;
mod draw;
pub mod engine;
pub mod experiment;
pub mod fabric;
mod headers;
pub mod measure;
pub mod nic;
pub mod scenario;
pub mod scheme;
pub mod software_switch;
pub mod swarm;
mod time;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod transport;

pub use headers::Headers;
pub use time::{LinkRate, SimDuration, SimTime};
pub use topology::HostId;
pub use transport::Transport;
