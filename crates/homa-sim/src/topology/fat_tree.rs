//! Three tiers: the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008).

use super::{Physics, PortSpec, Routes, Tier, TreeSwitch, Wiring};

/// `k` pods of `k/2` TOR and `k/2` aggregation switches each, `k²/4` core switches. With
/// `oversubscription` 1 every TOR switch has `k/2` hosts and the network is non-blocking; with `n`
/// it has `n k/2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Ports of a switch; even, at least 2.
    pub k: u32,
    /// Hosts per uplink of a TOR switch.
    pub oversubscription: u32,
    /// Rates and delays.
    pub physics: Physics,
}

/// The numbers of nodes, and of the first port of each tier.
struct Numbers {
    half: u32,
    hosts: u32,
    tors: u32,
    tor_hosts: u32,
}

impl Numbers {
    fn tor(&self, pod: u32, i: u32) -> u32 {
        self.hosts + pod * self.half + i
    }

    fn aggr(&self, pod: u32, j: u32) -> u32 {
        self.hosts + self.tors + pod * self.half + j
    }

    /// Core switch `i` of the group that aggregation switches number `j` of all pods share.
    fn core(&self, j: u32, i: u32) -> u32 {
        self.hosts + 2 * self.tors + j * self.half + i
    }

    /// The first port of a tier: uplinks of hosts, downlinks to hosts, then four tiers of the same
    /// size.
    fn first(&self, tier: u32) -> u32 {
        2 * self.hosts + tier * self.tors * self.half
    }
}

impl FatTree {
    /// The number of hosts: `k³/4` times the oversubscription.
    pub fn hosts(&self) -> u32 {
        self.numbers().hosts
    }

    fn numbers(&self) -> Numbers {
        let half = (self.k / 2).max(1);
        let tors = 2 * half * half;
        let tor_hosts = half * self.oversubscription.max(1);
        Numbers { half, hosts: tors * tor_hosts, tors, tor_hosts }
    }

    /// Compiles. An odd `k` counts as the even number below, at least 2.
    pub fn wire(&self) -> Wiring {
        let n = &self.numbers();
        let switches = 2 * n.tors + n.half * n.half;
        Wiring::new(n.hosts, switches, self.ports(n), Routes::Tree(tree(n)))
    }

    fn ports(&self, n: &Numbers) -> Vec<PortSpec> {
        let physics = &self.physics;
        let (pods, half) = (2 * n.half, n.half);
        let tor_of = |host: u32| n.hosts + host / n.tor_hosts;
        let mut ports = Vec::with_capacity((2 * n.hosts + 4 * n.tors * half) as usize);
        ports.extend((0..n.hosts).map(|host| physics.host_up(host, tor_of(host))));
        ports.extend((0..n.hosts).map(|host| physics.tor_down(tor_of(host), host)));
        let pairs = || (0..half).flat_map(move |a| (0..half).map(move |b| (a, b)));
        let in_pods = || (0..pods).flat_map(move |pod| pairs().map(move |(a, b)| (pod, a, b)));
        ports.extend(
            in_pods().map(|(p, i, j)| physics.between(Tier::TorUp, n.tor(p, i), n.aggr(p, j))),
        );
        ports.extend(
            in_pods().map(|(p, j, i)| physics.between(Tier::AggrUp, n.aggr(p, j), n.core(j, i))),
        );
        for (j, i) in pairs() {
            ports.extend(
                (0..pods).map(|p| physics.between(Tier::CoreDown, n.core(j, i), n.aggr(p, j))),
            );
        }
        ports.extend(
            in_pods().map(|(p, j, i)| physics.between(Tier::AggrDown, n.aggr(p, j), n.tor(p, i))),
        );
        ports
    }
}

fn tree(n: &Numbers) -> Vec<TreeSwitch> {
    let (pods, half) = (2 * n.half, n.half);
    let pod_hosts = half * n.tor_hosts;
    let tors = (0..n.tors).map(|tor| TreeSwitch {
        first_host: tor * n.tor_hosts,
        hosts: n.tor_hosts,
        stride: 1,
        down: n.hosts + tor * n.tor_hosts,
        up: n.first(0) + tor * half,
        ups: half,
    });
    let aggrs = (0..n.tors).map(|aggr| TreeSwitch {
        first_host: aggr / half * pod_hosts,
        hosts: pod_hosts,
        stride: n.tor_hosts,
        down: n.first(3) + aggr * half,
        up: n.first(1) + aggr * half,
        ups: half,
    });
    let cores = (0..half * half).map(|core| TreeSwitch {
        first_host: 0,
        hosts: n.hosts,
        stride: pod_hosts,
        down: n.first(2) + core * pods,
        up: 0,
        ups: 0,
    });
    tors.chain(aggrs).chain(cores).collect()
}
