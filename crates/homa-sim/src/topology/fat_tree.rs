//! Three tiers: the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008).

use super::{Physics, Pods, Wiring};

/// `k` pods of `k/2` TOR and `k/2` aggregation switches each, and `k²/4` core switches. Every TOR
/// switch has `oversubscription` x `k/2` hosts; if that factor is 1, the network is non-blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Ports of a switch; even, at least 2.
    pub k: u32,
    /// Hosts per uplink of a TOR switch.
    pub oversubscription: u32,
    /// Rates and delays.
    pub physics: Physics,
}

impl FatTree {
    /// The pods of this tree. An odd `k` counts as the even number below, at least 2.
    pub fn pods(&self) -> Pods {
        let half = (self.k / 2).max(1);
        Pods {
            pods: 2 * half,
            racks: half,
            hosts_per_rack: half * self.oversubscription.max(1),
            aggrs: half,
            cores: half,
            core_rate: None,
            physics: self.physics,
        }
    }

    /// The number of hosts: `k³/4` times the oversubscription.
    pub fn hosts(&self) -> u32 {
        self.pods().hosts()
    }

    /// Compiles the topology.
    pub fn wire(&self) -> Wiring {
        self.pods().wire()
    }
}
