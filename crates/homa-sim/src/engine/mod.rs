//! The deterministic core: hosts that run a transport, joined by a fabric, simulated packet by
//! packet.
//!
//! If a host's wire is free, it pulls a packet from its transport. The packet crosses links and
//! switches and is given to the receiver's transport. Output-queued switches cost one event per
//! hop, or two if they share memory (`shared`), input-queued ones (`cioq`) four. Transport, queues,
//! applications, probe and faults are chosen at compile time ([`World`]).
//!
//! Invariants: events happen in the order of time, then of scheduling; each port has at most one
//! pending event and each host one current timer; nothing is allocated per packet once buffers have
//! grown; equal inputs give equal [`Simulation::trace_hash`] values on any machine.

mod agenda;
mod application;
mod chronicle;
mod cioq;
mod event_queue;
mod fault;
mod hop;
mod host;
mod net;
mod partitions;
mod pauses;
mod preemption;
mod prefetch;
mod probe;
mod run;
mod shared;
mod switch_model;
mod wheel;
mod world;

pub use application::{Application, Context};
pub use chronicle::Chronicle;
pub(crate) use cioq::earliest_pause;
pub use event_queue::EventQueue;
pub use fault::{DirectedLink, Fault, LinkChange, NoFaults, PacketFate, RandomFaults, Script};
pub(crate) use partitions::{Divided, Partitioned};
pub use pauses::{MOST_LINKS, PauseReport, PausedPort, StuckLevels};
pub use probe::{AtPort, LossCause, PortBacklog, Probe};
pub(crate) use shared::tightest;
pub use wheel::Wheel;
pub use world::{PacketOf, TagOf, World};

use crate::fabric::{FabricConfig, PortQueue, StrictPriority};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortId, PortSpec, Wiring};
use crate::transport::Transport;

use host::ByHost;
pub(crate) use net::TraceHash;
use net::{Incident, Net};

/// Makes the transport of a host, given its life: 0 at first, then the number of restarts.
pub type MakeTransport<T> = Box<dyn FnMut(HostId, u32) -> T + Send>;

/// Why [`Simulation::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The time was reached; more events are pending.
    Time,
    /// No event is pending.
    Drained,
    /// The application stopped the run.
    Stopped,
    /// The allowed number of events happened.
    Events,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets serialised and delivered, counted once on every link.
    pub packet_hops: u64,
    /// Events that happened.
    pub events: u64,
    /// Largest number of events pending at once.
    pub peak_pending: usize,
    /// Packets lost, for any reason.
    pub lost: u64,
    /// Packets whose payload switches trimmed, once for each time.
    pub trimmed: u64,
}

/// A network of hosts; see the module header.
pub struct Simulation<W: World> {
    net: Net<W>,
    application: W::App,
    /// Makes the transport of a host that restarts; none does in a partition.
    make: Option<MakeTransport<W::Host>>,
}

impl<T, A, P, F> Simulation<(T, StrictPriority, A, P, F)>
where
    T: Transport,
    A: Application,
    P: Probe<T>,
    F: Fault<T::Packet>,
{
    /// As [`Simulation::with_queues`], with strict priorities at every port.
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
    /// All hosts are up, and only their first timers are scheduled. [`Wiring::unfit`] should be
    /// `None`. `preemption` needs a queue that is [preemptible](PortQueue::IS_PREEMPTIBLE). The
    /// queues of the hosts' own ports are unused, because a host pulls.
    pub fn with_queues(
        wiring: Wiring,
        config: FabricConfig,
        (mut make, queue): (MakeTransport<T>, MakeQueue<'_, Q>),
        (application, probe, faults): (A, P, F),
    ) -> Self {
        debug_assert_eq!(wiring.unfit(homa_proto::FULL_FRAME), None);
        debug_assert!(Q::IS_PREEMPTIBLE || !config.preemption);
        debug_assert_eq!(Q::IS_COMBINED, config.cioq.is_some());
        debug_assert!(config.shared.is_none() || config.cioq.is_none() && !config.preemption);
        let transports = (0..wiring.hosts()).map(|host| make(HostId(host), 0)).collect();
        let ports = (0..).map(PortId).zip(wiring.ports());
        let queues = ports.map(|(port, spec)| queue(port, spec)).collect();
        let transports = ByHost::new(0, transports);
        let net = Net::new((wiring, config), (transports, queues), (probe, faults), None);
        Self { net, application, make: Some(make) }
    }
}

impl<W: World> Simulation<W> {
    /// Calls [`Application::wake`] at `at`.
    pub fn wake_at(&mut self, at: SimTime, token: u64) {
        Context::wake_at(&mut self.net, at, token);
    }

    /// Calls [`Application::wake_host`] at `at`, unless the host restarts before that.
    pub fn wake_host_at(&mut self, host: HostId, at: SimTime, token: u64) {
        Context::wake_host_at(&mut self.net, host, at, token);
    }

    /// Freezes `host` for `length`: packets, timers and application call-backs wait.
    pub fn pause(&mut self, host: HostId, at: SimTime, length: SimDuration) {
        self.net.plan(at, Incident::Pause { host, until: at + length });
    }

    /// Stops `host`, which loses all state, and restarts it after `downtime`, if given. If the
    /// downtime is shorter than the longest delay of a packet, packets of the old life reach the
    /// new one.
    pub fn crash(&mut self, host: HostId, at: SimTime, downtime: Option<SimDuration>) {
        self.net.plan(at, Incident::Crash { host, downtime });
    }

    /// Changes one direction of a link at `at`.
    pub fn change_link(&mut self, port: PortId, at: SimTime, change: LinkChange) {
        if let LinkChange::Rate(rate) = change {
            self.net.expect_rate(port, at, rate);
        }
        self.net.plan(at, Incident::Link(port, change));
    }

    /// The current time.
    pub fn now(&self) -> SimTime {
        self.net.now
    }

    /// Time of the last event. It is earlier than [`Simulation::now`] if the run waited without an
    /// event.
    pub fn last_event(&self) -> SimTime {
        let (at, number) = self.net.idle;
        if number == self.net.counters.events { at } else { self.net.now }
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        Counters { peak_pending: self.net.events.peak(), ..self.net.counters }
    }

    /// Number of pending events.
    pub fn pending(&self) -> usize {
        self.net.events.len()
    }

    /// Packets in the fabric: on a wire or in a buffer.
    pub fn packets_in_flight(&self) -> u32 {
        self.net.flights.live()
    }

    /// Equal for two runs exactly if the same packets (by sender, receiver, size, priority and
    /// flow) were sent and received at the same times, up to collisions of a 64-bit hash.
    pub fn trace_hash(&self) -> u64 {
        self.net.trace.0
    }

    /// The topology.
    pub fn wiring(&self) -> &Wiring {
        &self.net.wiring
    }

    /// The transport of a host, if it is up.
    pub fn transport(&self, host: HostId) -> Option<&W::Host> {
        let up = self.net.hosts.get(host.0 as usize)?.up;
        self.net.transports.get(host.0).filter(|_| up)
    }

    /// The transports of the hosts that are up.
    pub fn transports(&self) -> impl Iterator<Item = &W::Host> {
        let all = self.net.transports.iter();
        all.filter(|(host, _)| self.net.hosts[*host].up).map(|(_, transport)| transport)
    }

    /// Wire bytes of the frames whose transmission a port has begun.
    pub fn sent_bytes(&self, port: PortId) -> u64 {
        self.net.ports[port.0 as usize].sent_bytes
    }

    /// Frames dropped by a port's queue, because it was full or because it kept more important
    /// ones.
    pub fn dropped_frames(&self, port: PortId) -> u64 {
        self.net.drops[port.0 as usize]
    }

    /// Paused ports and the ports that they wait for; `None` if no link can be paused.
    pub fn pause_report(&self) -> Option<PauseReport> {
        self.net.pause_report()
    }

    /// The probe.
    pub fn probe(&self) -> &W::Probe {
        &self.net.probe
    }

    /// The probe, for reading its results.
    pub fn probe_mut(&mut self) -> &mut W::Probe {
        &mut self.net.probe
    }

    /// The application.
    pub fn application(&self) -> &W::App {
        &self.application
    }

    /// The application, for reading its results.
    pub fn application_mut(&mut self) -> &mut W::App {
        &mut self.application
    }
}

#[cfg(test)]
mod tests;
