//! Builds simulations with concrete types. A scheme's [`HostScheme::start`] hands its hosts and
//! queues to [`Start`]. From there on everything is monomorphised: no call per packet is virtual.
//!
//! Homa has one instantiation for each kind of observation, with and without faults on links,
//! because its runs are long. Every other pair of hosts and queues has a single one, in which
//! probes and faults are optional.
//!
//! [`HostScheme::start`]: crate::scheme::HostScheme::start

use std::io::Write;

use homa_proto::Duration;

use crate::checker::MessageChecker;
use crate::engine::{Fault, MakeTransport, NoFaults, Probe, Simulation};
use crate::fabric::{PortQueue, StrictPriority};
use crate::measure::journey::Journeys;
use crate::measure::queue_probe::QueueProbe;
use crate::measure::wasted::Wasted;
use crate::scenario::ScenarioError;
use crate::scheme::SwitchQueue;
use crate::topology::{HostId, PortId, PortSpec};
use crate::trace::{Capture, Recorder, Verifier};
use crate::transport::{Homa, Transport};

use super::Experiment;
use super::applications::Applications;
use super::bound::BoundRun;
use super::faults::LinkFaults;
use super::partitioned::PartitionPlan;
use super::running::{AnySimulation, Measure};

/// The probes of a run.
#[derive(Default)]
pub(super) struct Watching<'a> {
    pub queues: Option<QueueProbe>,
    pub journeys: Option<Journeys>,
    pub wasted: Option<Wasted>,
    pub capture: Option<Capture<&'a mut dyn Write>>,
    pub judge: Option<Recorder<&'a mut Verifier>>,
    pub messages: Option<&'a mut MessageChecker>,
}

impl Watching<'_> {
    /// Whether a probe follows every packet.
    fn follows_packets(&self) -> bool {
        let Self { queues: _, journeys, wasted, capture, judge, messages } = self;
        let measured = journeys.is_some() || wasted.is_some();
        measured || capture.is_some() || judge.is_some() || messages.is_some()
    }
}

/// A simulation that has not begun.
pub(crate) struct Started<'a>(Box<dyn AnySimulation + 'a>);

/// A simulation that is complete except for its hosts and the queues of ports.
pub(crate) struct Start<'e, 'a> {
    experiment: Experiment<'e>,
    applications: Applications,
    watching: Watching<'a>,
    /// If the network is in partitions.
    partitions: Option<PartitionPlan>,
}

/// The probes that [`Start::with`] gives a simulation.
type Probes<'a> = (
    Option<QueueProbe>,
    (
        Option<Journeys>,
        (Option<Wasted>, (Option<Recorder<&'a mut Verifier>>, Option<&'a mut MessageChecker>)),
    ),
);

impl<'a> Start<'_, 'a> {
    /// The scenario's seed.
    pub fn seed(&self) -> u64 {
        self.experiment.scenario.seed
    }

    /// The kind of queue that ports have.
    pub fn queue(&self) -> SwitchQueue {
        self.experiment.queue
    }

    /// The round trip of the network without queueing.
    pub fn round_trip(&self) -> Duration {
        self.experiment.network.scale().round_trip()
    }

    /// Number of paths between hosts of different racks.
    pub fn paths(&self) -> u32 {
        self.experiment.network.wiring.paths()
    }

    /// See [`crate::topology::Wiring::oversubscription`].
    pub fn oversubscription(&self) -> u32 {
        self.experiment.network.wiring.oversubscription()
    }

    /// The host that sends the scenario's probes, if there are any.
    pub fn instrument(&self) -> Option<HostId> {
        self.experiment.scenario.probes.map(|probes| HostId(probes.from))
    }

    /// The simulation with these hosts and queues. `make` gets a host and the number of its life,
    /// which increases if the host restarts.
    pub fn with<T, Q>(
        self,
        make: impl FnMut(HostId, u32) -> T + Send + 'static,
        mut queue: impl FnMut(&PortSpec) -> Q,
    ) -> Started<'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
    {
        self.with_numbered(make, move |_, port| queue(port))
    }

    /// As [`Start::with`], for queues that follow from the number of their port.
    pub fn with_numbered<T, Q>(
        self,
        make: impl FnMut(HostId, u32) -> T + Send + 'static,
        mut queue: impl FnMut(PortId, &PortSpec) -> Q,
    ) -> Started<'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
    {
        let Watching { queues, journeys, wasted, judge, messages, .. } = self.watching;
        let experiment = self.experiment;
        if let Some(plan) = self.partitions {
            let probes = || -> Probes<'a> { (queues.clone(), Default::default()) };
            let part = || (probes(), None::<LinkFaults>);
            let (whole, parts) =
                (self.applications.generator, (Box::new(make) as _, &mut queue as _));
            return Started(experiment.build_partitions((plan, whole), parts, part));
        }
        let faults = LinkFaults::new(experiment.scenario, experiment.network);
        let faults = faults.any().then_some(faults);
        let probes: Probes<'a> = (queues, (journeys, (wasted, (judge, messages))));
        experiment.build((Box::new(make), queue), (self.applications, probes, faults))
    }

    /// The simulation with hosts that run Homa over strict priorities.
    pub fn with_homa(self, make: impl FnMut(HostId, u32) -> Homa + Send + 'static) -> Started<'a> {
        let Self { experiment, applications, watching, partitions } = self;
        let faults = LinkFaults::new(experiment.scenario, experiment.network);
        let follows = watching.follows_packets();
        let Watching { queues, journeys, wasted, capture, judge, messages } = watching;
        let make: MakeTransport<Homa> = Box::new(make);
        let mut queue = |_, _: &PortSpec| StrictPriority;
        if let Some(plan) = partitions {
            let (whole, parts) = ((plan, applications.generator), (make, &mut queue as _));
            return Started(match queues {
                Some(queues) => {
                    experiment.build_partitions(whole, parts, || (queues.clone(), NoFaults))
                }
                None => experiment.build_partitions(whole, parts, || ((), NoFaults)),
            });
        }
        let parts = (make, queue);
        match (follows, queues, faults.any()) {
            (true, queues, faulty) => {
                let probes = (queues, (journeys, (wasted, (capture, (judge, messages)))));
                if faulty {
                    experiment.build(parts, (applications, probes, faults))
                } else {
                    experiment.build(parts, (applications, probes, NoFaults))
                }
            }
            (false, Some(queues), true) => experiment.build(parts, (applications, queues, faults)),
            (false, Some(queues), false) => {
                experiment.build(parts, (applications, queues, NoFaults))
            }
            (false, None, true) => experiment.build(parts, (applications, (), faults)),
            (false, None, false) => experiment.build(parts, (applications, (), NoFaults)),
        }
    }

    /// The bound, which has no hosts.
    pub fn bound(self) -> Started<'a> {
        Started(Box::new(BoundRun::start(self.experiment, self.applications.generator)))
    }
}

impl Experiment<'_> {
    /// Refuses hosts, queues and networks that do not fit together.
    pub fn check_parts(self) -> Result<(), ScenarioError> {
        self.check_partitions()?;
        if self.beside.is_some() {
            // `SecondHosts::check` has checked both schemes.
            return Ok(());
        }
        self.hosts.check(self.scenario, self.queue)?;
        let refused = |what: &str| Err(ScenarioError::Unsupported { what: what.to_owned() });
        let config = &self.network.config;
        match self.queue {
            SwitchQueue::Ecn(_) | SwitchQueue::Phantom(..) | SwitchQueue::Red(_)
                if config.preemption =>
            {
                refused("preemption at ports that mark congestion")
            }
            SwitchQueue::Combined(_) if config.cut_through => {
                refused("cut-through in switches that queue at their inputs")
            }
            SwitchQueue::PriorityDrop | SwitchQueue::Trimming(_) | SwitchQueue::Combined(_)
                if config.preemption =>
            {
                refused("preemption at ports that do not serve strict priorities")
            }
            _ => Ok(()),
        }
    }

    /// Builds the simulation. Its parts must fit together.
    pub fn start<'a>(
        self,
        applications: Applications,
        watching: Watching<'a>,
    ) -> Box<dyn AnySimulation + 'a> {
        self.start_in((applications, None), watching)
    }

    /// As [`Experiment::start`], in partitions if there is a plan for them.
    pub fn start_in<'a>(
        self,
        (applications, partitions): (Applications, Option<PartitionPlan>),
        watching: Watching<'a>,
    ) -> Box<dyn AnySimulation + 'a> {
        let start = Start { experiment: self, applications, watching, partitions };
        let Started(simulation) = match self.beside {
            Some(beside) => self.start_beside(beside, start),
            None => self.hosts.start(start),
        };
        simulation
    }

    fn build<'a, T, Q, P, F>(
        self,
        (make, mut queue): (MakeTransport<T>, impl FnMut(PortId, &PortSpec) -> Q),
        parts: (Applications, P, F),
    ) -> Started<'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
        P: Probe<T> + Measure + 'a,
        F: Fault<T::Packet> + 'a,
    {
        // Otherwise the unit tests would compile every kind of simulation again.
        if cfg!(test) {
            unreachable!("unit tests run no scenario: write the test in `tests/it`");
        }
        let (wiring, config) = (self.network.wiring.clone(), self.network.config);
        let mut sim = Box::new(Simulation::with_queues(wiring, config, (make, &mut queue), parts));
        sim.begin(self.network);
        Started(sim)
    }
}
