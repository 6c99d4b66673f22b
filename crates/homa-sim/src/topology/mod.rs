//! Who is wired to whom, how fast, how far: descriptions that compile into [`Wiring`].
//!
//! A cable is two directed links; a *port* is the sending end of one. Each link has a rate and one
//! fixed delay, into which everything that is pure latency is folded: propagation, the switch's
//! traversal at its far end, the software and NIC of hosts. Invariants of every wiring: port `h` is
//! host `h`'s uplink and port `hosts + h` the link down to it; routes never loop and reach every
//! host.

mod fat_tree;
mod graph;
mod ideal;
mod leaf_spine;
mod pods;
mod routes;

pub use fat_tree::FatTree;
pub use graph::{Graph, GraphError, GraphFault};
pub use leaf_spine::{LeafSpine, SingleSwitch};
pub use pods::Pods;
pub(crate) use routes::{Choices, RouteTable, Routes, TreeSwitch};

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// A host's number, also its [`homa_proto::PeerId`] as applications and probes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// The sending end of a directed link: an index into [`Wiring::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A host or a switch: hosts first, then switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Where in the hierarchy a port sends: the rows of queue-length tables (Homa §5.2 Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A host's NIC to its TOR switch.
    HostUp,
    /// TOR switch to aggregation switch (spine).
    TorUp,
    /// Aggregation switch to core switch (three tiers only).
    AggrUp,
    /// Core switch to aggregation switch (three tiers only).
    CoreDown,
    /// Aggregation switch (spine) to TOR switch.
    AggrDown,
    /// TOR switch to host.
    TorDown,
    /// Switch to switch in a graph without tiers.
    Fabric,
}

impl Tier {
    /// All tiers, from sender to receiver.
    pub const ALL: [Self; 7] = [
        Self::HostUp,
        Self::TorUp,
        Self::AggrUp,
        Self::CoreDown,
        Self::AggrDown,
        Self::TorDown,
        Self::Fabric,
    ];

    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostUp => "host_up",
            Self::TorUp => "tor_up",
            Self::AggrUp => "aggr_up",
            Self::CoreDown => "core_down",
            Self::AggrDown => "aggr_down",
            Self::TorDown => "tor_down",
            Self::Fabric => "fabric",
        }
    }
}

/// A directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Who sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// Where in the hierarchy.
    pub tier: Tier,
    /// Rate.
    pub rate: Rate,
    /// From the last bit's leaving the port to its being acted upon at the other end.
    pub delay: SimDuration,
}

impl PortSpec {
    /// False when the engine cannot carry the link: see [`Wiring::unfit`].
    pub fn fits(&self) -> bool {
        let serialisation = LinkRate::new(self.rate).serialisation(JUMBO);
        serialisation.0.saturating_add(self.delay.0) <= u64::from(u32::MAX)
    }
}

/// The delays and rates from which regular topologies make their links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Physics {
    /// Between hosts and switches.
    pub host_rate: Rate,
    /// Between switches.
    pub fabric_rate: Rate,
    /// Of the sending host: software and NIC.
    pub sender_delay: SimDuration,
    /// Of each switch traversed.
    pub switch_delay: SimDuration,
    /// Of the receiving host.
    pub receiver_delay: SimDuration,
    /// Of each cable.
    pub propagation: SimDuration,
}

impl Physics {
    /// Homa §5.2 as its authors simulated it: 10 and 40 Gbit/s; 0.5 us of software at either host
    /// and 0.5 us in the sender's NIC; 0.25 us per switch; no propagation.
    pub const fn homa() -> Self {
        Self {
            host_rate: Rate::gbps(10),
            fabric_rate: Rate::gbps(40),
            sender_delay: SimDuration::micros(1),
            switch_delay: SimDuration::nanos(250),
            receiver_delay: SimDuration::nanos(500),
            propagation: SimDuration::ZERO,
        }
    }

    /// Every link has the same delay and nothing else takes time.
    pub const fn uniform(host_rate: Rate, fabric_rate: Rate, delay: SimDuration) -> Self {
        Self {
            host_rate,
            fabric_rate,
            sender_delay: SimDuration::ZERO,
            switch_delay: SimDuration::ZERO,
            receiver_delay: SimDuration::ZERO,
            propagation: delay,
        }
    }

    fn host_up(&self, from: u32, to: u32) -> PortSpec {
        PortSpec {
            from: NodeId(from),
            to: NodeId(to),
            tier: Tier::HostUp,
            rate: self.host_rate,
            delay: self.sender_delay + self.propagation + self.switch_delay,
        }
    }

    fn between(&self, tier: Tier, from: u32, to: u32) -> PortSpec {
        PortSpec {
            from: NodeId(from),
            to: NodeId(to),
            tier,
            rate: self.fabric_rate,
            delay: self.propagation + self.switch_delay,
        }
    }

    fn tor_down(&self, from: u32, to: u32) -> PortSpec {
        PortSpec {
            from: NodeId(from),
            to: NodeId(to),
            tier: Tier::TorDown,
            rate: self.host_rate,
            delay: self.propagation + self.receiver_delay,
        }
    }
}

/// Wire bytes of the longest frame that Ethernet switches commonly take.
const JUMBO: u32 = 9_038;

/// A compiled topology.
#[derive(Clone, Debug)]
pub struct Wiring {
    hosts: u32,
    switches: u32,
    ports: Vec<PortSpec>,
    routes: Routes,
}

impl Wiring {
    fn new(hosts: u32, switches: u32, ports: Vec<PortSpec>, routes: Routes) -> Self {
        Self { hosts, switches, ports, routes }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of switches.
    pub fn switches(&self) -> u32 {
        self.switches
    }

    /// All directed links, by [`PortId`].
    pub fn ports(&self) -> &[PortSpec] {
        &self.ports
    }

    /// How switches choose.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The first port, if any, whose link is too slow or too long for the engine: a frame of 9,038
    /// bytes (jumbo) must be there after 4.29 ms, which is 2^32 ps.
    pub fn unfit(&self) -> Option<PortId> {
        self.ports.iter().position(|port| !port.fits()).map(|at| PortId(at as u32))
    }

    /// Finds new routes that use only the ports that are `alive`.
    pub(crate) fn reroute(&mut self, alive: &[bool]) {
        let table = RouteTable::new((self.hosts, self.switches), &self.ports, alive);
        self.routes = Routes::Table(table);
    }

    /// The link from `host` into the network.
    pub fn uplink(&self, host: HostId) -> PortId {
        PortId(host.0)
    }

    /// The last link to `host`.
    pub fn downlink(&self, host: HostId) -> PortId {
        PortId(self.hosts + host.0)
    }

    /// Shortest paths between distant hosts, as senders that number them count
    /// ([`crate::fabric::Forwarding::Source`]): all of a tree's; in other networks, where switches
    /// hash the number, enough numbers to reach most.
    pub fn paths(&self) -> u32 {
        let ups = |tier| {
            let of_tier = self.ports.iter().filter(|port| port.tier == tier);
            let first = of_tier.clone().next().map(|port| port.from);
            of_tier.filter(|port| Some(port.from) == first).count().max(1) as u32
        };
        match self.ports.iter().any(|port| port.tier == Tier::Fabric) {
            true => 64,
            false => ups(Tier::TorUp) * ups(Tier::AggrUp),
        }
    }

    /// The port from one node to another, if they are neighbours.
    pub fn port_between(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        let at = self.ports.iter().position(|port| (port.from, port.to) == (from, to))?;
        Some(PortId(at as u32))
    }
}

#[cfg(test)]
mod tests;
