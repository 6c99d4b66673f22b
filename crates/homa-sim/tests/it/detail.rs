//! DeTail's claims (SIGCOMM 2012) on a small fat tree, for the schemes that its evaluation
//! compares.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Routing, Scenario, ScenarioOutcome, Shape,
    SlowdownBy, Span, SwitchKind, SwitchOptions, TcpOptions, Traffic, TrafficEnding,
};
use homa_sim::scheme;

use crate::common::scenario;

/// 16 hosts at 1 Gbit/s that send messages of 8 KB. If `slow`, one of the links between aggregation
/// and core, which is one of four paths out of its pod, has a tenth of its rate.
fn fat_tree(name: &str, slow: bool) -> Scenario {
    let mut scenario = scenario(scheme::find(name).unwrap(), "8000", Exchange::OneWay);
    let impaired = Impaired {
        from: "aggr0".to_owned(),
        to: "core0".to_owned(),
        one_way: false,
        at: Span::nanos(0),
        until: None,
        rate: Some(Bandwidth(100_000_000)),
        loss_ppm: None,
    };
    scenario.fabric = Fabric {
        shape: Shape::FatTree { k: 4, oversubscription: 1 },
        host_link: Bandwidth::gbps(1),
        fabric_link: Bandwidth::gbps(1),
        impaired: if slow { vec![impaired] } else { Vec::new() },
        ..Fabric::default()
    };
    scenario.load.fraction = 0.4;
    scenario.stop.messages = Some(4_000);
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap()
}

#[test]
fn a_slow_core_link_hurts_detail_less_than_hashing() {
    let p99 = |name, slow| {
        let outcome = outcome(&fat_tree(name, slow));
        assert_eq!((outcome.messages, outcome.undelivered), (4_000, 0), "{name}");
        let lossless = scheme::find(name).unwrap().is_lossless();
        assert!(outcome.drops.overflow == 0 || !lossless, "{name}: {:?}", outcome.drops);
        outcome.slowdown.p99.unwrap()
    };
    let [slow, hashed] = ["detail", "flow-hashing"].map(|name| p99(name, true));
    let scattered = p99("lossless-packet-scatter", true);
    // DeTail §6.4 reports less than a twentieth, in a much larger network.
    assert!(slow < 0.5 * hashed && slow < 0.5 * scattered, "{slow}: {hashed} {scattered}");
}

#[test]
fn thresholds_that_cannot_be_safe_are_refused() {
    let mut small = fat_tree("detail", false);
    small.fabric.buffer = Buffer::PerPort { bytes: 20_000 };
    let refused = validate(&small).unwrap_err().to_string();
    assert!(refused.contains("options.switch") && refused.contains("priorities"), "{refused}");
    small.options.switch = Some(SwitchOptions { priorities: Some(2), ..SwitchOptions::default() });
    validate(&small).unwrap();
    let mut hashing = fat_tree("flow-hashing", false);
    hashing.options.switch = small.options.switch;
    assert!(validate(&hashing).is_err(), "switches without pauses have no thresholds");
    let mut homa = fat_tree("homa", false);
    homa.options.switch = small.options.switch;
    assert!(validate(&homa).is_err(), "nor have those without queues at inputs");
}

/// Ten hosts send to one. The links from the switch back to the ten have 1 % of the rate of the
/// other direction, so that pause frames reach the senders late.
fn slow_pauses(priorities: u8, (buffer, pause): (u64, Option<u32>)) -> Scenario {
    let mut scenario = scenario(scheme::find("detail").unwrap(), "50000", Exchange::OneWay);
    scenario.fabric = Fabric {
        shape: Shape::SingleSwitch { hosts: 11 },
        host_link: Bandwidth::gbps(10),
        buffer: Buffer::PerPort { bytes: buffer },
        impaired: (0..10)
            .map(|host| Impaired {
                from: "tor0".to_owned(),
                to: format!("h{host}"),
                one_way: true,
                at: Span::nanos(0),
                until: None,
                rate: Some(Bandwidth::mbps(100)),
                loss_ppm: None,
            })
            .collect(),
        ..Fabric::default()
    };
    scenario.traffic = Traffic::ClientsServers {
        workload: "50000".to_owned(),
        clients: 10,
        servers: 1,
        max_bytes: None,
    };
    scenario.load.fraction = 1.5;
    scenario.stop.messages = Some(2_000);
    let (priorities, unpause) = (Some(priorities), pause.map(|pause| pause / 2));
    scenario.options.switch =
        Some(SwitchOptions { priorities, pause, unpause, ..SwitchOptions::default() });
    scenario
}

#[test]
fn inputs_pause_early_enough_for_slow_reverse_links() {
    // A pause frame can wait behind a full frame at 100 Mbit/s, and 160 KB arrive in that time, for
    // each level in use. With three levels the buffer is too small for any safe threshold.
    let refused = validate(&slow_pauses(3, (400_000, None))).unwrap_err().to_string();
    assert!(refused.contains("one direction"), "{refused}");
    assert_eq!(outcome(&slow_pauses(1, (400_000, None))).drops.overflow, 0);
    // This threshold is safe only if links are equally fast in both directions.
    let mut early = slow_pauses(1, (34_000, Some(24_000)));
    assert!(outcome(&early).drops.overflow > 0);
    early.fabric.impaired.clear();
    assert_eq!(outcome(&early).drops.overflow, 0);
}

/// Five switches in a ring with a host at each. The first `hosts` of them send 2 MB to the host two
/// switches further along the ring.
fn ring(hosts: u32) -> ScenarioOutcome {
    let folder = std::env::temp_dir().join(format!("homa-ring-{}-{hosts}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ends = (0..5).map(|i| format!("h{i},s{i},1,5476\n"));
    let ring = (0..5).map(|i| format!("s{i},s{},1,5476\n", (i + 1) % 5));
    let graph = file("links.csv", ends.chain(ring).collect());
    let flows = (0..hosts).map(|i| format!("{i},{i},{},2000000,0\n", (i + 2) % 5));
    let flows = file("flows.csv", flows.collect());
    let mut scenario = fat_tree("lossless-packet-scatter", false);
    scenario.fabric =
        Fabric { shape: Shape::Graph { file: graph, format: None }, ..Fabric::default() };
    scenario.traffic = Traffic::Flows { file: flows, format: None, exchange: Exchange::OneWay };
    scenario.options.tcp = Some(TcpOptions { initial_window: Some(500), ..TcpOptions::default() });
    scenario.slowdown = SlowdownBy::Idle;
    scenario.stop.drain_limit = Span::millis(150);
    let outcome = outcome(&scenario);
    std::fs::remove_dir_all(folder).unwrap();
    outcome
}

#[test]
fn a_deadlock_is_reported_with_its_ports() {
    let locked = ring(5);
    let pauses = locked.pauses.unwrap();
    assert_eq!((pauses.deadlock.len(), locked.undelivered), (5, 5), "{pauses:?}");
    assert!(pauses.deadlock.contains(&"s0->s1".to_owned()), "{:?}", pauses.deadlock);
    let stuck = pauses.stuck.iter().find(|stuck| stuck.port == "s0->s1").unwrap();
    assert!(stuck.waits_for.contains(&"s1->s2".to_owned()), "{stuck:?}");
    assert!(stuck.since_us < 50_000.0 && pauses.longest_us > 100_000.0, "{pauses:?}");
    let open = ring(4);
    let pauses = open.pauses.unwrap();
    assert!(pauses.deadlock.is_empty() && pauses.stuck.is_empty(), "{pauses:?}");
    assert!(pauses.count > 0 && open.undelivered == 0, "{pauses:?}");
}

#[test]
fn homa_avoids_a_slow_link_with_adaptive_routing() {
    let degraded = |routing, kind| {
        let mut scenario = fat_tree("homa", true);
        let (workload, exchange) = ("8000".to_owned(), Exchange::Echo);
        scenario.traffic = Traffic::AllToAll { workload, exchange, max_bytes: None };
        scenario.fabric.routing = routing;
        scenario.options.switch = kind;
        scenario
    };
    let p99 = |scenario: &Scenario| {
        let outcome = outcome(scenario);
        assert_eq!((outcome.undelivered, outcome.drops.overflow), (0, 0));
        (outcome.slowdown.p99.unwrap(), outcome.pauses.is_some())
    };
    let lossless = SwitchOptions { kind: Some(SwitchKind::Lossless), ..SwitchOptions::default() };
    let (sprayed, _) = p99(&degraded(Some(Routing::Spray), None));
    let (adapted, paused) = p99(&degraded(Some(Routing::Adaptive), None));
    assert!(adapted < 0.5 * sprayed && !paused, "{adapted} {sprayed}");
    // DeTail's switches do better still, because pauses propagate queues of later switches back.
    let (over_detail, paused) = p99(&degraded(Some(Routing::Adaptive), Some(lossless)));
    assert!(over_detail < 0.5 * adapted && paused, "{over_detail} {adapted}");
    let mut wrong = degraded(None, Some(lossless));
    wrong.scheme = "ndp".to_owned();
    assert!(validate(&wrong).is_err(), "its switches trim");
    let mut few = degraded(Some(Routing::Adaptive), None);
    few.fabric.thresholds = Some(vec![2, 1]);
    assert!(validate(&few).unwrap_err().to_string().contains("fabric.thresholds"));
}

#[test]
fn source_ecn_shortens_host_queues() {
    let mut scenario = fat_tree("detail", false);
    scenario.traffic = Traffic::Permutation { bytes: 3_000_000 };
    scenario.slowdown = SlowdownBy::Idle;
    let took = |source_ecn| {
        let mut scenario = scenario.clone();
        scenario.options.tcp = Some(TcpOptions { source_ecn, ..TcpOptions::default() });
        let outcome = outcome(&scenario);
        assert_eq!((outcome.undelivered, outcome.drops.overflow), (0, 0));
        (outcome.simulated_seconds, outcome.pauses.unwrap().count)
    };
    let ((plain, pauses), (marked, fewer)) = (took(None), took(Some(65_536)));
    // The same bytes take about the same time and cause fewer pauses.
    assert!(marked < 1.3 * plain && fewer < pauses, "{plain} s, {marked} s; {pauses}, {fewer}");
}

#[test]
fn an_unsafe_pause_threshold_runs_with_a_warning() {
    let warned = |pause, unpause, fabric: &dyn Fn(&mut Fabric)| {
        let mut scenario = fat_tree("detail", false);
        let (pause, unpause) = (Some(pause), Some(unpause));
        let switch = SwitchOptions { pause, unpause, ..SwitchOptions::default() };
        scenario.options.switch = Some(switch);
        scenario.stop.messages = Some(100);
        fabric(&mut scenario.fabric);
        outcome(&scenario).warnings
    };
    let plain = |_: &mut Fabric| ();
    assert_eq!(warned(8_192, 4_557, &plain), [""; 0]);
    let [warning] = &warned(60_000, 4_557, &plain)[..] else { panic!("one warning") };
    assert!(warning.contains("`options.switch.pause` is 60000"), "{warning}");
    // The safe threshold is an eighth of 131,072 bytes less the bytes that arrive before the pause
    // takes effect, which are 3.2 KB on a cable of no length.
    let (_, safe) = warning.split_once("lost above ").unwrap();
    let safe: u32 = safe.split(',').next().unwrap().parse().unwrap();
    assert!((13_000..13_300).contains(&safe), "{warning}");
    assert_eq!(warned(safe, 4_557, &plain), [""; 0], "it is safe itself");
    let tight = |fabric: &mut Fabric| fabric.buffer = Buffer::PerPort { bytes: 20_000 };
    assert!(warned(2_000, 1_000, &tight)[0].contains("above any threshold"));
}

#[test]
fn unused_thresholds_and_late_pauses_are_reported() {
    let mut scenario = fat_tree("flow-hashing", false);
    scenario.stop.messages = Some(100);
    scenario.fabric.thresholds = Some(vec![1_000]);
    let [warning] = &outcome(&scenario).warnings[..] else { panic!("one warning") };
    assert!(warning.contains("`fabric.thresholds`") && warning.contains("ecmp"), "{warning}");
    scenario.scheme = "detail".to_owned();
    assert_eq!(outcome(&scenario).warnings, [""; 0]);
    // 15 hosts send to one, and the thresholds are far above the safe ones.
    let mut late = fat_tree("detail", false);
    late.slowdown = SlowdownBy::Idle;
    late.traffic = Traffic::LongFlows { senders: 15, groups: Vec::new() };
    late.stop.time = Some(Span::millis(20));
    late.stop.ending = TrafficEnding::Cut;
    assert_eq!(outcome(&late).alarms(), [""; 0]);
    late.fabric = Fabric { propagation: Span::nanos(20_000), ..late.fabric };
    late.fabric.buffer = Buffer::PerPort { bytes: 20_000 };
    let (pause, unpause) = (Some(19_000), Some(4_557));
    late.options.switch = Some(SwitchOptions { pause, unpause, ..SwitchOptions::default() });
    let told = outcome(&late).alarms();
    assert!(told[0].contains(" frames found full buffers although switches pause"), "{told:?}");
    assert!(told[1].contains("`options.switch.pause` is 19000"), "{told:?}");
    late.options.switch.as_mut().unwrap().pause = None;
    let refused = validate(&late).unwrap_err().to_string();
    assert_eq!(refused, "`options.switch.unpause` must come with `pause`");
}
