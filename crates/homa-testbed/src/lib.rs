//! A rack on one machine: hosts in network namespaces with real kernel links, a software switch
//! that runs the simulator's own port model in real time, and load generators for the transports
//! compared on it. Nothing here needs root.
//!
//! ```text
//! host0 ── queue ── uplink ─┐             ┌─ port 0 ── downlink ── host0
//! host1 ── queue ── uplink ─┤   switch    ├─ port 1 ── downlink ── host1
//! ...                       └─────────────┘     ...
//! ```
//! The hosts' queues and stacks are the kernel's ([`link`]); uplinks, ports and downlinks are
//! computed by the switch, which delivers each frame at the end of its serialisation
//! ([`SwitchInterval`] says how exactly). A program calls [`isolate`] before it starts threads,
//! then builds [`Rack`]s as it likes.
//!
//! Instead of the one switch there can be a small fabric ([`Topology::LeafSpine`]), computed by the
//! same thread, whose links become slower or fail under load. Left out: propagation delay but that
//! of uplinks, hosts with more than one link, priority flow control: a pause would have to reach
//! into the queue of a kernel's network card, and a veth pair has none that heeds it.

pub mod check;
mod error;
pub mod hull;
pub mod link;
mod memory;
mod namespace;
mod pauses;
mod placement;
mod rack;
mod run;
mod switch;
mod sys;
mod transport;

pub use error::TestbedError;
pub use link::VethPair;
pub use memory::{Memory, Trend, UNNOTICED_GROWTH};
pub use namespace::{Isolation, Namespace, isolate};
pub use pauses::Pauses;
pub use rack::{Degraded, Host, LEAVES, Rack, RackConfig, Topology};
pub use run::{IdleTimes, Pattern, Record, RunPlan, RunReport, run};
pub use switch::{Faults, Lateness, Marking, Queueing, SwitchInterval};
#[cfg(feature = "grpc")]
pub use transport::RawCodec;
pub use transport::{
    Done, POOL, RackRpc, RpcTransport, SMALL_RPC_BYTES, Transport, UnknownTransport,
};
