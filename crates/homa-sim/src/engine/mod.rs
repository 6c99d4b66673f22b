//! The deterministic core: hosts that run a transport, joined by a fabric, packet by packet.
//!
//! A host pulls a packet from its transport when its wire is free; the packet crosses links and
//! switches and is given to the receiver's transport. Output-queued switches cost one event per
//! hop; those that queue at their inputs, too (`cioq`), four. Everything is chosen at compile time
//! ([`World`]): transport, queues, applications, probe, faults.
//!
//! Invariants: events happen in the order (time, order of scheduling); one pending event per port
//! and one current timer per host; nothing is allocated per packet once buffers have grown; equal
//! inputs give equal [`Simulation::trace_hash`] values on any machine.

mod agenda;
mod application;
mod chronicle;
mod cioq;
mod event_queue;
mod fault;
mod hop;
mod host;
mod net;
mod preemption;
mod prefetch;
mod probe;
mod run;
mod wheel;
mod world;

pub use application::{Application, Context};
pub use chronicle::Chronicle;
pub(crate) use cioq::earliest_pause;
pub use cioq::{MOST_LINKS, PauseReport, StuckLevels};
pub use event_queue::EventQueue;
pub use fault::{DirectedLink, Fault, LinkChange, NoFaults, PacketFate, RandomFaults, Script};
pub use probe::{AtPort, Backlog, LossCause, Probe};
pub use wheel::Wheel;
pub use world::{PacketOf, TagOf, World};

use crate::fabric::{FabricConfig, PortQueue, StrictPriority};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortId, PortSpec, Wiring};
use crate::transport::Transport;

pub(crate) use net::TraceHash;
use net::{Incident, Net};

/// Makes the transport of a host, also for each life after the first.
pub type MakeTransport<T> = Box<dyn FnMut(HostId, u32) -> T>;

/// Why [`Simulation::run_until`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The time was reached; more is pending.
    Time,
    /// Nothing is pending any more.
    Drained,
    /// The application said so.
    Stopped,
    /// The number of events allowed happened.
    Events,
}

/// What a run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets serialised on a link and delivered at its far end, counted on every link.
    pub packet_hops: u64,
    /// Events that happened.
    pub events: u64,
    /// Most events pending at once.
    pub peak_pending: usize,
    /// Packets lost, whatever the cause.
    pub lost: u64,
}

/// A network of hosts. See the module's description.
pub struct Simulation<W: World> {
    net: Net<W>,
    application: W::App,
    make: MakeTransport<W::Host>,
}

impl<T, A, P, F> Simulation<(T, StrictPriority, A, P, F)>
where
    T: Transport,
    A: Application,
    P: Probe<T>,
    F: Fault<T::Packet>,
{
    /// [`Simulation::with_queues`] where ports serve strict priorities.
    pub fn new(
        wiring: Wiring,
        config: FabricConfig,
        make: MakeTransport<T>,
        parts: (A, P, F),
    ) -> Self {
        Self::with_queues(wiring, config, (make, &mut |_, _| StrictPriority), parts)
    }
}

/// Makes the queue of a port.
pub type MakeQueue<'a, Q> = &'a mut dyn FnMut(PortId, &PortSpec) -> Q;

impl<T, Q, A, P, F> Simulation<(T, Q, A, P, F)>
where
    T: Transport,
    Q: PortQueue,
    A: Application,
    P: Probe<T>,
    F: Fault<T::Packet>,
{
    /// All hosts up, nothing scheduled but their first timers. The wiring must be fit
    /// ([`Wiring::unfit`]). `preemption` needs a queue that is
    /// [preemptible](PortQueue::IS_PREEMPTIBLE). The queues of hosts' own ports are never used: a
    /// host pulls.
    pub fn with_queues(
        wiring: Wiring,
        config: FabricConfig,
        (mut make, queue): (MakeTransport<T>, MakeQueue<'_, Q>),
        (application, probe, faults): (A, P, F),
    ) -> Self {
        debug_assert_eq!(wiring.unfit(), None);
        debug_assert!(Q::IS_PREEMPTIBLE || !config.preemption);
        debug_assert_eq!(Q::IS_COMBINED, config.cioq.is_some());
        let transports = (0..wiring.hosts()).map(|host| make(HostId(host), 0)).collect();
        let ports = (0..).map(PortId).zip(wiring.ports());
        let queues = ports.map(|(port, spec)| queue(port, spec)).collect();
        let net = Net::new((wiring, config), (transports, queues), (probe, faults));
        Self { net, application, make }
    }
}

impl<W: World> Simulation<W> {
    /// Calls [`Application::wake`] at `at`.
    pub fn wake_at(&mut self, at: SimTime, token: u64) {
        Context::wake_at(&mut self.net, at, token);
    }

    /// Calls [`Application::wake_host`] at `at`, unless the host restarts before.
    pub fn wake_host_at(&mut self, host: HostId, at: SimTime, token: u64) {
        Context::wake_host_at(&mut self.net, host, at, token);
    }

    /// Freezes `host` for a while: packets, timers and applications wait.
    pub fn pause(&mut self, host: HostId, at: SimTime, length: SimDuration) {
        self.net.plan(at, Incident::Pause { host, until: at + length });
    }

    /// Stops `host`, which loses all state; it starts anew after `downtime`, or never. A downtime
    /// shorter than the longest way of a packet lets packets of the old life meet the new one.
    pub fn crash(&mut self, host: HostId, at: SimTime, downtime: Option<SimDuration>) {
        self.net.plan(at, Incident::Crash { host, downtime });
    }

    /// Changes one direction of a link.
    pub fn change_link(&mut self, port: PortId, at: SimTime, change: LinkChange) {
        if let LinkChange::Rate(rate) = change {
            self.net.expect_rate(port, at, rate);
        }
        self.net.plan(at, Incident::Link(port, change));
    }

    /// The time.
    pub fn now(&self) -> SimTime {
        self.net.now
    }

    /// When the last event happened: earlier than [`Simulation::now`] after a wait for nothing.
    pub fn last_event(&self) -> SimTime {
        let (at, number) = self.net.idle;
        if number == self.net.counters.events { at } else { self.net.now }
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters { peak_pending: self.net.events.peak(), ..self.net.counters }
    }

    /// Events not yet happened.
    pub fn pending(&self) -> usize {
        self.net.events.len()
    }

    /// Packets in the fabric: on a wire or in a buffer.
    pub fn packets_in_flight(&self) -> u32 {
        self.net.flights.live()
    }

    /// Equal for two runs exactly when the same packets (by sender, receiver, size, priority and
    /// flow) were sent and received at the same times, up to collisions of a 64-bit hash.
    pub fn trace_hash(&self) -> u64 {
        self.net.trace.0
    }

    /// The topology.
    pub fn wiring(&self) -> &Wiring {
        &self.net.wiring
    }

    /// The transport of a host that is up.
    pub fn transport(&self, host: HostId) -> Option<&W::Host> {
        let up = self.net.hosts.get(host.0 as usize)?.up;
        up.then(|| &self.net.transports[host.0 as usize])
    }

    /// The transports of the hosts that are up.
    pub fn transports(&self) -> impl Iterator<Item = &W::Host> {
        let both = self.net.hosts.iter().zip(&self.net.transports);
        both.filter(|(host, _)| host.up).map(|(_, transport)| transport)
    }

    /// Wire bytes of the frames that a port has begun to send.
    pub fn sent_bytes(&self, port: PortId) -> u64 {
        self.net.ports[port.0 as usize].sent_bytes
    }

    /// Frames that a port's queue dropped: for want of buffer, or because others were worth more.
    pub fn dropped_frames(&self, port: PortId) -> u64 {
        self.net.drops[port.0 as usize]
    }

    /// Which ports are paused, and for whom they wait; `None` where no link can be paused.
    pub fn pause_report(&self) -> Option<PauseReport> {
        self.net.pause_report()
    }

    /// The probe.
    pub fn probe(&self) -> &W::Probe {
        &self.net.probe
    }

    /// The probe, to be asked for its findings.
    pub fn probe_mut(&mut self) -> &mut W::Probe {
        &mut self.net.probe
    }

    /// The application.
    pub fn application(&self) -> &W::App {
        &self.application
    }

    /// The application, to be asked for its findings.
    pub fn application_mut(&mut self) -> &mut W::App {
        &mut self.application
    }
}

#[cfg(test)]
mod tests;
