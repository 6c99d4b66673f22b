//! What every scheme of the table must do, whatever it is: deliver everything, conserve bytes,
//! repeat exactly, and drain to nothing.

use homa_sim::scenario::{
    Bandwidth, Buffer, Ending, Exchange, Eyes, Fabric, Impaired, Outcome, Scenario, Shape,
    SlowdownBy, Span, Traffic, run, run_watched,
};
use homa_sim::scheme::{SCHEMES, Scheme};

/// Two racks of four hosts, small enough for a debug build.
fn scenario(scheme: &Scheme, workload: &str, exchange: Exchange) -> Scenario {
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

fn outcome(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

fn exchanges(scheme: &Scheme) -> &'static [Exchange] {
    if scheme.one_way_only { &[Exchange::OneWay] } else { &[Exchange::OneWay, Exchange::Echo] }
}

#[test]
fn everything_is_delivered_and_nothing_is_left() {
    for scheme in SCHEMES {
        for &exchange in exchanges(scheme) {
            let outcome = outcome(&scenario(scheme, "w3", exchange));
            let name = scheme.name;
            assert_eq!((outcome.messages, outcome.undelivered), (2_000, 0), "{name}");
            assert_eq!(outcome.in_flight, 0, "{name}: packets left in the fabric");
            assert_eq!(outcome.drops.overflow + outcome.drops.fault, 0, "{name}");
            let counted: u64 = outcome.slowdown.buckets.iter().map(|bucket| bucket.count).sum();
            assert_eq!(counted, 2_000, "{name}");
        }
    }
}

#[test]
fn bytes_are_conserved() {
    for scheme in SCHEMES {
        let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
        scenario.stop.ending = Ending::Drain;
        let outcome = outcome(&scenario);
        assert_eq!(outcome.delivered_bytes, outcome.offered_bytes, "{}", scheme.name);
    }
}

#[test]
fn two_runs_are_the_same_and_another_seed_is_not() {
    for scheme in SCHEMES {
        let first = scenario(scheme, "w2", Exchange::OneWay);
        let other = Scenario { seed: 2, ..first.clone() };
        let (a, b, c) = (outcome(&first), outcome(&first), outcome(&other));
        assert_eq!(a.trace_hash, b.trace_hash, "{}", scheme.name);
        assert_eq!(a.slowdown, b.slowdown, "{}", scheme.name);
        assert_ne!(a.trace_hash, c.trace_hash, "{}", scheme.name);
    }
}

#[test]
fn an_idle_network_is_where_slowdowns_start() {
    for scheme in SCHEMES {
        let mut scenario = scenario(scheme, "1000", Exchange::OneWay);
        scenario.load.fraction = 0.001;
        scenario.stop.messages = Some(50);
        scenario.slowdown = SlowdownBy::Idle;
        let slowdown = outcome(&scenario).slowdown;
        let p50 = slowdown.p50.unwrap();
        assert!((0.999..1.001).contains(&p50), "{}: {p50}", scheme.name);
    }
}

#[test]
fn what_overflows_is_sent_again() {
    for scheme in SCHEMES.iter().filter(|scheme| !scheme.one_way_only) {
        let mut scenario = scenario(scheme, "20000", Exchange::Echo);
        scenario.fabric.buffer = Buffer::PerPort { bytes: 15_000 };
        scenario.stop.messages = Some(300);
        let outcome = outcome(&scenario);
        assert!(outcome.drops.overflow > 0, "{}: nothing to recover from", scheme.name);
        assert_eq!((outcome.messages, outcome.undelivered), (300, 0), "{}", scheme.name);
    }
}

/// Networks in which a verifier of physics has something to see, by name.
fn networks() -> Vec<(&'static str, Fabric)> {
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
        ("a slow link", Fabric { impaired: vec![slow.clone()], ..racks() }),
        ("a slow link under preemption", {
            Fabric { impaired: vec![slow], preemption: true, ..racks() }
        }),
        ("a dead link", Fabric { impaired: vec![down], ..racks() }),
        ("small buffers", Fabric { buffer: small, ..racks() }),
    ]
}

#[test]
fn physics_holds_in_every_network() {
    for scheme in SCHEMES {
        for (name, fabric) in networks() {
            let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
            scenario.fabric = fabric;
            scenario.stop.messages = Some(500);
            // `homa-sim` has no timers: what it lost never arrives.
            scenario.stop.drain_limit = Span::nanos(20_000_000);
            let eyes = Eyes { trace: None, verify: true };
            let (outcome, physics) = run_watched(&scenario, eyes, &mut |_| ()).unwrap();
            let what = format!("{} with {name}", scheme.name);
            let checked = physics.unwrap().unwrap_or_else(|broken| panic!("{what}: {broken:?}"));
            assert_eq!(checked.under_way.frames, outcome.in_flight, "{what}");
            assert_eq!(checked.lost.frames, outcome.drops.overflow + outcome.drops.fault, "{what}");
            assert!(checked.received.bytes > outcome.delivered_bytes, "{what}");
            let ends_badly =
                name.contains("loss") || name.contains("small") || name == "a dead link";
            assert_eq!(checked.lost.frames > 0, ends_badly, "{what}: {checked:?}");
            assert_eq!(checked.copied.frames > 0, name == "loss", "{what}: {checked:?}");
        }
    }
}

#[test]
fn a_run_that_is_cut_leaves_packets_under_way_and_no_byte_unaccounted_for() {
    let mut scenario = scenario(&SCHEMES[0], "w4", Exchange::OneWay);
    scenario.stop.ending = Ending::Cut;
    let eyes = Eyes { trace: None, verify: true };
    let (outcome, physics) = run_watched(&scenario, eyes, &mut |_| ()).unwrap();
    let checked = physics.unwrap().unwrap();
    assert!(outcome.in_flight > 0);
    assert_eq!(checked.under_way.frames, outcome.in_flight);
}

#[test]
fn the_ledger_sums_to_the_latency() {
    for scheme in SCHEMES {
        let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
        scenario.measures.ledger = true;
        let outcome = outcome(&scenario);
        let ledger = outcome.ledger.unwrap();
        assert_eq!(ledger.unbalanced, 0, "{}", scheme.name);
        assert!(ledger.mean.wire_us > 2.0 && ledger.mean.recovery_us == 0.0, "{}", scheme.name);
    }
}
