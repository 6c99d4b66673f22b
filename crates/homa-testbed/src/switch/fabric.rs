//! The switches of a rack, without a clock: uplinks that serialise, output ports that queue.
//!
//! Store and forward. A host's frame reaches its switch when its last bit has left the uplink.
//! homa-sim's [`PathChooser`] chooses the path at every switch; output ports are homa-sim's
//! [`SoftwarePort`] with its marking queues. A frame is delivered when its last bit has left the
//! downlink. Every time is computed from the time at which a frame was handed to its uplink, never
//! from the time at which the caller looked, so that lateness does not accumulate. Faults (loss,
//! duplication) happen at the first switch; links change their rate, or fail, at the requested
//! times.
//!
//! Invariants: an uplink delivers in order and carries one frame at a time; events happen in the
//! order of their ideal times. Left out: learning and flooding, because the rack knows the port of
//! every host.

use std::collections::VecDeque;

use homa_sim::fabric::queue::{EcnScope, EcnThreshold, Phantom, PhantomConfig};
use homa_sim::fabric::{Forwarding, Marks};
use homa_sim::software_switch::{Departure, Flow, PathChooser, SoftwarePort, SwitchFrame};
use homa_sim::topology::{NodeId, PortId, PortSpec, Wiring};
use homa_sim::{LinkRate, SimDuration, SimTime};
use homa_workload::rng::Rng;

use super::queueing::Queueing;

/// Faults that a switch injects on request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is delivered twice.
    pub duplication: f64,
    /// Seed of the choices.
    pub seed: u64,
}

/// Marking of congestion (CE) in packets whose senders react to it (RFC 3168 §5); none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marking {
    /// A phantom queue at every port (HULL §2.1).
    pub phantom: Option<PhantomConfig>,
    /// Wire bytes waiting at the packet's own priority beyond which it is marked as it arrives (RFC
    /// 8257 §3.1).
    pub ecn_threshold: Option<u32>,
}

impl Marking {
    /// Whether anything is marked at all.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// The queue of a port to a link of that rate.
    fn queue(&self, link: LinkRate) -> Marker {
        let threshold = self.ecn_threshold.unwrap_or(u32::MAX);
        let queue = EcnThreshold::new(threshold, EcnScope::Queue);
        Phantom::new(queue, self.phantom, link.rate())
    }
}

/// The queue of a port: strict priorities, an ECN threshold, a phantom queue around them.
type Marker = Phantom<EcnThreshold>;

/// The new state of a link between switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkChange {
    /// It has this rate from the next frame on.
    Rate(LinkRate),
    /// It fails: waiting frames are lost, and paths avoid it from now on.
    Down,
}

/// A link that changes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkEvent {
    /// Time of the change.
    pub(crate) at: SimTime,
    /// Its ends.
    pub(crate) ends: [NodeId; 2],
    /// Its new state.
    pub(crate) change: LinkChange,
}

/// A delivery: the frame, the port it leaves by, and the time of its last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery<F> {
    /// Index of the host.
    pub(crate) port: usize,
    /// The frame.
    pub(crate) frame: F,
    /// The ideal time.
    pub(crate) at: SimTime,
}

/// Counters of everything but deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FabricCounters {
    /// Frames lost on request.
    pub(crate) lost: u64,
    /// Frames duplicated on request.
    pub(crate) duplicated: u64,
    /// Frames that the switch noticed after they should have reached their output port.
    pub(crate) late: u64,
    /// Frames dropped because the buffer of an output port was full.
    pub(crate) dropped: u64,
    /// Frames marked with CE, once for each port that did.
    pub(crate) marked: u64,
    /// Frames lost with a link that failed, or because no path was left.
    pub(crate) cut: u64,
}

/// The configuration of a rack's switches.
#[derive(Clone, Debug)]
pub(crate) struct FabricConfig {
    /// The topology; its delays are not used.
    pub(crate) wiring: Wiring,
    /// Choice among shortest paths.
    pub(crate) forwarding: Forwarding,
    /// Propagation delay from a host to its first switch.
    pub(crate) uplink_delay: SimDuration,
    /// Buffer of every output port, wire bytes.
    pub(crate) buffer_bytes: u64,
    /// Marking of congestion.
    pub(crate) marking: Marking,
    /// Injected faults.
    pub(crate) faults: Faults,
}

/// A frame in flight.
#[derive(Clone, Debug)]
struct Hop<F> {
    frame: F,
    flow: Flow,
}

impl<F: SwitchFrame> SwitchFrame for Hop<F> {
    fn bytes(&self) -> u32 {
        self.frame.bytes()
    }

    fn priority(&self) -> u8 {
        self.flow.priority
    }

    fn marks(&self) -> Marks {
        self.frame.marks()
    }

    fn mark(&mut self, marks: Marks) {
        self.frame.mark(marks);
    }
}

/// See the module's description.
pub(crate) struct Fabric<F> {
    config: FabricConfig,
    paths: PathChooser,
    uplinks: Vec<Uplink<F>>,
    /// Of switches: by [`PortId`], less the number of hosts.
    ports: Vec<SoftwarePort<Hop<F>, Marker>>,
    changes: VecDeque<LinkEvent>,
    loss: Rng,
    duplication: Rng,
    /// Everything up to here has happened.
    done: SimTime,
    counters: FabricCounters,
    /// Of the ports to hosts.
    queueing: Vec<Queueing>,
    next_probe: SimTime,
}

/// Interval between probes of the time that a frame would wait.
const PROBE_EVERY: SimDuration = SimDuration::micros(1_000);

struct Uplink<F> {
    rate: LinkRate,
    free_at: SimTime,
    /// Frames on the wire or waiting for it: arrival at the switch, frame.
    frames: VecDeque<(SimTime, Hop<F>)>,
}

impl<F> Uplink<F> {
    /// The next frame whose last bit has reached the switch by `at`.
    fn arrived(&mut self, at: SimTime) -> Option<Hop<F>> {
        let (last_bit, hop) = self.frames.pop_front()?;
        if last_bit > at {
            self.frames.push_front((last_bit, hop));
            return None;
        }
        Some(hop)
    }
}

impl<F: SwitchFrame + Clone> Fabric<F> {
    /// Idle switches.
    pub(crate) fn new(config: FabricConfig) -> Self {
        let hosts = config.wiring.hosts() as usize;
        let (ups, downs) = config.wiring.ports().split_at(hosts);
        let uplink = |spec: &PortSpec| Uplink {
            rate: LinkRate::new(spec.rate),
            free_at: SimTime::ZERO,
            frames: VecDeque::new(),
        };
        let faults = config.faults;
        Self {
            uplinks: ups.iter().map(uplink).collect(),
            ports: downs.iter().map(|spec| idle(&config, LinkRate::new(spec.rate))).collect(),
            paths: PathChooser::new(config.wiring.clone(), config.forwarding, faults.seed),
            changes: VecDeque::new(),
            loss: Rng::stream(faults.seed, "testbed loss"),
            duplication: Rng::stream(faults.seed, "testbed duplication"),
            done: SimTime::ZERO,
            counters: FabricCounters::default(),
            queueing: vec![Queueing::default(); hosts],
            next_probe: SimTime::ZERO,
            config,
        }
    }

    /// Host `from` hands a frame for host `to` to its uplink at `at`. `label`: equal for the frames
    /// of a flow.
    pub(crate) fn send(&mut self, at: SimTime, (from, to): (usize, usize), label: u32, frame: F) {
        let uplink = &mut self.uplinks[from];
        uplink.free_at = at.max(uplink.free_at) + uplink.rate.serialisation(frame.bytes());
        let last_bit = uplink.free_at + self.config.uplink_delay;
        if last_bit < self.done {
            self.counters.late += 1;
        }
        let priority = frame.priority().min(7);
        let flow = Flow { from: from as u32, to: to as u32, label, priority };
        uplink.frames.push_back((last_bit, Hop { frame, flow }));
    }

    /// Links change at these times, which are in order and not over.
    pub(crate) fn change(&mut self, changes: impl IntoIterator<Item = LinkEvent>) {
        self.changes.extend(changes);
    }

    /// Restores all links as built; no change is pending.
    pub(crate) fn mend(&mut self) {
        self.changes.clear();
        let hosts = self.uplinks.len();
        let ports = self.paths.wiring().ports();
        for (port, spec) in self.ports.iter_mut().zip(&ports[hosts..]) {
            port.set_rate(LinkRate::new(spec.rate));
        }
        let all: Vec<PortId> = (0..ports.len() as u32).map(PortId).collect();
        self.paths.set_alive(&all, true);
    }

    /// No delivery is due before this time, at which [`Fabric::advance`] should be called. Frames
    /// that reach their output port meanwhile need no wake-up, because `advance` handles past
    /// events in order.
    pub(crate) fn next_delivery(&self) -> Option<SimTime> {
        let through = |uplink: &Uplink<F>| {
            let (last_bit, hop) = uplink.frames.front()?;
            Some(*last_bit + uplink.rate.serialisation(hop.bytes()))
        };
        let arriving = self.uplinks.iter().filter_map(through).min();
        let departing = self.ports.iter().filter_map(SoftwarePort::departs).min();
        [arriving, departing].into_iter().flatten().min()
    }

    /// Time at which the next frame arrives at its first switch or leaves a port, or a link
    /// changes.
    fn next_event(&self) -> Option<SimTime> {
        let arrival = self.uplinks.iter().filter_map(|u| u.frames.front().map(|f| f.0)).min();
        let departure = self.ports.iter().filter_map(SoftwarePort::departs).min();
        let change = self.changes.front().map(|change| change.at);
        [arrival, departure, change].into_iter().flatten().min()
    }

    /// Handles every event that is due by `now`, in the order of ideal times.
    pub(crate) fn advance(&mut self, now: SimTime, mut deliver: impl FnMut(Delivery<F>)) {
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            self.probe(at);
            // A frame that was noticed late cannot arrive before events that already happened.
            self.done = self.done.max(at);
            while let Some(&change) = self.changes.front().filter(|change| change.at <= at) {
                self.changes.pop_front();
                self.apply(change);
            }
            for port in 0..self.ports.len() {
                while let Some(left) = self.ports[port].next(at) {
                    self.left(port, left, &mut deliver);
                }
            }
            for from in 0..self.uplinks.len() {
                while let Some(hop) = self.uplinks[from].arrived(at) {
                    self.enter(from, hop);
                }
            }
        }
        self.probe(now);
        self.done = self.done.max(now);
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// Queueing at the port to each host since the last call.
    pub(crate) fn take_queueing(&mut self) -> Vec<Queueing> {
        let empty = vec![Queueing::default(); self.queueing.len()];
        std::mem::replace(&mut self.queueing, empty)
    }

    /// Records how long a frame of the lowest level would have waited at the port to each host,
    /// every millisecond before `until`.
    fn probe(&mut self, until: SimTime) {
        while self.next_probe < until {
            for (seen, port) in self.queueing.iter_mut().zip(&self.ports) {
                seen.probe(port.longest_wait(self.next_probe));
            }
            self.next_probe += PROBE_EVERY;
        }
    }

    /// A frame left a port of a switch, for a host or the next switch.
    fn left(
        &mut self,
        port: usize,
        Departure { frame: hop, at, marked }: Departure<Hop<F>>,
        deliver: &mut impl FnMut(Delivery<F>),
    ) {
        self.counters.marked += u64::from(marked);
        let hosts = self.uplinks.len();
        let to = self.paths.wiring().ports()[hosts + port].to;
        match to.0 as usize {
            host if host < hosts => deliver(Delivery { port: host, frame: hop.frame, at }),
            _ => self.forward(to, hop),
        }
    }

    /// A host's frame is at its first switch.
    fn enter(&mut self, from: usize, hop: Hop<F>) {
        if self.loss.chance(self.config.faults.loss) {
            self.counters.lost += 1;
            return;
        }
        let switch = self.paths.wiring().ports()[from].to;
        if self.duplication.chance(self.config.faults.duplication) {
            self.counters.duplicated += 1;
            self.forward(switch, hop.clone());
        }
        self.forward(switch, hop);
    }

    /// A frame is at a switch.
    fn forward(&mut self, switch: NodeId, hop: Hop<F>) {
        let Self { paths, ports, uplinks, queueing, .. } = self;
        let hosts = uplinks.len();
        let level = hop.flow.priority;
        let drain = |port: PortId| ports[port.0 as usize - hosts].drain_bytes(level);
        let Some(port) = paths.choose(switch, hop.flow, drain) else {
            self.counters.cut += 1;
            return;
        };
        let port = port.0 as usize - hosts;
        if let Some(seen) = queueing.get_mut(port) {
            seen.arrives(ports[port].waiting_bytes());
        }
        if ports[port].enqueue(self.done, hop).is_err() {
            self.counters.dropped += 1;
        }
    }

    fn apply(&mut self, LinkEvent { ends: [one, other], change, .. }: LinkEvent) {
        let wiring = self.paths.wiring();
        let both = [wiring.port_between(one, other), wiring.port_between(other, one)];
        let both: Vec<PortId> = both.into_iter().flatten().collect();
        for port in &both {
            let spec = self.paths.wiring().ports()[port.0 as usize];
            // Hosts' own links do not change.
            let Some(index) = (port.0 as usize).checked_sub(self.uplinks.len()) else { continue };
            match change {
                LinkChange::Rate(rate) => self.ports[index].set_rate(rate),
                LinkChange::Down => {
                    let idle = idle(&self.config, LinkRate::new(spec.rate));
                    let mut gone = std::mem::replace(&mut self.ports[index], idle);
                    while gone.next(SimTime::MAX).is_some() {
                        self.counters.cut += 1;
                    }
                }
            }
        }
        if change == LinkChange::Down {
            self.paths.set_alive(&both, false);
        }
    }
}

/// An idle port to a link of that rate.
fn idle<F: SwitchFrame>(config: &FabricConfig, rate: LinkRate) -> SoftwarePort<F, Marker> {
    SoftwarePort::new(rate, config.buffer_bytes, config.marking.queue(rate))
}

#[cfg(test)]
mod tests;
