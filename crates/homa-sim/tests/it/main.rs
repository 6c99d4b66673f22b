//! The simulator's integration tests. They are modules of one program because every test program
//! costs a build, a link step and disk space.

mod automatic_allocation;
mod beside;
mod collectives;
mod common;
mod comparisons;
mod conformance;
mod dcpim;
mod detail;
mod files;
mod frames;
mod golden;
mod hull;
mod ideal;
mod incast;
mod ledger;
mod limits;
mod links;
mod loads;
mod lossless;
mod overcommitment;
mod partitions;
mod powertcp;
mod preemption;
mod rdma;
mod receiving_links;
mod resolved;
mod rivals;
mod starvation;
mod swift;
mod uet;
mod validated;
mod workflows;
