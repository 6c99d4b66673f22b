//! The simulator's integration tests, in one program: each costs a build, a link and disk.

mod automatic_allocation;
mod beside;
mod common;
mod comparisons;
mod conformance;
mod detail;
mod golden;
mod hull;
mod ideal;
mod incast;
mod ledger;
mod links;
mod overcommitment;
mod preemption;
mod receiving_links;
mod rivals;
mod starvation;
mod workflows;
