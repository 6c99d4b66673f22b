//! Measures: what is read off a run, each as its paper defines it.
//!
//! | module | what it measures |
//! |---|---|
//! | [`latency`] | exact percentiles of slowdown and latency, by bins of 1 % of the messages |
//! | [`ideal`] | what a latency is divided by: three named choices |
//! | [`backlog`] | incomplete messages over time, and whether they grow without bound |
//! | [`wasted`] | links that idle although senders wait for grants |
//! | [`journey`], [`findings`] | where messages' time went: the ledger, the tail's delays |
//! | [`workflows`] | how long workflows of requests took |
//! | [`probes`] | how long messages waited that were sent for nothing else |
//! | [`nics`] | what network cards and processors did |
//! | [`headroom`] | HULL's two rules: what bandwidth given away costs, how much is needed |
//! | [`queue_probe`] | queue lengths, priority use |
//! | [`cost`] | CPU time and memory of the run itself |
//!
//! A measure that watches packets is a [`crate::engine::Probe`]; one that is off is compiled out.

pub mod backlog;
pub mod cost;
pub mod findings;
pub mod headroom;
pub mod ideal;
pub mod journey;
pub mod latency;
pub mod nics;
pub mod probes;
pub mod queue_probe;
pub mod throughput;
pub mod wasted;
pub mod workflows;
