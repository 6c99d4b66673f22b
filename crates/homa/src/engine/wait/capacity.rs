//! Room for one more call, or for the bytes of a reply, and who waits for it.
//!
//! Invariant: unlocked, whoever would find room has been woken, unless those woken before it may
//! take all of it; these look again, and what they leave is offered on. Replies of a client that
//! has its share wait behind nobody and hold up nobody.

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

/// Those who wait, oldest first.
#[derive(Debug, Default)]
pub struct CapacityQueue {
    all: VecDeque<Registered>,
    next_ticket: u64,
}

impl CapacityQueue {
    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Notes who waits; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, waiter: CapacityWaiter, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.all.push_back(Registered { ticket: self.next_ticket, waiter, waker });
        self.next_ticket
    }

    /// A waiter came back, or gives up.
    pub fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.all.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.all.remove(at).map(|waiter| waiter.waker)
    }

    /// Takes out those who would find room now.
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

    /// Takes out who would answer this request: nobody waits for it any more.
    pub fn cancelled(&mut self, of: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        let is = |waiter| matches!(waiter, CapacityWaiter::Reply { rpc, .. } if rpc == of);
        if let Some(at) = self.all.iter().position(|waiter| is(waiter.waiter)) {
            wakes.extend(self.all.remove(at).map(|waiter| WakeTarget::Task(waiter.waker)));
        }
    }

    /// Takes out everybody.
    pub fn all(&mut self, wakes: &mut Vec<WakeTarget>) {
        wakes.extend(self.all.drain(..).map(|waiter| WakeTarget::Task(waiter.waker)));
    }
}
