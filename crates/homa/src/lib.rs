//! Homa for everyone: RPCs with low tail latency, in user space, without privileges.

mod config;
pub mod driver;
mod engine;
pub mod error;
mod message;
pub mod metrics;
mod pacer;
mod priority_map;

pub use config::{CallOptions, Config};
pub use engine::inline;
pub use error::{CallError, DrainTimeout, OpenError, ReplyError};
pub use homa_proto as proto;
pub use message::Message;
pub use priority_map::PriorityMap;
