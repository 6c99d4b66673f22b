//! Frames that are interrupted on links: what the measures say of them.

use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Fabric, Outcome, Scenario, Shape, Traffic};

/// Eight hosts at one switch, W3 at 80 %: long frames are interrupted all the time.
fn outcome(preemption: bool) -> Outcome {
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
fn what_is_interrupted_is_carried_once() {
    let outcome = outcome(true);
    let levels: f64 = outcome.priority_share.unwrap().iter().sum();
    // A frame whose rest was not sent by the end of traffic, at each of eight links.
    let frames = 8.0 * 1_538.0 / (8.0 * 1.25e9 * outcome.traffic_seconds);
    let more = levels - outcome.utilisation;
    assert!((0.0..=frames).contains(&more), "{levels} of {}", outcome.utilisation);
    assert!(outcome.utilisation < 1.0, "{}", outcome.utilisation);
}

#[test]
fn an_interrupted_frame_waits_in_the_fabric_not_on_the_wire() {
    let (with, without) = (outcome(true), outcome(false));
    let (one, other) = (with.ledger.unwrap(), without.ledger.unwrap());
    assert_eq!((one.unbalanced, other.unbalanced), (0, 0));
    // Messages of one packet are on the wire for as long as their bytes take.
    let short = with.slowdown.buckets.iter().take_while(|bin| bin.max_bytes <= 1_442).count();
    assert!(short > 10);
    for (a, b) in one.buckets.iter().zip(&other.buckets).take(short) {
        let (a, b) = (a.wire_us, b.wire_us);
        assert!((a - b).abs() < 0.01, "{a} us, without interruptions {b} us");
    }
}
