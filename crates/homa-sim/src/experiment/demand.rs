//! Turns the description of a scenario's traffic into its source, limits and loads.

use std::ops::Range;
use std::sync::Arc;

use homa_workload::sizes::SizeDistribution;

use crate::measure::latency::Latencies;
use crate::scenario::{
    Exchange, FlowGroup, LoadedLinks, OfferedLoad, Scenario, ScenarioError, SlowdownBy, Traffic,
    WorkflowTraffic,
};
use crate::time::{SimDuration, SimTime};
use crate::traffic::open_loop::{OpenLoop, Pairs, ScheduledMessage};
use crate::traffic::rate::Price;
use crate::traffic::{
    Closed, Kinds, Limits, LongFlows, MessageList, Pattern, Probing, Source, TaskGraph, Workflows,
};

use super::beside;
use super::core_load::core_share;
use super::network::ScenarioNetwork;
use super::permutation::permutation;
use super::tables;
use super::tasks::{self, FileNotes};

/// The traffic of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Name of the workload for people.
    pub workload: String,
    pub sizes: SizeDistribution,
    pub exchange: Exchange,
    pub(super) kind: Kind,
    /// Load of the busiest link between two switches, if hosts' links have a load of 1; 0 without
    /// such links, and for traffic whose load the scenario does not choose.
    pub core_share: f64,
    /// Facts about the file that messages were read from.
    pub notes: FileNotes,
    /// Number of hosts that send messages.
    pub senders: u32,
    /// Hosts that receive messages.
    pub receivers: Range<u32>,
}

/// The kind of traffic.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Open(Pairs),
    List {
        arrivals: Vec<ScheduledMessage>,
        response_bytes: Option<u32>,
        /// If set, `arrivals` are responses, and their requests have this many bytes.
        request_bytes: Option<u32>,
    },
    Long(LongFlows),
    Closed {
        source: Closed,
        response_bytes: u32,
    },
    Workflows(Arc<WorkflowTraffic>),
    Tasks(Arc<TaskGraph>),
}

impl Demand {
    pub fn new(scenario: &Scenario, network: &ScenarioNetwork) -> Result<Self, ScenarioError> {
        let hosts = network.wiring.hosts();
        let mut demand = Self::of_traffic(scenario, network)?;
        if let Some(kinds) = beside::kinds(scenario, hosts)?
            && let Kind::Open(pairs @ Pairs::All(_)) = &mut demand.kind
        {
            *pairs = Pairs::Alike(kinds);
        }
        let one_way = [
            SlowdownBy::BestAcked,
            SlowdownBy::IdleFirstOnce,
            SlowdownBy::Bare,
            SlowdownBy::BareAcked,
        ];
        if one_way.contains(&scenario.slowdown) && demand.exchange != Exchange::OneWay {
            let must = "be another for RPCs: this one is defined for one-way messages";
            return Err(ScenarioError::field("slowdown", must));
        }
        if let Some(probes) = scenario.probes {
            if probes.from.max(probes.to) >= hosts {
                let must = format!("be hosts below {hosts}");
                return Err(ScenarioError::field("probes.from and to", must));
            }
            if demand.exchange != Exchange::OneWay {
                let why = "probes are one-way messages, and this traffic is RPCs: leave them out, \
                           or set `traffic.exchange` to \"one-way\"";
                return Err(ScenarioError::unfit("probes", why));
            }
        }
        if let Kind::Open(pairs) = demand.kind {
            demand.core_share = core_share(network, &demand.streams(pairs));
            if scenario.load.links == LoadedLinks::Core && demand.core_share == 0.0 {
                let must = "be \"hosts\": no link between two switches carries this traffic";
                return Err(ScenarioError::field("load.links", must));
            }
        }
        Ok(demand)
    }

    fn of_traffic(scenario: &Scenario, network: &ScenarioNetwork) -> Result<Self, ScenarioError> {
        let hosts = network.wiring.hosts();
        match &scenario.traffic {
            Traffic::AllToAll { workload, exchange, max_bytes } => Ok(Self {
                workload: workload.clone(),
                sizes: tables::sizes(workload, *max_bytes)?,
                exchange: *exchange,
                kind: Kind::Open(Pairs::All(hosts)),
                core_share: 0.0,
                notes: FileNotes::default(),
                senders: hosts,
                receivers: 0..hosts,
            }),
            Traffic::ClientsServers { workload, clients, servers, max_bytes } => {
                let (clients, servers) = (*clients, *servers);
                if clients == 0 || servers == 0 || clients.saturating_add(servers) > hosts {
                    let must = format!("be at least 1 each and {hosts} together at most");
                    return Err(ScenarioError::field("traffic.clients and servers", must));
                }
                Ok(Self {
                    workload: workload.clone(),
                    sizes: tables::sizes(workload, *max_bytes)?,
                    exchange: Exchange::Echo,
                    kind: Kind::Open(Pairs::Split { clients, servers }),
                    core_share: 0.0,
                    notes: FileNotes::default(),
                    senders: clients,
                    receivers: clients..clients + servers,
                })
            }
            Traffic::Incast { servers, concurrent, request_bytes, response_bytes, together } => {
                let (servers, concurrent) = (*servers, *concurrent);
                if servers == 0 || servers >= hosts || concurrent == 0 {
                    let must = format!("be 1 to {} with something concurrent", hosts - 1);
                    return Err(ScenarioError::field("traffic.servers", must));
                }
                let (request_bytes, response_bytes) = (*request_bytes, *response_bytes);
                let source = Closed::new((servers, concurrent), request_bytes, *together);
                let kind = Kind::Closed { source, response_bytes };
                Ok(Self {
                    workload: format!("incast-{response_bytes}"),
                    sizes: constant(request_bytes)?,
                    exchange: Exchange::Echo,
                    kind,
                    core_share: 0.0,
                    notes: FileNotes::default(),
                    senders: 1,
                    receivers: 0..1,
                })
            }
            Traffic::LongFlows { senders, groups } => Self::long((*senders, groups), hosts),
            Traffic::ManyToOne { workload, senders } => Self::to_one(workload, *senders, hosts),
            Traffic::Workflows(traffic) => Self::workflows(traffic, hosts),
            Traffic::Permutation { bytes } => {
                let list = permutation(hosts, *bytes, scenario.seed);
                Self::list(format!("permutation-{bytes}"), list, hosts)
            }
            &Traffic::FanIn { senders, bytes } => Self::fan_in((senders, bytes), hosts),
            Traffic::Collective(traffic) => Self::collective(traffic, hosts, scenario.seed),
            Traffic::Flows { file, format, exchange } => {
                Self::of_file((file, *format), *exchange, network)
            }
        }
    }

    fn fan_in((senders, bytes): (u32, u32), hosts: u32) -> Result<Self, ScenarioError> {
        if senders == 0 || senders >= hosts {
            let must = format!("be 1 to {}", hosts - 1);
            return Err(ScenarioError::field("traffic.senders", must));
        }
        let message = |src| ScheduledMessage { at: SimTime::ZERO, src, dst: 0, bytes };
        let list = (1..=senders).map(message).collect();
        Ok(Self { receivers: 0..1, ..Self::list(format!("fan-in-{bytes}"), list, hosts)? })
    }

    fn to_one(workload: &str, senders: u32, hosts: u32) -> Result<Self, ScenarioError> {
        if senders == 0 || senders >= hosts {
            let must = format!("be 1 to {}", hosts - 1);
            return Err(ScenarioError::field("traffic.senders", must));
        }
        Ok(Self {
            workload: workload.to_owned(),
            sizes: tables::sizes(workload, None)?,
            exchange: Exchange::OneWay,
            kind: Kind::Open(Pairs::ToOne { senders }),
            core_share: 0.0,
            notes: FileNotes::default(),
            senders,
            receivers: 0..1,
        })
    }

    fn long((senders, groups): (u32, &[FlowGroup]), hosts: u32) -> Result<Self, ScenarioError> {
        let wrong = |field, must: String| Err(ScenarioError::field(field, must));
        let all = FlowGroup { from: 1, count: senders, to: 0, spread: false };
        let groups = match (senders, groups) {
            (0, []) => return wrong("traffic.senders", format!("be 1 to {}", hosts - 1)),
            (0, groups) => groups.to_vec(),
            (_, []) if senders < hosts => vec![all],
            (_, []) => return wrong("traffic.senders", format!("be 1 to {}", hosts - 1)),
            _ => {
                let why = "`senders` names the same flows in short: leave out one of the two";
                return Err(ScenarioError::unfit("traffic.groups", why));
            }
        };
        let last = |group: &FlowGroup| {
            let ends = [group.from, group.to].map(|first| first.saturating_add(group.count));
            if group.spread {
                ends[0].max(ends[1])
            } else {
                ends[0].max(group.to.saturating_add(1))
            }
        };
        if groups.iter().any(|group| group.count == 0 || last(group) > hosts) {
            let must = format!("have at least one flow each, between hosts below {hosts}");
            return wrong("traffic.groups", must);
        }
        let pairs: Vec<_> = groups.iter().flat_map(FlowGroup::pairs).collect();
        if pairs.iter().any(|(from, to)| from == to) {
            return wrong("traffic.groups", "have no flow from a host to itself".into());
        }
        let receivers = pairs.iter().map(|(_, to)| *to);
        let first = receivers.clone().min().unwrap_or(0);
        Ok(Self {
            workload: format!("long-flows-{}", pairs.len()),
            sizes: constant(LongFlows::BYTES)?,
            exchange: Exchange::OneWay,
            kind: Kind::Long(LongFlows { groups }),
            core_share: 0.0,
            notes: FileNotes::default(),
            senders: hosts,
            receivers: first..receivers.max().unwrap_or(0) + 1,
        })
    }

    /// Groups of flows that last longer than the run.
    pub fn flow_groups(&self) -> &[FlowGroup] {
        match &self.kind {
            Kind::Long(flows) => &flows.groups,
            _ => &[],
        }
    }

    /// Refuses messages between hosts that the network does not have.
    pub(super) fn check_hosts(
        mut pairs: impl Iterator<Item = (u32, u32)>,
        hosts: u32,
    ) -> Result<(), ScenarioError> {
        match pairs.find(|(src, dst)| *src.max(dst) >= hosts) {
            Some((src, dst)) => {
                let must =
                    format!("have hosts for every flow: {src} to {dst} but only {hosts} hosts");
                Err(ScenarioError::field("fabric.shape", must))
            }
            None => Ok(()),
        }
    }

    pub(super) fn list(
        name: String,
        list: Vec<ScheduledMessage>,
        hosts: u32,
    ) -> Result<Self, ScenarioError> {
        Self::check_hosts(list.iter().map(|flow| (flow.src, flow.dst)), hosts)?;
        let sizes = SizeDistribution::of_messages(list.iter().map(|flow| flow.bytes));
        let sizes = sizes.ok_or_else(|| ScenarioError::field("traffic", "hold a message"))?;
        Ok(Self {
            workload: name,
            sizes,
            exchange: Exchange::OneWay,
            kind: Kind::List { arrivals: list, response_bytes: None, request_bytes: None },
            core_share: 0.0,
            notes: FileNotes::default(),
            senders: hosts,
            receivers: 0..hosts,
        })
    }

    fn workflows(traffic: &WorkflowTraffic, hosts: u32) -> Result<Self, ScenarioError> {
        traffic.check(hosts)?;
        let names: Vec<&str> = traffic.classes.keys().map(String::as_str).collect();
        let sizes = traffic.classes.values().flat_map(|class| class.response_bytes.iter().copied());
        let sizes = SizeDistribution::of_messages(sizes);
        Ok(Self {
            workload: names.join(", "),
            sizes: sizes.ok_or_else(|| ScenarioError::field("traffic.classes", "hold a size"))?,
            exchange: Exchange::Echo,
            kind: Kind::Workflows(Arc::new(traffic.clone())),
            core_share: 0.0,
            notes: FileNotes::default(),
            senders: hosts,
            receivers: 0..traffic.clients.unwrap_or(hosts),
        })
    }

    /// Traffic of a list in memory.
    pub fn given(
        list: Vec<ScheduledMessage>,
        exchange: Exchange,
        hosts: u32,
    ) -> Result<Self, ScenarioError> {
        Ok(Self { exchange, ..Self::list("list".to_owned(), list, hosts)? })
    }

    /// The same demand with a list instead of its traffic, to measure idle times.
    pub fn replaced_by(&self, arrivals: Vec<ScheduledMessage>, response: Option<u32>) -> Self {
        let (response_bytes, request_bytes) = (response, self.request_bytes());
        let kind = Kind::List { arrivals, response_bytes, request_bytes };
        Self { kind, ..self.clone() }
    }

    /// Bytes of a response to an RPC; `None` if it is as large as its request.
    pub fn response_bytes(&self) -> Option<u32> {
        match self.kind {
            Kind::Closed { response_bytes, .. } => Some(response_bytes),
            Kind::List { response_bytes, .. } => response_bytes,
            Kind::Open(_) | Kind::Long(_) | Kind::Workflows(_) | Kind::Tasks(_) => None,
        }
    }

    /// Bytes of a request, if latencies count under the bytes of responses.
    fn request_bytes(&self) -> Option<u32> {
        match &self.kind {
            Kind::Workflows(traffic) => Some(traffic.request_bytes),
            Kind::List { request_bytes, .. } => *request_bytes,
            _ => None,
        }
    }

    /// Whether latencies count under the bytes of responses.
    pub fn counts_responses(&self) -> bool {
        self.request_bytes().is_some()
    }

    /// Bytes of the request and of the response of an RPC whose latency counts under `bytes`.
    pub fn call_bytes(&self, bytes: u32) -> (u32, u32) {
        match self.request_bytes() {
            Some(request) => (request, bytes),
            None => (bytes, self.response_bytes().unwrap_or(bytes)),
        }
    }

    /// Which hosts run which scheme, if there are two.
    pub fn kinds(&self) -> Option<Kinds> {
        match self.kind {
            Kind::Open(Pairs::Alike(kinds)) => Some(kinds),
            _ => None,
        }
    }

    /// True for patterns whose load the scenario chooses.
    pub fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open(_))
    }

    /// True when clients and servers are different hosts.
    pub fn is_split(&self) -> bool {
        matches!(self.kind, Kind::Open(Pairs::Split { .. }) | Kind::Closed { .. })
    }

    /// Hosts that send messages.
    pub fn sending(&self) -> Range<u32> {
        let first = match self.kind {
            Kind::Open(pairs) => pairs.first(),
            _ => 0,
        };
        first..first + self.senders
    }

    pub fn pattern(
        &self,
        scenario: &Scenario,
        network: &ScenarioNetwork,
        own: &Price,
    ) -> Result<Pattern, ScenarioError> {
        let source: Box<dyn Source> = match self.kind.clone() {
            Kind::Open(_) => Box::new(self.open_loop(scenario, network, own)?),
            Kind::List { arrivals, request_bytes, .. } => {
                let listed = MessageList::new(arrivals);
                Box::new(match request_bytes {
                    Some(bytes) => listed.as_responses_to(bytes),
                    None => listed,
                })
            }
            Kind::Workflows(traffic) => {
                let warm_up = scenario.warm_up.after_start();
                let hosts = network.wiring.hosts();
                Box::new(Workflows::new(&traffic, hosts, (warm_up, scenario.seed)))
            }
            Kind::Tasks(graph) => Box::new(tasks::source(graph, scenario, network)),
            Kind::Long(flows) => Box::new(flows),
            Kind::Closed { source, .. } => Box::new(source),
        };
        let source = match scenario.probes {
            Some(probes) => Box::new(Probing::new(source, probes)),
            None => source,
        };
        let (exchange, response_bytes) = (self.exchange, self.response_bytes());
        Ok(Pattern { source, exchange, response_bytes })
    }

    /// The source of traffic whose load the scenario chooses.
    pub fn open_loop(
        &self,
        scenario: &Scenario,
        network: &ScenarioNetwork,
        own: &Price,
    ) -> Result<OpenLoop, ScenarioError> {
        let Kind::Open(pairs) = self.kind else {
            return Err(ScenarioError::field("traffic.pattern", "have a load"));
        };
        let check = OfferedLoad::check(scenario.load.fraction);
        check.map_err(|must| ScenarioError::field("load.fraction", must))?;
        let gap = 1e12 / self.per_second(scenario, network.link, own);
        Ok(OpenLoop::new(self.sizes.clone(), pairs, gap, scenario.seed))
    }

    pub fn limits(&self, scenario: &Scenario, network: &ScenarioNetwork, own: &Price) -> Limits {
        let stop = scenario.stop;
        let asked = stop.messages.unwrap_or(u64::MAX);
        let messages = match &self.kind {
            Kind::List { arrivals, .. } => asked.min(arrivals.len() as u64),
            // A part of them would not be complete. The source ends traffic, because the last
            // message may be followed by other tasks.
            Kind::Tasks(_) => u64::MAX,
            _ => asked,
        };
        let time = stop.time.map_or(SimTime::MAX, |span| span.after_start());
        Limits {
            warm_up: scenario.warm_up.after_start(),
            messages,
            time,
            ending: stop.ending,
            sample_every: self.sample_every(scenario, network, (messages, own)),
            probe_lost_after: scenario
                .probes
                .and_then(|probes| probes.lost_after)
                .map_or(SimDuration(u64::MAX), |span| span.duration()),
            keep_above: scenario.measures.flows_above.unwrap_or(u32::MAX),
        }
    }

    /// The largest of the short messages of Homa Figure 11, which are the smallest 20 %, or for W5
    /// the messages of one packet.
    pub fn short_messages(&self) -> u32 {
        match self.sizes.min_bytes() {
            one_packet if one_packet >= 1442 => one_packet,
            _ => self.sizes.quantile(0.2),
        }
    }

    pub fn latencies(&self) -> Latencies {
        Latencies::new(&self.sizes)
    }
}

fn constant(bytes: u32) -> Result<SizeDistribution, ScenarioError> {
    let must = || ScenarioError::field("traffic.request_bytes", "be at least 1");
    SizeDistribution::constant(bytes).ok_or_else(must)
}
