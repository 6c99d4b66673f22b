//! The load of links between switches if packets are spread evenly over all shortest paths, as
//! spraying does, and hashing on average. Left out: links that fail.

use std::cmp::Reverse;
use std::ops::Range;

use crate::topology::{HostId, Wiring};

use super::network::ScenarioNetwork;

/// Messages from some hosts to others, evenly spread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stream {
    /// The senders.
    pub from: Range<u32>,
    /// The receivers.
    pub to: Range<u32>,
    /// What each sender sends, as a share of a host's link.
    pub rate: f64,
}

impl Stream {
    /// What goes from some hosts to some others.
    fn between(&self, from: &[u32], to: &[u32]) -> f64 {
        let within = |hosts: &[u32], range: &Range<u32>| {
            hosts.iter().filter(|host| range.contains(host)).count() as f64
        };
        // A host does not send to itself.
        let others = self.to.len() - usize::from(self.from == self.to);
        within(from, &self.from) * self.rate * within(to, &self.to) / others.max(1) as f64
    }
}

/// The load of the busiest link between two switches; 0 if there is none. A load of 1 in a stream
/// is all of a host's link.
pub(super) fn core_share(network: &ScenarioNetwork, streams: &[Stream]) -> f64 {
    let wiring = &network.wiring;
    let leaves = leaves(wiring);
    let mut loads = vec![0.0; wiring.ports().len()];
    for (to, receivers) in &leaves {
        let mut flows = vec![0.0; wiring.switches() as usize];
        for (from, senders) in leaves.iter().filter(|(from, _)| from != to) {
            let of = |stream: &Stream| stream.between(senders, receivers);
            flows[*from as usize] = streams.iter().map(of).sum();
        }
        spread(wiring, receivers[0], (flows, &mut loads));
    }
    let between = wiring.ports().iter().zip(loads).skip(2 * wiring.hosts() as usize);
    let share = |(port, load): (&crate::topology::PortSpec, f64)| {
        load * network.link.0 as f64 / port.rate.0 as f64
    };
    between.map(share).fold(0.0, f64::max)
}

/// The switches with hosts, numbered from 0, and their hosts.
fn leaves(wiring: &Wiring) -> Vec<(u32, Vec<u32>)> {
    let mut below = vec![Vec::new(); wiring.switches() as usize];
    for host in 0..wiring.hosts() {
        let switch = wiring.ports()[wiring.uplink(HostId(host)).0 as usize].to.0 - wiring.hosts();
        below[switch as usize].push(host);
    }
    (0..).zip(below).filter(|(_, hosts)| !hosts.is_empty()).collect()
}

/// Adds to the loads of ports what flows from every switch to the host `to`.
fn spread(wiring: &Wiring, to: u32, (mut flows, loads): (Vec<f64>, &mut [f64])) {
    let (routes, first) = (wiring.routes(), 2 * wiring.hosts());
    let next = |switch: u32, chosen: u32| {
        let port = routes.port(routes.choices(switch, to), chosen);
        (port, wiring.ports()[port as usize].to.0 - wiring.hosts())
    };
    let is_last = |switch: u32| {
        let choices = routes.choices(switch, to);
        choices.count == 0 || routes.port(choices, 0) < first
    };
    let hops = |switch: u32| {
        let mut at = switch;
        let mut hops = 0_u32;
        while !is_last(at) {
            (at, hops) = (next(at, 0).1, hops + 1);
        }
        hops
    };
    let mut order: Vec<(Reverse<u32>, u32)> =
        (0..wiring.switches()).map(|switch| (Reverse(hops(switch)), switch)).collect();
    // All that reaches a switch comes from switches that are farther from the host.
    order.sort_unstable();
    for (_, switch) in order.into_iter().filter(|(hops, _)| hops.0 > 0) {
        let flow = std::mem::take(&mut flows[switch as usize]);
        let count = routes.choices(switch, to).count;
        for chosen in (0..count).filter(|_| flow > 0.0) {
            let (port, neighbour) = next(switch, chosen);
            loads[port as usize] += flow / f64::from(count);
            flows[neighbour as usize] += flow / f64::from(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Fabric, Scenario, Shape};
    use crate::scheme::SCHEMES;

    fn share(shape: Shape, streams: impl Fn(u32) -> Vec<Stream>) -> f64 {
        let scenario =
            Scenario { fabric: Fabric { shape, ..Fabric::default() }, ..Scenario::default() };
        let network = ScenarioNetwork::new(&scenario, &SCHEMES[0]).unwrap();
        core_share(&network, &streams(network.wiring.hosts()))
    }

    #[test]
    fn the_busiest_link_between_switches_is_found() {
        let all = |hosts| vec![Stream { from: 0..hosts, to: 0..hosts, rate: 1.0 }];
        let racks = |spines| Shape::LeafSpine { racks: 9, hosts_per_rack: 16, spines };
        // 16 hosts at 10 Gbit/s send 128 of 143 messages over four links of 40 Gbit/s.
        let paper = share(racks(4), all);
        assert!((paper - 128.0 / 143.0).abs() < 1e-9, "{paper}");
        assert!((share(racks(1), all) - 4.0 * paper).abs() < 1e-9);
        assert_eq!(share(Shape::SingleSwitch { hosts: 8 }, all), 0.0);
        // Four hosts of a pod send 12 of 15 messages over four links to the core, and 14 of 15 of a
        // rack over two to the aggregation switches. All have 40 Gbit/s.
        let tree = share(Shape::FatTree { k: 4, oversubscription: 1 }, all);
        assert!((tree - 14.0 / 15.0 / 4.0).abs() < 1e-9, "{tree}");
        // All of a rack sends to hosts of the next: 160 Gbit/s over one link of 40.
        let apart = |_| vec![Stream { from: 0..16, to: 16..32, rate: 1.0 }];
        assert!((share(racks(1), apart) - 4.0).abs() < 1e-9);
    }
}
