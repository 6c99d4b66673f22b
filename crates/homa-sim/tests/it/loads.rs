//! What a load counts: on which links, in which bytes, and what happens if it is too much.

use homa_sim::experiment::{foresee, run};
use homa_sim::scenario::{
    Bandwidth, Basis, Diverging, EcnConfig, Exchange, LoadedLinks, PhantomOptions, Scenario,
    ScenarioOutcome, SchemeOptions, Shape, Traffic,
};

fn scenario(scheme: &str, workload: &str, fraction: f64) -> Scenario {
    let (workload, exchange) = (workload.to_owned(), Exchange::OneWay);
    let mut scenario = Scenario {
        scheme: scheme.to_owned(),
        traffic: Traffic::AllToAll { workload, exchange, max_bytes: None },
        ..Scenario::default()
    };
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 8 };
    scenario.load.fraction = fraction;
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

/// Without requests and acknowledgements, pHost would send 1.4 times as much as was asked for.
#[test]
fn a_load_of_everything_is_what_hosts_send() {
    for scheme in ["homa", "homa-paper", "phost", "pfabric", "ndp", "dctcp", "tcp", "ideal"] {
        for workload in ["w1", "w3"] {
            let mut scenario = scenario(scheme, workload, 0.4);
            scenario.load.basis = Basis::Everything;
            scenario.stop.messages = Some(4_000);
            let loads = outcome(&scenario).loads;
            // The messages that were drawn are a little more or less than the average.
            let drawn = 0.4 * loads.realised_payload / loads.payload;
            let ratio = loads.realised_wire / drawn;
            assert!((0.93..1.07).contains(&ratio), "{scheme}, {workload}: {ratio} of {drawn}");
        }
    }
}

#[test]
fn traffic_that_no_link_carries_ends_early_and_says_so() {
    let mut scenario = scenario("phost", "w1", 0.8);
    scenario.stop.messages = Some(20_000);
    let early = outcome(&scenario);
    assert!(early.messages < 18_000 && early.loads.realised_wire > 1.0, "{:?}", early.loads);
    assert!(early.backlog.diverges && early.undelivered == 0);
    let [foreseen, ended] = &early.warnings[..] else { panic!("{:?}", early.warnings) };
    assert!(foreseen.contains("hosts' links") && ended.contains("early"), "{ended}");
    assert_eq!(foresee(&scenario), Ok(vec![foreseen.clone()]));
    scenario.stop.diverging = Diverging::Continue;
    scenario.stop.messages = Some(early.messages + 500);
    assert_eq!(outcome(&scenario).messages, early.messages + 500);
    scenario.load.basis = Basis::Everything;
    assert_eq!(foresee(&scenario), Ok(Vec::new()));
}

#[test]
fn constants_of_other_networks_are_warned_of() {
    let foreseen = |scheme: &str, gbps, key: fn(&mut SchemeOptions)| {
        let mut scenario = scenario(scheme, "w3", 0.2);
        scenario.fabric.host_link = Bandwidth::gbps(gbps);
        key(&mut scenario.options);
        foresee(&scenario).unwrap_or_else(|error| panic!("{error}"))
    };
    let k = |options: &mut SchemeOptions| {
        options.ecn = Some(EcnConfig::new(30_000.into()));
    };
    let hull = |options: &mut SchemeOptions| {
        let threshold = Some(1_000.into());
        options.phantom = Some(PhantomOptions { threshold, ..PhantomOptions::default() });
    };
    for (scheme, key) in [("dctcp", k as fn(&mut SchemeOptions)), ("hull", hull)] {
        assert_eq!(foreseen(scheme, 1, key), [""; 0], "{scheme}");
        assert_eq!(foreseen(scheme, 10, key), [""; 0], "{scheme}");
        let told = foreseen(scheme, 800, key);
        assert!(told.len() == 1 && told[0].contains("threshold"), "{scheme}: {told:?}");
        // Defaults follow the network.
        assert_eq!(foreseen(scheme, 800, |_| ()), [""; 0], "{scheme}");
    }
}

/// 8 hosts of a rack send 56 of 63 messages to another rack, over one link of the same rate.
#[test]
fn a_load_of_the_core_is_that_of_links_between_switches() {
    let mut scenario = scenario("homa", "w3", 0.6);
    scenario.fabric.shape = Shape::LeafSpine { racks: 8, hosts_per_rack: 8, spines: 1 };
    scenario.fabric.fabric_link = scenario.fabric.host_link;
    scenario.stop.messages = Some(2_000);
    let warned = foresee(&scenario).unwrap();
    assert!(warned.len() == 1 && warned[0].contains("two switches"), "{warned:?}");
    scenario.load.links = LoadedLinks::Core;
    assert_eq!(foresee(&scenario), Ok(Vec::new()));
    let loads = outcome(&scenario).loads;
    let share = 8.0 * 56.0 / 63.0;
    let core = loads.core.expect("there are links between switches");
    assert!((core - 0.6).abs() < 1e-9 && (loads.paper * share - 0.6).abs() < 1e-9, "{loads:?}");
    scenario.fabric.shape = Shape::SingleSwitch { hosts: 8 };
    let refused = foresee(&scenario).unwrap_err().to_string();
    assert!(refused.contains("load.links"), "{refused}");
}
