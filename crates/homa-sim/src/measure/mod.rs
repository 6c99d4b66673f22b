//! Measures: the results of a run, each as its paper defines it.
//!
//! | module | what it measures |
//! |---|---|
//! | [`latency`] | exact percentiles of slowdown and latency, by bins of 1 % of the messages |
//! | [`ideal`] | the divisor of latencies, by three named definitions |
//! | [`backlog`] | incomplete messages over time, and if they grow without bound |
//! | [`wasted`] | links that idle although senders wait for grants |
//! | [`journey`], [`findings`] | the parts of latencies: the ledger, the delays of the tail |
//! | [`workflows`] | the times of workflows of requests |
//! | [`completion`] | the time of a collective operation |
//! | [`probes`] | the waits of messages sent only to measure them |
//! | [`nics`] | the work of network cards and processors |
//! | [`headroom`] | HULL's two rules: the cost of giving up bandwidth, and the amount needed |
//! | [`queue_probe`] | queue lengths, priority use |
//! | [`cost`] | CPU time and memory of the run itself |
//!
//! A measure that observes packets is a [`crate::engine::Probe`]; if it is off, it is compiled out.

pub mod backlog;
pub mod completion;
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
