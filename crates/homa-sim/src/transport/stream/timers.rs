//! One deadline for a host with any number of connections.
//!
//! A heap with lazy deletion: an entry says when an owner has to be checked. If a timer moves to a
//! later time, its entry stays, fires early and is then armed again. A retransmission timer that
//! every acknowledgement restarts therefore costs an entry per timeout rather than one per
//! acknowledgement. Invariant: for each running timer there is an entry at or before its time,
//! recorded in the `armed` of [`Timers::arm`]. Entries of equal time fire in the order of keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::Time;

/// See the module's description.
#[derive(Debug)]
pub struct Timers<K> {
    heap: BinaryHeap<Reverse<(Time, K)>>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Ensures that `who` fires at `due` or earlier. `armed` is the time of its earliest entry, or
    /// [`Time::MAX`] if it has none.
    #[inline]
    pub fn arm(&mut self, due: Time, who: K, armed: &mut Time) {
        if due < *armed {
            *armed = due;
            self.heap.push(Reverse((due, who)));
        }
    }

    /// Removes an entry that is due, with its time.
    pub fn fire(&mut self, now: Time) -> Option<(Time, K)> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// When the first entry fires.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_moves_to_a_later_time_needs_no_new_entry() {
        let (mut timers, mut armed) = (Timers::default(), Time::MAX);
        for due in [9, 12, 15] {
            timers.arm(Time(due), 'a', &mut armed);
        }
        assert_eq!((timers.len(), timers.deadline()), (1, Some(Time(9))));
        timers.arm(Time(4), 'a', &mut armed);
        assert_eq!((timers.fire(Time(3)), timers.fire(Time(5))), (None, Some((Time(4), 'a'))));
    }
}
