//! Reads ahead: in a large network nearly everything an event touches is out of the cache, and
//! reads that do not wait for each other are far faster than those of one event after the other.
//!
//! Invariant: nothing here changes what happens; a wrong guess costs a useless read.

use crate::fabric::Forwarding;
use crate::transport::Transport;

use super::agenda::Happening;
use super::fault::Fault;
use super::net::Net;
use super::probe::Probe;
use super::wheel::MANY;

/// A frame about to arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    port: u32,
    slot: u32,
    /// The frame behind it in the pipe.
    behind: u32,
    /// The first frame that waits at the port.
    waiting: u32,
    /// The port where it goes next.
    onward: u32,
}

impl<T: Transport, P: Probe<T::Packet>, F: Fault<T::Packet>> Net<T, P, F> {
    /// Reads what the events of the bucket that begins will need. The results are of no use.
    /// Small networks stay in the cache anyway.
    #[inline]
    pub fn fetch(&mut self) {
        if self.events.len() < MANY {
            return;
        }
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        ahead.extend(self.events.batch().filter_map(|ticket| match ticket.happening() {
            Happening::Arrival(port) => {
                let slot = self.ports[port as usize].first();
                Some(Ahead { port, slot, behind: slot, waiting: slot, onward: port })
            }
            _ => None,
        }));
        self.fetch_frames(&mut ahead);
        self.fetched ^= self.fetch_onward(&mut ahead) ^ self.fetch_queues(&mut ahead);
        self.ahead = ahead;
    }

    /// The frames that arrive, and those that will enter service when they do.
    fn fetch_frames(&self, ahead: &mut [Ahead]) {
        let frames = &self.flights.frames;
        for next in ahead {
            let port = &self.ports[next.port as usize];
            next.waiting = port.first_waiting(&self.levels[next.port as usize]);
            next.behind = frames.get(next.slot as usize).map_or(next.slot, |frame| frame.next);
        }
    }

    /// Where they go, and the frames behind them.
    fn fetch_onward(&self, ahead: &mut [Ahead]) -> u32 {
        let frames = &self.flights.frames;
        let mut chooser = self.chooser.clone();
        let mut sum = 0;
        for next in ahead.iter_mut() {
            let gap = |slot: u32| frames.get(slot as usize).map_or(0, |frame| frame.gap);
            sum ^= gap(next.behind) ^ gap(next.waiting);
            let Some(frame) = frames.get(next.slot as usize) else { continue };
            let to = self.ports[next.port as usize].to.0;
            let Some(switch) = to.checked_sub(self.wiring.hosts()) else {
                let transport = &self.transports[to as usize];
                sum ^= self.flights.parcel(next.slot).from ^ u32::from(transport.has_packet());
                continue;
            };
            let choices = self.wiring.routes().choices(switch, frame.to());
            let chosen = match (choices.count, self.config.forwarding) {
                (0, _) => continue,
                (1, _) | (_, Forwarding::Ecmp) => 0,
                (n, Forwarding::Spray) => chooser.below(n),
            };
            next.onward = self.wiring.routes().port(choices, chosen);
            sum ^= self.ports[next.onward as usize].first();
        }
        sum
    }

    /// What waits where they go.
    fn fetch_queues(&self, ahead: &mut [Ahead]) -> u32 {
        for next in ahead.iter_mut() {
            let port = &self.ports[next.onward as usize];
            next.waiting = port.first_waiting(&self.levels[next.onward as usize]);
        }
        let frames = &self.flights.frames;
        let gap = |next: &Ahead| frames.get(next.waiting as usize).map_or(0, |frame| frame.gap);
        ahead.iter().fold(0, |sum, next| sum ^ gap(next))
    }
}
