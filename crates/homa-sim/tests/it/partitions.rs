//! Networks in partitions: threads change no byte of an outcome, and partitions change only random
//! draws and the order of what happens at the same picosecond.

use std::sync::atomic::AtomicBool;

use homa_sim::experiment::{Observers, Trace, run, run_sampled, run_watched, validate};
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Impaired, NdpOptions, Probes, Routing, Scenario, ScenarioError,
    ScenarioOutcome, Shape, SlowdownBy, Span, Traffic, TrafficEnding,
};
use homa_sim::scheme::find;

use crate::common::scenario;

/// Schemes whose hosts and ports differ in kind.
const SCHEMES: [&str; 17] = [
    "homa",
    "homa-paper",
    "homa-linux",
    "basic",
    "ndp",
    "dctcp",
    "tcp",
    "hull",
    "pfabric",
    "phost",
    "pias",
    "dcpim",
    "sird",
    "uet-nscc",
    "uet-rccc",
    "hpcc",
    "dcqcn",
];

/// Four racks of four hosts.
fn four_racks(scheme: &str, exchange: Exchange) -> Scenario {
    let mut scenario = scenario(find(scheme).expect("a row"), "w3", exchange);
    scenario.fabric.shape = Shape::LeafSpine { racks: 4, hosts_per_rack: 4, spines: 2 };
    scenario.stop.messages = Some(1_500);
    scenario.partitions = 4;
    scenario
}

fn on_threads(scenario: &Scenario, threads: usize) -> ScenarioOutcome {
    let observers = Observers { threads: Some(threads), ..Observers::default() };
    let (outcome, _) = run_watched(scenario, observers, &mut |_| ())
        .unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme));
    ScenarioOutcome { cpu_seconds: 0.0, hops_per_cpu_second: 0.0, peak_rss_bytes: 0, ..outcome }
}

fn json(outcome: &ScenarioOutcome) -> String {
    serde_json::to_string(outcome).expect("outcomes are written as JSON")
}

/// The outcome, which is the same with any number of threads.
fn the_same_on_any_threads(scenario: &Scenario) -> ScenarioOutcome {
    the_same_on_threads(scenario, &[2, 3, 9])
}

/// The outcome, which is the same on one thread and on each of these numbers.
fn the_same_on_threads(scenario: &Scenario, numbers: &[usize]) -> ScenarioOutcome {
    let one = on_threads(scenario, 1);
    for &threads in numbers {
        let some = on_threads(scenario, threads);
        assert_eq!(json(&some), json(&one), "{} on {threads} threads", scenario.scheme);
    }
    one
}

#[test]
fn threads_change_no_byte_of_an_outcome() {
    for name in SCHEMES {
        let row = find(name).expect("a row");
        for (exchange, load) in [(Exchange::OneWay, 0.7), (Exchange::Echo, 0.3)] {
            if exchange == Exchange::Echo && row.one_way_only {
                continue;
            }
            let mut scenario = four_racks(name, exchange);
            scenario.load.fraction = load;
            // One of three threads has two of the four partitions.
            let outcome = the_same_on_threads(&scenario, &[3]);
            let left = outcome.undelivered + outcome.failed + outcome.refused;
            assert_eq!((outcome.messages, left), (1_500, 0), "{name} at {load}");
            assert_eq!(outcome.in_flight, 0, "{name}");
            assert_eq!(outcome.offered_bytes, outcome.delivered_bytes, "{name}");
        }
    }
}

#[test]
fn threads_change_no_byte_of_other_ways_to_stop_and_measure() {
    let mut scenario = four_racks("homa", Exchange::OneWay);
    scenario.warm_up = Span::nanos(200_000);
    scenario.measures.flows_above = Some(50_000);
    scenario.fabric.shape = Shape::FatTree { k: 4, oversubscription: 1 };
    scenario.partitions = 3;
    for ending in [TrafficEnding::Drain, TrafficEnding::Loaded, TrafficEnding::Cut] {
        scenario.stop.ending = ending;
        let outcome = the_same_on_any_threads(&scenario);
        assert!(!outcome.flows.is_empty());
        assert_eq!(outcome.undelivered > 0, ending == TrafficEnding::Cut, "{ending:?}");
        assert!(outcome.submitted > 1_500, "those of the warm-up, too");
        if ending == TrafficEnding::Loaded {
            assert!(outcome.simulated_seconds > outcome.traffic_seconds);
        }
    }
    // Far too much, so that traffic ends early.
    scenario.stop.ending = TrafficEnding::Drain;
    scenario.stop.messages = Some(40_000);
    scenario.load.fraction = 1.6;
    let outcome = the_same_on_any_threads(&scenario);
    assert!(outcome.backlog.diverges && outcome.messages < 39_000, "{}", outcome.messages);
    assert!(outcome.warnings.iter().any(|warning| warning.starts_with("traffic ended early")));
}

/// The results that do not depend on the order of equal times or on the order of samples.
fn results(outcome: &ScenarioOutcome) -> Vec<String> {
    let buckets = outcome.slowdown.buckets.iter();
    let buckets: Vec<_> = buckets.map(|one| (one.count, one.p50, one.p99, one.p99_us)).collect();
    let queues = outcome.queues.clone().expect("queues are measured");
    let down = queues.tor_down.expect("frames arrive");
    let down = (down.frames, down.mean_bytes, down.max_bytes, down.p99_bytes);
    vec![
        format!("{buckets:?}"),
        format!("{down:?} {:?}", outcome.priority_share),
        format!("{} {} {}", outcome.packet_hops, outcome.submitted, outcome.undelivered),
        format!("{} {} {:?}", outcome.offered_bytes, outcome.delivered_bytes, outcome.drops),
        format!("{} {} {:?}", outcome.traffic_seconds, outcome.utilisation, outcome.goodput),
        format!("{:?}", outcome.backlog),
        format!("{:?} {:?}", outcome.loads, outcome.timeouts),
    ]
}

fn assert_same(one: &ScenarioOutcome, other: &ScenarioOutcome, what: &str) {
    for (one, other) in results(one).into_iter().zip(results(other)) {
        assert_eq!(one, other, "{what}");
    }
}

#[test]
fn partitions_change_nothing_if_paths_are_fixed() {
    for name in ["homa", "dctcp", "pfabric", "phost", "sird"] {
        let row = find(name).expect("a row");
        for exchange in [Exchange::OneWay, Exchange::Echo] {
            if exchange == Exchange::Echo && row.one_way_only {
                continue;
            }
            let mut scenario = four_racks(name, exchange);
            scenario.fabric.routing = Some(Routing::EcmpHosts);
            scenario.partitions = 1;
            let one = run(&scenario, &mut |_| ()).expect("it runs");
            for partitions in 2..=4 {
                scenario.partitions = partitions;
                let some = run(&scenario, &mut |_| ()).expect("it runs");
                assert_same(&some, &one, &format!("{name}, {partitions} partitions"));
                assert_ne!(some.trace_hash, one.trace_hash, "a hash of hashes");
            }
        }
    }
}

#[test]
fn partitions_change_draws_like_another_seed() {
    let mut scenario = four_racks("homa", Exchange::OneWay);
    scenario.stop.messages = Some(20_000);
    let slowdowns = |scenario: &Scenario| {
        let outcome = run(scenario, &mut |_| ()).expect("it runs");
        assert_eq!(outcome.messages, 20_000);
        [outcome.slowdown.mean, outcome.slowdown.p99].map(|value| value.expect("a value"))
    };
    let divided = slowdowns(&scenario);
    scenario.partitions = 1;
    let whole = slowdowns(&scenario);
    // The same messages over other paths.
    assert_ne!(divided, whole);
    for (divided, whole) in divided.into_iter().zip(whole) {
        assert!((divided / whole - 1.0).abs() < 0.03, "{divided} {whole}");
    }
}

#[test]
fn lists_are_simulated_whole_or_up_to_a_number() {
    let mut scenario = four_racks("ndp", Exchange::OneWay);
    scenario.traffic = Traffic::Permutation { bytes: 300_000 };
    scenario.stop.messages = None;
    let outcome = the_same_on_any_threads(&scenario);
    assert_eq!((outcome.messages, outcome.undelivered, outcome.in_flight), (16, 0, 0));
    assert_eq!(outcome.traffic_seconds, 0.0);
    // All start at the same time, so that a number cuts between equals.
    scenario.stop.messages = Some(5);
    let outcome = the_same_on_any_threads(&scenario);
    assert_eq!((outcome.messages, outcome.submitted), (5, 5));
}

#[test]
fn every_message_is_sampled_once() {
    let mut scenario = four_racks("dctcp", Exchange::OneWay);
    scenario.fabric.routing = Some(Routing::EcmpHosts);
    let stop = AtomicBool::new(false);
    let mut sampled = |partitions| {
        scenario.partitions = partitions;
        let replay = run_sampled(&scenario, &stop, &mut |_| ()).expect("it runs");
        let of = |s: &homa_sim::measure::latency::Sample| (s.receiver, s.bytes, s.latency.0);
        let mut all: Vec<_> = replay.samples.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(sampled(4), sampled(1));
}

#[test]
fn what_is_not_supported_is_refused_with_its_key() {
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = four_racks("homa", Exchange::OneWay);
        change(&mut scenario);
        let error = validate(&scenario).expect_err("it is refused");
        assert_eq!(run(&scenario, &mut |_| ()).expect_err("here, too"), error);
        assert_eq!(error.at(), Some("partitions"), "{error}");
        scenario.partitions = 1;
        assert!(validate(&scenario).is_ok(), "{error}");
        error.to_string()
    };
    let bad = Impaired {
        from: "tor0".to_owned(),
        to: "spine1".to_owned(),
        one_way: false,
        at: Span::nanos(20_000),
        until: None,
        rate: None,
        loss_ppm: None,
    };
    let (every, lost_after, instrument) = (Span::nanos(1_000), None, None);
    let probes = Probes { from: 0, to: 5, bytes: 100, every, lost_after, instrument };
    let incast = Traffic::Incast {
        servers: 3,
        concurrent: 3,
        request_bytes: 100,
        response_bytes: 1_000,
        together: false,
    };
    let none = Span::nanos(0);
    for (change, named) in [
        (&(|s: &mut Scenario| s.partitions = 5) as &dyn Fn(&mut Scenario), "must be 1 to 4"),
        (&|s| "detail".clone_into(&mut s.scheme), "queue at their inputs"),
        (&|s| "ideal".clone_into(&mut s.scheme), "a bound"),
        (&|s| s.fabric.routing = Some(Routing::Adaptive), "`fabric.routing`"),
        (&|s| s.fabric.loss_ppm = 10, "`fabric.loss_ppm`"),
        (&|s| s.fabric.impaired = vec![bad.clone()], "`fabric.impaired`"),
        (&|s| s.traffic = incast.clone(), "`traffic.pattern`"),
        (&|s| (s.probes, s.slowdown) = (Some(probes), SlowdownBy::Idle), "`probes`"),
        (&|s| s.measures.ledger = true, "`ledger`"),
        (
            &|s| {
                s.measures.wasted_bandwidth = true;
                s.options.overcommitment = Some(3);
            },
            "`wasted_bandwidth`",
        ),
        (&|s| s.fabric.switch_delay = none, "`fabric.switch_delay`"),
        (
            &|s| {
                s.traffic = Traffic::Permutation { bytes: 10 };
                s.stop.ending = TrafficEnding::Loaded;
            },
            "`stop.ending`",
        ),
    ] {
        let text = refused(change);
        assert!(text.contains(named), "{text}");
    }
}

#[test]
fn observers_of_every_packet_are_refused() {
    let scenario = four_racks("homa", Exchange::OneWay);
    let zero = Scenario { partitions: 0, ..scenario.clone() };
    assert_eq!(validate(&zero).expect_err("none").to_string(), "`partitions` must be at least 1");
    let mut out = Vec::new();
    let trace = Some(Trace { out: &mut out, packets: 10 });
    for observers in [
        Observers { verify: true, ..Observers::default() },
        Observers { trace, ..Observers::default() },
    ] {
        let error = run_watched(&scenario, observers, &mut |_| ()).expect_err("it is refused");
        assert!(matches!(error, ScenarioError::Unfit { .. }), "{error}");
    }
}

#[test]
fn hosts_pause_and_switches_share_memory_in_partitions() {
    let mut scenario = four_racks("tcp", Exchange::OneWay);
    scenario.fabric.routing = Some(Routing::EcmpHosts);
    // Spines are slow, so that their memory fills, too.
    scenario.fabric.fabric_link = Bandwidth::gbps(5);
    scenario.fabric.buffer = Buffer::Shared { bytes: 40_000, alpha_percent: 100 };
    scenario.fabric.paused = vec![homa_sim::scenario::Paused {
        host: "h9".to_owned(),
        at: Span::nanos(100_000),
        until: Span::nanos(400_000),
    }];
    let divided = the_same_on_any_threads(&scenario);
    scenario.partitions = 1;
    let whole = run(&scenario, &mut |_| ()).expect("it runs");
    assert!(whole.drops.overflow > 0 && whole.slowdown.p99 > Some(10.0));
    assert_same(&divided, &whole, "tcp");
}

#[test]
fn switches_return_packets_in_partitions() {
    let mut scenario = four_racks("ndp", Exchange::OneWay);
    scenario.fabric.routing = Some(Routing::EcmpHosts);
    scenario.fabric.fabric_link = Bandwidth::gbps(2);
    let ndp = NdpOptions { queue_packets: Some(1), ..NdpOptions::default() };
    scenario.options.ndp = Some(ndp);
    scenario.load.fraction = 0.3;
    scenario.stop.messages = Some(500);
    let divided = the_same_on_any_threads(&scenario);
    scenario.partitions = 1;
    let whole = run(&scenario, &mut |_| ()).expect("it runs");
    assert!(whole.drops.trimmed > 0 && whole.drops.overflow > 0, "headers were returned twice");
    assert_same(&divided, &whole, "ndp");
}
