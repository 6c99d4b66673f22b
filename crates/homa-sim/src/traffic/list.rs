//! Messages from a list, in the order of time.

use crate::time::SimTime;

use super::open_loop::Arrival;
use super::source::{Asked, Source, Start};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Listed {
    arrivals: Vec<Arrival>,
    next: usize,
    request_bytes: Option<u32>,
}

impl Listed {
    /// `arrivals` by time.
    pub fn new(arrivals: Vec<Arrival>) -> Self {
        Self { arrivals, next: 0, request_bytes: None }
    }

    /// The same as responses, to requests of `bytes`.
    pub fn asked_for_by(self, bytes: u32) -> Self {
        Self { request_bytes: Some(bytes), ..self }
    }

    fn start(&self, arrival: &Arrival) -> Start {
        let start = arrival.start();
        match self.request_bytes {
            Some(bytes) => Start { bytes, response: Some(arrival.bytes), ..start },
            None => start,
        }
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
        asked.starts.extend(rest[..here].iter().map(|arrival| self.start(arrival)));
        match rest.get(here) {
            Some(next) => asked.wakes.push((next.at, 0)),
            None => asked.is_exhausted = true,
        }
        self.next += here;
    }
}
