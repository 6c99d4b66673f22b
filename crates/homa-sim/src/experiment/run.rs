//! Builds a scenario's simulation, runs it in phases (warm-up, measurement, drain), and returns its
//! outcome.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Halt;
use crate::measure::backlog::PLAIN_GROWTH;
use crate::measure::cost;
use crate::measure::journey::Journeys;
use crate::measure::latency::Sample;
use crate::measure::queue_probe::QueueProbe;
use crate::measure::throughput::{Counted, Throughput};
use crate::measure::wasted::Wasted;
use crate::scenario::{
    Basis, Diverging, Exchange, Probes, Scenario, ScenarioError, ScenarioOutcome, SchemeOptions,
    TrafficEnding,
};
use crate::scheme::Scheme;
use crate::time::{LinkRate, SimTime};
use crate::topology::{HostId, PortId, Tier};
use crate::trace::{Capture, Checked, Recorder, Verifier, Violation};
use crate::traffic::Generator;
use crate::traffic::open_loop::ScheduledMessage;

use super::Experiment;
use super::assemble::{Ideals, MeasurementWindow, assemble};
use super::checks::check;
use super::demand::Demand;
use super::fct::{self, with_every_message};
use super::network::ScenarioNetwork;
use super::partitioned::check_observers;
use super::parts::{self, Parts};
use super::running::AnySimulation;
use super::start::Watching;

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunProgress {
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
    progress: &mut dyn FnMut(RunProgress),
) -> Result<ScenarioOutcome, ScenarioError> {
    run_watched(scenario, Observers::default(), progress).map(|(outcome, _)| outcome)
}

/// The destination of a run's packets.
pub struct Trace<'a> {
    /// Receives a pcapng file. The first write error ends the trace but not the run. Flush the
    /// writer after the run to get the error.
    pub out: &'a mut dyn Write,
    /// Maximum number of packets.
    pub packets: u64,
}

/// Observers of a run besides its measures.
#[derive(Default)]
pub struct Observers<'a> {
    /// Writes packets as hosts send them ([`Capture`]).
    pub trace: Option<Trace<'a>>,
    /// Checks every event of every packet ([`Verifier`]).
    pub verify: bool,
    /// Receives a line for every measured message after the run, as HPCC's simulator writes them to
    /// `fct.txt`, and is flushed.
    pub fct: Option<&'a mut dyn Write>,
    /// Most threads that simulate, at most one for each partition of the network
    /// ([`Scenario::partitions`]); `None` for as many as there are cores. It changes no result.
    pub threads: Option<usize>,
    /// If this becomes true, the run ends with [`ScenarioError::Stopped`] at the next report of
    /// progress.
    pub stop: Option<&'a AtomicBool>,
}

/// The verdict on a run's physics: counts of the checks, or the first violations.
pub type Physics = Result<Checked, Vec<Violation>>;

/// Like [`run`], with observers. Also returns the verdict on the run's physics if `verify` is set.
pub fn run_watched(
    scenario: &Scenario,
    observers: Observers<'_>,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<(ScenarioOutcome, Option<Physics>), ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    check_observers(scenario, observers.verify || observers.trace.is_some())?;
    if observers.verify && row.is_bound() {
        let what = format!("packets to check under {}, a bound that has none", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    let mut verifier = observers
        .verify
        .then(|| Verifier::new(&network.wiring, &network.config, row.queue.order()));
    // Reborrowed, because the simulation's borrows of trace and verifier share one lifetime.
    let mut trace = observers.trace;
    let trace = trace.as_mut().map(|to| Trace { out: &mut *to.out, packets: to.packets });
    let watched = (trace, verifier.as_mut());
    let report = &mut stoppable(observers.stop, progress);
    let every = observers.fct.as_ref().map(|_| with_every_message(scenario));
    let run = every.as_ref().unwrap_or(scenario);
    let how = (observers.threads, false);
    let (mut outcome, _) = simulate(run, (row, &network, &demand), watched, (how, report))?;
    if let Some(out) = observers.fct {
        fct::take(out, scenario, (&network, &demand), &mut outcome)?;
    }
    let physics = verifier.map(|verifier| verifier.finish(outcome.in_flight));
    Ok((outcome, physics))
}

/// An outcome with its samples.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Everything measured.
    pub outcome: ScenarioOutcome,
    /// Every measured message or RPC that arrived, grouped by bin of sizes, and within a bin in the
    /// order of arrival.
    pub samples: Vec<Sample>,
    /// The slowdown of each sample.
    pub slowdowns: Vec<f64>,
}

/// Like [`run`], but also returns every measured message. Ends like [`run_watched`] if `stop` is
/// set.
pub fn run_sampled(
    scenario: &Scenario,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Replay, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    let report = &mut stoppable(Some(stop), progress);
    sampled(scenario, (row, &network, &demand), report)
}

/// Runs a scenario with all of the given messages instead of its traffic. `arrivals` must be in the
/// order of time.
pub fn replay(
    scenario: &Scenario,
    arrivals: Vec<ScheduledMessage>,
    exchange: Exchange,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Replay, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::given(arrivals, exchange, network.wiring.hosts())?;
    sampled(scenario, (row, &network, &demand), &mut stoppable(None, progress))
}

/// Returns the error with which [`run`] would refuse a scenario. Everything is built as in `run`,
/// but nothing runs.
pub fn validate(scenario: &Scenario) -> Result<(), ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    let parts = Parts::new(scenario, (row, &network, &demand))?;
    let experiment = parts.experiment(scenario, &network, &demand)?;
    experiment.journeys()?;
    experiment.wasted()?;
    demand.pattern(scenario, &network, experiment.price).map(|_| ())
}

/// The scheme of a scenario, then that of `beside` if there is one, each with its options: those
/// that the scenario sets and, for all others, the defaults on this network. A scenario that sets
/// all of them is the same simulation.
pub fn resolved(scenario: &Scenario) -> Result<Vec<(String, SchemeOptions)>, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    parts::resolved(scenario, &network, &demand)
}

/// Receives reports of progress; if it returns an error, the run ends.
type OnProgress<'a> = dyn FnMut(RunProgress) -> Result<(), ScenarioError> + 'a;

/// Passes reports to `progress` until `stop` is set.
fn stoppable<'a>(
    stop: Option<&'a AtomicBool>,
    progress: &'a mut dyn FnMut(RunProgress),
) -> impl FnMut(RunProgress) -> Result<(), ScenarioError> + 'a {
    move |now| {
        progress(now);
        match stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(ScenarioError::Stopped),
            false => Ok(()),
        }
    }
}

/// The outcome, and the samples with their slowdowns if they were kept.
type Finished = (ScenarioOutcome, Option<(Vec<Sample>, Vec<f64>)>);

fn sampled(
    scenario: &Scenario,
    parts: (&Scheme, &ScenarioNetwork, &Demand),
    report: &mut OnProgress<'_>,
) -> Result<Replay, ScenarioError> {
    let (outcome, kept) = simulate(scenario, parts, (None, None), ((None, true), report))?;
    let (samples, slowdowns) = kept.unwrap_or_default();
    Ok(Replay { outcome, samples, slowdowns })
}

fn simulate<'a>(
    scenario: &Scenario,
    (row, network, demand): (&Scheme, &ScenarioNetwork, &Demand),
    (trace, verifier): (Option<Trace<'a>>, Option<&'a mut Verifier>),
    ((threads, keep), report): ((Option<usize>, bool), &mut OnProgress<'_>),
) -> Result<Finished, ScenarioError> {
    let parts = Parts::priced(scenario, (row, network, demand))?;
    let experiment = parts.experiment(scenario, network, demand)?;
    let watching = Watching {
        queues: experiment.queue_probe(),
        journeys: experiment.journeys()?,
        wasted: experiment.wasted()?,
        capture: trace.map(|to| experiment.capture(to)).transpose()?,
        judge: verifier.map(Recorder),
        messages: None,
    };
    let (outcome, samples, ideals) = experiment.run(watching, (threads, report))?;
    if !keep {
        return Ok((outcome, None));
    }
    let samples: Vec<Sample> = samples.into_iter().flatten().collect();
    let alone = experiment.divisor(&ideals);
    let slowdown = |sample: &Sample| alone(sample.bytes, sample.switches).slowdown(sample.latency);
    let slowdowns = samples.iter().map(slowdown).collect();
    Ok((outcome, Some((samples, slowdowns))))
}

/// The outcome, the samples by bin of sizes, and the idle times of the measured messages.
type Run = (ScenarioOutcome, Vec<Vec<Sample>>, Ideals);

impl Experiment<'_> {
    fn capture<'a>(self, to: Trace<'a>) -> Result<Capture<&'a mut dyn Write>, ScenarioError> {
        let framing = self.hosts.packet_framing().filter(|_| self.beside.is_none());
        let Some(framing) = framing else {
            let scheme = self.beside.map_or(&*self.scenario.scheme, |beside| beside.scheme);
            let what = format!("a capture of {scheme}, whose packets have no wire format here");
            return Err(ScenarioError::Unsupported { what });
        };
        let hosts = self.network.wiring.hosts();
        Capture::new(to.out, hosts, framing, to.packets).map_err(|error| ScenarioError::File {
            path: "the trace".to_owned(),
            reason: error.to_string(),
        })
    }

    fn queue_probe(self) -> Option<QueueProbe> {
        let measures = &self.scenario.measures;
        let Range { start, end } = self.demand.receivers;
        let downlink = |host| self.network.wiring.downlink(HostId(host));
        let apart = end - start < self.network.wiring.hosts();
        let ports = self.network.wiring.ports();
        let probe = || {
            let receivers = downlink(start)..downlink(end);
            QueueProbe::new(measures.queues, receivers, apart).with_tors(ports)
        };
        (measures.queues || measures.priorities).then(probe)
    }

    fn journeys(self) -> Result<Option<Journeys>, ScenarioError> {
        let measures = &self.scenario.measures;
        if !(measures.tail_delay || measures.ledger) {
            return Ok(None);
        }
        if self.demand.exchange != Exchange::OneWay {
            let what = "the ledger and the tail's delays for RPCs: use one-way messages";
            return Err(ScenarioError::Unsupported { what: what.to_owned() });
        }
        let wiring = &self.network.wiring;
        let rates = wiring.ports().iter().map(|port| LinkRate::new(port.rate)).collect();
        // Keep only short messages unless the ledger needs all, because ten million journeys take
        // more than a gigabyte.
        let kept = if measures.ledger { u32::MAX } else { self.demand.short_messages() };
        Ok(Some(Journeys::new(wiring.hosts(), rates, kept)))
    }

    fn wasted(self) -> Result<Option<Wasted>, ScenarioError> {
        if !self.scenario.measures.wasted_bandwidth {
            return Ok(None);
        }
        let degree = self.hosts.degree().ok_or_else(|| ScenarioError::Unsupported {
            what:
                "wasted bandwidth if there is no degree of overcommitment, or if it is measured: \
                   set `options.overcommitment`"
                    .into(),
        })?;
        Ok(Some(Wasted::new(self.network.wiring.hosts(), degree)))
    }

    pub(super) fn generator(self) -> Result<Generator, ScenarioError> {
        let Self { scenario, network, demand, price, .. } = self;
        let pattern = demand.pattern(scenario, network, price)?;
        let limits = demand.limits(scenario, network, price);
        let parts = (network.paths.clone(), demand.latencies());
        Ok(Generator::new(network.wiring.hosts(), pattern, limits, parts))
    }

    fn run(
        self,
        watching: Watching<'_>,
        (threads, progress): (Option<usize>, &mut OnProgress<'_>),
    ) -> Result<Run, ScenarioError> {
        let limits = self.demand.limits(self.scenario, self.network, self.price);
        let mut sim = self.start_in(self.traffic(threads)?, watching);
        let sim = &mut *sim;
        let before = cost::cpu_seconds();
        let mut report = |sim: &dyn AnySimulation| {
            let tally = sim.generator().tally;
            let by_messages = tally.measured as f64 / limits.messages.max(1) as f64;
            let by_time = sim.now().0 as f64 / limits.time.0 as f64;
            progress(RunProgress {
                done: by_messages.max(by_time).min(1.0),
                simulated_seconds: seconds(sim.now()),
                submitted: tally.submitted,
                delivered: tally.delivered,
                packet_hops: sim.counters().packet_hops,
            })
        };
        advance(sim, limits.warm_up, &mut report)?;
        let start = self.sent_bytes(sim);
        let opened = sim.now();
        let nics = sim.nics();
        sim.measure().open(opened);
        let mut throughput = Throughput::new(opened, limits.sample_every, self.counted(sim));
        let mut due = sim.counters().events + STRIDE;
        loop {
            let ended = sim.generator().ended.is_some();
            let until = if ended { SimTime::MAX } else { throughput.next() };
            if advance(sim, until, &mut report)? != Halt::Time {
                break;
            }
            throughput.record(self.counted(sim));
            if self.ends_early(sim) {
                break;
            }
            // `advance` reports every `STRIDE` events, but there may be fewer between two samples.
            if sim.counters().events >= due {
                due = sim.counters().events + STRIDE;
                report(sim)?;
            }
        }
        let closed = sim.now();
        sim.measure().close(closed);
        let end = self.sent_bytes(sim);
        let nics = [nics, sim.nics()];
        if limits.ending != TrafficEnding::Cut {
            let last = closed + self.scenario.stop.drain_limit.duration();
            advance(sim, last, &mut report)?;
        }
        let emptied = (sim.pending() == 0).then(|| sim.last_event());
        report(sim)?;
        let cpu_seconds = cost::cpu_seconds() - before + sim.cpu_elsewhere();
        let window = MeasurementWindow {
            experiment: self,
            opened,
            closed,
            emptied,
            start,
            end,
            cpu_seconds,
            throughput,
            nics,
        };
        let ideals = self.ideals(sim)?;
        let outcome = assemble(&window, sim, &ideals);
        Ok((outcome, sim.generator_mut().latencies.take_samples(), ideals))
    }

    /// Ends traffic if it is hopeless. Returns whether it did.
    fn ends_early(self, sim: &mut dyn AnySimulation) -> bool {
        let is_hopeless = self.is_hopeless(sim.generator());
        if is_hopeless {
            let now = sim.now();
            sim.generator_mut().end_early(now);
        }
        is_hopeless
    }

    /// Whether traffic should end early, because its backlog surely grows without bound: it grew
    /// plainly for long enough for the rule of the backlog, or hosts have to send more than their
    /// links carry.
    fn is_hopeless(self, generator: &Generator) -> bool {
        let Self { scenario, network, demand, price, .. } = self;
        let looks = generator.ended.is_none() && generator.backlog.is_time_to_look();
        if !looks || scenario.stop.diverging == Diverging::Continue || !demand.is_open() {
            return false;
        }
        let needs = demand.needs_seconds(scenario, network, price);
        let interval = generator.sample_every();
        let backlog = generator.backlog.verdict(interval, generator.tally.entered_bytes, needs);
        let too_much = demand.host_load(scenario, price, Basis::Everything) > 1.0;
        backlog.diverges && backlog.growth > PLAIN_GROWTH && (backlog.reliable || too_much)
    }

    /// Wire bytes sent so far by every port.
    fn sent_bytes(self, sim: &dyn AnySimulation) -> Vec<u64> {
        let ports = 0..self.network.wiring.ports().len() as u32;
        ports.map(|port| sim.sent_bytes(PortId(port))).collect()
    }

    /// Wire bytes on receivers' links so far, and measured messages that have arrived.
    fn counted(self, sim: &dyn AnySimulation) -> Counted {
        let downlinks = self.demand.receivers.clone().map(HostId);
        let downlinks = downlinks.map(|host| self.network.wiring.downlink(host));
        let received = downlinks.map(|port| sim.sent_bytes(port) as f64).sum();
        (received, sim.generator().tally.delivered)
    }

    /// Bytes and path of probes.
    pub(super) fn probe_kind(self) -> Option<(u32, u32)> {
        let Probes { from, to, bytes, .. } = self.scenario.probes?;
        Some((bytes, self.network.paths.number(from, to)))
    }
}

/// Runs until the time `until`, until the application stops the run, until no event is pending, or
/// until a report returns an error.
pub(super) fn advance(
    sim: &mut dyn AnySimulation,
    until: SimTime,
    report: &mut dyn FnMut(&dyn AnySimulation) -> Result<(), ScenarioError>,
) -> Result<Halt, ScenarioError> {
    while sim.now() < until {
        match sim.run_until(until, STRIDE) {
            Halt::Events => report(sim)?,
            halt => return Ok(halt),
        }
    }
    Ok(Halt::Time)
}

pub(super) fn seconds(time: SimTime) -> f64 {
    time.0 as f64 / 1e12
}

/// Number of ports of each tier.
pub(super) fn ports_by_tier(network: &ScenarioNetwork) -> [u64; Tier::ALL.len()] {
    let mut count = [0; Tier::ALL.len()];
    for port in network.wiring.ports() {
        count[port.tier as usize] += 1;
    }
    count
}
