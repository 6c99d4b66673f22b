//! What we agreed to receive and have not, in one place: tests and the swarm demand that none of it
//! outlives what it was for.

use crate::endpoint::Endpoint;

/// Bytes that are on their way to us or may be, and what waits because of them. All zero when
/// nothing is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Granted or unscheduled and not received, over all incomplete messages of senders that speak.
    pub expected: u64,
    /// Unscheduled bytes that responses not begun may bring (Homa §3.6).
    pub pending_unscheduled: u64,
    /// What of `expected` counts against the bound on all grants together.
    pub granted: u64,
    /// What of `granted` belongs to messages that need no more grants.
    pub finishing: u64,
    /// Bytes of incomplete messages that count against the memory budget.
    pub memory: u64,
    /// The same, added up over the peers.
    pub memory_of_peers: u64,
    /// Messages that need grants.
    pub scheduled: usize,
    /// A message may exceed the memory budget.
    pub over_budget_message: bool,
    /// Messages whose questions wait for the link.
    pub resends_queued: u32,
}

impl Endpoint {
    /// What is outstanding now. Looks at every peer.
    pub fn credit(&self) -> Credit {
        let totals = &self.grants;
        Credit {
            expected: totals.expected,
            pending_unscheduled: totals.pending_unscheduled,
            granted: totals.granted,
            finishing: totals.finishing,
            memory: totals.memory,
            memory_of_peers: self.peers.iter().flatten().map(|peer| peer.cold.grants.memory).sum(),
            scheduled: self.grants.scheduler.by_age().count(),
            over_budget_message: totals.over_budget_message.is_some(),
            resends_queued: self.control.resends(),
        }
    }
}
