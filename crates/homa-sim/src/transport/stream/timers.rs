//! One deadline for a host with any number of connections.
//!
//! A heap with lazy deletion: an entry says that somebody has to be looked at by then. Whoever
//! moves a timer to a later time leaves its entry, which fires early and is armed anew; so a
//! retransmission timer that is restarted by every acknowledgement costs an entry per timeout, not
//! per acknowledgement. Invariant: for whoever has a timer there is an entry at or before it, of
//! which [`Timers::arm`]'s `armed` knows. Equal times fire in the order of keys.

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
    /// Sees to it that `who` fires at `due` at the latest. `armed` is the time of its earliest
    /// entry, [`Time::MAX`] without one.
    #[inline]
    pub fn arm(&mut self, due: Time, who: K, armed: &mut Time) {
        if due < *armed {
            *armed = due;
            self.heap.push(Reverse((due, who)));
        }
    }

    /// An entry that is due, and its time.
    pub fn fire(&mut self, now: Time) -> Option<(Time, K)> {
        self.heap.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// When the first entry fires.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_is_moved_to_a_later_time_needs_no_second_entry() {
        let (mut timers, mut armed) = (Timers::default(), Time::MAX);
        for due in [9, 12, 15] {
            timers.arm(Time(due), 'a', &mut armed);
        }
        assert_eq!((timers.len(), timers.deadline()), (1, Some(Time(9))));
        timers.arm(Time(4), 'a', &mut armed);
        assert_eq!((timers.fire(Time(3)), timers.fire(Time(5))), (None, Some((Time(4), 'a'))));
    }
}
