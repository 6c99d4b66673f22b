//! The laboratory: plans of simulations, sweeps over all cores, result tables, charts, reports, and
//! the reproduction of published figures.
//!
//! | module | what it does |
//! |---|---|
//! | [`plan`] | a TOML file becomes simulations; every mistake names its line, key and remedy |
//! | [`changes`] | changes that a caller makes to a plan, or a simulation without one |
//! | [`options`] | the options that schemes run with, defaults included |
//! | `foreseen` | warnings about a plan before it runs |
//! | [`sweep`] | runs them, each once, on every core |
//! | [`task`] | one of them as text that another process or machine can run |
//! | [`store`] | the folder of results, from which an interrupted sweep resumes |
//! | [`results`], [`table`] | outcomes as CSV and Parquet |
//! | [`repro`] | published figures: plans, values, tolerances, verdicts |
//! | [`headroom`] | HULL's rules for a given network, and a simulation of exactly that |
//! | [`tail`] | the cost of a long tail of round-trip times for services that need many answers |
//! | [`chart`], [`report`] | SVG figures in the papers' axes, one HTML page |
//!
//! Left out: everything that decides a number. Simulations are [`homa_sim`]'s; this crate chooses,
//! runs, compares and draws.
#![forbid(unsafe_code)]

mod anchored;
pub mod cell;
pub mod changes;
pub mod chart;
pub mod document;
mod embedded;
pub mod error;
mod foreseen;
pub mod headroom;
pub mod options;
pub mod plan;
mod refusal;
pub mod report;
pub mod repro;
pub mod results;
pub mod settings;
pub mod store;
pub mod sweep;
pub mod table;
pub mod tail;
pub mod task;
