//! Three tiers: the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008).

use super::{Physics, Pods, Wiring};

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

impl FatTree {
    /// Its pods. An odd `k` counts as the even number below, at least 2.
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

    /// Compiles.
    pub fn wire(&self) -> Wiring {
        self.pods().wire()
    }
}
