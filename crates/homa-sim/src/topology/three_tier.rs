//! Three tiers of switches: pods of TOR and aggregation switches below core switches.

use super::{Physics, PortSpec, Routes, Tier, TreeSwitch, Wiring};

/// Pods of TOR and aggregation switches, each TOR connected once to every aggregation switch of its
/// pod; the aggregation switches of one number, one in each pod, share their core switches.
///
/// HULL's simulation (NSDI 2012 §6.3) has 8 pods of 4 TORs and 2 aggregation switches, 6 hosts per
/// TOR and 4 uplinks per aggregation switch: 192 hosts, 56 switches of 8 ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreeTier {
    /// Pods.
    pub pods: u32,
    /// TOR switches of a pod.
    pub tors: u32,
    /// Aggregation switches of a pod: uplinks of a TOR.
    pub aggrs: u32,
    /// Core switches that an aggregation switch is connected to.
    pub uplinks: u32,
    /// Hosts at a TOR.
    pub hosts_per_rack: u32,
    /// Rates and delays.
    pub physics: Physics,
}

impl ThreeTier {
    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.all_tors() * self.hosts_per_rack
    }

    fn all_tors(&self) -> u32 {
        self.pods * self.tors
    }

    fn all_aggrs(&self) -> u32 {
        self.pods * self.aggrs
    }

    fn cores(&self) -> u32 {
        self.aggrs * self.uplinks
    }

    fn tor(&self, pod: u32, i: u32) -> u32 {
        self.hosts() + pod * self.tors + i
    }

    fn aggr(&self, pod: u32, j: u32) -> u32 {
        self.hosts() + self.all_tors() + pod * self.aggrs + j
    }

    /// Core switch `i` of the group that aggregation switches number `j` of all pods share.
    fn core(&self, j: u32, i: u32) -> u32 {
        self.hosts() + self.all_tors() + self.all_aggrs() + j * self.uplinks + i
    }

    /// Compiles. Every number must be at least 1.
    pub fn wire(&self) -> Wiring {
        let switches = self.all_tors() + self.all_aggrs() + self.cores();
        Wiring::new(self.hosts(), switches, self.ports(), Routes::Tree(self.tree()))
    }

    /// The first ports: of TORs up, of aggregation switches up, of core switches down, of
    /// aggregation switches down.
    fn first_ports(&self) -> [u32; 4] {
        let tor_up = 2 * self.hosts();
        let aggr_up = tor_up + self.all_tors() * self.aggrs;
        let core_down = aggr_up + self.all_aggrs() * self.uplinks;
        [tor_up, aggr_up, core_down, core_down + self.cores() * self.pods]
    }

    fn ports(&self) -> Vec<PortSpec> {
        let Self { pods, tors, aggrs, uplinks, hosts_per_rack, ref physics } = *self;
        let hosts = self.hosts();
        let tor_of = |host: u32| hosts + host / hosts_per_rack;
        let [.., last] = self.first_ports();
        let mut ports = Vec::with_capacity((last + self.all_aggrs() * tors) as usize);
        ports.extend((0..hosts).map(|host| physics.host_up(host, tor_of(host))));
        ports.extend((0..hosts).map(|host| physics.tor_down(tor_of(host), host)));
        // A pod, and one of `a` with one of `b`.
        let in_pods = |a: u32, b: u32| {
            let pairs = move || (0..a).flat_map(move |i| (0..b).map(move |j| (i, j)));
            (0..pods).flat_map(move |pod| pairs().map(move |(i, j)| (pod, i, j)))
        };
        ports.extend(
            in_pods(tors, aggrs)
                .map(|(p, i, j)| physics.between(Tier::TorUp, self.tor(p, i), self.aggr(p, j))),
        );
        ports.extend(
            in_pods(aggrs, uplinks)
                .map(|(p, j, i)| physics.between(Tier::AggrUp, self.aggr(p, j), self.core(j, i))),
        );
        for (j, i) in (0..aggrs).flat_map(|j| (0..uplinks).map(move |i| (j, i))) {
            ports.extend(
                (0..pods)
                    .map(|p| physics.between(Tier::CoreDown, self.core(j, i), self.aggr(p, j))),
            );
        }
        ports.extend(
            in_pods(aggrs, tors)
                .map(|(p, j, i)| physics.between(Tier::AggrDown, self.aggr(p, j), self.tor(p, i))),
        );
        ports
    }

    fn tree(&self) -> Vec<TreeSwitch> {
        let Self { pods, tors, aggrs, uplinks, hosts_per_rack, .. } = *self;
        let hosts = self.hosts();
        let pod_hosts = tors * hosts_per_rack;
        let [tor_up, aggr_up, core_down, aggr_down] = self.first_ports();
        let lower = (0..self.all_tors()).map(|tor| TreeSwitch {
            first_host: tor * hosts_per_rack,
            hosts: hosts_per_rack,
            stride: 1,
            down: hosts + tor * hosts_per_rack,
            up: tor_up + tor * aggrs,
            ups: aggrs,
        });
        let middle = (0..self.all_aggrs()).map(|aggr| TreeSwitch {
            first_host: aggr / aggrs * pod_hosts,
            hosts: pod_hosts,
            stride: hosts_per_rack,
            down: aggr_down + aggr * tors,
            up: aggr_up + aggr * uplinks,
            ups: uplinks,
        });
        let upper = (0..self.cores()).map(|core| TreeSwitch {
            first_host: 0,
            hosts,
            stride: pod_hosts,
            down: core_down + core * pods,
            up: 0,
            ups: 0,
        });
        lower.chain(middle).chain(upper).collect()
    }
}
