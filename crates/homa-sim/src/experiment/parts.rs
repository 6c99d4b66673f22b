//! What runs on hosts and at ports, as a scenario's rows and options say, before it becomes types.

use crate::scenario::{Exchange, Scenario, ScenarioError, SchemeOptions};
use crate::scheme::{self, Environment, HostConfig, Queue, SCHEMES, Scheme};

use super::Experiment;
use super::beside::{self, Beside};
use super::demand::Demand;
use super::network::Network;

/// See the module's description.
pub(super) struct Parts {
    hosts: HostConfig,
    beside: Option<Beside>,
    queue: Queue,
}

/// The row of that name.
pub(super) fn row(name: &str) -> Result<&'static Scheme, ScenarioError> {
    named("scheme", name)
}

fn named(field: &'static str, name: &str) -> Result<&'static Scheme, ScenarioError> {
    scheme::find(name).ok_or_else(|| ScenarioError::UnknownScheme {
        field,
        name: name.to_owned(),
        known: SCHEMES.iter().map(|row| row.name).collect(),
    })
}

/// The row of the hosts beside the others.
pub(super) fn second_row(name: &str) -> Result<&'static Scheme, ScenarioError> {
    named("beside.scheme", name)
}

/// What runs on the hosts of a row.
pub(super) fn configure(
    options: &SchemeOptions,
    (row, network, demand): (&Scheme, &Network, &Demand),
) -> Result<HostConfig, ScenarioError> {
    if row.one_way_only && demand.exchange == Exchange::Echo {
        let what = format!("RPCs under {}, which knows one-way messages only", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    let environment = Environment {
        link: network.link,
        rtt_bytes: network.rtt_bytes,
        workload: &demand.workload,
        sizes: &demand.sizes,
    };
    row.configure(&environment, options)
}

impl Parts {
    pub fn new(
        scenario: &Scenario,
        (first, network, demand): (&Scheme, &Network, &Demand),
    ) -> Result<Self, ScenarioError> {
        let hosts = configure(&scenario.options, (first, network, demand))?;
        let queue = first.queue(&scenario.options)?;
        let Some(given) = &scenario.beside else { return Ok(Self { hosts, beside: None, queue }) };
        let Some(kinds) = demand.kinds() else {
            let must = "be \"all-to-all\" where hosts are of two kinds";
            return Err(ScenarioError::field("traffic.pattern", must));
        };
        let second = second_row(&given.scheme)?;
        let of_second = configure(&given.options, (second, network, demand));
        let of_second = of_second.and_then(|hosts| Ok((hosts, second.queue(&given.options)?)));
        let (other, other_queue) = of_second.map_err(beside::of_beside)?;
        let beside = Beside { scheme: second.name, kinds, hosts: other };
        beside.check(&hosts, [queue, other_queue])?;
        let queue = beside::queue(queue, other_queue)?;
        Ok(Self { hosts, beside: Some(beside), queue })
    }

    /// With what they belong to; they go together.
    pub fn experiment<'a>(
        &'a self,
        scenario: &'a Scenario,
        network: &'a Network,
        demand: &'a Demand,
    ) -> Result<Experiment<'a>, ScenarioError> {
        let Self { hosts, beside, queue } = self;
        let beside = beside.as_ref();
        let experiment = Experiment { scenario, network, demand, hosts, beside, queue: *queue };
        experiment.check_parts()?;
        Ok(experiment)
    }
}
