//! How packets move: from a host's wire over links and through switches to the receiver.

use crate::fabric::{Buffers, Forwarding, Frame, NONE, Parcel, Port, Started, ecmp};
use crate::time::SimTime;
use crate::topology::{HostId, NodeId, PortId};
use crate::transport::{Arrival, Label, Transport};

use super::agenda::{Happening, Ticket};
use super::fault::{Fault, Link, Verdict};
use super::net::{Net, Service};
use super::probe::{AtPort, Backlog, LossCause, Probe};

impl<T: Transport, P: Probe<T::Packet>, F: Fault<T::Packet>> Net<T, P, F> {
    /// Offers the wire to the transport; true when it gave a packet. The wire must be free.
    #[inline]
    pub fn pull(&mut self, id: u32) -> bool {
        let transport = &mut self.transports[id as usize];
        let Some(packet) = transport.transmit(self.now.protocol()) else { return false };
        let Label { to, wire_bytes, priority, flow } = transport.label(&packet);
        let frame = Frame::new(to.0, priority, wire_bytes, flow);
        let label = Label { to, wire_bytes, priority, flow };
        let slot = self.flights.insert(frame, Parcel { packet, from: id });
        self.probe.transmitted(self.now, HostId(id), slot, &packet, &label);
        self.trace.mix(self.now, (id, to.0), u64::from(wire_bytes) << 40 | u64::from(priority));
        self.trace.word(u64::from(flow));
        let port = &mut self.ports[id as usize];
        if let Some(at) = port.start(&mut self.flights.frames, slot, self.now) {
            self.schedule(at, Happening::Arrival(id));
        }
        true
    }

    /// Takes the first packet out of a port's pipe and schedules the next.
    #[inline]
    pub fn on_arrival(&mut self, port_index: u32) -> Option<(u32, NodeId)> {
        if self.ports[port_index as usize].is_due(self.now) {
            self.advance(port_index, true);
        }
        let port = &mut self.ports[port_index as usize];
        let (slot, next) = port.arrive(&self.flights.frames, self.now)?;
        let to = port.to;
        let (stalled, failed, free_at) = (port.is_stalled(), port.failed, port.free_at);
        if let Some(at) = next {
            self.schedule(at, Happening::Arrival(port_index));
        } else if stalled && !self.config.preemption {
            self.schedule(free_at, Happening::Arrival(port_index));
        }
        if failed {
            self.lose(slot, LossCause::LinkDown);
            return None;
        }
        self.counters.packet_hops += 1;
        if F::ACTIVE && !self.passes_faults(port_index, slot) {
            return None;
        }
        Some((slot, to))
    }

    /// Lets waiting frames enter service as they would have before now (or by now, if `inclusive`).
    #[inline]
    pub fn advance(&mut self, port_index: u32, inclusive: bool) {
        if self.config.preemption && port_index >= self.wiring.hosts() {
            return;
        }
        let port = &mut self.ports[port_index as usize];
        let levels = &mut self.levels[port_index as usize];
        let frames = &mut self.flights.frames;
        while port.is_due(self.now) && (inclusive || port.free_at < self.now) {
            let Started { slot, at, arrival } = port.serve(levels, frames);
            let there = at_port(port, port_index, slot, frames);
            self.probe.departed(at, &there);
            if self.config.cut_through {
                self.services[port_index as usize] = Service::of(port, slot, &there);
            }
            if let Some(arrival) = arrival {
                self.events.push(arrival, Ticket::new(Happening::Arrival(port_index)));
            }
        }
    }

    /// False when the packet does not take effect now.
    #[cold]
    fn passes_faults(&mut self, port: u32, slot: u32) -> bool {
        let spec = &self.wiring.ports()[port as usize];
        let hosts = self.wiring.hosts();
        let link = if port < hosts {
            Link::Up(HostId(port))
        } else if spec.to.0 < hosts {
            Link::Down(HostId(spec.to.0))
        } else {
            Link::Between(PortId(port))
        };
        let to = spec.to;
        match self.faults.verdict(self.now, link, &self.flights.parcel(slot).packet) {
            Verdict::Pass => true,
            Verdict::Lose => {
                self.lose(slot, LossCause::Fault);
                false
            }
            Verdict::Delay(extra) => {
                self.defer(slot, to, self.now + extra);
                false
            }
            Verdict::Duplicate(extra) => {
                let copy = self.flights.copy(slot);
                self.probe.copied(self.now, slot, copy);
                self.defer(copy, to, self.now + extra);
                true
            }
        }
    }

    /// A frame is held up on its way into `node`.
    pub fn defer(&mut self, slot: u32, node: NodeId, until: SimTime) {
        self.flights.frames[slot as usize].next = node.0;
        self.probe.deferred(self.now, slot, until);
        self.schedule(until, Happening::Deferred(slot));
    }

    /// Where a frame that was held up takes effect.
    pub fn deferred(&self, slot: u32) -> NodeId {
        NodeId(self.flights.frame(slot).next)
    }

    /// A packet is at a switch (0 the first): choose a port, queue.
    #[inline]
    pub fn forward(&mut self, switch: u32, slot: u32) {
        let frame = self.flights.frame(slot);
        let choices = self.wiring.routes().choices(switch, frame.to());
        let chosen = match (choices.count, self.config.forwarding) {
            (0, _) => return self.lose(slot, LossCause::NoRoute),
            (1, _) => 0,
            (n, Forwarding::Spray) => self.chooser.below(n),
            (n, Forwarding::Ecmp) => {
                let from = self.flights.parcel(slot).from;
                ecmp(n, switch, (from, frame.to(), u32::from(frame.flow)))
            }
        };
        let port = self.wiring.routes().port(choices, chosen);
        if self.config.preemption {
            self.enqueue_preempting(switch, port, slot);
        } else {
            self.enqueue(switch, port, slot);
        }
    }

    /// A packet is at an output port.
    #[inline]
    fn enqueue(&mut self, switch: u32, port_index: u32, slot: u32) {
        if self.ports[port_index as usize].is_due(self.now) {
            self.advance(port_index, false);
        }
        let port = &mut self.ports[port_index as usize];
        let frames = &mut self.flights.frames;
        let there = at_port(port, port_index, slot, frames);
        if !port.is_busy(self.now) {
            self.probe.enqueued(self.now, &there, &Backlog::default());
            self.probe.departed(self.now, &there);
            if self.config.cut_through {
                self.services[port_index as usize] = Service::of(port, slot, &there);
            }
            if let Some(at) = port.start(frames, slot, self.now) {
                self.schedule(at, Happening::Arrival(port_index));
            }
            return;
        }
        let backlog = self.backlog(port_index);
        self.probe.enqueued(self.now, &there, &backlog);
        let bytes = there.wire_bytes;
        if self.port_has_room(port_index, bytes) && self.pool_has_room(switch, port_index, bytes) {
            let port = &mut self.ports[port_index as usize];
            let frames = &mut self.flights.frames;
            let first = port.queued() == 0;
            port.wait(&mut self.levels[port_index as usize], frames, slot);
            if first && port.is_stalled() {
                self.schedule(
                    self.ports[port_index as usize].free_at,
                    Happening::Arrival(port_index),
                );
            }
        } else {
            self.drops[port_index as usize] += 1;
            self.lose(slot, LossCause::Overflow);
        }
    }

    /// False when a port has used up its own memory.
    #[inline]
    pub fn port_has_room(&self, port_index: u32, bytes: u32) -> bool {
        let limit = self.ports[port_index as usize].limit;
        limit == u32::MAX || self.held(port_index) + u64::from(bytes) <= u64::from(limit)
    }

    /// False when the ports of a switch share memory and too much of it is used.
    #[inline]
    pub fn pool_has_room(&mut self, switch: u32, port_index: u32, bytes: u32) -> bool {
        let Buffers::Shared { bytes: limit, alpha_percent } = self.config.buffers else {
            return true;
        };
        let mut held = 0;
        for at in 0..self.siblings[switch as usize].len() {
            let sibling = self.siblings[switch as usize][at];
            self.advance(sibling, false);
            held += self.held(sibling);
        }
        let free = limit.saturating_sub(held);
        let wanted = u64::from(bytes);
        let own = u128::from(self.held(port_index) + wanted) * 100;
        wanted <= free
            && (alpha_percent == u32::MAX || own <= u128::from(alpha_percent) * u128::from(free))
    }

    /// Wire bytes in a port's memory.
    fn held(&self, port_index: u32) -> u64 {
        let in_service = self.in_service(port_index).map_or(0, |service| service.bytes);
        u64::from(self.ports[port_index as usize].queued()) + u64::from(in_service)
    }

    /// What a switch's port serves. A frame that was cut through is in service until its last bit
    /// has left, although it may have been taken out of the pipe.
    fn in_service(&self, port_index: u32) -> Option<Service> {
        let port = &self.ports[port_index as usize];
        match self.services.get(port_index as usize) {
            Some(_) if port.free_at <= self.now => None,
            Some(service) if self.config.preemption => (service.slot != NONE).then(|| {
                let bytes = self.flights.frame(service.slot).bytes;
                Service { bytes, ..*service }
            }),
            Some(service) => Some(*service),
            None => {
                let frame = port.in_service(&self.flights.frames, self.now)?;
                let (bytes, priority) = (frame.bytes, frame.priority());
                Some(Service { slot: NONE, mbps: port.mbps, bytes, priority })
            }
        }
    }

    /// What a frame finds at a switch's port.
    pub fn backlog(&self, port_index: u32) -> Backlog {
        let port = &self.ports[port_index as usize];
        let in_service = self.in_service(port_index);
        // A link whose rate changed may seem to have more to go.
        let residual =
            |service: Service| port.residual(self.now, service.mbps).min(u32::from(service.bytes));
        Backlog {
            queued_bytes: u64::from(port.queued()),
            residual_bytes: in_service.map_or(0, residual),
            in_service_priority: in_service.map_or(0, |service| service.priority),
        }
    }

    /// A packet is at its host, which is up and not paused.
    #[inline]
    pub fn deliver(&mut self, id: u32, slot: u32) {
        let frame = self.flights.frame(slot);
        let Parcel { packet, from } = self.flights.parcel(slot);
        let from = HostId(*from);
        let transport = &mut self.transports[id as usize];
        let arrival = Arrival { from, priority: frame.priority() };
        let receipt = transport.receive(self.now.protocol(), packet, arrival);
        self.trace.mix(self.now, (from.0, id), u64::from(frame.bytes));
        self.probe.received(self.now, HostId(id), from, slot, packet, &receipt);
        self.flights.remove(slot);
    }

    /// What waits at a port is lost.
    pub fn lose_waiting(&mut self, port_index: u32) {
        loop {
            let port = &mut self.ports[port_index as usize];
            let levels = &mut self.levels[port_index as usize];
            let Some(slot) = port.take_first(levels, &self.flights.frames) else { return };
            self.lose(slot, LossCause::LinkDown);
        }
    }

    pub fn lose(&mut self, slot: u32, cause: LossCause) {
        self.counters.lost += 1;
        let to = HostId(self.flights.frame(slot).to());
        self.probe.lost(self.now, to, slot, &self.flights.parcel(slot).packet, cause);
        self.flights.remove(slot);
    }
}

#[inline]
pub(super) fn at_port(port: &Port, index: u32, slot: u32, frames: &[Frame]) -> AtPort {
    let frame = frames[slot as usize];
    AtPort {
        port: PortId(index),
        tier: port.tier,
        slot,
        wire_bytes: u32::from(frame.bytes),
        priority: frame.priority(),
    }
}
