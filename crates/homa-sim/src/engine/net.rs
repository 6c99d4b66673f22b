//! The network without its applications: state, and how packets move through it.

use homa_proto::{Submit, SubmitError, Submitted};

use crate::fabric::{
    Buffers, Chooser, FabricConfig, Flights, Forwarding, Frame, Levels, NONE, Parcel, Port,
    Started, ecmp,
};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, PortSpec, Tier, Wiring};
use crate::transport::{Arrival, Label, Transport};

use super::agenda::{Happening, Ticket};
use super::application::Context;
use super::fault::{Fault, Link, Verdict};
use super::host::Host;
use super::probe::{AtPort, Backlog, LossCause, Probe};
use super::wheel::MANY;
use super::{Counters, Wheel};

/// See the module's description.
pub(super) struct Net<T: Transport, P, F> {
    pub now: SimTime,
    pub events: Wheel<Ticket>,
    pub ports: Vec<Port>,
    /// By port.
    levels: Vec<Levels>,
    /// By port: frames dropped for want of buffer.
    pub drops: Vec<u64>,
    pub flights: Flights<T::Packet>,
    pub hosts: Vec<Host>,
    /// By host.
    pub transports: Vec<T>,
    pub wiring: Wiring,
    pub config: FabricConfig,
    pub chooser: Chooser,
    pub probe: P,
    pub faults: F,
    pub counters: Counters,
    pub trace: TraceHash,
    pub stopped: bool,
    /// Keeps the compiler from leaving out reads that are made for their side effect.
    pub fetched: u32,
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
        transports: Vec<T>,
        (probe, faults): (P, F),
    ) -> Self {
        let limit = |port: &PortSpec| match config.buffers {
            Buffers::PerPort(bytes) if port.tier != Tier::HostUp => {
                u32::try_from(bytes).unwrap_or(u32::MAX)
            }
            _ => u32::MAX,
        };
        let mut events = Wheel::default();
        for host in 0..wiring.hosts() {
            events.push(SimTime::ZERO, Ticket::new(Happening::Timer(host)));
        }
        Self {
            now: SimTime::ZERO,
            events,
            ports: wiring.ports().iter().map(|port| Port::new(port, limit(port))).collect(),
            levels: vec![Levels::EMPTY; wiring.ports().len()],
            drops: vec![0; wiring.ports().len()],
            flights: Flights::new(),
            hosts: vec![Host::new(); transports.len()],
            transports,
            chooser: Chooser::new(config.seed),
            wiring,
            config,
            probe,
            faults,
            counters: Counters::default(),
            trace: TraceHash::default(),
            stopped: false,
            fetched: 0,
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

    /// Reads what the next events will need. The results are of no use, but the reads do not wait
    /// for each other, as they would when every event made its own. Small networks stay in the
    /// cache anyway.
    #[inline]
    pub fn fetch(&mut self) {
        if self.events.len() < MANY {
            return;
        }
        let (ports, frames) = (&self.ports, &self.flights.frames);
        let arrivals = || {
            self.events.batch().filter_map(|ticket| match ticket.happening() {
                Happening::Arrival(port) => Some(&ports[port as usize]),
                _ => None,
            })
        };
        let frame = |port: &Port| frames.get(port.first() as usize);
        let mut sum = arrivals().fold(0, |sum, port| sum ^ port.first());
        sum ^= arrivals().filter_map(frame).fold(0, |sum, frame| sum ^ frame.next);
        for port in arrivals() {
            let Some(frame) = frame(port) else { continue };
            sum ^= match port.to.0.checked_sub(self.wiring.hosts()) {
                Some(switch) => {
                    let next = self.wiring.routes().choices(switch, frame.to()).first;
                    ports.get(next as usize).map_or(0, Port::first)
                }
                None => {
                    let transport = &self.transports[port.to.0 as usize];
                    self.flights.parcel(port.first()).from ^ u32::from(transport.has_packet())
                }
            };
        }
        self.fetched = sum;
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
        let (slot, next) = port.arrive(&self.flights.frames, self.now);
        let to = port.to;
        if let Some(at) = next {
            self.schedule(at, Happening::Arrival(port_index));
        }
        self.counters.packet_hops += 1;
        if F::ACTIVE && !self.passes_faults(port_index, slot) {
            return None;
        }
        Some((slot, to))
    }

    /// Lets waiting frames enter service as they would have before now (or by now, if `inclusive`).
    #[inline]
    fn advance(&mut self, port_index: u32, inclusive: bool) {
        let port = &mut self.ports[port_index as usize];
        let levels = &mut self.levels[port_index as usize];
        let frames = &mut self.flights.frames;
        while port.is_due(self.now) && (inclusive || port.free_at < self.now) {
            let Started { slot, at } = port.serve(levels, frames);
            self.probe.departed(at, &at_port(port, port_index, slot, frames));
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
                self.defer(copy, to, self.now + extra);
                true
            }
        }
    }

    /// A frame is held up on its way into `node`.
    pub fn defer(&mut self, slot: u32, node: NodeId, until: SimTime) {
        self.flights.frames[slot as usize].next = node.0;
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
        self.enqueue(choices.first + chosen, slot, frame.bytes);
    }

    /// A packet is at an output port.
    #[inline]
    fn enqueue(&mut self, port_index: u32, slot: u32, bytes: u16) {
        if self.ports[port_index as usize].is_due(self.now) {
            self.advance(port_index, false);
        }
        let port = &mut self.ports[port_index as usize];
        let frames = &mut self.flights.frames;
        let there = at_port(port, port_index, slot, frames);
        if !port.is_busy(self.now) {
            self.probe.enqueued(self.now, &there, &Backlog::default());
            self.probe.departed(self.now, &there);
            if let Some(at) = port.start(frames, slot, self.now) {
                self.schedule(at, Happening::Arrival(port_index));
            }
            return;
        }
        let backlog = Backlog {
            queued_bytes: u64::from(port.queued()),
            residual_bytes: port.residual(self.now),
            in_service_priority: port.in_service(frames, self.now).map_or(0, Frame::priority),
        };
        self.probe.enqueued(self.now, &there, &backlog);
        if port.fits(frames, self.now, bytes) {
            port.wait(&mut self.levels[port_index as usize], frames, slot);
        } else {
            self.drops[port_index as usize] += 1;
            self.lose(slot, LossCause::Overflow);
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

    pub fn lose(&mut self, slot: u32, cause: LossCause) {
        self.counters.lost += 1;
        let to = HostId(self.flights.frame(slot).to());
        self.probe.lost(self.now, to, slot, &self.flights.parcel(slot).packet, cause);
        self.flights.remove(slot);
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
fn at_port(port: &Port, index: u32, slot: u32, frames: &[Frame]) -> AtPort {
    let frame = frames[slot as usize];
    AtPort {
        port: PortId(index),
        tier: port.tier,
        slot,
        wire_bytes: u32::from(frame.bytes),
        priority: frame.priority(),
    }
}

impl<T: Transport, P: Probe<T::Packet>, F: Fault<T::Packet>> Context for Net<T, P, F> {
    fn now(&self) -> SimTime {
        self.now
    }

    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError> {
        let transport = &mut self.transports[host.0 as usize];
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
