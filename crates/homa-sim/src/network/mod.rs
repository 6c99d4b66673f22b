//! Hosts around one output-queued switch, packet by packet.
//!
//! A host pulls a packet from its transport when its wire is free, serialises it, and the switch
//! receives it whole; the output port serialises it again; after propagation and the receiver's
//! software delay it reaches the transport. Two hops, four events. Invariants: one pending event
//! per wire and port; packets rest in a pool and travel as `u32`; equal plans and seeds give equal
//! [`Network::trace_hash`] values. Left out: more than one switch, ECN, shared switch memory.

mod chronicle;
mod fault;
mod host;
mod host_transport;
mod pool;
mod probe;
mod run;

pub use chronicle::Chronicle;
pub use fault::{Fault, Link, NoFaults, RandomFaults, Script, Verdict};
pub use host::{Application, Context};
pub use probe::{LossCause, Observed, Probe};

use crate::engine::EventQueue;
use crate::framing::Framing;
use crate::switch::{Frame, Port, QueueCounters};
use crate::time::{LinkRate, SimDuration, SimTime};
pub use host_transport::Transport;
use pool::Pool;

use homa_proto::Packet;
use host::Host;

pub use crate::topology::HostId;

/// The physics of a single-switch network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkConfig {
    /// Rate of every link.
    pub rate: LinkRate,
    /// Propagation delay of every cable.
    pub propagation: SimDuration,
    /// From a packet's last bit at a host to the transport's having it.
    pub software_delay: SimDuration,
    /// Buffer of each output port in wire bytes, shared by all priorities.
    pub buffer_bytes: u64,
    /// The headers around packets.
    pub framing: Framing,
}

/// Makes the transport of a host, also for each life after the first.
pub type MakeTransport<T> = Box<dyn FnMut(HostId, u32) -> T>;

/// Something scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// A host's wire finished a packet.
    WireFree(HostId),
    /// A packet's last bit reaches the switch.
    Ingress(u32),
    /// A packet delayed by a fault reaches the switch.
    Switch(u32),
    /// An output port finished a packet.
    PortFree(HostId),
    /// A packet's last bit reached its host and was taken up.
    Egress(u32),
    /// A packet delayed by a fault is taken up.
    Deliver(u32),
    /// A transport's deadline.
    Timer(HostId),
    /// An application asked to be called.
    Wake { host: HostId, life: u32, token: u64 },
    /// A host freezes.
    Pause { host: HostId, until: SimTime },
    /// A host stops; comes back after `downtime`, if given.
    Crash { host: HostId, downtime: Option<SimDuration> },
    /// A crashed host comes back.
    Restart(HostId),
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    from: HostId,
    /// As the sender's transport gave it.
    packet: Packet,
    wire_bytes: u32,
}

/// A packet waiting in an output port.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u32,
    wire_bytes: u32,
    priority: u8,
}

impl Frame for Waiting {
    fn bytes(&self) -> u32 {
        self.wire_bytes
    }

    fn priority(&self) -> u8 {
        self.priority
    }
}

/// Hosts around one switch. See the module's description.
pub struct Network<T, A, F = NoFaults, P = ()> {
    config: NetworkConfig,
    now: SimTime,
    events: EventQueue<Happening>,
    hosts: Vec<Host<T>>,
    ports: Vec<Port<Waiting>>,
    packets: Pool<Envelope>,
    make: MakeTransport<T>,
    application: A,
    faults: F,
    probe: P,
    trace: TraceHash,
    packet_hops: u64,
}

impl<T: Transport, A: Application<T>, F: Fault, P: Probe> Network<T, A, F, P> {
    /// `hosts` hosts, all up, nothing scheduled.
    pub fn new(
        config: NetworkConfig,
        hosts: u32,
        mut make: MakeTransport<T>,
        (application, faults, probe): (A, F, P),
    ) -> Self {
        let mut events = EventQueue::default();
        for host in (0..hosts).map(HostId) {
            events.push(SimTime::ZERO, Happening::Timer(host));
        }
        Self {
            config,
            now: SimTime::ZERO,
            events,
            hosts: (0..hosts).map(|host| Host::new(make(HostId(host), 0))).collect(),
            ports: (0..hosts).map(|_| Port::new(config.rate, config.buffer_bytes)).collect(),
            packets: Pool::default(),
            make,
            application,
            faults,
            probe,
            trace: TraceHash::default(),
            packet_hops: 0,
        }
    }

    /// Calls the application of `host` at `at`, unless it restarts before.
    pub fn wake(&mut self, host: HostId, at: SimTime, token: u64) {
        self.events.push(at, Happening::Wake { host, life: 0, token });
    }

    /// Freezes `host` for a while: packets, timers and applications wait.
    pub fn pause(&mut self, host: HostId, at: SimTime, length: SimDuration) {
        self.events.push(at, Happening::Pause { host, until: at + length });
    }

    /// Stops `host`, which loses all state; it starts anew after `downtime`, or never. A downtime
    /// shorter than the longest way of a packet lets packets of the old life meet the new one.
    pub fn crash(&mut self, host: HostId, at: SimTime, downtime: Option<SimDuration>) {
        self.events.push(at, Happening::Crash { host, downtime });
    }

    /// The time.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Events not yet happened.
    pub fn pending(&self) -> usize {
        self.events.len()
    }

    /// Packets in the fabric: on a wire or in a buffer.
    pub fn packets_in_flight(&self) -> usize {
        self.packets.len()
    }

    /// Packets serialised so far, counted on every link.
    pub fn packet_hops(&self) -> u64 {
        self.packet_hops
    }

    /// Equal for two runs exactly when the same packets were sent and received at the same times
    /// (up to collisions of a 64-bit hash).
    pub fn trace_hash(&self) -> u64 {
        self.trace.0
    }

    /// The transport of a host that is up.
    pub fn transport(&self, host: HostId) -> Option<&T> {
        self.hosts.get(host.0 as usize).filter(|host| host.up).map(|host| &host.transport)
    }

    /// The transports of the hosts that are up.
    pub fn transports(&self) -> impl Iterator<Item = &T> {
        self.hosts.iter().filter(|host| host.up).map(|host| &host.transport)
    }

    /// What the output port to `host` counted.
    pub fn port_counters(&self, host: HostId) -> Option<&QueueCounters> {
        self.ports.get(host.0 as usize).map(Port::counters)
    }

    /// The probe.
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The probe, to be asked for its findings.
    pub fn probe_mut(&mut self) -> &mut P {
        &mut self.probe
    }

    /// The application.
    pub fn application(&self) -> &A {
        &self.application
    }
}

/// An order-dependent hash of what happened.
#[derive(Clone, Copy, Debug, Default)]
struct TraceHash(u64);

impl TraceHash {
    fn mix(&mut self, word: u64) {
        // The 64-bit golden ratio, odd: multiplication is a bijection.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests;
