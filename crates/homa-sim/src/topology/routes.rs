//! Which ports lead to a host: by arithmetic in trees, by a table of all shortest paths elsewhere
//! and where links have failed.

use super::PortSpec;

/// A switch of a tree: hosts below it have one way down, all others any way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeSwitch {
    /// The first host below.
    pub first_host: u32,
    /// How many hosts are below.
    pub hosts: u32,
    /// Hosts below each port down.
    pub stride: u32,
    /// The first port down.
    pub down: u32,
    /// The first port up.
    pub up: u32,
    /// How many ports up.
    pub ups: u32,
}

/// The ports that a switch may choose from: consecutive numbers, or consecutive entries of the
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    /// The first.
    pub first: u32,
    /// How many; 0: no way.
    pub count: u32,
    /// Entries of the table.
    pub listed: bool,
}

impl Choices {
    const NONE: Self = Self { first: 0, count: 0, listed: false };
}

/// How switches choose. See [`super::Wiring::routes`].
#[derive(Clone, Debug)]
pub(crate) enum Routes {
    /// By arithmetic.
    Tree(Vec<TreeSwitch>),
    /// Looked up.
    Table(RouteTable),
}

/// For every switch and every switch that has hosts, the ports on shortest paths.
#[derive(Clone, Debug)]
pub(crate) struct RouteTable {
    /// By host: the number of its leaf.
    leaf_of: Vec<u32>,
    /// By leaf: which switch it is.
    leaves: Vec<u32>,
    /// By host: the port down to it, unless that has failed.
    down: Vec<Option<u32>>,
    /// By switch and leaf: where its entries begin in `ports`; one more at the end.
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
        // Between switches, by sender.
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

/// Links from every switch to `leaf`; `MAX`: no way.
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
    /// The ports of `switch` (0 the first) on shortest paths to host `to`.
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
