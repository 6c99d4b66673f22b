//! Runs of a network in partitions (`engine/partitions/`): what such a run supports, the generator
//! of each partition, and one interface to all of them.
//!
//! What has to be known in all partitions at the same time is known before the run: traffic ends
//! when a number of messages has started or a time has come, and both follow from the scenario.
//! Counts and results are merged in the order of the partitions, so that they do not depend on
//! threads.

use std::sync::Arc;

use crate::engine::{Counters, Divided, Fault, Halt, PauseReport, Probe, Simulation};
use crate::engine::{Partitioned, World};
use crate::fabric::queue::TrimmingConfig;
use crate::fabric::{Buffers, Forwarding, PortQueue};
use crate::nic::NicCounters;
use crate::scenario::{Scenario, ScenarioError, ScenarioOutcome, TrafficEnding};
use crate::scheme::SwitchQueue;
use crate::time::{SimDuration, SimTime};
use crate::topology::{Division, HostId, PortId};
use crate::traffic::open_loop::OpenLoop;
use crate::traffic::{Generator, Limits, MessageList, Share, Source};
use crate::transport::{Timeouts, Transport};

use super::Experiment;
use super::applications::Applications;
use super::assemble::MeasurementWindow;
use super::demand::Kind;
use super::network::ScenarioNetwork;
use super::running::{AnySimulation, Measure};

/// What a run in partitions needs besides what every run needs.
pub(super) struct PartitionPlan {
    pub division: Division,
    pub threads: usize,
    /// By partition.
    applications: Vec<Applications>,
    /// When traffic ends, unless it ends early.
    ends: SimTime,
}

/// Refuses partitions that are watched packet by packet.
pub(super) fn check_observers(scenario: &Scenario, watched: bool) -> Result<(), ScenarioError> {
    match watched && scenario.partitions > 1 {
        true => Err(refused(
            "a capture and a check of physics follow all packets in the order of time: leave them \
             out, or set `partitions` to 1",
        )),
        false => Ok(()),
    }
}

fn refused(why: &str) -> ScenarioError {
    ScenarioError::unfit("partitions", why)
}

impl Experiment<'_> {
    /// Refuses scenarios that are not supported in several partitions.
    pub(super) fn check_partitions(self) -> Result<(), ScenarioError> {
        if self.scenario.partitions == 1 {
            return Ok(());
        }
        match self.unsupported() {
            Some(what) => Err(refused(&format!("{what}; otherwise, set `partitions` to 1"))),
            None => self.division().map(|_| ()),
        }
    }

    /// The first key that several partitions do not support, and what to do about it.
    fn unsupported(self) -> Option<&'static str> {
        let Self { scenario, network, demand, queue, .. } = self;
        let (fabric, measures) = (&scenario.fabric, &scenario.measures);
        let listed = matches!(demand.kind, Kind::List { .. });
        let known = listed || demand.is_open();
        let random = fabric.loss_ppm > 0 || fabric.duplicate_ppm > 0 || fabric.reorder_ppm > 0;
        let reasons = [
            (
                crate::scheme::find(&scenario.scheme).is_some_and(|row| row.is_bound()),
                "a bound (`scheme`) simulates no packets",
            ),
            (
                matches!(queue, SwitchQueue::Combined(_)),
                "switches that queue at their inputs (`scheme`, `options.switch`) pause each \
                 other: choose a scheme or switches that queue at their outputs",
            ),
            (
                network.config.shared.is_some(),
                "switches that pause their senders (`options.switch.kind`) are not supported: \
                 leave it out",
            ),
            (
                matches!(network.config.forwarding, Forwarding::Adaptive(_)),
                "adaptive routing is not supported: choose another `fabric.routing`",
            ),
            (
                random,
                "random faults are not supported: leave out `fabric.loss_ppm`, \
                      `duplicate_ppm` and `reorder_ppm`",
            ),
            (
                !network.changes.is_empty() || !network.lossy.is_empty(),
                "bad links are not supported: leave out `fabric.impaired`",
            ),
            (
                !known,
                "messages that follow what happens in the network are not supported: choose a \
                 `traffic.pattern` whose messages are known before the run (all-to-all, \
                 clients-servers, many-to-one, permutation, fan-in, or flows without triggers)",
            ),
            (
                listed && scenario.stop.ending == TrafficEnding::Loaded,
                "a list of messages does not keep up a load: choose another `stop.ending`",
            ),
            (scenario.probes.is_some(), "`probes` are not supported: leave them out"),
            (
                measures.tail_delay || measures.ledger || measures.wasted_bandwidth,
                "`measures.tail_delay`, `ledger` and `wasted_bandwidth` are not supported: leave \
                 them out",
            ),
        ];
        reasons.into_iter().find_map(|(applies, what)| applies.then_some(what))
    }

    fn division(self) -> Result<Division, ScenarioError> {
        let returns =
            matches!(self.queue, SwitchQueue::Trimming(TrimmingConfig { returns: true, .. }));
        let shared = matches!(self.network.config.buffers, Buffers::Shared { .. });
        let wiring = &self.network.wiring;
        let division = Division::new(wiring, self.scenario.partitions, returns || shared);
        let division = division.map_err(|most| {
            let must = format!("be 1 to {most}: a TOR switch and its hosts are not divided");
            ScenarioError::field("partitions", must)
        })?;
        match division.lookahead() {
            SimDuration::ZERO => Err(refused(
                "links between switches have no delay, by which partitions could run ahead of each \
                 other: set `fabric.switch_delay` or `fabric.propagation`, or `partitions` to 1",
            )),
            _ => Ok(division),
        }
    }

    /// The traffic of a run: the generator, and a plan with those of partitions if there are
    /// several.
    pub(super) fn traffic(
        self,
        threads: Option<usize>,
    ) -> Result<(Applications, Option<PartitionPlan>), ScenarioError> {
        Ok((self.generator()?.into(), self.partition_plan(threads)?))
    }

    /// The plan of a run in partitions; `None` if the network is in one.
    fn partition_plan(
        self,
        threads: Option<usize>,
    ) -> Result<Option<PartitionPlan>, ScenarioError> {
        if self.scenario.partitions == 1 {
            return Ok(None);
        }
        let division = Arc::new(self.division()?);
        let limits = self.demand.limits(self.scenario, self.network, self.price);
        let (ends, messages) = self.end_of_traffic(&limits);
        let limits = Limits { messages: u64::MAX, ..limits };
        let application = |number: u16| {
            let is_here = |host| division.of_host(host) == number;
            let mut pattern = self.demand.pattern(self.scenario, self.network, self.price)?;
            pattern.source = match &self.demand.kind {
                Kind::Open(_) => Box::new(self.open_loop()?.only(is_here)) as Box<dyn Source>,
                Kind::List { arrivals, .. } => {
                    let known = arrivals[..messages].iter().filter(|one| is_here(one.src));
                    Box::new(MessageList::new(known.copied().collect()))
                }
                _ => return Err(refused("this pattern is not supported")),
            };
            let parts = (self.network.paths.clone(), self.demand.latencies());
            let generator = Generator::new(self.network.wiring.hosts(), pattern, limits, parts);
            Ok(generator.with_share(Share::new(number, Arc::clone(&division))).into())
        };
        let applications = (0..division.partitions()).map(application).collect::<Result<_, _>>()?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(cores);
        let division = Division::clone(&division);
        Ok(Some(PartitionPlan { division, threads, applications, ends }))
    }

    fn open_loop(self) -> Result<OpenLoop, ScenarioError> {
        self.demand.open_loop(self.scenario, self.network, self.price)
    }

    /// When traffic ends: with the last message to measure, at the time that the scenario sets, or
    /// with the last message of a list. Also returns how many messages of a list start.
    fn end_of_traffic(self, limits: &Limits) -> (SimTime, usize) {
        let measured = |at: &SimTime| *at >= limits.warm_up;
        match &self.demand.kind {
            Kind::List { arrivals, .. } => {
                let early = arrivals.partition_point(|one| one.at < limits.warm_up);
                let by_number = usize::try_from(limits.messages).unwrap_or(usize::MAX);
                let by_number = early.saturating_add(by_number).min(arrivals.len());
                let by_time = arrivals.partition_point(|one| one.at < limits.time);
                let last = arrivals[..by_number].last().map_or(SimTime::ZERO, |one| one.at);
                (last.min(limits.time), by_number.min(by_time))
            }
            _ => {
                let open = self.open_loop().ok();
                let number = usize::try_from(limits.messages - 1).unwrap_or(usize::MAX);
                let bounded = limits.messages < u64::MAX;
                let last = open.filter(|_| bounded).and_then(|open| {
                    let until = |at: &SimTime| *at < limits.time;
                    open.times().take_while(until).filter(measured).nth(number)
                });
                (last.unwrap_or(limits.time), 0)
            }
        }
    }

    /// Builds the simulation of a network in partitions.
    pub(super) fn build_partitions<'a, T, Q, P, F>(
        self,
        (plan, whole): (PartitionPlan, Generator),
        (make, queue): (crate::engine::MakeTransport<T>, crate::engine::MakeQueue<'_, Q>),
        part: impl Fn() -> (P, F),
    ) -> Box<dyn AnySimulation + 'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
        P: Probe<T> + Measure + Send + 'a,
        F: Fault<T::Packet> + Send + 'a,
    {
        let PartitionPlan { division, threads, applications, ends } = plan;
        let parts = applications.into_iter().map(|application| {
            let (probe, faults) = part();
            (application, probe, faults)
        });
        let sim = Partitioned::new(
            (&self.network.wiring, self.network.config),
            (division, threads),
            (make, queue),
            parts.collect(),
        );
        let mut run = PartitionedRun { sim, whole, ends, told: false };
        run.begin(self.network);
        Box::new(run)
    }
}

impl Divided for Applications {
    type Note = <Generator as Divided>::Note;

    fn notes(&mut self, to: usize) -> &mut Vec<Self::Note> {
        self.generator.notes(to)
    }

    fn on_note(&mut self, note: Self::Note) {
        self.generator.on_note(note);
    }

    fn awaited(&self) -> Option<i64> {
        self.generator.awaited()
    }
}

/// A run of a network in partitions.
struct PartitionedRun<W: World<App = Applications>> {
    sim: Partitioned<W>,
    /// The counts and results of all partitions. It starts no messages.
    whole: Generator,
    /// When traffic ends.
    ends: SimTime,
    /// The generators of the partitions know that traffic has ended.
    told: bool,
}

impl<W: World<App = Applications>> PartitionedRun<W> {
    fn generators(&mut self) -> Vec<&mut Generator> {
        let members = self.sim.members_mut().iter_mut();
        members.map(|member| &mut member.application_mut().generator).collect()
    }

    /// Ends traffic in all partitions.
    fn end_traffic(&mut self, at: SimTime, early: bool) {
        self.told = true;
        for generator in self.generators() {
            match early {
                true => generator.end_early(at),
                false => generator.end_share(at),
            }
        }
        if !early {
            self.whole.end_share(at);
        }
    }

    /// Takes over what is new in the partitions.
    fn gather(&mut self) {
        let Self { sim, whole, .. } = self;
        let members = sim.members_mut().iter_mut();
        let mut all: Vec<_> =
            members.map(|member| &mut member.application_mut().generator).collect();
        whole.gather(&mut all);
        if self.told {
            let members = sim.members().iter();
            whole.book.sum(members.map(|member| &member.application().generator.book));
        }
    }
}

impl<W> Measure for PartitionedRun<W>
where
    W: World<App = Applications, Probe: Measure>,
{
    fn open(&mut self, now: SimTime) {
        self.sim.members_mut().iter_mut().for_each(|member| member.probe_mut().open(now));
    }

    fn close(&mut self, now: SimTime) {
        self.sim.members_mut().iter_mut().for_each(|member| member.probe_mut().close(now));
    }
}

impl<W> AnySimulation for PartitionedRun<W>
where
    W: World<App = Applications, Probe: Measure>,
    Simulation<W>: Send,
{
    fn begin(&mut self, network: &ScenarioNetwork) {
        for (number, member) in (0..).zip(self.sim.members_mut()) {
            for (_, at, token) in member.application().first_wakes() {
                member.wake_at(at, token);
            }
            for pause in &network.pauses {
                // A host is up in its own partition only.
                if member.transport(pause.host).is_some() {
                    member.pause(pause.host, pause.at, pause.length);
                }
            }
            debug_assert!(network.changes.is_empty(), "partition {number}: links do not change");
        }
    }

    fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt {
        if let Some(at) = self.whole.ended.filter(|_| !self.told) {
            self.end_traffic(at, true);
        }
        let last = if self.told { end } else { end.min(self.ends) };
        let halt = self.sim.run_until(last, max_events);
        let over = !self.told && last == self.ends && last < SimTime::MAX && halt != Halt::Events;
        if over {
            self.end_traffic(self.ends, false);
        }
        self.gather();
        if over { Halt::Stopped } else { halt }
    }

    fn now(&self) -> SimTime {
        self.sim.now()
    }

    fn last_event(&self) -> SimTime {
        self.sim.last_event()
    }

    fn pending(&self) -> usize {
        self.sim.pending()
    }

    fn packets_in_flight(&self) -> u32 {
        self.sim.packets_in_flight()
    }

    fn counters(&self) -> Counters {
        self.sim.counters()
    }

    fn trace_hash(&self) -> u64 {
        self.sim.trace_hash()
    }

    fn sent_bytes(&self, port: PortId) -> u64 {
        self.sim.owner(port).sent_bytes(port)
    }

    fn dropped_frames(&self, port: PortId) -> u64 {
        self.sim.owner(port).dropped_frames(port)
    }

    fn refused(&self) -> u64 {
        self.sim.transports().map(Transport::refused).sum()
    }

    fn nics(&self) -> Vec<NicCounters> {
        let now = self.now().protocol();
        let hosts = (0..self.sim.members()[0].wiring().hosts()).map(HostId);
        let all = hosts.map(|host| self.sim.transport(host).and_then(|host| host.nic(now)));
        all.collect::<Option<_>>().unwrap_or_default()
    }

    fn pause_report(&self) -> Option<PauseReport> {
        None
    }

    fn timeouts(&self) -> Timeouts {
        self.sim.transports().map(Transport::timeouts).fold(Timeouts::default(), Timeouts::plus)
    }

    fn generator(&self) -> &Generator {
        &self.whole
    }

    fn generator_mut(&mut self) -> &mut Generator {
        &mut self.whole
    }

    fn measure(&mut self) -> &mut dyn Measure {
        self
    }

    fn report(&mut self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        let Some((first, others)) = self.sim.members_mut().split_first_mut() else { return };
        for other in others {
            first.probe_mut().absorb(other.probe());
        }
        first.probe().report(window, outcome);
    }

    fn cpu_elsewhere(&self) -> f64 {
        self.sim.cpu_elsewhere()
    }
}
