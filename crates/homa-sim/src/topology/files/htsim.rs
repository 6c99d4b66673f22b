//! Topologies of htsim (`.topo`): `Nodes`, `Tiers` (2 or 3) and `Podsize`, then for each `Tier` the
//! radix of its switches and the rates and latencies of the links below them. Names are not case
//! sensitive.
//!
//! In each pod every TOR is connected to every aggregation switch by `Bundle` links of tier 1; the
//! n-th aggregation switches of all pods share core switches. Left out: `Queue_Up` and
//! `Queue_Down`, because buffers are set by `fabric.buffer`; `Oversubscribed`, which follows from
//! the radices.

use homa_proto::Rate;
use homa_workload::text::rows;

use crate::time::SimDuration;

use super::super::graph::{Graph, GraphError, NamedLink};
use super::{MOST, NetworkFile, number, wrong};

const HEAD: [&str; 3] = ["nodes", "tiers", "podsize"];

/// Keys of a tier that are simulated.
const KEYS: [&str; 6] = [
    "downlink_speed_gbps",
    "downlink_latency_ns",
    "radix_down",
    "radix_up",
    "bundle",
    "switch_latency_ns",
];

/// Keys of a tier that are not.
const UNUSED: [&str; 3] = ["oversubscribed", "queue_up", "queue_down"];

/// Whether the first word of a file is one of this format's.
pub(super) fn begins_with(word: &str) -> bool {
    HEAD.contains(&word.to_ascii_lowercase().as_str())
}

/// The values of a tier, by [`KEYS`], and the line where it begins.
#[derive(Clone, Copy, Default)]
struct TierKeys {
    line: usize,
    values: [Option<u32>; KEYS.len()],
}

impl TierKeys {
    /// A value that must be given and above 0.
    fn needs(&self, key: usize) -> Result<u32, GraphError> {
        match self.values[key] {
            Some(value @ 1..) => Ok(value),
            Some(0) | None => wrong(self.line, format!("this tier needs a `{}`", KEYS[key])),
        }
    }

    fn rate(&self) -> Result<Rate, GraphError> {
        Ok(Rate(u64::from(self.needs(0)?) * 1_000_000_000))
    }

    fn latency(&self) -> Result<SimDuration, GraphError> {
        Ok(SimDuration::nanos(u64::from(self.needs(1)?)))
    }

    fn radix_down(&self) -> Result<u32, GraphError> {
        self.needs(2)
    }

    fn radix_up(&self) -> Result<u32, GraphError> {
        self.needs(3)
    }

    fn bundle(&self) -> u32 {
        self.values[4].unwrap_or(1).max(1)
    }

    fn switch_latency(&self) -> SimDuration {
        SimDuration::nanos(u64::from(self.values[5].unwrap_or(0)))
    }
}

pub(super) fn read(text: &str) -> Result<NetworkFile, GraphError> {
    let mut head = [None; 3];
    let mut tiers: [Option<TierKeys>; 3] = [None; 3];
    let (mut current, mut has_queues) = (None, false);
    for row in rows(text) {
        let [word, value] = row.fields[..] else {
            let expected = "expected a name and a number, such as `Radix_Down 8`";
            return wrong(row.line, expected);
        };
        let (name, value) = (word.to_ascii_lowercase(), number(&row, word, value)?);
        let key = KEYS.iter().position(|key| *key == name);
        if let Some(which) = HEAD.iter().position(|key| *key == name) {
            head[which] = Some((value, row.line));
        } else if name == "tier" {
            let Some(tier) = tiers.get_mut(value as usize) else {
                return wrong(row.line, format!("expected tier 0, 1 or 2, found {value}"));
            };
            *tier = Some(TierKeys { line: row.line, ..TierKeys::default() });
            current = Some(value as usize);
        } else if key.is_some() || UNUSED.contains(&name.as_str()) {
            let Some(tier) = current.and_then(|tier: usize| tiers[tier].as_mut()) else {
                return wrong(row.line, format!("`{word}` belongs behind a line `Tier`"));
            };
            has_queues |= name.starts_with("queue");
            if let Some(key) = key {
                tier.values[key] = Some(value);
            }
        } else {
            let known = [&HEAD[..], &["tier"], &KEYS, &UNUSED].concat().join(", ");
            return wrong(row.line, format!("unknown name `{word}`; there are {known}"));
        }
    }
    let [nodes, count, pod] = head;
    let (Some((nodes, line)), Some((count, _)), Some((pod, _))) = (nodes, count, pod) else {
        return wrong(1, "expected `Nodes`, `Tiers` and `Podsize`, each with a number");
    };
    if !(2..=3).contains(&count) {
        return wrong(line, format!("expected 2 or 3 tiers, found {count}"));
    }
    let missing = (0..count as usize).find(|tier| tiers[*tier].is_none());
    if let Some(missing) = missing {
        return wrong(line, format!("`Tier {missing}` is missing"));
    }
    let tiers: Vec<TierKeys> = tiers.into_iter().take(count as usize).flatten().collect();
    let graph = Tree::new((nodes, pod, line), &tiers)?.graph(&tiers)?;
    let queues = has_queues.then(|| {
        "`Queue_Up` and `Queue_Down` are not simulated: set `fabric.buffer`, or the option of the \
         scheme"
            .to_owned()
    });
    Ok(NetworkFile { graph, nodes: None, warnings: queues.into_iter().collect() })
}

/// How many switches there are of each kind.
struct Tree {
    hosts: u32,
    pods: u32,
    hosts_per_tor: u32,
    tors_per_pod: u32,
    aggrs_per_pod: u32,
    /// Core switches above each aggregation switch.
    cores_per_aggr: u32,
}

impl Tree {
    fn new((hosts, pod, line): (u32, u32, usize), tiers: &[TierKeys]) -> Result<Self, GraphError> {
        let hosts_per_tor = tiers[0].radix_down()?;
        if pod == 0 || !hosts.is_multiple_of(pod) || !pod.is_multiple_of(hosts_per_tor) || hosts < 2
        {
            let expected = format!(
                "{hosts} nodes are not pods of {pod}, or these not racks of {hosts_per_tor} \
                 (`Radix_Down` of tier 0)"
            );
            return wrong(line, expected);
        }
        // With two tiers, all racks are below the same switches.
        let pods = if tiers.len() == 3 { hosts / pod } else { 1 };
        let tors_per_pod = hosts / pods / hosts_per_tor;
        let aggrs_per_pod = parts(&tiers[0], &tiers[1])?;
        radix(&tiers[1], tors_per_pod)?;
        let cores_per_aggr = match tiers {
            [_, aggr, core] => {
                radix(core, pods)?;
                parts(aggr, core)?
            }
            _ => 0,
        };
        let tree = Self { hosts, pods, hosts_per_tor, tors_per_pod, aggrs_per_pod, cores_per_aggr };
        let wide = |numbers: &[u32]| {
            numbers.iter().map(|number| u64::from(*number)).fold(1, u64::saturating_mul)
        };
        let below = wide(&[pods, tors_per_pod, aggrs_per_pod, tiers[1].bundle()]);
        let above =
            wide(&[pods, aggrs_per_pod, cores_per_aggr, tiers.get(2).map_or(1, TierKeys::bundle)]);
        if u64::from(hosts).saturating_add(below).saturating_add(above) > MOST {
            return wrong(line, format!("expected at most {MOST} links"));
        }
        Ok(tree)
    }

    fn graph(&self, tiers: &[TierKeys]) -> Result<Graph, GraphError> {
        let Self { hosts, pods, hosts_per_tor, tors_per_pod, aggrs_per_pod, cores_per_aggr } =
            *self;
        let (tors, aggrs) = (pods * tors_per_pod, pods * aggrs_per_pod);
        let cores = aggrs_per_pod * cores_per_aggr;
        let latency = |tier: usize| tiers[tier].switch_latency();
        let (rate, delay) = (tiers[0].rate()?, tiers[0].latency()?);
        let access = (0..hosts).map(|host| NamedLink {
            a: host,
            b: host / hosts_per_tor,
            rate,
            delay: delay + latency(0),
            back: delay,
        });
        let mut between = Vec::new();
        let mut join = |tier: usize, (a, b): (u32, u32)| -> Result<(), GraphError> {
            let (rate, delay) = (tiers[tier].rate()?, tiers[tier].latency()?);
            let (delay, back) = (delay + latency(tier), delay + latency(tier - 1));
            let link = NamedLink { a, b, rate, delay, back };
            between.extend((0..tiers[tier].bundle()).map(|_| link));
            Ok(())
        };
        for tor in 0..tors {
            let first = tor / tors_per_pod * aggrs_per_pod;
            for aggr in first..first + aggrs_per_pod {
                join(1, (tor, tors + aggr))?;
            }
        }
        for aggr in 0..aggrs {
            for above in 0..cores_per_aggr {
                let core = aggr % aggrs_per_pod + aggrs_per_pod * above;
                join(2, (tors + aggr, tors + aggrs + core))?;
            }
        }
        let named = [("tor", tors), ("aggr", aggrs), ("core", cores)];
        let names = named.iter().flat_map(|(kind, n)| (0..*n).map(move |i| format!("{kind}{i}")));
        Graph::of_links(access.collect(), between, names.collect())
    }
}

/// Number of switches of the tier above that a switch is connected to.
fn parts(below: &TierKeys, above: &TierKeys) -> Result<u32, GraphError> {
    let (up, bundle) = (below.radix_up()?, above.bundle());
    if !up.is_multiple_of(bundle) {
        let expected =
            format!("`Radix_Up` is {up}, no multiple of {bundle}, the `Bundle` of the tier above");
        return wrong(below.line, expected);
    }
    Ok(up / bundle)
}

/// Checks that a switch has links to all `below` switches below it.
fn radix(tier: &TierKeys, below: u32) -> Result<(), GraphError> {
    let (radix, bundle) = (tier.radix_down()?, tier.bundle());
    if u64::from(radix) != u64::from(below) * u64::from(bundle) {
        let expected = format!(
            "`Radix_Down` is {radix}, but {below} switches are below a switch of this tier, with \
             {bundle} links each (`Bundle`)"
        );
        return wrong(tier.line, expected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::HostId;

    const THREE: &str = "Nodes 8\nTiers 3\nPodsize 4\n\nTier 0\nDownlink_speed_Gbps \
                         200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns \
                         1000\nSwitch_Latency_ns 100\n\nTier 1\nDownlink_speed_Gbps \
                         200\nRadix_Down 2\nRadix_Up 4\nDownlink_Latency_ns 1000\nBundle \
                         1\n\nTier 2\nDownlink_speed_Gbps 100\nradix_down \
                         4\nDownlink_Latency_ns 2000\nSwitch_Latency_ns 50\nBundle 2\n";

    #[test]
    fn three_tiers_have_the_switches_and_delays_of_the_file() {
        let file = read(THREE).unwrap();
        let wiring = file.graph.wire();
        // Two pods with two TORs and two aggregation switches each, below four cores.
        assert_eq!((wiring.hosts(), wiring.switches()), (8, 4 + 4 + 4));
        // 8 links of hosts, 8 between TORs and aggregation, 16 to cores, in both directions.
        assert_eq!(wiring.ports().len(), 2 * (8 + 8 + 16));
        let path = wiring.path(HostId(0), HostId(7));
        let port = |port: &crate::topology::PortId| wiring.ports()[port.0 as usize];
        let delays: Vec<u64> = path.iter().map(|it| port(it).delay.0 / 1_000).collect();
        assert_eq!(delays, [1_100, 1_000, 2_050, 2_000, 1_100, 1_000]);
        let rates: Vec<u64> = path.iter().map(|it| port(it).rate.0 / 1_000_000_000).collect();
        assert_eq!(rates, [200, 200, 100, 100, 200, 200]);
        assert!(file.warnings.is_empty() && file.nodes.is_none());
    }

    #[test]
    fn two_tiers_are_a_leaf_spine() {
        let text = "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down \
                    4\nRadix_Up 2\nQueue_Up 100\nDownlink_Latency_ns 500\nTier \
                    1\nDownlink_speed_Gbps 100\nRadix_Down 2\nDownlink_Latency_ns 500\n";
        let file = read(text).unwrap();
        assert_eq!(file.graph.switches(), ["tor0", "tor1", "aggr0", "aggr1"]);
        assert_eq!(file.warnings.len(), 1, "{:?}", file.warnings);
    }

    #[test]
    fn mistakes_name_their_line() {
        let changed = |from: &str, to: &str| {
            assert!(THREE.contains(from));
            read(&THREE.replace(from, to)).unwrap_err().to_string()
        };
        let cases = [
            (changed("Podsize 4", "Podsize 3"), "line 1: 8 nodes are not pods of 3"),
            (changed("Podsize 4\n", ""), "line 1: expected `Nodes`, `Tiers` and"),
            (changed("Tiers 3", "Tiers 4"), "line 1: expected 2 or 3 tiers"),
            (changed("Tier 2\n", "Tier 3\n"), "line 19: expected tier 0, 1 or 2"),
            (changed("Radix_Up 4", "Radix_Up 3"), "line 12: `Radix_Up` is 3, no multiple of 2"),
            (changed("radix_down 4", "radix_down 8"), "line 19: `Radix_Down` is 8, but 2"),
            (changed("Radix_Up 2\n", ""), "line 5: this tier needs a `radix_up`"),
            (changed("Radix_Up 2", "Radix_Op 2"), "line 8: unknown name `Radix_Op`"),
            (changed("Radix_Up 2", "Radix_Up two"), "line 8: Radix_Up: expected a whole"),
            (changed("Tier 0\n", ""), "line 5: `Downlink_speed_Gbps` belongs behind"),
        ];
        for (error, said) in cases {
            assert!(error.starts_with(said), "{error}");
        }
        let huge = THREE.replace("Nodes 8", "Nodes 4000000000");
        let huge = read(&huge).unwrap_err().to_string();
        assert!(huge.starts_with("line 19: `Radix_Down`"), "{huge}");
    }
}
