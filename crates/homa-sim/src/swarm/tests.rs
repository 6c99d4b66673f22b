//! The swarm's own claims; long runs are `homa swarm`'s business.

use super::*;

#[test]
fn a_hundred_scenarios_keep_every_promise() {
    let report = swarm(100, 1, |_| {});
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|failure| format!("{}: {}", failure.replay(), failure.violations[0]))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(report.answered > report.calls / 2, "{} of {}", report.answered, report.calls);
}

#[test]
fn a_seed_is_a_run() {
    let traces = |seed| run(&Scenario::draw(seed), ()).trace_hash;
    for seed in 1..20 {
        assert_eq!(traces(seed), traces(seed));
        assert_ne!(traces(seed), traces(seed + 1));
    }
}
