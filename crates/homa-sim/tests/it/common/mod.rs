//! The networks and the traffic with which every scheme of the table is tested.

use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Scenario, Shape, SlowdownBy, Span, Traffic,
};
use homa_sim::scheme::{SCHEMES, Scheme, SwitchQueue};

/// Every row of the table that moves packets. The bound, which moves none, is tested in `ideal.rs`.
pub fn transports() -> impl Iterator<Item = &'static Scheme> {
    SCHEMES.iter().filter(|scheme| !scheme.is_bound())
}

/// A network without any delay but those of wires.
pub fn bare(fabric: Fabric) -> Fabric {
    let none = Span::nanos(0);
    let (send_delay, nic_delay, receive_delay, switch_delay) = (none, none, none, none);
    Fabric { send_delay, nic_delay, receive_delay, switch_delay, ..fabric }
}

/// Links of `gbps` Gbit/s and `nanos` nanoseconds without any other delay. Slowdowns divide by the
/// times of the idle network.
pub fn equal_links(
    scheme: &str,
    shape: Shape,
    (gbps, nanos): (u64, u64),
    traffic: Traffic,
) -> Scenario {
    let link = Bandwidth::gbps(gbps);
    let fabric = Fabric {
        shape,
        host_link: link,
        fabric_link: link,
        propagation: Span::nanos(nanos),
        ..Fabric::default()
    };
    Scenario {
        scheme: scheme.to_owned(),
        fabric: bare(fabric),
        traffic,
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    }
}

/// Two racks of four hosts, small enough for a debug build.
pub fn scenario(scheme: &Scheme, workload: &str, exchange: Exchange) -> Scenario {
    let mut scenario = Scenario {
        scheme: scheme.name.to_owned(),
        fabric: Fabric {
            shape: Shape::LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2 },
            ..Fabric::default()
        },
        traffic: Traffic::AllToAll {
            workload: workload.to_owned(),
            exchange,
            max_bytes: Some(200_000),
        },
        ..Scenario::default()
    };
    scenario.load.fraction = 0.6;
    scenario.stop.messages = Some(2_000);
    scenario
}

/// The conformance networks that this scheme supports, with their names. They differ enough to
/// exercise every rule of the physics verifier.
pub fn networks(scheme: &Scheme) -> Vec<(&'static str, Fabric)> {
    let strict = scheme.queue == SwitchQueue::Strict;
    let mut networks = all_networks();
    // Preemption is only implemented for strict priorities.
    networks.retain(|(_, fabric)| strict || !fabric.preemption);
    if matches!(scheme.queue, SwitchQueue::Combined(_)) {
        // These switches store frames before they forward them, and `fabric.buffer` sizes each side
        // of a port, so the buffers of the other networks would mean something else.
        let fits = |fabric: &Fabric| !fabric.cut_through && fabric.buffer == Buffer::Unlimited;
        networks.retain(|(_, fabric)| fits(fabric));
    }
    networks
}

/// Networks that lose, duplicate or reorder packets, or in which a link fails, with their names.
pub fn faulty_networks() -> Vec<(&'static str, Fabric)> {
    let faulty = ["loss", "reordering", "a dead link"];
    let mut networks = all_networks();
    networks.retain(|(name, _)| faulty.contains(name));
    assert_eq!(networks.len(), faulty.len());
    networks
}

fn all_networks() -> Vec<(&'static str, Fabric)> {
    let shape = |shape| Fabric { shape, ..Fabric::default() };
    let racks = || shape(Shape::LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2 });
    let equal = Fabric { fabric_link: Bandwidth::gbps(10), cut_through: true, ..racks() };
    let slow = Impaired {
        from: "tor0".to_owned(),
        to: "spine1".to_owned(),
        one_way: false,
        at: Span::nanos(20_000),
        until: Some(Span::nanos(200_000)),
        rate: Some(Bandwidth::gbps(1)),
        loss_ppm: None,
    };
    let down =
        Impaired { from: "h3".to_owned(), to: "tor0".to_owned(), rate: None, ..slow.clone() };
    let slow_uplink = Impaired {
        from: "h3".to_owned(),
        to: "tor0".to_owned(),
        at: Span::nanos(0),
        until: None,
        ..slow.clone()
    };
    let small = Buffer::PerPort { bytes: 3_100 };
    let shared = Buffer::Shared { bytes: 20_000, alpha_percent: 100 };
    vec![
        ("one switch", shape(Shape::SingleSwitch { hosts: 8 })),
        ("leaf and spine", racks()),
        ("fat tree", shape(Shape::FatTree { k: 4, oversubscription: 1 })),
        ("preemption", Fabric { preemption: true, ..racks() }),
        ("cut-through", equal.clone()),
        ("cut-through over slow links", {
            Fabric { impaired: vec![slow.clone(), slow_uplink], ..equal.clone() }
        }),
        ("cut-through, small buffers", Fabric { buffer: small, ..equal }),
        ("small buffers under preemption", {
            Fabric { buffer: small, preemption: true, ..racks() }
        }),
        ("small shared buffers", Fabric { buffer: shared, ..racks() }),
        ("loss", Fabric { loss_ppm: 2_000, duplicate_ppm: 2_000, ..racks() }),
        ("loss under preemption", Fabric { loss_ppm: 2_000, preemption: true, ..racks() }),
        ("reordering", {
            Fabric { reorder_ppm: 20_000, reorder_by: Span::nanos(50_000), ..racks() }
        }),
        ("a slow link", Fabric { impaired: vec![slow.clone()], ..racks() }),
        ("a slow link under preemption", {
            Fabric { impaired: vec![slow], preemption: true, ..racks() }
        }),
        ("a dead link", Fabric { impaired: vec![down], ..racks() }),
        ("small buffers", Fabric { buffer: small, ..racks() }),
    ]
}
