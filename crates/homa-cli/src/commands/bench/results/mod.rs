//! The output of `homa bench`: documents, tables, sentences and the chart. Decides nothing.

pub mod chart;
pub mod forecast;
pub mod memory;
pub mod queueing;
pub mod report;
pub mod summary;
pub mod table;
