//! Timers of a driver that has no clock: they are set as delays, and begin when the engine next
//! says what time it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::{Duration, Time};

/// Timers that carry a value each.
#[derive(Debug)]
pub struct Timers<T> {
    set: BinaryHeap<Reverse<(Time, T)>>,
    /// Delays that have not begun.
    new: Vec<(Duration, T)>,
}

impl<T: Ord> Timers<T> {
    /// No timers.
    pub fn new() -> Self {
        Self { set: BinaryHeap::new(), new: Vec::new() }
    }

    /// Sets a timer.
    pub fn start(&mut self, delay: Duration, what: T) {
        self.new.push((delay, what));
    }

    /// When [`Self::expired`] is to be called.
    pub fn deadline(&self) -> Option<Time> {
        match self.new.is_empty() {
            true => self.set.peek().map(|Reverse((at, _))| *at),
            false => Some(Time::ZERO),
        }
    }

    /// The next timer that has expired.
    pub fn expired(&mut self, now: Time) -> Option<T> {
        self.set.extend(self.new.drain(..).map(|(delay, what)| Reverse((now + delay, what))));
        self.set.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.set.pop().map(|Reverse((_, what))| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_begins_when_the_time_is_known() {
        let mut timers = Timers::new();
        timers.start(Duration::millis(10), 'a');
        assert_eq!(timers.deadline(), Some(Time::ZERO));
        let now = Time(1_000_000_000);
        assert_eq!(timers.expired(now), None);
        assert_eq!(timers.deadline(), Some(now + Duration::millis(10)));
        timers.start(Duration::millis(5), 'b');
        assert_eq!(timers.expired(now), None);
        let later = now + Duration::millis(10);
        assert_eq!([(); 3].map(|()| timers.expired(later)), [Some('b'), Some('a'), None]);
        assert_eq!(timers.deadline(), None);
    }
}
