//! The Homa transport protocol as a pure state machine: time is an argument, randomness is a seed,
//! packets are values. `no_std`, so that no socket, clock, thread or randomly seeded map can be
//! named at all.
//!
//! # The contract
//! | neighbour | in | out |
//! |---|---|---|
//! | application | [`Endpoint::submit`] | [`Endpoint::event`] |
//! | network | [`Endpoint::receive`] | [`Endpoint::transmit`] (the link pulls) |
//! | clock | [`Endpoint::expire`] | [`Endpoint::deadline`] |
//!
//! After an input: drain `event`, re-read `deadline`, offer `transmit`. `now` never decreases.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address_validation;
mod completion;
mod config;
mod counters;
mod coverage;
mod endpoint;
mod event;
mod grant;
mod incast;
mod link;
mod loss;
mod packet;
mod peer;
mod priority;
mod receive;
mod rpc;
mod send;
mod units;
mod util;
pub mod wire;

pub use address_validation::ClientDirectory;
pub use config::{
    Completion, Config, ConfigError, FULL_FRAME, GrantWindow, GrantedLevel, Granting, IncastConfig,
    LEVELS, LossConfig, Overcommitment, PriorityAllocation, Profile, UnknownRpcReply,
    UnscheduledLevel, UnscheduledLimit, ValidConfig,
};
pub use counters::Counters;
pub use coverage::Coverage;
pub use endpoint::Endpoint;
pub use event::{
    Delivered, DropReason, Event, MessageKind, Placement, Quoted, Receipt, Request, RpcError,
    RpcHandle, Submit, SubmitError, Submitted, Unreachable,
};
pub use grant::Credit;
pub use link::{LinkId, LinkInfo, Links, SiblingShards};
pub use packet::{
    AckEntry, Acks, Body, Data, Limits, MessageId, Packet, PeerId, Proof, ResendLength, RpcId, Span,
};
pub use peer::PeerInfo;
pub use units::{Duration, Rate, Time};
