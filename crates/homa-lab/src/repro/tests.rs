//! Every plan of the repository is well-formed; a tiny one runs from end to end.

use std::collections::BTreeSet;

use super::*;
use crate::report::Choice;
use crate::repro::metric::Metric;

#[test]
fn every_plan_parses_and_its_values_are_well_formed() {
    let plans = plans().unwrap_or_else(|fault| panic!("{fault}"));
    let mut ids: Vec<&str> = plans.iter().map(|plan| plan.id.as_str()).collect();
    for plan in &plans {
        assert!(!plan.checks.is_empty() && !plan.source.is_empty(), "{}", plan.id);
        for check in &plan.checks {
            for point in &check.points {
                let row = format!("{} {}", check.row, point.metric);
                if let Some(published) = point.published {
                    // Zero if the paper reports none: lost frames, timeouts.
                    assert!(published.is_finite() && published >= 0.0, "{row}");
                }
                assert!(point.published.is_some() || point.tolerance.is_none(), "{row}");
                if let (Some(published), Some(tolerance)) = (point.published, point.tolerance) {
                    let (low, high) = tolerance.limits(published);
                    assert!(low <= published && published <= high, "{row}: {tolerance}");
                }
            }
        }
        let names = numbers::names(plan);
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{}: numbers of one name", plan.id);
        for curve in plan.figures.iter().flat_map(|figure| &figure.published) {
            let ascending = curve.points.windows(2).all(|pair| pair[0][0] <= pair[1][0]);
            assert!(ascending && curve.points.iter().flatten().all(|v| v.is_finite()));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), plans.len(), "two plans of one id");
}

/// The default scheme is for users; plans that follow a paper name theirs.
#[test]
fn every_plan_of_the_repository_names_its_schemes() {
    for (file, text) in PLANS {
        let plan: toml::Table = text.parse().unwrap();
        assert!(plan.contains_key("variants") || plan.contains_key("variant"), "{file}");
    }
}

#[test]
fn figures_that_read_the_same_simulations_share_them() {
    let plans = select(&["homa-fig10", "homa-fig11", "homa-table1"].map(String::from)).unwrap();
    let keys = |plan: &ReproPlan| -> Vec<String> {
        plan.expand(false).unwrap().iter().map(|planned| planned.cell.key("p")).collect()
    };
    let fig10 = keys(&plans[0]);
    for plan in &plans[1..] {
        assert!(keys(plan).iter().all(|key| fig10.contains(key)), "{}", plan.id);
    }
}

#[test]
fn compared_alone_keeps_every_number_that_is_judged() {
    for plan in plans().unwrap() {
        let schemes = |plan: &ReproPlan| -> Vec<(usize, String)> {
            let planned = plan.expand(false).unwrap();
            planned.into_iter().map(|planned| (planned.run, planned.variant)).collect()
        };
        let mut kept = plan.clone();
        kept.keep_compared();
        let (all, kept) = (schemes(&plan), schemes(&kept));
        assert!(kept.len() <= all.len(), "{}", plan.id);
        for check in &plan.checks {
            let first = plan.variants.first();
            let own = check.run.iter().map(|run| (run, check.variant.as_ref().or(first)));
            let sides =
                check.sides().iter().map(|side| (&side.run, side.variant.as_ref().or(first)));
            for (run, variant) in own.chain(sides) {
                let Some((place, _)) = plan.run(run) else { continue };
                let read = (place, variant.unwrap().clone());
                assert!(kept.contains(&read) || !all.contains(&read), "{}: {read:?}", check.row);
            }
        }
    }
}

#[test]
fn ids_are_the_first_two_parts_of_a_row() {
    let ids = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        select(&ids).map(|plans| plans.iter().map(|plan| plan.id.clone()).collect::<Vec<_>>())
    };
    assert_eq!(ids(&["homa-fig10-w2-homa"]).unwrap(), ["homa-fig10"]);
    assert_eq!(ids(&["homa-fig8-hol"]).unwrap(), ["homa-fig8"]);
    assert_eq!(ids(&["x15", "homa-fig4"]).unwrap(), ["homa-fig4", "x15"]);
    assert_eq!(ids(&[]).unwrap().len(), PLANS.len());
    let said = |id: &str| ids(&[id]).unwrap_err().to_string();
    assert_eq!(said("homa-fg10-w2"), "unknown figure `homa-fg10`; did you mean `homa-fig10`?");
    let far = said("quic-fig1");
    assert!(far.contains("unknown figure `quic-fig1`; allowed: ") && far.contains("homa-fig10"));
}

#[test]
fn a_longer_id_keeps_its_rows_and_what_they_read() {
    let selected = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        select(&ids).unwrap().remove(0)
    };
    let names = |plan: &ReproPlan| -> Vec<String> {
        plan.runs.iter().map(|run| run.name.clone()).collect()
    };
    let one = selected(&["homa-fig10-w4-homa"]);
    assert_eq!(names(&one), ["w4"], "not the row at 50 %, whose name begins with this one's");
    assert_eq!(one.figures.len(), 2, "p99 and median");
    let of_w4 = names(&selected(&["homa-fig10-w4"]));
    assert!(of_w4.len() == 5 && of_w4.iter().all(|name| name.starts_with("w4")), "{of_w4:?}");
    let over = selected(&["homa-fig8-w5-basic"]);
    assert_eq!(names(&over), ["w5-homa", "w5-basic"], "a ratio needs what it divides by");
    let whole = selected(&["homa-fig8"]);
    assert_eq!(selected(&["homa-fig8-largest"]).runs.len(), whole.runs.len());
    assert_eq!(selected(&["homa-fig8", "homa-fig8-14us"]).runs.len(), whole.runs.len());
}

fn fault(text: &str) -> String {
    ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_err().to_string()
}

#[test]
fn mistakes_in_a_reproduction_name_line_key_and_allowed_values() {
    let head = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n";
    let run = "[[run]]\nname = \"w2\"\n";
    let check = |rest: &str| format!("{head}{run}[[check]]\nrow = \"a-b-c\"\n{rest}\n");
    let metric = fault(&check("run = \"w2\"\n[check.points]\n\"p98@5\" = []"));
    assert!(metric.starts_with("r.toml:10: `check.0.points.p98@5`"), "{metric}");
    assert!(metric.contains("allowed: `p99@50`"), "{metric}");
    let tolerance = fault(&check("run = \"w2\"\npoints = { p99 = [1, \"big\"] }"));
    assert!(tolerance.contains("r.toml:9") && tolerance.contains("`10%`"), "{tolerance}");
    let unknown = fault(&check("run = \"w9\""));
    assert!(unknown.contains("r.toml:8") && unknown.contains("unknown run `w9`; allowed: w2"));
    let scheme = fault(&format!("{head}variants = [\"pigeon\"]\n"));
    assert!(scheme.contains("r.toml:4") && scheme.contains("homa-sim"), "{scheme}");
    let set = fault(&format!("{head}[[run]]\nname = \"w2\"\nset = {{ \"load.fracton\" = 1 }}\n"));
    assert!(set.contains("r.toml:4") && set.contains("`fraction`"), "{set}");
    let key = fault(&format!("{head}{run}sett = {{}}\n"));
    assert!(key.starts_with("r.toml:6: `run.0.sett`: unknown key"), "{key}");
}

#[test]
fn figures_read_what_their_kind_can_draw() {
    let head = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n[[figure]]\ntitle = \"t\"\n";
    let text = |kind: &str, rest: &str| format!("{head}kind = \"{kind}\"\n{rest}\n");
    let metric = fault(&text("slowdown", "metric = \"wasted\""));
    assert!(metric.starts_with("r.toml:7: `figure.0.metric`: `wasted`"), "{metric}");
    assert!(metric.contains("allowed: `p99`, `p50`"), "{metric}");
    for (kind, metric) in [("slowdown", "p50"), ("curve", "p99"), ("bars", "p99")] {
        let rest = format!("metric = \"{metric}\"\nby_receiver = true");
        let refused = fault(&text(kind, &rest));
        assert!(refused.starts_with("r.toml:8: `figure.0.by_receiver`"), "{refused}");
        assert!(refused.contains("kind `slowdown` and metric `p99`"), "{refused}");
    }
    let refused = fault(&text("bars", "metric = \"p99\"\nx_metric = \"utilisation\""));
    assert!(refused.starts_with("r.toml:8: `figure.0.x_metric`"), "{refused}");
    let by_receiver = "by_receiver = true";
    for rest in [by_receiver, &format!("metric = \"p99\"\n{by_receiver}"), "metric = \"p50\""] {
        let document = Document::new("r.toml", text("slowdown", rest));
        assert!(ReproPlan::parse(&document, &[]).is_ok(), "{rest}");
    }
}

#[test]
fn bars_without_a_point_are_refused() {
    let text = |metric: &str| {
        format!(
            "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n[[run]]\nname = \"r\"\n[[check]]\n\
             row = \"a-b-c\"\nrun = \"r\"\nreport = [\"p99@1\"]\n[[figure]]\n\
             kind = \"bars\"\ntitle = \"t\"\nrows = [\"a-b-c\"]\nmetric = \"{metric}\"\n"
        )
    };
    let empty = fault(&text("p99@5"));
    assert!(empty.starts_with("r.toml:14: `figure.0.metric`: no point"), "{empty}");
    assert!(empty.contains("allowed: `p99@1`"), "{empty}");
    assert!(ReproPlan::parse(&Document::new("r.toml", text("p99@1")), &[]).is_ok());
    let rows = fault(
        "id = \"a\"\ntitle = \"t\"\nsource = \"s\"\n[[figure]]\nkind = \"bars\"\n\
                      title = \"t\"\nrows = []\n",
    );
    assert!(rows.starts_with("r.toml:7: `figure.0.rows`"), "{rows}");
}

#[test]
fn computed_rows_are_judged_without_a_simulation() {
    let root = std::env::temp_dir().join(format!("homa-computed-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let plans = select(&["x15".to_owned()]).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    let done =
        run(&plans, &How { quick: true, ..How::default() }, &store, &options, &mut |_| {}).unwrap();
    let check = &done[0].checks[0];
    assert_eq!(check.metric, "x15 computed.frame_us");
    assert_eq!((check.pass, check.published), (Some(true), Some(1.2304)));
    assert!(!done[0].failed());
    std::fs::remove_dir_all(&root).unwrap();
}

/// 60 % of the links is sustained and 130 % is not, so the limit may be anywhere between, in all
/// bytes or in those of applications. If even the first load diverges, the limit is below it; a run
/// that is too short decides nothing.
#[test]
fn a_limit_lies_between_the_loads_that_were_tried() {
    let done = |name: &str, values: &str, messages: u32, published: u32| {
        let text = format!(
            "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\nvariants = [\"homa-sim\"]\n\
             [scenario]\nfabric = {{ shape = {{ kind = \"single-switch\", hosts = 6 }} }}\n\
             traffic = {{ pattern = \"all-to-all\", workload = \"1000\" }}\n\
             stop = {{ messages = {messages} }}\n\
             [[run]]\nname = \"r\"\n[run.axis]\nkey = \"load.fraction\"\nvalues = {values}\n\
             [[check]]\nrow = \"a-b-c\"\nrun = \"r\"\n\
             points = {{ max_utilisation = [{published}, \"3\"], \
             max_goodput = [{published}, \"3\"] }}\n\
             [[figure]]\nkind = \"curve\"\ntitle = \"t\"\nmetric = \"goodput\"\n\
             x_metric = \"utilisation\"\nruns = [\"r\"]\n"
        );
        let plan = ReproPlan::parse(&Document::new("r.toml", text), &[]);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let root = std::env::temp_dir().join(format!("homa-limit-{name}-{}", std::process::id()));
        let store = Store::create(&root).unwrap();
        let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
        let done = run(&[plan], &How::default(), &store, &options, &mut |_| {}).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        done
    };
    let between = done("between", "[0.6, 1.3]", 45_000, 61);
    for check in &between[0].checks {
        let (measured, [low, high]) = (check.measured.unwrap(), check.interval);
        assert_eq!(low, Some(measured), "{}", check.metric);
        assert!(high.unwrap() > 2.0 * measured, "{}: up to {high:?}", check.metric);
        assert_eq!(check.pass, None, "{}: {measured} decides nothing", check.metric);
    }
    // Drawn over the carried load, which is never more than a link has.
    let points = &between[0].charts[0].series[0].points;
    let drawn: Vec<f64> = points.iter().map(|point| point.x).collect();
    assert_eq!(Some(drawn[0]), between[0].checks[0].measured);
    assert!(drawn[1] > 80.0 && drawn[1] <= 100.0, "{drawn:?}");

    let below = &done("below", "[1.2, 1.3]", 45_000, 130)[0].checks;
    assert_eq!((below[0].interval[0], below[0].pass), (None, Some(false)), "{:?}", below[0]);
    let short = &done("short", "[0.6, 1.3]", 2_000, 61)[0].checks;
    assert_eq!((short[0].measured, short[0].pass), (None, None), "{:?}", short[0]);
}

/// Two hundred responses wait for less than the RESEND timer, three hundred for longer: the knee
/// lies between, and a fourth value that fails changes nothing.
#[test]
fn a_knee_is_the_last_value_that_fills_the_link() {
    let plan = |tolerance: &str| {
        let text = format!(
            "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\nvariants = [\"homa-paper\"]\n\
             [scenario]\nslowdown = \"idle\"\n\
             fabric = {{ shape = {{ kind = \"single-switch\", hosts = 16 }} }}\n\
             options = {{ incast_control = false }}\n\
             stop = {{ messages = 4_000, ending = \"cut\" }}\n\
             [scenario.traffic]\npattern = \"incast\"\nservers = 15\nconcurrent = 1\n\
             response_bytes = 10_000\n[[run]]\nname = \"r\"\n[run.axis]\n\
             key = \"traffic.concurrent\"\nvalues = [100, 200, 300, 400]\n[[check]]\n\
             row = \"a-b-c\"\nrun = \"r\"\n\
             points = {{ \"max_concurrent@9\" = [300, \"{tolerance}\"] }}\n"
        );
        ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_or_else(|e| panic!("{e}"))
    };
    let root = std::env::temp_dir().join(format!("homa-knee-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    for (tolerance, pass) in [("250..400", None), ("310..400", Some(false)), ("x2", Some(true))] {
        let done = run(&[plan(tolerance)], &How::default(), &store, &options, &mut |_| {}).unwrap();
        let check = &done[0].checks[0];
        assert_eq!((check.measured, check.interval), (Some(200.0), [Some(200.0), Some(300.0)]));
        assert_eq!(check.pass, pass, "{tolerance}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn undecided_fails_only_at_full_size() {
    let check = Check {
        metric: "m".into(),
        label: "m".into(),
        row: "r".into(),
        class: plan::Class::A,
        published: Some(1.0),
        measured: Some(1.0),
        interval: [None; 2],
        tolerance: "10%".parse().ok(),
        pass: None,
        missing: None,
        aside: None,
        undecidable: None,
        cause: None,
        ordering: false,
        others: Vec::new(),
    };
    let reproduction = |quick, check: &Check| Reproduction {
        id: "a-b".into(),
        family: "a".into(),
        cpu_seconds: 0.0,
        budget_seconds: None,
        title: String::new(),
        source: String::new(),
        notes: Vec::new(),
        variants: Vec::new(),
        refused: Vec::new(),
        quick,
        checks: vec![check.clone()],
        charts: Vec::new(),
    };
    assert!(reproduction(false, &check).failed() && !reproduction(true, &check).failed());
    assert!(!reproduction(false, &Check { tolerance: None, ..check.clone() }).failed());
    let why = Some("why".into());
    let counted = reproduction(false, &Check { undecidable: why, ..check.clone() });
    assert_eq!((counted.failed(), counted.tally().undecidable), (false, 1));
    assert!(reproduction(true, &Check { pass: Some(false), ..check }).failed());
}

#[test]
fn metrics_of_an_axis_are_read_where_they_can_be() {
    for plan in plans().unwrap() {
        for check in &plan.checks {
            let axis = check.run.as_ref().and_then(|run| plan.run(run)?.1.axis.as_ref());
            for point in &check.points {
                let limit = matches!(point.metric, Metric::Limit(_));
                assert_eq!(limit || check.at.is_some(), axis.is_some(), "{}", check.row);
            }
        }
    }
}

/// The link of one host is down: of the messages to it no percentile knows, so the others', which
/// lie within every limit, decide nothing. An open loop that is cut leaves some by design.
#[test]
fn a_number_without_the_failed_messages_decides_nothing() {
    let text = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\nvariants = [\"homa-paper\"]\n\
        [scenario]\nfabric = { shape = { kind = \"single-switch\", hosts = 4 } }\n\
        traffic = { pattern = \"all-to-all\", workload = \"w4\", exchange = \"echo\" }\n\
        stop = { messages = 200 }\n\
        [[run]]\nname = \"whole\"\n\
        [[run]]\nname = \"down\"\n\
        set = { \"fabric.impaired\" = [{ from = \"h3\", to = \"tor0\" }] }\n\
        [[run]]\nname = \"late\"\nset = { \"stop.drain_limit\" = \"1us\" }\n\
        [[run]]\nname = \"cut\"\nset = { \"stop.ending\" = \"cut\" }\n";
    let check = |run: &str| {
        format!(
            "[[check]]\nrow = \"a-b-{run}\"\nrun = \"{run}\"\n\
             points = {{ p50 = [2, \"x9\"] }}\n"
        )
    };
    let text = format!(
        "{text}{}{}{}{}[[check]]\nrow = \"a-b-over\"\nrun = \"whole\"\nover = \"down\"\n\
         points = {{ p50 = [1, \"x9\"] }}\n",
        check("whole"),
        check("down"),
        check("late"),
        check("cut")
    );
    let plan =
        ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_or_else(|e| panic!("{e}"));
    let root = std::env::temp_dir().join(format!("homa-missing-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    let done = run(&[plan], &How::default(), &store, &options, &mut |_| {}).unwrap();
    let [whole, down, late, cut, over] = &done[0].checks[..] else { panic!("five rows") };
    for there in [whole, cut] {
        assert_eq!((there.pass, &there.missing), (Some(true), &None), "{}", there.row);
    }
    for (open, what) in [(down, " failed"), (late, " not delivered"), (over, " failed")] {
        assert!(open.measured.is_some() && open.pass.is_none(), "{}", open.row);
        let missing = open.missing.as_deref().unwrap();
        assert!(missing.starts_with("messages: ") && missing.ends_with(what), "{missing}");
    }
    let page = crate::report::pages(&root, &Choice::default()).unwrap().remove(0).1;
    assert!(page.contains("undecided (messages: "), "{page}");
    let summary = std::fs::read_to_string(root.join("summary.csv")).unwrap();
    let mut rows = summary.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let at = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let counts: Vec<[bool; 3]> =
        rows.map(|row| ["failed", "refused", "undelivered"].map(|n| row[at(n)] != "0")).collect();
    let [none, failed, late] = [[false; 3], [true, false, false], [false, false, true]];
    assert_eq!(counts, [none, failed, late, late]);
    std::fs::remove_dir_all(&root).unwrap();
}

/// The link of one host is down during the warm-up, in which messages to it fail: they are told of,
/// and the numbers of those that are measured stand.
#[test]
fn what_failed_before_the_measured_window_takes_no_verdict_away() {
    let text = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\nvariants = [\"homa-paper\"]\n\
        [scenario]\nfabric = { shape = { kind = \"single-switch\", hosts = 4 } }\n\
        traffic = { pattern = \"all-to-all\", workload = \"w1\", exchange = \"echo\" }\n\
        load = { fraction = 0.001 }\nstop = { messages = 200 }\n\
        [[run]]\nname = \"early\"\nset = { warm_up = \"50ms\", \"fabric.impaired\" = \
        [{ from = \"h3\", to = \"tor0\", until = \"40ms\" }] }\n\
        [[check]]\nrow = \"a-b-early\"\nrun = \"early\"\n\
        points = { p50 = [2, \"x9\"] }\n";
    let plan =
        ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_or_else(|e| panic!("{e}"));
    let root = std::env::temp_dir().join(format!("homa-early-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    let done = run(&[plan], &How::default(), &store, &options, &mut |_| {}).unwrap();
    let check = &done[0].checks[0];
    assert_eq!((check.pass, &check.missing), (Some(true), &None), "{check:?}");
    let aside = check.aside.as_deref().unwrap();
    assert!(aside.starts_with("not measured: ") && aside.ends_with(" failed"), "{aside}");
    assert!(crate::report::pages(&root, &Choice::default()).unwrap().remove(0).1.contains(aside));
    std::fs::remove_dir_all(&root).unwrap();
}

/// Rates, utilisation and delays near p99 are samples: if a limit lies within their interval they
/// decide nothing.
#[test]
fn sampled_rates_and_tails_decide_only_beyond_their_intervals() {
    let plan = |tolerances: &[(f64, String)]| {
        let mut text = "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n\
            variants = [\"homa-paper\"]\n[scenario]\n\
            fabric = { shape = { kind = \"single-switch\", hosts = 4 } }\n\
            measures = { tail_delay = true }\nstop = { messages = 300000 }\n\
            traffic = { pattern = \"all-to-all\", workload = \"w1\" }\n\
            [[run]]\nname = \"open\"\n[[run]]\nname = \"closed\"\nset = { slowdown = \"idle\", \
            \"measures.tail_delay\" = false, \"stop.messages\" = 2000, traffic = { pattern = \
            \"incast\", servers = 3, concurrent = 8, response_bytes = 10000 } }\n"
            .to_owned();
        let metrics = [
            ("open", "utilisation"),
            ("open", "tail.preemption_lag"),
            ("open", "tail.queueing"),
            ("closed", "response_gbps"),
            ("closed", "response_wire_gbps"),
        ];
        for (place, (run, metric)) in metrics.into_iter().enumerate() {
            let judged = tolerances
                .get(place)
                .map(|(published, tolerance)| format!("{published}, \"{tolerance}\""));
            text += &format!(
                "[[check]]\nrow = \"a-b-{place}\"\nrun = \"{run}\"\n\
                 points = {{ \"{metric}\" = [{}] }}\n",
                judged.unwrap_or_default()
            );
        }
        ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_or_else(|e| panic!("{e}"))
    };
    let root = std::env::temp_dir().join(format!("homa-sampled-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    let checks = |tolerances: &[(f64, String)]| {
        let how = How::default();
        run(&[plan(tolerances)], &how, &store, &options, &mut |_| {}).unwrap().remove(0).checks
    };
    let (mut within, mut beyond) = (Vec::new(), Vec::new());
    for check in checks(&[]) {
        let [low, high] = check.interval.map(Option::unwrap);
        let measured = check.measured.unwrap();
        assert!(low < high && low <= measured && measured <= high, "{check:?}");
        assert!(high - low < measured, "{check:?} says nothing");
        let middle = low.midpoint(high);
        within.push((middle, format!(">={middle}")));
        beyond.push((low, format!(">={}", low * 0.99)));
    }
    assert!(checks(&within).iter().all(|check| check.pass.is_none()));
    assert!(checks(&beyond).iter().all(|check| check.pass == Some(true)));
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_scheme_that_no_run_has_is_no_column() {
    let plan = |own: &str| {
        let text = format!(
            "id = \"a-b\"\ntitle = \"t\"\nsource = \"s\"\n\
             variants = [\"homa-sim\", \"homa-paper\", \"homa\"]\n[scenario]\n\
             fabric = {{ shape = {{ kind = \"single-switch\", hosts = 4 }} }}\n\
             stop = {{ messages = 100 }}\n[[run]]\nname = \"r\"\nvariants = [{own}]\n[[check]]\n\
             row = \"a-b-c\"\nrun = \"r\"\nreport = [\"p50\"]\n"
        );
        ReproPlan::parse(&Document::new("r.toml", text), &[]).unwrap_or_else(|e| panic!("{e}"))
    };
    let root = std::env::temp_dir().join(format!("homa-columns-{}", std::process::id()));
    let store = Store::create(&root).unwrap();
    let options = Options { program: "p".into(), keep_going: true, ..Options::on(1) };
    for (own, expected) in [("\"homa-sim\"", &[][..]), ("\"homa-sim\", \"homa\"", &["homa"])] {
        let done = run(&[plan(own)], &How::default(), &store, &options, &mut |_| {}).unwrap();
        let others: Vec<&str> =
            done[0].checks[0].others.iter().map(|(scheme, _)| scheme.as_str()).collect();
        assert_eq!(others, expected);
        let page = crate::report::pages(&root, &Choice::default()).unwrap().remove(0).1;
        assert!(!page.contains("homa-paper"), "neither a column nor explained");
        assert_eq!(page.contains("<th>homa</th>"), !expected.is_empty());
    }
    let fig12 = select(&["homa-fig12".to_owned()]).unwrap();
    assert_eq!(fig12[0].shown(), ["homa-sim"]);
    std::fs::remove_dir_all(&root).unwrap();
}
