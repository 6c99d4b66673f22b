//! Topologies: nodes, links, rates and delays, as descriptions that compile into [`Wiring`].
//!
//! A cable is two directed links; a *port* is the sending end of one. Each link has a rate and one
//! fixed delay, which includes all pure latency: propagation, the traversal of the switch at its
//! far end, and software and NICs of hosts. Invariants of every wiring: port `h` is host `h`'s
//! uplink, and port `hosts + h` is the downlink to it; routes never loop and reach every host.

mod division;
mod fat_tree;
pub mod files;
mod graph;
mod ideal;
mod leaf_spine;
mod pods;
mod routes;

pub(crate) use division::Division;
pub use fat_tree::FatTree;
pub use graph::{Graph, GraphError, GraphFault};
pub use leaf_spine::{LeafSpine, SingleSwitch};
pub use pods::Pods;
pub(crate) use routes::{Choices, RouteTable, Routes, TreeSwitch};

use std::collections::BTreeSet;

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// A host's number, which is also its [`homa_proto::PeerId`] for applications and probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// The sending end of a directed link: an index into [`Wiring::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A host or a switch: hosts first, then switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A port's place in the hierarchy: the rows of queue-length tables (Homa §5.2 Table 1).
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
    /// All tiers, in the order from sender to receiver.
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
    /// The sending node.
    pub from: NodeId,
    /// The receiving node.
    pub to: NodeId,
    /// Place in the hierarchy.
    pub tier: Tier,
    /// Rate.
    pub rate: Rate,
    /// Time from the last bit leaving the port to its processing at the other end.
    pub delay: SimDuration,
}

impl PortSpec {
    /// False if the engine cannot simulate the link with such frames; see [`Wiring::unfit`].
    pub fn fits(&self, frame: u32) -> bool {
        let serialisation = LinkRate::new(self.rate).serialisation(frame);
        serialisation.0.saturating_add(self.delay.0) <= u64::from(u32::MAX)
    }
}

/// Rates and delays of the links of regular topologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Physics {
    /// Rate between hosts and switches.
    pub host_rate: Rate,
    /// Rate between switches.
    pub fabric_rate: Rate,
    /// Delay of the sending host: software and NIC.
    pub sender_delay: SimDuration,
    /// Delay of each switch traversed.
    pub switch_delay: SimDuration,
    /// Delay of the receiving host.
    pub receiver_delay: SimDuration,
    /// Delay of each cable.
    pub propagation: SimDuration,
}

impl Physics {
    /// Homa §5.2 as its authors simulated it: 10 and 40 Gbit/s; 0.5 us of software at each host and
    /// 0.5 us in the sender's NIC; 0.25 us per switch; no propagation delay.
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

    /// Every link has the same delay, and there are no other delays.
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

    /// The routing of switches.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The first port whose link is too slow or too long for the engine, if any: the largest frame,
    /// of `frame` wire bytes, must arrive within 4.29 ms, which is 2^32 ps.
    pub fn unfit(&self, frame: u32) -> Option<PortId> {
        self.ports.iter().position(|port| !port.fits(frame)).map(|at| PortId(at as u32))
    }

    /// Recomputes the routes over the ports that are `alive`.
    pub(crate) fn reroute(&mut self, alive: &[bool]) {
        let table = RouteTable::new((self.hosts, self.switches), &self.ports, alive);
        self.routes = Routes::Table(table);
    }

    /// The same network with a longer delay of every link.
    #[cfg(test)]
    pub(crate) fn delayed(mut self, mut longer: impl FnMut() -> SimDuration) -> Self {
        self.ports.iter_mut().for_each(|port| port.delay = port.delay + longer());
        self
    }

    /// The link from `host` into the network.
    pub fn uplink(&self, host: HostId) -> PortId {
        PortId(host.0)
    }

    /// The last link to `host`.
    pub fn downlink(&self, host: HostId) -> PortId {
        PortId(self.hosts + host.0)
    }

    /// Number of shortest paths between distant hosts, for senders that number them
    /// ([`crate::fabric::Forwarding::Source`]). In trees these are all paths; in other networks,
    /// whose switches hash the number, enough numbers to reach most paths.
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

    /// What all hosts can send, in thousandths of what the links between switches carry: those of
    /// the tier that carries least, or, in a graph without tiers, those of the hosts' switches. At
    /// least 1000.
    pub fn oversubscription(&self) -> u32 {
        let rate = |counts: &dyn Fn(&PortSpec) -> bool| {
            let ports = self.ports.iter().filter(|port| counts(port));
            ports.map(|port| u128::from(port.rate.0)).sum::<u128>()
        };
        let hosts = rate(&|port| port.tier == Tier::HostUp);
        let leaves: BTreeSet<NodeId> =
            self.ports.iter().filter(|port| port.from.0 < self.hosts).map(|port| port.to).collect();
        let tier = |tier| rate(&|port| port.tier == tier);
        let graph = rate(&|port| port.tier == Tier::Fabric && leaves.contains(&port.from));
        let tiers = [tier(Tier::TorUp), tier(Tier::AggrUp), graph];
        let least = tiers.into_iter().filter(|rate| *rate > 0).min();
        let ratio = least.map_or(1_000, |least| hosts * 1_000 / least);
        u32::try_from(ratio).unwrap_or(u32::MAX).max(1_000)
    }

    /// The port from one node to another, if they are neighbours.
    pub fn port_between(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        let at = self.ports.iter().position(|port| (port.from, port.to) == (from, to))?;
        Some(PortId(at as u32))
    }
}

#[cfg(test)]
mod tests;
