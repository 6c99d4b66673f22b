//! From a description to its outcome: the one place where a scheme's name becomes a type.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

use crate::engine::{Fault, Halt, NoFaults, Probe, Simulation};
use crate::measure::cost;
use crate::measure::journey::Journeys;
use crate::measure::latency::Sample;
use crate::measure::pace::{Counted, Pace};
use crate::measure::wasted::Wasted;
use crate::measure::watch::Watch;
use crate::scheme::homa::{Basis as HomaBasis, Stack};
use crate::scheme::{self, Hosts, SCHEMES, Scheme};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, PortId, Tier};
use crate::trace::{Capture, Checked, Listener, Recorder, Verifier, Violation};
use crate::traffic::Generator;
use crate::traffic::open_loop::Arrival;
use crate::transport::Homa;

use super::assemble::{Moment, assemble};
use super::checks::check;
use super::faults::LinkFaults;
use super::network::Network;
use super::setup::Demand;
use super::{Ending, Exchange, Outcome, Scenario, ScenarioError, SlowdownBy};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Between 0 and 1, by the stop rule.
    pub done: f64,
    /// Simulated seconds so far.
    pub simulated_seconds: f64,
    /// Messages submitted so far.
    pub submitted: u64,
    /// Measured messages that arrived so far.
    pub delivered: u64,
    /// Packet-hops so far.
    pub packet_hops: u64,
}

/// Events between reports of progress.
const STRIDE: u64 = 2_000_000;

/// Runs a scenario; calls `progress` from time to time.
pub fn run(
    scenario: &Scenario,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, ScenarioError> {
    run_watched(scenario, Eyes::default(), progress).map(|(outcome, _)| outcome)
}

/// Where a run's packets are written.
pub struct Trace<'a> {
    /// Receives a pcapng file. The first error ends the trace, not the run; flush it to learn of
    /// one.
    pub out: &'a mut dyn Write,
    /// Most packets.
    pub packets: u64,
}

/// What watches a run beside its measures.
#[derive(Default)]
pub struct Eyes<'a> {
    /// The packets are written as hosts send them ([`Capture`]).
    pub trace: Option<Trace<'a>>,
    /// Every event of every packet is checked ([`Verifier`]).
    pub verify: bool,
}

/// Whether a run obeyed physics: what was checked, or the first violations.
pub type Physics = Result<Checked, Vec<Violation>>;

/// As [`run`], watched; with the verdict on its physics if one is wanted.
pub fn run_watched(
    scenario: &Scenario,
    eyes: Eyes<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Outcome, Option<Physics>), ScenarioError> {
    check(scenario)?;
    let row = find(scenario)?;
    let network = Network::new(scenario)?;
    let demand = Demand::new(scenario, network.wiring.hosts())?;
    let mut verifier = eyes.verify.then(|| Verifier::new(&network.wiring, &network.config));
    let watched = (eyes.trace, verifier.as_mut());
    let (outcome, _) = simulate(scenario, (row, &network, &demand), watched, progress)?;
    let physics = verifier.map(|verifier| verifier.finish(outcome.in_flight));
    Ok((outcome, physics))
}

/// What came of a list of messages.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Everything measured.
    pub outcome: Outcome,
    /// Every message or RPC that arrived, those of one bin of sizes together, in the order in which
    /// they arrived.
    pub samples: Vec<Sample>,
}

/// Runs a scenario with messages from memory in place of its traffic, all of them. `arrivals` are
/// in the order of time.
pub fn replay(
    scenario: &Scenario,
    arrivals: Vec<Arrival>,
    exchange: Exchange,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replay, ScenarioError> {
    check(scenario)?;
    let row = find(scenario)?;
    let network = Network::new(scenario)?;
    let demand = Demand::given(arrivals, exchange, network.wiring.hosts())?;
    let (outcome, samples) = simulate(scenario, (row, &network, &demand), (None, None), progress)?;
    Ok(Replay { outcome, samples: samples.into_iter().flatten().collect() })
}

pub(super) fn find(scenario: &Scenario) -> Result<&'static Scheme, ScenarioError> {
    scheme::find(&scenario.scheme).ok_or_else(|| ScenarioError::UnknownScheme {
        name: scenario.scheme.clone(),
        known: SCHEMES.iter().map(|row| row.name).collect(),
    })
}

/// Whether [`run`] would refuse a scenario, and why: all is built as there, nothing runs.
pub fn validate(scenario: &Scenario) -> Result<(), ScenarioError> {
    check(scenario)?;
    let row = find(scenario)?;
    let network = Network::new(scenario)?;
    let demand = Demand::new(scenario, network.wiring.hosts())?;
    let stack = stack(scenario, (row, &network, &demand))?;
    let bench = Bench { scenario, network: &network, demand: &demand, stack: &stack };
    bench.journeys()?;
    bench.wasted()?;
    demand.pattern(scenario, &network, stack.framing).map(|_| ())
}

/// What runs on the hosts.
pub(super) fn stack(
    scenario: &Scenario,
    (row, network, demand): (&Scheme, &Network, &Demand),
) -> Result<Stack, ScenarioError> {
    if row.one_way_only && demand.exchange == Exchange::Echo {
        let what = format!("RPCs under {}, which knows one-way messages only", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    let Hosts::Homa(profile) = row.hosts;
    let basis = HomaBasis {
        link: network.link,
        rtt_bytes: network.rtt_bytes,
        workload: &demand.workload,
        sizes: &demand.sizes,
    };
    Stack::new(profile, &basis, &scenario.options)
}

/// The samples of every bin of sizes, beside the outcome.
type Finished = (Outcome, Vec<Vec<Sample>>);

fn simulate(
    scenario: &Scenario,
    (row, network, demand): (&Scheme, &Network, &Demand),
    (trace, verifier): (Option<Trace<'_>>, Option<&mut Verifier>),
    progress: &mut dyn FnMut(Progress),
) -> Result<Finished, ScenarioError> {
    let stack = stack(scenario, (row, network, demand))?;
    let bench = Bench { scenario, network, demand, stack: &stack };
    let measures = scenario.measures;
    let Range { start, end } = demand.receivers;
    let downlink = |host| network.wiring.downlink(HostId(host));
    let watch = || Watch::new(measures.queues, downlink(start)..downlink(end));
    let watch = (measures.queues || measures.priorities).then(watch);
    let hosts = network.wiring.hosts();

    let begin = trace.map(|to| Capture::new(to.out, hosts, stack.framing, to.packets));
    let capture = begin.transpose().map_err(|error| ScenarioError::File {
        path: "the trace".to_owned(),
        reason: error.to_string(),
    })?;
    let judge = verifier.map(Recorder);
    let watched = capture.is_some() || judge.is_some();
    if measures.tail_delay || measures.ledger || measures.wasted_bandwidth || watched {
        let probes = (bench.journeys()?, (bench.wasted()?, (capture, judge)));
        return bench.lossy((watch, probes), progress);
    }
    match watch {
        Some(watch) => bench.lossy(watch, progress),
        None => bench.lossy((), progress),
    }
}

/// What a measuring probe is told.
pub(super) trait Gated {
    /// Measurement begins.
    fn open(&mut self, _now: SimTime) {}
    /// Measurement ends.
    fn close(&mut self, _now: SimTime) {}
    /// Writes its findings.
    fn report(&self, _moment: &Moment<'_>, _outcome: &mut Outcome) {}
}

impl Gated for () {}

impl<W: Write> Gated for Capture<W> {}

impl<L: Listener> Gated for Recorder<L> {}

impl<A: Gated, B: Gated> Gated for (A, B) {
    fn open(&mut self, now: SimTime) {
        self.0.open(now);
        self.1.open(now);
    }

    fn close(&mut self, now: SimTime) {
        self.0.close(now);
        self.1.close(now);
    }

    fn report(&self, moment: &Moment<'_>, outcome: &mut Outcome) {
        self.0.report(moment, outcome);
        self.1.report(moment, outcome);
    }
}

impl<A: Gated> Gated for Option<A> {
    fn open(&mut self, now: SimTime) {
        if let Some(probe) = self {
            probe.open(now);
        }
    }

    fn close(&mut self, now: SimTime) {
        if let Some(probe) = self {
            probe.close(now);
        }
    }

    fn report(&self, moment: &Moment<'_>, outcome: &mut Outcome) {
        if let Some(probe) = self {
            probe.report(moment, outcome);
        }
    }
}

/// Everything that a simulation is made of.
#[derive(Clone, Copy)]
pub(super) struct Bench<'a> {
    pub scenario: &'a Scenario,
    pub network: &'a Network,
    pub demand: &'a Demand,
    pub stack: &'a Stack,
}

impl Bench<'_> {
    fn journeys(self) -> Result<Option<Journeys>, ScenarioError> {
        let measures = self.scenario.measures;
        if !(measures.tail_delay || measures.ledger) {
            return Ok(None);
        }
        if self.demand.exchange != Exchange::OneWay {
            let what = "the ledger and the tail's delays for RPCs: use one-way messages";
            return Err(ScenarioError::Unsupported { what: what.to_owned() });
        }
        let wiring = &self.network.wiring;
        let rates = wiring.ports().iter().map(|port| LinkRate::new(port.rate)).collect();
        // Ten million messages take more than a gigabyte: only the ledger is about all of them.
        let kept = if measures.ledger { u32::MAX } else { self.demand.short_messages() };
        Ok(Some(Journeys::new(wiring.hosts(), rates, kept)))
    }

    fn wasted(self) -> Result<Option<Wasted>, ScenarioError> {
        if !self.scenario.measures.wasted_bandwidth {
            return Ok(None);
        }
        let degree = self.stack.degree().ok_or_else(|| ScenarioError::Unsupported {
            what: "wasted bandwidth where the degree of overcommitment is measured: set it".into(),
        })?;
        Ok(Some(Wasted::new(self.network.wiring.hosts(), degree)))
    }

    fn lossy<P: Probe<homa_proto::Packet> + Gated>(
        self,
        probe: P,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Finished, ScenarioError> {
        let faults = LinkFaults::new(self.scenario, self.network);
        match faults.any() {
            false => self.simulate(probe, NoFaults, progress),
            true => self.simulate(probe, faults, progress),
        }
    }

    fn build<P, F>(self, generator: Generator, (probe, faults): (P, F)) -> Sim<P, F>
    where
        P: Probe<homa_proto::Packet>,
        F: Fault<homa_proto::Packet>,
    {
        let (stack, seed) = (self.stack.clone(), self.scenario.seed);
        let make = Box::new(move |host: HostId, life| stack.host(host, life, seed));
        let wiring = self.network.wiring.clone();
        let mut sim =
            Simulation::new(wiring, self.network.config, make, (generator, probe, faults));
        sim.wake_at(SimTime::ZERO, Generator::START);
        sim
    }

    fn generator(self) -> Result<Generator, ScenarioError> {
        let Self { scenario, network, demand, stack } = self;
        let pattern = demand.pattern(scenario, network, stack.framing)?;
        let limits = demand.limits(scenario, network, stack.framing);
        let parts = (network.ways.clone(), demand.latencies());
        Ok(Generator::new(network.wiring.hosts(), pattern, limits, parts))
    }

    fn simulate<P, F>(
        self,
        probe: P,
        faults: F,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Finished, ScenarioError>
    where
        P: Probe<homa_proto::Packet> + Gated,
        F: Fault<homa_proto::Packet>,
    {
        let limits = self.demand.limits(self.scenario, self.network, self.stack.framing);
        let mut sim = self.build(self.generator()?, (probe, faults));
        for change in &self.network.changes {
            sim.change_link(change.port, change.at, change.what);
        }
        let before = cost::cpu_seconds();
        let mut report = |sim: &Sim<P, F>| {
            let tally = sim.application().tally;
            let by_messages = tally.measured as f64 / limits.messages.max(1) as f64;
            let by_time = sim.now().0 as f64 / limits.time.0 as f64;
            progress(Progress {
                done: by_messages.max(by_time).min(1.0),
                simulated_seconds: seconds(sim.now()),
                submitted: tally.submitted,
                delivered: tally.delivered,
                packet_hops: sim.counters().packet_hops,
            });
        };
        advance(&mut sim, limits.warm_up, &mut report);
        let start = sent_bytes(&sim);
        let opened = sim.now();
        sim.probe_mut().open(opened);
        let mut pace = Pace::new(opened, limits.sample_every, self.counted(&sim));
        loop {
            let ended = sim.application().ended.is_some();
            let until = if ended { SimTime::MAX } else { pace.next() };
            if advance(&mut sim, until, &mut report) != Halt::Time {
                break;
            }
            pace.record(self.counted(&sim));
        }
        let closed = sim.now();
        sim.probe_mut().close(closed);
        let end = sent_bytes(&sim);
        if limits.ending != Ending::Cut {
            let last = closed + self.scenario.stop.drain_limit.duration();
            advance(&mut sim, last, &mut report);
        }
        let emptied = (sim.pending() == 0).then(|| sim.last_event());
        report(&sim);
        let cpu_seconds = cost::cpu_seconds() - before;
        let moment = Moment { bench: self, opened, closed, emptied, start, end, cpu_seconds, pace };
        let ideals = self.ideals(&sim)?;
        let outcome = assemble(&moment, &mut sim, &ideals)?;
        Ok((outcome, sim.application_mut().latencies.take_samples()))
    }

    /// What receivers' links carried so far, and the measured messages that arrived.
    fn counted<P, F>(self, sim: &Sim<P, F>) -> Counted
    where
        P: Probe<homa_proto::Packet>,
        F: Fault<homa_proto::Packet>,
    {
        let downlinks = self.demand.receivers.clone().map(HostId);
        let downlinks = downlinks.map(|host| self.network.wiring.downlink(host));
        let received = downlinks.map(|port| sim.sent_bytes(port) as f64).sum();
        (received, sim.application().tally.delivered)
    }

    /// Idle times by (bytes, switches), when latencies are divided by measured ones.
    fn ideals<P, F>(self, loaded: &Sim<P, F>) -> Result<Ideals, ScenarioError>
    where
        P: Probe<homa_proto::Packet>,
        F: Fault<homa_proto::Packet>,
    {
        if self.scenario.slowdown != SlowdownBy::Idle {
            return Ok(Ideals::new());
        }
        let samples = loaded.application().latencies.samples().iter().flatten();
        let mut kinds: Vec<(u32, u32)> = samples.map(|s| (s.bytes, s.switches)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let hosts = self.network.wiring.hosts();
        let mut at = SimTime::ZERO;
        let list = kinds.iter().map(|&(bytes, switches)| {
            let (src, dst) = self.network.ways.example(switches, hosts);
            let arrival = Arrival { at, src, dst, bytes };
            // Three times its serialisation both ways, and a round trip or two: long gone.
            let most = bytes.max(self.demand.response_bytes().unwrap_or(bytes));
            let wire = u128::from(most) * 48_000_000_000_000 / u128::from(self.network.link.0);
            at += SimDuration(wire as u64) + SimDuration::micros(200);
            arrival
        });
        let demand = self.demand.replaced_by(list.collect());
        let mut scenario = self.scenario.clone();
        scenario.warm_up = super::Span(0);
        scenario.stop = super::Stop { messages: Some(u64::MAX), time: None, ..scenario.stop };
        let idle = Bench { scenario: &scenario, demand: &demand, ..self };
        let mut sim = idle.build(idle.generator()?, ((), NoFaults));
        advance(&mut sim, SimTime::MAX, &mut |_| ());
        advance(&mut sim, SimTime::MAX, &mut |_| ());
        let samples = sim.application().latencies.samples().iter().flatten();
        let ideals: Ideals = samples.map(|s| ((s.bytes, s.switches), s.latency)).collect();
        match kinds.iter().find(|kind| !ideals.contains_key(kind)) {
            Some((bytes, _)) => {
                let must = format!(
                    "not be \"idle\" here: {bytes} bytes do not arrive even alone in this network"
                );
                Err(ScenarioError::field("slowdown", must))
            }
            None => Ok(ideals),
        }
    }
}

/// Idle times by (bytes, switches).
pub(super) type Ideals = BTreeMap<(u32, u32), SimDuration>;

/// A simulation of Homa hosts.
pub(super) type Sim<P, F> = Simulation<Homa, Generator, P, F>;

/// Runs to `until`, to the application's stop, or until nothing is pending.
fn advance<P, F>(sim: &mut Sim<P, F>, until: SimTime, report: &mut dyn FnMut(&Sim<P, F>)) -> Halt
where
    P: Probe<homa_proto::Packet>,
    F: Fault<homa_proto::Packet>,
{
    while sim.now() < until {
        match sim.run_until(until, STRIDE) {
            Halt::Events => report(sim),
            halt => return halt,
        }
    }
    Halt::Time
}

pub(super) fn seconds(time: SimTime) -> f64 {
    time.0 as f64 / 1e12
}

/// Wire bytes sent so far by every port.
fn sent_bytes<P, F>(sim: &Sim<P, F>) -> Vec<u64>
where
    P: Probe<homa_proto::Packet>,
    F: Fault<homa_proto::Packet>,
{
    (0..sim.wiring().ports().len()).map(|port| sim.sent_bytes(PortId(port as u32))).collect()
}

/// Number of ports of each tier.
pub(super) fn ports_by_tier(network: &Network) -> [u64; Tier::ALL.len()] {
    let mut count = [0; Tier::ALL.len()];
    for port in network.wiring.ports() {
        count[port.tier as usize] += 1;
    }
    count
}
