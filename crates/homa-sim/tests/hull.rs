//! HULL's trade (NSDI 2012 §6.1): long flows give bandwidth away, and packets of others wait less.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, EcnConfig, EcnScopeName, Ending, Exchange, Fabric, Outcome, PacerOptions,
    PhantomOptions, Probes, Scenario, Shape, SlowdownBy, Span, Stop, Traffic,
};

/// Two servers of a rack at 1 Gbit/s send to a third, a fourth one probes.
fn two_flows(scheme: &str) -> Scenario {
    Scenario {
        scheme: scheme.to_owned(),
        fabric: Fabric {
            shape: Shape::SingleSwitch { hosts: 4 },
            host_link: Bandwidth::gbps(1),
            send_delay: Span::nanos(35_000),
            receive_delay: Span::nanos(35_000),
            ..Fabric::default()
        },
        traffic: Traffic::LongFlows { senders: 2, groups: Vec::new() },
        probes: Some(Probes { from: 3, to: 0, every: Span::millis(1), bytes: 1_400 }),
        warm_up: Span::millis(100),
        stop: Stop {
            messages: None,
            time: Some(Span::millis(1_100)),
            ending: Ending::Cut,
            ..Stop::default()
        },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    }
}

/// Mean wait of a probe in microseconds, and the share of the link that is used.
fn traded(scenario: &Scenario) -> (f64, f64) {
    let Outcome { probes, utilisation, messages, .. } = run(scenario, &mut |_| ()).unwrap();
    let probes = probes.unwrap();
    assert!(probes.count > 990, "{probes:?}");
    assert_eq!(messages, 0, "probes are no messages");
    (probes.mean_us, utilisation)
}

#[test]
fn phantom_queues_and_pacers_trade_bandwidth_for_latency() {
    let mut dctcp = two_flows("dctcp");
    dctcp.options.ecn = Some(EcnConfig { threshold: 30_000, scope: EcnScopeName::Queue });
    let mut unpaced = two_flows("hull");
    unpaced.options.pacer = Some(PacerOptions { enabled: Some(false), ..PacerOptions::default() });
    let mut lower = two_flows("hull");
    lower.options.phantom = Some(PhantomOptions { drain: Some(0.8), ..PhantomOptions::default() });
    let [dctcp, unpaced, hull, lower] =
        [dctcp, unpaced, two_flows("hull"), lower].map(|scenario| traded(&scenario));
    assert!(dctcp.1 > 0.98 && dctcp.0 > 100.0, "{dctcp:?}");
    assert!(hull.0 * 5.0 < dctcp.0, "{hull:?} {dctcp:?}");
    assert!((0.75..0.97).contains(&hull.1), "{hull:?}");
    assert!(lower.1 < hull.1 - 0.05, "{lower:?} {hull:?}");
    assert!(hull.0 < unpaced.0, "pacing shortens queues: {hull:?} {unpaced:?}");
}

#[test]
fn probes_that_measure_nothing_are_refused_by_their_key() {
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = two_flows("hull");
        change(&mut scenario);
        validate(&scenario).unwrap_err().to_string()
    };
    let probes = |probes: Probes| refused(&|scenario| scenario.probes = Some(probes));
    let good = two_flows("hull").probes.unwrap();
    assert!(probes(Probes { to: 3, ..good }).contains("probes.to"));
    assert!(probes(Probes { from: 4, ..good }).contains("probes.from"));
    assert!(probes(Probes { every: Span(0), ..good }).contains("probes.every"));
    assert!(probes(Probes { bytes: 0, ..good }).contains("probes.bytes"));
    let authors = refused(&|scenario| scenario.slowdown = SlowdownBy::Authors);
    assert!(authors.contains("slowdown"), "{authors}");
    let echo = refused(&|scenario| {
        scenario.traffic = Traffic::AllToAll {
            workload: "w1".to_owned(),
            exchange: Exchange::Echo,
            max_bytes: None,
        };
    });
    assert!(echo.contains("probes"), "{echo}");
    let crowd = refused(&|scenario| {
        scenario.traffic = Traffic::LongFlows { senders: 4, groups: Vec::new() }
    });
    assert!(crowd.contains("traffic.senders"), "{crowd}");
}
