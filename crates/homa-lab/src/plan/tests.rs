//! Plans that are read, and plans that are refused.

use homa_sim::scenario::Traffic;

use super::*;

fn parse(text: &str) -> Result<Plan, PlanFault> {
    Plan::parse(&Document::new("plan.toml", text), &[])
}

#[test]
fn every_combination_runs_once_per_seed() {
    let plan = parse(
        "seeds = [7, 8]\n[axes]\n\"load.fraction\" = [0.5, 0.8]\n\
         \"options.overcommitment\" = [1, 2, 4]\n",
    )
    .unwrap();
    assert_eq!(plan.cells.len(), 12);
    assert_eq!(plan.cells[0].label(), "load.fraction=0.5 options.overcommitment=1 seed=7");
    assert_eq!(plan.cells[11].label(), "load.fraction=0.8 options.overcommitment=4 seed=8");
    assert_eq!(plan.cells[11].scenario.load.fraction, 0.8);
    assert_eq!(plan.cells[11].scenario.options.overcommitment, Some(4));
    assert_eq!(plan.cells[11].scenario.seed, 8);
}

#[test]
fn the_resolved_plan_is_the_same_plan() {
    let plan = parse("title = \"t\"\n[axes]\n\"load.fraction\" = [0.5, 0.8]\n").unwrap();
    let again = parse(&plan.resolved).unwrap();
    assert_eq!(plan, again);
    assert!(plan.resolved.contains("host_link = \"10Gbps\""), "{}", plan.resolved);
}

#[test]
fn schemes_of_one_plan_may_differ_in_their_settings() {
    let text = "[scenario]\noptions = { mtu = 2000 }\n[axes]\n\
                scheme = [\"homa\", \"homa-paper\"]\n\
                [schemes.homa]\n\"options.mtu\" = 4000\n";
    let plan = parse(text).unwrap();
    let mtus: Vec<_> = plan.cells.iter().map(|cell| cell.scenario.options.mtu).collect();
    assert_eq!(mtus, [Some(4000), Some(2000)]);
    assert_eq!(plan, parse(&plan.resolved).unwrap());
    // What an axis says holds for every scheme.
    let both = text.replace("[schemes", "\"options.mtu\" = [3000]\n[schemes");
    let mtus = parse(&both).unwrap();
    assert!(mtus.cells.iter().all(|cell| cell.scenario.options.mtu == Some(3000)));
    let wrong = "[schemes.pigeon]\n\"options.mtu\" = 4000\n";
    assert_fault(wrong, 1, "schemes.pigeon", &["unknown scheme `pigeon`", "homa-paper"]);
    let wrong = "[scenario]\nscheme = \"homa\"\n[schemes.homa]\n\"seed.x\" = 1\n";
    let fault = parse(wrong).unwrap_err();
    assert!(fault.key.starts_with("schemes.homa"), "{fault}");
}

#[test]
fn an_empty_plan_is_the_default_scenario() {
    let plan = parse("").unwrap();
    assert_eq!(plan.cells.len(), 1);
    assert_eq!(plan.cells[0].scenario, Scenario::default());
}

#[track_caller]
fn assert_fault(text: &str, line: usize, key: &str, parts: &[&str]) {
    let fault = parse(text).unwrap_err();
    let shown = fault.to_string();
    assert_eq!((fault.line, fault.key.as_str()), (line, key), "{shown}");
    assert!(shown.starts_with(&format!("plan.toml:{line}: `{key}`")), "{shown}");
    for part in parts {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn seeds_of_64_bits_are_taken_or_refused_with_the_limit() {
    let plan = parse("seeds = [18446744073709551615]\n").unwrap();
    assert_eq!(plan.cells[0].scenario.seed, u64::MAX);
    assert_eq!(parse(&plan.resolved).unwrap(), plan);
    let end = "end at 9223372036854775807";
    assert_fault("[scenario]\nseed = 18446744073709551615\n", 2, "scenario.seed", &[end]);
    let beyond = ["`18446744073709551616`, expected a whole number from 0 to 184467440737095516"];
    assert_fault("seeds = [18446744073709551616]\n", 1, "seeds.0", &beyond);
}

#[test]
fn mistakes_name_line_key_and_allowed_values() {
    let slip = ["unknown key `titel`; did you mean `title`?"];
    assert_fault("titel = \"x\"\n", 1, "titel", &slip);
    let text = "title = \"x\"\n\n[scenario.load]\nfraction = 0.8\nbase = \"wire\"\n";
    assert_fault(text, 5, "scenario.load.base", &["unknown key", "`fraction`, `basis`"]);
    let text = "[scenario]\nscheme = \"homa\"\n[scenario.load]\nbasis = \"bits\"\n";
    let allowed = ["unknown value `bits`", "`paper`, `wire`, `everything`, `payload`"];
    assert_fault(text, 4, "scenario.load.basis", &allowed);
    assert_fault("\nseeds = 3\n", 2, "seeds", &["expected a list"]);
    assert_fault("seeds = []\n", 1, "seeds", &["at least one"]);
    let text = "[scenario.fabric]\nhost_link = 10\n";
    assert_fault(text, 2, "scenario.fabric.host_link", &["write 10Gbps or 10Mbps"]);
    let text = "[scenario.fabric]\nhost_link = \"10\"\n";
    assert_fault(text, 2, "scenario.fabric.host_link", &["10Gbps"]);
    let text = "[scenario]\nload = 0.8\n";
    assert_fault(text, 2, "scenario.load", &["a table of keys: write `load.fraction = 0.8`"]);
    let text = "[scenario.load]\nfraction = \"most\"\n";
    assert_fault(text, 2, "scenario.load.fraction", &["expected a number"]);
}

#[test]
fn a_load_of_300_digits_is_refused_in_a_line() {
    let nines = "9".repeat(300);
    let axis = format!("[axes]\n\"load.fraction\" = [0.5, {nines}.0]\n");
    let long = format!("[scenario]\nload = {{ fraction = {nines} }}\n");
    for (text, part) in [(axis, "below 10"), (long, "too large")] {
        let said = parse(&text).unwrap_err().to_string();
        assert!(said.contains(part) && said.len() < 200, "{said}");
    }
    let set = [("load.fraction".to_owned(), Value::String(nines))];
    let said = Plan::parse(&Document::new("plan.toml", ""), &set).unwrap_err().to_string();
    assert!(said.contains("expected a number") && said.len() < 200, "{said}");
}

#[test]
fn the_size_of_all_messages_may_be_a_number() {
    let sized = |size: &str| {
        let text = format!("[axes]\n\"traffic.workload\" = [\"w4\", {size}]\n");
        parse(&text).unwrap().cells.remove(1).scenario
    };
    assert_eq!(sized("5000"), sized("\"5000\""));
    assert!(parse("[scenario.traffic]\nworkload = -1\n").is_err());
}

#[test]
fn traffic_without_a_pattern_is_of_the_default_one() {
    let plan = parse("[scenario.traffic]\nworkload = \"w4\"\n").unwrap();
    let expected =
        Traffic::AllToAll { workload: "w4".into(), exchange: Default::default(), max_bytes: None };
    assert_eq!(plan.cells[0].scenario.traffic, expected);
    assert_eq!(plan, parse("scenario.traffic.workload = \"w4\"\n").unwrap());
    let text = "title = \"x\"\n[scenario.traffic]\nworkload = \"w4\"\nserves = 3\n";
    assert_fault(text, 4, "scenario.traffic.serves", &["unknown key", "`max_bytes`"]);
}

#[test]
fn mistakes_inside_a_table_of_several_kinds_are_found_too() {
    let text = "[scenario]\nseed = 2\n[scenario.traffic]\npattern = \"incast\"\nserves = 3\n";
    assert_fault(text, 5, "scenario.traffic.serves", &["unknown key", "`servers`"]);
    let text = "[scenario.traffic]\npattern = \"outcast\"\n";
    assert_fault(text, 2, "scenario.traffic.pattern", &["unknown value", "`all-to-all`"]);
}

#[test]
fn mistakes_in_an_axis_name_the_axis() {
    let text = "[axes]\n\"load.basis\" = [\"wire\"]\n\"load.fracton\" = [0.5]\n";
    assert_fault(text, 3, "axes.load.fracton", &["unknown key", "`fraction`"]);
    assert_fault("[axes]\n\"load.fraction\" = 0.5\n", 2, "axes.load.fraction", &["a list"]);
    let text = "[axes]\n\"load.basis\" = [\"wire\", \"bits\"]\n";
    assert_fault(text, 2, "axes.load.basis", &["unknown value `bits`"]);
}

#[test]
fn seeds_are_no_axis() {
    let text = "title = \"t\"\n[axes]\nseed = [1, 2, 3]\n";
    assert_fault(text, 3, "axes.seed", &["use `seeds`"]);
}

#[test]
fn the_command_line_replaces_seeds_and_the_values_of_an_axis() {
    let text = "seeds = [1, 2]\n[axes]\n\"load.fraction\" = [0.5, 0.8]\n\
                \"traffic.workload\" = [\"w1\", \"w2\"]\n";
    let document = Document::new("plan.toml", text);
    let set = |key: &str, value: Value| vec![(key.to_owned(), value)];
    let seeds = Plan::parse(&document, &set("seed", Value::Integer(9))).unwrap();
    assert_eq!(seeds.cells.len(), 4);
    assert!(seeds.cells.iter().all(|cell| cell.scenario.seed == 9));
    let load = Plan::parse(&document, &set("load.fraction", Value::Float(0.3))).unwrap();
    assert_eq!(load.cells.len(), 4);
    assert!(load.cells.iter().all(|cell| cell.scenario.load.fraction == 0.3));
    assert_eq!(load.cells[0].label(), "load.fraction=0.3 traffic.workload=w1 seed=1");
    assert_eq!(load, Plan::parse(&Document::new("again", &*load.resolved), &[]).unwrap());
    let whole = Value::Table([("fraction".to_owned(), Value::Float(0.3))].into_iter().collect());
    let fault = Plan::parse(&document, &set("load", whole)).unwrap_err().to_string();
    assert!(fault.starts_with("--set load: is decided by the axis `load.fraction`"), "{fault}");
}

#[test]
fn an_axis_of_bytes_or_counts_is_one_of_numbers() {
    let text = "[axes]\n\"options.rtt_bytes\" = [\"10KB\", 20000]\n\
                \"stop.messages\" = [\"1k\"]\n";
    let labels: Vec<String> = parse(text).unwrap().cells.iter().map(Cell::label).collect();
    let label = |bytes| format!("options.rtt_bytes={bytes} stop.messages=1000 seed=1");
    assert_eq!(labels, [label(10_000), label(20_000)]);
}

#[test]
fn broken_syntax_names_its_line() {
    let fault = parse("title = \"x\"\nseeds = [1,\n").unwrap_err();
    assert!(fault.line >= 2, "{fault}");
}

#[test]
fn the_command_line_overrides_the_file_and_is_checked_like_it() {
    let document = Document::new("plan.toml", "[scenario.load]\nfraction = 0.8\n");
    let set = |key: &str, value: f64| vec![(key.to_owned(), Value::Float(value))];
    let plan = Plan::parse(&document, &set("load.fraction", 0.3)).unwrap();
    assert_eq!(plan.cells[0].scenario.load.fraction, 0.3);
    let mut two = set("load.fracton", 0.3);
    two.extend(set("load.fraction", 0.4));
    let fault = Plan::parse(&document, &two).unwrap_err();
    assert!(fault.to_string().starts_with("--set load.fracton: unknown key"), "{fault}");
    let text = |text: &str| Value::String(text.into());
    let both = [("fabric.shape", text("x")), ("fabric.buffer", text("y"))];
    let both = both.map(|(key, value)| (key.to_owned(), value));
    let fault = Plan::parse(&document, &both).unwrap_err();
    let at_fault = if fault.message.contains("\"x\"") { "fabric.shape" } else { "fabric.buffer" };
    assert_eq!(fault.key, at_fault, "{fault}");
}
