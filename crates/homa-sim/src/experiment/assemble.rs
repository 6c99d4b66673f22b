//! The outcome of a finished simulation.

use std::collections::BTreeMap;

use crate::engine::{PauseReport, PausedPort, StuckLevels};
use crate::measure::ideal::Alone;
use crate::measure::journey::Journeys;
use crate::measure::queue_probe::QueueProbe;
use crate::measure::throughput::Throughput;
use crate::measure::wasted::Wasted;
use crate::measure::{cost, findings, nics, probes, workflows};
use crate::nic::NicCounters;
use crate::scenario::outcome::{
    BacklogOutcome, Drops, FlowGroupRate, FlowTime, KindOutcome, LinkUse, Loads, NicReport,
    PausedPortTimes, Pauses, ProbeDelays, RaisedTimeouts, SizeGroup, StuckPort, TimeoutCounts,
    WorkflowTimes,
};
use crate::scenario::{FlowGroup, Scenario, ScenarioOutcome, SchemeOptions, TrafficEnding};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortId, Tier};
use crate::traffic::Generator;
use crate::transport::Timeouts;

use super::Experiment;
use super::network::ScenarioNetwork;
use super::parts;
use super::run::{ports_by_tier, seconds};
use super::running::{AnySimulation, Measure};
use super::{tables, tasks};

/// Idle times by (bytes, path).
pub(super) type Ideals = BTreeMap<(u32, u32), SimDuration>;

/// A finished run: when its measurement began and ended, and the counters at both times.
pub(super) struct MeasurementWindow<'a> {
    pub experiment: Experiment<'a>,
    pub opened: SimTime,
    pub closed: SimTime,
    /// When the last event happened, if nothing was pending at the end.
    pub emptied: Option<SimTime>,
    /// Wire bytes that each port had sent when the measurement began.
    pub start: Vec<u64>,
    /// Wire bytes that each port had sent when it ended.
    pub end: Vec<u64>,
    pub cpu_seconds: f64,
    pub throughput: Throughput,
    /// Counters of each host's NIC at the start and at the end. Empty if NICs only send.
    pub nics: [Vec<NicCounters>; 2],
}

impl MeasurementWindow<'_> {
    /// Bytes that one host link can carry during the measurement.
    pub fn capacity(&self) -> f64 {
        let picos = self.closed.since(self.opened).0.max(1) as f64;
        self.experiment.network.link.0 as f64 / 8e12 * picos
    }

    fn sent(&self, port: PortId) -> f64 {
        // A port can have sent less at the end than at the start, because a frame that was in
        // service at the start and counted then may have been preempted.
        self.end[port.0 as usize] as f64 - self.start[port.0 as usize] as f64
    }

    /// Bytes that the links to all receivers carried.
    fn received(&self) -> f64 {
        let Experiment { network, demand, .. } = self.experiment;
        let receivers = demand.receivers.clone().map(HostId);
        receivers.map(|host| self.sent(network.wiring.downlink(host))).sum()
    }

    /// Utilisation of the links of each tier.
    fn link_use(&self) -> LinkUse {
        let seconds = self.closed.since(self.opened).0 as f64 / 1e12;
        let of = |tier: Tier| {
            let ports = self.experiment.network.wiring.ports().iter().zip(0..);
            let ports = ports.filter(|(port, _)| port.tier == tier);
            let (sent, could) = ports.fold((0.0, 0.0), |(sent, could), (port, id)| {
                (sent + self.sent(PortId(id)), could + port.rate.0 as f64 / 8.0 * seconds)
            });
            (could > 0.0).then(|| sent / could)
        };
        LinkUse {
            host_up: of(Tier::HostUp),
            tor_up: of(Tier::TorUp),
            aggr_up: of(Tier::AggrUp),
            core_down: of(Tier::CoreDown),
            aggr_down: of(Tier::AggrDown),
            tor_down: of(Tier::TorDown),
            fabric: of(Tier::Fabric),
        }
    }

    /// Rates of flows that last longer than the run, measured on the links of their senders and
    /// receivers.
    fn flow_groups(&self) -> Vec<FlowGroupRate> {
        let seconds = self.closed.since(self.opened).0.max(1) as f64 / 1e12;
        let wiring = &self.experiment.network.wiring;
        let gbps = |port| self.sent(port) * 8e-9 / seconds;
        let rate = |(from, _)| gbps(PortId(from));
        let received = |(_, to)| gbps(wiring.downlink(HostId(to)));
        let groups = self.experiment.demand.flow_groups().iter();
        let of = |group: &FlowGroup| {
            let rates: Vec<f64> = group.pairs().map(rate).collect();
            let sum: f64 = rates.iter().sum();
            let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
            let flows = rates.len() as f64;
            FlowGroupRate {
                flows: rates.len() as u32,
                mean_gbps: sum / flows,
                min_gbps: rates.iter().copied().fold(f64::MAX, f64::min),
                max_gbps: rates.iter().copied().fold(0.0, f64::max),
                received_gbps: Some(group.pairs().map(received).sum::<f64>() / flows),
                fairness: if squares > 0.0 { sum * sum / (flows * squares) } else { 0.0 },
            }
        };
        groups.map(of).collect()
    }

    /// 95 % interval of the utilisation.
    fn utilisation_ci(&self) -> [Option<f64>; 2] {
        let utilisation = utilisation(self);
        let links = self.experiment.demand.receivers.len() as f64;
        let per_second = self.experiment.network.link.0 as f64 / 8.0 * links;
        let half = self.throughput.received().and_then(|rate| Some(rate.half_width? / per_second));
        [-1.0, 1.0].map(|side| half.map(|half| (utilisation + side * half).max(0.0)))
    }

    /// Bytes that the links to all receivers can carry during the measurement.
    pub fn receiving_capacity(&self) -> f64 {
        self.capacity() * self.experiment.demand.receivers.len() as f64
    }
}

impl Measure for QueueProbe {
    fn open(&mut self, now: SimTime) {
        Self::open(self, now);
    }

    fn close(&mut self, now: SimTime) {
        Self::close(self, now);
    }

    fn report(&self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        let measures = &window.experiment.scenario.measures;
        if measures.priorities {
            let capacity = window.receiving_capacity();
            outcome.priority_share = Some(self.level_bytes().map(|bytes| bytes as f64 / capacity));
        }
        outcome.queues = self.queues(ports_by_tier(window.experiment.network));
    }

    fn absorb(&mut self, other: &Self) {
        Self::absorb(self, other);
    }
}

impl Measure for Journeys {
    fn open(&mut self, _: SimTime) {
        Self::open(self);
    }

    fn close(&mut self, _: SimTime) {
        Self::close(self);
    }

    fn report(&self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        let Experiment { scenario, demand, .. } = window.experiment;
        let latencies = demand.latencies();
        let bin = |bytes| latencies.bin(bytes);
        if scenario.measures.tail_delay {
            let max_bytes = demand.short_messages();
            outcome.tail_delay = Some(findings::tail_delay(&self.done, max_bytes, &bin));
        }
        if scenario.measures.ledger {
            let bins = (latencies.bins(), &bin as &dyn Fn(u32) -> usize);
            outcome.ledger = Some(findings::ledger(&self.done, self.unbalanced, bins));
        }
    }
}

impl Measure for Wasted {
    fn open(&mut self, now: SimTime) {
        Self::open(self, now);
    }

    fn close(&mut self, now: SimTime) {
        Self::close(self, now);
    }

    fn report(&self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        let Experiment { network, demand, .. } = window.experiment;
        let wasted = self.share(network.link.0 as f64 / 8.0, &demand.receivers);
        outcome.wasted_bandwidth = wasted.map(|share| share.mean);
        let ends = wasted.map_or([None; 2], |share| share.ends());
        outcome.wasted_ci = ends.map(|end| end.map(|share| share.max(0.0)));
    }
}

pub(super) fn assemble(
    window: &MeasurementWindow<'_>,
    sim: &mut dyn AnySimulation,
    ideals: &Ideals,
) -> ScenarioOutcome {
    let Experiment { scenario, network, demand, hosts, .. } = window.experiment;
    let (backlog, kept) = (backlog(window, sim), kept(sim));
    let (generator, counters, tally) = (sim.generator(), sim.counters(), sim.generator().tally);
    let ideal = window.experiment.divisor(ideals);
    let (loads, undelivered) = (loads(window, sim), generator.book.measured());
    let mut outcome = ScenarioOutcome {
        scheme: scenario.scheme.clone(),
        workload: demand.workload.clone(),
        size_table: tables::form(&demand.sizes),
        load: loads.asked,
        messages: tally.delivered,
        seed: scenario.seed,
        partitions: scenario.partitions,
        warnings: warnings(window, sim),
        options: options(window).into_iter().map(|(_, options)| options).next().unwrap_or_default(),
        trace_hash: format!("{:016x}", sim.trace_hash()),
        packet_hops: counters.packet_hops,
        cpu_seconds: window.cpu_seconds,
        hops_per_cpu_second: counters.packet_hops as f64 / window.cpu_seconds.max(1e-6),
        peak_rss_bytes: cost::peak_rss_bytes(),
        slowdown: generator.latencies.slowdown(scenario.slowdown, &*ideal),
        queues: None,
        priority_share: None,
        wasted_bandwidth: None,
        wasted_ci: [None; 2],
        utilisation: utilisation(window),
        utilisation_ci: window.utilisation_ci(),
        links: window.link_use(),
        messages_per_second_ci: arrivals_ci(window),
        goodput: goodput(window, tally.delivered_bytes),
        loads,
        backlog,
        drops: drops(network, sim),
        tail_delay: None,
        ledger: None,
        groups: groups(scenario, generator, &*ideal),
        flows: flow_times(network, kept, &*ideal),
        workflows: workflow_times(scenario, generator),
        pauses: sim.pause_report().map(|report| pauses(network, &report)),
        timeouts: timeouts(sim, (tally.submitted, tally.raised)),
        kinds: kinds(window, generator, &*ideal),
        probes: probe_delays(window.experiment, generator, ideals),
        rounds: probes::rounds(&generator.rounds),
        completion: tasks::completion(generator),
        collective: tasks::collective_time(scenario, network, generator),
        flow_groups: window.flow_groups(),
        nic: nic_report(window),
        traffic_seconds: seconds(window.closed),
        simulated_seconds: seconds(window.emptied.unwrap_or_else(|| sim.now())),
        events: counters.events,
        submitted: tally.submitted,
        rtt_bytes: hosts.rtt_bytes(network.rtt_bytes),
        cutoffs: hosts.cutoffs(),
        undelivered,
        failed: tally.failed + lost(window, generator.book.len()),
        measured_failed: tally.measured_failed + lost(window, undelivered),
        refused: tally.refused,
        measured_refused: tally.measured_refused,
        in_flight: u64::from(sim.packets_in_flight()),
        offered_bytes: tally.all_offered_bytes,
        delivered_bytes: tally.all_delivered_bytes,
    };
    sim.report(window, &mut outcome);
    outcome
}

/// The schemes with their options, all written out.
fn options(window: &MeasurementWindow<'_>) -> Vec<(String, SchemeOptions)> {
    let Experiment { scenario, network, demand, .. } = window.experiment;
    parts::resolved(scenario, network, demand).unwrap_or_default()
}

/// The warnings that were known before the run, and one if traffic ended early.
fn warnings(window: &MeasurementWindow<'_>, sim: &dyn AnySimulation) -> Vec<String> {
    window.experiment.foreseen().into_iter().chain(ended_early(window, sim)).collect()
}

/// The share of the receivers' links that delivered bytes used, if any were delivered.
fn goodput(window: &MeasurementWindow<'_>, delivered: u64) -> Option<f64> {
    (delivered > 0).then(|| delivered as f64 / window.receiving_capacity())
}

/// Incomplete messages, and whether they grew without bound.
fn backlog(window: &MeasurementWindow<'_>, sim: &mut dyn AnySimulation) -> BacklogOutcome {
    let Experiment { scenario, network, demand, price, .. } = window.experiment;
    let limits = demand.limits(scenario, network, price);
    let needs = demand.needs_seconds(scenario, network, price);
    let entered = sim.generator().tally.entered_bytes;
    let samples = std::mem::take(&mut sim.generator_mut().backlog);
    samples.judge(limits.sample_every, entered, needs)
}

/// Frames dropped by full buffers, frames lost to faults, and packets that transports refused.
fn drops(network: &ScenarioNetwork, sim: &dyn AnySimulation) -> Drops {
    let ports = 0..network.wiring.ports().len() as u32;
    let overflow: u64 = ports.map(|port| sim.dropped_frames(PortId(port))).sum();
    let counters = sim.counters();
    let (fault, trimmed) = (counters.lost - overflow, counters.trimmed);
    Drops { overflow, fault, refused: sim.refused(), trimmed }
}

/// 95 % interval of the messages delivered per second.
fn arrivals_ci(window: &MeasurementWindow<'_>) -> [Option<f64>; 2] {
    let ends = window.throughput.delivered().map_or([None; 2], |rate| rate.ends());
    ends.map(|end| end.map(|rate| rate.max(0.0)))
}

/// Share of the receivers' links that was used; 0 if the measurement had no duration.
fn utilisation(window: &MeasurementWindow<'_>) -> f64 {
    let lasted = window.closed > window.opened;
    if lasted { window.received() / window.receiving_capacity() } else { 0.0 }
}

fn nic_report(window: &MeasurementWindow<'_>) -> Option<NicReport> {
    let receivers = window.experiment.demand.receivers.clone();
    nics::report((&window.nics[0], &window.nics[1]), receivers, window.closed.since(window.opened))
}

/// How many of the messages that are left have failed. If no event is pending, none of them can
/// still arrive.
fn lost(window: &MeasurementWindow<'_>, left: u64) -> u64 {
    if window.emptied.is_some() { left } else { 0 }
}

fn groups(
    scenario: &Scenario,
    generator: &Generator,
    ideal: &dyn Fn(u32, u32) -> Alone,
) -> Vec<SizeGroup> {
    let wanted = scenario.measures.groups.as_ref();
    wanted.map_or_else(Vec::new, |wanted| generator.latencies.groups(wanted, ideal))
}

/// Messages that were recorded one by one, and the bytes under which their latencies count.
fn kept(sim: &mut dyn AnySimulation) -> Vec<(FlowTime, u32)> {
    std::mem::take(&mut sim.generator_mut().kept)
}

/// The same with their slowdowns.
fn flow_times(
    network: &ScenarioNetwork,
    kept: Vec<(FlowTime, u32)>,
    ideal: &dyn Fn(u32, u32) -> Alone,
) -> Vec<FlowTime> {
    let slowdown = |(flow, bytes): (FlowTime, u32)| {
        let latency = SimDuration((flow.us * 1e6).round() as u64);
        let alone = ideal(bytes, network.paths.number(flow.src, flow.dst));
        FlowTime { slowdown: Some(alone.slowdown(latency)), ..flow }
    };
    kept.into_iter().map(slowdown).collect()
}

/// Results by scheme, if two schemes share the network.
fn kinds(
    window: &MeasurementWindow<'_>,
    generator: &Generator,
    ideal: &dyn Fn(u32, u32) -> Alone,
) -> Vec<KindOutcome> {
    let Experiment { scenario, network, beside, .. } = window.experiment;
    let Some(beside) = beside else { return Vec::new() };
    let options = options(window);
    let of = |kind: u8| {
        let hosts = (0..network.wiring.hosts()).filter(|host| beside.kinds.of(*host) == kind);
        let received: f64 = hosts.map(|h| window.sent(network.wiring.downlink(HostId(h)))).sum();
        let hosts = beside.kinds.count(kind);
        let latencies = generator.latencies.of_class(kind);
        let (scheme, options) = options.get(usize::from(kind)).cloned().unwrap_or_default();
        KindOutcome {
            scheme,
            options,
            beside: kind == 1,
            hosts,
            messages: latencies.count(),
            undelivered: generator.book.measured_of(kind),
            utilisation: received / (window.capacity() * f64::from(hosts)),
            slowdown: latencies.slowdown(scenario.slowdown, ideal),
        }
    };
    [0, 1].into_iter().filter(|kind| beside.kinds.count(*kind) > 0).map(of).collect()
}

fn workflow_times(scenario: &Scenario, generator: &Generator) -> Vec<WorkflowTimes> {
    let groups = scenario.measures.groups.as_ref();
    let percents = groups.map_or(&[][..], |groups| &groups.percentiles);
    generator.workflows().map_or_else(Vec::new, |all| workflows::times(all, percents))
}

fn pauses(network: &ScenarioNetwork, report: &PauseReport) -> Pauses {
    let name = |port: &PortId| network.port_name(*port);
    let micros = |ps: u64| ps as f64 / 1e6;
    let stuck = |stuck: &StuckLevels| StuckPort {
        port: name(&stuck.port),
        levels: (0..8).filter(|level| stuck.levels >> level & 1 != 0).collect(),
        since_us: micros(stuck.since.0),
        waits_for: stuck.waits_for.iter().map(name).collect(),
    };
    let times = |paused: &PausedPort| PausedPortTimes {
        port: name(&paused.port),
        count: paused.pauses,
        paused_us: micros(paused.lasted.0),
    };
    Pauses {
        control_frames: report.control_frames,
        count: report.pauses,
        longest_us: micros(report.longest.0),
        total_us: micros(report.ports.iter().map(|port| port.lasted.0).sum()),
        ports: report.ports.iter().map(times).collect(),
        stuck: report.stuck.iter().map(stuck).collect(),
        deadlock: report.circle.iter().map(name).collect(),
    }
}

fn timeouts(sim: &dyn AnySimulation, (submitted, raised): (u64, u64)) -> TimeoutCounts {
    let Timeouts { expired, flows, raised: late } = sim.timeouts();
    let percent = |flows: u64, of: u64| 100.0 * flows as f64 / of.max(1) as f64;
    let of_raised = || RaisedTimeouts { flows: late, percent: percent(late, raised) };
    let of_raised = (raised > 0).then(of_raised);
    TimeoutCounts { expired, flows, percent: percent(flows, submitted), raised: of_raised }
}

fn probe_delays(
    experiment: Experiment<'_>,
    generator: &Generator,
    ideals: &Ideals,
) -> Option<ProbeDelays> {
    let idle = ideals.get(&experiment.probe_kind()?)?;
    let instrument = experiment.scenario.probes.and_then(|probes| probes.instrument);
    let instrument = instrument.map_or(SimDuration::ZERO, |span| SimDuration(span.0));
    probes::delays((&generator.probed, generator.probes_lost), *idle, instrument)
}

/// A warning if traffic ended before the scenario's stop rule.
fn ended_early(window: &MeasurementWindow<'_>, sim: &dyn AnySimulation) -> Option<String> {
    sim.generator().ended_early.then(|| {
        format!(
            "traffic ended early, after {:.3} ms: the backlog grew without bound, so latencies \
             would only show how long traffic lasts (`stop.diverging = \"continue\"` lets it last)",
            seconds(window.closed) * 1e3
        )
    })
}

/// The load in different units. Realised loads are of the messages that started from the empty
/// start to the end of traffic. What hosts sent for those in flight then counts if the run waited
/// for them alone.
fn loads(window: &MeasurementWindow<'_>, sim: &dyn AnySimulation) -> Loads {
    let Experiment { scenario, network, demand, price, .. } = window.experiment;
    let tally = sim.generator().tally;
    let waited = scenario.stop.ending == TrafficEnding::Drain;
    let ports = demand.counted_ports(network).into_iter();
    let wire_bytes = ports.map(|port| match waited {
        true => sim.sent_bytes(port),
        false => window.end[port.0 as usize],
    });
    let links = demand.loaded_links();
    let whole = network.link.0 as f64 / 8.0 * seconds(window.closed) * f64::from(links);
    // If all messages started at once, there is no time to relate the load to.
    let at_once = window.closed == SimTime::ZERO;
    let realised = |bytes: u64| if at_once { 0.0 } else { bytes as f64 / whole };
    let realised_paper = realised(tally.offered_paper_bytes);
    let realised_payload = realised(tally.offered_bytes);
    let (paper, payload) = if demand.is_open() {
        demand.expressed(scenario, price)
    } else {
        (realised_paper, realised_payload)
    };
    Loads {
        asked: if demand.is_open() { scenario.load.fraction } else { realised_paper },
        basis: scenario.load.basis,
        paper,
        payload,
        core: (demand.core_share > 0.0).then(|| demand.core_fraction(scenario)),
        realised_paper,
        realised_payload,
        realised_wire: realised(wire_bytes.sum()),
    }
}
