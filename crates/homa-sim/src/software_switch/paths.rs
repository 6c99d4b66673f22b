//! The next hop of a frame at a switch, without a simulation: the shortest paths of a [`Wiring`],
//! and the simulator's choice among them ([`Forwarding`]).
//!
//! Paths avoid links that are down. Left out: time, which belongs to the caller.

use crate::fabric::{Chooser, Forwarding, by_sender, ecmp};
use crate::topology::{NodeId, PortId, Wiring};

/// The inputs of the choice of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sending host.
    pub from: u32,
    /// The receiving host.
    pub to: u32,
    /// Equal for all frames of a flow.
    pub label: u32,
    /// Priority level, 0 to 7; adaptive load balancing compares queues at this level and above.
    pub priority: u8,
}

/// Chooses output ports at all switches of a network.
#[derive(Clone, Debug)]
pub struct PathChooser {
    wiring: Wiring,
    alive: Vec<bool>,
    forwarding: Forwarding,
    chooser: Chooser,
    /// By switch: the last choice among several ports.
    turns: Vec<u32>,
}

impl PathChooser {
    /// For a network in which all links are up.
    pub fn new(wiring: Wiring, forwarding: Forwarding, seed: u64) -> Self {
        Self {
            alive: vec![true; wiring.ports().len()],
            turns: vec![0; wiring.switches() as usize],
            chooser: Chooser::new(seed, "spray"),
            wiring,
            forwarding,
        }
    }

    /// The topology.
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// Sets links up or down and recomputes all paths.
    pub fn set_alive(&mut self, ports: &[PortId], alive: bool) {
        for port in ports {
            if let Some(state) = self.alive.get_mut(port.0 as usize) {
                *state = alive;
            }
        }
        self.wiring.reroute(&self.alive);
    }

    /// The port by which a frame leaves the switch `node`; `None` if no path exists. `drain`
    /// returns the wire bytes that wait at a port at the frame's level and above.
    pub fn choose(
        &mut self,
        node: NodeId,
        flow: Flow,
        drain: impl Fn(PortId) -> u32,
    ) -> Option<PortId> {
        let switch = node.0.checked_sub(self.wiring.hosts())?;
        let routes = self.wiring.routes();
        let choices = routes.choices(switch, flow.to);
        let chosen = match (choices.count, self.forwarding) {
            (0, _) => return None,
            (1, _) => 0,
            (n, Forwarding::Spray) => self.chooser.below(n),
            (n, Forwarding::Ecmp) => ecmp(n, switch, (flow.from, flow.to, flow.label)),
            (n, Forwarding::HostPairs) => ecmp(n, switch, (flow.from, flow.to, 0)),
            (n, Forwarding::Source) => {
                let first = routes.port(choices, 0);
                by_sender(n, (switch, self.wiring.ports()[first as usize].tier), flow.label)
            }
            (n, Forwarding::Adaptive(alb)) => {
                let turn = &mut self.turns[switch as usize];
                let at = |chosen| drain(PortId(routes.port(choices, chosen)));
                alb.choose(n, at, (&mut self.chooser, turn))
            }
        };
        Some(PortId(routes.port(choices, chosen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Alb;
    use crate::time::SimDuration;
    use crate::topology::{LeafSpine, Physics};
    use homa_proto::Rate;

    /// Two racks of two hosts, with TOR switches 4 and 5 and spines 6 and 7. Ports 8 and 9 lead
    /// from the first TOR to the spines.
    fn paths(forwarding: Forwarding) -> PathChooser {
        let physics = Physics::uniform(Rate::gbps(1), Rate::gbps(1), SimDuration::ZERO);
        let wiring = LeafSpine { racks: 2, hosts_per_rack: 2, spines: 2, physics }.wire();
        PathChooser::new(wiring, forwarding, 1)
    }

    fn flow(to: u32, label: u32) -> Flow {
        Flow { from: 0, to, label, priority: 0 }
    }

    /// How often each spine was chosen by a hundred flows from host 0 to host 3.
    fn chosen(paths: &mut PathChooser, drain: impl Fn(PortId) -> u32 + Copy) -> [usize; 2] {
        let mut count = [0; 2];
        for label in 0..100 {
            let port = paths.choose(NodeId(4), flow(3, label), drain).unwrap();
            count[port.0 as usize - 8] += 1;
        }
        count
    }

    #[test]
    fn each_way_of_forwarding_chooses_as_in_the_simulator() {
        let spread = |count: [usize; 2]| count.iter().all(|n| (30..=70).contains(n));
        assert!(spread(chosen(&mut paths(Forwarding::Spray), |_| 0)));
        let mut hashed = paths(Forwarding::Ecmp);
        assert!(spread(chosen(&mut hashed, |_| 0)));
        let once = hashed.choose(NodeId(4), flow(3, 5), |_| 0);
        assert!((0..9).all(|_| hashed.choose(NodeId(4), flow(3, 5), |_| 0) == once));
        // The first spine's port has a long queue, so no frame is sent there.
        let mut adaptive = paths(Forwarding::Adaptive(Alb::DETAIL));
        let long = |port: PortId| if port.0 == 8 { 50_000 } else { 0 };
        assert_eq!(chosen(&mut adaptive, long), [0, 100]);
        assert!(spread(chosen(&mut adaptive, |_| 0)));
    }

    #[test]
    fn a_link_that_is_down_is_on_no_path() {
        let mut paths = paths(Forwarding::Spray);
        // Spine 0 has lost its link to the second TOR.
        let down = paths.wiring().port_between(NodeId(6), NodeId(5)).unwrap();
        paths.set_alive(&[down], false);
        assert_eq!(chosen(&mut paths, |_| 0), [0, 100]);
        paths.set_alive(&[down], true);
        assert!(chosen(&mut paths, |_| 0)[0] > 30);
        let last = paths.wiring().downlink(crate::HostId(1));
        paths.set_alive(&[last], false);
        assert_eq!(paths.choose(NodeId(4), flow(1, 0), |_| 0), None);
    }
}
