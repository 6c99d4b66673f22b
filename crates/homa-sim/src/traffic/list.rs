//! Messages from a list, in the order of time.

use crate::time::SimTime;

use super::open_loop::ScheduledMessage;
use super::source::{Source, SourceActions, Start};

/// The source of a list.
#[derive(Clone, Debug)]
pub struct MessageList {
    arrivals: Vec<ScheduledMessage>,
    next: usize,
    request_bytes: Option<u32>,
}

impl MessageList {
    /// A source of `arrivals`, sorted by time.
    pub fn new(arrivals: Vec<ScheduledMessage>) -> Self {
        Self { arrivals, next: 0, request_bytes: None }
    }

    /// The same messages as responses to requests of `bytes`.
    pub fn as_responses_to(self, bytes: u32) -> Self {
        Self { request_bytes: Some(bytes), ..self }
    }

    fn start(&self, arrival: &ScheduledMessage) -> Start {
        let start = arrival.start();
        match self.request_bytes {
            Some(bytes) => Start { bytes, response: Some(arrival.bytes), ..start },
            None => start,
        }
    }
}

impl Source for MessageList {
    fn begin(&mut self, _: SimTime, actions: &mut SourceActions) {
        match self.arrivals.first() {
            Some(first) => actions.wakes.push((first.at, 0)),
            None => actions.is_exhausted = true,
        }
    }

    fn due(&mut self, now: SimTime, _: u32, actions: &mut SourceActions) {
        let rest = &self.arrivals[self.next..];
        let here = rest.iter().take_while(|arrival| arrival.at <= now).count();
        actions.starts.extend(rest[..here].iter().map(|arrival| self.start(arrival)));
        match rest.get(here) {
            Some(next) => actions.wakes.push((next.at, 0)),
            None => actions.is_exhausted = true,
        }
        self.next += here;
    }
}
