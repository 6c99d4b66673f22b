//! Waiters for capacity: for one more call, or for the memory of a reply.
//!
//! Invariant: while the lock is free, every waiter that could be served has been woken, unless the
//! waiters woken before it may use everything. These try again, and offer what they leave to the
//! next. Replies to a client that has used its share do not wait behind others, and do not delay
//! them. Nor do calls to a server that has as many as it may; they stand in a line for each such
//! server, because the end of any call looks through the other waiters.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;

use homa_proto::RpcHandle;

use super::waiters::WakeTarget;
use crate::engine::core::Core;
use crate::engine::core::limits::{Capacity, CapacityWaiter, Promised};

#[derive(Debug)]
struct Registered {
    ticket: u64,
    waiter: CapacityWaiter,
    waker: Waker,
}

/// Waiters in the order of their tickets: oldest first.
type Line = VecDeque<Registered>;

fn insert(line: &mut Line, waiter: Registered) {
    let at = line.partition_point(|other| other.ticket < waiter.ticket);
    line.insert(at, waiter);
}

fn remove(line: &mut Line, ticket: u64) -> Option<Waker> {
    let at = line.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
    line.remove(at).map(|waiter| waiter.waker)
}

/// The waiters.
#[derive(Debug, Default)]
pub struct CapacityQueue {
    all: Line,
    /// Calls to servers that have as many as they may.
    behind: BTreeMap<SocketAddr, Line>,
    next_ticket: u64,
}

impl CapacityQueue {
    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.all.len() + self.behind.values().map(Line::len).sum::<usize>()
    }

    /// Registers a waiter; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, waiter: CapacityWaiter, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.all.push_back(Registered { ticket: self.next_ticket, waiter, waker });
        self.next_ticket
    }

    /// Removes a waiter that tries again or gives up.
    pub fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let mut lines = std::iter::once(&mut self.all).chain(self.behind.values_mut());
        lines.find_map(|line| remove(line, ticket))
    }

    /// Calls leave their server's line if there may be more of them.
    fn rejoin(&mut self, core: &Core) {
        for (&to, line) in &mut self.behind {
            let left = line.len().min(core.calls_left_to(to) as usize);
            line.drain(..left).for_each(|waiter| insert(&mut self.all, waiter));
        }
        self.behind.retain(|_, line| !line.is_empty());
    }

    /// Removes the waiters that could be served now, so that they are woken.
    pub fn served(&mut self, core: &Core, wakes: &mut Vec<WakeTarget>) {
        self.rejoin(core);
        let (mut at, mut promised) = (0, Promised::default());
        while let Some(&Registered { waiter, .. }) = self.all.get(at) {
            match (core.capacity(waiter, &promised), waiter) {
                (Capacity::None, _) => return,
                (Capacity::OnlyForOthers, CapacityWaiter::Call { to: Some(to), .. }) => {
                    let waiter = self.all.remove(at);
                    let line = self.behind.entry(to).or_default();
                    waiter.into_iter().for_each(|waiter| insert(line, waiter));
                }
                (Capacity::OnlyForOthers, _) => at += 1,
                (Capacity::Enough, _) => {
                    promised.add(waiter);
                    wakes.extend(self.all.remove(at).map(|waiter| WakeTarget::Task(waiter.waker)));
                }
            }
        }
    }

    /// Removes the waiter that would answer this request, because its client gave up.
    pub fn cancelled(&mut self, of: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        let is = |waiter| matches!(waiter, CapacityWaiter::Reply { rpc, .. } if rpc == of);
        if let Some(at) = self.all.iter().position(|waiter| is(waiter.waiter)) {
            wakes.extend(self.all.remove(at).map(|waiter| WakeTarget::Task(waiter.waker)));
        }
    }

    /// Removes all waiters.
    pub fn all(&mut self, wakes: &mut Vec<WakeTarget>) {
        let behind = std::mem::take(&mut self.behind).into_values().flatten();
        wakes.extend(self.all.drain(..).chain(behind).map(|w| WakeTarget::Task(w.waker)));
    }
}
