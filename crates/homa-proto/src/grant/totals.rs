//! The state of granting over all messages of an endpoint.
//!
//! Invariant: totals are the sums over the messages that count. The fields are the folder's.

use super::hosts::Hosts;
use super::memory_queue::MemoryQueue;
use super::scheduler::Scheduler;
use super::state::GrantState;
use crate::config::Config;
use crate::event::RpcHandle;
use crate::peer::Peer;
use crate::receive::message::IncomingMessage;
use crate::send::unscheduled::most_unscheduled;
use crate::units::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Finished messages that are kept for reuse.
const MAX_SPARE: usize = 64;

/// Everything that the endpoint knows about grants.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(super) scheduler: Scheduler,
    /// Granted or unscheduled and not received, over all incomplete messages.
    pub(super) expected: u64,
    /// Unscheduled bytes that responses may bring which have not begun (Homa §3.6).
    pub(super) pending_unscheduled: u64,
    /// The part of `expected` that `max_incoming` bounds: of messages that need grants. In profile
    /// `default` of those that were given one, since anyone can announce a message.
    pub(super) granted: u64,
    /// The part of `granted` of messages that need no more grants.
    pub(super) finishing: u64,
    pub(super) hosts: Hosts,
    /// Bytes of `budget` held for incomplete messages.
    pub(super) memory: u64,
    /// Bytes of `budget` held by whole requests that the application has not accepted.
    pub(super) unaccepted: u64,
    pub(super) budget: u64,
    /// How far beyond its grant a sender's bytes may be.
    pub(super) max_ahead: u32,
    /// A grant was withheld for want of window or memory.
    pub(super) starved: bool,
    /// There may be more to grant, which was too much work at once.
    pub(super) more_to_grant: bool,
    /// The one message that may exceed the budget until it ends. Without it, messages that are
    /// partly here could fill the memory so that none ever becomes whole.
    pub(super) over_budget_message: Option<RpcHandle>,
    /// Bytes granted since the last FIFO grant, in thousandths of its increment.
    pub(super) fifo_credit: u64,
    /// Messages that could not begin.
    pub(super) memory_queue: MemoryQueue,
    /// When the next FIFO grant of profile `linux` is due.
    pub(super) fifo_due: Time,
    /// Messages that ended, for others to come.
    #[expect(clippy::vec_box, reason = "RPCs hold boxes")]
    spare: Vec<Box<IncomingMessage>>,
}

impl Grants {
    pub(crate) fn new(config: &Config, degree: usize) -> Self {
        let scheduler =
            Scheduler::new(degree, config.one_message_per_sender, config.fifo_permille > 0);
        // Unscheduled bytes may arrive before the packet that announces them, or that packet was
        // retransmitted and announced only itself; and the grant may end inside a packet.
        let packet = config.profile.policy().grants.packet;
        Self {
            scheduler,
            expected: 0,
            pending_unscheduled: 0,
            granted: 0,
            finishing: 0,
            hosts: Hosts::default(),
            memory: 0,
            unaccepted: 0,
            budget: config.memory_budget,
            max_ahead: most_unscheduled(config).saturating_add(packet),
            starved: false,
            more_to_grant: false,
            over_budget_message: None,
            fifo_credit: 0,
            memory_queue: MemoryQueue::default(),
            fifo_due: Time::ZERO,
            spare: Vec::new(),
        }
    }

    /// An incoming message that begins.
    pub(super) fn new_message(&mut self, length: u32, grant: GrantState) -> Box<IncomingMessage> {
        match self.spare.pop() {
            Some(mut inc) => {
                inc.reuse(length, grant);
                inc
            }
            None => Box::new(IncomingMessage::new(length, grant)),
        }
    }

    /// Keeps a message that ended for others to come.
    pub(super) fn recycle(&mut self, inc: Box<IncomingMessage>) {
        // Beyond that the allocator does it: a burst should not keep its memory for ever.
        if self.spare.len() < MAX_SPARE {
            self.spare.push(inc);
        }
    }

    /// A peer is given an account.
    pub(crate) fn open_account(&mut self, peer: &mut Peer, account: u32) {
        peer.cold.grants.account = Some(account);
        self.hosts.open(account);
    }

    /// A peer is forgotten.
    pub(crate) fn close_account(&mut self, closed: &mut Peer) {
        self.hosts.close(closed);
    }

    /// Granted or unscheduled bytes that have not arrived.
    #[inline]
    pub(crate) const fn expected(&self) -> u64 {
        self.expected
    }

    /// A client expects a response that may bring `unscheduled` bytes without a grant.
    pub(crate) fn expect_response(&mut self, unscheduled: u32) {
        self.pending_unscheduled += u64::from(unscheduled);
    }

    /// The response begins.
    pub(crate) fn response_begins(&mut self, unscheduled: u32) {
        self.pending_unscheduled -= u64::from(unscheduled);
    }

    /// Unscheduled bytes that responses may bring which have not begun.
    pub(crate) const fn pending_unscheduled(&self) -> u64 {
        self.pending_unscheduled
    }

    /// An RPC ends. Its response might have brought `unscheduled` bytes without a grant.
    pub(crate) fn end_rpc(&mut self, handle: RpcHandle, unscheduled: u32) {
        self.memory_queue.remove(handle);
        self.pending_unscheduled -= u64::from(unscheduled);
    }

    /// How far beyond its grant a sender's bytes may be.
    #[inline]
    pub(crate) const fn max_ahead(&self) -> u32 {
        self.max_ahead
    }

    /// When the first grant timer fires.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.scheduler.next_due()
    }

    /// Lines of the cache that nearly every input touches, for prefetching.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.scheduler.active_len() as u64 ^ self.expected ^ self.budget
    }
}
