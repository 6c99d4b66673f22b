//! A closed loop: host 0 keeps RPCs outstanding with hosts 1, 2, ... in turn (Homa §5.1, Figure 9).

use crate::time::SimTime;

use super::source::{Asked, Source, Start};

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Number of servers, at least 1.
    pub servers: u32,
    /// RPCs outstanding.
    pub concurrent: u32,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Calls so far.
    pub calls: u32,
}

impl Closed {
    fn call(&mut self) -> Start {
        let dst = 1 + self.calls % self.servers;
        self.calls = self.calls.wrapping_add(1);
        Start { src: 0, dst, bytes: self.request_bytes, class: 0 }
    }
}

impl Source for Closed {
    fn begin(&mut self, _: SimTime, asked: &mut Asked) {
        asked.starts.extend((0..self.concurrent).map(|_| self.call()));
    }

    fn due(&mut self, _: SimTime, _: u32, _: &mut Asked) {}

    fn ended(&mut self, _: SimTime, asked: &mut Asked) {
        asked.starts.push(self.call());
    }
}
