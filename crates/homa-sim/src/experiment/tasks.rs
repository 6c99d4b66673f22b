//! Traffic of files and of collective operations: lists, and messages that wait for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use homa_workload::framing::MIN_FRAME;
use homa_workload::sizes::SizeDistribution;

use crate::measure::completion;
use crate::scenario::outcome::{CollectiveTime, CompletionTime};
use crate::scenario::{
    CollectiveTraffic, Exchange, FlowFormat, RankPlacement, Scenario, ScenarioError, Traffic,
};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::files::{FileMessages, FlowFile};
use crate::traffic::open_loop::ScheduledMessage;
use crate::traffic::{Generator, HostPaths, TaskGraph, TaskSource, collective};

use super::demand::{Demand, Kind};
use super::network::ScenarioNetwork;
use super::tables;

/// Facts about a file of messages, for results.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileNotes {
    /// When the run begins, by the clock of the file.
    pub begins: SimTime,
    /// Sentences for readers of the results.
    pub warnings: Vec<String>,
}

impl Demand {
    /// The messages of a file.
    pub(super) fn of_file(
        (file, format): (&str, Option<FlowFormat>),
        exchange: Exchange,
        network: &ScenarioNetwork,
    ) -> Result<Self, ScenarioError> {
        let FlowFile { messages, begins, names_nodes, warnings } = tables::flows(file, format)?;
        let hosts = network.wiring.hosts();
        let nodes = network.nodes().filter(|_| names_nodes);
        let demand = match messages {
            FileMessages::List(list) => {
                let failed = |reason| ScenarioError::File { path: file.to_owned(), reason };
                let list = match nodes {
                    Some(nodes) => on_hosts(list, nodes).map_err(failed)?,
                    None => list,
                };
                Self::list(file.to_owned(), list, hosts)?
            }
            FileMessages::Tasks(graph) => Self::tasks(file.to_owned(), graph, hosts)?,
        };
        let warnings = warnings.iter().map(|warning| format!("`{file}`: {warning}")).collect();
        Ok(Self { exchange, notes: FileNotes { begins, warnings }, ..demand })
    }

    /// The messages of a collective operation.
    pub(super) fn collective(
        traffic: &CollectiveTraffic,
        hosts: u32,
        seed: u64,
    ) -> Result<Self, ScenarioError> {
        let graph = collective::graph(traffic, hosts, seed);
        let graph = graph.map_err(|(key, must)| ScenarioError::field(key, must))?;
        let name = format!("{}-{}", traffic.operation.name(), traffic.bytes);
        let demand = Self::tasks(name, graph, hosts)?;
        let ranks = match traffic.placement {
            RankPlacement::InOrder => traffic.ranks.unwrap_or(hosts),
            RankPlacement::Random => hosts,
        };
        Ok(Self { senders: ranks, receivers: 0..ranks, ..demand })
    }

    fn tasks(name: String, graph: TaskGraph, hosts: u32) -> Result<Self, ScenarioError> {
        Self::check_hosts(graph.pairs(), hosts)?;
        let sizes = SizeDistribution::of_messages(graph.sizes());
        Ok(Self {
            workload: name,
            sizes: sizes.ok_or_else(|| ScenarioError::field("traffic", "hold a message"))?,
            exchange: Exchange::OneWay,
            kind: Kind::Tasks(Arc::new(graph)),
            core_share: 0.0,
            notes: FileNotes::default(),
            senders: hosts,
            receivers: 0..hosts,
        })
    }
}

/// The messages between nodes as messages between hosts.
fn on_hosts(
    list: Vec<ScheduledMessage>,
    nodes: &BTreeMap<u32, u32>,
) -> Result<Vec<ScheduledMessage>, String> {
    let host = |node: u32| {
        nodes.get(&node).copied().ok_or_else(|| {
            format!(
                "node {node} is a switch of `fabric.shape`, or not in it: a message needs hosts"
            )
        })
    };
    let between = |message: ScheduledMessage| {
        let (src, dst) = (host(message.src)?, host(message.dst)?);
        Ok(ScheduledMessage { src, dst, ..message })
    };
    list.into_iter().map(between).collect()
}

/// The source of a graph of tasks.
pub(super) fn source(
    graph: Arc<TaskGraph>,
    scenario: &Scenario,
    network: &ScenarioNetwork,
) -> TaskSource {
    let wiring = &network.wiring;
    let numbers = match &network.paths {
        HostPaths::Regular(_) => 6,
        HostPaths::Listed(classes) => classes.examples.len() as u32,
    };
    let alone = |number| {
        let (from, to) = network.paths.example(number, wiring.hosts());
        wiring.ideal(HostId(from), HostId(to), &[MIN_FRAME as u32])
    };
    let acknowledged: Vec<SimDuration> = (0..numbers).map(alone).collect();
    let patience = scenario.stop.drain_limit.duration();
    TaskSource::new(graph, (network.paths.clone(), acknowledged), patience)
}

/// How long messages that wait for each other took, if there are any.
pub(super) fn completion(generator: &Generator) -> Option<CompletionTime> {
    let tasks = generator.tasks()?;
    let (messages, arrived) = tasks.counts();
    let us = tasks.took().map(|took| took.0 as f64 / 1e6);
    Some(CompletionTime { messages, arrived, us })
}

/// The time of the collective, if the traffic is one.
pub(super) fn collective_time(
    scenario: &Scenario,
    network: &ScenarioNetwork,
    generator: &Generator,
) -> Option<CollectiveTime> {
    let Traffic::Collective(traffic) = &scenario.traffic else { return None };
    let took = generator.tasks()?.took();
    let ranks = traffic.ranks.unwrap_or(network.wiring.hosts());
    Some(completion::collective(traffic, ranks, (took, network.link)))
}
