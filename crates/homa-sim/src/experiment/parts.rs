//! The configuration of hosts and ports under a scenario's schemes and options, before `start`
//! turns it into types.

use crate::scenario::{Exchange, Scenario, ScenarioError, SchemeOptions, SecondScheme};
use crate::scheme::{self, Environment, HostConfig, SCHEMES, Scheme, SwitchQueue};
use crate::traffic::rate::Price;

use super::Experiment;
use super::beside::{self, SecondHosts};
use super::demand::Demand;
use super::network::ScenarioNetwork;

/// See the module's description.
pub(super) struct Parts {
    hosts: HostConfig,
    beside: Option<SecondHosts>,
    queue: SwitchQueue,
    /// What messages cost on the wire.
    pub price: Price,
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

/// The row of the second scheme.
pub(super) fn second_row(name: &str) -> Result<&'static Scheme, ScenarioError> {
    named("beside.scheme", name)
}

/// The configuration of a row's hosts.
pub(super) fn configure(
    options: &SchemeOptions,
    (row, network, demand): (&Scheme, &ScenarioNetwork, &Demand),
) -> Result<HostConfig, ScenarioError> {
    if row.one_way_only && demand.exchange == Exchange::Echo {
        let what = format!("RPCs under {}, which supports one-way messages only", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    row.configure(&environment(network, demand), options)
}

fn environment<'a>(network: &ScenarioNetwork, demand: &'a Demand) -> Environment<'a> {
    Environment {
        link: network.link,
        rtt_bytes: network.rtt_bytes,
        byte_picos: network.byte_picos,
        workload: &demand.workload,
        sizes: &demand.sizes,
    }
}

/// The schemes of a scenario with their options, all written out.
pub(super) fn resolved(
    scenario: &Scenario,
    network: &ScenarioNetwork,
    demand: &Demand,
) -> Result<Vec<(String, SchemeOptions)>, ScenarioError> {
    let environment = environment(network, demand);
    let first = row(&scenario.scheme)?.resolved(&environment, &scenario.options)?;
    let mut all = vec![(scenario.scheme.clone(), first)];
    if let Some(SecondScheme { scheme, options, .. }) = &scenario.beside {
        all.push((scheme.clone(), second_row(scheme)?.resolved(&environment, options)?));
    }
    Ok(all)
}

impl Parts {
    pub fn new(
        scenario: &Scenario,
        (first, network, demand): (&Scheme, &ScenarioNetwork, &Demand),
    ) -> Result<Self, ScenarioError> {
        let hosts = configure(&scenario.options, (first, network, demand))?;
        let queue = first.queue(&scenario.options, network.scale())?;
        let price = Price::of_data(hosts.framing());
        let Some(given) = &scenario.beside else {
            return Ok(Self { hosts, beside: None, queue, price });
        };
        let Some(kinds) = demand.kinds() else {
            let must = "be \"all-to-all\" if there is a second scheme (`beside`)";
            return Err(ScenarioError::field("traffic.pattern", must));
        };
        let second = second_row(&given.scheme)?;
        let of_second = configure(&given.options, (second, network, demand));
        let of_second =
            of_second.and_then(|hosts| Ok((hosts, second.queue(&given.options, network.scale())?)));
        let (other, other_queue) = of_second.map_err(beside::of_beside)?;
        let beside = SecondHosts { scheme: second.name, kinds, hosts: other };
        beside.check(&hosts, [queue, other_queue])?;
        let queue = beside::queue(queue, other_queue)?;
        Ok(Self { hosts, beside: Some(beside), queue, price })
    }

    /// The same with measured prices, if the scenario needs them. With a second scheme there is no
    /// price that holds for both.
    pub fn priced(
        scenario: &Scenario,
        (first, network, demand): (&Scheme, &ScenarioNetwork, &Demand),
    ) -> Result<Self, ScenarioError> {
        let mut parts = Self::new(scenario, (first, network, demand))?;
        // A bound has no hosts that send anything.
        if !first.is_bound() && parts.beside.is_none() && demand.needs_prices(scenario) {
            parts.price = parts.experiment(scenario, network, demand)?.price()?;
        }
        Ok(parts)
    }

    /// The experiment with these parts. Refuses hosts, queues and networks that do not fit
    /// together.
    pub fn experiment<'a>(
        &'a self,
        scenario: &'a Scenario,
        network: &'a ScenarioNetwork,
        demand: &'a Demand,
    ) -> Result<Experiment<'a>, ScenarioError> {
        let Self { hosts, beside, queue, price } = self;
        let beside = beside.as_ref();
        let experiment =
            Experiment { scenario, network, demand, hosts, price, beside, queue: *queue };
        experiment.check_parts()?;
        Ok(experiment)
    }
}
