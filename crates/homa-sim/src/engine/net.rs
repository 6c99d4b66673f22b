//! The network without its applications: state, and how packets move through it.

use homa_proto::{Submit, SubmitError, Submitted};

use crate::fabric::{Chooser, FabricConfig, Forwarding, Frame, Frames, NONE, Port, ecmp};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, Wiring};
use crate::transport::{Arrival, Label, Transport};

use super::agenda::{Happening, Ticket};
use super::application::Context;
use super::fault::{Fault, Link, Verdict};
use super::host::Host;
use super::probe::{AtPort, Backlog, LossCause, Probe};
use super::{Counters, EventQueue};

/// See the module's description.
pub(super) struct Net<T: Transport, P, F> {
    pub now: SimTime,
    pub events: EventQueue<Ticket>,
    pub ports: Vec<Port>,
    pub frames: Frames<T::Packet>,
    pub hosts: Vec<Host<T>>,
    pub wiring: Wiring,
    pub config: FabricConfig,
    pub chooser: Chooser,
    pub probe: P,
    pub faults: F,
    pub counters: Counters,
    pub trace: TraceHash,
    pub stopped: bool,
    /// Hosts that got input from an application.
    pub dirty: Vec<u32>,
    wakes: Vec<Wake>,
    free_wakes: Vec<u32>,
    incidents: Vec<Incident>,
}

/// A call-back of an application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub token: u64,
    /// `NONE`: of the network as a whole.
    pub host: u32,
    pub life: u32,
}

/// Something that happens to a host or a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    /// A host freezes.
    Pause { host: HostId, until: SimTime },
    /// A host stops; comes back after `downtime`, if given.
    Crash { host: HostId, downtime: Option<SimDuration> },
    /// A crashed host comes back.
    Restart(HostId),
}

impl<T: Transport, P: Probe<T::Packet>, F: Fault<T::Packet>> Net<T, P, F> {
    pub fn new(
        (wiring, config): (Wiring, FabricConfig),
        hosts: Vec<Host<T>>,
        ports: Vec<Port>,
        (probe, faults): (P, F),
    ) -> Self {
        let mut events = EventQueue::default();
        for host in 0..wiring.hosts() {
            events.push(SimTime::ZERO, Ticket::new(Happening::Timer(host)));
        }
        Self {
            now: SimTime::ZERO,
            events,
            ports,
            frames: Frames::new(),
            hosts,
            chooser: Chooser::new(config.seed),
            wiring,
            config,
            probe,
            faults,
            counters: Counters::default(),
            trace: TraceHash::default(),
            stopped: false,
            dirty: Vec::new(),
            wakes: Vec::new(),
            free_wakes: Vec::new(),
            incidents: Vec::new(),
        }
    }

    #[inline]
    pub fn schedule(&mut self, at: SimTime, happening: Happening) {
        self.events.push(at, Ticket::new(happening));
    }

    pub fn plan(&mut self, at: SimTime, incident: Incident) {
        self.incidents.push(incident);
        self.schedule(at, Happening::Incident((self.incidents.len() - 1) as u32));
    }

    pub fn incident(&self, index: u32) -> Incident {
        self.incidents[index as usize]
    }

    /// The call-back with this number, which becomes free.
    pub fn take_wake(&mut self, index: u32) -> Wake {
        self.free_wakes.push(index);
        self.wakes[index as usize]
    }

    pub fn schedule_wake(&mut self, at: SimTime, wake: Wake) {
        let index = match self.free_wakes.pop() {
            Some(index) => {
                self.wakes[index as usize] = wake;
                index
            }
            None => {
                self.wakes.push(wake);
                (self.wakes.len() - 1) as u32
            }
        };
        self.schedule(at.max(self.now), Happening::Wake(index));
    }

    /// Offers the wire to the transport; true when it gave a packet. The wire must be free.
    #[inline]
    pub fn pull(&mut self, id: u32) -> bool {
        let host = &mut self.hosts[id as usize];
        let Some(packet) = host.transport.transmit(self.now.protocol()) else { return false };
        let Label { to, wire_bytes, priority, flow } = host.transport.label(&packet);
        let frame = Frame {
            at: self.now,
            next: NONE,
            from: id,
            to: to.0,
            bytes: wire_bytes,
            flow,
            priority: priority.min(7),
        };
        let slot = self.frames.insert(frame, packet);
        let label = Label { to, wire_bytes, priority, flow };
        self.probe.transmitted(self.now, HostId(id), slot, &packet, &label);
        self.trace.mix(self.now, (id, to.0), u64::from(wire_bytes) << 40 | u64::from(priority));
        self.trace.word(u64::from(flow));
        let port = &mut self.ports[id as usize];
        if port.start(&mut self.frames.hot, slot, self.now) {
            let at = self.frames.hot[slot as usize].at;
            self.schedule(at, Happening::Arrival(id));
        }
        true
    }

    /// Takes the first packet out of a port's pipe and schedules the next.
    #[inline]
    pub fn on_arrival(&mut self, port_index: u32) -> Option<(u32, NodeId)> {
        self.advance(port_index, true);
        let port = &mut self.ports[port_index as usize];
        let slot = port.arrive(&self.frames.hot)?;
        let to = port.to;
        if let Some(at) = port.next_arrival(&self.frames.hot) {
            self.schedule(at, Happening::Arrival(port_index));
        }
        self.counters.packet_hops += 1;
        if F::ACTIVE && !self.passes_faults(port_index, slot) {
            return None;
        }
        Some((slot, to))
    }

    /// Lets waiting frames enter service as they would have by now.
    #[inline]
    fn advance(&mut self, port_index: u32, inclusive: bool) {
        let port = &mut self.ports[port_index as usize];
        while let Some(started) = port.advance(&mut self.frames.hot, self.now, inclusive) {
            let frame = at_port(&self.wiring, port_index, started.slot, &self.frames.hot);
            self.probe.departed(started.at, &frame);
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
        match self.faults.verdict(self.now, link, self.frames.packet(slot)) {
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
                let copy = self.frames.copy(slot);
                self.defer(copy, to, self.now + extra);
                true
            }
        }
    }

    /// A frame is held up on its way into `node`.
    pub fn defer(&mut self, slot: u32, node: NodeId, until: SimTime) {
        self.frames.hot[slot as usize].next = node.0;
        self.schedule(until, Happening::Deferred(slot));
    }

    /// Where a frame that was held up takes effect.
    pub fn deferred(&self, slot: u32) -> NodeId {
        NodeId(self.frames.hot[slot as usize].next)
    }

    /// A packet is at a switch (0 the first): choose a port, queue.
    #[inline]
    pub fn forward(&mut self, switch: u32, slot: u32) {
        let Frame { from, to, bytes, flow, priority, .. } = self.frames.hot[slot as usize];
        if to >= self.wiring.hosts() {
            return self.lose(slot, LossCause::NoRoute);
        }
        let choices = self.wiring.routes().choices(switch, to);
        let chosen = match (choices.count, self.config.forwarding) {
            (0, _) => return self.lose(slot, LossCause::NoRoute),
            (1, _) => 0,
            (n, Forwarding::Spray) => self.chooser.below(n),
            (n, Forwarding::Ecmp) => ecmp(n, switch, (from, to, flow)),
        };
        let port_index = choices.first + chosen;
        self.advance(port_index, false);
        let port = &mut self.ports[port_index as usize];
        let backlog = Backlog {
            queued_bytes: port.queued(),
            residual_bytes: port.residual(self.now),
            in_service_priority: port.in_service_priority(&self.frames.hot),
        };
        let frame = at_port(&self.wiring, port_index, slot, &self.frames.hot);
        self.probe.enqueued(self.now, &frame, &backlog);
        let _ = priority;
        if port.is_idle(self.now) {
            let first = port.start(&mut self.frames.hot, slot, self.now);
            self.probe.departed(self.now, &frame);
            if first {
                let at = self.frames.hot[slot as usize].at;
                self.schedule(at, Happening::Arrival(port_index));
            }
        } else if port.fits(&self.frames.hot, self.now, bytes) {
            port.wait(&mut self.frames.hot, slot);
        } else {
            port.dropped_frames += 1;
            self.lose(slot, LossCause::Overflow);
        }
    }

    /// A packet is at its host, which is up and not paused.
    #[inline]
    pub fn deliver(&mut self, id: u32, slot: u32) {
        let Frame { from, priority, bytes, .. } = self.frames.hot[slot as usize];
        let packet = self.frames.packet(slot);
        let from = HostId(from);
        let transport = &mut self.hosts[id as usize].transport;
        let receipt = transport.receive(self.now.protocol(), packet, Arrival { from, priority });
        self.trace.mix(self.now, (from.0, id), u64::from(bytes));
        self.probe.received(self.now, HostId(id), from, slot, packet, &receipt);
        self.frames.remove(slot);
    }

    pub fn lose(&mut self, slot: u32, cause: LossCause) {
        self.counters.lost += 1;
        let to = HostId(self.frames.hot[slot as usize].to);
        self.probe.lost(self.now, to, slot, self.frames.packet(slot), cause);
        self.frames.remove(slot);
    }

    fn mark(&mut self, host: HostId) {
        let at = &mut self.hosts[host.0 as usize];
        if !at.dirty {
            at.dirty = true;
            self.dirty.push(host.0);
        }
    }
}

#[inline]
fn at_port(wiring: &Wiring, port: u32, slot: u32, frames: &[Frame]) -> AtPort {
    let frame = &frames[slot as usize];
    let (port, tier) = (PortId(port), wiring.ports()[port as usize].tier);
    AtPort { port, tier, slot, wire_bytes: frame.bytes, priority: frame.priority }
}

impl<T: Transport, P: Probe<T::Packet>, F: Fault<T::Packet>> Context for Net<T, P, F> {
    fn now(&self) -> SimTime {
        self.now
    }

    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError> {
        let transport = &mut self.hosts[host.0 as usize].transport;
        let result = transport.submit(self.now.protocol(), what);
        self.probe.submitted(self.now, host, &what, &result);
        self.mark(host);
        result
    }

    fn wake_at(&mut self, at: SimTime, token: u64) {
        self.schedule_wake(at, Wake { token, host: NONE, life: 0 });
    }

    fn wake_host_at(&mut self, host: HostId, at: SimTime, token: u64) {
        let life = self.hosts[host.0 as usize].life;
        self.schedule_wake(at, Wake { token, host: host.0, life });
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

/// An order-dependent hash of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceHash(pub u64);

impl TraceHash {
    #[inline]
    fn mix(&mut self, now: SimTime, (from, to): (u32, u32), what: u64) {
        self.word(now.0 ^ what.rotate_left(17));
        self.word(u64::from(from) << 32 | u64::from(to));
    }

    #[inline]
    fn word(&mut self, word: u64) {
        // The 64-bit golden ratio, odd: multiplication is a bijection.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
