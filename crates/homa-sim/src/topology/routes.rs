//! Routes to a host: computed in trees, and looked up in a table of all shortest paths in other
//! networks and after a link has failed.

use super::PortSpec;

/// A switch of a tree: one port leads down to each host below it, and any port up to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeSwitch {
    /// The first host below.
    pub first_host: u32,
    /// Number of hosts below.
    pub hosts: u32,
    /// Hosts below each port down.
    pub stride: u32,
    /// The first port down.
    pub down: u32,
    /// The first port up.
    pub up: u32,
    /// Number of ports up.
    pub ups: u32,
}

/// The ports among which a switch may choose: consecutive numbers, or consecutive entries of the
/// route table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    /// The first port or entry.
    pub first: u32,
    /// Number of ports; 0 if no path exists.
    pub count: u32,
    /// These are entries of the table.
    pub listed: bool,
}

impl Choices {
    const NONE: Self = Self { first: 0, count: 0, listed: false };
}

/// The routing of switches; see [`super::Wiring::routes`].
#[derive(Clone, Debug)]
pub(crate) enum Routes {
    /// Computed from numbers.
    Tree(Vec<TreeSwitch>),
    /// Looked up.
    Table(RouteTable),
}

/// The ports on shortest paths, for every pair of a switch and a switch with hosts (leaf).
#[derive(Clone, Debug)]
pub(crate) struct RouteTable {
    /// By host: the number of its leaf.
    leaf_of: Vec<u32>,
    /// By leaf: its switch.
    leaves: Vec<u32>,
    /// By host: the port down to it, unless its link is down.
    down: Vec<Option<u32>>,
    /// By switch and leaf: start of its entries in `ports`, and the end of the last.
    starts: Vec<u32>,
    ports: Vec<u32>,
}

impl RouteTable {
    /// All shortest paths over the ports that are `alive`.
    pub fn new((hosts, switches): (u32, u32), ports: &[PortSpec], alive: &[bool]) -> Self {
        let up = |host: u32| ports[host as usize].to.0 - hosts;
        let mut leaves: Vec<u32> = (0..hosts).map(up).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let leaf_of = (0..hosts).map(|host| leaves.partition_point(|&l| l < up(host)) as u32);
        let leaf_of = leaf_of.collect();
        let down = (0..hosts).map(|h| alive[(hosts + h) as usize].then_some(hosts + h)).collect();
        // Links between switches, by sender.
        let between: Vec<(u32, u32, u32)> = (0..)
            .zip(ports)
            .skip(2 * hosts as usize)
            .filter(|(index, _)| alive[*index as usize])
            .map(|(index, port)| (port.from.0 - hosts, port.to.0 - hosts, index))
            .collect();
        let distances: Vec<Vec<u32>> =
            leaves.iter().map(|&leaf| distances(leaf, switches, &between)).collect();
        let mut by_sender = between;
        by_sender.sort_unstable();
        let (mut starts, mut list) = (Vec::new(), Vec::new());
        for switch in 0..switches {
            let first = by_sender.partition_point(|link| link.0 < switch);
            let own = by_sender[first..].iter().take_while(|link| link.0 == switch);
            for far in &distances {
                starts.push(list.len() as u32);
                let here = far[switch as usize];
                let nearer = own.clone().filter(|link| {
                    here != u32::MAX && far[link.1 as usize].checked_add(1) == Some(here)
                });
                list.extend(nearer.map(|link| link.2));
            }
        }
        starts.push(list.len() as u32);
        Self { leaf_of, leaves, down, starts, ports: list }
    }

    fn choices(&self, switch: u32, to: u32) -> Choices {
        let Some(&leaf) = self.leaf_of.get(to as usize) else { return Choices::NONE };
        if self.leaves[leaf as usize] == switch {
            let down = self.down[to as usize];
            return down.map_or(Choices::NONE, |first| Choices { first, count: 1, listed: false });
        }
        let at = switch as usize * self.leaves.len() + leaf as usize;
        let (first, end) = (self.starts[at], self.starts[at + 1]);
        Choices { first, count: end - first, listed: true }
    }
}

/// Number of links from every switch to `leaf`; `MAX` if no path exists.
fn distances(leaf: u32, switches: u32, links: &[(u32, u32, u32)]) -> Vec<u32> {
    let mut backwards: Vec<Vec<u32>> = vec![Vec::new(); switches as usize];
    for &(from, to, _) in links {
        backwards[to as usize].push(from);
    }
    let mut far = vec![u32::MAX; switches as usize];
    far[leaf as usize] = 0;
    let mut reached = vec![leaf];
    let mut next = 0;
    while let Some(&at) = reached.get(next) {
        next += 1;
        for &from in &backwards[at as usize] {
            if far[from as usize] == u32::MAX {
                far[from as usize] = far[at as usize] + 1;
                reached.push(from);
            }
        }
    }
    far
}

impl Routes {
    /// The ports of `switch` (numbered from 0) on shortest paths to host `to`.
    #[inline]
    pub(crate) fn choices(&self, switch: u32, to: u32) -> Choices {
        match self {
            Self::Tree(switches) => {
                let at = &switches[switch as usize];
                let below = to.wrapping_sub(at.first_host);
                if below < at.hosts {
                    let child = if at.stride == 1 { below } else { below / at.stride };
                    Choices { first: at.down + child, count: 1, listed: false }
                } else {
                    Choices { first: at.up, count: at.ups, listed: false }
                }
            }
            Self::Table(table) => table.choices(switch, to),
        }
    }

    /// The port of choice number `chosen`.
    #[inline]
    pub(crate) fn port(&self, choices: Choices, chosen: u32) -> u32 {
        match self {
            Self::Table(table) if choices.listed => table.ports[(choices.first + chosen) as usize],
            _ => choices.first + chosen,
        }
    }
}
