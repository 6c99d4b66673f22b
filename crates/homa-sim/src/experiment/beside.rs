//! Two schemes in one simulation: which ones fit together, and which hosts run which.
//!
//! Each scheme is Homa or TCP with separate options and a NIC that only sends. Ports serve strict
//! priorities, because other queues are made for one transport. If one of the schemes has an ECN
//! threshold, ports mark packets that are ECN-capable. Latencies of both schemes have the same
//! divisor, that of the first scheme.

use crate::fabric::Forwarding;
use crate::fabric::queue::{EcnScope, EcnThreshold};
use crate::scenario::{Basis, Scenario, ScenarioError, Shape};
use crate::scheme::{HostConfig, SwitchQueue, ecn_queue};
use crate::topology::HostId;
use crate::traffic::Kinds;

use super::Experiment;
use super::parts::second_row;
use super::start::{Start, Started};

/// The part of an experiment that a second scheme adds.
#[derive(Debug)]
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
    if matches!(scenario.load.basis, Basis::Wire | Basis::Everything) {
        let must =
            "be \"paper\" or \"payload\", because the two schemes frame messages differently";
        return wrong("load.basis", must);
    }
    if scenario.probes.is_some() {
        let why = "probes measure one scheme, and `beside` adds another: leave out one of the two";
        return Err(ScenarioError::unfit("probes", why));
    }
    if scenario.measures.wasted_bandwidth {
        return wrong("measures.wasted_bandwidth", "be false if there is a second scheme");
    }
    if scenario.fabric.preemption {
        return wrong("fabric.preemption", "be false if there is a second scheme");
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
pub(super) fn queue(first: SwitchQueue, second: SwitchQueue) -> Result<SwitchQueue, ScenarioError> {
    match (first, second) {
        (first, second) if first == second => Ok(first),
        (SwitchQueue::Strict, SwitchQueue::Ecn(ecn))
        | (SwitchQueue::Ecn(ecn), SwitchQueue::Strict) => Ok(SwitchQueue::Ecn(ecn)),
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
    pub fn check(&self, first: &HostConfig, queues: [SwitchQueue; 2]) -> Result<(), ScenarioError> {
        let fits = |queue| matches!(queue, SwitchQueue::Strict | SwitchQueue::Ecn(_));
        let shares = |hosts: &HostConfig| hosts.shared(0).is_some();
        if queues.into_iter().all(fits) && shares(first) && shares(&self.hosts) {
            return Ok(());
        }
        let what = "two schemes other than Homa and TCP over ports with strict priorities, \
                    without options.nic, pacers, phantom queues and switches that queue at their \
                    inputs";
        Err(ScenarioError::Unsupported { what: what.to_owned() })
    }
}

impl Experiment<'_> {
    /// Builds a simulation with two schemes, which must fit together.
    pub(super) fn start_beside<'a>(
        self,
        beside: &SecondHosts,
        start: Start<'_, 'a>,
    ) -> Started<'a> {
        let (seed, kinds) = (self.scenario.seed, beside.kinds);
        let (Some(mut first), Some(mut second)) =
            (self.hosts.shared(seed), beside.hosts.shared(seed))
        else {
            unreachable!("`SecondHosts::check` refuses such hosts");
        };
        let make = move |host: HostId, life| match kinds.of(host.0) {
            0 => first(host, life),
            _ => second(host, life),
        };
        let (queue, trip) = (self.queue, start.round_trip());
        start.with(make, move |port| match queue {
            SwitchQueue::Ecn(ecn) => ecn_queue(ecn, port, trip),
            _ => EcnThreshold::new(u32::MAX, EcnScope::Queue),
        })
    }
}
