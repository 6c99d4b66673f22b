//! Moves packets from a host's wire over links and through switches to the receiver.

use crate::fabric::queue::{Admission, PortQueue, WaitingFrames};
use crate::fabric::{
    Buffers, Forwarding, Frame, LinkState, Marks, NONE, OutputPort, Parcel, by_sender, ecmp,
};
use crate::time::SimTime;
use crate::topology::{HostId, NodeId, PortId, Tier};
use crate::transport::{Label, LeavingHop, PacketMeta, Transport};

use super::agenda::{NetEvent, Ticket};
use super::fault::{DirectedLink, Fault, PacketFate};
use super::net::{Net, Service};
use super::probe::{AtPort, LossCause, PortBacklog, Probe};
use super::world::{PacketOf, World};

impl<W: World> Net<W> {
    /// Offers the wire to the transport; true if it sent a packet. The wire must be free.
    #[inline]
    pub fn pull(&mut self, id: u32) -> bool {
        let Some((packet, label)) = self.next_packet(id) else { return false };
        let Label { to, wire_bytes, priority, flow, .. } = label;
        let tag = W::Queue::tag(&label, HostId(id));
        let parcel = Parcel { packet, from: id };
        let slot = self.flights.insert(Frame::new(&label), tag, parcel);
        self.probe.transmitted(self.now, HostId(id), slot, &packet, &label);
        // Marks are 0 unless a transport or a queue sets them, so that they leave older hashes
        // unchanged.
        let what = u64::from(wire_bytes) << 40 | u64::from(label.marks().bits()) << 8;
        self.trace.mix(self.now, (id, to.0), what | u64::from(priority));
        self.trace.word(u64::from(flow));
        self.leave_host(id, slot);
        true
    }

    /// Takes the first packet out of a port's pipe and schedules the next arrival.
    #[inline]
    pub fn on_arrival(&mut self, port_index: u32) -> Option<(u32, NodeId)> {
        let port = &self.ports[port_index as usize];
        if port.is_due(self.now) {
            // Where links cross, this is the moment when the port becomes free, and a frame that
            // arrives at the same time may be the next one.
            let crosses = port.link == LinkState::Crossing;
            let inclusive = !crosses || self.events.peek() != Some(self.now);
            self.advance(port_index, inclusive);
        }
        let port = &mut self.ports[port_index as usize];
        let (slot, next) = port.arrive(&self.flights.frames, self.now)?;
        let to = port.to;
        let (stalled, link, begins) = (port.is_stalled(), port.link, port.begins_next());
        if let Some(at) = next {
            self.schedule(at, NetEvent::Arrival(port_index));
        } else if stalled && !self.eager {
            self.schedule(begins, NetEvent::Arrival(port_index));
        }
        match link {
            LinkState::Up => {}
            LinkState::Down => {
                self.lose(slot, LossCause::LinkDown);
                return None;
            }
            LinkState::Crossing => {
                self.send_over(port_index, slot);
                return None;
            }
        }
        self.counters.packet_hops += 1;
        self.note_link(slot, port_index);
        let faulty = W::Fault::ACTIVE && self.faults.is_active();
        if faulty && !self.passes_faults(port_index, slot) {
            return None;
        }
        Some((slot, to))
    }

    /// Starts the service of waiting frames that would have started before now, or by now if
    /// `inclusive`. Ports are lazy: they act only when an event touches them.
    #[inline]
    pub fn advance(&mut self, port_index: u32, inclusive: bool) {
        if self.eager && port_index >= self.wiring.hosts() {
            return;
        }
        let port = &mut self.ports[port_index as usize];
        let levels = &mut self.levels[port_index as usize];
        let queue = &mut self.queues[port_index as usize];
        let (frames, tags, parcels) = self.flights.parts();
        while port.is_due(self.now) && (inclusive || port.free_at < self.now) {
            let at = port.free_at;
            let slot = queue.next(&mut WaitingFrames { port, levels, frames, tags });
            queue.departs(&mut frames[slot as usize], at);
            stamp::<W>(port, at, &mut parcels[slot as usize]);
            let arrival = port.start(frames, slot, at);
            let there = at_port(port, port_index, slot, frames);
            self.probe.departed(at, &there);
            if self.config.cut_through {
                self.services[port_index as usize] = Service::of(port, slot, &there);
            }
            if let Some(arrival) = arrival {
                self.events.push(arrival, Ticket::new(NetEvent::Arrival(port_index)));
            }
        }
    }

    /// False if the packet does not take effect now.
    #[cold]
    fn passes_faults(&mut self, port: u32, slot: u32) -> bool {
        let spec = &self.wiring.ports()[port as usize];
        let hosts = self.wiring.hosts();
        let link = if port < hosts {
            DirectedLink::Up(HostId(port))
        } else if spec.to.0 < hosts {
            DirectedLink::Down(HostId(spec.to.0))
        } else {
            DirectedLink::Between(PortId(port))
        };
        let to = spec.to;
        match self.faults.fate(self.now, link, &self.flights.parcel(slot).packet) {
            PacketFate::Pass => true,
            PacketFate::Lose => {
                self.lose(slot, LossCause::Fault);
                false
            }
            PacketFate::Delay(extra) => {
                self.defer(slot, to, self.now + extra);
                false
            }
            PacketFate::Duplicate(extra) => {
                let copy = self.flights.copy(slot);
                self.cioq.note_copy(slot, copy);
                self.probe.copied(self.now, slot, copy);
                self.defer(copy, to, self.now + extra);
                true
            }
        }
    }

    /// Delays a frame on its way into `node`.
    pub fn defer(&mut self, slot: u32, node: NodeId, until: SimTime) {
        self.flights.frames[slot as usize].next = node.0;
        self.probe.deferred(self.now, slot, until);
        self.schedule(until, NetEvent::Deferred(slot));
    }

    /// The node at which a delayed frame takes effect.
    pub fn deferred(&self, slot: u32) -> NodeId {
        NodeId(self.flights.frame(slot).next)
    }

    /// Routes a packet at an output-queued switch (numbered from 0) and queues it.
    #[inline]
    pub fn forward(&mut self, switch: u32, slot: u32) {
        let Some(port) = self.choose_port(switch, slot) else {
            return self.lose(slot, LossCause::NoRoute);
        };
        if self.eager {
            self.enqueue_eagerly(switch, port, slot);
        } else {
            self.enqueue(switch, port, slot);
        }
    }

    /// The output port of a switch (numbered from 0) for a packet; `None` if no route exists.
    #[inline(always)]
    pub(super) fn choose_port(&mut self, switch: u32, slot: u32) -> Option<u32> {
        let frame = self.flights.frame(slot);
        let choices = self.wiring.routes().choices(switch, frame.to());
        let chosen = match (choices.count, self.config.forwarding) {
            (0, _) => return None,
            (1, _) => 0,
            (n, Forwarding::Spray) => self.chooser.below(n),
            (n, Forwarding::Ecmp) => {
                let from = self.flights.parcel(slot).from;
                ecmp(n, switch, (from, frame.to(), u32::from(frame.flow)))
            }
            (n, Forwarding::HostPairs) => {
                ecmp(n, switch, (self.flights.parcel(slot).from, frame.to(), 0))
            }
            (n, Forwarding::Source) => {
                let first = self.wiring.routes().port(choices, 0);
                let tier = self.ports[first as usize].tier;
                by_sender(n, (switch, tier), u32::from(frame.flow))
            }
            (_, Forwarding::Adaptive(alb)) => self.adapt(switch, (choices, frame.priority()), alb),
        };
        Some(self.wiring.routes().port(choices, chosen))
    }

    /// A packet arrives at an output port.
    #[inline]
    fn enqueue(&mut self, switch: u32, port_index: u32, slot: u32) {
        if self.ports[port_index as usize].is_due(self.now) {
            self.advance(port_index, false);
        }
        let port = &mut self.ports[port_index as usize];
        let (frames, _, parcels) = self.flights.parts();
        self.queues[port_index as usize].arrives(&mut frames[slot as usize], self.now);
        let there = at_port(port, port_index, slot, frames);
        if !port.is_busy(self.now) {
            self.queues[port_index as usize].departs(&mut frames[slot as usize], self.now);
            stamp::<W>(port, self.now, &mut parcels[slot as usize]);
            self.probe.enqueued(self.now, &there, &PortBacklog::default());
            self.probe.departed(self.now, &there);
            if self.config.cut_through {
                self.services[port_index as usize] = Service::of(port, slot, &there);
            }
            if let Some(at) = port.start(frames, slot, self.now) {
                self.schedule(at, NetEvent::Arrival(port_index));
            }
            return;
        }
        let backlog = self.backlog(port_index);
        self.probe.enqueued(self.now, &there, &backlog);
        let first = self.ports[port_index as usize].queued() == 0;
        if self.admit(switch, port_index, slot) && first {
            let port = &self.ports[port_index as usize];
            if port.is_stalled() {
                self.schedule(port.begins_next(), NetEvent::Arrival(port_index));
            }
        }
    }

    /// Lets the discipline decide about a frame that has to wait; true if it waits.
    #[inline]
    pub(super) fn admit(&mut self, switch: u32, port_index: u32, slot: u32) -> bool {
        loop {
            let mut room = self.room(switch, port_index);
            if let Buffers::PerLevel(bytes) = self.config.buffers {
                let level = self.flights.frame(slot).priority();
                room = bytes.saturating_sub(self.level_bytes(port_index, level));
            }
            let mut waiting = WaitingFrames {
                port: &mut self.ports[port_index as usize],
                levels: &mut self.levels[port_index as usize],
                frames: &mut self.flights.frames,
                tags: &self.flights.tags,
            };
            let queue = &mut self.queues[port_index as usize];
            match queue.admit(&mut waiting, slot, room) {
                Admission::Queued => return true,
                Admission::Dropped => {
                    self.drop_at(port_index, slot);
                    return false;
                }
                Admission::Evicted(other) => self.drop_at(port_index, other),
                Admission::Trimmed(frame) => {
                    let port = &self.ports[port_index as usize];
                    let there = at_port(port, port_index, frame, &self.flights.frames);
                    self.probe.trimmed(self.now, &there);
                    self.counters.trimmed += 1;
                    return true;
                }
                Admission::Returned(frame) => {
                    self.send_back(switch, frame);
                    if frame == slot {
                        return false;
                    }
                }
            }
        }
    }

    /// The discipline of a port dropped a frame.
    pub fn drop_at(&mut self, port_index: u32, slot: u32) {
        self.drops[port_index as usize] += 1;
        self.lose(slot, LossCause::Overflow);
    }

    /// A switch returns a frame to its sender. A frame that was returned before is lost, because
    /// its sender cannot be reached.
    #[cold]
    fn send_back(&mut self, switch: u32, slot: u32) {
        if self.flights.frame(slot).marks().has(Marks::RETURNED) {
            return self.lose(slot, LossCause::Overflow);
        }
        let from = self.flights.parcel(slot).from;
        self.flights.frames[slot as usize].send_back(from);
        self.probe.returned(self.now, slot, self.flights.frame(slot).bytes);
        self.forward(switch, slot);
    }

    /// Wire bytes that a port may still take, limited by its own memory and by its switch's.
    #[inline]
    pub fn room(&mut self, switch: u32, port_index: u32) -> u64 {
        let limit = self.ports[port_index as usize].limit;
        let own = match limit {
            u32::MAX => u64::MAX,
            limit => u64::from(limit).saturating_sub(self.held(port_index)),
        };
        match self.config.buffers {
            Buffers::Shared { .. } => own.min(self.pool_room(switch, port_index)),
            _ => own,
        }
    }

    /// Wire bytes that wait at one level of a port.
    #[cold]
    fn level_bytes(&self, port_index: u32, level: u8) -> u64 {
        let (port, levels) = (&self.ports[port_index as usize], &self.levels[port_index as usize]);
        let frames = &self.flights.frames;
        port.list(levels, frames, level).map(|slot| u64::from(frames[slot as usize].bytes)).sum()
    }

    /// Wire bytes that a port may still take if the ports of a switch share memory.
    #[cold]
    fn pool_room(&mut self, switch: u32, port_index: u32) -> u64 {
        let Buffers::Shared { bytes: limit, alpha_percent } = self.config.buffers else {
            return u64::MAX;
        };
        let mut held = 0;
        for at in 0..self.siblings[switch as usize].len() {
            let sibling = self.siblings[switch as usize][at];
            self.advance(sibling, false);
            held += self.held(sibling);
        }
        let free = limit.saturating_sub(held);
        if alpha_percent == u32::MAX {
            return free;
        }
        let share = u128::from(alpha_percent) * u128::from(free) / 100;
        free.min((share as u64).saturating_sub(self.held(port_index)))
    }

    /// Wire bytes in a port's memory.
    fn held(&self, port_index: u32) -> u64 {
        let in_service = self.in_service(port_index).map_or(0, |service| service.bytes);
        u64::from(self.ports[port_index as usize].queued()) + u64::from(in_service)
    }

    /// The frame that a switch's port serves. A frame that is cut through stays in service until
    /// its last bit has left, although it may already be out of the pipe.
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

    /// The queue that a frame finds at a switch's port.
    pub fn backlog(&self, port_index: u32) -> PortBacklog {
        let port = &self.ports[port_index as usize];
        let in_service = self.in_service(port_index);
        // After a change of rate, the estimate may exceed the frame; cap it.
        let residual =
            |service: Service| port.residual(self.now, service.mbps).min(u32::from(service.bytes));
        PortBacklog {
            queued_bytes: u64::from(port.queued()),
            residual_bytes: in_service.map_or(0, residual),
            in_service_priority: in_service.map_or(0, |service| service.priority),
        }
    }

    /// A packet reaches its host, which is up and not paused.
    #[inline]
    pub fn deliver(&mut self, id: u32, slot: u32) {
        let frame = self.flights.frame(slot);
        let Parcel { packet, from } = self.flights.parcel(slot);
        let from = HostId(*from);
        let transport = &mut self.transports[id as usize];
        let marks = frame.marks();
        let arrival = PacketMeta {
            from,
            priority: frame.priority(),
            ce: marks.has(Marks::CE),
            trimmed: marks.has(Marks::TRIMMED),
            last_hop: marks.has(Marks::LAST_HOP),
            returned: marks.has(Marks::RETURNED),
            merged: false,
        };
        let receipt = transport.receive(self.now.protocol(), packet, arrival);
        let what = u64::from(frame.bytes) | u64::from(marks.bits()) << 32;
        self.trace.mix(self.now, (from.0, id), what);
        self.probe.received(self.now, HostId(id), from, slot, packet, &receipt);
        self.flights.remove(slot);
    }

    /// Drops all frames that wait at a port, because its link failed.
    pub fn lose_waiting(&mut self, port_index: u32) {
        loop {
            let mut waiting = WaitingFrames {
                port: &mut self.ports[port_index as usize],
                levels: &mut self.levels[port_index as usize],
                frames: &mut self.flights.frames,
                tags: &self.flights.tags,
            };
            if waiting.highest().is_none() {
                return;
            }
            let slot = self.queues[port_index as usize].next(&mut waiting);
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

/// Lets a switch's port write into a packet that leaves it now, if packets have room for that.
#[inline]
pub(super) fn stamp<W: World>(port: &OutputPort, at: SimTime, parcel: &mut Parcel<PacketOf<W>>) {
    if W::Host::IS_STAMPED && port.tier != Tier::HostUp {
        let (sent_bytes, queued_bytes) = (port.sent_bytes, port.queued());
        let hop = LeavingHop { at, sent_bytes, queued_bytes, mbps: port.mbps };
        W::Host::stamp(&mut parcel.packet, &hop);
    }
}

#[inline]
pub(super) fn at_port(port: &OutputPort, index: u32, slot: u32, frames: &[Frame]) -> AtPort {
    let frame = frames[slot as usize];
    AtPort {
        port: PortId(index),
        tier: port.tier,
        slot,
        wire_bytes: u32::from(frame.bytes),
        priority: frame.priority(),
    }
}
