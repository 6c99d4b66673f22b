//! Switches that share memory and pause their senders (`options.switch.kind = "shared"`), under the
//! queue pairs for which they were made and under other hosts.

use homa_sim::experiment::{Observers, resolved, run, run_watched, validate};
use homa_sim::scenario::{
    Buffer, Exchange, Fabric, Scenario, ScenarioOutcome, Shape, Span, SwitchKind, SwitchOptions,
    Traffic, TrafficEnding,
};
use homa_sim::scheme::{SwitchQueue, find};

use crate::common::{equal_links, scenario, transports};

fn sharing(options: SwitchOptions) -> Option<SwitchOptions> {
    Some(SwitchOptions { kind: Some(SwitchKind::Shared), ..options })
}

/// The scheme's switches, with enough memory that nothing is paused.
fn ample() -> Option<SwitchOptions> {
    sharing(SwitchOptions { memory: Some(1 << 40), alpha: Some(1.0), ..Default::default() })
}

/// Rows whose ports may share memory.
fn rows() -> impl Iterator<Item = &'static homa_sim::scheme::Scheme> {
    transports().filter(|row| {
        !matches!(
            row.queue,
            SwitchQueue::PriorityDrop | SwitchQueue::Trimming(_) | SwitchQueue::Combined(_)
        )
    })
}

#[test]
fn switches_that_pause_nobody_are_those_of_the_scheme() {
    for row in rows() {
        let plain = scenario(row, "w3", Exchange::OneWay);
        let mut shared = plain.clone();
        shared.options.switch = ample();
        let [a, b] = [&plain, &shared].map(|scenario| run(scenario, &mut |_| ()).unwrap());
        assert_eq!(a.trace_hash, b.trace_hash, "{}", row.name);
        assert_eq!(a.slowdown, b.slowdown, "{}", row.name);
        assert_eq!((a.pauses, b.pauses.map(|pauses| pauses.count)), (None, Some(0)));
    }
}

/// 32 hosts send 200 kB each to one, over 100 Gbit/s and 1 us.
fn incast(scheme: &str) -> Scenario {
    let traffic = Traffic::ManyToOne { workload: "200000".to_owned(), senders: 32 };
    let mut scenario =
        equal_links(scheme, Shape::SingleSwitch { hosts: 33 }, (100, 1_000), traffic);
    scenario.stop.messages = Some(320);
    scenario.stop.ending = TrafficEnding::Drain;
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

#[test]
fn an_incast_is_lossless_and_pauses_dcqcn_much_more_than_hpcc() {
    let memory = 2_500_000;
    let times = ["dcqcn", "hpcc"].map(|scheme| {
        let mut scenario = incast(scheme);
        scenario.options.switch =
            sharing(SwitchOptions { memory: Some(memory), ..SwitchOptions::default() });
        let shared = outcome(&scenario);
        let pauses = shared.pauses.clone().unwrap();
        assert_eq!((shared.drops.overflow, shared.timeouts.expired), (0, 0), "{scheme}");
        assert_eq!((shared.undelivered, shared.in_flight), (0, 0), "{scheme}");
        assert!(pauses.stuck.is_empty() && pauses.deadlock.is_empty(), "{scheme}");
        let sum: f64 = pauses.ports.iter().map(|port| port.paused_us).sum();
        assert!((sum - pauses.total_us).abs() < 1e-3 * sum.max(1.0), "{scheme}");
        // The same memory without pauses.
        scenario.options.switch = None;
        scenario.fabric.buffer = Buffer::Shared { bytes: memory, alpha_percent: 100 };
        let dropping = outcome(&scenario);
        assert!(dropping.pauses.is_none());
        assert_eq!(dropping.drops.overflow > 0, scheme == "dcqcn", "{scheme}");
        pauses.total_us
    });
    assert!(times[0] > 100.0 && times[1] < 0.1 * times[0], "{times:?}");
}

#[test]
fn a_paused_network_passes_the_check_of_physics() {
    for name in ["dcqcn", "dctcp", "homa"] {
        let mut scenario = incast(name);
        scenario.fabric.shape = Shape::LeafSpine { racks: 3, hosts_per_rack: 11, spines: 2 };
        scenario.stop.messages = Some(100);
        scenario.options.switch = sharing(SwitchOptions {
            memory: Some(if name == "dcqcn" { 2_500_000 } else { 9_000_000 }),
            alpha: Some(0.01),
            ..SwitchOptions::default()
        });
        let observers = Observers { verify: true, ..Observers::default() };
        let (outcome, physics) = run_watched(&scenario, observers, &mut |_| ()).unwrap();
        let pauses = outcome.pauses.unwrap();
        assert!(pauses.count > 10, "{name}: {pauses:?}");
        assert_eq!(outcome.drops.overflow, 0, "{name}");
        physics.unwrap().unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
    }
}

/// The error of `incast` with this change.
fn refused(scheme: &str, change: impl Fn(&mut Scenario)) -> String {
    let mut scenario = incast(scheme);
    scenario.options.switch = sharing(SwitchOptions::default());
    validate(&scenario).unwrap_or_else(|error| panic!("without the change: {error}"));
    change(&mut scenario);
    validate(&scenario).expect_err("it is refused").to_string()
}

#[test]
fn what_does_not_fit_is_refused_with_its_key() {
    let switch = |change: fn(&mut SwitchOptions)| {
        move |scenario: &mut Scenario| change(scenario.options.switch.as_mut().unwrap())
    };
    let said = refused("hpcc", switch(|switch| switch.memory = Some(100_000)));
    assert!(said.starts_with("`options.switch.memory` must be more than 1"), "{said}");
    let said = refused("hpcc", switch(|switch| switch.alpha = Some(0.0)));
    assert!(said.contains("`options.switch.alpha`"), "{said}");
    let said = refused("hpcc", switch(|switch| switch.pause = Some(10_000)));
    assert!(said.contains("`options.switch.pause`: only switches that queue"), "{said}");
    let said = refused("hpcc", switch(|switch| switch.kind = None));
    assert!(said.contains("`options.switch`"), "{said}");
    let said = refused(
        "homa",
        switch(|switch| {
            (switch.kind, switch.headroom) = (Some(SwitchKind::Lossless), Some(10_000));
        }),
    );
    assert!(said.contains("`options.switch.headroom`: only switches of the `kind`"), "{said}");
    let said = refused("hpcc", |s| s.fabric.buffer = Buffer::PerPort { bytes: 100_000 });
    assert!(said.contains("`fabric.buffer`") && said.contains("options.switch.memory"), "{said}");
    let said = refused("hpcc", |s| s.fabric.cut_through = true);
    assert!(said.contains("cut-through"), "{said}");
    let said = refused("homa", |s| s.fabric.preemption = true);
    assert!(said.contains("preemption"), "{said}");
    let said = refused("hpcc", |scenario| {
        scenario.fabric.shape = Shape::LeafSpine { racks: 3, hosts_per_rack: 11, spines: 2 };
        scenario.partitions = 2;
    });
    assert!(said.contains("`partitions`") && said.contains("options.switch.kind"), "{said}");
    for scheme in ["pfabric", "ndp", "detail"] {
        let mut scenario = scenario(find(scheme).unwrap(), "w3", Exchange::OneWay);
        scenario.options.switch = sharing(SwitchOptions::default());
        let said = validate(&scenario).unwrap_err().to_string();
        assert!(said.contains("`options.switch.kind`: only"), "{said}");
    }
}

#[test]
fn a_headroom_below_the_safe_one_is_a_warning() {
    let headroom = |headroom, response| {
        let mut scenario = incast("dcqcn");
        scenario.stop.messages = Some(1);
        scenario.options.switch =
            sharing(SwitchOptions { headroom: Some(headroom), response, ..Default::default() });
        outcome(&scenario).warnings
    };
    // 100 Gbit/s, 1 us there and back, three frames of 1538 bytes and one of 64; the time that
    // IEEE 802.3 allows is 25,216 bytes more.
    let at_once = Some(Span::nanos(0));
    assert_eq!(headroom(25_000 + 3 * 1_538 + 64, at_once), [""; 0]);
    let said = headroom(25_000 + 3 * 1_538 + 63, at_once);
    assert!(said.len() == 1 && said[0].contains("may be lost below 29678"), "{said:?}");
    let said = headroom(29_678, None);
    assert!(said.len() == 1 && said[0].contains("may be lost below 54894"), "{said:?}");
}

#[test]
fn its_options_are_written_out_and_mean_the_same() {
    let mut plain = incast("dcqcn");
    plain.stop.messages = Some(64);
    plain.options.switch = sharing(SwitchOptions { alpha: Some(0.001), ..Default::default() });
    let mut all = resolved(&plain).unwrap();
    let written = Scenario { options: all.swap_remove(0).1, ..plain.clone() };
    let switch = written.options.switch.unwrap();
    // 16 MiB at 50 Gbit/s.
    assert_eq!((switch.memory, switch.reserve), (Some(32 << 20), Some(4_096)));
    assert_eq!((switch.resume_gap, switch.priorities), (Some(3_072), Some(1)));
    let [a, b] = [&plain, &written].map(outcome);
    assert_eq!((a.trace_hash, a.options), (b.trace_hash, b.options));
    assert!(a.pauses.unwrap().count > 0);
}

#[test]
fn hosts_of_any_row_obey_pauses() {
    for row in rows() {
        let mut scenario = scenario(row, "w3", Exchange::OneWay);
        scenario.fabric = Fabric { routing: None, ..scenario.fabric };
        scenario.options.switch = sharing(SwitchOptions {
            memory: Some(1 << 24),
            alpha: Some(0.0001),
            reserve: Some(1_000),
            ..Default::default()
        });
        let outcome = outcome(&scenario);
        assert!(outcome.pauses.unwrap().count > 0, "{}", row.name);
        assert_eq!((outcome.undelivered, outcome.in_flight), (0, 0), "{}", row.name);
        assert!(outcome.drops.overflow == 0, "{}", row.name);
    }
}
