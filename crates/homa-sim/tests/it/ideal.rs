//! The scheme `ideal`: its latency is a lower bound for every transport, and it refuses scenarios
//! that it does not model.

use homa_sim::experiment::{Observers, Trace, run, run_watched, validate};
use homa_sim::scenario::{
    Exchange, Impaired, Scenario, ScenarioError, ScenarioOutcome, SlowdownBy, Span, Stop, Traffic,
    TrafficEnding,
};
use homa_sim::scheme::{self, Scheme};

use crate::common::{networks, scenario, transports};

fn ideal() -> &'static Scheme {
    scheme::find("ideal").unwrap()
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

/// Mean latency of all messages.
fn mean_us(outcome: &ScenarioOutcome) -> f64 {
    outcome.groups[0].mean_us
}

#[test]
fn no_transport_beats_the_bound_on_average() {
    let under = |scheme: &Scheme, workload: &str| {
        let mut scenario = scenario(scheme, workload, Exchange::OneWay);
        scenario.load.fraction = 0.5;
        scenario.stop.messages = Some(1_000);
        scenario.measures.groups = Some(Default::default());
        outcome(&scenario)
    };
    for workload in ["w2", "w4"] {
        let bound = under(ideal(), workload);
        assert_eq!((bound.messages, bound.undelivered), (1_000, 0));
        for scheme in transports() {
            let other = under(scheme, workload);
            assert_eq!(other.offered_bytes, bound.offered_bytes, "{}", scheme.name);
            let (bound, other) = (mean_us(&bound), mean_us(&other));
            assert!(bound < other, "{workload}: {} {other}, bound {bound}", scheme.name);
        }
    }
}

#[test]
fn an_idle_network_has_the_authors_ideal_time() {
    let mut scenario = scenario(ideal(), "1000", Exchange::OneWay);
    scenario.load.fraction = 0.001;
    scenario.stop.messages = Some(50);
    scenario.slowdown = SlowdownBy::AuthorsCorrected;
    let slowdown = outcome(&scenario).slowdown;
    // The authors' formula counts the same frame for this message.
    let (p50, p99) = (slowdown.p50.unwrap(), slowdown.p99.unwrap());
    assert!((0.95..1.05).contains(&p50) && p99 < 1.05, "{p50} {p99}");
}

#[test]
fn the_bound_runs_on_every_shape_of_network() {
    let mut ran = Vec::new();
    for (name, fabric) in networks(ideal()) {
        let scenario = Scenario { fabric, ..scenario(ideal(), "w3", Exchange::OneWay) };
        if validate(&scenario).is_ok() {
            let outcome = outcome(&scenario);
            assert_eq!((outcome.messages, outcome.undelivered), (2_000, 0), "{name}");
            ran.push(name);
        }
    }
    let shapes = ["one switch", "leaf and spine", "fat tree", "small buffers"];
    assert!(shapes.iter().all(|shape| ran.contains(shape)), "{ran:?}");
}

#[test]
fn links_carry_the_offered_load_and_runs_repeat() {
    let mut scenario = scenario(ideal(), "10000", Exchange::OneWay);
    scenario.load.fraction = 0.7;
    scenario.stop.messages = Some(5_000);
    let (a, b) = (outcome(&scenario), outcome(&scenario));
    assert_eq!((a.trace_hash.as_str(), &a.slowdown), (b.trace_hash.as_str(), &b.slowdown));
    let other = outcome(&Scenario { seed: 2, ..scenario });
    assert_ne!(a.trace_hash, other.trace_hash);
    assert_eq!(a.delivered_bytes, a.offered_bytes);
    let wire = a.loads.realised_wire;
    assert!((a.utilisation / wire - 1.0).abs() < 0.1, "{} of {wire}", a.utilisation);
}

#[test]
fn a_cut_run_under_overload_leaves_messages_undelivered() {
    let mut scenario = scenario(ideal(), "10000", Exchange::OneWay);
    scenario.load.fraction = 1.3;
    scenario.stop = Stop { messages: Some(20_000), ending: TrafficEnding::Cut, ..Stop::default() };
    let outcome = outcome(&scenario);
    assert!(outcome.undelivered > 100 && outcome.failed == 0, "{}", outcome.undelivered);
}

#[test]
fn features_that_the_bound_lacks_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Scenario), named: &str| {
        let mut scenario = scenario(ideal(), "w3", Exchange::OneWay);
        change(&mut scenario);
        let error = validate(&scenario).expect_err(named);
        assert!(matches!(error, ScenarioError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(run(&scenario, &mut |_| ()).unwrap_err(), error);
    };
    let echo =
        Traffic::AllToAll { workload: "w3".to_owned(), exchange: Exchange::Echo, max_bytes: None };
    refused(&|scenario| scenario.traffic = echo.clone(), "one-way");
    refused(&|scenario| scenario.fabric.loss_ppm = 1, "loss_ppm");
    refused(&|scenario| scenario.fabric.duplicate_ppm = 1, "duplicate_ppm");
    let down = Impaired {
        from: "h0".to_owned(),
        to: "tor0".to_owned(),
        one_way: false,
        at: Span::nanos(0),
        until: None,
        rate: None,
        loss_ppm: None,
    };
    refused(&|scenario| scenario.fabric.impaired = vec![down.clone()], "impaired");
    refused(&|scenario| scenario.fabric.cut_through = true, "cut-through");
    refused(&|scenario| scenario.measures.wasted_bandwidth = true, "wasted_bandwidth");
    refused(&|scenario| scenario.measures.tail_delay = true, "tail_delay");
    refused(&|scenario| scenario.measures.ledger = true, "ledger");

    let scenario = scenario(ideal(), "w3", Exchange::OneWay);
    let verified = Observers { verify: true, ..Observers::default() };
    assert!(run_watched(&scenario, verified, &mut |_| ()).is_err());
    let mut out = Vec::new();
    let trace = Some(Trace { out: &mut out, packets: 1 });
    let traced = Observers { trace, ..Observers::default() };
    assert!(run_watched(&scenario, traced, &mut |_| ()).is_err());
}
