//! Warnings about a scenario that are known before its first packet moves, because a run that
//! cannot give what was asked for may take long.

use std::ops::RangeInclusive;

use homa_proto::Duration;

use crate::scenario::{Basis, QueueBytes, Scenario, ScenarioError};

use super::Experiment;
use super::checks::check;
use super::demand::Demand;
use super::network::ScenarioNetwork;
use super::parts::{self, Parts};
use super::tables;

/// DCTCP's links stay busy if its threshold is at least the bandwidth-delay product divided by this
/// (SIGCOMM 2010, equation 13).
const MARKS_OF_BDP: u64 = 7;
/// The slowest phantom queue that HULL was measured with, as a share of the link (Figure 2).
const LEAST_DRAIN: f64 = 0.6;
/// HULL's thresholds as times of the link: 1 KB at 10 Gbit/s (§6.3) to 30 KB at 1 Gbit/s (§4.2).
const PHANTOM_TIMES: RangeInclusive<Duration> = Duration(800)..=Duration(240_000);

fn micros(time: Duration) -> f64 {
    time.0 as f64 / 1e3
}

/// Refuses a scenario as [`super::run`] does, or returns the warnings that its outcome will have
/// besides those of the run itself.
pub fn foresee(scenario: &Scenario) -> Result<Vec<String>, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    let parts = Parts::priced(scenario, (row, &network, &demand))?;
    Ok(parts.experiment(scenario, &network, &demand)?.foreseen())
}

impl Experiment<'_> {
    /// See [`foresee`].
    pub(super) fn foreseen(self) -> Vec<String> {
        let known = self.network.warnings().into_iter().chain(tables::doubt(self.demand));
        let read = self.demand.notes.warnings.iter().cloned();
        known.chain(read).chain(self.overload()).chain(self.unusual()).collect()
    }

    /// Warnings of options outside the range in which their papers have them.
    fn unusual(self) -> Vec<String> {
        let Self { scenario, network, .. } = self;
        let (link, trip) = (network.link, network.scale().round_trip());
        let at_link = |threshold: QueueBytes| u64::from(threshold.at(link, trip));
        let bdp = link.bytes_in(trip);
        let marks = scenario.options.ecn.map(|ecn| at_link(ecn.threshold));
        let marks = marks.filter(|bytes| bytes * MARKS_OF_BDP < bdp).map(|bytes| {
            format!(
                "`options.ecn.threshold` is {bytes} bytes at hosts' links, less than a seventh of \
                 the bandwidth-delay product, {bdp} bytes: links idle although messages wait \
                 (DCTCP §3.4)"
            )
        });
        let phantom = scenario.options.phantom.as_ref();
        let drain = phantom.and_then(|phantom| phantom.drain).filter(|drain| *drain < LEAST_DRAIN);
        let drain = drain.map(|drain| {
            format!(
                "`options.phantom.drain` is {drain}, and HULL measured {LEAST_DRAIN} to 1 (§3.1)"
            )
        });
        let threshold = phantom.and_then(|phantom| phantom.threshold).map(at_link);
        let threshold = threshold.map(|bytes| (bytes, link.time_for(bytes)));
        let threshold = threshold.filter(|(_, time)| !PHANTOM_TIMES.contains(time));
        let threshold = threshold.map(|(bytes, time)| {
            format!(
                "`options.phantom.threshold` is {bytes} bytes, which hosts' links send in {} us, \
                 and HULL's were {} to {} us (§4.2, §6.3)",
                micros(time),
                micros(*PHANTOM_TIMES.start()),
                micros(*PHANTOM_TIMES.end())
            )
        });
        marks.into_iter().chain(drain).chain(threshold).collect()
    }

    /// A warning if the links do not carry a load that the scenario does not call an overload.
    fn overload(self) -> Option<String> {
        let Self { scenario, demand, price, .. } = self;
        let asked = scenario.load.fraction;
        if !demand.is_open() || asked > 1.0 {
            return None;
        }
        let hosts = demand.host_load(scenario, price, Basis::Everything);
        let core = hosts * demand.core_share;
        let (load, of, advice) = match (hosts > 1.0, core > 1.0) {
            (true, _) if hosts >= core => {
                (hosts, "hosts' links", "`load.basis = \"everything\"` counts these bytes")
            }
            (_, true) => (
                core,
                "the busiest link between two switches",
                "`load.links = \"core\"` makes the load a share of that link",
            ),
            _ => return None,
        };
        Some(format!(
            "a load of {asked} is {load:.2} of {of}, by all bytes that hosts send for messages \
             under `{}`, requests and acknowledgements included: messages wait without bound; \
             {advice}",
            scenario.scheme
        ))
    }
}
