//! Switches and links: output-queued ports with a queueing discipline each (`queue/`), joined by a
//! [`Wiring`](crate::topology::Wiring), or input-queued switches (`cioq/`). Output-queued switches
//! may share their memory between ports, with pauses by inputs (`shared.rs`).
//!
//! Ports are lazy: a port acts when an event touches it (`port.rs`), so that a packet costs one
//! event per hop.

mod alb;
pub mod cioq;
mod frames;
mod port;
pub mod queue;
pub mod shared;
mod spray;

pub use alb::{Alb, AlbPick, MOST as MOST_THRESHOLDS};
pub use cioq::{ChangingLink, CioqConfig, PfcConfig};
pub(crate) use frames::{Flights, List, NONE, Parcel};
pub use frames::{Frame, Marks};
pub(crate) use port::{Levels, LinkState, OutputPort};
pub use queue::{PortQueue, StrictPriority};
pub use shared::SharedConfig;
pub use spray::Forwarding;
pub(crate) use spray::{Chooser, by_sender, ecmp};

/// Memory of the switches' output ports. The queues of hosts have no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// No limit (Homa §5.2).
    #[default]
    Unlimited,
    /// Wire bytes per port, shared by all priorities. The frame in service counts until its last
    /// bit has left. If there is no room, the arriving frame is dropped.
    PerPort(u64),
    /// Wire bytes per port and priority level; the frame in service does not count.
    PerLevel(u64),
    /// One pool per switch; otherwise like `PerPort`.
    Shared {
        /// Wire bytes of the pool.
        bytes: u64,
        /// Largest share of the free memory that a port may hold, in per cent: the dynamic
        /// threshold of Choudhury and Hahne (1998). `u32::MAX` allows all free memory.
        alpha_percent: u32,
    },
}

/// Configuration of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricConfig {
    /// Choice among shortest paths.
    pub forwarding: Forwarding,
    /// Memory of switches.
    pub buffers: Buffers,
    /// A switch forwards a frame after 64 bytes of it, if none of its ports is faster than the link
    /// on which the frame arrives. Hosts always wait for the whole frame.
    pub cut_through: bool,
    /// A frame of higher priority interrupts the one in service at a switch's port. This turns
    /// `cut_through` off.
    pub preemption: bool,
    /// Switches also queue at their inputs; `buffers` does not apply to their memory. This needs
    /// the queue [`Combined`](queue::Combined), and excludes cut-through and preemption.
    pub cioq: Option<CioqConfig>,
    /// The ports of a switch share memory, and its inputs pause their senders; `buffers` should be
    /// unlimited then. This excludes cut-through, preemption, and queues that trim, evict or return
    /// frames.
    pub shared: Option<SharedConfig>,
    /// Seed of the stream `spray`.
    pub seed: u64,
}
