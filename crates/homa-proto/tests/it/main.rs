//! The protocol's integration tests, in one program: each costs a build, a link and disk.

mod bounds;
mod common;
mod completion;
mod credit;
mod early;
mod extremes;
mod handover;
mod links;
mod long_service;
mod properties;
mod replay;
mod room;
mod several_ports;
mod sibling_shards;
mod silence;
mod simulator;
mod start_msg;
mod state_table;
mod transcripts;
mod unreachable;
mod upstream;
mod wire;
mod writing;
