//! Incast: the divisor of its RPCs' latencies, and the losses that incast control prevents
//! (Homa §3.6).

use homa_sim::experiment::run;
use homa_sim::scenario::{
    Buffer, Fabric, Scenario, ScenarioOutcome, Shape, SlowdownBy, Span, Traffic,
};

/// A client calls twelve servers, four of them in the client's rack, one at a time.
fn outcome(slowdown: SlowdownBy) -> ScenarioOutcome {
    let mut scenario = Scenario {
        scheme: "homa".to_owned(),
        fabric: Fabric {
            shape: Shape::LeafSpine { racks: 3, hosts_per_rack: 5, spines: 2 },
            ..Fabric::default()
        },
        traffic: Traffic::Incast {
            servers: 12,
            concurrent: 1,
            request_bytes: 100,
            response_bytes: 10_000,
            together: false,
        },
        slowdown,
        ..Scenario::default()
    };
    scenario.stop.messages = Some(120);
    let outcome = run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((outcome.messages, outcome.undelivered), (120, 0));
    outcome
}

#[test]
fn one_rpc_at_a_time_has_slowdown_one_in_any_rack() {
    let slowdown = outcome(SlowdownBy::Idle).slowdown;
    let (p50, p99) = (slowdown.p50.unwrap(), slowdown.p99.unwrap());
    assert!((0.99..1.02).contains(&p50) && (0.99..1.02).contains(&p99), "{p50} {p99}");
}

#[test]
fn the_authors_formula_counts_the_response_too() {
    // The formula's times for the request and the response across racks are 2.582 and 12.4652 us.
    let slowdown = outcome(SlowdownBy::AuthorsCorrected).slowdown;
    let bin = slowdown.buckets.iter().find(|bin| bin.count > 0).unwrap();
    let alone = bin.p99_us.unwrap() / bin.p99.unwrap();
    assert!((alone - (2.582 + 12.465_2)).abs() < 1e-3, "{alone} us");
    // Packets of this scheme carry fewer message bytes than the formula assumes.
    let (p50, p99) = (slowdown.p50.unwrap(), slowdown.p99.unwrap());
    assert!((1.0..1.2).contains(&p50) && (1.0..1.2).contains(&p99), "{p50} {p99}");
}

/// 500 responses of 10 kB are forty times the size of a port's buffer.
#[test]
fn incast_control_keeps_responses_from_overrunning_the_port() {
    let dropped = |control: bool| {
        let mut scenario = Scenario {
            scheme: "homa".to_owned(),
            fabric: Fabric {
                shape: Shape::SingleSwitch { hosts: 16 },
                buffer: Buffer::PerPort { bytes: 131_072 },
                ..Fabric::default()
            },
            traffic: Traffic::Incast {
                servers: 15,
                concurrent: 500,
                request_bytes: 100,
                response_bytes: 10_000,
                together: false,
            },
            slowdown: SlowdownBy::Idle,
            ..Scenario::default()
        };
        scenario.options.incast_control = Some(control);
        scenario.stop.messages = Some(3_000);
        let outcome = run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (3_000, 0, 0));
        outcome.drops.overflow
    };
    let (with, without) = (dropped(true), dropped(false));
    assert!(without > 1_000 && with * 10 < without, "{with} with, {without} without");
}

/// 300 responses of 10 kB take 2.6 ms to arrive. If the receiver sends RESENDs after 2 ms it gets
/// some of them twice; if it waits for 6 ms it does not.
#[test]
fn a_longer_resend_timer_avoids_duplicates_in_an_incast() {
    let twice = |resend_after: Option<Span>| {
        let mut scenario = Scenario {
            scheme: "homa-paper".to_owned(),
            slowdown: SlowdownBy::Idle,
            fabric: Fabric { shape: Shape::SingleSwitch { hosts: 16 }, ..Fabric::default() },
            traffic: Traffic::Incast {
                servers: 15,
                concurrent: 300,
                request_bytes: 100,
                response_bytes: 10_000,
                together: false,
            },
            ..Scenario::default()
        };
        scenario.options.incast_control = Some(false);
        scenario.options.resend_after = resend_after;
        scenario.stop.messages = Some(1_000);
        let outcome = run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outcome.messages, 1_000);
        outcome.drops.refused
    };
    assert!(twice(None) > 0);
    assert_eq!(twice(Some(Span::millis(6))), 0);
}

/// 15 responses of 1 MB at a time. The kernel module has at most 40 kB of each unscheduled, and
/// grants 400 kB for all together. The series for the upstream kernel grants nothing and sends
/// everything, so nothing but the queue holds it, and priorities do not help.
#[test]
fn long_messages_of_the_upstream_kernel_fill_the_queue() {
    let longest = |scheme: &str| {
        let mut scenario = Scenario {
            scheme: scheme.to_owned(),
            slowdown: SlowdownBy::Idle,
            fabric: Fabric { shape: Shape::SingleSwitch { hosts: 16 }, ..Fabric::default() },
            traffic: Traffic::Incast {
                servers: 15,
                concurrent: 15,
                request_bytes: 100,
                response_bytes: 1_000_000,
                together: true,
            },
            ..Scenario::default()
        };
        scenario.stop.messages = Some(45);
        scenario.measures.queues = true;
        let outcome = run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (45, 0, 0), "{scheme}");
        outcome.queues.unwrap().tor_down.unwrap().max_bytes
    };
    let (module, upstream) = (longest("homa-linux"), longest("homa-linux-upstream"));
    assert!(module < 15 * 40_000 + 500_000, "{module} bytes");
    assert!(upstream > 14 * 900_000, "{upstream} bytes");
}
