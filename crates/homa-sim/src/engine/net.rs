//! State of the network without its applications. `hop.rs` moves packets through it.

use homa_proto::{Rate, Submit, SubmitError, Submitted};

use crate::fabric::{
    Buffers, Chooser, FabricConfig, Flights, Forwarding, Levels, LinkState, NONE, OutputPort,
};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, PortSpec, Tier, Wiring};
use crate::transport::Transport;

use super::agenda::{NetEvent, Ticket};
use super::application::Context;
use super::cioq::Cioq;
use super::fault::LinkChange;
use super::host::{ByHost, HostState};
use super::partitions::Boundary;
use super::pauses::FlowControl;
use super::prefetch::Lookahead;
use super::probe::{AtPort, Probe};
use super::shared::SharedSwitches;
use super::world::{PacketOf, TagOf, World};
use super::{Counters, Wheel};

/// The network: ports, hosts, packets in flight and pending events.
pub(super) struct Net<W: World> {
    pub now: SimTime,
    /// Time and number of the last event after which none was pending.
    pub idle: (SimTime, u64),
    pub events: Wheel<Ticket>,
    pub ports: Vec<OutputPort>,
    /// By port.
    pub levels: Vec<Levels>,
    /// By port: frames that its queue dropped.
    pub drops: Vec<u64>,
    /// By port; a zero-sized type under strict priority.
    pub queues: Vec<W::Queue>,
    pub flights: Flights<PacketOf<W>, TagOf<W>>,
    /// State of input-queued switches; otherwise empty.
    pub cioq: Cioq,
    /// Flow control of links; empty unless switches pause their senders.
    pub pauses: FlowControl<PacketOf<W>>,
    /// State of switches that share memory; otherwise empty.
    pub shared: SharedSwitches,
    /// Ports of switches have an event for the end of a transmission, instead of being lazy.
    pub eager: bool,
    /// By switch, if forwarding is adaptive: the previous choice.
    pub turns: Vec<u32>,
    /// By port, if frames are interrupted or cut through: the frame in service.
    pub services: Vec<Service>,
    /// By switch, if its ports share memory: its ports.
    pub siblings: Vec<Vec<u32>>,
    /// By port: its link is up.
    alive: Vec<bool>,
    pub hosts: Vec<HostState>,
    /// By host; in a partition only those of a range that has its hosts.
    pub transports: ByHost<W::Host>,
    /// The links into other partitions, if this is one of several.
    pub boundary: Option<Box<Boundary<PacketOf<W>, TagOf<W>>>>,
    pub wiring: Wiring,
    pub config: FabricConfig,
    pub chooser: Chooser,
    pub probe: W::Probe,
    pub faults: W::Fault,
    pub counters: Counters,
    pub trace: TraceHash,
    pub stopped: bool,
    /// Keeps the compiler from removing reads whose only purpose is to fill the cache.
    pub fetched: u32,
    /// Buffer of [`Net::prefetch`].
    pub ahead: Vec<Lookahead>,
    /// Hosts with input from an application.
    pub dirty: Vec<u32>,
    wakes: Vec<Wake>,
    free_wakes: Vec<u32>,
    incidents: Vec<Incident>,
}

/// The last frame that entered service at a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// With preemption, the frame, or `NONE` if no frame is in service.
    pub slot: u32,
    /// The rate at which it leaves.
    pub mbps: u32,
    pub bytes: u16,
    pub priority: u8,
}

impl Service {
    const NONE: Self = Self { slot: NONE, mbps: 1, bytes: 0, priority: 0 };

    /// A frame that enters service at a port now.
    pub fn of(port: &OutputPort, slot: u32, there: &AtPort) -> Self {
        let AtPort { wire_bytes, priority, .. } = *there;
        Self { slot, mbps: port.mbps, bytes: wire_bytes as u16, priority }
    }
}

/// A call-back of an application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub token: u64,
    /// `NONE` for the network as a whole.
    pub host: u32,
    pub life: u32,
}

/// An incident of a host or a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    /// A host freezes.
    Pause { host: HostId, until: SimTime },
    /// A host stops, and restarts after `downtime`, if given.
    Crash { host: HostId, downtime: Option<SimDuration> },
    /// A crashed host restarts.
    Restart(HostId),
    /// A link changes.
    Link(PortId, LinkChange),
}

impl<W: World> Net<W> {
    pub fn new(
        (wiring, config): (Wiring, FabricConfig),
        (transports, queues): (ByHost<W::Host>, Vec<W::Queue>),
        (probe, faults): (W::Probe, W::Fault),
        boundary: Option<Boundary<PacketOf<W>, TagOf<W>>>,
    ) -> Self {
        let is_here = |host| boundary.as_ref().is_none_or(|here| here.has_host(host));
        let limit = |port: &PortSpec| match config.buffers {
            Buffers::PerPort(bytes) if port.tier != Tier::HostUp => {
                u32::try_from(bytes).unwrap_or(u32::MAX)
            }
            _ => u32::MAX,
        };
        let port = |spec: &PortSpec| OutputPort::new(spec, limit(spec));
        let mut events = Wheel::default();
        for host in (0..wiring.hosts()).filter(|host| is_here(*host)) {
            events.push(SimTime::ZERO, Ticket::new(NetEvent::Timer(host)));
        }
        let adaptive = matches!(config.forwarding, Forwarding::Adaptive(_));
        let mut net = Self {
            now: SimTime::ZERO,
            idle: (SimTime::ZERO, 0),
            events,
            ports: wiring.ports().iter().map(port).collect(),
            levels: vec![Levels::EMPTY; wiring.ports().len()],
            drops: vec![0; wiring.ports().len()],
            queues,
            flights: Flights::new(),
            cioq: Cioq::new(&wiring, &config),
            pauses: FlowControl::new(&wiring, &config),
            shared: SharedSwitches::new(&wiring, &config),
            eager: config.preemption || config.shared.is_some(),
            turns: vec![0; if adaptive { wiring.switches() as usize } else { 0 }],
            services: if config.preemption || config.cut_through {
                vec![Service::NONE; wiring.ports().len()]
            } else {
                Vec::new()
            },
            siblings: siblings(&wiring, config.buffers),
            alive: vec![true; wiring.ports().len()],
            hosts: (0..wiring.hosts())
                .map(|host| HostState { up: is_here(host), ..HostState::new() })
                .collect(),
            transports,
            chooser: match &boundary {
                None => Chooser::new(config.seed, "spray"),
                Some(here) => Chooser::new(config.seed, &format!("spray/{}", here.number())),
            },
            boundary: boundary.map(Box::new),
            wiring,
            config,
            probe,
            faults,
            counters: Counters::default(),
            trace: TraceHash::default(),
            stopped: false,
            fetched: 0,
            ahead: Vec::new(),
            dirty: Vec::new(),
            wakes: Vec::new(),
            free_wakes: Vec::new(),
            incidents: Vec::new(),
        };
        net.choose_cut_through();
        net.mark_crossing();
        net
    }

    /// Decides which links a switch cuts through. It may forward a frame that is still arriving
    /// only if none of its ports is faster, because a faster port would run dry.
    fn choose_cut_through(&mut self) {
        if !self.config.cut_through || self.config.preemption {
            return;
        }
        let specs = self.wiring.ports();
        let switch = |node: NodeId| node.0.checked_sub(self.wiring.hosts());
        let mut fastest = vec![0; self.wiring.switches() as usize];
        for (spec, port) in specs.iter().zip(&self.ports) {
            let Some(from) = switch(spec.from) else { continue };
            fastest[from as usize] = port.mbps.max(fastest[from as usize]);
        }
        for (spec, port) in specs.iter().zip(&mut self.ports) {
            port.cut_through = switch(spec.to).is_some_and(|to| port.mbps >= fastest[to as usize]);
        }
    }

    #[inline]
    pub fn schedule(&mut self, at: SimTime, event: NetEvent) {
        self.events.push(at, Ticket::new(event));
    }

    pub fn plan(&mut self, at: SimTime, incident: Incident) {
        self.incidents.push(incident);
        self.schedule(at, NetEvent::Incident((self.incidents.len() - 1) as u32));
    }

    /// Announces a later change of a link's rate.
    pub fn expect_rate(&mut self, port: PortId, at: SimTime, rate: Rate) {
        if let Some(config) = self.config.cioq {
            self.cioq.expect_rate(self.wiring.ports(), config, (port.0, at, rate));
        }
        if self.config.shared.is_some() {
            self.shared.expect_rate(self.wiring.ports(), (port.0, at, rate));
        }
    }

    /// A link fails, recovers or changes its rate; routes follow at once.
    pub fn change_link(&mut self, port: PortId, change: LinkChange) {
        self.advance(port.0, false);
        let works = match change {
            LinkChange::Fail => false,
            LinkChange::Recover => true,
            LinkChange::Rate(rate) => {
                self.ports[port.0 as usize].set_rate(rate);
                self.choose_cut_through();
                return self.probe.rate_changed(self.now, port, rate);
            }
        };
        if !works {
            self.clear_port(port.0);
        }
        let link = if works { LinkState::Up } else { LinkState::Down };
        self.ports[port.0 as usize].link = link;
        if works {
            self.signal_again(port.0);
        }
        self.alive[port.0 as usize] = works;
        self.wiring.reroute(&self.alive);
    }

    pub fn incident(&self, index: u32) -> Incident {
        self.incidents[index as usize]
    }

    /// Takes a call-back; its number becomes free.
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
        self.schedule(at.max(self.now), NetEvent::Wake(index));
    }

    fn mark(&mut self, host: HostId) {
        let at = &mut self.hosts[host.0 as usize];
        if !at.dirty {
            at.dirty = true;
            self.dirty.push(host.0);
        }
    }
}

impl<W: World> Context for Net<W> {
    fn now(&self) -> SimTime {
        self.now
    }

    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError> {
        self.submit_at(host, what, None)
    }

    fn submit_at(
        &mut self,
        host: HostId,
        what: Submit,
        level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        let transport = &mut self.transports[host.0 as usize];
        let result = transport.submit_at(self.now.protocol(), what, level);
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

fn siblings(wiring: &Wiring, buffers: Buffers) -> Vec<Vec<u32>> {
    if !matches!(buffers, Buffers::Shared { .. }) {
        return Vec::new();
    }
    let mut siblings = vec![Vec::new(); wiring.switches() as usize];
    for (index, port) in (0..).zip(wiring.ports()) {
        if let Some(switch) = port.from.0.checked_sub(wiring.hosts()) {
            siblings[switch as usize].push(index);
        }
    }
    siblings
}

/// A hash of the events, which depends on their order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceHash(pub u64);

impl TraceHash {
    #[inline]
    pub fn mix(&mut self, now: SimTime, (from, to): (u32, u32), what: u64) {
        self.word(now.0 ^ what.rotate_left(17));
        self.word(u64::from(from) << 32 | u64::from(to));
    }

    #[inline]
    pub fn word(&mut self, word: u64) {
        // The 64-bit golden ratio, odd: multiplication is a bijection.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
