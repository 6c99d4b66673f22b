//! Where the ledger says a message's time went, on links that are not alike.

use homa_sim::SimTime;
use homa_sim::experiment::replay;
use homa_sim::scenario::{Bandwidth, Exchange, Impaired, Scenario, Shape, SlowdownBy, Span};
use homa_sim::traffic::open_loop::ScheduledMessage;

/// A message of six full packets, all unscheduled, from host 0 to host 1, alone: it waits for
/// nothing. All but the last packet take `rest_us` at the sender.
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
fn a_fast_host_beside_a_slow_one_is_on_its_own_wire() {
    let file = std::env::temp_dir().join(format!("homa-ledger-{}.csv", std::process::id()));
    std::fs::write(&file, "h0,a,10,500\nh1,a,10,500\nh2,a,1,500\n").unwrap();
    let mut scenario = Scenario::default();
    scenario.fabric.shape = Shape::Graph { file: file.display().to_string() };
    alone(scenario, 6.0);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_host_whose_link_became_slower_is_longer_on_the_wire() {
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
