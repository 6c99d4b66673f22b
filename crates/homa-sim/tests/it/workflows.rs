//! Workflows as traffic, as a user sees them, under every kind of transport.

use homa_sim::experiment::{run, validate};
use homa_sim::scenario::{
    Bandwidth, Burst, Fabric, Groups, Scenario, ScenarioOutcome, Shape, SlowdownBy, Span, Traffic,
    TrafficEnding, WorkflowClass, WorkflowTraffic,
};

fn class(response_bytes: u32, per_second: f64) -> WorkflowClass {
    WorkflowClass {
        response_bytes: vec![response_bytes],
        steps: 1,
        fan_out: vec![1],
        per_second: Some(per_second),
        burst: None,
        concurrent: None,
        level: None,
    }
}

/// 16 hosts of a fat tree for 20 ms.
fn scenario(scheme: &str, classes: &[(&str, WorkflowClass)]) -> Scenario {
    let classes = classes.iter().map(|(name, class)| ((*name).to_owned(), class.clone()));
    let traffic = WorkflowTraffic {
        clients: None,
        alternate: true,
        alternate_block: None,
        request_bytes: 10,
        classes: classes.collect(),
    };
    let mut scenario = Scenario {
        scheme: scheme.to_owned(),
        traffic: Traffic::Workflows(traffic),
        fabric: Fabric { shape: Shape::FatTree { k: 4, oversubscription: 1 }, ..Fabric::default() },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.stop.messages = Some(u64::MAX);
    scenario.stop.time = Some(Span::millis(20));
    scenario
}

fn outcome(scenario: &Scenario) -> ScenarioOutcome {
    run(scenario, &mut |_| ()).unwrap()
}

#[test]
fn steps_add_up_and_fan_outs_wait_for_the_last_response() {
    let sequence = WorkflowClass { steps: 10, ..class(2_000, 500.0) };
    let page = WorkflowClass { fan_out: vec![2, 8], ..class(2_000, 500.0) };
    for scheme in ["homa", "homa-paper", "tcp", "dctcp", "pfabric", "phost", "ndp", "detail"] {
        let classes = [("page", page.clone()), ("sequence", sequence.clone())];
        let outcome = outcome(&scenario(scheme, &classes));
        let [all, two, eight, sequence] = &outcome.workflows[..] else {
            panic!("{scheme}: {:?}", outcome.workflows)
        };
        let names = [all, two, eight, sequence].map(|of| (of.name.as_str(), of.fan_out));
        let expected = [("page", None), ("page", Some(2)), ("page", Some(8)), ("sequence", None)];
        assert_eq!(names, expected, "{scheme}");
        for of in &outcome.workflows {
            assert_eq!((of.failed, of.unfinished), (0, 0), "{scheme}: {of:?}");
            // 8 clients begin 500 a second for 20 ms, which makes 80; each fan-out has half of
            // them.
            assert!((15..120).contains(&of.count), "{scheme}: {of:?}");
        }
        assert_eq!(all.count, two.count + eight.count, "{scheme}");
        // Ten steps should take more than five times as long as a single request.
        let single = outcome.slowdown.buckets[0].p50_us.unwrap();
        let means = [sequence, eight, two].map(|of| of.mean_us.unwrap());
        assert!(means[0] > 5.0 * single, "{scheme}: {means:?} {single}");
        assert!(means[1] > means[2], "{scheme}: {means:?}");
        // Responses that arrive after traffic has ended are not counted, but their workflows are.
        let retrievals = 10 * sequence.count + 2 * two.count + 8 * eight.count;
        assert!(outcome.messages <= retrievals && 10 * outcome.messages > 7 * retrievals);
        assert_eq!(outcome.submitted, retrievals, "{scheme}: nothing begins after the end");
    }
}

#[test]
fn the_level_that_the_application_chooses_takes_effect() {
    let background = WorkflowClass {
        concurrent: Some(2),
        per_second: None,
        level: Some(0),
        ..class(1_000_000, 0.0)
    };
    let p99 = |level| {
        let class = WorkflowClass { level: Some(level), ..class(8_000, 1_000.0) };
        let mut scenario =
            scenario("detail", &[("background", background.clone()), ("short", class)]);
        let gigabit = Bandwidth::gbps(1);
        scenario.fabric = Fabric { host_link: gigabit, fabric_link: gigabit, ..scenario.fabric };
        scenario.measures.groups = Some(Groups { up_to: vec![8_000], percentiles: vec![99.0] });
        let outcome = outcome(&scenario);
        assert_eq!(outcome.drops.overflow, 0);
        let short = outcome.groups.iter().find(|group| group.class == 1).unwrap();
        short.percentiles[0].us
    };
    let (high, low) = (p99(7), p99(0));
    assert!(high < 0.3 * low, "{high} us at level 7, {low} us at that of the background");
}

#[test]
fn bursts_follow_the_plan_and_mistakes_name_their_class() {
    let burst = Burst { every: Span::millis(10), length: Span::millis(1), per_second: 20_000.0 };
    let bursty = WorkflowClass { burst: Some(burst), ..class(1_000, 100.0) };
    let count = outcome(&scenario("homa", &[("a", bursty.clone())])).workflows[0].count;
    // 8 clients, two bursts of 1 ms at 20,000 a second, and 9 ms after each at 100 a second.
    assert!((270..400).contains(&count), "{count}");
    let refused = |class: WorkflowClass, words: &str| {
        let error = validate(&scenario("homa", &[("odd", class)])).unwrap_err().to_string();
        assert!(error.contains("traffic.classes") && error.contains("`odd`"), "{error}");
        assert!(error.contains(words), "{error}");
    };
    refused(WorkflowClass { concurrent: Some(1), ..bursty.clone() }, "concurrent");
    refused(WorkflowClass { per_second: None, burst: None, ..bursty.clone() }, "per_second");
    refused(WorkflowClass { level: Some(8), ..bursty.clone() }, "level");
    refused(WorkflowClass { fan_out: vec![], ..bursty.clone() }, "fan_out");
    let without = serde_json::from_str(r#"{"per_second": 1}"#).unwrap();
    refused(without, "response_bytes");
    let unnamed = validate(&scenario("homa", &[("", bursty.clone())])).unwrap_err();
    assert!(unnamed.to_string().contains("traffic.classes"), "{unnamed}");
    let burst = Some(Burst { length: Span::millis(11), ..burst });
    refused(WorkflowClass { burst, ..bursty }, "length");
    let one_way = validate(&scenario("homa-sim", &[("a", class(1, 1.0))])).unwrap_err();
    assert!(one_way.to_string().contains("one-way"), "{one_way}");
}

#[test]
fn a_cut_run_counts_unfinished_workflows_by_fan_out() {
    // 8 MB take 6.4 ms of a host's link, so most pages that begin within 20 ms are unfinished.
    let page = WorkflowClass { fan_out: vec![2, 8], ..class(1_000_000, 500.0) };
    let never = class(100_000_000, 100.0);
    let mut scenario = scenario("homa", &[("never", never), ("page", page)]);
    scenario.stop.ending = TrafficEnding::Cut;
    let outcome = outcome(&scenario);
    let [never, all, two, eight] = &outcome.workflows[..] else {
        panic!("{:?}", outcome.workflows)
    };
    assert!(two.unfinished > 0 && eight.unfinished > 0, "{two:?} {eight:?}");
    assert_eq!(all.unfinished, two.unfinished + eight.unfinished);
    assert!(never.count == 0 && never.unfinished > 0, "{never:?}");
    assert_eq!((never.mean_us, never.max_us), (None, None));
}

#[test]
fn a_block_without_hosts_on_both_sides_is_refused() {
    let mut scenario = scenario("homa", &[("page", class(2_000, 500.0))]);
    let Traffic::Workflows(traffic) = &mut scenario.traffic else { panic!("no workflows") };
    traffic.alternate_block = Some(16);
    let refused = validate(&scenario).unwrap_err().to_string();
    assert!(refused.contains("traffic.alternate_block"), "{refused}");
}
