//! The time of a message in an empty network, which is the denominator of slowdowns.

use crate::time::{LinkRate, SimDuration, SimTime};

use super::{HostId, PortId, Wiring};

impl Wiring {
    /// The ports from one host to another along a shortest path (the first of equals).
    pub fn path(&self, from: HostId, to: HostId) -> Vec<PortId> {
        let mut port = self.uplink(from);
        let mut path = vec![port];
        loop {
            let node = self.ports[port.0 as usize].to.0;
            let Some(switch) = node.checked_sub(self.hosts) else { return path };
            let choices = self.routes.choices(switch, to.0);
            if choices.count == 0 {
                return path;
            }
            port = PortId(self.routes.port(choices, 0));
            path.push(port);
        }
    }

    /// Time from the first bit at the sender to the processing of the last frame at the receiver:
    /// store and forward, with frames of these wire bytes back to back on one path.
    pub fn ideal(&self, from: HostId, to: HostId, frames: &[u32]) -> SimDuration {
        let mut arrivals = vec![SimTime::ZERO; frames.len()];
        for PortId(port) in self.path(from, to) {
            let port = &self.ports[port as usize];
            let rate = LinkRate::new(port.rate);
            let mut free = SimTime::ZERO;
            for (arrival, &bytes) in arrivals.iter_mut().zip(frames) {
                free = free.max(*arrival) + rate.serialisation(bytes);
                *arrival = free + port.delay;
            }
        }
        arrivals.last().map_or(SimDuration::ZERO, |&at| at - SimTime::ZERO)
    }
}
