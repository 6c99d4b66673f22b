//! How measures count frames that are preempted on links.

use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Fabric, Scenario, ScenarioOutcome, Shape, Traffic};

/// Eight hosts at one switch with W3 at 80 % load, at which long frames are often preempted.
fn outcome(preemption: bool) -> ScenarioOutcome {
    let mut scenario = Scenario {
        scheme: "homa-sim".to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 8 }, preemption, ..Fabric::default() },
        traffic: Traffic::AllToAll {
            workload: "w3".to_owned(),
            exchange: Exchange::OneWay,
            max_bytes: None,
        },
        ..Scenario::default()
    };
    scenario.stop.messages = Some(5_000);
    scenario.measures.ledger = true;
    run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_preempted_frame_is_counted_once() {
    let outcome = outcome(true);
    let levels: f64 = outcome.priority_share.unwrap().iter().sum();
    // At each of the eight links one preempted frame may be unfinished when traffic ends.
    let frames = 8.0 * 1_538.0 / (8.0 * 1.25e9 * outcome.traffic_seconds);
    let more = levels - outcome.utilisation;
    assert!((0.0..=frames).contains(&more), "{levels} of {}", outcome.utilisation);
    assert!(outcome.utilisation < 1.0, "{}", outcome.utilisation);
}

#[test]
fn a_preempted_frame_waits_in_the_fabric_not_on_the_wire() {
    let (with, without) = (outcome(true), outcome(false));
    let (one, other) = (with.ledger.unwrap(), without.ledger.unwrap());
    assert_eq!((one.unbalanced, other.unbalanced), (0, 0));
    // Preemption should not change how long messages of one packet are on the wire.
    let short = with.slowdown.buckets.iter().take_while(|bin| bin.max_bytes <= 1_442).count();
    assert!(short > 10);
    for (a, b) in one.buckets.iter().zip(&other.buckets).take(short) {
        let (a, b) = (a.wire_us, b.wire_us);
        assert!((a - b).abs() < 0.01, "{a} us, without interruptions {b} us");
    }
}
