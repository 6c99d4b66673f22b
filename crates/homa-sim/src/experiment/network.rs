//! Turns the description of a scenario's network into its wiring, fabric, paths and faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use homa_proto::{FULL_FRAME, Rate};
use homa_workload::framing::{ETHERNET, MIN_FRAME};

use crate::Headers;

use crate::fabric::{Alb, AlbPick, Buffers, CioqConfig, FabricConfig, Forwarding, SharedConfig};
use crate::measure::ideal::Formula;
use crate::scenario::{
    Buffer, Fabric, GraphFormat, Routing, Scenario, ScenarioError, SchemeOptions, Shape, SlowdownBy,
};
use crate::scheme::{NetworkScale, Scheme};
use crate::time::SimDuration;
use crate::topology::files::{self, NetworkFile};
use crate::topology::{
    FatTree, HostId, LeafSpine, NodeId, Physics, Pods, PortId, SingleSwitch, Wiring,
};
use crate::traffic::{Classes, Distance, HostPaths};

use super::beside::check_forwarding;
use super::faults::{Change, Lossy, Pause, impair, pauses};
use super::switches::{LateHeadroom, LatePause, cioq, shared};

/// The network of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioNetwork {
    pub wiring: Wiring,
    pub config: FabricConfig,
    pub paths: HostPaths,
    /// Rate of a host's link; in a graph that of the slowest one.
    pub link: Rate,
    /// RTTbytes: bytes that a host sends until a grant comes back to it over the longest path.
    pub rtt_bytes: u32,
    /// Picoseconds by which a packet takes longer over the longest path for each byte more.
    pub byte_picos: u64,
    /// Changes of links.
    pub changes: Vec<Change>,
    /// Links that lose packets.
    pub lossy: Vec<Lossy>,
    /// Pauses of hosts.
    pub pauses: Vec<Pause>,
    /// The link with the lowest safe threshold, if the scenario's pause threshold is not safe.
    late_pause: Option<LatePause>,
    /// The link that needs most headroom, if the scenario's headroom is not safe.
    late_headroom: Option<LateHeadroom>,
    /// Hosts compare what ports report to consecutive packets, which take different ports.
    mixed: bool,
    /// The scenario configures adaptive forwarding, but switches forward differently.
    unheeded: bool,
    /// Switches by name.
    names: BTreeMap<String, NodeId>,
    read: ReadNetwork,
}

/// The wiring of a shape, with the names of its switches.
struct NamedWiring {
    wiring: Wiring,
    paths: HostPaths,
    /// Switches by name.
    names: BTreeMap<String, NodeId>,
    read: ReadNetwork,
}

/// Facts about a file of a network.
#[derive(Clone, Debug, Default)]
struct ReadNetwork {
    /// The hosts by the numbers of nodes in the file, if these are not those of hosts.
    nodes: Option<BTreeMap<u32, u32>>,
    /// Sentences for readers of the results.
    warnings: Vec<String>,
}

impl ScenarioNetwork {
    pub fn new(scenario: &Scenario, scheme: &Scheme) -> Result<Self, ScenarioError> {
        let fabric = &scenario.fabric;
        check_forwarding(scenario, scheme.forwarding)?;
        if fabric.cut_through && fabric.preemption {
            let what = "cut-through and preemption together".to_owned();
            return Err(ScenarioError::Unsupported { what });
        }
        let physics = Physics {
            host_rate: fabric.host_link.rate(),
            fabric_rate: fabric.fabric_link.rate(),
            sender_delay: SimDuration(fabric.send_delay.0 + fabric.nic_delay.0),
            switch_delay: fabric.switch_delay.duration(),
            receiver_delay: fabric.receive_delay.duration(),
            propagation: fabric.propagation.duration(),
        };
        let core_rate = core_rate(fabric)?;
        let NamedWiring { wiring, paths, names, read } = wire(&fabric.shape, (physics, core_rate))?;
        let frame = largest_frame(scenario, scheme);
        if wiring.unfit(frame).is_some() {
            let must = format!(
                "carry the largest frame, {frame} bytes, over every link within 4.29 ms: choose \
                 links of at least {}Mbps and delays below 0.5ms, or a smaller MTU",
                least_mbps(frame)
            );
            return Err(ScenarioError::field("fabric", must));
        }
        let formula =
            matches!(scenario.slowdown, SlowdownBy::Authors | SlowdownBy::AuthorsCorrected);
        if matches!(paths, HostPaths::Listed(_)) && formula {
            let must = "be \"idle\" or \"best\" for a graph: the authors' formula only \
                        describes their network";
            return Err(ScenarioError::field("slowdown", must));
        }
        let (changes, lossy) = impair(&fabric.impaired, (&wiring, frame), &names)?;
        let pauses = pauses(&fabric.paused, &wiring)?;
        let uplinks = wiring.ports()[..wiring.hosts() as usize].iter();
        let link = uplinks.map(|port| port.rate).min_by_key(|rate| rate.0);
        let link = link.unwrap_or(fabric.host_link.rate());
        let (rtt_bytes, byte_picos) = round_trip(&wiring, &paths, link);
        let memory = scheme.memory(&scenario.options, rtt_bytes)?;
        let scale = NetworkScale { link, rtt_bytes, byte_picos };
        let (parts, wires) = ((scheme, scale, frame), (&wiring, &changes[..]));
        let (cioq, late_pause) = cioq(scenario, (scheme, scale), wires)?.unzip();
        let (shared, late_headroom) = shared(scenario, parts, wires)?.unzip();
        let (late_pause, late_headroom) = (late_pause.flatten(), late_headroom.flatten());
        let config = config(scenario, (scheme, memory, cioq), (alb(fabric)?, shared));
        let given = fabric.thresholds.is_some() || fabric.round_robin;
        Ok(Self {
            unheeded: given && !matches!(config.forwarding, Forwarding::Adaptive(_)),
            mixed: scheme.host.compares_ports()
                && !matches!(fabric.shape, Shape::SingleSwitch { .. })
                && !matches!(config.forwarding, Forwarding::Ecmp | Forwarding::HostPairs),
            config,
            wiring,
            paths,
            link,
            rtt_bytes,
            byte_picos,
            changes,
            lossy,
            pauses,
            late_pause,
            late_headroom,
            names,
            read,
        })
    }

    /// Warnings for readers of the results: a pause threshold with which frames may be lost, and
    /// settings that change nothing.
    pub fn warnings(&self) -> Vec<String> {
        let late = self.late_pause.iter().map(|late| late.warning(&self.port_name(late.link)));
        let tight = self.late_headroom.iter();
        let tight = tight.map(|late| late.warning(&self.port_name(late.link)));
        let forwarding = self.config.forwarding;
        let unheeded = self.unheeded.then(|| {
            format!(
                "`fabric.thresholds` and `fabric.round_robin` change nothing here: they are of \
                 `adaptive` routing, and switches forward by `{forwarding}`"
            )
        });
        let mixed = self.mixed.then(|| {
            format!(
                "switches forward by `{forwarding}`, and hosts compare what a port reports with \
                 what another one reported to the packet before: set `fabric.routing` to \"ecmp\""
            )
        });
        late.chain(tight)
            .chain(unheeded)
            .chain(mixed)
            .chain(self.read.warnings.iter().cloned())
            .collect()
    }

    /// The hosts by the numbers of nodes in the network's file, if these are not those of hosts.
    pub fn nodes(&self) -> Option<&BTreeMap<u32, u32>> {
        self.read.nodes.as_ref()
    }

    /// What thresholds of queues follow.
    pub fn scale(&self) -> NetworkScale {
        let Self { link, rtt_bytes, byte_picos, .. } = *self;
        NetworkScale { link, rtt_bytes, byte_picos }
    }

    /// The name of a port, which consists of the names of its two ends in plans, e.g.
    /// `tor0->aggr1`.
    pub fn port_name(&self, port: PortId) -> String {
        let name = |node: NodeId| {
            let named = self.names.iter().find(|(_, known)| **known == node);
            named.map_or_else(|| format!("h{}", node.0), |(name, _)| name.clone())
        };
        let spec = &self.wiring.ports()[port.0 as usize];
        format!("{}->{}", name(spec.from), name(spec.to))
    }

    /// The same network without faults of links and hosts.
    pub fn unimpaired(&self) -> Self {
        let (changes, lossy, pauses) = (Vec::new(), Vec::new(), Vec::new());
        Self { changes, lossy, pauses, ..self.clone() }
    }

    /// The authors' formula for idle times.
    pub fn formula(&self, scenario: &Scenario, corrected: bool) -> Formula {
        let fabric = &scenario.fabric;
        let fixed = fabric.send_delay.0 + fabric.nic_delay.0 + fabric.receive_delay.0;
        Formula {
            host: self.link,
            fabric: fabric.fabric_link.rate(),
            fixed: SimDuration(fixed),
            propagation: fabric.propagation.duration(),
            switch: fabric.switch_delay.duration(),
            corrected,
        }
    }
}

/// Wire bytes of the largest frame that hosts may send. A second scheme has packets of the usual
/// size unless its options say otherwise.
fn largest_frame(scenario: &Scenario, scheme: &Scheme) -> u32 {
    let of = |options: &SchemeOptions, mtu| options.largest_mtu().unwrap_or(mtu);
    let second = scenario.beside.as_ref().map_or(0, |beside| of(&beside.options, Headers::MTU));
    of(&scenario.options, scheme.mtu())
        .max(second)
        .max(Headers::MTU)
        .saturating_add(ETHERNET as u32)
}

/// The lowest rate at which a link carries a frame in 3.79 ms, which leaves 0.5 ms for delays.
pub(super) fn least_mbps(frame: u32) -> u32 {
    (f64::from(frame) * 8.0 / 3_790.0).ceil() as u32
}

/// The configuration of adaptive forwarding.
fn alb(fabric: &Fabric) -> Result<Alb, ScenarioError> {
    let pick = if fabric.round_robin { AlbPick::RoundRobin } else { AlbPick::Random };
    let thresholds = fabric.thresholds.as_deref().unwrap_or(&[16_384, 65_536]);
    Alb::new(thresholds, pick).ok_or_else(|| {
        ScenarioError::field("fabric.thresholds", "be at most 8 numbers of bytes, ascending")
    })
}

fn config(
    scenario: &Scenario,
    (scheme, memory, cioq): (&Scheme, Option<u64>, Option<CioqConfig>),
    (alb, shared): (Alb, Option<SharedConfig>),
) -> FabricConfig {
    let fabric = &scenario.fabric;
    FabricConfig {
        forwarding: match fabric.routing {
            Some(Routing::Spray) => Forwarding::Spray,
            Some(Routing::Ecmp) => Forwarding::Ecmp,
            Some(Routing::EcmpHosts) => Forwarding::HostPairs,
            Some(Routing::Adaptive) => Forwarding::Adaptive(alb),
            None => match scheme.forwarding {
                Forwarding::Adaptive(_) => Forwarding::Adaptive(alb),
                other => other,
            },
        },
        buffers: match fabric.buffer {
            Buffer::Unlimited => memory.map_or(Buffers::Unlimited, Buffers::PerPort),
            Buffer::PerPort { bytes } => Buffers::PerPort(bytes),
            Buffer::PerLevel { bytes } => Buffers::PerLevel(bytes),
            Buffer::Shared { bytes, alpha_percent } => Buffers::Shared { bytes, alpha_percent },
        },
        cut_through: fabric.cut_through,
        preemption: fabric.preemption,
        cioq,
        shared,
        seed: scenario.seed,
    }
}

/// The rate of links to core switches, which only shapes with three tiers have.
fn core_rate(fabric: &Fabric) -> Result<Option<Rate>, ScenarioError> {
    match (&fabric.shape, fabric.core_link) {
        (_, None) => Ok(None),
        (Shape::FatTree { .. } | Shape::Pods { .. }, Some(link)) => Ok(Some(link.rate())),
        _ => {
            let why = "only the shapes `fat-tree` and `pods` have core switches: leave it out, \
                       or choose one of them for `fabric.shape`";
            Err(ScenarioError::unfit("fabric.core_link", why))
        }
    }
}

/// A network with three tiers.
fn pods(pods: Pods) -> NamedWiring {
    let tors = pods.pods * pods.racks;
    let aggrs = pods.pods * pods.aggrs;
    let kinds = [("tor", tors), ("aggr", aggrs), ("core", pods.aggrs * pods.cores)];
    regular(pods.wire(), (pods.hosts_per_rack, pods.racks * pods.hosts_per_rack), &kinds)
}

/// A regular network with `rack` hosts at each TOR and `pod` hosts in each pod. `kinds` are the
/// name and number of each kind of switch.
fn regular(wiring: Wiring, (rack, pod): (u32, u32), kinds: &[(&str, u32)]) -> NamedWiring {
    let named = kinds.iter().flat_map(|(kind, n)| (0..*n).map(move |i| format!("{kind}{i}")));
    let names = named.zip((wiring.hosts()..).map(NodeId)).collect();
    let (paths, read) = (Distance { rack, pod }.into(), ReadNetwork::default());
    NamedWiring { wiring, paths, names, read }
}

fn wire(
    shape: &Shape,
    (physics, core_rate): (Physics, Option<Rate>),
) -> Result<NamedWiring, ScenarioError> {
    if let &Shape::FatTree { k, oversubscription } = shape
        && (k < 2 || k % 2 == 1 || oversubscription == 0)
    {
        let must = "have an even `k` and an `oversubscription` of at least 1";
        return Err(ScenarioError::field("fabric.shape", must));
    }
    if let &Shape::Pods { pods, racks, hosts_per_rack, aggrs, cores } = shape
        && [pods, racks, hosts_per_rack, aggrs, cores].iter().any(|n| !(1..=4_096).contains(n))
    {
        return Err(ScenarioError::field("fabric.shape", "have numbers from 1 to 4096"));
    }
    let hosts = shape.hosts().unwrap_or(0);
    if !(2..=1 << 20).contains(&hosts) && !matches!(shape, Shape::Graph { .. }) {
        return Err(ScenarioError::field("fabric.shape", "have 2 to 1048576 hosts"));
    }
    Ok(match shape {
        Shape::SingleSwitch { .. } => {
            regular(SingleSwitch { hosts, physics }.wire(), (hosts, hosts), &[("tor", 1)])
        }
        &Shape::LeafSpine { racks, hosts_per_rack, spines } => {
            if spines == 0 {
                return Err(ScenarioError::field("fabric.shape.spines", "be at least 1"));
            }
            let wiring = LeafSpine { racks, hosts_per_rack, spines, physics }.wire();
            regular(wiring, (hosts_per_rack, hosts), &[("tor", racks), ("spine", spines)])
        }
        &Shape::FatTree { k, oversubscription } => {
            let tree = FatTree { k, oversubscription, physics };
            pods(Pods { core_rate, ..tree.pods() })
        }
        &Shape::Pods { pods: number, racks, hosts_per_rack, aggrs, cores } => {
            if aggrs * cores > 1 << 20 {
                let must = "have at most 1048576 core switches";
                return Err(ScenarioError::field("fabric.shape", must));
            }
            pods(Pods { pods: number, racks, hosts_per_rack, aggrs, cores, core_rate, physics })
        }
        Shape::Graph { file, format } => graph(file, *format)?,
    })
}

fn graph(file: &str, format: Option<GraphFormat>) -> Result<NamedWiring, ScenarioError> {
    let failed = |reason: String| ScenarioError::File { path: file.to_owned(), reason };
    let text =
        homa_workload::text::read(file.as_ref()).map_err(|error| failed(error.to_string()))?;
    let read = files::read(&text, format).map_err(|error| failed(error.to_string()))?;
    let NetworkFile { graph, nodes, warnings } = read;
    let wiring = graph.wire();
    if wiring.hosts() < 2 {
        return Err(failed("a network has at least two hosts".to_owned()));
    }
    let switches = (wiring.hosts()..).map(NodeId);
    let names = graph.switches().iter().cloned().zip(switches).collect();
    let paths = HostPaths::Listed(Arc::new(Classes::of(&wiring)));
    let warnings = warnings.iter().map(|warning| format!("`{file}`: {warning}")).collect();
    Ok(NamedWiring { wiring, paths, names, read: ReadNetwork { nodes, warnings } })
}

/// RTTbytes (Homa §3.2): the link rate times the time of a grant in one direction plus that of a
/// full frame in the other, over the longest path. And the picoseconds that each byte more of that
/// frame takes.
fn round_trip(wiring: &Wiring, paths: &HostPaths, link: Rate) -> (u32, u64) {
    const MORE: u32 = 1_000;
    let round_trip = |a, b| {
        let there = wiring.ideal(HostId(a), HostId(b), &[MIN_FRAME as u32]);
        let back = wiring.ideal(HostId(b), HostId(a), &[FULL_FRAME]);
        let longer = wiring.ideal(HostId(b), HostId(a), &[FULL_FRAME + MORE]);
        (there.0 + back.0, longer.0.saturating_sub(back.0) / u64::from(MORE))
    };
    let (picos, byte_picos) = match paths {
        HostPaths::Regular(_) => round_trip(0, wiring.hosts() - 1),
        HostPaths::Listed(classes) => {
            let all = classes.examples.iter().map(|&(a, b)| round_trip(a, b));
            all.max().unwrap_or_default()
        }
    };
    let bytes = (u128::from(picos) * u128::from(link.0)).div_ceil(8_000_000_000_000);
    (u32::try_from(bytes).unwrap_or(u32::MAX), byte_picos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Span;
    use crate::scheme::SCHEMES;

    #[test]
    fn the_default_network_has_the_papers_round_trip() {
        let network = ScenarioNetwork::new(&Scenario::default(), &SCHEMES[0]).unwrap();
        // 7.744 us at 10 Gbit/s.
        assert_eq!(network.rtt_bytes, 9680);
        assert_eq!(network.paths.number(0, 15), 1);
        assert_eq!(network.paths.number(0, 16), 3);
    }

    #[test]
    fn the_corrected_formula_is_a_frames_time_in_the_network() {
        let mut scenario = Scenario::default();
        scenario.fabric.propagation = Span::nanos(1_000);
        let shapes = [
            Shape::SingleSwitch { hosts: 4 },
            Shape::LeafSpine { racks: 2, hosts_per_rack: 2, spines: 2 },
            Shape::FatTree { k: 4, oversubscription: 1 },
            Shape::Pods { pods: 3, racks: 2, hosts_per_rack: 4, aggrs: 3, cores: 2 },
        ];
        for shape in shapes {
            scenario.fabric.shape = shape;
            let network = ScenarioNetwork::new(&scenario, &SCHEMES[0]).unwrap();
            let formula = network.formula(&scenario, true);
            for host in 1..network.wiring.hosts() {
                let way = network.wiring.ideal(HostId(0), HostId(host), &[1_066]);
                let switches = network.paths.number(0, host);
                assert_eq!(formula.time(1_000, switches), way, "{switches} switches");
            }
        }
    }
}
