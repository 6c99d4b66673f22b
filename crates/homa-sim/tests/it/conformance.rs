//! Requirements on every scheme of the table: it delivers everything, conserves bytes, behaves the
//! same in every run with the same seed, and leaves no packet in the network.

use homa_sim::experiment::{Observers, run, run_watched};
use homa_sim::scenario::{
    Buffer, Exchange, Scenario, ScenarioOutcome, SlowdownBy, Span, TrafficEnding,
};
use homa_sim::scheme::{Scheme, SwitchQueue};
use homa_sim::swarm::swarm_of;

use crate::common::{faulty_networks, networks, scenario, transports};

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

fn exchanges(scheme: &Scheme) -> &'static [Exchange] {
    if scheme.one_way_only { &[Exchange::OneWay] } else { &[Exchange::OneWay, Exchange::Echo] }
}

#[test]
fn everything_is_delivered_and_nothing_is_left() {
    for scheme in transports() {
        for &exchange in exchanges(scheme) {
            let outcome = outcome(&scenario(scheme, "w3", exchange));
            let name = scheme.name;
            assert_eq!((outcome.messages, outcome.undelivered), (2_000, 0), "{name}");
            assert_eq!(outcome.in_flight, 0, "{name}: packets left in the fabric");
            let lost = outcome.drops.overflow + outcome.drops.fault;
            assert!(lost == 0 || scheme.loses_by_design, "{name}: {lost} frames lost");
            let counted: u64 = outcome.slowdown.buckets.iter().map(|bucket| bucket.count).sum();
            assert_eq!(counted, 2_000, "{name}");
        }
    }
}

#[test]
fn bytes_are_conserved() {
    for scheme in transports() {
        let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
        scenario.stop.ending = TrafficEnding::Drain;
        let outcome = outcome(&scenario);
        assert_eq!(outcome.delivered_bytes, outcome.offered_bytes, "{}", scheme.name);
    }
}

#[test]
fn two_runs_are_the_same_and_another_seed_is_not() {
    for scheme in transports() {
        let first = scenario(scheme, "w2", Exchange::OneWay);
        let other = Scenario { seed: 2, ..first.clone() };
        let (a, b, c) = (outcome(&first), outcome(&first), outcome(&other));
        assert_eq!(a.trace_hash, b.trace_hash, "{}", scheme.name);
        assert_eq!(a.slowdown, b.slowdown, "{}", scheme.name);
        assert_ne!(a.trace_hash, c.trace_hash, "{}", scheme.name);
    }
}

#[test]
fn the_slowdown_in_an_idle_network_is_one() {
    for scheme in transports() {
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
fn frames_dropped_by_full_buffers_are_retransmitted() {
    for scheme in transports().filter(|scheme| !scheme.one_way_only && !scheme.is_lossless()) {
        // The queues of SIRD and dcPIM are too short to fill the larger buffers.
        let bytes = if ["sird", "dcpim"].contains(&scheme.name) { 4_000 } else { 15_000 };
        let mut scenario = scenario(scheme, "20000", Exchange::Echo);
        scenario.fabric.buffer = Buffer::PerPort { bytes };
        scenario.stop.messages = Some(300);
        let outcome = outcome(&scenario);
        assert!(outcome.drops.overflow > 0, "{}: nothing to recover from", scheme.name);
        assert_eq!((outcome.messages, outcome.undelivered), (300, 0), "{}", scheme.name);
    }
}

/// Homa's one-way messages are left out, because their sender drops its state with the last byte
/// and cannot retransmit after that.
#[test]
fn packets_lost_to_faults_are_retransmitted() {
    for scheme in transports().filter(|row| !row.one_way_only || row.resends_one_way()) {
        for (name, fabric) in faulty_networks() {
            let exchange = *exchanges(scheme).last().unwrap();
            let mut scenario = scenario(scheme, "w3", exchange);
            scenario.fabric = fabric;
            scenario.stop.messages = Some(500);
            let (first, second) = (outcome(&scenario), outcome(&scenario));
            let what = format!("{} with {name}", scheme.name);
            assert_eq!((first.messages, first.undelivered, first.failed), (500, 0, 0), "{what}");
            assert_eq!(first.in_flight, 0, "{what}");
            assert_eq!(first.trace_hash, second.trace_hash, "{what}");
        }
    }
}

/// Random networks, options and faults. `homa swarm --scheme NAME` tries more of them.
#[test]
fn every_message_of_a_swarm_is_delivered_once_or_fails() {
    for scheme in transports() {
        let report = swarm_of(scheme, (25, 1), |_| ());
        let broken: Vec<String> = report
            .failures
            .iter()
            .map(|one| format!("{}: {}", one.replay(), one.violations[0]))
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert!(report.answered > report.calls / 2, "{}: {report:?}", scheme.name);
    }
}

#[test]
fn physics_holds_in_every_network() {
    for scheme in transports() {
        for (name, fabric) in networks(scheme) {
            let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
            scenario.fabric = fabric;
            scenario.stop.messages = Some(500);
            // `homa-sim` has no timers, so a lost message never arrives and the run would last for
            // the whole default limit.
            scenario.stop.drain_limit = Span::nanos(20_000_000);
            let observers = Observers { verify: true, ..Observers::default() };
            let (outcome, physics) = run_watched(&scenario, observers, &mut |_| ()).unwrap();
            let what = format!("{} with {name}", scheme.name);
            let checked = physics.unwrap().unwrap_or_else(|broken| panic!("{what}: {broken:?}"));
            assert_eq!(checked.in_flight.frames, outcome.in_flight, "{what}");
            assert_eq!(checked.lost.frames, outcome.drops.overflow + outcome.drops.fault, "{what}");
            assert!(checked.received.bytes > outcome.delivered_bytes, "{what}");
            // Small buffers need not overflow: a scheme with short queues fits into them.
            let lossy = name.contains("loss") || name == "a dead link";
            let may_lose = lossy || name.contains("small") || scheme.loses_by_design;
            assert!(checked.lost.frames > 0 || !lossy, "{what}: {checked:?}");
            assert!(checked.lost.frames == 0 || may_lose, "{what}: {checked:?}");
            assert_eq!(checked.copied.frames > 0, name == "loss", "{what}: {checked:?}");
        }
    }
}

#[test]
fn a_cut_run_accounts_for_packets_in_flight() {
    let mut scenario = scenario(transports().next().unwrap(), "w4", Exchange::OneWay);
    scenario.stop.ending = TrafficEnding::Cut;
    let observers = Observers { verify: true, ..Observers::default() };
    let (outcome, physics) = run_watched(&scenario, observers, &mut |_| ()).unwrap();
    let checked = physics.unwrap().unwrap();
    assert!(outcome.in_flight > 0);
    assert_eq!(checked.in_flight.frames, outcome.in_flight);
}

#[test]
fn the_ledger_sums_to_the_latency() {
    for scheme in transports() {
        let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
        scenario.measures.ledger = true;
        let outcome = outcome(&scenario);
        let ledger = outcome.ledger.unwrap();
        assert_eq!(ledger.unbalanced, 0, "{}", scheme.name);
        // If switches drop or trim packets, retransmission takes some of the time. dcPIM sends
        // packets again that are later than a BDP, which a queue can cause.
        let resends = scheme.loses_by_design
            || matches!(scheme.queue, SwitchQueue::Trimming(_))
            || scheme.name == "dcpim";
        let recovers = ledger.mean.recovery_us > 0.0 && !resends;
        assert!(ledger.mean.wire_us > 2.0 && !recovers, "{}", scheme.name);
    }
}
