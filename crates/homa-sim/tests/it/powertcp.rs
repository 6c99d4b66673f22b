//! PowerTCP and θ-PowerTCP: what their equilibrium (NSDI 2022, §3.3) says of one bottleneck, with
//! the constants of the simulator of their authors.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Fabric, PowerTcpOptions, Scenario, ScenarioOutcome, SchemeOptions, Shape,
    SlowdownBy, Span, Stop, Traffic, TrafficEnding,
};

use crate::common::bare;

/// Hosts at one switch with links of 25 Gbit/s and 10 us.
fn star(scheme: &str, hosts: u32, traffic: Traffic) -> Scenario {
    Scenario {
        scheme: scheme.to_owned(),
        fabric: bare(Fabric {
            shape: Shape::SingleSwitch { hosts },
            host_link: Bandwidth::gbps(25),
            propagation: Span::nanos(10_000),
            ..Fabric::default()
        }),
        traffic,
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    }
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

/// Link use and the mean queue of long flows in the equilibrium of [`next_rate`]: the power, 1 and
/// the queue over the bandwidth-delay product, is `target` times 1 and the increments of all flows
/// over the link. Below a power of 1 there is no queue.
///
/// [`next_rate`]: ../../src/transport/rdma/powertcp.rs
fn equilibrium(target: f64, senders: u32, product: f64) -> (f64, f64) {
    let increments = f64::from(senders) * 0.15 / 25.0;
    let queue = product * (target * (1.0 + increments) - 1.0);
    ((target + increments).min(1.0), queue.max(0.0))
}

/// The bytes that are on the way in 4 cables of 10 us, a packet of `wire` bytes, and an answer.
fn product(wire: f64) -> f64 {
    40e-6 * 25e9 / 8.0 + 2.0 * wire + 2.0 * 60.0
}

#[test]
fn long_flows_are_in_the_equilibrium() {
    for (senders, tolerance) in [(1, 0.0), (4, 1_500.0), (20, 2_000.0), (40, 5_000.0)] {
        let outcome = long("theta-powertcp", senders);
        let queue = outcome.queues.unwrap().receivers.unwrap().mean_bytes;
        let (link, expected) = equilibrium(1.05, senders, product(1_056.0));
        assert!((outcome.utilisation - link).abs() < 0.002, "{senders}: {}", outcome.utilisation);
        // A single flow sends at the rate of the link and never meets a packet.
        let met = if senders == 1 { 0.0 } else { expected };
        assert!((queue - met).abs() <= tolerance, "{senders}: {queue} for {expected}");
        assert!(outcome.flow_groups[0].fairness > 0.999, "{senders}");
    }
    for senders in [1, 4] {
        let outcome = long("powertcp", senders);
        let (link, queue) = equilibrium(0.95, senders, product(1_090.0));
        assert_eq!(queue, 0.0);
        let mean = outcome.queues.unwrap().receivers.unwrap().mean_bytes;
        assert!((outcome.utilisation - link).abs() < 0.003, "{senders}: {}", outcome.utilisation);
        assert!(mean < 500.0 && outcome.flow_groups[0].fairness > 0.999, "{senders}: {mean}");
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
