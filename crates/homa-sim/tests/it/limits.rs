//! The search for the highest load that a scheme sustains.

use std::borrow::Cow;

use homa_sim::experiment::limit::{Range, max_load};
use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Fabric, Scenario, ScenarioError, Shape, Traffic};

#[test]
fn traffic_without_a_load_is_refused() {
    let mut scenario = Scenario {
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 4 }, ..Fabric::default() },
        ..Scenario::default()
    };
    scenario.traffic = Traffic::Permutation { bytes: 10_000 };
    let range = Range { low: 0.5, high: 0.9, resolution: 0.1 };
    let refused = max_load(&scenario, range, &mut |_, _| ());
    assert!(matches!(refused, Err(ScenarioError::Unsupported { .. })), "{refused:?}");
}

#[test]
fn no_scheme_sustains_more_than_the_link() {
    let mut scenario = Scenario {
        scheme: "homa-sim".to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 6 }, ..Fabric::default() },
        ..Scenario::default()
    };
    scenario.traffic = Traffic::AllToAll {
        workload: "1000".to_owned(),
        exchange: Exchange::OneWay,
        max_bytes: None,
    };
    scenario.stop.messages = Some(45_000);
    let range = Range { low: 0.5, high: 1.3, resolution: 0.1 };
    let limit = max_load(&scenario, range, &mut |_, _| ()).unwrap();
    let sustained = limit.sustained.unwrap();
    assert!(sustained.load >= 0.9 && sustained.load <= 1.0, "{}", sustained.load);
    assert!(limit.diverging.unwrap() - sustained.load <= 0.1 + 1e-9);
}

#[test]
fn traffic_too_short_to_tell_is_refused() {
    let mut scenario = Scenario::default();
    scenario.stop.messages = Some(100_000);
    let range = Range { low: 0.5, high: 0.9, resolution: 0.1 };
    let refused = max_load(&scenario, range, &mut |_, _| ());
    let Err(ScenarioError::Field { field: Cow::Borrowed("stop"), must }) = refused else {
        panic!("{refused:?}");
    };
    assert!(must.contains("messages do"), "{must}");
}

#[test]
fn overload_by_rpcs_and_by_messages_grows_alike() {
    let growth = |exchange| {
        let mut scenario = Scenario {
            scheme: "homa".to_owned(),
            fabric: Fabric { shape: Shape::SingleSwitch { hosts: 4 }, ..Fabric::default() },
            ..Scenario::default()
        };
        let workload = "20000".to_owned();
        scenario.traffic = Traffic::AllToAll { workload, exchange, max_bytes: None };
        scenario.load.fraction = 1.3;
        scenario.stop.messages = Some(6_000);
        run(&scenario, &mut |_| ()).unwrap().backlog.growth
    };
    let (rpcs, messages) = (growth(Exchange::Echo), growth(Exchange::OneWay));
    assert!((0.7..1.4).contains(&(rpcs / messages)), "{rpcs} {messages}");
}
