//! The division of a network into partitions. Each is simulated for a short time without the others
//! (conservative parallel simulation; Fujimoto, "Parallel discrete event simulation", CACM 1990).
//!
//! A rack, that is a TOR switch with its hosts, is in one partition. A switch above the racks may
//! be divided by its output ports: the queue of a port that leads down into one partition is
//! simulated there, so that a frame crosses at most once on its way down. Frames that cross do so
//! on a link, and its delay is the time by which one partition may run ahead of another, the
//! *lookahead*.
//!
//! Invariants: every output port has one owner; a switch that is divided has one owner for all of
//! its shortest paths to a host, so that the owner is known before a path is chosen; only ports to
//! switches cross.

use crate::time::SimDuration;

use super::{NodeId, PortSpec, Routes, Wiring};

/// Marks a switch whose ports have several owners.
const DIVIDED: u16 = u16::MAX;

/// Most partitions of a network.
pub(crate) const MOST_PARTITIONS: u32 = 1_024;

/// Which partition simulates which host and which port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    partitions: u16,
    /// By host: its partition.
    hosts: Vec<u16>,
    /// By port: the partition that has its queue.
    ports: Vec<u16>,
    /// By switch: the partition that has all of its ports, or [`DIVIDED`].
    switches: Vec<u16>,
    lookahead: SimDuration,
}

impl Division {
    /// Divides a network. With `whole` no switch is divided, because its ports share memory or send
    /// frames back. An error is the number of racks, which is the largest number of partitions.
    pub fn new(wiring: &Wiring, partitions: u32, whole: bool) -> Result<Self, u32> {
        let racks = Racks::new(wiring);
        let most = racks.switches.len() as u32;
        if !(1..=most.min(MOST_PARTITIONS)).contains(&partitions) {
            return Err(most.min(MOST_PARTITIONS));
        }
        let (nominal, levels) = nominal(wiring, &racks, partitions);
        let hosts = (0..wiring.hosts()).map(|host| nominal[up(wiring, host)]).collect();
        let owner = |port: &PortSpec, whole: bool| match port.from.0.checked_sub(wiring.hosts()) {
            None => nominal[(port.to.0 - wiring.hosts()) as usize],
            Some(from) => match port.to.0.checked_sub(wiring.hosts()) {
                Some(to) if !whole && levels[to as usize] < levels[from as usize] => {
                    nominal[to as usize]
                }
                _ => nominal[from as usize],
            },
        };
        let owners =
            |whole| -> Vec<u16> { wiring.ports().iter().map(|port| owner(port, whole)).collect() };
        let mut ports = owners(whole);
        if !whole && !has_one_owner(wiring, &ports) {
            ports = owners(true);
        }
        let mut division = Self {
            partitions: partitions as u16,
            hosts,
            switches: by_switch(wiring, &ports),
            ports,
            lookahead: SimDuration(u64::MAX),
        };
        let crossing =
            wiring.ports().iter().zip(0..).filter(|(_, port)| division.crosses(wiring, *port));
        let shortest = crossing.map(|(port, _)| port.delay.0).min();
        division.lookahead = SimDuration(shortest.unwrap_or(u64::MAX));
        Ok(division)
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// The partition of a host.
    pub fn of_host(&self, host: u32) -> u16 {
        self.hosts[host as usize]
    }

    /// The partition of a port's queue.
    pub fn of_port(&self, port: u32) -> u16 {
        self.ports[port as usize]
    }

    /// True if frames that leave this port may take effect in another partition.
    pub fn crosses(&self, wiring: &Wiring, port: u32) -> bool {
        let to = wiring.ports()[port as usize].to;
        let switch = to.0.checked_sub(wiring.hosts());
        switch.is_some_and(|to| self.switches[to as usize] != self.of_port(port))
    }

    /// The partition in which a frame to host `to` takes effect at a switch (numbered from 0);
    /// `None` if no route leads on.
    #[inline]
    pub fn of_arrival(&self, routes: &Routes, switch: u32, to: u32) -> Option<u16> {
        let whole = self.switches[switch as usize];
        if whole != DIVIDED {
            return Some(whole);
        }
        let choices = routes.choices(switch, to);
        (choices.count > 0).then(|| self.of_port(routes.port(choices, 0)))
    }

    /// The least delay of a link on which frames cross; `MAX` if there is none.
    pub fn lookahead(&self) -> SimDuration {
        self.lookahead
    }
}

/// The switch (numbered from 0) of a host.
fn up(wiring: &Wiring, host: u32) -> usize {
    (wiring.ports()[host as usize].to.0 - wiring.hosts()) as usize
}

/// The switches with hosts, in the order of their first hosts.
struct Racks {
    switches: Vec<usize>,
    /// Hosts of each.
    hosts: Vec<u32>,
}

impl Racks {
    fn new(wiring: &Wiring) -> Self {
        let mut place = vec![usize::MAX; wiring.switches() as usize];
        let mut racks = Self { switches: Vec::new(), hosts: Vec::new() };
        for host in 0..wiring.hosts() {
            let switch = up(wiring, host);
            if place[switch] == usize::MAX {
                place[switch] = racks.switches.len();
                racks.switches.push(switch);
                racks.hosts.push(0);
            }
            racks.hosts[place[switch]] += 1;
        }
        racks
    }

    /// The partition of each rack: equal numbers of hosts as far as possible, neighbours together.
    fn partitions(&self, partitions: u32) -> Vec<u16> {
        let all: u64 = self.hosts.iter().map(|hosts| u64::from(*hosts)).sum();
        let before = self.hosts.iter().scan(0, |sum, hosts| {
            let middle = *sum + u64::from(*hosts) / 2;
            *sum += u64::from(*hosts);
            Some(middle)
        });
        let by_hosts = before.map(|middle| (middle * u64::from(partitions) / all) as u16);
        let by_hosts: Vec<u16> = by_hosts.collect();
        // Few large racks beside many small ones could leave a partition empty.
        if (0..partitions as u16).all(|one| by_hosts.contains(&one)) {
            return by_hosts;
        }
        let racks = self.hosts.len() as u64;
        (0..racks).map(|rack| (rack * u64::from(partitions) / racks) as u16).collect()
    }
}

/// The partition of each switch as a whole, and its distance from the racks. A switch above the
/// racks is where all switches below it are; if these are in several partitions, such switches take
/// turns.
fn nominal(wiring: &Wiring, racks: &Racks, partitions: u32) -> (Vec<u16>, Vec<u32>) {
    let switches = wiring.switches() as usize;
    let (mut nominal, mut levels) = (vec![DIVIDED; switches], vec![u32::MAX; switches]);
    for (switch, partition) in racks.switches.iter().zip(racks.partitions(partitions)) {
        (nominal[*switch], levels[*switch]) = (partition, 0);
    }
    let inner = |node: NodeId| node.0.checked_sub(wiring.hosts()).map(|switch| switch as usize);
    let mut turn = 0;
    for level in 1.. {
        let mut below = vec![Vec::new(); switches];
        for port in wiring.ports() {
            let (Some(from), Some(to)) = (inner(port.from), inner(port.to)) else { continue };
            if levels[from] == level - 1 && levels[to] == u32::MAX {
                below[to].push(nominal[from]);
            }
        }
        let mut found = false;
        for (switch, mut near) in below.into_iter().enumerate() {
            near.sort_unstable();
            near.dedup();
            if near.is_empty() {
                continue;
            }
            let choice = if near.len() == 1 { 0 } else { turn };
            turn += usize::from(near.len() > 1);
            (nominal[switch], levels[switch]) = (near[choice % near.len()], level);
            found = true;
        }
        if !found {
            break;
        }
    }
    (nominal, levels)
}

/// The owner of all ports of each switch.
fn by_switch(wiring: &Wiring, ports: &[u16]) -> Vec<u16> {
    let mut owners: Vec<Option<u16>> = vec![None; wiring.switches() as usize];
    for (spec, &port) in wiring.ports().iter().zip(ports) {
        let Some(from) = spec.from.0.checked_sub(wiring.hosts()) else { continue };
        let owner = &mut owners[from as usize];
        *owner = Some(match *owner {
            Some(other) if other != port => DIVIDED,
            _ => port,
        });
    }
    owners.into_iter().map(|owner| owner.unwrap_or(0)).collect()
}

/// Whether each switch has one owner for all shortest paths to each host.
fn has_one_owner(wiring: &Wiring, ports: &[u16]) -> bool {
    let routes = wiring.routes();
    let switches = by_switch(wiring, ports);
    let divided = (0..wiring.switches()).filter(|switch| switches[*switch as usize] == DIVIDED);
    let mut pairs = divided.flat_map(|switch| (0..wiring.hosts()).map(move |to| (switch, to)));
    pairs.all(|(switch, to)| {
        let choices = routes.choices(switch, to);
        let mut owners = (0..choices.count).map(|one| ports[routes.port(choices, one) as usize]);
        let first = owners.next();
        owners.all(|owner| Some(owner) == first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{FatTree, Graph, HostId, LeafSpine, Physics, SingleSwitch};
    use homa_proto::Rate;

    fn fat_tree(k: u32) -> Wiring {
        let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(10), SimDuration::micros(1));
        FatTree { k, oversubscription: 1, physics }.wire()
    }

    /// The number of times that a frame changes partition on its way.
    fn crossings(wiring: &Wiring, division: &Division, (from, to): (u32, u32)) -> usize {
        let mut here = division.of_host(from);
        let mut count = 0;
        for port in wiring.path(HostId(from), HostId(to)) {
            assert_eq!(division.of_port(port.0), here, "a queue is where the frame is");
            let node = wiring.ports()[port.0 as usize].to;
            let next = match node.0.checked_sub(wiring.hosts()) {
                Some(switch) => division.of_arrival(wiring.routes(), switch, to).unwrap(),
                None => division.of_host(node.0),
            };
            if next != here {
                assert!(division.crosses(wiring, port.0), "{port:?}");
                (here, count) = (next, count + 1);
            }
        }
        assert_eq!(here, division.of_host(to));
        count
    }

    fn most_crossings(wiring: &Wiring, division: &Division) -> usize {
        let hosts = wiring.hosts();
        let pairs = (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b)));
        let apart = pairs.filter(|(a, b)| a != b);
        apart.map(|pair| crossings(wiring, division, pair)).max().unwrap()
    }

    #[test]
    fn a_frame_crosses_at_most_once_if_switches_may_be_divided() {
        for (wiring, partitions) in [(LeafSpine::homa().wire(), 4), (fat_tree(4), 2)] {
            let division = Division::new(&wiring, partitions, false).unwrap();
            assert_eq!(most_crossings(&wiring, &division), 1);
            let whole = Division::new(&wiring, partitions, true).unwrap();
            assert_eq!(most_crossings(&wiring, &whole), 2);
        }
        // Pods are divided here.
        let tree = fat_tree(4);
        let division = Division::new(&tree, 3, false).unwrap();
        assert!(most_crossings(&tree, &division) <= 3);
    }

    #[test]
    fn racks_are_whole_and_partitions_equal() {
        let wiring = LeafSpine::homa().wire();
        let division = Division::new(&wiring, 3, false).unwrap();
        for host in 0..144 {
            assert_eq!(division.of_host(host), (host / 48) as u16);
        }
        assert_eq!(division.lookahead(), SimDuration::nanos(250), "the delay of a spine");
        assert_eq!(Division::new(&wiring, 10, false), Err(9), "nine racks");
        assert_eq!(Division::new(&wiring, 0, false), Err(9));
        let one = SingleSwitch { hosts: 8, physics: Physics::homa() }.wire();
        assert_eq!(Division::new(&one, 2, false), Err(1));
        assert_eq!(Division::new(&one, 1, false).unwrap().lookahead(), SimDuration(u64::MAX));
    }

    #[test]
    fn a_graph_is_divided_by_its_racks() {
        // A ring of four racks: each switch is a rack, so that frames pass through racks.
        let ring = "h0,a,10,100\nh1,b,10,100\nh2,c,10,100\nh3,d,10,100\nh4,d,10,100\n\
                    a,b,40,300\nb,c,40,200\nc,d,40,300\nd,a,40,250";
        let wiring = Graph::from_csv(ring).unwrap().wire();
        let division = Division::new(&wiring, 2, false).unwrap();
        let hosts: Vec<u16> = (0..5).map(|host| division.of_host(host)).collect();
        assert_eq!(hosts, [0, 0, 0, 1, 1]);
        assert_eq!(division.lookahead(), SimDuration::nanos(250));
        most_crossings(&wiring, &division);
        // One large rack beside small ones leaves no partition empty.
        let uneven = "h0,a,10,1\nh1,a,10,1\nh2,a,10,1\nh3,a,10,1\nh4,b,10,1\nh5,c,10,1\n\
                      a,b,40,5\nb,c,40,5\nc,a,40,5";
        let wiring = Graph::from_csv(uneven).unwrap().wire();
        let division = Division::new(&wiring, 3, false).unwrap();
        assert_eq!([0, 4, 5].map(|host| division.of_host(host)), [0, 1, 2]);
    }
}
