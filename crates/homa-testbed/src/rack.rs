//! A rack of hosts behind one switch, inside this process.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use homa_proto::Rate;
use homa_sim::SimDuration;
use homa_sim::fabric::Forwarding;
use homa_sim::topology::{Physics, SingleSwitch};
use homa_workload::framing::Framing;

use crate::link::{KERNEL_RTO_MIN, TCP_RTO_MIN, address, connect_host};
use crate::placement::Placement;
use crate::switch::{FabricConfig, Faults, Marking, Switch, SwitchConfig, SwitchInterval};
use crate::{Isolation, Namespace, Pauses, TestbedError};

/// What the rack is made of; the same for every transport that is compared on it.
#[derive(Clone, Debug, PartialEq)]
pub struct RackConfig {
    /// Hosts, 2 to 250. Default 5: more need more than two cores.
    pub hosts: usize,
    /// Rate of every link. Default 100 Mbit/s: slow enough that two cores keep up with five hosts.
    pub link: Rate,
    /// Buffer of every switch port, wire bytes, shared by all priorities. Default 131,072.
    pub buffer_bytes: u64,
    /// Where the switch marks congestion. Default nowhere.
    pub marking: Marking,
    /// What the switch does wrong on request. Default nothing.
    pub faults: Faults,
}

impl Default for RackConfig {
    fn default() -> Self {
        Self {
            hosts: 5,
            link: Rate::mbps(100),
            buffer_bytes: 131_072,
            marking: Marking::default(),
            faults: Faults::default(),
        }
    }
}

impl RackConfig {
    /// Refuses what cannot be built.
    pub fn validate(&self) -> Result<(), TestbedError> {
        let refuse = |text: &str| Err(TestbedError::Config(text.into()));
        if !(2..=250).contains(&self.hosts) {
            return refuse("a rack has 2 to 250 hosts: choose --hosts in that range");
        }
        if !(1_000_000..=10_000_000_000).contains(&self.link.0) {
            return refuse("a link has 1 Mbit/s to 10 Gbit/s: choose --link in that range");
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

    /// What the switch's thread computes.
    fn fabric(&self) -> FabricConfig {
        let physics = Physics::uniform(self.link, self.link, SimDuration::ZERO);
        FabricConfig {
            wiring: SingleSwitch { hosts: self.hosts as u32, physics }.wire(),
            forwarding: Forwarding::Spray,
            buffer_bytes: self.buffer_bytes,
            marking: self.marking,
            faults: self.faults,
        }
    }

    /// The least an echo RPC takes here, nanoseconds: request and response each serialised on an
    /// uplink, and their first frame once more on the downlink, which carries the others meanwhile.
    /// No software, no acknowledgements, no grants.
    pub fn wire_round_trip_ns(&self, framing: Framing, bytes: u32) -> u64 {
        let first = framing.data_wire_bytes(bytes.min(framing.max_payload()));
        2 * self.link.time_for(framing.data_wire_bytes(bytes) + first).0
    }

    /// Wire time of a full frame, nanoseconds.
    pub fn full_frame_ns(&self) -> u64 {
        self.link.time_for(1538).0
    }
}

/// One host: where it stands and how to reach the others.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Its index.
    pub index: usize,
    /// What it is part of.
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
    // Before the hosts: the switch stops before its ports go.
    switch: Switch,
    hosts: Vec<Namespace>,
    tcp_rto_min: Duration,
}

impl Rack {
    /// Builds the rack: namespaces, links, switch.
    pub fn build(config: RackConfig, inside: &Isolation) -> Result<Self, TestbedError> {
        config.validate()?;
        // Links live in a namespace of their own, so that two racks can follow each other.
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

    /// What it was built from.
    pub fn config(&self) -> &RackConfig {
        &self.config
    }

    /// What TCP waits at least, beyond a round trip, before it sends a segment again: 5 ms, or the
    /// kernel's 200 ms where it cannot be set (before Linux 6.11, or /proc/sys read-only).
    pub fn tcp_rto_min(&self) -> Duration {
        self.tcp_rto_min
    }

    /// What the switch saw since the last call.
    pub fn take_interval(&self) -> Result<SwitchInterval, TestbedError> {
        self.switch.take_interval()
    }

    /// The host of an index.
    pub(crate) fn host(&self, index: usize) -> Host<'_> {
        Host { index, rack: &self.config }
    }

    /// Which processor does what.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Moves the calling thread into a host's network.
    pub(crate) fn enter(&self, index: usize) -> Result<(), TestbedError> {
        self.hosts[index].enter()
    }

    /// Runs `job` on every host at once, each on its own thread in its own network, and returns
    /// what they return in the order of hosts; the first error wins.
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
