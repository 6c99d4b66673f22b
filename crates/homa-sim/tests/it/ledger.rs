//! The ledger of a message's time on links with different rates.

use homa_sim::SimTime;
use homa_sim::experiment::replay;
use homa_sim::scenario::{Bandwidth, Exchange, Impaired, Scenario, Shape, SlowdownBy, Span};
use homa_sim::traffic::open_loop::ScheduledMessage;

/// A message of six full packets, all unscheduled, from host 0 to host 1. It is alone, so it should
/// wait for nothing. Serialising all packets but the last takes `rest_us` at the sender.
fn alone(mut scenario: Scenario, rest_us: f64) {
    scenario.scheme = "homa-sim".to_owned();
    scenario.slowdown = SlowdownBy::Idle;
    scenario.measures.ledger = true;
    scenario.options.unscheduled_bytes = Some(9_328);
    let message = |at, bytes| ScheduledMessage { at: SimTime(at), src: 0, dst: 1, bytes };
    let arrivals = vec![message(1_000_000_000, 6 * 1_442)];
    let replayed = replay(&scenario, arrivals, Exchange::OneWay, &mut |_| ());
    let ledger = replayed.unwrap_or_else(|error| panic!("{error}")).outcome.ledger.unwrap();
    assert_eq!(ledger.unbalanced, 0);
    let parts = ledger.mean;
    assert!(parts.wire_us > rest_us, "{parts:?}");
    let waits = parts.sender_queue_us + parts.grant_wait_us + parts.fabric_queue_us;
    assert_eq!(waits + parts.recovery_us, 0.0, "{parts:?}");
}

#[test]
fn wire_time_follows_the_senders_link_not_the_slowest() {
    let file = std::env::temp_dir().join(format!("homa-ledger-{}.csv", std::process::id()));
    std::fs::write(&file, "h0,a,10,500\nh1,a,10,500\nh2,a,1,500\n").unwrap();
    let mut scenario = Scenario::default();
    scenario.fabric.shape = Shape::Graph { file: file.display().to_string(), format: None };
    alone(scenario, 6.0);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn wire_time_grows_if_the_senders_link_slows_down() {
    let mut scenario = Scenario::default();
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 3 };
    scenario.fabric.impaired = vec![Impaired {
        from: "h0".to_owned(),
        to: "tor0".to_owned(),
        one_way: false,
        at: Span::nanos(500_000),
        until: None,
        rate: Some(Bandwidth::gbps(1)),
        loss_ppm: None,
    }];
    alone(scenario, 61.0);
}
