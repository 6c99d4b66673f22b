//! Two schemes in one simulation, each on a share of the hosts.

use homa_sim::experiment::{Observers, Rehearsal, Times, rehearse, run, run_watched, validate};
use homa_sim::scenario::{
    Bandwidth, Basis, EcnConfig, Exchange, NicOptions, Probes, Routing, Scenario, ScenarioOutcome,
    SchemeOptions, SecondScheme, SlowdownBy, Span, Traffic,
};
use homa_sim::scheme::find;
use homa_sim::{SimTime, scenario};

use crate::common;
use crate::common::networks;

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// Two racks of four hosts. A share of them runs `other`, the rest runs `scheme`.
fn two(scheme: &str, other: &str, share: f64) -> Scenario {
    let row = find(scheme).expect("a row");
    let mut scenario = common::scenario(row, "w3", Exchange::OneWay);
    scenario.fabric.routing = Some(Routing::Ecmp);
    let options = SchemeOptions::default();
    scenario.beside = Some(SecondScheme { scheme: other.to_owned(), share, options });
    scenario
}

#[test]
fn a_share_of_zero_or_one_equals_a_single_scheme() {
    for (scheme, other) in [("homa", "tcp"), ("dctcp", "homa-sim"), ("tcp", "homa-p2")] {
        for (share, left) in [(0.0, scheme), (1.0, other)] {
            let both = outcome(&two(scheme, other, share));
            let alone =
                Scenario { scheme: left.to_owned(), beside: None, ..two(scheme, other, 0.5) };
            let alone = outcome(&alone);
            assert_eq!(both.trace_hash, alone.trace_hash, "{scheme}, {other}: {share}");
            assert_eq!(both.slowdown, alone.slowdown);
            let [kind] = &both.kinds[..] else { panic!("{:?}", both.kinds) };
            assert_eq!((&*kind.scheme, kind.hosts, kind.messages), (left, 8, 2_000));
            assert_eq!(kind.slowdown, alone.slowdown);
            assert!((kind.utilisation - alone.utilisation).abs() < 1e-9);
        }
    }
}

#[test]
fn schemes_keep_their_transport_and_share_the_links() {
    for exchange in [Exchange::OneWay, Exchange::Echo] {
        let of = |other: &str| {
            let mut scenario = two("homa", other, 0.5);
            scenario.traffic =
                Traffic::AllToAll { workload: "w4".to_owned(), exchange, max_bytes: Some(200_000) };
            scenario.options.network_levels = Some(1);
            scenario.stop.messages = Some(6_000);
            // Both schemes share the uplinks, which are oversubscribed 2:1.
            scenario.fabric.fabric_link = Bandwidth::gbps(10);
            let outcome = outcome(&scenario);
            assert_eq!((outcome.messages, outcome.undelivered), (6_000, 0), "{other}");
            assert_eq!((outcome.in_flight, outcome.failed), (0, 0));
            assert_eq!(outcome.delivered_bytes, outcome.offered_bytes);
            let [homa, beside] = &outcome.kinds[..] else { panic!("{:?}", outcome.kinds) };
            assert_eq!((homa.hosts, beside.hosts, &*beside.scheme), (4, 4, other));
            assert_eq!(homa.messages + beside.messages, 6_000);
            (homa.clone(), beside.clone(), outcome.timeouts)
        };
        let (homa, tcp, _) = of("tcp");
        let (alike, same, _) = of("homa");
        assert_eq!((homa.messages, tcp.messages), (alike.messages, same.messages), "same traffic");
        // TCP builds longer queues, both at the downlinks of its hosts and at the shared uplinks.
        let p99 = |kind: &scenario::outcome::KindOutcome| kind.slowdown.p99.unwrap();
        assert!(p99(&tcp) > 1.5 * p99(&same), "{} {}", p99(&tcp), p99(&same));
        // The mean, because with few echoes the p99 depends on a single loss.
        let mean = |kind: &scenario::outcome::KindOutcome| kind.slowdown.mean.unwrap();
        assert!(mean(&homa) > mean(&alike), "{} {}", mean(&homa), mean(&alike));
    }
}

#[test]
fn physics_holds_and_two_runs_are_the_same() {
    for other in ["tcp", "dctcp"] {
        let row = find("dctcp").expect("a row");
        for (name, fabric) in networks(row) {
            let mut scenario = two("homa", other, 0.25);
            scenario.fabric = fabric;
            scenario.fabric.routing = Some(Routing::Ecmp);
            scenario.traffic = Traffic::AllToAll {
                workload: "w3".to_owned(),
                exchange: Exchange::Echo,
                max_bytes: Some(200_000),
            };
            scenario.stop.messages = Some(500);
            let observers = Observers { verify: true, ..Observers::default() };
            let (first, physics) = run_watched(&scenario, observers, &mut |_| ()).unwrap();
            let checked = physics.unwrap().unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
            assert_eq!(checked.in_flight.frames, first.in_flight, "{name}");
            assert_eq!((first.messages, first.undelivered, first.failed), (500, 0, 0), "{name}");
            assert_eq!(first.trace_hash, outcome(&scenario).trace_hash, "{name}");
            let other_seed = outcome(&Scenario { seed: 2, ..scenario });
            assert_ne!(first.trace_hash, other_seed.trace_hash, "{name}");
        }
    }
}

/// If the divisors differed, slowdowns of the two schemes could not be compared.
#[test]
fn both_schemes_divide_latencies_by_the_same_ideal() {
    for by in [SlowdownBy::Idle, SlowdownBy::Best, SlowdownBy::Authors] {
        let of = |scheme: &str, other: &str| {
            let mut scenario = two(scheme, other, 0.5);
            let (workload, exchange) = ("1000".to_owned(), Exchange::OneWay);
            scenario.traffic = Traffic::AllToAll { workload, exchange, max_bytes: None };
            scenario.load.fraction = 0.001;
            scenario.stop.messages = Some(50);
            scenario.slowdown = by;
            outcome(&scenario).kinds
        };
        let kinds = of("homa-sim", "tcp");
        let ratio = |at: usize| {
            let bucket = &kinds[at].slowdown.buckets[0];
            bucket.p50_us.unwrap() / bucket.p50.unwrap()
        };
        assert!((ratio(0) / ratio(1) - 1.0).abs() < 1e-6, "{by:?}: {} {}", ratio(0), ratio(1));
    }
}

#[test]
fn the_second_schemes_ecn_threshold_applies() {
    let mut scenario = two("homa", "dctcp", 0.5);
    let workload = "200000".to_owned();
    scenario.traffic = Traffic::AllToAll { workload, exchange: Exchange::Echo, max_bytes: None };
    scenario.load.fraction = 0.9;
    scenario.stop.messages = Some(300);
    let low = SchemeOptions { ecn: Some(EcnConfig::new(3_000.into())), ..SchemeOptions::default() };
    let high = outcome(&scenario);
    scenario.beside.as_mut().unwrap().options = low;
    let low = outcome(&scenario);
    assert_ne!(low.trace_hash, high.trace_hash);
    let down =
        |outcome: &ScenarioOutcome| outcome.queues.as_ref().unwrap().tor_down.unwrap().mean_bytes;
    assert!(down(&low) < down(&high), "{} {}", down(&low), down(&high));
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    type Change = fn(&mut Scenario);
    let cases: [(&str, Change); 15] = [
        ("beside.share", |s| s.beside.as_mut().unwrap().share = 1.5),
        ("single host", |s| s.beside.as_mut().unwrap().share = 0.1),
        ("unknown scheme `hama`", |s| s.beside.as_mut().unwrap().scheme = "hama".to_owned()),
        ("two schemes other than Homa and TCP", |s| {
            s.beside.as_mut().unwrap().scheme = "pfabric".to_owned();
        }),
        ("two schemes other than Homa and TCP", |s| s.scheme = "detail".to_owned()),
        ("two schemes other than Homa and TCP", |s| {
            let large_send = Some(65_536);
            s.options.nic = Some(NicOptions { large_send, ..NicOptions::default() });
        }),
        ("beside.options.ecn", |s| {
            s.scheme = "dctcp".to_owned();
            s.beside.as_mut().unwrap().scheme = "dctcp-30k".to_owned();
        }),
        ("`beside.options.overcommitment`: only Homa schemes have overcommitment; `", |s| {
            s.beside.as_mut().unwrap().options.overcommitment = Some(2);
        }),
        ("unknown scheme `pigeon`; allowed: homa-sim, ", |s| {
            s.beside.as_mut().unwrap().scheme = "pigeon".to_owned();
        }),
        ("fabric.routing", |s| s.fabric.routing = None),
        ("fabric.preemption", |s| s.fabric.preemption = true),
        ("load.basis", |s| s.load.basis = Basis::Wire),
        ("measures.wasted_bandwidth", |s| s.measures.wasted_bandwidth = true),
        ("traffic.pattern", |s| s.traffic = Traffic::Permutation { bytes: 10 }),
        ("probes", |s| {
            s.slowdown = SlowdownBy::Idle;
            let every = Span::millis(1);
            s.probes = Some(Probes {
                from: 0,
                to: 1,
                every,
                bytes: 100,
                lost_after: None,
                instrument: None,
            });
        }),
    ];
    for (says, change) in cases {
        let mut scenario = two("homa", "tcp", 0.5);
        change(&mut scenario);
        let refused = run(&scenario, &mut |_| ()).unwrap_err();
        assert_eq!(validate(&scenario), Err(refused.clone()));
        assert!(refused.to_string().contains(says), "{says}: {refused}");
    }
    let times = Times { healthy_from: SimTime::ZERO, rest_by: SimTime::ZERO };
    let single: Result<Rehearsal, _> = rehearse(&two("homa", "tcp", 0.5), Vec::new(), times);
    assert!(single.unwrap_err().to_string().contains("a second scheme"));
}
