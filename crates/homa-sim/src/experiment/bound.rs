//! The scheme `ideal`: a lower bound that no transport can beat by much ([`crate::clairvoyant`]),
//! run with a scenario's traffic. No packet is simulated. A message takes some time to reach its
//! receiver's link, waits there in SRPT order, and is delivered.
//!
//! Left out: queues and levels, because nothing waits in switches; measures of packets, faults and
//! RPCs, which the scheme refuses.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use homa_proto::{
    Delivered, Event, MessageId, MessageKind, PeerId, RpcHandle, Submit, SubmitError, Submitted,
};
use homa_workload::framing::Framing;

use crate::clairvoyant::{Downlinks, Due, End, Timing, Wired};
use crate::engine::{Application, Context, Counters, Halt, PauseReport, TraceHash};
use crate::nic::NicCounters;
use crate::time::SimTime;
use crate::topology::{HostId, PortId, Wiring};
use crate::traffic::Generator;
use crate::transport::{Timeouts, message_id};

use super::Experiment;
use super::assemble::MeasurementWindow;
use super::network::ScenarioNetwork;
use super::running::{AnySimulation, Measure};

/// A message in flight.
#[derive(Clone, Copy, Debug)]
struct Job {
    from: u32,
    to: u32,
    bytes: u32,
    number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BoundEvent {
    /// The first message in the queue of a receiver's link may be complete.
    End(End),
    /// A message reaches its receiver's link.
    Reach(usize),
    /// A message is delivered.
    Arrive(usize),
    /// A wake-up that the generator requested.
    Wake(u64),
}

/// The network as the generator sees it.
struct Links {
    wiring: Wiring,
    framing: Framing,
    downlinks: Downlinks,
    /// Events in the order of time. Events of the same time are in the order of planning.
    agenda: BinaryHeap<Reverse<(SimTime, u64, BoundEvent)>>,
    planned: u64,
    jobs: Vec<Job>,
    /// Free slots of `jobs`.
    free: Vec<usize>,
    /// By host: number of messages accepted, and their wire bytes.
    submitted: Vec<(u32, u64)>,
    now: SimTime,
    last_event: SimTime,
    events: u64,
    stopped: bool,
    trace: TraceHash,
}

impl Links {
    fn plan(&mut self, at: SimTime, event: BoundEvent) {
        self.planned += 1;
        self.agenda.push(Reverse((at, self.planned, event)));
    }

    fn plan_end(&mut self, (at, end): Due) {
        self.plan(at, BoundEvent::End(end));
    }

    fn timing(&self) -> Wired<'_> {
        Wired { wiring: &self.wiring, framing: self.framing }
    }

    fn reach(&mut self, slot: usize) {
        let Job { to, bytes, .. } = self.jobs[slot];
        let needs = self.timing().service(to, bytes);
        let due = self.downlinks.join(self.now, to as usize, (slot, needs));
        self.plan_end(due);
    }

    fn end(&mut self, end: End) {
        let Some((slot, next)) = self.downlinks.end(self.now, end) else { return };
        let at = self.now + self.timing().after(end.link() as u32);
        self.plan(at, BoundEvent::Arrive(slot));
        next.into_iter().for_each(|due| self.plan_end(due));
    }

    /// Delivers a message: returns its receiver, and the event there.
    fn arrive(&mut self, slot: usize) -> (HostId, Event) {
        let Job { from, to, bytes, number } = self.jobs[slot];
        self.free.push(slot);
        self.trace.mix(self.now, (from, to), u64::from(number) << 32 | u64::from(bytes));
        let delivered = Delivered {
            rpc: RpcHandle { index: number, generation: 0 },
            message: MessageId(number),
            kind: MessageKind::OneWay,
            peer: PeerId(from),
            remote_port: 0,
            local_port: 0,
            id: message_id(number),
            length: bytes,
            cookie: 0,
        };
        (HostId(to), Event::Delivered(delivered))
    }
}

impl Context for Links {
    fn now(&self) -> SimTime {
        self.now
    }

    fn submit(&mut self, host: HostId, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length: bytes, .. } = what else {
            return Err(SubmitError::UnknownRpc);
        };
        let (from, to) = (host.0, peer.0);
        let wire_bytes = self.framing.data_wire_bytes(bytes);
        let (messages, sent) = &mut self.submitted[from as usize];
        *messages += 1;
        *sent += wire_bytes;
        let number = *messages;
        let job = Job { from, to, bytes, number };
        let slot = self.free.pop().unwrap_or(self.jobs.len());
        match self.jobs.get_mut(slot) {
            Some(place) => *place = job,
            None => self.jobs.push(job),
        }
        let before = self.timing().before(from, to, bytes);
        self.plan(self.now + before, BoundEvent::Reach(slot));
        let rpc = RpcHandle { index: number, generation: 0 };
        Ok(Submitted { rpc, message: Some(MessageId(number)) })
    }

    fn wake_at(&mut self, at: SimTime, token: u64) {
        self.plan(at.max(self.now), BoundEvent::Wake(token));
    }

    /// The host does not matter, because hosts neither pause nor crash here.
    fn wake_host_at(&mut self, _: HostId, at: SimTime, token: u64) {
        self.wake_at(at, token);
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

/// A run of the bound.
pub(super) struct BoundRun {
    links: Links,
    generator: Generator,
    /// The measures of packets, which the bound does not have.
    measure: (),
}

impl BoundRun {
    pub fn start(experiment: Experiment<'_>, generator: Generator) -> Self {
        let wiring = experiment.network.wiring.clone();
        let hosts = wiring.hosts();
        let links = Links {
            wiring,
            framing: experiment.hosts.framing(),
            downlinks: Downlinks::new(hosts),
            agenda: BinaryHeap::new(),
            planned: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            submitted: vec![(0, 0); hosts as usize],
            now: SimTime::ZERO,
            last_event: SimTime::ZERO,
            events: 0,
            stopped: false,
            trace: TraceHash::default(),
        };
        let mut bound = Self { links, generator, measure: () };
        bound.begin(experiment.network);
        bound
    }

    fn step(&mut self, event: BoundEvent) {
        let Self { links, generator, .. } = self;
        match event {
            BoundEvent::Wake(token) => generator.wake(links, token),
            BoundEvent::Reach(slot) => links.reach(slot),
            BoundEvent::End(end) => links.end(end),
            BoundEvent::Arrive(slot) => {
                let (host, event) = links.arrive(slot);
                generator.event(links, host, &event);
            }
        }
    }
}

impl AnySimulation for BoundRun {
    fn begin(&mut self, _: &ScenarioNetwork) {
        self.links.wake_at(SimTime::ZERO, Generator::START);
    }

    fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt {
        for _ in 0..max_events {
            match self.links.agenda.peek() {
                None => {
                    if end != SimTime::MAX {
                        self.links.now = self.links.now.max(end);
                    }
                    return Halt::Drained;
                }
                Some(Reverse((at, ..))) if *at > end => {
                    self.links.now = self.links.now.max(end);
                    return Halt::Time;
                }
                Some(_) => {}
            }
            if let Some(Reverse((at, _, event))) = self.links.agenda.pop() {
                (self.links.now, self.links.last_event) = (at, at);
                self.links.events += 1;
                self.step(event);
            }
            if std::mem::take(&mut self.links.stopped) {
                return Halt::Stopped;
            }
        }
        Halt::Events
    }

    fn now(&self) -> SimTime {
        self.links.now
    }

    fn last_event(&self) -> SimTime {
        self.links.last_event
    }

    fn pending(&self) -> usize {
        self.links.agenda.len()
    }

    fn packets_in_flight(&self) -> u32 {
        0
    }

    fn counters(&self) -> Counters {
        Counters { events: self.links.events, ..Counters::default() }
    }

    fn trace_hash(&self) -> u64 {
        self.links.trace.0
    }

    /// Bytes on hosts' uplinks and downlinks; 0 for links between switches, which are not modelled.
    fn sent_bytes(&self, port: PortId) -> u64 {
        let Links { wiring, submitted, downlinks, now, .. } = &self.links;
        if let Some((_, bytes)) = submitted.get(port.0 as usize) {
            return *bytes;
        }
        let spec = &wiring.ports()[port.0 as usize];
        match spec.to.0 < wiring.hosts() {
            true => {
                let busy = downlinks.busy(*now, spec.to.0 as usize);
                (u128::from(busy.0) * u128::from(spec.rate.0) / 8_000_000_000_000) as u64
            }
            false => 0,
        }
    }

    fn dropped_frames(&self, _: PortId) -> u64 {
        0
    }

    fn refused(&self) -> u64 {
        0
    }

    fn nics(&self) -> Vec<NicCounters> {
        Vec::new()
    }

    fn pause_report(&self) -> Option<PauseReport> {
        None
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts::default()
    }

    fn generator(&self) -> &Generator {
        &self.generator
    }

    fn generator_mut(&mut self) -> &mut Generator {
        &mut self.generator
    }

    fn measure(&mut self) -> &mut dyn Measure {
        &mut self.measure
    }

    fn report(&mut self, _: &MeasurementWindow<'_>, _: &mut crate::scenario::ScenarioOutcome) {}
}
