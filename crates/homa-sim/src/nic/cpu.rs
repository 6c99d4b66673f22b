//! The part of a host's processor that packets use: one server that does one task after another
//! (HULL §4.1: the purpose of offloads).
//!
//! The paper gives no costs. Three follow from its statements about 10 Gbit/s: an interrupt per
//! frame saturates the receiver and costs 1.8 Gbit/s (`interrupt` + `frame` are 1.45 us);
//! interrupts per eight frames or fewer load it heavily; and without large send offload the sender
//! saturates at some 3 Gbit/s less (`send`, including the cost of acknowledgements). Left out:
//! applications, several cores, caches.

use homa_proto::{Duration, Time};

/// Processor time of each task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuConfig {
    /// An interrupt of the network card.
    pub interrupt: Duration,
    /// A frame taken out of the receive ring.
    pub frame: Duration,
    /// A delivery to the network stack: one frame, or several merged ones.
    pub delivery: Duration,
    /// A packet or a large send that the network stack hands to the card.
    pub send: Duration,
}

impl CpuConfig {
    /// Costs with which the statements of HULL §4.1 hold.
    pub const PAPER: Self = Self {
        interrupt: Duration(1_200),
        frame: Duration(250),
        delivery: Duration(3_000),
        send: Duration(1_400),
    };
}

/// A processor, busy until a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// Cost of each task.
    pub config: CpuConfig,
    /// When it becomes idle.
    free_at: Time,
    /// Nanoseconds of work accepted so far.
    busy: u64,
}

impl Cpu {
    /// An idle processor.
    pub fn new(config: CpuConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Works for `cost`, from `now` or when it becomes idle; returns when it is done.
    pub fn work(&mut self, now: Time, cost: Duration) -> Time {
        self.busy += cost.0;
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }

    /// When it becomes idle.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Nanoseconds of work done until `now`, without accepted work that is not done yet.
    pub fn busy_until(&self, now: Time) -> u64 {
        self.busy - self.free_at.0.saturating_sub(now.0).min(self.busy)
    }
}
