//! DeTail's promises on a small fat tree, under the schemes that its evaluation compares.

mod common;

use common::scenario;
use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Outcome, Scenario, Shape, Span, SwitchOptions,
};
use homa_sim::scheme;

/// 16 hosts at 1 Gbit/s, messages of 8 KB; `slow`: one of the eight links between aggregation and
/// core, of four paths from its pod, has a tenth of its rate.
fn fat_tree(name: &str, slow: bool) -> Scenario {
    let mut scenario = scenario(scheme::find(name).unwrap(), "8000", Exchange::OneWay);
    let impaired = Impaired {
        from: "aggr0".to_owned(),
        to: "core0".to_owned(),
        one_way: false,
        at: Span::nanos(0),
        until: None,
        rate: Some(Bandwidth(100_000_000)),
        loss_ppm: None,
    };
    scenario.fabric = Fabric {
        shape: Shape::FatTree { k: 4, oversubscription: 1 },
        host_link: Bandwidth::gbps(1),
        fabric_link: Bandwidth::gbps(1),
        impaired: if slow { vec![impaired] } else { Vec::new() },
        ..Fabric::default()
    };
    scenario.load.fraction = 0.4;
    scenario.stop.messages = Some(4_000);
    scenario
}

fn outcome(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| ()).unwrap()
}

#[test]
fn a_slow_link_in_the_core_costs_detail_little_and_hashing_much() {
    let p99 = |name, slow| {
        let outcome = outcome(&fat_tree(name, slow));
        assert_eq!((outcome.messages, outcome.undelivered), (4_000, 0), "{name}");
        let lossless = scheme::find(name).unwrap().is_lossless();
        assert!(outcome.drops.overflow == 0 || !lossless, "{name}: {:?}", outcome.drops);
        outcome.slowdown.p99.unwrap()
    };
    let [slow, hashed] = ["detail", "flow-hashing"].map(|name| p99(name, true));
    let scattered = p99("lossless-packet-scatter", true);
    // DeTail §6.4: less than a twentieth, in a far larger network.
    assert!(slow < 0.5 * hashed && slow < 0.5 * scattered, "{slow}: {hashed} {scattered}");
}

#[test]
fn thresholds_that_cannot_be_safe_are_refused() {
    let mut small = fat_tree("detail", false);
    small.fabric.buffer = Buffer::PerPort { bytes: 20_000 };
    let refused = validate(&small).unwrap_err().to_string();
    assert!(refused.contains("options.switch") && refused.contains("priorities"), "{refused}");
    small.options.switch = Some(SwitchOptions { priorities: Some(2), ..SwitchOptions::default() });
    validate(&small).unwrap();
    let mut hashing = fat_tree("flow-hashing", false);
    hashing.options.switch = small.options.switch;
    assert!(validate(&hashing).is_err(), "switches without pauses have no thresholds");
    let mut homa = fat_tree("homa", false);
    homa.options.switch = small.options.switch;
    assert!(validate(&homa).is_err(), "nor have those without queues at inputs");
}
