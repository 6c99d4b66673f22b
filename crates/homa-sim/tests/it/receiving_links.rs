//! How much of the receivers' links is used and wasted (Homa §5.2, Figures 13 and 14), in scenarios
//! small enough to work it out by hand.

use homa_sim::SimTime;
use homa_sim::experiment::{replay, run};
use homa_sim::scenario::{
    Exchange, Fabric, Scenario, ScenarioOutcome, Shape, SlowdownBy, Span, Traffic,
};
use homa_sim::traffic::open_loop::ScheduledMessage;

const MEASURED_MS: u64 = 10;
const SHORT: u32 = 1_000_000;
const LONG: u32 = 3_000_000;

/// Both senders have messages for both receivers, and the first sender's are shorter. If receivers
/// grant one message at a time, both grant the first sender, which serves one after the other.
fn two_by_two(degree: u8) -> ScenarioOutcome {
    let mut scenario = Scenario {
        scheme: "homa-sim".to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 4 }, ..Fabric::default() },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.options.levels = Some(degree + 1);
    scenario.options.scheduled_levels = Some(degree);
    scenario.options.overcommitment = Some(degree);
    scenario.stop.messages = None;
    scenario.stop.drain_limit = Span::millis(100);
    scenario.measures.wasted_bandwidth = true;
    let message = |src, dst, bytes| ScheduledMessage { at: SimTime(0), src, dst, bytes };
    let arrivals = vec![
        message(0, 2, SHORT),
        message(0, 3, SHORT),
        message(1, 2, LONG),
        message(1, 3, LONG),
        // The measurement lasts as long as traffic does, so this message defines its end.
        ScheduledMessage { at: SimTime(MEASURED_MS * 1_000_000_000), src: 1, dst: 0, bytes: 100 },
    ];
    let replayed = replay(&scenario, arrivals, Exchange::OneWay, &mut |_| ());
    replayed.unwrap_or_else(|error| panic!("{error}")).outcome
}

/// The time for which receivers' links were wasted, in milliseconds.
fn wasted_ms(outcome: &ScenarioOutcome) -> f64 {
    outcome.wasted_bandwidth.unwrap() * MEASURED_MS as f64 * 4.0
}

#[test]
fn granting_only_a_busy_sender_wastes_one_messages_time() {
    let outcome = two_by_two(1);
    // 1 MB with headers takes 0.84 ms at 10 Gbit/s, and the second sender could have sent then.
    let wasted = wasted_ms(&outcome);
    assert!((0.8..0.9).contains(&wasted), "{wasted} ms");
    // One of four hosts wasted x, and the other receiver only the round trip until it was served.
    // The mean is x / 4, the standard deviation x / 2, and Student's t with three degrees of
    // freedom is 3.182.
    let mean = outcome.wasted_bandwidth.unwrap();
    let [low, high] = outcome.wasted_ci.map(|end| end.unwrap() / mean);
    assert!(low == 0.0 && (high - 4.182).abs() < 0.02, "{low} to {high} of the mean");
}

#[test]
fn granting_every_sender_wastes_nothing() {
    assert_eq!(two_by_two(2).wasted_bandwidth, Some(0.0));
}

/// Requests go to two servers and responses to eight clients. Every measure, including the load,
/// should refer to the links of the servers.
#[test]
fn levels_and_load_are_shares_of_the_links_of_receivers() {
    let mut scenario = Scenario {
        scheme: "homa".to_owned(),
        traffic: Traffic::ClientsServers {
            workload: "1000".to_owned(),
            clients: 8,
            servers: 2,
            max_bytes: None,
        },
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 10 }, ..Fabric::default() },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.load.fraction = 0.5;
    scenario.stop.messages = Some(5_000);
    let outcome = run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let levels: f64 = outcome.priority_share.unwrap().iter().sum();
    let asked = outcome.loads.realised_paper / outcome.loads.paper;
    assert!((asked - 1.0).abs() < 0.1, "{:?}", outcome.loads);
    assert!((outcome.utilisation - 0.5).abs() < 0.1, "{}", outcome.utilisation);
    assert!((levels / outcome.utilisation - 1.0).abs() < 0.01, "{levels}, {}", outcome.utilisation);
}
