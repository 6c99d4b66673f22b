//! HULL's trade-off (NSDI 2012 §6.1): long flows give up bandwidth so that packets of other flows
//! wait less.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Basis, Buffer, CpuOptions, EcnConfig, Exchange, Fabric, InterruptsName, NicOptions,
    OfferedLoad, PacerOptions, PhantomOptions, Probes, Scenario, ScenarioOutcome, Shape,
    SlowdownBy, Span, Stop, TcpOptions, Traffic, TrafficEnding,
};

/// Two servers of a rack at 1 Gbit/s send to a third, and a fourth sends it probes.
fn two_flows(scheme: &str) -> Scenario {
    Scenario {
        scheme: scheme.to_owned(),
        fabric: Fabric {
            shape: Shape::SingleSwitch { hosts: 4 },
            host_link: Bandwidth::gbps(1),
            send_delay: Span::nanos(35_000),
            receive_delay: Span::nanos(35_000),
            ..Fabric::default()
        },
        traffic: Traffic::LongFlows { senders: 2, groups: Vec::new() },
        probes: Some(Probes {
            from: 3,
            to: 0,
            every: Span::millis(1),
            bytes: 1_400,
            lost_after: Some(Span::millis(7)),
            instrument: None,
        }),
        warm_up: Span::millis(100),
        stop: Stop {
            messages: None,
            time: Some(Span::millis(1_100)),
            ending: TrafficEnding::Cut,
            ..Stop::default()
        },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    }
}

/// The mean queueing delay of a probe in microseconds, and the utilisation of the link.
fn traded(scenario: &Scenario) -> (f64, f64) {
    let ScenarioOutcome { probes, utilisation, messages, .. } = run(scenario, &mut |_| ()).unwrap();
    let probes = probes.unwrap();
    assert!(probes.count > 990, "{probes:?}");
    assert_eq!(messages, 0, "probes are no messages");
    (probes.mean_us, utilisation)
}

#[test]
fn phantom_queues_and_pacers_trade_bandwidth_for_latency() {
    let mut dctcp = two_flows("dctcp");
    dctcp.options.ecn = Some(EcnConfig::new(30_000.into()));
    let mut unpaced = two_flows("hull");
    unpaced.options.pacer = Some(PacerOptions { enabled: Some(false), ..PacerOptions::default() });
    let mut lower = two_flows("hull");
    lower.options.phantom = Some(PhantomOptions { drain: Some(0.8), ..PhantomOptions::default() });
    let [dctcp, unpaced, hull, lower] =
        [dctcp, unpaced, two_flows("hull"), lower].map(|scenario| traded(&scenario));
    assert!(dctcp.1 > 0.98 && dctcp.0 > 100.0, "{dctcp:?}");
    assert!(hull.0 * 5.0 < dctcp.0, "{hull:?} {dctcp:?}");
    assert!((0.75..0.97).contains(&hull.1), "{hull:?}");
    assert!(lower.1 < hull.1 - 0.05, "{lower:?} {hull:?}");
    assert!(hull.0 < unpaced.0, "pacing shortens queues: {hull:?} {unpaced:?}");
}

/// One flow at 10 Gbit/s between two hosts whose processors can be the bottleneck.
fn one_fast_flow(nic: NicOptions) -> ScenarioOutcome {
    let mut scenario = two_flows("tcp-droptail");
    scenario.fabric = Fabric {
        shape: Shape::SingleSwitch { hosts: 2 },
        host_link: Bandwidth::gbps(10),
        ..Fabric::default()
    };
    scenario.traffic = Traffic::LongFlows { senders: 1, groups: Vec::new() };
    scenario.probes = None;
    scenario.slowdown = SlowdownBy::Authors;
    (scenario.warm_up, scenario.stop.time) = (Span::millis(10), Some(Span::millis(40)));
    scenario.options.nic = Some(nic);
    run(&scenario, &mut |_| ()).unwrap()
}

#[test]
fn offloads_save_processor_time_and_bunch_packets() {
    let linux = NicOptions {
        large_send: Some(65_536),
        rx_frames: Some(32),
        rx_delay: Some(Span::nanos(16_000)),
        merge: Some(65_536),
        cpu: Some(CpuOptions::default()),
        ..NicOptions::default()
    };
    let offloaded = one_fast_flow(linux);
    let uncoalesced = one_fast_flow(NicOptions { rx_frames: Some(0), ..linux });
    let unsegmented = one_fast_flow(NicOptions { large_send: None, ..linux });
    let [with, each, alone] = [&offloaded, &uncoalesced, &unsegmented]
        .map(|outcome| (outcome.utilisation, outcome.nic.unwrap()));
    assert!(with.0 > 0.97 && with.1.receiver_cpu < 0.6, "{with:?}");
    // HULL §4.1: without coalescing the flow is 1.8 Gbit/s slower, and each ACK covers more bytes.
    assert!((0.70..0.88).contains(&each.0) && each.1.receiver_cpu > 0.95, "{each:?}");
    assert!(each.1.bytes_per_ack.unwrap() > with.1.bytes_per_ack.unwrap(), "{with:?} {each:?}");
    // Without large sends it is close to 3 Gbit/s slower because the sender's processor is busy.
    assert!((0.60..0.80).contains(&alone.0) && alone.1.busiest_cpu > 0.97, "{alone:?}");
}

#[test]
fn interrupt_coalescing_makes_a_window_leave_in_bursts() {
    let mut scenario = two_flows("tcp-droptail");
    scenario.fabric.host_link = Bandwidth::gbps(10);
    scenario.traffic = Traffic::LongFlows { senders: 1, groups: Vec::new() };
    scenario.options.tcp = Some(TcpOptions { window: Some(65_536), ..TcpOptions::default() });
    scenario.options.nic = Some(NicOptions {
        large_send: Some(65_536),
        rx_delay: Some(Span::nanos(200_000)),
        ..NicOptions::default()
    });
    let nic = run(&scenario, &mut |_| ()).unwrap().nic.unwrap();
    let (bytes, period) = (nic.burst_bytes.unwrap(), nic.burst_period_us.unwrap());
    // A probe counts as a burst, too: there is one every millisecond, which lowers both means.
    assert!(bytes > 40_000.0 && period > 400.0, "{nic:?}");
}

/// Two long flows fill their level's share of a port's buffer. Probes use the higher level, so they
/// should never find it full.
#[test]
fn a_buffer_per_level_leaves_room_for_the_higher_level() {
    let mut scenario = two_flows("tcp-qos");
    scenario.fabric.buffer = Buffer::PerLevel { bytes: 15_000 };
    let qos = run(&scenario, &mut |_| ()).unwrap();
    let waits = qos.probes.unwrap();
    assert!(waits.p99_us < 40.0, "a frame of the other level at most: {waits:?}");
    assert_eq!(waits.lost, 0, "{waits:?}");
    assert!(qos.drops.overflow > 0 && qos.utilisation > 0.5, "{:?}", qos.drops);
    scenario.fabric.preemption = true;
    let refused = validate(&scenario).unwrap_err().to_string();
    assert!(refused.contains("fabric.buffer"), "{refused}");
}

#[test]
fn a_dropped_probe_counts_as_lost_not_as_slow() {
    let mut scenario = two_flows("tcp-droptail");
    // Duplicates of later probes show a loss only if all use the same connection.
    scenario.options.tcp = Some(TcpOptions { connections: Some(1), ..TcpOptions::default() });
    scenario.fabric.buffer = Buffer::PerPort { bytes: 100_000 };
    scenario.probes.as_mut().unwrap().lost_after = Some(Span::nanos(1_000_000));
    let waits = run(&scenario, &mut |_| ()).unwrap().probes.unwrap();
    // A full buffer of 100 kB delays a probe by 800 us. A retransmission takes longer, because each
    // of the three duplicate ACKs needs another probe.
    assert!(waits.lost > 0 && waits.p99_us < 900.0, "{waits:?}");
}

#[test]
fn many_to_one_load_is_a_share_of_the_receivers_link() {
    let mut scenario = two_flows("hull");
    scenario.traffic = Traffic::ManyToOne { workload: "1000:4,100000:1".to_owned(), senders: 2 };
    scenario.load = OfferedLoad::new(0.4, Basis::Payload);
    scenario.stop.ending = TrafficEnding::Drain;
    let outcome = run(&scenario, &mut |_| ()).unwrap();
    let loads = outcome.loads;
    assert!((loads.payload - 0.4).abs() < 1e-9, "{loads:?}");
    assert!((0.3..0.5).contains(&loads.realised_payload), "{loads:?}");
    assert!((0.35..0.55).contains(&outcome.utilisation), "{}", outcome.utilisation);
    assert_eq!(outcome.undelivered, 0);
}

#[test]
fn probes_that_measure_nothing_are_refused_with_their_key() {
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = two_flows("hull");
        change(&mut scenario);
        validate(&scenario).unwrap_err().to_string()
    };
    let probes = |probes: Probes| refused(&|scenario| scenario.probes = Some(probes));
    let good = two_flows("hull").probes.unwrap();
    assert!(probes(Probes { to: 3, ..good }).contains("probes.to"));
    assert!(probes(Probes { from: 4, ..good }).contains("probes.from"));
    assert!(probes(Probes { every: Span(0), ..good }).contains("probes.every"));
    assert!(probes(Probes { bytes: 0, ..good }).contains("probes.bytes"));
    let authors = refused(&|scenario| scenario.slowdown = SlowdownBy::Authors);
    assert!(authors.contains("slowdown"), "{authors}");
    let echo = refused(&|scenario| {
        scenario.traffic = Traffic::AllToAll {
            workload: "w1".to_owned(),
            exchange: Exchange::Echo,
            max_bytes: None,
        };
    });
    assert!(echo.contains("probes"), "{echo}");
    let crowd = refused(&|scenario| {
        scenario.traffic = Traffic::LongFlows { senders: 4, groups: Vec::new() }
    });
    assert!(crowd.contains("traffic.senders"), "{crowd}");
}

#[test]
fn an_empty_pacer_is_refused_where_there_is_none() {
    let mut scenario = two_flows("dctcp-30k");
    scenario.options.pacer = Some(PacerOptions::default());
    let refused = validate(&scenario).unwrap_err().to_string();
    assert!(refused.contains("options.pacer") && refused.contains("`enabled`"), "{refused}");
    scenario.options.pacer = Some(PacerOptions { enabled: Some(true), ..PacerOptions::default() });
    validate(&scenario).unwrap();
    let hull = Scenario { scheme: "hull".to_owned(), ..scenario };
    validate(&hull).unwrap();
}

/// A fixed gap of 250 us makes a receiver acknowledge in bursts; the driver's own rule gives a
/// receiver at 1 Gbit/s 50 us.
#[test]
fn interrupts_of_the_driver_shorten_the_queues_of_a_gap() {
    let mut fixed = two_flows("hull");
    fixed.options.nic = Some(NicOptions {
        large_send: Some(65_536),
        interrupt_gap: Some(Span::nanos(250_000)),
        ..NicOptions::default()
    });
    let mut driver = fixed.clone();
    driver.options.nic = Some(NicOptions {
        large_send: Some(65_536),
        interrupts: Some(InterruptsName::E1000e),
        ..NicOptions::default()
    });
    let [fixed, driver] = [fixed, driver].map(|scenario| traded(&scenario));
    assert!(driver.0 < fixed.0 && driver.1 > 0.8, "{driver:?} {fixed:?}");
}
