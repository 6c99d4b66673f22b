//! Homa for everyone: RPCs with low tail latency in user space, over UDP, without privileges.
mod client;
mod config;
pub mod driver;
mod engine;
pub mod error;
mod handle;
mod message;
pub mod metrics;
mod pacer;
mod priority_map;
mod server;

pub use client::{Call, Client};
pub use config::{CallOptions, Config};
pub use engine::inline;
pub use error::{CallError, DrainTimeout, OpenError, ReplyError};
pub use handle::Engine;
pub use homa_proto as proto;
pub use message::Message;
pub use priority_map::PriorityMap;
pub use server::{Accept, Request, Server};
