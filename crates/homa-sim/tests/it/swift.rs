//! Swift: times that `csg-htsim` (841d9e7, `main_swift.cpp`) prints for the same messages in the
//! same fat tree, and what its parameters do.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Exchange, Impaired, RdmaOptions, Scenario, Shape, Span, SwiftOptions, Traffic,
};

use crate::common::equal_links;

/// 500 packets and the one that their program adds, of 4000 bytes with headers.
const BYTES: u32 = 501 * 3_944;

/// Their constants. Their addition for each link has no effect, because copies of routes count no
/// links.
fn htsim(initial: f64) -> SwiftOptions {
    SwiftOptions {
        base: Some(Span::nanos(20_000)),
        per_switch: Some(Span::nanos(0)),
        range: Some(Span::nanos(100_000)),
        scaled_to: Some(100.0),
        max_window: Some(1_000.0),
        min_window: Some(0.0025),
        initial_window: Some(initial),
        ..SwiftOptions::default()
    }
}

/// A fat tree of 16 hosts with links of 100 Gbit/s and 1 us.
fn tree(initial: f64, traffic: Traffic) -> Scenario {
    let shape = Shape::FatTree { k: 4, oversubscription: 1 };
    let mut scenario = equal_links("swift", shape, (100, 1_000), traffic);
    scenario.options.swift = Some(htsim(initial));
    scenario.options.rdma =
        Some(RdmaOptions { payload: Some(3_944), acks_first: Some(false), ..Default::default() });
    scenario.measures.flows_above = Some(0);
    scenario
}

/// Times in us until the last acknowledgement, of messages from these hosts to host 0 at once.
fn times(initial: f64, senders: &[u32]) -> Vec<f64> {
    let name = format!("homa-swift-{}-{}.csv", std::process::id(), senders.len());
    let file = std::env::temp_dir().join(name);
    let rows = senders.iter().enumerate().map(|(n, host)| format!("{n},{host},0,{BYTES},0\n"));
    std::fs::write(&file, rows.collect::<String>()).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let traffic = Traffic::Flows { file: path, format: None, exchange: Exchange::OneWay };
    let outcome = run(&tree(initial, traffic), &mut |_| ()).expect("it runs");
    std::fs::remove_file(&file).unwrap();
    assert_eq!((outcome.drops.overflow, outcome.timeouts.expired), (0, 0));
    // An acknowledgement takes 2.01 us within a rack, 4.02 within a pod, and else 6.03.
    let answer = |host: u32| match host {
        1 => 2.01,
        2 | 3 => 4.02,
        _ => 6.03,
    };
    let mut times: Vec<f64> = outcome.flows.iter().map(|flow| flow.us + answer(flow.src)).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Theirs end with an acknowledgement at the sender. Their target takes a window in whole packets.
#[test]
fn times_are_those_that_htsim_prints() {
    let every: Vec<u32> = (1..16).collect();
    for (initial, senders, printed) in [
        (15.0, &[15][..], &[302.0][..]),
        (15.0, &[1, 15], &[230.25, 386.31]),
        (15.0, &[4, 8, 12], &[488.82, 494.26, 494.58]),
        // The hosts of the same pod are ahead for long: first, second, third, fourth.
        (15.0, &every, &[778.09, 1386.81, 1417.53, 2348.5]),
        (44.0, &every, &[934.57, 1458.49, 1512.25, 2349.78]),
    ] {
        let times = times(initial, senders);
        let tolerance = if senders.len() == 15 { 0.05 } else { 0.002 };
        for (ours, theirs) in times.iter().zip(printed) {
            assert!((ours / theirs - 1.0).abs() < tolerance, "{initial} {senders:?}: {times:?}");
        }
        let last = if senders.len() == 15 { 2_420.0 } else { printed[printed.len() - 1] };
        assert!((times[times.len() - 1] / last - 1.0).abs() < 0.004, "{initial}: {times:?}");
    }
}

/// The median queue at the receiver in an incast of 15, bytes.
fn queue(swift: SwiftOptions) -> u64 {
    let mut scenario = tree(15.0, Traffic::FanIn { senders: 15, bytes: 2_000_000 });
    scenario.options.swift = Some(swift);
    scenario.warm_up = Span::millis(1);
    let outcome = run(&scenario, &mut |_| ()).expect("it runs");
    outcome.queues.unwrap().receivers.unwrap().p50_bytes
}

/// 20 us more of the target are 250 kB more in the queue.
#[test]
fn the_queue_follows_the_target() {
    let with = |base, per_switch| {
        let (base, per_switch) = (Some(Span::nanos(base)), Some(Span::nanos(per_switch)));
        queue(SwiftOptions { base, per_switch, ..htsim(15.0) }) as f64
    };
    let short = with(20_000, 0);
    for (longer, what) in [(with(40_000, 0), "the base"), (with(20_000, 4_000), "5 switches")] {
        assert!((longer - short - 250e3).abs() < 60e3, "{what}: {short} and {longer}");
    }
}

/// Without a round trip there is no pace, so a window below a packet is one packet at a time. A
/// host that hears nothing for 20 ms does not send the whole message again and again.
#[test]
fn a_window_below_a_packet_is_no_blast_before_the_first_answer() {
    let lost = |min_window| {
        let mut scenario = tree(15.0, Traffic::FanIn { senders: 1, bytes: 1_000_000 });
        scenario.options.rdma = Some(RdmaOptions {
            timeout: Some(Span::nanos(100_000)),
            ..scenario.options.rdma.unwrap_or_default()
        });
        scenario.options.swift = Some(SwiftOptions { min_window: Some(min_window), ..htsim(15.0) });
        scenario.fabric.impaired = vec![Impaired {
            from: "h1".to_owned(),
            to: "tor0".to_owned(),
            one_way: false,
            at: Span::nanos(0),
            until: Some(Span::millis(20)),
            rate: None,
            loss_ppm: Some(1_000_000),
        }];
        let outcome = run(&scenario, &mut |_| ()).expect("it runs");
        assert_eq!(outcome.flows.len(), 1);
        outcome.drops.fault
    };
    let (small, whole) = (lost(0.01), lost(1.0));
    assert!(small <= whole + 2, "{small} and {whole}");
}

#[test]
fn parameters_out_of_their_range_are_refused_by_name() {
    let given = |swift| SwiftOptions { initial_window: Some(15.0), ..swift };
    for (key, swift) in [
        ("beta", SwiftOptions { beta: Some(f64::NAN), ..SwiftOptions::default() }),
        ("base", SwiftOptions { base: Some(Span::nanos(0)), ..SwiftOptions::default() }),
        ("scaled_to", SwiftOptions { scaled_to: Some(0.1), ..SwiftOptions::default() }),
        (
            "initial_window",
            SwiftOptions { max_window: Some(14.0), ..given(SwiftOptions::default()) },
        ),
    ] {
        let mut scenario = tree(15.0, Traffic::FanIn { senders: 1, bytes: 1 });
        scenario.options.swift = Some(swift);
        let refused = validate(&scenario).unwrap_err().to_string();
        assert!(refused.contains(&format!("`options.swift.{key}`")), "{key}: {refused}");
    }
    // A limit alone moves the default of the first window.
    for (min_window, max_window) in [(Some(400.0), None), (None, Some(5.0))] {
        let mut scenario = tree(15.0, Traffic::FanIn { senders: 1, bytes: 1 });
        scenario.options.swift =
            Some(SwiftOptions { min_window, max_window, ..SwiftOptions::default() });
        assert_eq!(validate(&scenario), Ok(()));
    }
    for (key, rdma) in [
        ("window", RdmaOptions { window: Some(false), ..RdmaOptions::default() }),
        ("min_rate", RdmaOptions { min_rate: Some(Bandwidth(1)), ..RdmaOptions::default() }),
    ] {
        let mut scenario = tree(15.0, Traffic::FanIn { senders: 1, bytes: 1 });
        scenario.options.rdma = Some(rdma);
        let refused = validate(&scenario).unwrap_err().to_string();
        assert!(refused.contains(&format!("`options.rdma.{key}`")), "{refused}");
    }
}
