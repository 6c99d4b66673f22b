//! Waiters for the end of an accepted request, because its client gives up or its deadline passes;
//! or for more of a request that is arriving.

use std::collections::BTreeMap;
use std::task::Waker;

use hashbrown::HashMap;
use homa_proto::{RpcHandle, Time};

use super::waiters::WakeTarget;

/// Waiters by request and by deadline.
#[derive(Debug, Default)]
pub struct RequestWatch {
    watchers: HashMap<RpcHandle, Vec<RequestWatcher>>,
    due: BTreeMap<(Time, u64), RpcHandle>,
    next_ticket: u64,
    tasks: usize,
}

#[derive(Debug)]
struct RequestWatcher {
    ticket: u64,
    until: Time,
    waiting: WakeTarget,
}

impl RequestWatch {
    /// Number of waiting tasks.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Registers a waiter; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, rpc: RpcHandle, until: Time, waiting: WakeTarget) -> u64 {
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.tasks += usize::from(waiting.is_task());
        self.watchers.entry(rpc).or_default().push(RequestWatcher { ticket, until, waiting });
        self.due.insert((until, ticket), rpc);
        ticket
    }

    /// Removes a waiter that returned or gives up.
    pub fn leave(&mut self, rpc: RpcHandle, ticket: u64) -> Option<Waker> {
        let watchers = self.watchers.get_mut(&rpc)?;
        let at = watchers.iter().position(|watcher| watcher.ticket == ticket)?;
        let RequestWatcher { until, waiting, .. } = watchers.swap_remove(at);
        if watchers.is_empty() {
            self.watchers.remove(&rpc);
        }
        self.due.remove(&(until, ticket));
        // A task's waker is dropped by the caller, after the lock is released.
        match waiting {
            WakeTarget::Task(waker) => {
                self.tasks -= 1;
                Some(waker)
            }
            WakeTarget::Thread(_) => None,
        }
    }

    /// The request has ended, or more of it has arrived: wakes its waiters.
    pub fn ended(&mut self, rpc: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        for RequestWatcher { ticket, until, waiting } in
            self.watchers.remove(&rpc).into_iter().flatten()
        {
            self.due.remove(&(until, ticket));
            self.tasks -= usize::from(waiting.is_task());
            wakes.push(waiting);
        }
    }

    /// Wakes the waiters whose deadline has passed.
    pub fn passed(&mut self, now: Time, wakes: &mut Vec<WakeTarget>) {
        // A deadline ends all waits for its request, because each waits for the same end.
        while let Some((&(until, _), &rpc)) = self.due.first_key_value()
            && until <= now
        {
            self.ended(rpc, wakes);
        }
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        let first = self.due.first_key_value().map(|((until, _), _)| *until);
        // `Time::MAX` stands for no deadline, and needs no alarm.
        first.filter(|&until| until != Time::MAX)
    }
}
