//! Two schemes in one simulation: which ones fit together, and which hosts run which.
//!
//! Each scheme is Homa or TCP with separate options and a NIC that only sends. Ports serve strict
//! priorities, because other queues are made for one transport. If one of the schemes has an ECN
//! threshold, ports mark packets that are ECN-capable. Latencies of both schemes have the same
//! divisor, that of the first scheme.

use crate::fabric::Forwarding;
use crate::fabric::queue::{EcnScope, EcnThreshold};
use crate::scenario::{Basis, Scenario, ScenarioError, Shape};
use crate::scheme::{HostConfig, Queue};
use crate::topology::{HostId, PortSpec};
use crate::traffic::Kinds;
use crate::transport::Homa;
use crate::transport::either::Either;
use crate::transport::tcp::Tcp;

use super::Experiment;
use super::applications::Applications;
use super::parts::second_row;
use super::start::{Started, Watching, ecn_queue};

/// The part of an experiment that a second scheme adds.
#[derive(Clone, Debug)]
pub(super) struct SecondHosts {
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Which hosts run which scheme.
    pub kinds: Kinds,
    /// Configuration of its hosts.
    pub hosts: HostConfig,
}

/// Which hosts run which scheme, if there are two.
pub(super) fn kinds(scenario: &Scenario, hosts: u32) -> Result<Option<Kinds>, ScenarioError> {
    let Some(beside) = &scenario.beside else { return Ok(None) };
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    if !(0.0..=1.0).contains(&beside.share) {
        return wrong("beside.share", "be 0 to 1: a share of the hosts");
    }
    let kinds = Kinds::new(hosts, (f64::from(hosts) * beside.share).round() as u32);
    if kinds.count(0) == 1 || kinds.count(1) == 1 {
        let why = "leaves one scheme with a single host; each needs at least two";
        return Err(ScenarioError::unfit("beside.share", why));
    }
    if scenario.load.basis == Basis::Wire {
        let must =
            "be \"paper\" or \"payload\" where hosts of two kinds frame messages differently";
        return wrong("load.basis", must);
    }
    if scenario.probes.is_some() {
        let why = "probes measure one scheme, and `beside` adds another: leave out one of the two";
        return Err(ScenarioError::unfit("probes", why));
    }
    if scenario.measures.wasted_bandwidth {
        return wrong("measures.wasted_bandwidth", "be false where hosts are of two kinds");
    }
    if scenario.fabric.preemption {
        return wrong("fabric.preemption", "be false where hosts are of two kinds");
    }
    Ok(Some(kinds))
}

/// Refuses two schemes with different forwarding, unless the scenario sets the routing.
pub(super) fn check_forwarding(
    scenario: &Scenario,
    first: Forwarding,
) -> Result<(), ScenarioError> {
    let Some(beside) = &scenario.beside else { return Ok(()) };
    let has_paths = !matches!(scenario.fabric.shape, Shape::SingleSwitch { .. });
    let differ = second_row(&beside.scheme)?.forwarding != first;
    if has_paths && differ && scenario.fabric.routing.is_none() {
        let must = "say how packets find their way, such as \"ecmp\": by themselves, `scheme` and \
                    `beside.scheme` differ";
        return Err(ScenarioError::field("fabric.routing", must));
    }
    Ok(())
}

/// The queue of ports that serve both schemes.
pub(super) fn queue(first: Queue, second: Queue) -> Result<Queue, ScenarioError> {
    match (first, second) {
        (first, second) if first == second => Ok(first),
        (Queue::Strict, Queue::Ecn(ecn)) | (Queue::Ecn(ecn), Queue::Strict) => Ok(Queue::Ecn(ecn)),
        _ => {
            let must = "be the threshold of `options.ecn`: both kinds share the ports";
            Err(ScenarioError::field("beside.options.ecn", must))
        }
    }
}

/// The same error with a field below `beside`.
pub(super) fn of_beside(error: ScenarioError) -> ScenarioError {
    match error {
        ScenarioError::Field { field, must } => {
            ScenarioError::Field { field: format!("beside.{field}").into(), must }
        }
        ScenarioError::Unfit { field, why } => {
            ScenarioError::Unfit { field: format!("beside.{field}").into(), why }
        }
        other => other,
    }
}

impl SecondHosts {
    /// Refuses hosts and queues that do not fit together.
    pub fn check(&self, first: &HostConfig, queues: [Queue; 2]) -> Result<(), ScenarioError> {
        let plain = |hosts: &HostConfig| match hosts {
            HostConfig::Homa(_, nic) | HostConfig::Tcp(_, nic) => nic.is_plain(),
            _ => false,
        };
        let known = queues.iter().all(|queue| matches!(queue, Queue::Strict | Queue::Ecn(_)));
        if known && plain(first) && plain(&self.hosts) {
            return Ok(());
        }
        let what = "hosts of two kinds other than Homa and TCP over ports with strict priorities, \
                    without options.nic, pacers, phantom queues and switches that queue at their \
                    inputs";
        Err(ScenarioError::Unsupported { what: what.to_owned() })
    }
}

/// A host that runs Homa or TCP.
type Host = Either<Homa, Tcp>;

impl Experiment<'_> {
    /// Builds a simulation with two schemes, which must fit together.
    pub(super) fn start_beside<'a>(
        self,
        beside: &SecondHosts,
        applications: Applications,
        watching: Watching<'a>,
    ) -> Started<'a> {
        let (seed, kinds) = (self.scenario.seed, beside.kinds);
        let configs = [self.hosts.clone(), beside.hosts.clone()];
        let make = move |host: HostId, life| match &configs[usize::from(kinds.of(host.0))] {
            HostConfig::Homa(config, _) => Host::First(config.host(host, life, seed)),
            HostConfig::Tcp(config, _) => {
                Host::Second(Tcp::new(config.clone(), host, (life, seed)))
            }
            _ => unreachable!("checked before"),
        };
        let queue = match self.queue {
            Queue::Ecn(ecn) => ecn_queue(ecn),
            _ => EcnThreshold::new(u32::MAX, EcnScope::Queue),
        };
        self.start_any(applications, (Box::new(make), move |_: &PortSpec| queue), watching)
    }
}
