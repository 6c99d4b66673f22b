//! Claims about topologies: routes reach every host by shortest paths, and errors in lists of links
//! name their line.

use super::*;

fn physics() -> Physics {
    Physics::uniform(Rate::gbps(100), Rate::gbps(100), SimDuration::nanos(500))
}

/// Number of links from host to host, by the wiring's routes.
fn lengths(wiring: &Wiring) -> Vec<usize> {
    let hosts = wiring.hosts();
    let pairs = (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b))).filter(|(a, b)| a != b);
    pairs
        .map(|(a, b)| {
            let path = wiring.path(HostId(a), HostId(b));
            let mut nodes = path.iter().map(|port| &wiring.ports()[port.0 as usize]);
            assert!(
                nodes.clone().zip(nodes.clone().skip(1)).all(|(one, next)| one.to == next.from)
            );
            assert_eq!(nodes.next_back().map(|last| last.to), Some(NodeId(b)));
            path.len()
        })
        .collect()
}

#[test]
fn computed_routes_are_as_short_as_searched_ones() {
    let leaf_spine = LeafSpine { racks: 3, hosts_per_rack: 5, spines: 2, physics: physics() };
    let tree = |k, oversubscription| FatTree { k, oversubscription, physics: physics() }.wire();
    for wiring in [leaf_spine.wire(), tree(4, 1), tree(4, 3), tree(6, 1)] {
        let mut searched = wiring.clone();
        searched.reroute(&vec![true; wiring.ports().len()]);
        assert_eq!(lengths(&wiring), lengths(&searched));
    }
}

#[test]
fn fat_trees_have_their_numbers_of_hosts_and_links() {
    let tree = FatTree { k: 16, oversubscription: 1, physics: physics() };
    let wiring = tree.wire();
    assert_eq!((tree.hosts(), wiring.hosts(), wiring.switches()), (1_024, 1_024, 320));
    // Every tier has as many links as there are hosts, in each direction.
    assert_eq!(wiring.ports().len(), 6 * 1_024);
    for tier in Tier::ALL.into_iter().filter(|tier| *tier != Tier::Fabric) {
        assert_eq!(wiring.ports().iter().filter(|port| port.tier == tier).count(), 1_024);
    }
    let hops = |to| wiring.path(HostId(0), HostId(to)).len();
    assert_eq!((hops(7), hops(63), hops(64), hops(1_023)), (2, 4, 6, 6));
}

#[test]
fn oversubscription_is_that_of_the_tier_that_carries_least() {
    let tree = |oversubscription| FatTree { k: 4, oversubscription, physics: physics() }.wire();
    let leaf_spine =
        |spines| LeafSpine { racks: 3, hosts_per_rack: 8, spines, physics: physics() }.wire();
    let rack = SingleSwitch { hosts: 8, physics: physics() }.wire();
    // Racks of two hosts with two links each, and pods of two racks with two links to the core.
    let (aggrs, cores) = (2, 1);
    let core_rate = Some(Rate::gbps(100));
    let pods =
        Pods { pods: 2, racks: 2, hosts_per_rack: 2, aggrs, cores, core_rate, physics: physics() };
    let ratios = [rack, tree(1), tree(2), leaf_spine(8), leaf_spine(2), pods.wire()];
    let ratios = ratios.map(|wiring| wiring.oversubscription());
    assert_eq!(ratios, [1_000, 1_000, 2_000, 1_000, 4_000, 2_000]);
}

#[test]
fn links_that_the_engine_cannot_simulate_are_found() {
    const JUMBO: u32 = 9_038;
    let rack = |mbps, delay, frame| {
        let physics = Physics::uniform(Rate::mbps(mbps), Rate::mbps(mbps), delay);
        SingleSwitch { hosts: 2, physics }.wire().unfit(frame)
    };
    assert_eq!(rack(20, SimDuration::micros(600), JUMBO), None);
    assert_eq!(rack(10, SimDuration::ZERO, JUMBO), Some(PortId(0)));
    assert_eq!(rack(10, SimDuration::ZERO, 1_538), None);
    assert_eq!(rack(1_000, SimDuration::millis(5), JUMBO), Some(PortId(0)));
}

#[test]
fn a_route_table_has_all_equal_paths() {
    let mut wiring = LeafSpine::homa().wire();
    wiring.reroute(&vec![true; wiring.ports().len()]);
    let choices = wiring.routes().choices(0, 100);
    let ports: Vec<u32> = (0..choices.count).map(|n| wiring.routes().port(choices, n)).collect();
    assert_eq!(ports, [288, 289, 290, 291]);
}

#[test]
fn a_list_of_links_becomes_a_network() {
    let text = "from,to,gbps,delay_ns\n# a square\nh0,a,10,500\nh1,c,25,0\n\na,b,100,250\n\
                b,c,100,250\na,d,40,250\nd,c,40,250\n";
    let wiring = Graph::from_csv(text).unwrap().wire();
    assert_eq!((wiring.hosts(), wiring.switches()), (2, 4));
    assert_eq!(wiring.path(HostId(0), HostId(1)).len(), 4);
    assert_eq!(wiring.routes().choices(0, 1).count, 2);
    let first = wiring.ports()[0];
    assert_eq!((first.rate, first.delay), (Rate::gbps(10), SimDuration::nanos(500)));
}

#[test]
fn errors_in_a_list_of_links_name_their_line() {
    let error = |text: &str| Graph::from_csv(text).unwrap_err().to_string();
    assert_eq!(error(""), "no hosts: list links such as `h0,s0,10,500`");
    assert_eq!(error("h0,a,10"), "line 1: write `from,to,gbps,delay_ns`");
    assert_eq!(error("\nh0,a,fast,0"), "line 2: `fast` is not a rate in Gbit/s of at least 0.02");
    assert_eq!(error("h0,a,0,0"), "line 1: `0` is not a rate in Gbit/s of at least 0.02");
    assert!(error("h0,a,1,-1").starts_with("line 1: `-1` is not a delay"));
    assert!(error("h0,h1,1,1").starts_with("line 1: a link must join"));
    assert_eq!(error("h0,a,1,1\nh0,b,1,1"), "line 2: `h0` already has a link: a host has one");
    assert!(error("h0,a,1,1\nh2,a,1,1").starts_with("host `h1` is missing"));
    let apart = "h0,a,1,1\nh1,a,1,1\nh2,b,1,1\nh3,b,1,1";
    assert_eq!(error(apart), "no path from `h0` to `h2`: add a link");
    let island = "h0,a,1,1\nh1,a,1,1\nb,c,1,1\nc,b,1,1";
    assert_eq!(error(island), "no host reaches the switch `b`");
    // Mistyped hosts.
    for typo in ["H1", "host1", "h 1", "h-1"] {
        let text = format!("h0,a,1,1\n{typo},a,1,1");
        assert!(error(&text).starts_with(&format!("line 2: `{typo}` is a switch with")), "{typo}");
    }
    assert_eq!(error("h0,a,1,1\nh01,a,1,1"), "line 2: write `h01` without leading zeros");
    // A switch whose name begins like the header is no header.
    assert_eq!(
        error("from1,a,1,1\nh0,a,1,1"),
        "line 1: `from1` is a switch with a single link; \
        name hosts h0, h1, h2, ..."
    );
    let head = error("from,to,rate,delay_ns\nh0,a,1,1\nh1,a,1,1");
    assert!(
        head.starts_with("line 1: no column `gbps`; the first row has from, to, rate"),
        "{head}"
    );
    let turned = "\u{feff}delay_ns;To;from;gbps\r\n500;a;h0;10\r\n0.0;a;h1;25\r\n";
    let wiring = Graph::from_csv(turned).unwrap().wire();
    let first = wiring.ports()[0];
    assert_eq!((first.rate, first.delay), (Rate::gbps(10), SimDuration::nanos(500)));
    let quoted = "\"from\",\"to\",gbps,delay_ns\n\"h0\", \"a\" ,1,\"1\"\nh1,a,1,1";
    assert_eq!(Graph::from_csv(quoted).unwrap().wire().hosts(), 2);
}
