//! Waiters for capacity: for one more call, or for the memory of a reply.
//!
//! Invariant: while the lock is free, every waiter that could be served has been woken, unless the
//! waiters woken before it may use everything. These try again, and offer what they leave to the
//! next. Replies to a client that has used its share do not wait behind others, and do not delay
//! them.

use std::collections::VecDeque;
use std::task::Waker;

use homa_proto::RpcHandle;

use super::waiters::WakeTarget;
use crate::engine::core::Core;
use crate::engine::core::limits::{Capacity, CapacityWaiter};

#[derive(Debug)]
struct Registered {
    ticket: u64,
    waiter: CapacityWaiter,
    waker: Waker,
}

/// The waiters, oldest first.
#[derive(Debug, Default)]
pub struct CapacityQueue {
    all: VecDeque<Registered>,
    next_ticket: u64,
}

impl CapacityQueue {
    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Registers a waiter; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, waiter: CapacityWaiter, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.all.push_back(Registered { ticket: self.next_ticket, waiter, waker });
        self.next_ticket
    }

    /// Removes a waiter that tries again or gives up.
    pub fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.all.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.all.remove(at).map(|waiter| waiter.waker)
    }

    /// Removes the waiters that could be served now, so that they are woken.
    pub fn served(&mut self, core: &Core, wakes: &mut Vec<WakeTarget>) {
        let (mut at, mut promised) = (0, (0, 0));
        while let Some(waiter) = self.all.get(at) {
            match core.capacity(waiter.waiter, promised) {
                Capacity::None => return,
                Capacity::OnlyForOthers => at += 1,
                Capacity::Enough => {
                    let (calls, bytes) = waiter.waiter.takes();
                    promised = (promised.0 + calls, promised.1 + bytes);
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
        wakes.extend(self.all.drain(..).map(|waiter| WakeTarget::Task(waiter.waker)));
    }
}
