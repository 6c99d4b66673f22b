//! Pending events in a total order: by time, then first in, first out.
//!
//! This is a binary heap, simple enough to be the reference for [`super::Wheel`] in tests.
//! Invariant: popped times never decrease as long as nothing is pushed before the last popped time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::SimTime;

/// Events ordered by time and, among equals, by order of pushing.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<PendingEvent<E>>,
    pushed: u64,
}

#[derive(Debug)]
struct PendingEvent<E> {
    at: SimTime,
    sequence: u64,
    event: E,
}

impl<E> PendingEvent<E> {
    fn key(&self) -> (SimTime, u64) {
        (self.at, self.sequence)
    }
}

impl<E> Ord for PendingEvent<E> {
    /// Reversed, because the standard heap yields its greatest entry and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for PendingEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for PendingEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for PendingEvent<E> {}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules `event`.
    pub fn push(&mut self, at: SimTime, event: E) {
        self.heap.push(PendingEvent { at, sequence: self.pushed, event });
        self.pushed += 1;
    }

    /// Removes the earliest event; among equals, the one pushed first.
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Time of the earliest event.
    pub fn peek(&self) -> Option<SimTime> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if no event is pending.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_of_pushing() {
        let mut queue = EventQueue::default();
        for (number, at) in [5, 3, 5, 3, 9, 0, 5].into_iter().enumerate() {
            queue.push(SimTime(at), number);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, n)| (at.0, n)).collect();
        assert_eq!(order, [(0, 5), (3, 1), (3, 3), (5, 0), (5, 2), (5, 6), (9, 4)]);
    }
}
