//! Two tiers, in which every TOR switch has one link to every spine; and one tier, a single switch.

use super::{Physics, PortSpec, Routes, Tier, TreeSwitch, Wiring};

/// Racks of hosts under TOR switches, joined by spine (aggregation) switches. The network is
/// oversubscribed if `hosts_per_rack * host_rate > spines * fabric_rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// TOR switches.
    pub racks: u32,
    /// Hosts per rack.
    pub hosts_per_rack: u32,
    /// Spine switches.
    pub spines: u32,
    /// Rates and delays.
    pub physics: Physics,
}

impl LeafSpine {
    /// The 144 hosts of Homa §5.2: 9 racks of 16, 4 spines.
    pub const fn homa() -> Self {
        Self { racks: 9, hosts_per_rack: 16, spines: 4, physics: Physics::homa() }
    }

    /// Compiles the topology. Counts of zero count as one.
    pub fn wire(&self) -> Wiring {
        let (racks, each) = (self.racks.max(1), self.hosts_per_rack.max(1));
        let spines = self.spines.max(1);
        let hosts = racks * each;
        let (tor, spine) = (|rack: u32| hosts + rack, |s: u32| hosts + racks + s);
        let physics = &self.physics;
        let mut ports: Vec<PortSpec> = Vec::with_capacity((2 * (hosts + racks * spines)) as usize);
        ports.extend((0..hosts).map(|host| physics.host_up(host, tor(host / each))));
        ports.extend((0..hosts).map(|host| physics.tor_down(tor(host / each), host)));
        for rack in 0..racks {
            ports.extend((0..spines).map(|s| physics.between(Tier::TorUp, tor(rack), spine(s))));
        }
        let aggr_down = ports.len() as u32;
        for s in 0..spines {
            ports.extend(
                (0..racks).map(|rack| physics.between(Tier::AggrDown, spine(s), tor(rack))),
            );
        }
        let tors = (0..racks).map(|rack| TreeSwitch {
            first_host: rack * each,
            hosts: each,
            stride: 1,
            down: hosts + rack * each,
            up: 2 * hosts + rack * spines,
            ups: spines,
        });
        let tops = (0..spines).map(|s| TreeSwitch {
            first_host: 0,
            hosts,
            stride: each,
            down: aggr_down + s * racks,
            up: 0,
            ups: 0,
        });
        let routes = Routes::Tree(tors.chain(tops).collect());
        Wiring::new(hosts, racks + spines, ports, routes)
    }
}

/// Hosts around one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleSwitch {
    /// Number of hosts.
    pub hosts: u32,
    /// Rates and delays; `fabric_rate` is unused.
    pub physics: Physics,
}

impl SingleSwitch {
    /// Compiles the topology. Zero hosts count as one.
    pub fn wire(&self) -> Wiring {
        let hosts = self.hosts.max(1);
        let ups = (0..hosts).map(|host| self.physics.host_up(host, hosts));
        let downs = (0..hosts).map(|host| self.physics.tor_down(hosts, host));
        let only = TreeSwitch { first_host: 0, hosts, stride: 1, down: hosts, up: 0, ups: 0 };
        Wiring::new(hosts, 1, ups.chain(downs).collect(), Routes::Tree(vec![only]))
    }
}
