//! The messages that may send, shortest first (Homa §3.2), in one queue per link: a link without
//! capacity delays its own messages and no others. A share of the packets can go to the oldest
//! message (Linux `pacer_fifo_fraction`).
//!
//! Invariants: a message has at most one valid entry, in the queue of its link. Over several links
//! the order is that of a single queue.

use super::message::{NOT_QUEUED, OutgoingMessage};
use super::srpt::{SrptEntry, SrptQueue};
use crate::event::RpcHandle;
use crate::link::{LinkId, Links};
use crate::rpc::table::RpcTable;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Messages of at most this many bytes, about a packet, are not delayed for the oldest message.
const FIFO_LENGTH: u32 = 1_400;
/// Entries of ended messages that the queues may hold in addition to as many valid ones.
const MAX_STALE: usize = 1_024;

/// The messages that may send.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// The queue of link 0; most hosts have no other.
    first: LinkQueue,
    /// The queues of the links from 1 on.
    others: Vec<LinkQueue>,
    /// Messages with a valid entry.
    count: usize,
    /// Messages that ended, or changed their link, and left entries since stale entries were last
    /// removed.
    stale: usize,
    next_age: u64,
    /// Share of packets for the oldest message, in thousandths.
    fifo_share: u32,
    fifo_credit: u32,
}

/// The messages of one link.
#[derive(Debug, Default)]
struct LinkQueue {
    srpt: SrptQueue,
    fifo: BinaryHeap<Reverse<(u64, RpcHandle)>>,
    /// Messages with a valid entry.
    count: usize,
}

impl LinkQueue {
    /// The valid entry with the fewest bytes left.
    fn shortest(&mut self, link: LinkId, rpcs: &RpcTable) -> Option<SrptEntry> {
        loop {
            let entry = *self.srpt.peek()?;
            let out = rpcs.get(entry.handle).map(|rpc| &rpc.out);
            // An entry with another key, or of another link, was replaced by a later one.
            if out.is_some_and(|out| out.queued == entry.remaining && out.link == link) {
                return Some(entry);
            }
            self.srpt.pop();
        }
    }

    fn oldest(&mut self, link: LinkId, rpcs: &mut RpcTable) -> Option<(u64, RpcHandle)> {
        loop {
            let &Reverse((age, handle)) = self.fifo.peek()?;
            let out = rpcs.get_mut(handle).map(|rpc| &mut rpc.out);
            // The age tells the message from the next one in the same slot.
            match out.filter(|out| out.age == age && out.link == link) {
                Some(out) if out.is_queued() => return Some((age, handle)),
                // It has nothing to send now, so `wake` has to queue it again.
                Some(out) => out.in_fifo = false,
                None => {}
            }
            self.fifo.pop();
        }
    }

    /// Removes stale entries.
    fn sweep(&mut self, link: LinkId, rpcs: &RpcTable) {
        let out = |handle| rpcs.get(handle).map(|rpc| &rpc.out).filter(|out| out.link == link);
        self.srpt.retain(|e| out(e.handle).is_some_and(|out| out.queued == e.remaining));
        self.fifo.retain(|e| out(e.0.1).is_some_and(|out| out.age == e.0.0));
    }
}

impl SendQueue {
    pub(crate) fn new(fifo_permille: u16) -> Self {
        Self { fifo_share: u32::from(fifo_permille), ..Self::default() }
    }

    /// The age of the next message: order of submission.
    pub(crate) fn age(&mut self) -> u64 {
        self.next_age += 1;
        self.next_age
    }

    /// True if some message may send.
    pub(crate) const fn has_packet(&self) -> bool {
        self.count > 0
    }

    /// True if some message may send by one of these links.
    pub(crate) fn has_packet_for(&self, links: Links) -> bool {
        let queues = core::iter::once(&self.first).chain(&self.others);
        self.count > 0 && (0..).zip(queues).any(|(n, q)| links.contains(LinkId(n)) && q.count > 0)
    }

    fn queue(&mut self, link: LinkId) -> &mut LinkQueue {
        let Some(at) = usize::from(link.0).checked_sub(1) else { return &mut self.first };
        if self.others.len() <= at {
            self.others.resize_with(at + 1, LinkQueue::default);
        }
        &mut self.others[at]
    }

    /// Queues a message that may have become able to send.
    pub(crate) fn wake(&mut self, handle: RpcHandle, out: &mut OutgoingMessage) {
        // A queued message keeps its key: it is at most too large, and corrected when a packet
        // leaves.
        if !out.has_bytes_to_send() || out.is_queued() {
            return;
        }
        let remaining = out.remaining();
        out.queued = remaining;
        let fifo = self.fifo_share > 0 && out.length > FIFO_LENGTH && !out.in_fifo;
        self.count += 1;
        let queue = self.queue(out.link);
        queue.count += 1;
        queue.srpt.push(SrptEntry { remaining, age: out.age, handle });
        if fifo {
            out.in_fifo = true;
            queue.fifo.push(Reverse((out.age, handle)));
        }
    }

    /// The message of `out` ends.
    pub(crate) fn forget(&mut self, out: &mut OutgoingMessage) {
        if core::mem::replace(&mut out.queued, NOT_QUEUED) != NOT_QUEUED {
            self.count -= 1;
            self.queue(out.link).count -= 1;
            self.stale += 1;
        } else if out.in_fifo {
            // It was sent, but the oldest waiting message hides its FIFO entry.
            self.stale += 1;
        }
        out.in_fifo = false;
    }

    /// The message of `out` uses another link from now on.
    pub(crate) fn reroute(&mut self, handle: RpcHandle, out: &mut OutgoingMessage, link: LinkId) {
        self.forget(out);
        out.link = link;
        self.wake(handle, out);
    }

    /// Removes the entries of messages that ended, if there are many. Few of them are ever reached.
    pub(crate) fn sweep(&mut self, rpcs: &RpcTable) {
        // A sweep costs as much as the queues hold, so it waits until half of them is stale.
        if self.stale < MAX_STALE + self.count {
            return;
        }
        self.stale = 0;
        let queues = core::iter::once(&mut self.first).chain(&mut self.others);
        (0..).zip(queues).for_each(|(link, queue)| queue.sweep(LinkId(link), rpcs));
    }

    #[cfg(test)]
    pub(crate) fn queues(&self) -> (&SrptQueue, usize) {
        (&self.first.srpt, self.first.fifo.len())
    }

    /// The next message to send by one of `links`: the shortest, or the oldest for its share.
    pub(super) fn pick(&mut self, rpcs: &mut RpcTable, links: Links) -> Option<RpcHandle> {
        // SRPT alone would starve the oldest message while shorter ones keep coming.
        if self.fifo_credit >= 1000
            && let Some(oldest) = self.oldest(rpcs, links)
        {
            self.fifo_credit -= 1000;
            return Some(oldest);
        }
        self.shortest(rpcs, links)
    }

    /// The message that probably sends next.
    pub(crate) fn first(&self) -> Option<RpcHandle> {
        self.first.srpt.peek().map(|entry| entry.handle)
    }

    /// The message with the fewest bytes left that may send by one of `links`.
    pub(crate) fn shortest(&mut self, rpcs: &RpcTable, links: Links) -> Option<RpcHandle> {
        let mut best = None;
        if links.contains(LinkId(0)) {
            best = self.first.shortest(LinkId(0), rpcs);
        }
        for (link, queue) in (1..).map(LinkId).zip(&mut self.others) {
            if links.contains(link)
                && let Some(entry) = queue.shortest(link, rpcs)
            {
                best = Some(best.map_or(entry, |best| best.min(entry)));
            }
        }
        best.map(|entry| entry.handle)
    }

    fn oldest(&mut self, rpcs: &mut RpcTable, links: Links) -> Option<RpcHandle> {
        let mut best = None;
        if links.contains(LinkId(0)) {
            best = self.first.oldest(LinkId(0), rpcs);
        }
        for (link, queue) in (1..).map(LinkId).zip(&mut self.others) {
            if links.contains(link)
                && let Some(entry) = queue.oldest(link, rpcs)
            {
                best = Some(best.map_or(entry, |best| best.min(entry)));
            }
        }
        best.map(|(_, handle)| handle)
    }

    /// Accounts for a packet just taken from `out`.
    pub(super) fn settle(&mut self, handle: RpcHandle, out: &mut OutgoingMessage) {
        // Short messages take nothing from the oldest one, so they earn it no share.
        if out.length > FIFO_LENGTH {
            // At most two packets are owed, because an unused share must not become a burst.
            self.fifo_credit = (self.fifo_credit + self.fifo_share).min(2000);
        }
        let next = out.has_bytes_to_send().then(|| out.remaining());
        let queue = self.queue(out.link);
        // The message with the fewest bytes stays the first: its key is lowered in place.
        let on_top = queue.srpt.peek().is_some_and(|top| top.handle == handle);
        match (on_top, next) {
            (true, Some(remaining)) => queue.srpt.lower_first(remaining),
            (true, None) => queue.srpt.pop(),
            (false, Some(remaining)) => {
                queue.srpt.push(SrptEntry { remaining, age: out.age, handle });
            }
            (false, None) => {}
        }
        if next.is_none() {
            queue.count -= 1;
            self.count -= 1;
        }
        out.queued = next.unwrap_or(NOT_QUEUED);
    }
}
