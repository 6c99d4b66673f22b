//! Paths between hosts. The idle time of a message depends on its path and size.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::topology::{HostId, NodeId, PortSpec, Wiring};

/// Number of switches between two hosts of a regular network.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// Hosts per TOR switch.
    pub rack: u32,
    /// Hosts per pod, below the same aggregation switches; in a network of two tiers, all hosts.
    pub pod: u32,
}

impl Distance {
    /// Number of switches from one host to another.
    pub fn switches(self, a: u32, b: u32) -> u32 {
        if a / self.rack == b / self.rack {
            1
        } else if a / self.pod == b / self.pod {
            3
        } else {
            5
        }
    }
}

/// Paths between hosts; equal paths have one number.
#[derive(Clone, Debug)]
pub enum HostPaths {
    /// Numbered by their switches.
    Regular(Distance),
    /// Numbered by [`Classes`].
    Listed(Arc<Classes>),
}

impl From<Distance> for HostPaths {
    fn from(distance: Distance) -> Self {
        Self::Regular(distance)
    }
}

impl HostPaths {
    /// Number of the path from one host to another.
    pub fn number(&self, a: u32, b: u32) -> u32 {
        match self {
            Self::Regular(distance) => distance.switches(a, b),
            Self::Listed(classes) => classes.number(a, b),
        }
    }

    /// Two of `hosts` hosts with a path of that number between them.
    pub fn example(&self, number: u32, hosts: u32) -> (u32, u32) {
        match self {
            Self::Regular(distance) => {
                let found = (1..hosts).find(|&dst| distance.switches(0, dst) == number);
                (0, found.unwrap_or(hosts - 1))
            }
            Self::Listed(classes) => classes.examples[number as usize],
        }
    }
}

/// The paths of any network. Two paths are equal if the links on the first of their shortest paths
/// have the same rates and delays, one by one.
#[derive(Clone, Debug)]
pub struct Classes {
    /// By host: its group of hosts that have equal links to the same switch.
    group: Vec<u32>,
    groups: u32,
    /// By groups of sender and receiver.
    class: Vec<u32>,
    /// By class: two hosts.
    pub examples: Vec<(u32, u32)>,
}

impl Classes {
    /// Classifies the paths of a network.
    pub fn of(wiring: &Wiring) -> Self {
        let mut known: BTreeMap<(NodeId, [u64; 4]), u32> = BTreeMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let ports = wiring.ports();
        let group: Vec<u32> = (0..wiring.hosts())
            .map(|host| {
                let up = &ports[wiring.uplink(HostId(host)).0 as usize];
                let down = &ports[wiring.downlink(HostId(host)).0 as usize];
                let kind = [up.rate.0, up.delay.0, down.rate.0, down.delay.0];
                let next = known.len() as u32;
                let group = *known.entry((up.to, kind)).or_insert(next);
                members.resize(known.len(), Vec::new());
                members[group as usize].push(host);
                group
            })
            .collect();
        let groups = members.len() as u32;
        let mut numbers: BTreeMap<Vec<(u64, u64)>, u32> = BTreeMap::new();
        let mut examples = Vec::new();
        let mut class = Vec::with_capacity((groups * groups) as usize);
        for (a, b) in (0..groups).flat_map(|a| (0..groups).map(move |b| (a, b))) {
            let src = members[a as usize][0];
            let Some(&dst) = members[b as usize].iter().find(|&&dst| dst != src) else {
                // A group of one host, which does not send to itself.
                class.push(0);
                continue;
            };
            let link = |port: &PortSpec| (port.rate.0, port.delay.0);
            let path = wiring.path(HostId(src), HostId(dst));
            let path = path.iter().map(|port| link(&ports[port.0 as usize])).collect();
            let next = numbers.len() as u32;
            let number = *numbers.entry(path).or_insert(next);
            if number == next {
                examples.push((src, dst));
            }
            class.push(number);
        }
        Self { group, groups, class, examples }
    }

    fn number(&self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.group[a as usize], self.group[b as usize]);
        self.class[(a * self.groups + b) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Graph;

    #[test]
    fn equal_paths_have_one_number() {
        // Two hosts at switch a, two at b, and a slower host alone at b.
        let list = "h0,a,10,500\nh1,a,10,500\nh2,b,10,500\nh3,b,10,500\nh4,b,1,500\na,b,40,250\n";
        let classes = Classes::of(&Graph::from_csv(list).unwrap().wire());
        let paths = HostPaths::Listed(Arc::new(classes));
        assert_eq!(paths.number(0, 1), paths.number(3, 2), "within either rack");
        assert_eq!(paths.number(0, 2), paths.number(3, 1), "across, either path");
        let all: Vec<u32> = [(0, 1), (0, 2), (0, 4), (4, 0), (2, 4), (4, 2)]
            .map(|(a, b)| paths.number(a, b))
            .to_vec();
        let mut different = all.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), all.len(), "{all:?}");
        for number in different {
            let (a, b) = paths.example(number, 5);
            assert_eq!(paths.number(a, b), number);
        }
    }
}
