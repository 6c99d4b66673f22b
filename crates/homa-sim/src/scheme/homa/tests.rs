//! Tests of splits, cutoffs and options.

use super::*;
use homa_proto::Rate;
use homa_workload::sizes::Workload;

fn stack(workload: &str, options: &SchemeOptions) -> Result<HomaConfig, ScenarioError> {
    let sizes = Workload::parse(workload).unwrap().sizes().unwrap();
    let link = Rate::gbps(10);
    let environment =
        Environment { link, rtt_bytes: PAPER_RTT_BYTES, byte_picos: 0, workload, sizes: &sizes };
    HomaConfig::new(simulator, &environment, options)
}

fn cutoffs(workload: &str, options: &SchemeOptions) -> [u32; 8] {
    let stack = stack(workload, options).unwrap();
    let PriorityAllocation::Fixed { cutoffs } = stack.config.priorities else { panic!() };
    cutoffs
}

#[test]
fn the_authors_splits_and_cutoffs() {
    let none = SchemeOptions::default();
    assert_eq!(cutoffs("w1", &none)[2..], [1275, 764, 468, 273, 125, 11]);
    assert_eq!(cutoffs("w2", &none)[..3], [0; 3]);
    assert_eq!(cutoffs("w2", &none)[4..], [1463, 512, 366, 269]);
    assert_eq!(cutoffs("w3", &none)[5..], [6756, 2339, 433]);
    assert_eq!(cutoffs("w4", &none)[..7], [0; 7]);
    let stack = stack("w4", &none).unwrap();
    assert_eq!(stack.config.unscheduled, UnscheduledLimit::Fixed(9328));
}

/// Levels for scheduled packets on the authors' network with links that are ten times as fast. A
/// round trip takes 4.82 us, in which a host sends 60 kB at 100 Gbit/s.
fn scheduled_at_100g(workload: &str, options: &SchemeOptions) -> usize {
    let sizes = Workload::parse(workload).unwrap().sizes().unwrap();
    let environment = Environment {
        link: Rate::gbps(100),
        rtt_bytes: 60_300,
        byte_picos: 0,
        workload,
        sizes: &sizes,
    };
    HomaConfig::new(simulator, &environment, options).unwrap().degree().unwrap()
}

#[test]
fn faster_links_leave_fewer_bytes_and_levels_to_grants() {
    let none = SchemeOptions::default();
    // The first 60 kB of messages hold 87 % of all bytes for W2, 48 % for W3.
    assert_eq!(["w1", "w2", "w3", "w5"].map(|w| scheduled_at_100g(w, &none)), [1, 1, 4, 7]);
    // A message of 30 kB is unscheduled as a whole; at 10 Gbit/s two thirds of it are scheduled.
    assert_eq!(scheduled_at_100g("30000", &none), 1);
    assert_eq!(stack("30000", &none).unwrap().degree(), Some(5));
    let less = SchemeOptions { unscheduled_bytes: Some(15_000), levels: Some(8), ..none };
    assert_eq!(scheduled_at_100g("30000", &less), 4);
}

#[test]
fn a_split_in_the_options_moves_the_cutoffs() {
    let two = SchemeOptions { scheduled_levels: Some(2), ..SchemeOptions::default() };
    let w2 = cutoffs("w2", &two);
    assert_eq!(w2[..2], [0; 2]);
    assert!(w2[3..].iter().all(|&cutoff| (100..2000).contains(&cutoff)), "{w2:?}");
    // Homa Figure 13 has two levels, one of them scheduled.
    let few = SchemeOptions { levels: Some(2), scheduled_levels: Some(1), ..two.clone() };
    assert_eq!(cutoffs("w4", &few)[2..], [0; 6]);
    let given = SchemeOptions { scheduled_levels: None, cutoffs: Some(vec![100, 200]), ..two };
    assert_eq!(cutoffs("w3", &given)[6..], [200, 100]);
}

#[test]
fn splits_that_leave_nothing_unscheduled_are_refused() {
    for (levels, scheduled) in [(2, 2), (9, 1), (0, 0), (2, 3)] {
        let options = SchemeOptions {
            levels: Some(levels),
            scheduled_levels: Some(scheduled),
            ..SchemeOptions::default()
        };
        assert!(stack("w4", &options).is_err(), "{levels} {scheduled}");
    }
}

#[test]
fn a_weight_without_computed_cutoffs_is_refused() {
    let weighted = SchemeOptions { cutoff_weight: Some(2.0), ..SchemeOptions::default() };
    assert_ne!(cutoffs("w3", &weighted), cutoffs("w3", &SchemeOptions::default()));
    let given = SchemeOptions { cutoffs: Some(vec![100, 200]), ..weighted.clone() };
    let split = SchemeOptions { scheduled_levels: Some(4), ..weighted.clone() };
    let sizes = Workload::W3.sizes().unwrap();
    let rtt_bytes = PAPER_RTT_BYTES;
    let environment = Environment {
        link: Rate::gbps(10),
        rtt_bytes,
        byte_picos: 0,
        workload: "w3",
        sizes: &sizes,
    };
    let refused = |build, options| match HomaConfig::new(build, &environment, options) {
        Err(error) => error.to_string().contains("options.cutoff_weight"),
        Ok(_) => false,
    };
    assert!(refused(simulator, &given));
    for measuring in [default as Build, paper, merged::<2>] {
        assert!(refused(measuring, &weighted) && refused(measuring, &given));
        assert!(HomaConfig::new(measuring, &environment, &split).is_ok());
    }
}

#[test]
fn a_resend_timer_is_as_asked_and_at_least_1_ms() {
    let options =
        |ms| SchemeOptions { resend_after: Some(Span::millis(ms)), ..SchemeOptions::default() };
    let sizes = Workload::W3.sizes().unwrap();
    let rtt_bytes = PAPER_RTT_BYTES;
    let environment = Environment {
        link: Rate::gbps(10),
        rtt_bytes,
        byte_picos: 0,
        workload: "w3",
        sizes: &sizes,
    };
    let refused =
        |build, ms| HomaConfig::new(build, &environment, &options(ms)).unwrap_err().to_string();
    for build in [default as Build, paper, basic] {
        let stack = HomaConfig::new(build, &environment, &options(6)).unwrap();
        assert_eq!(stack.config.loss.resend_after, Duration::millis(6));
        assert!(refused(build, 0).contains("at least 1 ms"), "{}", refused(build, 0));
    }
}
