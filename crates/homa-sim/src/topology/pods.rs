//! Three tiers of any size: pods of TOR and aggregation switches below core switches.

use homa_proto::Rate;

use super::{Physics, PortSpec, Routes, Tier, TreeSwitch, Wiring};

/// Pods in which every TOR switch is connected to every aggregation switch. Aggregation switches
/// with the same number in their pods share `cores` core switches, which no other switch reaches.
///
/// For example, HULL's simulation (NSDI 2012 §6.3) has 8 pods of 4 TORs and 2 aggregation switches,
/// 6 hosts per TOR and 4 core switches above each aggregation switch: 192 hosts and 56 switches of
/// 8 ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Number of pods; at least 1, like all counts below.
    pub pods: u32,
    /// TOR switches per pod.
    pub racks: u32,
    /// Hosts per TOR switch.
    pub hosts_per_rack: u32,
    /// Aggregation switches per pod.
    pub aggrs: u32,
    /// Core switches above each aggregation switch, so `aggrs` times as many in total.
    pub cores: u32,
    /// Rate between aggregation and core switches; if `None`, that of `physics` between switches.
    pub core_rate: Option<Rate>,
    /// Rates and delays.
    pub physics: Physics,
}

impl Pods {
    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.tors() * self.hosts_per_rack
    }

    fn tors(&self) -> u32 {
        self.pods * self.racks
    }

    fn tor(&self, pod: u32, i: u32) -> u32 {
        self.hosts() + pod * self.racks + i
    }

    fn aggr(&self, pod: u32, j: u32) -> u32 {
        self.hosts() + self.tors() + pod * self.aggrs + j
    }

    /// Core switch `i` of the group shared by the aggregation switches with number `j` in all pods.
    fn core(&self, j: u32, i: u32) -> u32 {
        self.hosts() + self.tors() + self.pods * self.aggrs + j * self.cores + i
    }

    /// The first port of a tier between switches: TOR up, aggregation up, core down, aggregation
    /// down.
    fn first(&self, tier: u32) -> u32 {
        let inner = self.tors() * self.aggrs;
        let outer = self.pods * self.aggrs * self.cores;
        let before = [0, inner, inner + outer, inner + 2 * outer];
        2 * self.hosts() + before[tier as usize]
    }

    /// Compiles the topology.
    pub fn wire(&self) -> Wiring {
        let switches = self.tors() + self.aggrs * (self.pods + self.cores);
        Wiring::new(self.hosts(), switches, self.ports(), Routes::Tree(self.tree()))
    }

    fn ports(&self) -> Vec<PortSpec> {
        let Self { pods, racks, aggrs, cores, physics, .. } = *self;
        let hosts = self.hosts();
        let outer =
            Physics { fabric_rate: self.core_rate.unwrap_or(physics.fabric_rate), ..physics };
        let tor_of = |host: u32| hosts + host / self.hosts_per_rack;
        let pairs = |n: u32, m: u32| (0..n).flat_map(move |a| (0..m).map(move |b| (a, b)));
        let in_pods = |n: u32, m: u32| {
            (0..pods).flat_map(move |pod| pairs(n, m).map(move |(a, b)| (pod, a, b)))
        };
        let mut ports = Vec::new();
        ports.extend((0..hosts).map(|host| physics.host_up(host, tor_of(host))));
        ports.extend((0..hosts).map(|host| physics.tor_down(tor_of(host), host)));
        ports.extend(
            in_pods(racks, aggrs)
                .map(|(p, i, j)| physics.between(Tier::TorUp, self.tor(p, i), self.aggr(p, j))),
        );
        ports.extend(
            in_pods(aggrs, cores)
                .map(|(p, j, i)| outer.between(Tier::AggrUp, self.aggr(p, j), self.core(j, i))),
        );
        for (j, i) in pairs(aggrs, cores) {
            ports.extend(
                (0..pods).map(|p| outer.between(Tier::CoreDown, self.core(j, i), self.aggr(p, j))),
            );
        }
        ports.extend(
            in_pods(aggrs, racks)
                .map(|(p, j, i)| physics.between(Tier::AggrDown, self.aggr(p, j), self.tor(p, i))),
        );
        ports
    }

    fn tree(&self) -> Vec<TreeSwitch> {
        let Self { pods, racks, hosts_per_rack, aggrs, cores, .. } = *self;
        let hosts = self.hosts();
        let pod_hosts = racks * hosts_per_rack;
        let tors = (0..self.tors()).map(|tor| TreeSwitch {
            first_host: tor * hosts_per_rack,
            hosts: hosts_per_rack,
            stride: 1,
            down: hosts + tor * hosts_per_rack,
            up: self.first(0) + tor * aggrs,
            ups: aggrs,
        });
        let aggrs_of_all = (0..pods * aggrs).map(|aggr| TreeSwitch {
            first_host: aggr / aggrs * pod_hosts,
            hosts: pod_hosts,
            stride: hosts_per_rack,
            down: self.first(3) + aggr * racks,
            up: self.first(1) + aggr * cores,
            ups: cores,
        });
        let cores_of_all = (0..aggrs * cores).map(|core| TreeSwitch {
            first_host: 0,
            hosts,
            stride: pod_hosts,
            down: self.first(2) + core * pods,
            up: 0,
            ups: 0,
        });
        tors.chain(aggrs_of_all).chain(cores_of_all).collect()
    }
}
