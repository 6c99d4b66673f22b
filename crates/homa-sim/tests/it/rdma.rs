//! RDMA's queue pairs: what HPCC promises of one bottleneck, and times that the simulator of its
//! authors prints for the same messages.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, DcqcnOptions, DcqcnPresetName, Exchange, HpccOptions, RdmaOptions, Scenario,
    ScenarioOutcome, SchemeOptions, Shape, Span, Stop, Traffic, TrafficEnding,
};

use crate::common::equal_links;

const SCHEMES: [&str; 4] = ["hpcc", "dcqcn", "timely", "dctcp-rdma"];

/// Hosts at one switch with links of 100 Gbit/s and 1 us.
fn star(scheme: &str, hosts: u32, traffic: Traffic) -> Scenario {
    let mut scenario = equal_links(scheme, Shape::SingleSwitch { hosts }, (100, 1_000), traffic);
    scenario.measures.flows_above = Some(0);
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    let outcome = run(scenario, &mut |_| ()).expect("it runs");
    assert_eq!((outcome.drops.overflow, outcome.timeouts.expired), (0, 0), "{}", scenario.scheme);
    outcome
}

/// Long flows to one host, measured from 1 to 2 ms.
fn long(scheme: &str, senders: u32) -> Scenario {
    let mut scenario = star(scheme, 9, Traffic::LongFlows { senders, groups: Vec::new() });
    scenario.measures.flows_above = None;
    scenario.warm_up = Span::millis(1);
    let time = Some(Span::millis(2));
    scenario.stop = Stop { time, ending: TrafficEnding::Cut, messages: None, ..scenario.stop };
    scenario
}

/// 95 % is the target; the increment adds a 2500th of the link.
#[test]
fn hpcc_keeps_a_link_at_its_target_without_a_queue() {
    for (target, expected) in [(None, 0.9505), (Some(0.8), 0.8005)] {
        let mut scenario = long("hpcc", 1);
        scenario.options.hpcc = Some(HpccOptions { target, ..HpccOptions::default() });
        let outcome = outcome(&scenario);
        assert!((outcome.utilisation - expected).abs() < 0.003, "{}", outcome.utilisation);
        assert_eq!(outcome.queues.unwrap().receivers.unwrap().max_bytes, 0);
    }
    let two = outcome(&long("hpcc", 2));
    assert!((0.945..0.955).contains(&two.utilisation), "{}", two.utilisation);
    let queue = two.queues.unwrap().receivers.unwrap();
    assert!(queue.time_mean_bytes < 2_000.0, "less than two packets: {queue:?}");
}

/// Two messages of 20 MB to one host; one begins 300 us after the other. HPCC's simulator prints
/// these times, with the acknowledgement of 2.01 us. If the first kept its rate, it would
/// take 1678 us. DCQCN's marks are drawn.
#[test]
fn a_flow_gives_way_to_one_that_begins_later() {
    let file = std::env::temp_dir().join(format!("homa-rdma-{}.csv", std::process::id()));
    std::fs::write(&file, "0,1,0,20000000,0\n1,2,0,20000000,300000\n").unwrap();
    let name = file.to_str().unwrap().to_owned();
    let outcomes = SCHEMES.map(|scheme| {
        let traffic =
            Traffic::Flows { file: name.clone(), format: None, exchange: Exchange::OneWay };
        outcome(&star(scheme, 3, traffic))
    });
    std::fs::remove_file(&file).unwrap();
    let printed =
        [(3_377.92, 3_556.04), (3_635.27, 3_830.13), (3_606.95, 3_631.09), (3_024.05, 3_024.09)];
    for ((scheme, outcome), (first, second)) in SCHEMES.iter().zip(outcomes).zip(printed) {
        let mut times: Vec<f64> = outcome.flows.iter().map(|flow| flow.us + 2.01).collect();
        times.sort_by(f64::total_cmp);
        let tolerance = if *scheme == "dcqcn" { 0.06 } else { 0.025 };
        assert!((times[0] / first - 1.0).abs() < tolerance, "{scheme}: {times:?}");
        assert!((times[1] / second - 1.0).abs() < tolerance, "{scheme}: {times:?}");
    }
}

/// A full packet has 42 of 1090 bytes for records, which only HPCC needs.
#[test]
fn telemetry_takes_its_part_of_the_wire() {
    let us = |scheme| {
        let mut scenario = star(scheme, 2, Traffic::FanIn { senders: 1, bytes: 10_000 });
        // Nothing changes a rate within ten packets.
        scenario.options.rdma = Some(RdmaOptions { window: Some(false), ..Default::default() });
        outcome(&scenario).flows[0].us
    };
    // Ten packets at 100 Gbit/s, a last one that is stored at the switch, and two links of 1 us.
    for (scheme, bytes) in [("hpcc", 1_090.0), ("timely", 1_056.0), ("dcqcn", 1_048.0)] {
        let expected = 2.0 + 11.0 * bytes * 8.0 / 100e3;
        assert!((us(scheme) - expected).abs() < 0.001, "{scheme}");
    }
    let share = 1.0 - 1_048.0 / 1_090.0;
    assert!((share - 0.039_f64).abs() < 0.003, "{share}");
}

/// Fifteen hosts send 500 kB to one at the same time. HPCC's simulator prints these times in us, of
/// the first and the last message, an acknowledgement of 2.01 us after the last packet. It rounds a
/// packet's time down to nanoseconds, so that its links are up to 1 % faster.
#[test]
fn an_incast_takes_what_the_authors_simulator_prints() {
    for (scheme, first, last) in [
        ("hpcc", 502.81, 702.51),
        ("dcqcn", 640.83, 813.55),
        ("timely", 632.92, 634.09),
        ("dctcp-rdma", 625.43, 626.59),
    ] {
        let outcome = outcome(&star(scheme, 16, Traffic::FanIn { senders: 15, bytes: 500_000 }));
        let times = outcome.flows.iter().map(|flow| flow.us + 2.01);
        let (low, high) = times.fold((f64::MAX, 0.0_f64), |(a, b), us| (a.min(us), b.max(us)));
        assert!((high / last - 1.0).abs() < 0.03, "{scheme}: {high} for {last}");
        assert!((low / first - 1.0).abs() < 0.06, "{scheme}: {low} for {first}");
    }
}

#[test]
fn dcqcns_presets_differ_and_their_keys_can_be_changed() {
    let last = |options| {
        let mut scenario = star("dcqcn", 16, Traffic::FanIn { senders: 15, bytes: 500_000 });
        scenario.options.dcqcn = Some(options);
        outcome(&scenario).flows.iter().map(|flow| flow.us).fold(0.0, f64::max)
    };
    let preset = |preset| DcqcnOptions { preset: Some(preset), ..DcqcnOptions::default() };
    let (hpcc, paper) = (preset(DcqcnPresetName::Hpcc), preset(DcqcnPresetName::Sigcomm15));
    assert_eq!(last(hpcc), last(DcqcnOptions::default()));
    assert_ne!(last(paper), last(hpcc));
    let as_paper = DcqcnOptions {
        alpha_every: Some(Span::nanos(50_000)),
        cut_every: Some(Span::nanos(50_000)),
        rise_every: Some(Span::nanos(55_000)),
        recoveries: Some(5),
        additive: Some(Bandwidth::mbps(40)),
        hyper: Some(Bandwidth::mbps(400)),
        ..hpcc
    };
    assert_eq!(last(paper), last(as_paper));
}

#[test]
fn parameters_out_of_their_range_are_refused_by_name() {
    let rdma = |options| SchemeOptions { rdma: Some(options), ..SchemeOptions::default() };
    let hpcc = |options| SchemeOptions { hpcc: Some(options), ..SchemeOptions::default() };
    let dcqcn = |options| SchemeOptions { dcqcn: Some(options), ..SchemeOptions::default() };
    let (short, fast) = (Some(Span::nanos(999)), Some(Bandwidth::gbps(101)));
    for (scheme, key, options) in [
        ("hpcc", "payload", rdma(RdmaOptions { payload: Some(63), ..Default::default() })),
        ("dcqcn", "min_rate", rdma(RdmaOptions { min_rate: fast, ..Default::default() })),
        ("timely", "timeout", rdma(RdmaOptions { timeout: short, ..Default::default() })),
        ("dcqcn", "mark_most", rdma(RdmaOptions { mark_most: Some(1.1), ..Default::default() })),
        ("hpcc", "target", hpcc(HpccOptions { target: Some(f64::NAN), ..Default::default() })),
        (
            "dcqcn",
            "cut_every",
            dcqcn(DcqcnOptions { cut_every: Some(Span::nanos(0)), ..Default::default() }),
        ),
        ("timely", "options.hpcc", hpcc(HpccOptions::default())),
    ] {
        let scenario = star(scheme, 4, Traffic::FanIn { senders: 1, bytes: 1 });
        let refused = validate(&Scenario { options, ..scenario }).unwrap_err().to_string();
        assert!(refused.contains("`options.") && refused.contains(key), "{key}: {refused}");
    }
}

/// Only hosts of DCQCN and DCTCP react to marks, and a port that preempts could not stamp.
#[test]
fn what_hosts_would_not_heed_is_refused() {
    let refused = |scheme: &str, change: fn(&mut Scenario)| {
        let mut scenario = star(scheme, 4, Traffic::FanIn { senders: 1, bytes: 1 });
        change(&mut scenario);
        validate(&scenario).unwrap_err().to_string()
    };
    let marks = |scenario: &mut Scenario| {
        scenario.options.rdma =
            Some(RdmaOptions { mark_from: Some(1_000.into()), ..RdmaOptions::default() });
    };
    for scheme in ["hpcc", "timely", "powertcp", "swift"] {
        let said = refused(scheme, marks);
        assert!(said.contains("options.rdma.mark_from") && said.contains("`dcqcn`"), "{said}");
    }
    let ecn = refused("dcqcn", |scenario| {
        scenario.options.ecn = Some(homa_sim::scenario::EcnConfig::new(30_000.into()));
    });
    assert!(ecn.contains("options.ecn") && ecn.contains("options.rdma.mark_from"), "{ecn}");
    let preemption = refused("hpcc", |scenario| scenario.fabric.preemption = true);
    assert!(preemption.contains("preemption"), "{preemption}");
}
