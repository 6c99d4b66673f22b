//! A rack of hosts behind one switch, inside this process.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use homa_proto::Rate;
use homa_sim::fabric::Forwarding;
use homa_sim::topology::{LeafSpine, NodeId, Physics, SingleSwitch, Wiring};
use homa_sim::{LinkRate, SimDuration};
use homa_workload::framing::Framing;

use crate::link::{KERNEL_RTO_MIN, TCP_RTO_MIN, address, connect_host};
use crate::placement::Placement;
use crate::switch::{
    FabricConfig, Faults, LinkChange, Marking, Switch, SwitchConfig, SwitchInterval,
};
use crate::{Isolation, Namespace, Pauses, TestbedError};

/// How the hosts of a rack are wired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// All at one switch.
    #[default]
    SingleSwitch,
    /// Half of them at each of two leaf switches, each joined to each of two spine switches by a
    /// link of the hosts' rate.
    LeafSpine,
}

/// Leaf switches, and spine switches, of [`Topology::LeafSpine`].
pub const LEAVES: u32 = 2;

/// A link between a leaf and a spine switch that becomes slower or fails under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// Which leaf switch, from 0.
    pub leaf: u32,
    /// Which spine switch, from 0.
    pub spine: u32,
    /// Remaining share of its rate, per cent; 0: it fails.
    pub percent: u32,
    /// Time after the start of the load.
    pub after: Duration,
}

/// The configuration of a rack, the same for every transport that is compared on it.
#[derive(Clone, Debug, PartialEq)]
pub struct RackConfig {
    /// Hosts, 2 to 250. Default 5, because more hosts need more than two cores.
    pub hosts: usize,
    /// How they are wired. Default one switch.
    pub topology: Topology,
    /// How switches choose among paths.
    pub forwarding: Forwarding,
    /// Links that change under load, in the order of time. Default none.
    pub degraded: Vec<Degraded>,
    /// Rate of every link. Default 100 Mbit/s, so that two cores keep up with five hosts.
    pub link: Rate,
    /// Propagation delay from a host to its first switch, at most a second. Frames to a host have
    /// none, so that a round trip contains it twice. Default 0.
    pub uplink_delay: Duration,
    /// Buffer of every switch port, wire bytes, shared by all priorities. Default 131,072.
    pub buffer_bytes: u64,
    /// Marking of congestion by the switch. Default none.
    pub marking: Marking,
    /// Faults that the switch injects. Default none.
    pub faults: Faults,
}

impl Default for RackConfig {
    fn default() -> Self {
        Self {
            hosts: 5,
            topology: Topology::default(),
            forwarding: Forwarding::default(),
            degraded: Vec::new(),
            link: Rate::mbps(100),
            uplink_delay: Duration::ZERO,
            buffer_bytes: 131_072,
            marking: Marking::default(),
            faults: Faults::default(),
        }
    }
}

impl RackConfig {
    /// Refuses a configuration that cannot be built.
    pub fn validate(&self) -> Result<(), TestbedError> {
        let refuse = |text: &str| Err(TestbedError::Config(text.into()));
        if !(2..=250).contains(&self.hosts) {
            return refuse("a rack has 2 to 250 hosts: choose --hosts in that range");
        }
        if !(1_000_000..=10_000_000_000).contains(&self.link.0) {
            return refuse("a link has 1 Mbit/s to 10 Gbit/s: choose --link in that range");
        }
        if self.uplink_delay > Duration::from_secs(1) {
            return refuse("a frame is at most a second on its way to a switch");
        }
        if self.topology == Topology::LeafSpine && (!self.hosts.is_multiple_of(2) || self.hosts < 4)
        {
            return refuse("two leaf switches share the hosts: choose --hosts even, at least 4");
        }
        if self.topology == Topology::SingleSwitch && !self.degraded.is_empty() {
            return refuse("only links between switches can be degraded: add --fabric leaf-spine");
        }
        let unknown = |d: &Degraded| d.leaf >= LEAVES || d.spine >= LEAVES || d.percent >= 100;
        if self.degraded.iter().any(unknown) {
            return refuse(
                "a degraded link joins leaf 0 or 1 and spine 0 or 1 and keeps 0 to 99 %",
            );
        }
        if self.buffer_bytes < 1538 {
            return refuse("a port's buffer must hold one full frame: at least 1538 bytes");
        }
        if self.marking.phantom.is_some_and(|queue| !(1..=1_000_000).contains(&queue.drain_ppm)) {
            return refuse("a phantom queue drains at more than 0 and at most the link's rate");
        }
        let probability = |p: f64| (0.0..1.0).contains(&p);
        if !probability(self.faults.loss) || !probability(self.faults.duplication) {
            return refuse("a probability is at least 0 and below 1");
        }
        Ok(())
    }

    /// The part that the switch's thread computes.
    fn fabric(&self) -> FabricConfig {
        FabricConfig {
            wiring: self.wiring(),
            forwarding: self.forwarding,
            uplink_delay: SimDuration::nanos(self.uplink_delay.as_nanos() as u64),
            buffer_bytes: self.buffer_bytes,
            marking: self.marking,
            faults: self.faults,
        }
    }

    fn wiring(&self) -> Wiring {
        let physics = Physics::uniform(self.link, self.link, SimDuration::ZERO);
        let hosts = self.hosts as u32;
        match self.topology {
            Topology::SingleSwitch => SingleSwitch { hosts, physics }.wire(),
            Topology::LeafSpine => {
                let hosts_per_rack = hosts / LEAVES;
                LeafSpine { racks: LEAVES, hosts_per_rack, spines: LEAVES, physics }.wire()
            }
        }
    }

    /// Links between two hosts.
    pub fn links(&self, one: usize, other: usize) -> u64 {
        let per_leaf = (self.hosts / LEAVES as usize).max(1);
        match self.topology {
            Topology::LeafSpine if one / per_leaf != other / per_leaf => 4,
            _ => 2,
        }
    }

    /// Lower bound on an echo RPC between the hosts that are farthest apart, nanoseconds: request
    /// and response are each serialised on an uplink, and their first frame once more on every
    /// later link, while the other frames follow. Software, acknowledgements and grants take no
    /// time.
    pub fn wire_round_trip_ns(&self, framing: Framing, bytes: u32) -> u64 {
        let first = framing.data_wire_bytes(bytes.min(framing.max_payload()));
        let further = self.links(0, self.hosts - 1) - 1;
        let wire = self.link.time_for(framing.data_wire_bytes(bytes) + further * first);
        2 * (wire.0 + self.uplink_delay.as_nanos() as u64)
    }

    /// The changes of the links in [`Self::degraded`] if the load starts at that time, nanoseconds
    /// of CLOCK_MONOTONIC.
    fn changes(&self, start_ns: u64) -> Vec<(u64, [NodeId; 2], LinkChange)> {
        let change = |degraded: &Degraded| {
            let leaf = NodeId(self.hosts as u32 + degraded.leaf);
            let spine = NodeId(self.hosts as u32 + LEAVES + degraded.spine);
            let change = match degraded.percent {
                0 => LinkChange::Down,
                percent => {
                    let rate = Rate(self.link.0 * u64::from(percent) / 100);
                    LinkChange::Rate(LinkRate::new(rate))
                }
            };
            (start_ns + degraded.after.as_nanos() as u64, [leaf, spine], change)
        };
        self.degraded.iter().map(change).collect()
    }

    /// Wire time of a full frame, nanoseconds.
    pub fn full_frame_ns(&self) -> u64 {
        self.link.time_for(1538).0
    }
}

/// One host: its index and the addresses of the others.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Its index.
    pub index: usize,
    /// The rack it is part of.
    pub rack: &'a RackConfig,
}

impl Host<'_> {
    /// Its own address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.index)
    }

    /// The address of another host.
    pub fn address_of(&self, host: usize) -> Ipv4Addr {
        address(host)
    }

    /// Indices of the other hosts.
    pub fn peers(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let own = self.index;
        (0..self.rack.hosts).filter(move |&peer| peer != own)
    }
}

/// A running rack. Dropping it ends the switch and, with the last socket, the hosts' networks.
pub struct Rack {
    config: RackConfig,
    placement: Placement,
    // Dropped before the hosts, because the switch has to stop before its ports disappear.
    switch: Switch,
    hosts: Vec<Namespace>,
    tcp_rto_min: Duration,
}

impl Rack {
    /// Builds the rack: namespaces, links, switch.
    pub fn build(config: RackConfig, inside: &Isolation) -> Result<Self, TestbedError> {
        config.validate()?;
        // Links live in a separate namespace, so that two racks can follow each other.
        let core = Namespace::new(inside)?;
        let placement = Placement::choose(config.hosts);
        let (switch, hosts, tcp_rto_min) = core.run(|| {
            let mut hosts = Vec::new();
            let mut interfaces = Vec::new();
            let mut tcp_rto_min = TCP_RTO_MIN;
            for index in 0..config.hosts {
                let namespace = Namespace::new(inside)?;
                let (interface, timer_set) = connect_host(&namespace, index, &config)?;
                interfaces.push(interface);
                if !timer_set {
                    tcp_rto_min = KERNEL_RTO_MIN;
                }
                hosts.push(namespace);
            }
            let switch = SwitchConfig {
                fabric: config.fabric(),
                shortest_pause_ns: Pauses::shortest_ns(&config),
            };
            let switch = Switch::start(switch, interfaces, placement.switch)?;
            Ok((switch, hosts, tcp_rto_min))
        })?;
        Ok(Self { config, placement, switch, hosts, tcp_rto_min })
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &RackConfig {
        &self.config
    }

    /// TCP's minimum RTO: 5 ms, or the kernel's 200 ms if it cannot be set (before Linux 6.11, or
    /// if /proc/sys is read-only).
    pub fn tcp_rto_min(&self) -> Duration {
        self.tcp_rto_min
    }

    /// The switch's observations since the last call.
    pub fn take_interval(&self) -> Result<SwitchInterval, TestbedError> {
        self.switch.take_interval()
    }

    /// Repairs all links.
    pub(crate) fn mend_links(&self) {
        self.switch.mend_until(Vec::new());
    }

    /// The load starts at that time, nanoseconds of CLOCK_MONOTONIC: links change as configured.
    pub(crate) fn degrade_links(&self, start_ns: u64) {
        self.switch.mend_until(self.config.changes(start_ns));
    }

    /// The host of an index.
    pub(crate) fn host(&self, index: usize) -> Host<'_> {
        Host { index, rack: &self.config }
    }

    /// The processors of the switch and the hosts.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Moves the calling thread into a host's network.
    pub(crate) fn enter(&self, index: usize) -> Result<(), TestbedError> {
        self.hosts[index].enter()
    }

    /// Runs `job` on every host at once, each on its own thread in the host's network. Returns the
    /// results in the order of hosts, or the first error.
    pub fn on_every_host<T: Send>(
        &self,
        job: impl Fn(Host<'_>) -> Result<T, TestbedError> + Sync,
    ) -> Result<Vec<T>, TestbedError> {
        let job = &job;
        thread::scope(|scope| {
            let workers: Vec<_> = self
                .hosts
                .iter()
                .enumerate()
                .map(|(index, namespace)| {
                    let host = Host { index, rack: &self.config };
                    let thread = thread::Builder::new().name(format!("host{index}"));
                    thread.spawn_scoped(scope, move || {
                        namespace.enter()?;
                        job(host)
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| {
                    let worker = worker.map_err(|e| TestbedError::setup("start a host", e))?;
                    worker.join().map_err(|_| TestbedError::Panicked("host"))?
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf_spine() -> RackConfig {
        RackConfig { hosts: 4, topology: Topology::LeafSpine, ..RackConfig::default() }
    }

    fn degraded(spine: u32, percent: u32) -> Degraded {
        Degraded { leaf: 0, spine, percent, after: Duration::from_millis(3) }
    }

    #[test]
    fn a_small_fabric_has_four_links_between_leaves_two_within() {
        let rack = leaf_spine();
        assert_eq!([(0, 1), (0, 2), (3, 1), (2, 3)].map(|(a, b)| rack.links(a, b)), [2, 4, 4, 2]);
        // One frame: its time on eight links. Two: each way the second behind the first.
        let wire = |bytes| rack.wire_round_trip_ns(Framing::Tcp, bytes);
        assert_eq!((wire(1_448), wire(2 * 1_448)), (8 * 123_040, 10 * 123_040));
        let rack = RackConfig { degraded: vec![degraded(1, 10), degraded(0, 0)], ..rack };
        assert!(rack.validate().is_ok());
        let slow = LinkChange::Rate(LinkRate::new(Rate::mbps(10)));
        let [leaf, spine, first] = [4, 7, 6].map(NodeId);
        let at = 3_000_007;
        let expected = [(at, [leaf, spine], slow), (at, [leaf, first], LinkChange::Down)];
        assert_eq!(rack.changes(7), expected);
    }

    #[test]
    fn the_default_rack_is_buildable_and_absurd_ones_are_refused() {
        assert!(RackConfig::default().validate().is_ok());
        assert_eq!(RackConfig::default().full_frame_ns(), 123_040);
        // One frame: its time on four links. Two full frames: three frame times each way.
        let wire = |bytes| RackConfig::default().wire_round_trip_ns(Framing::Tcp, bytes);
        assert_eq!((wire(1_448), wire(2 * 1_448)), (4 * 123_040, 6 * 123_040));
        let absurd = [
            RackConfig { hosts: 1, ..RackConfig::default() },
            RackConfig { hosts: 251, ..RackConfig::default() },
            RackConfig { link: Rate(0), ..RackConfig::default() },
            RackConfig { buffer_bytes: 100, ..RackConfig::default() },
            RackConfig { topology: Topology::LeafSpine, ..RackConfig::default() },
            RackConfig { degraded: vec![degraded(1, 10)], ..RackConfig::default() },
            RackConfig { degraded: vec![degraded(2, 10)], ..leaf_spine() },
            RackConfig { degraded: vec![degraded(1, 100)], ..leaf_spine() },
            RackConfig {
                faults: Faults { loss: f64::NAN, ..Faults::default() },
                ..RackConfig::default()
            },
        ];
        for config in absurd {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
