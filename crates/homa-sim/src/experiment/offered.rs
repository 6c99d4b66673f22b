//! The load of a scenario's traffic: how many messages a second it is, in which bytes, and on which
//! links.

use homa_proto::Rate;

use crate::measure::backlog;
use crate::scenario::{Basis, Exchange, LoadedLinks, Scenario};
use crate::time::SimDuration;
use crate::topology::{HostId, PortId};
use crate::traffic::open_loop::Pairs;
use crate::traffic::rate::{self, Price};

use super::core_load::Stream;
use super::demand::{Demand, Kind};
use super::network::ScenarioNetwork;

impl Demand {
    /// Messages per second of one sender at the scenario's load.
    pub(super) fn per_second(&self, scenario: &Scenario, link: Rate, own: &Price) -> f64 {
        let mean = own.mean_counted_bytes(scenario.load.basis, &self.sizes);
        rate::per_second(self.host_fraction(scenario), link.0, mean, self.per_link())
    }

    /// The load that the scenario asks for, as a share of hosts' links.
    pub fn host_fraction(&self, scenario: &Scenario) -> f64 {
        match scenario.load.links {
            LoadedLinks::Core if self.core_share > 0.0 => scenario.load.fraction / self.core_share,
            LoadedLinks::Core | LoadedLinks::Hosts => scenario.load.fraction,
        }
    }

    /// Messages that cross the busiest link of a host for each one that a sender starts.
    fn per_link(&self) -> f64 {
        match (self.kind.clone(), self.exchange) {
            (Kind::Open(Pairs::All(_) | Pairs::Alike(_)), Exchange::Echo) => 2.0,
            (Kind::Open(Pairs::Split { clients, servers }), _) => {
                (f64::from(clients) / f64::from(servers)).max(1.0)
            }
            (Kind::Open(Pairs::ToOne { senders }), _) => f64::from(senders),
            _ => 1.0,
        }
    }

    /// The messages between hosts, in units in which the busiest link of a host carries one.
    pub(super) fn streams(&self, pairs: Pairs) -> Vec<Stream> {
        let (from, to) = (self.sending(), self.receivers.clone());
        let rate = 1.0 / self.per_link();
        let there = Stream { from: from.clone(), to: to.clone(), rate };
        let back = match (pairs, self.exchange) {
            (Pairs::ToOne { .. }, _) | (_, Exchange::OneWay) => None,
            (_, Exchange::Echo) => {
                let rate = rate * f64::from(self.senders) / to.len() as f64;
                Some(Stream { from: to, to: from, rate })
            }
        };
        [there].into_iter().chain(back).collect()
    }

    /// Number of links whose rate loads are shares of.
    pub fn loaded_links(&self) -> u32 {
        match self.kind {
            Kind::Open(Pairs::ToOne { .. }) => 1,
            // Requests load the clients' links and responses the servers' links. The load is that
            // of the side with fewer hosts, because its links are the bottleneck.
            _ if self.is_split() => 2 * self.senders.min(self.receivers.len() as u32),
            _ => self.senders,
        }
    }

    /// The ports that send what loads count: those of all hosts, or, if all messages go to one
    /// host, the last one on the way to it.
    pub fn counted_ports(&self, network: &ScenarioNetwork) -> Vec<PortId> {
        match self.kind {
            Kind::Open(Pairs::ToOne { .. }) => {
                let receivers = self.receivers.clone().map(HostId);
                receivers.map(|host| network.wiring.downlink(host)).collect()
            }
            _ => (0..network.wiring.hosts()).map(PortId).collect(),
        }
    }

    /// Whether the prices of messages are needed: for the load, or because hosts may send more than
    /// their links carry. Beside its data, a message costs three frames at least as long, at most
    /// (a handshake and an acknowledgement).
    pub fn needs_prices(&self, scenario: &Scenario) -> bool {
        let may_exceed = 4.0 * self.host_fraction(scenario).max(self.core_fraction(scenario)) > 1.0;
        self.is_open() && (scenario.load.basis == Basis::Everything || may_exceed)
    }

    /// The load that the scenario asks for, as a share of the busiest link between two switches.
    pub fn core_fraction(&self, scenario: &Scenario) -> f64 {
        self.host_fraction(scenario) * self.core_share
    }

    /// A sender and a receiver of the traffic.
    pub fn example(&self) -> (u32, u32) {
        let last = self.receivers.end.saturating_sub(1);
        (self.sending().find(|host| *host != last).unwrap_or(0), last)
    }

    /// The scenario's load as a share of hosts' links, in other bytes.
    pub fn host_load(&self, scenario: &Scenario, own: &Price, basis: Basis) -> f64 {
        let mean = |basis| own.mean_counted_bytes(basis, &self.sizes);
        self.host_fraction(scenario) * mean(basis) / mean(scenario.load.basis)
    }

    /// The scenario's load on hosts' links in the authors' wire bytes, and in payload.
    pub fn expressed(&self, scenario: &Scenario, own: &Price) -> (f64, f64) {
        let in_bytes = |basis| self.host_load(scenario, own, basis);
        (in_bytes(Basis::Paper), in_bytes(Basis::Payload))
    }

    /// Seconds of traffic that show whether the load is sustained; `None` if the scenario's load
    /// does not apply.
    pub fn needs_seconds(
        &self,
        scenario: &Scenario,
        network: &ScenarioNetwork,
        own: &Price,
    ) -> Option<f64> {
        let per_second = self.lasts_seconds(scenario, network, own).1;
        let link = (network.link.0, network.rtt_bytes);
        let sizes = (&self.sizes, per_second);
        self.is_open().then(|| backlog::needs_seconds(sizes, self.host_fraction(scenario), link))
    }

    /// Seconds for which the traffic is expected to be measured, and messages a second.
    pub fn lasts_seconds(
        &self,
        scenario: &Scenario,
        network: &ScenarioNetwork,
        own: &Price,
    ) -> (f64, f64) {
        let rate = self.per_second(scenario, network.link, own) * f64::from(self.senders);
        let by_messages = scenario.stop.messages.map_or(f64::MAX, |n| n as f64 / rate);
        let time = scenario.stop.time.map_or(f64::MAX, |span| span.0 as f64 / 1e12);
        (by_messages.min(time - scenario.warm_up.0 as f64 / 1e12), rate)
    }

    /// The time between samples: a millisecond, as the authors sampled, or a hundredth of the run
    /// if it should be shorter than 100 ms. A long list gets at most ten thousand samples, because
    /// it may be mostly idle.
    pub(super) fn sample_every(
        &self,
        scenario: &Scenario,
        network: &ScenarioNetwork,
        (messages, own): (u64, &Price),
    ) -> SimDuration {
        let rate = self.per_second(scenario, network.link, own) * f64::from(self.senders);
        let by_messages = match self.kind {
            Kind::Open(_) => messages as f64 / rate * 1e12,
            _ => f64::MAX,
        };
        let by_time = scenario.stop.time.map_or(f64::MAX, |span| span.0 as f64);
        let expected = by_messages.min(by_time);
        let listed = match &self.kind {
            Kind::List { arrivals, .. } => arrivals.last().map_or(0.0, |last| last.at.0 as f64),
            Kind::Tasks(graph) => graph.last_start().0 as f64 + graph.delays().0 as f64,
            _ => 0.0,
        };
        SimDuration((expected / 100.0).clamp(1e6, 1e9_f64.max(listed / 1e4)) as u64)
    }
}
