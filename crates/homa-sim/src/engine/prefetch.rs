//! Prefetching: in a large network nearly all memory that an event touches is outside the cache.
//! Reading the memory of many events at once is much faster than reading it one event after the
//! other, because the reads overlap.
//!
//! Invariant: prefetching changes no result; a wrong guess costs a useless read.

use crate::fabric::{Forwarding, NONE, Parcel};
use crate::topology::HostId;
use crate::transport::Transport;

use super::agenda::NetEvent;
use super::net::Net;
use super::wheel::PREFETCH_FROM;
use super::world::World;

/// A frame that is about to arrive, or a host that is about to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookahead {
    /// The port that the frame leaves, or the host's own; `NONE` if the frame is on its way from
    /// another partition.
    port: u32,
    /// The node at the far end of the port.
    to: u32,
    /// The frame; `NONE` if a host sends.
    slot: u32,
    /// The frame behind it in the pipe.
    behind: u32,
    /// The last frame in the pipe.
    last: u32,
    /// The first frame that waits at the port.
    waiting: u32,
    /// The next output port; for a sending host, its own.
    onward: u32,
    /// The host that receives or sends; `NONE` if a switch receives.
    host: u32,
    /// Priority of the frame.
    priority: u8,
}

impl<W: World> Net<W> {
    /// Reads the memory that the events of the next bucket will need and discards the values. Small
    /// networks stay in the cache anyway, so nothing is read.
    #[inline]
    pub fn prefetch(&mut self) {
        if self.events.len() < PREFETCH_FROM {
            return;
        }
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        ahead.extend(self.events.batch().filter_map(|ticket| match ticket.event() {
            NetEvent::Arrival(port) => Some(self.arrives(port)),
            NetEvent::WireFree(host) => {
                let (port, slot) = (host, NONE);
                Some(Lookahead { host, port, slot, onward: host, ..self.arrives(port) })
            }
            NetEvent::Deferred(slot) if self.boundary.is_some() => Some(self.approaches(slot)),
            _ => None,
        }));
        self.prefetch_frames(&mut ahead);
        self.fetched ^= self.prefetch_onward(&mut ahead) ^ self.prefetch_queues(&mut ahead);
        self.fetched ^= self.prefetch_hosts(&ahead);
        self.ahead = ahead;
    }

    fn arrives(&self, port: u32) -> Lookahead {
        let at = &self.ports[port as usize];
        let (slot, last) = at.first_and_last();
        self.ahead_at(port, at.to.0, (slot, last))
    }

    /// A frame that takes effect at a node without leaving a port here.
    fn approaches(&self, slot: u32) -> Lookahead {
        self.ahead_at(NONE, self.deferred(slot).0, (slot, NONE))
    }

    fn ahead_at(&self, port: u32, to: u32, (slot, last): (u32, u32)) -> Lookahead {
        let host = if to < self.wiring.hosts() { to } else { NONE };
        let (behind, waiting, onward) = (NONE, NONE, port);
        Lookahead { port, to, slot, behind, last, waiting, onward, host, priority: 0 }
    }

    /// The frames that arrive, and those that enter service when they do.
    fn prefetch_frames(&self, ahead: &mut [Lookahead]) {
        let frames = &self.flights.frames;
        for next in ahead {
            let Some(port) = self.ports.get(next.port as usize) else { continue };
            next.waiting = port.first_waiting(&self.levels[next.port as usize]);
            next.behind = frames.get(next.slot as usize).map_or(next.slot, |frame| frame.next);
        }
    }

    /// The output ports of the frames, and their neighbours in the pipe.
    fn prefetch_onward(&self, ahead: &mut [Lookahead]) -> u32 {
        let frames = &self.flights.frames;
        let mut chooser = self.chooser.clone();
        let mut sum = 0;
        for next in ahead.iter_mut() {
            let gap = |slot: u32| frames.get(slot as usize).map_or(0, |frame| frame.gap);
            sum ^= gap(next.behind) ^ gap(next.waiting) ^ gap(next.last);
            let Some(frame) = frames.get(next.slot as usize) else { continue };
            next.priority = frame.priority();
            if next.host != NONE {
                next.onward = next.host;
                sum ^= self.flights.parcel(next.slot).from;
                sum ^= u32::from(self.hosts[next.host as usize].up);
                continue;
            }
            let switch = next.to - self.wiring.hosts();
            let choices = self.wiring.routes().choices(switch, frame.to());
            let chosen = match (choices.count, self.config.forwarding) {
                (0, _) => continue,
                (1, _) => 0,
                (
                    _,
                    Forwarding::Ecmp
                    | Forwarding::HostPairs
                    | Forwarding::Source
                    | Forwarding::Adaptive(_),
                ) => 0,
                (n, Forwarding::Spray) => chooser.below(n),
            };
            next.onward = self.wiring.routes().port(choices, chosen);
            sum ^= self.ports[next.onward as usize].first_and_last().0;
        }
        sum
    }

    /// The queues at the output ports.
    fn prefetch_queues(&self, ahead: &mut [Lookahead]) -> u32 {
        for next in ahead.iter_mut() {
            let Some(port) = self.ports.get(next.onward as usize) else { continue };
            let levels = &self.levels[next.onward as usize];
            next.last = port.first_and_last().1;
            (next.waiting, next.behind) = port.waiting(levels, next.priority);
        }
        let frames = &self.flights.frames;
        let gap = |slot: u32| frames.get(slot as usize).map_or(0, |frame| frame.gap);
        let gaps = |next: &Lookahead| gap(next.waiting) ^ gap(next.behind) ^ gap(next.last);
        ahead.iter().fold(0, |sum, next| sum ^ gaps(next))
    }

    /// The state of the hosts.
    fn prefetch_hosts(&self, ahead: &[Lookahead]) -> u32 {
        let mut sum = 0;
        for step in 0..W::Host::PREFETCH_STEPS {
            for next in ahead.iter().filter(|next| next.host != NONE) {
                let packet = (next.slot != NONE).then(|| {
                    let Parcel { packet, from } = self.flights.parcel(next.slot);
                    (packet, HostId(*from))
                });
                sum ^= self.transports[next.host as usize].prefetch(step, packet);
            }
        }
        sum as u32
    }
}
