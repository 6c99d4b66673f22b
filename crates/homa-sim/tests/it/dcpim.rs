//! dcPIM: what a match costs a message, and what messages without one are spared.

use homa_sim::experiment::run;
use homa_sim::scenario::{
    Bandwidth, Basis, DcpimOptions, Exchange, Fabric, Groups, Scenario, ScenarioOutcome, Shape,
    SlowdownBy, Span, Traffic,
};

use crate::common::bare;

/// A BDP of the evaluation's network: 49 packets of 1460 message bytes.
const BDP: u32 = 49 * 1_460;

/// The network and the parameters of dcPIM's evaluation, with fewer hosts.
fn evaluation(workload: &str, (load, messages): (f64, u64)) -> ScenarioOutcome {
    let mut scenario = Scenario {
        scheme: "dcpim".to_owned(),
        fabric: bare(Fabric {
            shape: Shape::LeafSpine { racks: 3, hosts_per_rack: 8, spines: 4 },
            host_link: Bandwidth::gbps(100),
            fabric_link: Bandwidth::gbps(400),
            propagation: Span::nanos(650),
            ..Fabric::default()
        }),
        traffic: Traffic::AllToAll {
            workload: workload.to_owned(),
            exchange: Exchange::OneWay,
            max_bytes: None,
        },
        slowdown: SlowdownBy::BareAcked,
        ..Scenario::default()
    };
    scenario.options.dcpim = Some(DcpimOptions {
        bare: Some(true),
        bdp: Some(49),
        control_rtt: Some(Span::nanos(5_216)),
        ..DcpimOptions::default()
    });
    (scenario.load.fraction, scenario.load.basis) = (load, Basis::Payload);
    scenario.stop.messages = Some(messages);
    let up_to = vec![BDP - 1, 2 * BDP - 1];
    scenario.measures.groups = Some(Groups { up_to, percentiles: vec![99.0] });
    run(&scenario, &mut |_| ()).expect("it runs")
}

/// A message of one packet more than a BDP waits for the next round (on average half a round of
/// 6.8 us) and a round for its match, and its 50 packets have one channel of four: 24 us instead of
/// 6. With 2.6 us for each of notification, token, last packet and ACK these are 45 us instead of
/// 11. A build without the latency of the match would take a fourth of that.
#[test]
fn above_a_bdp_a_message_waits_for_a_match_with_one_channel() {
    let alone = |packets: u32| {
        let outcome = evaluation(&(packets * 1_460).to_string(), (0.002, 200));
        outcome.slowdown.mean.expect("messages arrived")
    };
    let (short, long) = (alone(49), alone(50));
    assert!((1.0..1.03).contains(&short), "{short}");
    assert!((3.7..4.4).contains(&long), "{long}");
}

/// Published for 144 hosts: a mean of 1.03 below a BDP, and 4.9 between one and two.
#[test]
fn under_load_the_jump_at_a_bdp_is_the_published_one() {
    let outcome = evaluation("imc10", (0.584, 6_000));
    assert_eq!((outcome.undelivered, outcome.drops.overflow), (0, 0));
    let means: Vec<_> = outcome.groups.iter().map(|group| group.mean).collect();
    let &[below, above, _] = means.as_slice() else { panic!("{means:?}") };
    assert!((1.01..1.08).contains(&below), "{below}");
    assert!((4.2..5.6).contains(&above), "{above}");
}
