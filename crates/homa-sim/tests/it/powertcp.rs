//! PowerTCP and θ-PowerTCP: what their equilibrium (NSDI 2022, §3.3) says of one bottleneck, with
//! the constants of the simulator of their authors.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Exchange, PowerTcpOptions, Routing, Scenario, ScenarioOutcome, SchemeOptions, Shape, Span,
    Stop, Traffic, TrafficEnding,
};

use crate::common::equal_links;

/// Hosts at one switch with links of 25 Gbit/s and 10 us.
fn star(scheme: &str, hosts: u32, traffic: Traffic) -> Scenario {
    equal_links(scheme, Shape::SingleSwitch { hosts }, (25, 10_000), traffic)
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    let outcome = run(scenario, &mut |_| ()).expect("it runs");
    assert_eq!((outcome.drops.overflow, outcome.timeouts.expired), (0, 0), "{}", scenario.scheme);
    outcome
}

/// Long flows to one host, measured from 6 to 10 ms.
fn long(scheme: &str, senders: u32) -> ScenarioOutcome {
    let mut scenario =
        star(scheme, senders + 1, Traffic::LongFlows { senders, groups: Vec::new() });
    scenario.warm_up = Span::millis(6);
    let time = Some(Span::millis(10));
    scenario.stop = Stop { time, ending: TrafficEnding::Cut, messages: None, ..scenario.stop };
    outcome(&scenario)
}

/// Link use and the mean queue of long flows in equilibrium. Each rate R is R times the target over
/// the power, and the increment. Without a queue the power is the link use, so it is the target and
/// the increments of all flows over the link. With one, windows of message bytes limit the bytes on
/// the way, so that increments count with headers, and the excess over 1 waits.
fn equilibrium(target: f64, senders: u32, (wire, product): (f64, f64)) -> (f64, f64) {
    let increments = f64::from(senders) * 0.15 / 25.0;
    if target + increments <= 1.0 {
        return (target + increments, 0.0);
    }
    (1.0, product * (target + increments * wire / 1_000.0 - 1.0))
}

/// The bytes that are on the way in 4 cables of 10 us, a packet of `wire` bytes, and an answer.
fn on_the_way(wire: f64) -> (f64, f64) {
    (wire, 40e-6 * 25e9 / 8.0 + 2.0 * wire + 2.0 * 60.0)
}

#[test]
fn long_flows_are_in_the_equilibrium() {
    for (senders, tolerance) in [(1, 0.0), (4, 1_200.0), (20, 1_000.0), (40, 3_000.0)] {
        let outcome = long("theta-powertcp", senders);
        let queue = outcome.queues.unwrap().receivers.unwrap().mean_bytes;
        let (link, expected) = equilibrium(1.05, senders, on_the_way(1_056.0));
        assert!((outcome.utilisation - link).abs() < 0.002, "{senders}: {}", outcome.utilisation);
        // A single flow sends at the rate of the link and never meets a packet.
        let met = if senders == 1 { 0.0 } else { expected };
        assert!((queue - met).abs() <= tolerance, "{senders}: {queue} for {expected}");
        assert!(outcome.flow_groups[0].fairness > 0.999, "{senders}");
    }
    // Its queue moves, and is up to a fifth longer.
    for (senders, tolerance) in [(1, 0.003), (4, 0.003), (20, 0.015), (40, 0.003)] {
        let outcome = long("powertcp", senders);
        let (link, queue) = equilibrium(0.95, senders, on_the_way(1_090.0));
        let mean = outcome.queues.unwrap().receivers.unwrap().mean_bytes;
        assert!(
            (outcome.utilisation - link).abs() < tolerance,
            "{senders}: {}",
            outcome.utilisation
        );
        assert!((queue..queue * 1.2 + 500.0).contains(&mean), "{senders}: {mean} for {queue}");
        assert!(outcome.flow_groups[0].fairness > 0.999, "{senders}");
    }
}

/// 100 kB every 64 us. Counters of bytes and of time wrap at different times.
#[test]
fn a_new_pair_is_not_cut_because_counters_wrapped() {
    let file = std::env::temp_dir().join(format!("homa-power-{}.csv", std::process::id()));
    let rows = (0..400).map(|n| format!("{n},0,1,100000,{}\n", n * 64_000));
    std::fs::write(&file, rows.collect::<String>()).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let traffic = Traffic::Flows { file: path, format: None, exchange: Exchange::OneWay };
    let mut scenario = star("powertcp", 2, traffic);
    scenario.measures.flows_above = Some(0);
    let outcome = outcome(&scenario);
    std::fs::remove_file(&file).unwrap();
    let times = || outcome.flows.iter().map(|flow| flow.us);
    let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    assert!(outcome.flows.len() == 400 && most < least * 1.02, "{least} to {most}");
}

#[test]
fn paths_that_change_with_every_packet_are_warned_of() {
    let shape = Shape::FatTree { k: 4, oversubscription: 1 };
    for (scheme, routing, expected) in [
        ("powertcp", Some(Routing::Spray), true),
        ("hpcc", Some(Routing::Adaptive), true),
        ("powertcp", None, false),
        ("theta-powertcp", Some(Routing::Spray), false),
    ] {
        let mut scenario = star(scheme, 2, Traffic::FanIn { senders: 1, bytes: 1_000 });
        (scenario.fabric.shape, scenario.fabric.routing) = (shape.clone(), routing);
        let warned = outcome(&scenario).warnings.iter().any(|said| said.contains("routing"));
        assert_eq!(warned, expected, "{scheme}");
    }
}

/// The rate of a lone flow is the target.
#[test]
fn parameters_can_be_changed_within_their_limits() {
    let table = |powertcp| SchemeOptions { powertcp: Some(powertcp), ..SchemeOptions::default() };
    let mut scenario = star("powertcp", 2, Traffic::FanIn { senders: 1, bytes: 20_000_000 });
    scenario.measures.flows_above = Some(0);
    let us = |options: SchemeOptions| {
        let measured = run(&Scenario { options, ..scenario.clone() }, &mut |_| ()).unwrap();
        measured.flows[0].us
    };
    let slow = us(table(PowerTcpOptions { target: Some(0.6), ..Default::default() }));
    let fast = us(table(PowerTcpOptions { target: Some(0.9), ..Default::default() }));
    assert!((1.45..1.55).contains(&(slow / fast)), "{slow} {fast}");
    for (scheme, key, options) in [
        ("powertcp", "target", PowerTcpOptions { target: Some(0.0), ..Default::default() }),
        ("powertcp", "gain", PowerTcpOptions { gain: Some(1.5), ..Default::default() }),
        ("powertcp", "int_unit", PowerTcpOptions { int_unit: Some(0), ..Default::default() }),
        ("theta-powertcp", "int_unit", PowerTcpOptions { int_unit: Some(1), ..Default::default() }),
        ("hpcc", "powertcp", PowerTcpOptions::default()),
    ] {
        scenario.scheme = scheme.to_owned();
        scenario.options = table(options);
        let refused = validate(&scenario).unwrap_err().to_string();
        assert!(refused.contains("options.powertcp") && refused.contains(key), "{key}: {refused}");
    }
}
