//! The processor of a host, as far as packets keep it busy: one server that does one thing after
//! another (HULL §4.1: what offloads are for).
//!
//! The paper gives no costs. Three follow from its sentences about 10 Gbit/s: an interrupt per
//! frame saturates the receiver and costs 1.8 Gbit/s (`interrupt` + `frame` are 1.45 us),
//! interrupts per eight frames or fewer burden it heavily, and without large send offload the
//! sender is saturated at some 3 Gbit/s less (`send`, with what acknowledgements cost it). Left
//! out: applications, several cores, caches.

use homa_proto::{Duration, Time};

/// How long a processor is busy with one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuConfig {
    /// An interrupt of the network card.
    pub interrupt: Duration,
    /// A frame taken out of the receive ring.
    pub frame: Duration,
    /// What the network stack is given: a frame, or several that were merged.
    pub delivery: Duration,
    /// What the network stack hands to the card: a packet, or a large send.
    pub send: Duration,
}

impl CpuConfig {
    /// Costs at which HULL §4.1's sentences hold.
    pub const PAPER: Self = Self {
        interrupt: Duration(1_200),
        frame: Duration(250),
        delivery: Duration(3_000),
        send: Duration(1_400),
    };
}

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// What things cost.
    pub config: CpuConfig,
    /// When it is idle again.
    free_at: Time,
    /// Nanoseconds for which it had to do so far.
    busy: u64,
}

impl Cpu {
    /// Idle.
    pub fn new(config: CpuConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Works for so long, from `now` or when it is idle; yields when it is done.
    pub fn work(&mut self, now: Time, cost: Duration) -> Time {
        self.busy += cost.0;
        self.free_at = self.free_at.max(now) + cost;
        self.free_at
    }

    /// When it is idle again.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Nanoseconds of work until `now`: what it has taken on and not done yet is left out.
    pub fn busy_until(&self, now: Time) -> u64 {
        self.busy - self.free_at.0.saturating_sub(now.0).min(self.busy)
    }
}
