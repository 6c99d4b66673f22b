//! All bytes and messages that we agreed to receive and have not received, in one place. Tests and
//! the swarm check that nothing of it is left when nothing is in progress.

use crate::endpoint::Endpoint;

/// Bytes that are or may be in flight to us, and what waits because of them. All zero if nothing is
/// in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Granted or unscheduled and not received, over all incomplete messages that are not
    /// suspended.
    pub expected: u64,
    /// Unscheduled bytes that responses may bring which have not begun (Homa §3.6).
    pub pending_unscheduled: u64,
    /// The part of `expected` that counts against the bound over all messages.
    pub granted: u64,
    /// The part of `granted` that belongs to messages that need no more grants.
    pub finishing: u64,
    /// Bytes of incomplete messages that count against the memory budget.
    pub memory: u64,
    /// The same, summed over the peers.
    pub memory_of_peers: u64,
    /// Messages that need grants.
    pub scheduled: usize,
    /// A message may exceed the memory budget.
    pub over_budget_message: bool,
    /// Messages with RESENDs or a NEED_ACK that wait for the link.
    pub resends_queued: u32,
}

impl Endpoint {
    /// Everything that is outstanding now. Looks at every peer.
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
