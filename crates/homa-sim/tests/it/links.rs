//! Links that fail, slow down or lose packets, and networks read from a file, as a user sees them.

use homa_sim::experiment::run;
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Paused, Routing, Scenario, ScenarioOutcome,
    Shape, SlowdownBy, Span, TcpOptions, Traffic, TrafficEnding,
};

/// Two racks of four hosts under two spines, W3.
fn scenario(impaired: Vec<Impaired>) -> Scenario {
    let mut scenario = Scenario {
        scheme: "homa".to_owned(),
        fabric: Fabric {
            shape: Shape::LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2 },
            fabric_link: Bandwidth::gbps(20),
            impaired,
            ..Fabric::default()
        },
        traffic: Traffic::AllToAll {
            workload: "w3".to_owned(),
            exchange: Exchange::Echo,
            max_bytes: Some(100_000),
        },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.load.fraction = 0.5;
    scenario.stop.messages = Some(3_000);
    scenario
}

fn link(from: &str, to: &str) -> Impaired {
    Impaired {
        from: from.to_owned(),
        to: to.to_owned(),
        one_way: false,
        at: Span(0),
        until: None,
        rate: None,
        loss_ppm: None,
    }
}

fn pause(host: &str, from_us: u64, until_us: u64) -> Paused {
    let (at, until) = (Span::nanos(from_us * 1_000), Span::nanos(until_us * 1_000));
    Paused { host: host.to_owned(), at, until }
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(scenario: &Scenario) -> String {
    run(scenario, &mut |_| ()).unwrap_err().to_string()
}

#[test]
fn a_spine_that_is_down_is_avoided() {
    // With fewer messages the p99 of two runs may differ as much by chance.
    let of = |impaired| {
        let mut scenario = scenario(impaired);
        scenario.stop.messages = Some(20_000);
        outcome(&scenario)
    };
    let healthy = of(vec![]);
    // At a load of 0.5 half of the traffic crosses racks, and the 20 Gbit/s of one spine suffice.
    let down = of(vec![link("tor0", "spine1")]);
    assert_eq!((down.messages, down.undelivered), (20_000, 0));
    let (down, healthy) = (down.slowdown.p99, healthy.slowdown.p99);
    assert!(down > healthy, "{down:?} {healthy:?}");
}

#[test]
fn a_host_whose_link_fails_for_a_while_is_served_again() {
    let (at, until) = (Span::nanos(200_000), Some(Span::nanos(300_000)));
    let failed = outcome(&scenario(vec![Impaired { at, until, ..link("h1", "tor0") }]));
    assert_eq!((failed.messages, failed.undelivered), (3_000, 0));
    assert!(failed.drops.fault > 0, "packets on the link are lost and retransmitted");
    let healthy = outcome(&scenario(vec![]));
    assert!(failed.slowdown.p99 > healthy.slowdown.p99);
    let before = Impaired { at: Span::nanos(1), until: Some(Span::nanos(2)), ..link("h1", "tor0") };
    assert_eq!(outcome(&scenario(vec![before])).slowdown.p99, healthy.slowdown.p99);
}

#[test]
fn a_degraded_link_slows_flows_that_hash_onto_it() {
    let mut plan = scenario(vec![]);
    plan.fabric.routing = Some(Routing::Ecmp);
    let healthy = outcome(&plan);
    let rate = Some(Bandwidth::gbps(1));
    plan.fabric.impaired = vec![Impaired { rate, ..link("tor0", "spine0") }];
    let degraded = outcome(&plan);
    assert!(degraded.slowdown.p99.unwrap() > 3.0 * healthy.slowdown.p99.unwrap());
    // One way only: the other way keeps its rate.
    plan.fabric.impaired[0].one_way = true;
    let one_way = outcome(&plan);
    assert!(one_way.trace_hash != degraded.trace_hash && one_way.undelivered == 0);
}

#[test]
fn a_lossy_link_loses_on_itself_only_and_only_meanwhile() {
    let loss_ppm = Some(100_000);
    let lossy = outcome(&scenario(vec![Impaired { loss_ppm, ..link("h3", "tor0") }]));
    assert_eq!((lossy.messages, lossy.undelivered), (3_000, 0));
    let later = Impaired { at: Span::millis(900), loss_ppm, ..link("h3", "tor0") };
    let untouched = outcome(&scenario(vec![later]));
    assert!(lossy.drops.fault > 100, "{:?}", lossy.drops);
    assert_eq!(untouched.drops.fault, 0);
}

#[test]
fn duplicates_are_refused_and_harm_nobody() {
    let mut plan = scenario(vec![]);
    plan.fabric.duplicate_ppm = 20_000;
    let outcome = outcome(&plan);
    assert_eq!((outcome.messages, outcome.undelivered), (3_000, 0));
    assert!(outcome.drops.refused > 0);
}

#[test]
fn reordered_packets_arrive_late_and_none_is_lost() {
    let mut plan = scenario(vec![]);
    let calm = outcome(&plan);
    plan.fabric.reorder_ppm = 50_000;
    plan.fabric.reorder_by = Span::nanos(200_000);
    let disturbed = outcome(&plan);
    assert_eq!((disturbed.messages, disturbed.undelivered), (3_000, 0));
    assert_eq!((disturbed.drops.overflow, disturbed.drops.fault), (0, 0));
    assert!(
        disturbed.slowdown.p50 > calm.slowdown.p50 && disturbed.slowdown.p99 > calm.slowdown.p99
    );
    // If faults end after a nanosecond, the run equals one without faults.
    plan.fabric.faults_until = Some(Span::nanos(1));
    assert_eq!(outcome(&plan).trace_hash, calm.trace_hash);
}

#[test]
fn a_paused_host_delays_only_messages_to_and_from_it() {
    let mut plan = scenario(vec![]);
    plan.traffic = Traffic::Permutation { bytes: 20_000 };
    let calm = outcome(&plan);
    plan.fabric.paused = vec![pause("h3", 1, 5_000)];
    let paused = outcome(&plan);
    assert_eq!((paused.messages, paused.undelivered), (8, 0));
    // The message it receives and the one it sends take longer by the pause, the other six do not.
    let bucket = &paused.slowdown.buckets[0];
    assert!(bucket.p99_us.unwrap() > 4_900.0, "{bucket:?}");
    assert!(bucket.p50_us <= calm.slowdown.buckets[0].p99_us, "{bucket:?}");
}

#[test]
fn mistakes_in_link_names_list_the_existing_names() {
    let unknown = refusal(&scenario(vec![link("tor0", "spine0"), link("tor7", "spine0")]));
    assert!(unknown.contains("entry 2") && unknown.contains("spine0, spine1, tor0"), "{unknown}");
    let apart = refusal(&scenario(vec![link("tor0", "tor1")]));
    assert!(apart.contains("those of `tor0` are h0, h1, h2, h3, spine0"), "{apart}");
    let fast = Impaired { rate: Some(Bandwidth::gbps(100)), ..link("tor0", "spine0") };
    assert!(refusal(&scenario(vec![fast])).contains("no more than the link's 20 Gbit/s"));
    let slow = Impaired { rate: Some(Bandwidth(1_000_000)), ..link("tor0", "spine0") };
    assert!(refusal(&scenario(vec![slow])).contains("4Mbps"));
    let until = Some(Span::nanos(5));
    let backwards = Impaired { at: Span::nanos(5), until, ..link("tor0", "spine0") };
    assert!(refusal(&scenario(vec![backwards])).contains("`until`"));
    let mut slow = scenario(vec![]);
    slow.fabric.host_link = Bandwidth(1_000_000);
    assert!(refusal(&slow).contains("at least 4Mbps"));
}

#[test]
fn the_slowest_link_depends_on_the_packets() {
    let mut slow = scenario(vec![]);
    slow.scheme = "tcp".to_owned();
    slow.fabric.host_link = Bandwidth(12_500_000);
    slow.stop.messages = Some(20);
    assert_eq!(outcome(&slow).messages, 20);
    slow.options.tcp = Some(TcpOptions { mtu: Some(9_000), ..TcpOptions::default() });
    assert!(refusal(&slow).contains("at least 20Mbps"));
}

/// The leaf-spine above as a list of links, the switches' delays on them.
fn graph(name: &str) -> (std::path::PathBuf, Scenario) {
    let mut text = String::from("from,to,gbps,delay_ns\n");
    for host in 0..8 {
        text += &format!("h{host},leaf{},10,500\n", host / 4);
    }
    for (leaf, spine) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        text += &format!("leaf{leaf},top{spine},20,250\n");
    }
    let file = std::env::temp_dir().join(format!("homa-{name}-{}.csv", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut plan = scenario(vec![]);
    plan.fabric.shape = Shape::Graph { file: file.display().to_string(), format: None };
    (file, plan)
}

#[test]
fn a_graph_file_behaves_like_the_shape_it_describes() {
    let (file, mut plan) = graph("graph");
    let listed = outcome(&plan);
    assert_eq!((listed.messages, listed.undelivered, listed.in_flight), (3_000, 0, 0));
    // The same network from a regular shape with the same delays.
    let mut regular = scenario(vec![]);
    for delay in [&mut regular.fabric.send_delay, &mut regular.fabric.nic_delay] {
        *delay = Span::nanos(125);
    }
    let regular = outcome(&regular);
    let (a, b) = (listed.slowdown.p99.unwrap(), regular.slowdown.p99.unwrap());
    assert!((a / b - 1.0).abs() < 0.1, "{a} {b}");
    assert!(listed.queues.unwrap().fabric.is_some_and(|queue| queue.frames > 0));
    // Switches have the names that the file gives them.
    plan.fabric.impaired = vec![link("leaf0", "top1")];
    assert_eq!(outcome(&plan).undelivered, 0);
    plan.slowdown = SlowdownBy::Authors;
    assert!(refusal(&plan).contains("\"idle\""));
    std::fs::write(&file, "h0,a,10,500\nh1,a,fast,500\n").unwrap();
    assert!(refusal(&plan).contains("line 2: `fast` is not a rate"));
    std::fs::remove_file(&file).unwrap();
    assert!(refusal(&plan).contains(&file.display().to_string()));
}

#[test]
fn rpcs_that_are_given_up_leave_the_backlog_and_are_counted() {
    let mut plan = scenario(vec![link("h1", "tor0")]);
    plan.scheme = "homa-paper".to_owned();
    plan.stop.messages = Some(300);
    for ending in [TrafficEnding::Drain, TrafficEnding::Loaded] {
        plan.stop.ending = ending;
        let outcome = outcome(&plan);
        assert!(outcome.failed > 20, "calls to h1 must fail: {}", outcome.failed);
        assert_eq!(outcome.undelivered, 0, "failed calls are no longer in flight");
        assert!(outcome.messages < 300, "{outcome:?}");
        let ends_with_the_last = ending == TrafficEnding::Drain || outcome.simulated_seconds < 1.0;
        assert!(ends_with_the_last, "{outcome:?}");
    }
}

#[test]
fn scenarios_that_measure_nothing_are_refused_with_their_key() {
    type Change = fn(&mut Scenario);
    let wrong: [(&str, Change); 11] = [
        ("stop.messages", |plan| plan.stop.messages = Some(0)),
        ("stop.time", |plan| {
            plan.warm_up = Span::millis(2);
            plan.stop.time = Some(Span::millis(2));
        }),
        ("fabric.loss_ppm", |plan| plan.fabric.loss_ppm = 1_000_001),
        ("fabric.duplicate_ppm", |plan| plan.fabric.duplicate_ppm = u32::MAX),
        ("fabric.reorder_by", |plan| {
            plan.fabric.reorder_ppm = 1;
            plan.fabric.reorder_by = Span::nanos(0);
        }),
        ("fabric.faults_until", |plan| plan.fabric.faults_until = Some(Span::nanos(0))),
        ("h0 to h7", |plan| plan.fabric.paused = vec![pause("h8", 0, 1)]),
        ("fabric.buffer.bytes", |plan| plan.fabric.buffer = Buffer::PerPort { bytes: 0 }),
        ("options.cutoffs", |plan| plan.options.cutoffs = Some(vec![1; 255])),
        ("options.cutoffs", |plan| plan.options.cutoffs = Some(vec![300, 100])),
        ("options.tail_boost", |plan| plan.options.tail_boost = Some(true)),
    ];
    for (key, change) in wrong {
        let mut plan = scenario(vec![]);
        change(&mut plan);
        let said = refusal(&plan);
        assert!(said.contains(key), "{key}: {said}");
    }
}

#[test]
fn messages_that_can_no_longer_arrive_count_as_failed() {
    // The sender of a one-way message drops its state with the last byte. If a packet is lost after
    // that, the message is lost for good.
    let mut lossy = scenario(vec![]);
    lossy.fabric.loss_ppm = 5_000;
    lossy.traffic = Traffic::Permutation { bytes: 30_000 };
    let lost = outcome(&lossy);
    assert!(lost.measured_failed > 0 && lost.measured_failed == lost.undelivered, "{lost:?}");
    assert_eq!(lost.messages + lost.measured_failed, 8);
    // The run ended when no event was pending, not at the limit of 10 s.
    assert!(lost.simulated_seconds < 1.0, "{}", lost.simulated_seconds);
    // Lost packets of RPCs are retransmitted.
    let mut echo = scenario(vec![]);
    echo.fabric.loss_ppm = 5_000;
    let repaired = outcome(&echo);
    assert!(repaired.drops.fault > 0, "{repaired:?}");
    assert_eq!((repaired.messages, repaired.failed, repaired.undelivered), (3_000, 0, 0));
}
