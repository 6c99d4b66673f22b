//! Collective operations under several schemes: their times beside the bound that links set.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    CollectiveTraffic, Fabric, Operation, RankPlacement, Scenario, ScenarioOutcome, Shape,
    SlowdownBy, Span, Traffic,
};

/// From host to host through one switch, besides the links.
const DELAYS_US: f64 = 1.75;

/// Eight hosts on one switch at 10 Gbit/s.
fn scenario(scheme: &str, operation: Operation, bytes: u64) -> Scenario {
    let (ranks, placement, window) = (None, RankPlacement::InOrder, None);
    let mut scenario = Scenario {
        scheme: scheme.to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 8 }, ..Fabric::default() },
        traffic: Traffic::Collective(CollectiveTraffic {
            operation,
            bytes,
            ranks,
            placement,
            window,
        }),
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.measures.queues = false;
    scenario.measures.priorities = false;
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", scenario.scheme))
}

/// Microseconds until the last rank was done.
fn took(scenario: &Scenario) -> f64 {
    let outcome = outcome(scenario);
    let collective = outcome.collective.unwrap();
    assert_eq!(outcome.undelivered, 0, "{}", scenario.scheme);
    assert_eq!(outcome.completion.unwrap().us, collective.us);
    collective.us.unwrap()
}

#[test]
fn a_ring_takes_its_bound_and_the_delays_of_its_steps() {
    // In each of 14 steps a rank sends 8 MB, which take 6.4 ms of its link without headers.
    let (steps, part_us) = (14.0, 6_400.0);
    // Receivers of the last two let out what fills an idle round trip, and here grants and credits
    // wait behind the data of the ring.
    let most = [
        ("homa", 1.03),
        ("ndp", 1.03),
        ("pfabric", 1.03),
        ("dctcp", 1.03),
        ("homa-paper", 1.06),
        ("sird", 1.3),
    ];
    for (scheme, most) in most {
        let outcome = outcome(&scenario(scheme, Operation::RingAllReduce, 64_000_000));
        let collective = outcome.collective.unwrap();
        assert_eq!(collective.bound_us, 89_600.0);
        // Headers, and what a host sends to the rank before it, such as grants, on the same link.
        let wire = outcome.loads.realised_wire / outcome.loads.realised_payload;
        // The last frame crosses the second link after the first.
        let one_way = DELAYS_US + 1_538.0 * 8.0 / 10_000.0;
        let expected = collective.bound_us + steps * (one_way + part_us * (wire - 1.0));
        let us = collective.us.unwrap();
        assert!((0.97..most).contains(&(us / expected)), "{scheme}: {us} us of {expected} us");
        assert_eq!(collective.over_bound, Some(us / 89_600.0));
        assert_eq!((outcome.submitted, outcome.messages), (8 * 14, 8 * 14), "{scheme}");
    }
}

#[test]
fn halves_of_an_all_reduce_take_half_of_its_time() {
    for scheme in ["homa", "dctcp", "phost", "ideal"] {
        let time = |operation| took(&scenario(scheme, operation, 800_000));
        let all = time(Operation::RingAllReduce);
        let halves = [Operation::RingReduceScatter, Operation::RingAllGather].map(&time);
        for half in halves {
            assert!((half / all - 0.5).abs() < 0.02, "{scheme}: {half} of {all} us");
        }
        // Six steps instead of 14, and as many bytes.
        let butterfly = time(Operation::ButterflyAllReduce);
        assert!(butterfly < all, "{scheme}: {butterfly} us, on a ring {all} us");
    }
}

#[test]
fn a_window_of_one_sends_one_message_after_the_other() {
    let windowed = |window| {
        let mut scenario = scenario("homa", Operation::AllToAll, 80_000);
        let Traffic::Collective(traffic) = &mut scenario.traffic else { panic!("no collective") };
        traffic.window = window;
        outcome(&scenario)
    };
    let (one, all) = (windowed(Some(1)), windowed(None));
    assert_eq!((one.submitted, all.submitted), (56, 56));
    let us = |outcome: &ScenarioOutcome| outcome.collective.unwrap().us.unwrap();
    // Each of seven messages takes 8 us of a link and its way, and its acknowledgement comes back.
    let least = 7.0 * (8.0 + 2.0 * DELAYS_US);
    assert!(us(&one) > least && us(&all) < least, "{} and {} us", us(&one), us(&all));
    assert!(us(&all) > 56.0, "70 kB take 56 us: {}", us(&all));
}

#[test]
fn a_collective_is_whole_and_ends_at_the_time_to_stop() {
    let mut scenario = scenario("homa", Operation::RingAllReduce, 80_000);
    scenario.stop.messages = Some(5);
    assert_eq!(outcome(&scenario).messages, 112);
    scenario.stop.messages = None;
    scenario.stop.time = Some(Span::nanos(30_000));
    let cut = outcome(&scenario);
    assert!(cut.submitted < 112, "nothing begins after the end of traffic");
    let completion = cut.completion.unwrap();
    assert_eq!((completion.us, cut.collective.unwrap().over_bound), (None, None));
    assert_eq!((completion.messages, completion.arrived), (112, cut.submitted));
    assert!(cut.alarms()[0].contains("did not arrive"), "{:?}", cut.alarms());
}

#[test]
fn two_runs_are_the_same_and_random_ranks_follow_the_seed() {
    let mut first = scenario("ndp", Operation::AllToAll, 80_000);
    let Traffic::Collective(traffic) = &mut first.traffic else { panic!("no collective") };
    (traffic.ranks, traffic.placement) = (Some(4), RankPlacement::Random);
    let hash = |seed| outcome(&Scenario { seed, ..first.clone() }).trace_hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn mistakes_name_their_key() {
    let refused = |operation, bytes, ranks, window| {
        let mut scenario = scenario("homa", operation, bytes);
        let Traffic::Collective(traffic) = &mut scenario.traffic else { panic!("no collective") };
        (traffic.ranks, traffic.window) = (ranks, window);
        validate(&scenario).unwrap_err().to_string()
    };
    let ring = Operation::RingAllReduce;
    let cases = [
        (refused(ring, 7, None, None), "`traffic.bytes` must be 8 to"),
        (refused(ring, 80, Some(9), None), "`traffic.ranks` must be 2 to 8"),
        (refused(ring, 80, None, Some(2)), "`traffic.window` must be absent"),
        (refused(Operation::AllToAll, 80, None, Some(8)), "`traffic.window` must be 1 to 7"),
        (refused(Operation::ButterflyAllReduce, 80, Some(6), None), "`traffic.ranks` must be a"),
    ];
    for (error, said) in cases {
        assert!(error.starts_with(said), "{error}");
    }
}
