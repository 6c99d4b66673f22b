//! From a description to the parts of a simulation: wiring, traffic, limits, loads.

use homa_proto::{FULL_FRAME, Rate};
use homa_workload::framing as priced;
use homa_workload::sizes::{SizeDistribution, Workload};

use crate::fabric::{Buffers, FabricConfig, Forwarding};
use crate::framing::Framing;
use crate::measure::ideal::Formula;
use crate::measure::latency::Latencies;
use crate::time::{SimDuration, SimTime};
use crate::topology::{FatTree, HostId, LeafSpine, Physics, SingleSwitch, Wiring};
use crate::traffic::flows;
use crate::traffic::open_loop::{Arrival, OpenLoop, Pairs};
use crate::traffic::rate;
use crate::traffic::{Distance, Limits, Pattern};

use super::demand::{Basis, Exchange, Traffic};
use super::fabric::{Buffer, Routing, Shape};
use super::{Scenario, ScenarioError};

/// The network of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub wiring: Wiring,
    pub config: FabricConfig,
    pub distance: Distance,
    pub link: Rate,
    /// RTTbytes: what a host sends while a grant comes back to it, over the longest path.
    pub rtt_bytes: u32,
}

/// The traffic of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Name for people.
    pub workload: String,
    pub sizes: SizeDistribution,
    pub exchange: Exchange,
    kind: Kind,
    /// Hosts that send messages, and that receive them.
    pub senders: u32,
    pub receivers: Vec<HostId>,
}

#[derive(Clone, Debug)]
enum Kind {
    Open(Pairs),
    List(Vec<Arrival>),
    Closed { servers: u32, concurrent: u32, request_bytes: u32, response_bytes: u32 },
}

impl Network {
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let fabric = &scenario.fabric;
        let unsupported = [
            (fabric.cut_through && fabric.preemption, "cut-through and preemption together"),
            (!fabric.impaired.is_empty(), "impaired links"),
        ];
        if let Some((_, what)) = unsupported.into_iter().find(|(asked, _)| *asked) {
            return Err(ScenarioError::Unsupported { what: what.to_owned() });
        }
        let physics = Physics {
            host_rate: fabric.host_link.rate(),
            fabric_rate: fabric.fabric_link.rate(),
            sender_delay: SimDuration(fabric.send_delay.0 + fabric.nic_delay.0),
            switch_delay: fabric.switch_delay.duration(),
            receiver_delay: fabric.receive_delay.duration(),
            propagation: fabric.propagation.duration(),
        };
        let (wiring, distance) = wire(&fabric.shape, physics)?;
        let buffers = match fabric.buffer {
            Buffer::Unlimited => Buffers::Unlimited,
            Buffer::PerPort { bytes } => Buffers::PerPort(bytes),
            Buffer::Shared { bytes, alpha_percent } => Buffers::Shared { bytes, alpha_percent },
        };
        let forwarding = match fabric.routing {
            Routing::Spray => Forwarding::Spray,
            Routing::Ecmp => Forwarding::Ecmp,
        };
        let config = FabricConfig {
            forwarding,
            buffers,
            cut_through: fabric.cut_through,
            preemption: fabric.preemption,
            seed: scenario.seed,
        };
        let link = fabric.host_link.rate();
        let rtt_bytes = rtt_bytes(&wiring, link);
        Ok(Self { wiring, config, distance, link, rtt_bytes })
    }

    /// The formula that the authors divide by.
    pub fn formula(&self, scenario: &Scenario, corrected: bool) -> Formula {
        let fabric = &scenario.fabric;
        let fixed = fabric.send_delay.0 + fabric.nic_delay.0 + fabric.receive_delay.0;
        Formula {
            host: self.link,
            fabric: fabric.fabric_link.rate(),
            fixed: SimDuration(fixed),
            switch: SimDuration(fabric.switch_delay.0 + fabric.propagation.0),
            corrected,
        }
    }
}

fn wire(shape: &Shape, physics: Physics) -> Result<(Wiring, Distance), ScenarioError> {
    let hosts = shape.hosts().unwrap_or(0);
    if !(2..=1 << 20).contains(&hosts) && !matches!(shape, Shape::Graph { .. }) {
        return Err(ScenarioError::field("fabric.shape", "have 2 to 1048576 hosts"));
    }
    Ok(match *shape {
        Shape::SingleSwitch { hosts } => {
            (SingleSwitch { hosts, physics }.wire(), Distance { rack: hosts, pod: hosts })
        }
        Shape::LeafSpine { racks, hosts_per_rack, spines } => {
            if spines == 0 {
                return Err(ScenarioError::field("fabric.shape.spines", "be at least 1"));
            }
            let wiring = LeafSpine { racks, hosts_per_rack, spines, physics }.wire();
            (wiring, Distance { rack: hosts_per_rack, pod: hosts })
        }
        Shape::FatTree { k, oversubscription } => {
            if k < 2 || k % 2 == 1 || oversubscription == 0 {
                let must = "have an even `k` and an `oversubscription` of at least 1";
                return Err(ScenarioError::field("fabric.shape", must));
            }
            let wiring = FatTree { k, oversubscription, physics }.wire();
            let rack = k / 2 * oversubscription;
            (wiring, Distance { rack, pod: rack * k / 2 })
        }
        Shape::Graph { .. } => {
            return Err(ScenarioError::Unsupported { what: "graphs from files".to_owned() });
        }
    })
}

/// Link rate x (a grant's way there + a full frame's way back) (Homa §3.2: RTTbytes).
fn rtt_bytes(wiring: &Wiring, link: Rate) -> u32 {
    let last = HostId(wiring.hosts() - 1);
    let there = wiring.ideal(HostId(0), last, &[priced::MIN_FRAME as u32]);
    let back = wiring.ideal(HostId(0), last, &[FULL_FRAME]);
    let picos = u128::from(there.0 + back.0);
    let bytes = (picos * u128::from(link.0)).div_ceil(8_000_000_000_000);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Demand {
    pub fn new(scenario: &Scenario, hosts: u32) -> Result<Self, ScenarioError> {
        let all = || (0..hosts).map(HostId).collect::<Vec<_>>();
        match &scenario.traffic {
            Traffic::AllToAll { workload, exchange, max_bytes } => Ok(Self {
                workload: workload.clone(),
                sizes: sizes(workload, *max_bytes)?,
                exchange: *exchange,
                kind: Kind::Open(Pairs::All(hosts)),
                senders: hosts,
                receivers: all(),
            }),
            Traffic::ClientsServers { workload, clients, servers, max_bytes } => {
                let (clients, servers) = (*clients, *servers);
                if clients == 0 || servers == 0 || clients.saturating_add(servers) > hosts {
                    let must = format!("be at least 1 each and {hosts} together at most");
                    return Err(ScenarioError::field("traffic.clients and servers", must));
                }
                Ok(Self {
                    workload: workload.clone(),
                    sizes: sizes(workload, *max_bytes)?,
                    exchange: Exchange::Echo,
                    kind: Kind::Open(Pairs::Split { clients, servers }),
                    senders: clients,
                    receivers: (clients..clients + servers).map(HostId).collect(),
                })
            }
            Traffic::Incast { servers, concurrent, request_bytes, response_bytes } => {
                let (servers, concurrent) = (*servers, *concurrent);
                if servers == 0 || servers >= hosts || concurrent == 0 {
                    let must = format!("be 1 to {} with something concurrent", hosts - 1);
                    return Err(ScenarioError::field("traffic.servers", must));
                }
                let (request_bytes, response_bytes) = (*request_bytes, *response_bytes);
                let kind = Kind::Closed { servers, concurrent, request_bytes, response_bytes };
                Ok(Self {
                    workload: format!("incast-{response_bytes}"),
                    sizes: constant(request_bytes)?,
                    exchange: Exchange::Echo,
                    kind,
                    senders: 1,
                    receivers: vec![HostId(0)],
                })
            }
            Traffic::Permutation { bytes } => {
                let list = permutation(hosts, *bytes, scenario.seed);
                Self::list(format!("permutation-{bytes}"), list, hosts)
            }
            Traffic::Flows { file } => Self::list(file.clone(), read_flows(file)?, hosts),
        }
    }

    fn list(name: String, list: Vec<Arrival>, hosts: u32) -> Result<Self, ScenarioError> {
        if let Some(flow) = list.iter().find(|flow| flow.src.max(flow.dst) >= hosts) {
            let must = format!(
                "have hosts for every flow: {} to {} but only {hosts} hosts",
                flow.src, flow.dst
            );
            return Err(ScenarioError::field("fabric.shape", must));
        }
        let sizes = SizeDistribution::of_messages(list.iter().map(|flow| flow.bytes));
        let sizes = sizes.ok_or_else(|| ScenarioError::field("traffic", "hold a message"))?;
        Ok(Self {
            workload: name,
            sizes,
            exchange: Exchange::OneWay,
            kind: Kind::List(list),
            senders: hosts,
            receivers: (0..hosts).map(HostId).collect(),
        })
    }

    /// A list that replaces the traffic: what an idle network is probed with.
    pub fn replaced_by(&self, list: Vec<Arrival>) -> Self {
        let kind = match self.kind {
            Kind::Closed { .. } => return self.clone(),
            _ => Kind::List(list),
        };
        Self { kind, ..self.clone() }
    }

    /// Messages per second of one sender for the load asked for, and the mean bytes of a message.
    fn per_second(&self, scenario: &Scenario, link: Rate, own: Framing) -> f64 {
        let load = scenario.load;
        let mean = rate::mean_counted_bytes(load.basis, framing(own), &self.sizes);
        let per_link = match (self.kind.clone(), self.exchange) {
            (Kind::Open(Pairs::All(_)), Exchange::Echo) => 2.0,
            (Kind::Open(Pairs::Split { clients, servers }), _) => {
                (f64::from(clients) / f64::from(servers)).max(1.0)
            }
            _ => 1.0,
        };
        rate::per_second(load.fraction, link.0, mean, per_link)
    }

    /// True for patterns whose load the scenario chooses.
    pub fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open(_))
    }

    /// True when clients and servers are different hosts.
    pub fn is_split(&self) -> bool {
        matches!(self.kind, Kind::Open(Pairs::Split { .. }) | Kind::Closed { .. })
    }

    /// The load asked for in other terms: the authors' wire bytes and payload.
    pub fn expressed(&self, scenario: &Scenario, own: Framing) -> (f64, f64) {
        let mean = |basis| rate::mean_counted_bytes(basis, framing(own), &self.sizes);
        let asked = mean(scenario.load.basis);
        let fraction = scenario.load.fraction;
        (fraction * mean(Basis::Paper) / asked, fraction * mean(Basis::Payload) / asked)
    }

    pub fn pattern(
        &self,
        scenario: &Scenario,
        network: &Network,
        own: Framing,
    ) -> Result<Pattern, ScenarioError> {
        Ok(match self.kind.clone() {
            Kind::Open(pairs) => {
                let fraction = scenario.load.fraction;
                if !(fraction.is_finite() && fraction > 0.0) {
                    let must = "be above 0, such as 0.8";
                    return Err(ScenarioError::field("load.fraction", must));
                }
                let gap = 1e12 / self.per_second(scenario, network.link, own);
                let arrivals = OpenLoop::new(self.sizes.clone(), pairs, gap, scenario.seed);
                Pattern::Open { arrivals, exchange: self.exchange }
            }
            Kind::List(arrivals) => Pattern::List { arrivals, exchange: self.exchange },
            Kind::Closed { servers, concurrent, request_bytes, response_bytes } => {
                Pattern::Closed { servers, concurrent, request_bytes, response_bytes }
            }
        })
    }

    pub fn limits(&self, scenario: &Scenario, network: &Network, own: Framing) -> Limits {
        let stop = scenario.stop;
        let list = if let Kind::List(list) = &self.kind { list.len() as u64 } else { u64::MAX };
        let messages = stop.messages.unwrap_or(u64::MAX).min(list);
        let time = stop.time.map_or(SimTime::MAX, |span| span.after_start());
        Limits {
            warm_up: scenario.warm_up.after_start(),
            messages,
            time,
            ending: stop.ending,
            sample_every: self.sample_every(scenario, network, (messages, own)),
        }
    }

    /// A millisecond, as the authors sampled, or a hundredth of a run expected to be shorter.
    fn sample_every(
        &self,
        scenario: &Scenario,
        network: &Network,
        (messages, own): (u64, Framing),
    ) -> SimDuration {
        let rate = self.per_second(scenario, network.link, own) * f64::from(self.senders);
        let by_messages = match self.kind {
            Kind::Open(_) => messages as f64 / rate * 1e12,
            _ => f64::MAX,
        };
        let by_time = scenario.stop.time.map_or(f64::MAX, |span| span.0 as f64);
        let expected = by_messages.min(by_time);
        SimDuration((expected / 100.0).clamp(1e6, 1e9) as u64)
    }

    pub fn latencies(&self) -> Latencies {
        Latencies::new(&self.sizes)
    }
}

fn constant(bytes: u32) -> Result<SizeDistribution, ScenarioError> {
    let must = || ScenarioError::field("traffic.request_bytes", "be at least 1");
    SizeDistribution::constant(bytes).ok_or_else(must)
}

fn sizes(workload: &str, max_bytes: Option<u32>) -> Result<SizeDistribution, ScenarioError> {
    let failed = |reason: String| ScenarioError::File { path: workload.to_owned(), reason };
    let workload = Workload::parse(workload).map_err(|error| failed(error.to_string()))?;
    let sizes = workload.sizes().map_err(|error| failed(error.to_string()))?;
    Ok(max_bytes.map_or_else(|| sizes.clone(), |max| sizes.truncated(max)))
}

fn read_flows(file: &str) -> Result<Vec<Arrival>, ScenarioError> {
    let failed = |reason: String| ScenarioError::File { path: file.to_owned(), reason };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    flows::parse(&text).map_err(|error| failed(error.to_string()))
}

/// Every host sends to the next one in a random circle of all hosts.
fn permutation(hosts: u32, bytes: u32, seed: u64) -> Vec<Arrival> {
    let mut rng = homa_workload::rng::Rng::stream(seed, "permutation");
    let mut circle: Vec<u32> = (0..hosts).collect();
    for i in (1..hosts).rev() {
        circle.swap(i as usize, rng.uniform_below(i + 1) as usize);
    }
    let next = circle.iter().cycle().skip(1);
    let pairs = circle.iter().zip(next);
    pairs.map(|(&src, &dst)| Arrival { at: SimTime::ZERO, src, dst, bytes }).collect()
}

/// The same framing as the workload crate prices it.
fn framing(own: Framing) -> priced::Framing {
    match own {
        Framing::Authors => priced::Framing::Paper,
        Framing::Ip146 => priced::Framing::Ip146,
        Framing::Udp => priced::Framing::Udp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_network_has_the_papers_round_trip() {
        let network = Network::new(&Scenario::default()).unwrap();
        // 7.744 us at 10 Gbit/s.
        assert_eq!(network.rtt_bytes, 9680);
        assert_eq!(network.distance.switches(0, 15), 1);
        assert_eq!(network.distance.switches(0, 16), 3);
    }

    #[test]
    fn a_permutation_is_one_circle() {
        let list = permutation(144, 10, 3);
        let mut received = vec![0; 144];
        for flow in &list {
            assert_ne!(flow.src, flow.dst);
            received[flow.dst as usize] += 1;
        }
        assert_eq!(received, vec![1; 144]);
    }
}
