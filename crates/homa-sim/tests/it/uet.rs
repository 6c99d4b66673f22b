//! Ultra Ethernet: the closed form of one flow, incasts as in its authors' simulator, and paths.

use homa_sim::experiment::run;
use homa_sim::scenario::{ScenarioOutcome, Shape, Traffic, UetOptions, UetPathsName};

use crate::common::equal_links;

/// In the network of `uet-htsim`: a fat tree with links of 100 Gbit/s and 1 us.
fn outcome(k: u32, traffic: Traffic, options: UetOptions) -> ScenarioOutcome {
    let shape = Shape::FatTree { k, oversubscription: 1 };
    outcome_of("uet-nscc", shape, traffic, options)
}

fn outcome_of(
    scheme: &str,
    shape: Shape,
    traffic: Traffic,
    options: UetOptions,
) -> ScenarioOutcome {
    let mut scenario = equal_links(scheme, shape, (100, 1_000), traffic);
    scenario.options.uet = Some(options);
    scenario.measures.flows_above = Some(0);
    let outcome = run(&scenario, &mut |_| ()).expect("it runs");
    assert_eq!((outcome.undelivered, outcome.drops.overflow), (0, 0));
    outcome
}

fn last(outcome: &ScenarioOutcome) -> f64 {
    outcome.flows.iter().map(|flow| flow.us).fold(0.0, f64::max)
}

/// The authors' simulator prints 17.0107, 46.8907 and 176.2 us, when the last acknowledgement has
/// come back: 6 links of 1 us and 64 bytes later than the last packet.
#[test]
fn one_flow_takes_what_its_closed_form_says() {
    let back = 6.0 * (1.0 + 64.0 * 8.0 / 100e3);
    for (bytes, published) in [(40_860, 17.0107), (408_600, 46.8907), (2_000_000, 176.2)] {
        // Two hosts, with six links between them.
        let outcome = outcome(2, Traffic::FanIn { senders: 1, bytes }, UetOptions::default());
        let us = last(&outcome) + back;
        assert!((us - published).abs() < 0.001, "{us} for {published}");
    }
}

/// Published: 2478.53 us and 811 packets that were sent again. The link alone needs 2439.6 us.
#[test]
fn an_incast_of_fifteen_keeps_the_link_full_and_trims_a_tenth() {
    let traffic = Traffic::FanIn { senders: 15, bytes: 2_000_000 };
    let outcome = outcome(4, traffic, UetOptions::default());
    let us = last(&outcome) + 6.03;
    assert!((2_440.0..2_530.0).contains(&us), "{us}");
    assert!((600..1_100).contains(&outcome.drops.trimmed), "{:?}", outcome.drops);
    assert_eq!(outcome.timeouts.expired, 0);
}

/// Published: 177.368 us, with credit alone and with a window, too.
#[test]
fn one_flow_with_credit_waits_for_its_first_pulls() {
    let back = 6.0 * (1.0 + 64.0 * 8.0 / 100e3);
    for scheme in ["uet-rccc", "uet-nscc-rccc"] {
        let traffic = Traffic::FanIn { senders: 1, bytes: 2_000_000 };
        let shape = Shape::FatTree { k: 2, oversubscription: 1 };
        let us = last(&outcome_of(scheme, shape, traffic, UetOptions::default())) + back;
        assert!((us - 177.368).abs() < 0.02, "{scheme}: {us}");
    }
}

/// Published: 2368.38 to 2464.44 us and 762 packets that were sent again.
#[test]
fn with_credit_an_incast_trims_only_what_was_sent_unasked() {
    let traffic = Traffic::FanIn { senders: 15, bytes: 2_000_000 };
    let shape = Shape::FatTree { k: 4, oversubscription: 1 };
    let outcome = outcome_of("uet-rccc", shape, traffic, UetOptions::default());
    let us = last(&outcome) + 6.03;
    assert!((2_440.0..2_490.0).contains(&us), "{us}");
    assert!((650..900).contains(&outcome.drops.trimmed), "{:?}", outcome.drops);
    // They take turns, so that all end together.
    let first = outcome.flows.iter().map(|flow| flow.us).fold(f64::MAX, f64::min);
    assert!(first > 0.94 * us, "{first} of {us}");
    assert_eq!(outcome.timeouts.expired, 0);
}

/// If each receiver pulled at its link's rate, more packets would be trimmed than messages have.
#[test]
fn pulls_follow_what_an_oversubscribed_core_carries() {
    let traffic = Traffic::Permutation { bytes: 1_000_000 };
    let shape = Shape::LeafSpine { racks: 8, hosts_per_rack: 8, spines: 2 };
    let outcome = outcome_of("uet-rccc", shape, traffic, UetOptions::default());
    let packets = 64 * 1_000_000 / 4_086;
    assert!(outcome.drops.trimmed < packets / 5, "{:?} of {packets}", outcome.drops);
}

#[test]
fn choosing_by_reports_beats_oblivious_and_a_single_path() {
    let time = |paths, entropies| {
        let options = UetOptions { paths: Some(paths), entropies, ..UetOptions::default() };
        last(&outcome(8, Traffic::Permutation { bytes: 1_000_000 }, options))
    };
    let mixed = time(UetPathsName::Mixed, Some(128));
    let oblivious = time(UetPathsName::Oblivious, Some(128));
    let single = time(UetPathsName::Mixed, Some(1));
    assert!(mixed < oblivious && 1.5 * oblivious < single, "{mixed} {oblivious} {single}");
    assert!(mixed < 125.0, "the links need 81.3 us, and the path 10: {mixed}");
}
