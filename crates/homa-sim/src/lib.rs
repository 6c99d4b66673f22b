//! A deterministic packet-level simulator that runs Homa's own protocol code.
//!
//! Everything a result depends on is here and integer: picoseconds ([`SimTime`]), bytes, named
//! random streams. A scenario says what to simulate ([`scenario`]), [`experiment`] runs it; hosts
//! are transports ([`transport`]), ports of switches have queues ([`fabric::queue`]).
#![forbid(unsafe_code)]

pub mod checker;
pub mod clairvoyant;
mod draw;
pub mod engine;
pub mod experiment;
pub mod fabric;
mod framing;
pub mod measure;
pub mod nic;
pub mod scenario;
pub mod scheme;
pub mod swarm;
pub mod switch;
mod time;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod transport;

pub use framing::Framing;
pub use time::{LinkRate, SimDuration, SimTime};
pub use topology::HostId;
pub use transport::Transport;
