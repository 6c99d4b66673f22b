//! Switches and links: output-queued ports, each with a queueing discipline (`queue/`), joined by a
//! [`Wiring`](crate::topology::Wiring); or switches that queue at their inputs, too (`cioq.rs`).
//!
//! Lazy: a port acts when it is looked at (`port.rs`), so a packet costs one event per hop.

mod alb;
pub mod cioq;
mod frames;
mod port;
pub mod queue;
mod spray;

pub use alb::{Alb, AlbPick, MOST as MOST_THRESHOLDS};
pub use cioq::{ChangingLink, CioqConfig, PfcConfig};
pub(crate) use frames::{Flights, List, NONE, Parcel};
pub use frames::{Frame, Marks};
pub(crate) use port::{Levels, OutputPort};
pub use queue::{PortQueue, StrictPriority};
pub use spray::Forwarding;
pub(crate) use spray::{Chooser, by_sender, ecmp};

/// Memory behind the output ports of switches. Hosts' own queues have no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// No limit (Homa §5.2).
    #[default]
    Unlimited,
    /// Wire bytes per port, shared by all priorities; the frame in service counts until its last
    /// bit has left. The arriving frame is dropped.
    PerPort(u64),
    /// Wire bytes per port and priority level; the frame in service does not count.
    PerLevel(u64),
    /// One pool per switch, otherwise as `PerPort`.
    Shared {
        /// Wire bytes.
        bytes: u64,
        /// Most that a port may hold, as a share of what is free: the dynamic threshold of
        /// Choudhury and Hahne (1998). Per cent; `u32::MAX`: as much as is free.
        alpha_percent: u32,
    },
}

/// What a fabric does with frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricConfig {
    /// Choice among shortest paths.
    pub forwarding: Forwarding,
    /// Memory of switches.
    pub buffers: Buffers,
    /// A switch sends a frame on when it has 64 bytes of it, if no port of the switch is faster
    /// than the link the frame comes by. Hosts always wait for the whole.
    pub cut_through: bool,
    /// A frame of higher priority interrupts the one in service at a switch's port. Not together
    /// with `cut_through`, which it turns off.
    pub preemption: bool,
    /// Switches queue at their inputs, too; their memory is not that of `buffers`. Needs the queue
    /// [`Combined`](queue::Combined), and neither cut-through nor preemption.
    pub cioq: Option<CioqConfig>,
    /// Seeds the stream `spray`.
    pub seed: u64,
}
