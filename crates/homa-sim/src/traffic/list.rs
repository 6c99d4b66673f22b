//! Messages from a list, in the order of time.

use crate::time::SimTime;

use super::open_loop::Arrival;
use super::source::{Asked, Source};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Listed {
    arrivals: Vec<Arrival>,
    next: usize,
}

impl Listed {
    /// `arrivals` by time.
    pub fn new(arrivals: Vec<Arrival>) -> Self {
        Self { arrivals, next: 0 }
    }
}

impl Source for Listed {
    fn begin(&mut self, _: SimTime, asked: &mut Asked) {
        match self.arrivals.first() {
            Some(first) => asked.wakes.push((first.at, 0)),
            None => asked.is_exhausted = true,
        }
    }

    fn due(&mut self, now: SimTime, _: u32, asked: &mut Asked) {
        let rest = &self.arrivals[self.next..];
        let here = rest.iter().take_while(|arrival| arrival.at <= now).count();
        self.next += here;
        asked.starts.extend(rest[..here].iter().map(Arrival::start));
        match rest.get(here) {
            Some(next) => asked.wakes.push((next.at, 0)),
            None => asked.is_exhausted = true,
        }
    }
}
