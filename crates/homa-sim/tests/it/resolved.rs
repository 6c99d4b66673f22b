//! The options that a result names are those that it was made with: a scenario that sets all of
//! them is the same simulation.

use homa_sim::experiment::{resolved, run};
use homa_sim::scenario::{
    Bandwidth, Exchange, Routing, Scenario, SchemeOptions, SecondScheme, TcpOptions,
};
use homa_sim::scheme::{Scheme, find};

use crate::common::{scenario, transports};

fn small(scheme: &Scheme) -> Scenario {
    let mut scenario = scenario(scheme, "w3", Exchange::OneWay);
    scenario.stop.messages = Some(500);
    scenario
}

/// The options that a scenario resolves to.
fn options(scenario: &Scenario) -> SchemeOptions {
    let mut all = resolved(scenario).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme));
    all.swap_remove(0).1
}

#[test]
fn a_scenario_with_its_options_written_out_is_the_same() {
    for scheme in transports() {
        for link in [10, 100] {
            let mut plain = small(scheme);
            plain.fabric.host_link = Bandwidth::gbps(link);
            if scheme.is_lossless() {
                // The memory of a port holds what eight levels send until a pause takes effect.
                plain.fabric.host_link = Bandwidth::gbps(10);
            }
            let written = Scenario { options: options(&plain), ..plain.clone() };
            let [a, b] = [&plain, &written].map(|scenario| {
                let outcome = run(scenario, &mut |_| ());
                outcome.unwrap_or_else(|error| panic!("{}: {error}", scheme.name))
            });
            assert_eq!(a.trace_hash, b.trace_hash, "{} at {link} Gbit/s", scheme.name);
            assert_eq!(a.options, written.options, "{}", scheme.name);
            assert_eq!(options(&written), written.options, "{}", scheme.name);
        }
    }
}

#[test]
fn an_option_of_the_plan_is_among_the_resolved_ones() {
    let scheme = find("dctcp").expect("a row");
    let mut given = small(scheme);
    given.options.tcp = Some(TcpOptions { connections: Some(7), ..Default::default() });
    let tcp = options(&given).tcp.expect("hosts run TCP");
    assert_eq!(tcp.connections, Some(7));
    assert!(tcp.min_rto.is_some() && tcp.initial_window.is_some(), "{tcp:?}");
}

#[test]
fn two_schemes_have_separate_options() {
    let scheme = find("homa").expect("a row");
    let mut both = small(scheme);
    let beside =
        SecondScheme { scheme: "tcp".to_owned(), share: 0.5, options: SchemeOptions::default() };
    both.beside = Some(beside);
    both.fabric.routing = Some(Routing::Spray);
    let outcome = run(&both, &mut |_| ()).expect("it runs");
    assert!(outcome.options.tcp.is_none() && outcome.options.rtt_bytes.is_some());
    let kinds: Vec<_> = outcome.kinds.iter().map(|kind| kind.options.tcp.is_some()).collect();
    assert_eq!(kinds, [false, true]);
}
