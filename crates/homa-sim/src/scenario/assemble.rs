//! The outcome of a finished simulation.

use homa_proto::Packet;

use crate::engine::{Fault, Probe};
use crate::measure::journey::Journeys;
use crate::measure::pace::Pace;
use crate::measure::wasted::Wasted;
use crate::measure::watch::Watch;
use crate::measure::{cost, findings};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, PortId};
use crate::transport::Homa;

use super::outcome::{Drops, Loads};
use super::run::{Bench, Gated, Ideals, Sim, ports_by_tier, seconds};
use super::{Exchange, Outcome, ScenarioError, SlowdownBy};

/// A finished run: when it was measured, and what ports had sent at those times.
pub(super) struct Moment<'a> {
    pub bench: Bench<'a>,
    pub opened: SimTime,
    pub closed: SimTime,
    /// When the last event happened, if nothing was pending at the end.
    pub emptied: Option<SimTime>,
    pub start: Vec<u64>,
    pub end: Vec<u64>,
    pub cpu_seconds: f64,
    pub pace: Pace,
}

impl Moment<'_> {
    /// How much one host link can carry while the run was measured, bytes.
    pub fn capacity(&self) -> f64 {
        let picos = self.closed.since(self.opened).0.max(1) as f64;
        self.bench.network.link.0 as f64 / 8e12 * picos
    }

    fn sent(&self, port: PortId) -> f64 {
        // Less at the end if all that was in service at the start is an interrupted frame.
        self.end[port.0 as usize] as f64 - self.start[port.0 as usize] as f64
    }

    /// What the links to all receivers carried.
    fn received(&self) -> f64 {
        let Bench { network, demand, .. } = self.bench;
        let receivers = demand.receivers.clone().map(HostId);
        receivers.map(|host| self.sent(network.wiring.downlink(host))).sum()
    }

    /// The ends of the interval around a utilisation.
    fn utilisation_ci(&self, utilisation: f64) -> [Option<f64>; 2] {
        let links = self.bench.demand.receivers.len() as f64;
        let per_second = self.bench.network.link.0 as f64 / 8.0 * links;
        let half = self.pace.received().and_then(|rate| Some(rate.half_width? / per_second));
        [-1.0, 1.0].map(|side| half.map(|half| (utilisation + side * half).max(0.0)))
    }

    /// What the links to all receivers can carry.
    pub fn receiving_capacity(&self) -> f64 {
        self.capacity() * self.bench.demand.receivers.len() as f64
    }
}

impl Gated for Watch {
    fn open(&mut self, now: SimTime) {
        Self::open(self, now);
    }

    fn close(&mut self, now: SimTime) {
        Self::close(self, now);
    }

    fn report(&self, moment: &Moment<'_>, outcome: &mut Outcome) {
        let measures = moment.bench.scenario.measures;
        if measures.priorities {
            let capacity = moment.receiving_capacity();
            outcome.priority_share = Some(self.level_bytes().map(|bytes| bytes as f64 / capacity));
        }
        outcome.queues = self.queues(ports_by_tier(moment.bench.network));
    }
}

impl Gated for Journeys {
    fn open(&mut self, _: SimTime) {
        Self::open(self);
    }

    fn close(&mut self, _: SimTime) {
        Self::close(self);
    }

    fn report(&self, moment: &Moment<'_>, outcome: &mut Outcome) {
        let Bench { scenario, demand, .. } = moment.bench;
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

impl Gated for Wasted {
    fn open(&mut self, now: SimTime) {
        Self::open(self, now);
    }

    fn close(&mut self, now: SimTime) {
        Self::close(self, now);
    }

    fn report(&self, moment: &Moment<'_>, outcome: &mut Outcome) {
        let Bench { network, demand, .. } = moment.bench;
        let wasted = self.share(network.link.0 as f64 / 8.0, &demand.receivers);
        outcome.wasted_bandwidth = wasted.map(|share| share.mean);
        let ends = wasted.map_or([None; 2], |share| share.ends());
        outcome.wasted_ci = ends.map(|end| end.map(|share| share.max(0.0)));
    }
}

pub(super) fn assemble<P, F>(
    moment: &Moment<'_>,
    sim: &mut Sim<P, F>,
    ideals: &Ideals,
) -> Result<Outcome, ScenarioError>
where
    P: Probe<Packet> + Gated,
    F: Fault<Packet>,
{
    let Bench { scenario, network, demand, stack } = moment.bench;
    let backlog = std::mem::take(&mut sim.application_mut().backlog);
    let generator = sim.application();
    let tally = generator.tally;
    let counters = sim.counters();
    let ideal = idle_time(moment.bench, ideals);
    let overflow =
        (0..network.wiring.ports().len() as u32).map(|port| sim.dropped_frames(PortId(port))).sum();
    let drops = |host: &Homa| host.endpoint().counters().drops().map(|(_, n)| n).sum::<u64>();
    let refused = sim.transports().map(drops).sum();
    let utilisation = moment.received() / moment.receiving_capacity();
    let arrivals = moment.pace.delivered().map_or([None; 2], |rate| rate.ends());
    let loads = loads(moment, (tally.offered_paper_bytes, tally.offered_bytes));
    let limits = demand.limits(scenario, network, stack.framing);
    let needs = demand.needs_seconds(scenario, network, stack.framing);
    let undelivered = generator.book.measured();
    // Where nothing is under way, nothing can still bring them.
    let lost = |left: u64| if moment.emptied.is_some() { left } else { 0 };
    let mut outcome = Outcome {
        scheme: scenario.scheme.clone(),
        workload: demand.workload.clone(),
        load: loads.asked,
        messages: tally.delivered,
        seed: scenario.seed,
        trace_hash: format!("{:016x}", sim.trace_hash()),
        packet_hops: counters.packet_hops,
        cpu_seconds: moment.cpu_seconds,
        hops_per_cpu_second: counters.packet_hops as f64 / moment.cpu_seconds.max(1e-6),
        peak_rss_bytes: cost::peak_rss_bytes(),
        slowdown: generator.latencies.slowdown(scenario.slowdown, &*ideal),
        queues: None,
        priority_share: None,
        wasted_bandwidth: None,
        wasted_ci: [None; 2],
        utilisation,
        utilisation_ci: moment.utilisation_ci(utilisation),
        messages_per_second_ci: arrivals.map(|end| end.map(|rate| rate.max(0.0))),
        goodput: tally.delivered_bytes as f64 / moment.receiving_capacity(),
        loads,
        backlog: backlog.judge(limits.sample_every, tally.entered_bytes, needs),
        drops: Drops { overflow, fault: counters.lost - overflow, refused },
        tail_delay: None,
        ledger: None,
        traffic_seconds: seconds(moment.closed),
        simulated_seconds: seconds(moment.emptied.unwrap_or_else(|| sim.now())),
        events: counters.events,
        submitted: tally.submitted,
        rtt_bytes: stack.rtt_bytes(),
        cutoffs: stack.cutoffs(),
        undelivered,
        failed: tally.failed + lost(generator.book.len()),
        measured_failed: tally.measured_failed + lost(undelivered),
        refused: tally.refused,
        measured_refused: tally.measured_refused,
        in_flight: u64::from(sim.packets_in_flight()),
        offered_bytes: tally.all_offered_bytes,
        delivered_bytes: tally.all_delivered_bytes,
    };
    sim.probe().report(moment, &mut outcome);
    Ok(outcome)
}

/// The load in other terms. Realised: from the empty start to the end of traffic.
fn loads(moment: &Moment<'_>, (paper_bytes, payload_bytes): (u64, u64)) -> Loads {
    let Bench { scenario, network, demand, stack } = moment.bench;
    let links = match demand.is_split() {
        // Requests load the clients' links and responses the servers': the load is that of the
        // side with fewer.
        true => 2 * demand.senders.min(demand.receivers.len() as u32),
        false => demand.senders,
    };
    let whole = network.link.0 as f64 / 8.0 * seconds(moment.closed) * f64::from(links);
    let realised = |bytes: u64| bytes as f64 / whole.max(1.0);
    let uplinks = (0..demand.senders).map(|host| moment.sent(PortId(host)));
    let (realised_paper, realised_payload) = (realised(paper_bytes), realised(payload_bytes));
    let (paper, payload) = if demand.is_open() {
        demand.expressed(scenario, stack.framing)
    } else {
        (realised_paper, realised_payload)
    };
    Loads {
        asked: if demand.is_open() { scenario.load.fraction } else { realised_paper },
        basis: scenario.load.basis,
        paper,
        payload,
        realised_paper,
        realised_payload,
        realised_wire: uplinks.sum::<f64>() / (moment.capacity() * f64::from(demand.senders)),
    }
}

/// The idle time of a message or RPC by (bytes, switches).
fn idle_time<'a>(
    bench: Bench<'a>,
    ideals: &'a Ideals,
) -> Box<dyn Fn(u32, u32) -> SimDuration + 'a> {
    let by = bench.scenario.slowdown;
    if by == SlowdownBy::Idle {
        // Every message that was measured has one.
        return Box::new(move |bytes, switches| ideals[&(bytes, switches)]);
    }
    let formula = bench.network.formula(bench.scenario, by == SlowdownBy::AuthorsCorrected);
    let response_bytes = bench.demand.response_bytes();
    match bench.demand.exchange {
        Exchange::OneWay => Box::new(move |bytes, switches| formula.time(bytes, switches)),
        // The request one way and the response the other.
        Exchange::Echo => Box::new(move |bytes, switches| {
            let back = response_bytes.unwrap_or(bytes);
            formula.time(bytes, switches) + formula.time(back, switches)
        }),
    }
}
