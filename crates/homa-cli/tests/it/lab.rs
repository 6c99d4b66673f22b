//! The laboratory's commands as a script sees them: exit codes, JSON shapes, files.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{code, document, homa, keys, program, stderr};
use crate::folder::Folder;

/// Four hosts at one switch: a simulation of milliseconds.
pub const SMALL: [&str; 6] = [
    "--set",
    "fabric.shape.kind=single-switch",
    "--set",
    "fabric.shape.hosts=4",
    "--messages",
    "400",
];

#[test]
fn mistakes_in_a_plan_name_file_line_key_and_allowed_values() {
    let folder = Folder::new("mistakes");
    let plan =
        folder.file("plan.toml", "[scenario]\nscheme = \"homa\"\n[scenario.load]\nfracton = 1\n");
    for command in ["sim", "sweep"] {
        let output = homa(&[command, &plan]);
        let text = stderr(&output);
        assert_eq!(code(&output), 2, "{text}");
        assert!(text.contains("plan.toml:4: `scenario.load.fracton`: unknown key"), "{text}");
        assert!(text.contains("; did you mean `fraction`?\n"), "{text}");
        let hint = text.trim_end().lines().last().unwrap_or("");
        assert!(hint.starts_with("hint: docs/simulator.md"), "{text}");
    }
    let unknown = homa(&["sim", "--scheme", "carrier-pigeon"]);
    assert_eq!(code(&unknown), 2);
    assert!(stderr(&unknown).contains("homa-sim"), "{}", stderr(&unknown));
    let set = homa(&["sim", "--set", "load.fracton=1"]);
    assert!(stderr(&set).contains("--set load.fracton: unknown"), "{}", stderr(&set));
    let large = homa(&["sim", "--scheme", "detail", "--set", "options.switch.pause=4294967296"]);
    let said = stderr(&large);
    assert!(said.contains("`4294967296` is too large: the most is 4294967295"), "{said}");
    // A mistake is named by the key or option that was given, and a default is not blamed on an
    // option.
    let alone = homa(&["sim", "--set", "beside.scheme=dctcp"]);
    assert!(stderr(&alone).contains("error: the scenario: `fabric.routing`: "), "{alone:?}");
    let second = homa(&["sim", "--scheme", "homa", "--set", "beside.scheme=pigeon"]);
    let said = stderr(&second);
    assert!(said.contains("--set beside.scheme: ") && said.contains("`pigeon`"), "{said}");
}

/// A resolved plan has `seeds`, and here an axis of one value: the command line replaces both.
#[test]
fn seed_and_load_of_the_command_line_replace_those_of_a_plan() {
    let folder = Folder::new("replaced");
    let text = "seeds = [1]\n[scenario]\nstop = { messages = 200 }\n[scenario.fabric]\n\
                shape = { kind = \"single-switch\", hosts = 4 }\n[axes]\n\
                \"load.fraction\" = [0.5]\n";
    let plan = folder.file("plan.toml", text);
    let hash = |arguments: &[&str]| {
        let output = homa(&[&["sim", &plan, "--format", "json"][..], arguments].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let outcome = document(&output);
        let of = |key: &str| outcome[key].clone();
        (of("seed"), of("load"), of("trace_hash"))
    };
    let (first, second) = (hash(&[]), hash(&["--seed", "2"]));
    assert_eq!((&first.0, &second.0), (&1.into(), &2.into()));
    assert_ne!(first.2, second.2, "another seed, other packets");
    let half = hash(&["--load", "0.3"]);
    assert_eq!((&first.1, &half.1), (&0.5.into(), &0.3.into()));
    let out = folder.path("out");
    let sets = ["--set", "seed=7", "--set", "load.fraction=0.4"];
    let output = homa(&[&["sweep", &plan, "--out", &out][..], &sets].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let summary = std::fs::read_to_string(Path::new(&out).join("summary.csv")).expect("a table");
    let rows: Vec<&str> = summary.lines().skip(1).collect();
    assert!(rows.len() == 1 && rows[0].starts_with("0.4,7,"), "{summary}");
    let output = homa(&["sweep", &plan, "--set", "load={fraction = 0.3}"]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(said.contains("--set load: is decided by the axis `load.fraction`"), "{said}");
}

#[test]
fn seeds_as_an_axis_are_refused() {
    let folder = Folder::new("seed-axis");
    let plan = folder.file("plan.toml", "[scenario]\n[axes]\nseed = [1, 2, 3]\n");
    let output = homa(&["sweep", &plan]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(said.contains("plan.toml:3: `axes.seed`") && said.contains("use `seeds`"), "{said}");
}

#[test]
fn a_sweep_with_a_bad_last_row_runs_nothing() {
    let folder = Folder::new("bad-row");
    let text = "[scenario]\nstop = { messages = 200 }\n[axes]\n\
                \"traffic.workload\" = [\"w1\", \"w2\", \"w9\"]\n";
    let plan = folder.file("plan.toml", text);
    let output = homa(&["sweep", &plan]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(
        said.contains("plan.toml:4: `axes.traffic.workload`: ") && said.contains("w9"),
        "{said}"
    );
    assert!(!Path::new(&folder.path("plan")).exists(), "nothing ran");
}

#[test]
fn a_plan_with_several_simulations_is_for_sweep() {
    let folder = Folder::new("several");
    let plan = folder.file("plan.toml", "seeds = [1, 2]\n");
    let output = homa(&["sim", &plan]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("homa sweep"), "{}", stderr(&output));
}

#[test]
fn out_holds_plan_tables_and_page_and_report_draws_it_again() {
    let folder = Folder::new("out");
    let out = folder.path("result");
    let mut arguments = vec!["sim", "--workload", "w1", "--load", "0.5", "--out", &out];
    arguments.extend(SMALL);
    let output = homa(&arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let path = |name: &str| Path::new(&out).join(name);
    for name in ["plan.toml", "manifest.json", "summary.csv", "slowdown.parquet", "index.html"] {
        assert!(path(name).is_file(), "{name}");
    }
    let page = std::fs::read(path("index.html")).expect("a page");
    std::fs::remove_file(path("index.html")).expect("removed");
    assert_eq!(code(&homa(&["report", &out])), 0);
    assert_eq!(std::fs::read(path("index.html")).expect("a page"), page);
    // The resolved plan is the same simulation.
    let again = homa(&["sim", &path("plan.toml").display().to_string(), "--format", "json"]);
    let summary = std::fs::read_to_string(path("summary.csv")).expect("a table");
    let hash = document(&again)["trace_hash"].as_str().expect("a hash").to_owned();
    assert!(summary.contains(&hash), "{summary}");
}

/// A table's rows, each value under its column's name.
fn rows(csv: &str) -> Vec<std::collections::BTreeMap<&str, &str>> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let head: Vec<&str> = lines.next().expect("a head").collect();
    lines.map(|row| head.iter().copied().zip(row).collect()).collect()
}

#[test]
fn out_holds_the_ledger_of_every_bin_and_of_all_messages() {
    let folder = Folder::new("ledger");
    let out = folder.path("result");
    let path = |name: &str| Path::new(&out).join(name);
    let mut arguments = vec!["sim", "--workload", "w1", "--load", "0.5", "--out", &out];
    arguments.extend(SMALL);
    let measured =
        [&arguments[..], &["--set", "measures.ledger=true", "--format", "json"]].concat();
    let output = homa(&measured);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document = document(&output);
    let text = std::fs::read_to_string(path("ledger.csv")).expect("a table");
    assert!(path("ledger.parquet").is_file());
    let mut bins = rows(&text);
    let all = bins.pop().expect("the row of all messages");
    assert_eq!(bins.len(), document["slowdown"]["buckets"].as_array().expect("bins").len());
    let number = |row: &std::collections::BTreeMap<&str, &str>, column: &str| {
        row[column].parse::<f64>().unwrap_or_else(|_| panic!("{column} in {row:?}"))
    };
    assert_eq!((all["cum_share"], all["max_bytes"]), ("", ""));
    assert_eq!(number(&all, "messages"), document["messages"].as_f64().expect("a count"));
    for part in ["sender_queue_us", "grant_wait_us", "wire_us", "fabric_queue_us", "recovery_us"] {
        let (mean, tail) = (format!("mean_{part}"), format!("tail_{part}"));
        assert_eq!(number(&all, &mean), document["ledger"]["mean"][part]);
        assert_eq!(number(&all, &tail), document["ledger"]["tail"][part]);
        let filled = bins.iter().filter(|bin| bin["messages"] != "0");
        let sum: f64 = filled.map(|bin| number(bin, &mean) * number(bin, "messages")).sum();
        let mean = number(&all, &mean);
        assert!((sum / number(&all, "messages") - mean).abs() < 1e-6, "{part}: {sum} {mean}");
        assert!(bins.iter().filter(|b| b["messages"] == "0").all(|b| b[tail.as_str()].is_empty()));
    }
    // A run without a ledger does not leave that of another beside its own tables.
    assert_eq!(code(&homa(&arguments)), 0);
    assert!(!path("ledger.csv").exists() && !path("ledger.parquet").exists());
}

#[test]
fn a_killed_sweep_goes_on_and_ends_like_one_that_was_not() {
    let folder = Folder::new("killed");
    let text = "seeds = [1, 2, 3, 4, 5, 6, 7, 8]\n[scenario]\nstop = { messages = 20_000 }\n\
                traffic = { pattern = \"all-to-all\", workload = \"w2\" }\n\
                [scenario.fabric]\nshape = { kind = \"single-switch\", hosts = 8 }\n";
    let plan = folder.file("plan.toml", text);
    let (killed, whole) = (folder.path("killed"), folder.path("whole"));
    let arguments = ["sweep", &plan, "--out", &killed, "--threads", "1"];
    let cells = || std::fs::read_dir(Path::new(&killed).join("cells")).map_or(0, Iterator::count);
    // Killed, then asked to end.
    for (signal, least) in [("-KILL", 1), ("-TERM", 3)] {
        let mut child = program();
        child.args(arguments).stdout(std::process::Stdio::null());
        let child = child.stderr(std::process::Stdio::piped()).spawn().expect("starts");
        let patience = Instant::now();
        while cells() < least && patience.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let id = child.id().to_string();
        let told = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(told.expect("kill is there").success(), "{signal}");
        let ended = child.wait_with_output().expect("ended");
        if signal == "-TERM" {
            assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
            let words = format!("kept in {killed}; run the same command to resume");
            assert!(stderr(&ended).contains(&words), "{}", stderr(&ended));
        }
    }
    let resumed = homa(&arguments);
    assert_eq!(code(&resumed), 0);
    let found = format!(" of 8 simulations in {killed}: ");
    assert!(stderr(&resumed).contains(&found), "{}", stderr(&resumed));
    assert_eq!(code(&homa(&["sweep", &plan, "--out", &whole])), 0);
    for name in ["plan.toml", "manifest.json", "summary.csv", "summary.parquet", "slowdown.csv"] {
        let read = |folder: &str| std::fs::read(Path::new(folder).join(name)).expect(name);
        assert_eq!(read(&killed), read(&whole), "{name}");
    }
}

#[test]
fn repro_lists_and_gives_the_documented_shape() {
    let list = document(&homa(&["repro", "--list", "--format", "json"]));
    let list = list.as_array().expect("an array");
    assert!(list.iter().all(|entry| keys(entry) == ["id", "title"]));
    let ids: Vec<_> = list.iter().filter_map(|entry| entry["id"].as_str()).collect();
    for id in ["homa-fig10", "homa-table1", "homa-fig13", "homa-sens", "x13"] {
        assert!(ids.contains(&id), "{id}");
    }
    let folder = Folder::new("repro");
    let out = folder.path("result");
    let arguments = ["repro", "x15", "homa-fig4", "--format", "json", "--report", "--out", &out];
    let output = homa(&arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results = document(&output);
    let results = results.as_array().expect("always an array");
    assert_eq!(results.len(), 2);
    for result in results {
        assert_eq!(keys(result), ["checks", "id"]);
        for check in result["checks"].as_array().expect("checks") {
            assert_eq!(
                keys(check),
                ["measured", "metric", "pass", "published", "tolerance", "undecidable"]
            );
            assert_eq!(check["pass"], true, "{check}");
        }
    }
    assert!(Path::new(&out).join("index.html").is_file());
    let table = homa(&["repro", "x15", "homa-fig4", "--out", &out]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let ending: Vec<&str> = table.lines().rev().take(2).collect();
    assert!(ending[1].starts_with("4 rows within tolerance, 0 outside, 0 undecided;"), "{table}");
    assert!(ending[0].starts_with("Exit code 0: "), "{table}");
    let unknown = homa(&["repro", "quic-fig1"]);
    assert_eq!(code(&unknown), 2);
    assert!(stderr(&unknown).contains("homa-fig10"), "{}", stderr(&unknown));
}

/// A record of a run is not a plan: read as a plan, a comment would be the default scenario.
#[test]
fn repro_records_its_command_and_every_scenario() {
    let folder = Folder::new("record");
    let out = folder.path("result");
    let old = Path::new(&out).join("plan.toml");
    std::fs::create_dir_all(Path::new(&out).join("cells")).expect("a folder of results");
    std::fs::write(&old, "# homa repro homa-fig8\n").expect("written");
    let asked = ["repro", "homa-fig8-100b", "--quick", "--compared"];
    let output = homa(&[&asked[..], &["--out", &out]].concat());
    assert_ne!(code(&output), 2, "{}", stderr(&output));
    assert!(!old.exists());
    let record = Path::new(&out).join("repro.toml");
    let text = std::fs::read_to_string(&record).expect("a record");
    let read: toml::Table = toml::from_str(&text).expect("TOML");
    let command = "homa repro homa-fig8-100b --quick --compared";
    assert_eq!(read["command"].as_str(), Some(command));
    let run = &read["run"][0];
    assert_eq!(run["scheme"].as_str(), Some("homa-paper"));
    let key = run["key"].as_str().expect("a key");
    let cell = Path::new(&out).join("cells").join(format!("{key}.json"));
    let stored = std::fs::read(cell).expect("the result");
    let stored: serde_json::Value = serde_json::from_slice(&stored).expect("JSON");
    let seed = run["scenario"]["seed"].as_integer();
    assert_eq!(seed, stored["cell"]["scenario"]["seed"].as_i64());
    assert!(run["scenario"]["fabric"]["switch_delay"].is_str(), "defaults are written out");
    let output = homa(&["sweep", &record.display().to_string()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("unknown key `command`"), "{}", stderr(&output));
    // An interrupted reproduction has no verdicts; the finished part has its page.
    std::fs::remove_file(Path::new(&out).join("checks.json")).expect("the verdicts");
    let page = homa(&["report", &out]);
    assert_eq!(code(&page), 0, "{}", stderr(&page));
}

#[test]
fn a_list_of_messages_is_simulated_as_it_stands() {
    let folder = Folder::new("flows");
    let rows = "id,src,dst,bytes,start_ns\n0,0,1,100,0\n1,2,3,20000,0\n2,1,0,5,1000000\n";
    let flows = folder.file("flows.csv", rows);
    let mut arguments = vec!["sim", "--flows", &flows, "--format", "json"];
    arguments.extend(&SMALL[..4]);
    let output = homa(&arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let outcome = document(&output);
    assert_eq!((&outcome["messages"], &outcome["undelivered"]), (&3.into(), &0.into()));
}

#[test]
fn schemes_are_listed() {
    let schemes = document(&homa(&["schemes", "--format", "json"]));
    let names: Vec<_> =
        schemes.as_array().expect("an array").iter().map(|s| s["name"].as_str()).collect();
    assert!(names.contains(&Some("homa")) && names.contains(&Some("homa-sim")));
}

/// The repository's examples, cut short: each runs as its first lines say.
#[test]
fn the_examples_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_root = |arguments: &[&str]| {
        program().args(arguments).current_dir(&root).output().expect("the program starts")
    };
    let short = ["--set", "stop.messages=300"];
    let graph = ["sim", "examples/graph.toml", "--format", "json"];
    let output = in_root(&[&graph[..], &short].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let outcome = document(&output);
    assert_eq!((&outcome["messages"], &outcome["undelivered"]), (&300.into(), &0.into()));
    assert!(outcome["queues"]["fabric"]["frames"].as_u64() > Some(0), "{}", outcome["queues"]);
    let folder = Folder::new("examples");
    let out = folder.path("out");
    let sweep = ["sweep", "examples/degraded-fabric.toml", "--out", &out];
    let output = in_root(&[&sweep[..], &short].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let out = folder.path("converted");
    let sweep = ["sweep", "examples/homa-beside-tcp.toml", "--out", &out];
    let output = in_root(&[&sweep[..], &short].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let read = |file: &str| std::fs::read_to_string(format!("{out}/{file}")).expect("it is there");
    let table = read("slowdown.csv");
    let of = |share: &str, scheme: &str, beside: &str| {
        let row = format!("{share},1,{scheme},{beside},w3,");
        table.lines().filter(|line| line.starts_with(&row)).count()
    };
    assert!(of("0.25", "homa", "0") > 0 && of("0.25", "tcp", "1") > 0, "{table}");
    assert_eq!((of("0.0", "tcp", "1"), of("1.0", "homa", "0")), (0, 0));
    assert!(read("index.html").contains(">tcp beside homa</text>"), "each kind has a curve");
}

#[test]
fn a_bad_link_of_a_plan_is_named_with_its_line() {
    let folder = Folder::new("impaired");
    let text = "[scenario]\nscheme = \"homa\"\n[[scenario.fabric.impaired]]\n\
                from = \"tor0\"\nto = \"spine0\"\nspeed = \"1Gbps\"\n";
    let plan = folder.file("plan.toml", text);
    let said = stderr(&homa(&["sim", &plan]));
    assert!(said.contains("plan.toml:6: `scenario.fabric.impaired.0.speed`"), "{said}");
    assert!(said.contains("`one_way`") && said.contains("`loss_ppm`"), "{said}");
    let set = "fabric.impaired=[{from='tor0', to='spine9'}]";
    let output = homa(&["sim", "--set", set]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("spine3"), "{}", stderr(&output));
}

#[test]
fn the_highest_load_is_searched_between_two() {
    let mut arguments = vec!["sim", "--workload", "1000", "--max-load", "0.5..1.3"];
    arguments.extend(&SMALL[..4]);
    arguments.extend(["--messages", "45000", "--format", "json"]);
    let output = homa(&arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let found = document(&output);
    assert_eq!(keys(&found), ["diverging", "outcome", "sustained"]);
    let (low, high) = (found["sustained"].as_f64(), found["diverging"].as_f64());
    assert!(low >= Some(0.8) && low < high && high <= Some(1.1), "{low:?} {high:?}");
    let backwards = homa(&["sim", "--max-load", "0.9..0.5"]);
    assert!(stderr(&backwards).contains("lower"), "{}", stderr(&backwards));
}

#[test]
fn a_list_that_is_mostly_silence_and_an_overload_run() {
    let folder = Folder::new("silence");
    let flows = folder.file("flows.csv", "1,0,1,1000,0\n2,1,2,1000,9000000000000000\n");
    let output = homa(&[&["sim", "--flows", &flows][..], &SMALL[..4]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let output = homa(&[&["sim", "--load", "1.5"][..], &SMALL].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let tree = ["sim", "--messages", "50", "--set"];
    let output = homa(&[&tree[..], &["fabric.shape={kind=\"fat-tree\",k=4}"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let none = "fabric.shape={kind=\"fat-tree\",k=4,oversubscription=0}";
    let refused = homa(&[&tree[..], &[none]].concat());
    assert!(stderr(&refused).contains("`oversubscription` of at least 1"), "{}", stderr(&refused));
    let table = folder.file("w.csv", "size_bytes,cumulative_fraction\n10,2\n");
    let refused = stderr(&homa(&["sim", "--workload", &table]));
    assert_eq!(refused.matches("w.csv").count(), 1, "{refused}");
}
