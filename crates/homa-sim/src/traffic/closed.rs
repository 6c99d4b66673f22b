//! A closed loop: host 0 keeps RPCs outstanding with hosts 1, 2, ... in turn (Homa §5.1, Figure 9).
//! It may also call in rounds, where the next calls begin if all of a round have ended, like a
//! client whose file is striped over servers (DCTCP §4.2.1).

use crate::time::SimTime;

use super::source::{EndedMessage, Round, Source, SourceActions, Start};

/// The source of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    servers: u32,
    concurrent: u32,
    request_bytes: u32,
    /// Call in rounds.
    together: bool,
    /// Number of calls so far.
    calls: u32,
    /// Outstanding calls of the round.
    outstanding: u32,
    began: SimTime,
}

impl Closed {
    /// `concurrent` calls at a time to `servers` servers; both should be at least 1.
    pub const fn new(
        (servers, concurrent): (u32, u32),
        request_bytes: u32,
        together: bool,
    ) -> Self {
        let (calls, outstanding, began) = (0, 0, SimTime::ZERO);
        Self { servers, concurrent, request_bytes, together, calls, outstanding, began }
    }

    fn call(&mut self) -> Start {
        let dst = 1 + self.calls % self.servers;
        self.calls = self.calls.wrapping_add(1);
        Start::new(0, dst, self.request_bytes)
    }

    fn round(&mut self, now: SimTime, actions: &mut SourceActions) {
        (self.outstanding, self.began) = (self.concurrent, now);
        actions.starts.extend((0..self.concurrent).map(|_| self.call()));
    }
}

impl Source for Closed {
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions) {
        self.round(now, actions);
    }

    fn due(&mut self, _: SimTime, _: u32, _: &mut SourceActions) {}

    fn ended(&mut self, now: SimTime, _: EndedMessage, actions: &mut SourceActions) {
        if !self.together {
            actions.starts.push(self.call());
            return;
        }
        self.outstanding -= 1;
        if self.outstanding == 0 {
            actions.rounds.push(Round { began: self.began, took: now.since(self.began) });
            self.round(now, actions);
        }
    }
}
