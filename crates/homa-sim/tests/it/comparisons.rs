//! Measures for comparing schemes: a divisor that is the same for all of them, times of rounds of
//! RPCs, and rates of long flows.

use homa_sim::SimTime;
use homa_sim::experiment::{replay, run};
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, FlowGroup, Scenario, ScenarioOutcome, Shape, SlowdownBy,
    Span, Stop, Traffic, TrafficEnding,
};
use homa_sim::traffic::open_loop::ScheduledMessage;

fn star(scheme: &str, traffic: Traffic) -> Scenario {
    Scenario {
        scheme: scheme.to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 6 }, ..Fabric::default() },
        traffic,
        slowdown: SlowdownBy::Best,
        ..Scenario::default()
    }
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).expect("it runs")
}

/// The median slowdown of messages at a load so low that nearly every message is alone in the
/// network.
fn alone(scheme: &str, bytes: u32, by: SlowdownBy) -> f64 {
    let workload = bytes.to_string();
    let all_to_all = Traffic::AllToAll { workload, exchange: Exchange::OneWay, max_bytes: None };
    let mut scenario = star(scheme, all_to_all);
    scenario.load.fraction = 0.0005;
    // A round trip long enough that slow start needs several of them: it holds many windows of ten
    // segments.
    scenario.fabric.send_delay = Span::nanos(50_000);
    scenario.stop.messages = Some(40);
    scenario.slowdown = by;
    outcome(&scenario).slowdown.p50.expect("messages arrived")
}

#[test]
fn best_does_not_hide_a_slow_start_and_idle_does() {
    const MEGABYTE: u32 = 1_000_000;
    assert_eq!(alone("tcp-newreno", MEGABYTE, SlowdownBy::Idle), 1.0);
    let slow_start = alone("tcp-newreno", MEGABYTE, SlowdownBy::Best);
    assert!(slow_start > 1.01, "{slow_start}");
    for scheme in ["pfabric", "ndp", "ideal"] {
        let best = alone(scheme, MEGABYTE, SlowdownBy::Best);
        assert!((best - 1.0).abs() < 0.01, "{scheme}: {best}");
    }
    // `best-acked` adds the way of the last ACK to both times, so the same difference is a smaller
    // share of them.
    let acked = alone("tcp-newreno", MEGABYTE, SlowdownBy::BestAcked);
    assert!(acked > 1.01 && acked < slow_start, "{acked} {slow_start}");
}

#[test]
fn one_message_alone_is_not_slowed_at_any_rate() {
    for (scheme, gbps, most) in [
        ("dctcp", 10, 1.01),
        ("dctcp", 400, 1.01),
        // Phantom queues drain at 95 % of the link, and five packets fill a round trip.
        ("hull", 10, 1.25),
        ("hull", 100, 1.06),
        ("hull", 400, 1.06),
    ] {
        let workload = "1000000".to_owned();
        let traffic = Traffic::AllToAll { workload, exchange: Exchange::OneWay, max_bytes: None };
        let mut scenario = star(scheme, traffic);
        scenario.fabric.host_link = Bandwidth::gbps(gbps);
        scenario.load.fraction = 0.0005;
        scenario.stop.messages = Some(40);
        let slowdown = outcome(&scenario).slowdown.p50.expect("messages arrived");
        assert!(slowdown < most, "{scheme} at {gbps} Gbit/s: {slowdown}");
    }
}

/// Windows and unscheduled bytes cover a round trip of any length. With 60,000 unscheduled bytes at
/// most, a message of 1 MB takes up to 4.7 times as long as it needs on fast or long links, and
/// with six packets granted at a time 1.05 times on the slowest of these.
#[test]
fn homa_fills_a_link_of_any_rate_and_length() {
    for scheme in ["homa", "homa-paper"] {
        for (gbps, cable) in [10, 25, 100, 400, 800].into_iter().zip([0, 200, 1_000, 5_000, 200]) {
            let workload = "1000000".to_owned();
            let exchange = Exchange::OneWay;
            let traffic = Traffic::AllToAll { workload, exchange, max_bytes: None };
            let mut scenario = star(scheme, traffic);
            scenario.fabric.host_link = Bandwidth::gbps(gbps);
            scenario.fabric.propagation = Span::nanos(cable);
            scenario.load.fraction = 0.0005;
            scenario.stop.messages = Some(20);
            let slowdown = outcome(&scenario).slowdown.p50.expect("messages arrived");
            assert!(slowdown < 1.01, "{scheme} at {gbps} Gbit/s and {cable} ns: {slowdown}");
        }
    }
}

/// The bound on all granted bytes covers several round trips. With 400,000 bytes it is less than
/// one here, and the last message arrives after 134 us instead of 80.
#[test]
fn homa_fills_all_links_at_800_gbps() {
    const HOSTS: u32 = 8;
    let traffic = Traffic::Permutation { bytes: 1_000_000 };
    let mut scenario = star("homa", traffic);
    scenario.fabric.shape = Shape::SingleSwitch { hosts: HOSTS };
    scenario.fabric.host_link = Bandwidth::gbps(800);
    scenario.fabric.propagation = Span::nanos(1_000);
    let pairs = (1..HOSTS).flat_map(|step| (0..HOSTS).map(move |src| (src, (src + step) % HOSTS)));
    let message = |(src, dst)| ScheduledMessage { at: SimTime::ZERO, src, dst, bytes: 1_000_000 };
    let all = replay(&scenario, pairs.map(message).collect(), Exchange::OneWay, &mut |_| ());
    let all = all.expect("it runs").samples;
    let last = all.iter().map(|sample| sample.latency.0).max().expect("messages arrived");
    // Seven messages in frames of 1538 bytes, each with 1424 of a message, and 6 us of delays.
    let bound = 7.0 * 1e6 * 1_538.0 / 1_424.0 * 8.0 / 800e9 * 1e12 + 6e6;
    assert!((last as f64) < 1.03 * bound, "{last} ps of {bound}");
}

#[test]
fn a_round_lasts_until_its_last_response() {
    let traffic = Traffic::Incast {
        servers: 5,
        concurrent: 5,
        request_bytes: 100,
        response_bytes: 146_000,
        together: true,
    };
    let mut scenario = star("pfabric", traffic);
    scenario.stop.messages = Some(20 * 5);
    let rounds = outcome(&scenario).rounds.expect("there are rounds");
    assert_eq!(rounds.count, 20);
    // Five times a hundred frames of 1538 bytes at 10 Gbit/s take 615 us; a round trip and losses
    // come on top.
    assert!((615.2..700.0).contains(&rounds.p50_us), "{rounds:?}");
    assert!(rounds.p50_us <= rounds.p95_us && rounds.p99_us <= rounds.max_us);
}

#[test]
fn each_group_of_long_flows_has_its_own_rate() {
    let one = FlowGroup { from: 0, count: 2, to: 4, spread: false };
    let other = FlowGroup { from: 2, count: 1, to: 5, spread: true };
    let of = |groups: Vec<FlowGroup>| {
        let mut scenario = star("dctcp", Traffic::LongFlows { senders: 0, groups });
        scenario.fabric.host_link = Bandwidth::gbps(1);
        scenario.fabric.buffer = Buffer::PerPort { bytes: 300_000 };
        scenario.warm_up = Span::millis(50);
        let time = Some(Span::millis(150));
        scenario.stop = Stop { time, ending: TrafficEnding::Cut, messages: None, ..scenario.stop };
        scenario
    };
    let shared = outcome(&of(vec![one, other]));
    let [two, single] = &shared.flow_groups[..] else { panic!("{:?}", shared.flow_groups) };
    assert_eq!((two.flows, single.flows), (2, 1));
    assert!((two.mean_gbps - 0.5).abs() < 0.01 && two.fairness > 0.95, "{two:?}");
    assert!((single.mean_gbps - 1.0).abs() < 0.01, "{single:?}");
    // `receivers` counts the ports that lead to receivers. It leaves out those that only carry
    // returning acknowledgements.
    let queues = shared.queues.expect("queues were measured");
    let (receivers, all) = (queues.receivers.unwrap(), queues.tor_down.unwrap());
    assert!(receivers.p99_bytes > 0 && receivers.frames < all.frames);
    assert_eq!(receivers.max_bytes, all.max_bytes);
    for (groups, word) in [
        (vec![], "senders"),
        (vec![FlowGroup { to: 6, ..one }], "hosts below 6"),
        (vec![FlowGroup { to: 1, ..one }], "itself"),
    ] {
        let refused = run(&of(groups), &mut |_| ()).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    // Two hosts send a flow to each of two hosts: all four links are full.
    let crossed = outcome(&of(vec![one, FlowGroup { to: 5, ..one }]));
    for group in crossed.flow_groups {
        let received = group.received_gbps.unwrap();
        assert!((received - 1.0).abs() < 0.01, "{group:?}");
    }
}

#[test]
fn a_divisor_may_count_the_first_frame_once() {
    // One frame of 1,000 bytes takes 0.86 us on the receiver's link, of 53 us in all.
    let short = alone("phost", 1_000, SlowdownBy::IdleFirstOnce);
    assert!((1.015..1.018).contains(&short), "{short}");
    let long = alone("phost", 1_000_000, SlowdownBy::IdleFirstOnce);
    assert!((1.0..1.003).contains(&long), "{long}");
}

#[test]
fn the_bare_divisor_counts_bytes_and_delays_only() {
    // 1,000,000 bytes take 800 us and 53 us of delays. Headers add 5 %, and the switch a frame.
    let long = alone("ideal", 1_000_000, SlowdownBy::Bare);
    assert!((1.04..1.06).contains(&long), "{long}");
    // One frame of 100 bytes takes 0.15 us on each of two links.
    let short = alone("ideal", 100, SlowdownBy::Bare);
    assert!((1.002..1.006).contains(&short), "{short}");
}

#[test]
fn the_bare_divisor_may_include_a_stored_frame_and_the_ack() {
    // Ten full packets take 13.5 us on one link, 0.6 us for headers, and the last of them
    // 1.2 us on the other. There and back they have 106 us of delays.
    let short = alone("ndp", 14_600, SlowdownBy::BareAcked);
    assert!((1.004..1.006).contains(&short), "{short}");
    let unacked = alone("ndp", 14_600, SlowdownBy::Bare);
    assert!((1.025..1.032).contains(&unacked), "{unacked}");
}
