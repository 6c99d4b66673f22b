//! A deterministic packet-level simulator that runs Homa's own protocol code.
//!
//! A scenario describes a run ([`scenario`]) and [`experiment`] executes it. Hosts run a transport
//! ([`transport`]); the ports of switches have a queueing discipline ([`fabric::queue`]).
//!
//! Equal scenarios give equal results on any machine, because everything that a result depends on
//! is an integer in this crate: picoseconds ([`SimTime`]), bytes and named random streams. For
//! example, no result may depend on the wall clock or on the order of a hash map.
#![forbid(unsafe_code)]

pub mod checker;
pub mod clairvoyant;
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
