//! Tasks that wait for a time.

use std::collections::BTreeMap;
use std::task::Waker;

use homa_proto::Time;

use super::waiters::WakeTarget;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Alarms {
    due: BTreeMap<(Time, u64), Waker>,
    next_ticket: u64,
}

impl Alarms {
    /// Number of waiting tasks.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Registers a task; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, until: Time, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.due.insert((until, self.next_ticket), waker);
        self.next_ticket
    }

    /// Removes a task that was woken or gives up.
    pub fn leave(&mut self, until: Time, ticket: u64) -> Option<Waker> {
        self.due.remove(&(until, ticket))
    }

    /// Wakes the tasks whose time has come.
    pub fn passed(&mut self, now: Time, wakes: &mut Vec<WakeTarget>) {
        while let Some(first) = self.due.first_entry()
            && first.key().0 <= now
        {
            wakes.push(WakeTarget::Task(first.remove()));
        }
    }

    /// The earliest time.
    pub fn next(&self) -> Option<Time> {
        self.due.first_key_value().map(|((until, _), _)| *until)
    }
}
