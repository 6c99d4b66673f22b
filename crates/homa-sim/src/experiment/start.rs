//! The one place where a scheme becomes types. From here on everything is monomorphised: no call
//! per packet is virtual.
//!
//! Homa has an instantiation for each kind of observation, with and without faults on links,
//! because its runs are long; every other pair of hosts and queues has one, in which probes and
//! faults are optional.

use std::io::Write;
use std::sync::Arc;

use crate::checker::MessageChecker;
use crate::engine::{Fault, MakeTransport, NoFaults, Probe, Simulation};
use crate::fabric::queue::{
    Combined, EcnScope, EcnThreshold, Phantom, PhantomConfig, PriorityDrop, Trimming,
    TrimmingConfig,
};
use crate::fabric::{PortQueue, StrictPriority};
use crate::measure::journey::Journeys;
use crate::measure::queue_probe::QueueProbe;
use crate::measure::wasted::Wasted;
use crate::nic::{Nic, NicConfig};
use crate::scenario::{EcnConfig, EcnScopeName, ScenarioError};
use crate::scheme::homa::HomaConfig;
use crate::scheme::{HostConfig, Queue};
use crate::topology::{HostId, PortSpec};
use crate::trace::{Capture, Recorder, Verifier};
use crate::transport::ndp::{Ndp, NdpConfig};
use crate::transport::pfabric::PFabric;
use crate::transport::phost::PHost;
use crate::transport::tcp::Tcp;
use crate::transport::tcp::config::TcpConfig;
use crate::transport::{Homa, StopAndWait, Transport};

use super::Experiment;
use super::applications::Applications;
use super::bound::{self, BoundRun};
use super::faults::LinkFaults;
use super::running::{AnySimulation, Measure};

/// What watches a run.
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
    /// Something looks at every packet.
    fn follows_packets(&self) -> bool {
        let Self { queues: _, journeys, wasted, capture, judge, messages } = self;
        let measured = journeys.is_some() || wasted.is_some();
        measured || capture.is_some() || judge.is_some() || messages.is_some()
    }
}

/// The queue of one port.
pub(super) fn ecn_queue(ecn: EcnConfig) -> EcnThreshold {
    let scope = match ecn.scope {
        EcnScopeName::Queue => EcnScope::Queue,
        EcnScopeName::Port => EcnScope::Port,
    };
    EcnThreshold::new(ecn.threshold, scope)
}

/// A simulation that has not begun.
pub(super) type Started<'a> = Box<dyn AnySimulation + 'a>;

impl Experiment<'_> {
    /// Refuses hosts, queues and fabric that do not go together.
    pub fn check_parts(self) -> Result<(), ScenarioError> {
        let refused = |what: &str| Err(ScenarioError::Unsupported { what: what.to_owned() });
        match (self.hosts, self.queue) {
            (HostConfig::Bound, _) => bound::check(self.scenario),
            // Beside hosts that do heed them, checked with these.
            _ if self.beside.is_some() => Ok(()),
            (HostConfig::Homa(..), Queue::Ecn(_) | Queue::Phantom(..)) => {
                refused("Homa over ports that mark congestion: its hosts do not heed marks")
            }
            (_, Queue::Ecn(_) | Queue::Phantom(..)) if self.network.config.preemption => {
                refused("preemption at ports that mark congestion")
            }
            (hosts, Queue::Combined(_)) if !hosts.knows_combined() => {
                refused("hosts of this scheme over switches that queue at their inputs")
            }
            (_, Queue::Combined(_)) if self.network.config.cut_through => {
                refused("cut-through in switches that queue at their inputs")
            }
            (_, Queue::PriorityDrop | Queue::Trimming(_) | Queue::Combined(_))
                if self.network.config.preemption =>
            {
                refused("preemption at ports that do not serve strict priorities")
            }
            _ => Ok(()),
        }
    }

    /// Builds the simulation; its parts go together.
    pub fn start<'a>(self, applications: Applications, watching: Watching<'a>) -> Started<'a> {
        if let Some(beside) = self.beside {
            return self.start_beside(beside, applications, watching);
        }
        let (hosts, seed) = (self.hosts.clone(), self.scenario.seed);
        match (hosts, self.queue) {
            (HostConfig::Bound, _) => Box::new(BoundRun::start(self, applications.generator)),
            (HostConfig::Homa(config, nic), _) => {
                self.start_homa_hosts(applications, (config, nic), watching)
            }
            (HostConfig::PFabric(config), Queue::Combined(_)) => {
                let make = Box::new(move |_, life| PFabric::new(config, life));
                self.start_any(applications, (make, |_| Combined), watching)
            }
            (HostConfig::PFabric(config), _) => {
                let make = Box::new(move |_, life| PFabric::new(config, life));
                self.start_any(applications, (make, |_| PriorityDrop), watching)
            }
            (HostConfig::PHost(config), _) => {
                let make = Box::new(move |_, life| PHost::new(config, life));
                self.start_any(applications, (make, |_| StrictPriority), watching)
            }
            (HostConfig::Ndp(config), queue) => {
                let paths = self.network.wiring.paths();
                let config = NdpConfig { paths, seed, ..config };
                let make = Box::new(move |host, life| Ndp::new(config, host, life));
                let queue = match queue {
                    Queue::Trimming(queue) => queue,
                    _ => TrimmingConfig::PAPER,
                };
                let mut port = 0;
                let queues = move |_: &PortSpec| {
                    port += 1;
                    Trimming::new(queue, seed, port)
                };
                self.start_any(applications, (make, queues), watching)
            }
            (HostConfig::StopAndWait, Queue::Ecn(ecn)) => {
                let make = Box::new(|_, life| StopAndWait::new(life));
                self.start_any(applications, (make, |_| ecn_queue(ecn)), watching)
            }
            (HostConfig::Tcp(config, nic), _) => {
                self.start_tcp(applications, (config, nic), watching)
            }
            (HostConfig::StopAndWait, _) => {
                let make = Box::new(|_, life| StopAndWait::new(life));
                self.start_any(applications, (make, |_| StrictPriority), watching)
            }
        }
    }

    /// Homa's hosts, behind a NIC that does something or not.
    fn start_homa_hosts<'a>(
        self,
        applications: Applications,
        (config, nic): (Box<HomaConfig>, NicConfig),
        watching: Watching<'a>,
    ) -> Started<'a> {
        let seed = self.scenario.seed;
        let instrument = self.scenario.probes.map(|probes| HostId(probes.from));
        match self.queue {
            Queue::Combined(_) if !nic.is_plain() => {
                let nic = NicConfig { instrument, ..nic };
                let make = Box::new(move |host, life| {
                    Nic::new(config.host(host, life, seed), nic, host, (life, seed))
                });
                self.start_any(applications, (make, |_| Combined), watching)
            }
            _ if !nic.is_plain() => {
                let nic = NicConfig { instrument, ..nic };
                let make = Box::new(move |host, life| {
                    Nic::new(config.host(host, life, seed), nic, host, (life, seed))
                });
                self.start_any(applications, (make, |_| StrictPriority), watching)
            }
            Queue::Combined(_) => {
                let make = Box::new(move |host, life| config.host(host, life, seed));
                self.start_any(applications, (make, |_| Combined), watching)
            }
            _ => {
                let make = Box::new(move |host, life| config.host(host, life, seed));
                self.start_homa(applications, make, watching)
            }
        }
    }

    /// TCP's hosts.
    fn start_tcp<'a>(
        self,
        applications: Applications,
        (config, nic): (Arc<TcpConfig>, NicConfig),
        watching: Watching<'a>,
    ) -> Started<'a> {
        let seed = self.scenario.seed;
        let instrument = self.scenario.probes.map(|probes| HostId(probes.from));
        match self.queue {
            Queue::Phantom(ecn, phantom) => {
                self.start_nic(applications, (config, nic), (ecn, phantom), watching)
            }
            Queue::Combined(_) if !nic.is_plain() => {
                let nic = NicConfig { instrument, ..nic };
                let make = Box::new(move |host, life| {
                    Nic::new(Tcp::new(config.clone(), host, (life, seed)), nic, host, (life, seed))
                });
                self.start_any(applications, (make, |_| Combined), watching)
            }
            queue if !nic.is_plain() => {
                let ecn = match queue {
                    Queue::Ecn(ecn) => Some(ecn),
                    _ => None,
                };
                self.start_nic(applications, (config, nic), (ecn, None), watching)
            }
            queue => {
                let make = Box::new(move |host, life| Tcp::new(config.clone(), host, (life, seed)));
                match queue {
                    Queue::Ecn(ecn) => {
                        self.start_any(applications, (make, |_| ecn_queue(ecn)), watching)
                    }
                    Queue::Combined(_) => {
                        self.start_any(applications, (make, |_| Combined), watching)
                    }
                    _ => self.start_any(applications, (make, |_| StrictPriority), watching),
                }
            }
        }
    }

    /// TCP behind a NIC that does something, or phantom queues.
    fn start_nic<'a>(
        self,
        applications: Applications,
        (config, nic): (Arc<TcpConfig>, NicConfig),
        (ecn, phantom): (Option<EcnConfig>, Option<PhantomConfig>),
        watching: Watching<'a>,
    ) -> Started<'a> {
        let seed = self.scenario.seed;
        let instrument = self.scenario.probes.map(|probes| HostId(probes.from));
        let nic = NicConfig { instrument, ..nic };
        let make = Box::new(move |host, life| {
            Nic::new(Tcp::new(config.clone(), host, (life, seed)), nic, host, (life, seed))
        });
        let never = EcnThreshold::new(u32::MAX, EcnScope::Queue);
        let queue =
            move |port: &PortSpec| Phantom::new(ecn.map_or(never, ecn_queue), phantom, port.rate);
        self.start_any(applications, (make, queue), watching)
    }

    fn start_homa<'a>(
        self,
        applications: Applications,
        make: MakeTransport<Homa>,
        watching: Watching<'a>,
    ) -> Started<'a> {
        let faults = LinkFaults::new(self.scenario, self.network);
        let follows = watching.follows_packets();
        let Watching { queues, journeys, wasted, capture, judge, messages } = watching;
        let parts = (make, |_: &PortSpec| StrictPriority);
        match (follows, queues, faults.any()) {
            (true, queues, faulty) => {
                let probes = (queues, (journeys, (wasted, (capture, (judge, messages)))));
                if faulty {
                    self.boxed(parts, (applications, probes, faults))
                } else {
                    self.boxed(parts, (applications, probes, NoFaults))
                }
            }
            (false, Some(queues), true) => self.boxed(parts, (applications, queues, faults)),
            (false, Some(queues), false) => self.boxed(parts, (applications, queues, NoFaults)),
            (false, None, true) => self.boxed(parts, (applications, (), faults)),
            (false, None, false) => self.boxed(parts, (applications, (), NoFaults)),
        }
    }

    /// Any other pair of hosts and queues.
    pub(super) fn start_any<'a, T, Q>(
        self,
        applications: Applications,
        parts: (MakeTransport<T>, impl FnMut(&PortSpec) -> Q),
        watching: Watching<'a>,
    ) -> Started<'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
    {
        let Watching { queues, journeys, wasted, judge, messages, .. } = watching;
        let faults = LinkFaults::new(self.scenario, self.network);
        let faults = faults.any().then_some(faults);
        let probes = (queues, (journeys, (wasted, (judge, messages))));
        self.boxed(parts, (applications, probes, faults))
    }

    fn boxed<'a, T, Q, P, F>(
        self,
        (make, mut queue): (MakeTransport<T>, impl FnMut(&PortSpec) -> Q),
        parts: (Applications, P, F),
    ) -> Started<'a>
    where
        T: Transport + 'a,
        Q: PortQueue + 'a,
        P: Probe<T> + Measure + 'a,
        F: Fault<T::Packet> + 'a,
    {
        let (wiring, config) = (self.network.wiring.clone(), self.network.config);
        let mut queue = |_, port: &PortSpec| queue(port);
        let mut sim = Box::new(Simulation::with_queues(wiring, config, (make, &mut queue), parts));
        sim.begin(self.network);
        sim
    }
}
