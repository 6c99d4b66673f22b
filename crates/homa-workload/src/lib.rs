//! Message-size workloads, arrivals, load arithmetic and exact quantiles: what an experiment offers
//! to a transport, and how its result is read.
//!
//! | module | what it decides |
//! |---|---|
//! | [`sizes`] | size distributions: W1-W5 of the Homa paper (Figure 1), a file, one constant |
//! | [`rng`] | named streams of random numbers from one seed |
//! | [`framing`] | what a message costs on the wire |
//! | [`cutoffs`] | priority cutoffs for a size distribution known in advance |
//! | [`demotion`] | PIAS's thresholds for a size distribution known in advance |
//! | [`load`] | from a load to RPCs per second and back |
//! | [`arrivals`] | who sends which RPC to whom, and when: the same for every transport |
//! | [`quantile`] | percentiles of recorded values |
//! | [`interval`] | 95 % confidence intervals of those percentiles |
//! | [`bins`] | latency by message size: bins of 1 % of the messages, tables of ten rows |
//! | [`nearest`] | the known name that a misspelt one was meant to be |
//! | [`text`] | files of text with byte order marks and foreign line ends, rows of tables |
//! | [`units`] | rates, times, bytes as people write them, for commands, plans and Python |
//!
//! Invariants: every result is a function of its arguments (no clock, no environment, logarithms
//! from `libm`), so the same seed gives the same experiment on every machine. Bytes are application
//! bytes of one message unless a name says `wire`.
//!
//! Left out: anything that sends. This crate knows no socket, no protocol and no simulator.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod bins;
pub mod cutoffs;
pub mod demotion;
pub mod framing;
pub mod interval;
pub mod load;
pub mod nearest;
pub mod quantile;
pub mod rng;
pub mod sizes;
pub mod text;
pub mod units;
