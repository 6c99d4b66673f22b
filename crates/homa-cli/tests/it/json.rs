//! `docs/json.md` has every key that a command prints, and no key that none prints.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::bench::alone;
use crate::cli::DOCTOR;
use crate::common::{code, document, homa, keys, program, stderr};
use crate::operating::observed;
use crate::page;
use crate::priorities::Ends;
use crate::racks::{INCAST, MICRO, RACK, WORKFLOWS};
use crate::refused::without_namespaces;
use crate::server::Server;

const PAGE: &str = include_str!("../../../../docs/json.md");

/// One host's counters, and dropped packets by reason, have names that other pages list.
const BY_NAME: [&str; 2] = ["counters.", "drops_per_s."];
/// Shown when a promise is broken, which no test of the program can do: `swarm.rs` checks them.
const OF_A_FAILURE: &str = "failures[].";

/// The keys that the page names in the tables below a heading.
fn named(heading: &str) -> BTreeSet<&'static str> {
    let below = PAGE.split_once(&format!("\n{heading}\n"));
    let (_, below) = below.unwrap_or_else(|| panic!("no part `{heading}`"));
    let end = below.find("\n#").unwrap_or(below.len());
    let rows = below[..end].lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('|').nth(1)).flat_map(page::codes).collect()
}

/// Returns the documents' keys; each must be named under the heading. A page that names `a[].b`
/// also names `a`.
fn check_printed(heading: &str, documents: &[Value]) -> BTreeSet<String> {
    let named = named(heading);
    let printed: BTreeSet<String> = documents.iter().flat_map(page::paths).collect();
    let printed: BTreeSet<String> =
        printed.into_iter().filter(|path| !BY_NAME.iter().any(|of| path.starts_with(of))).collect();
    for path in &printed {
        let within = [format!("{path}."), format!("{path}[]")];
        let there = |key: &&str| *key == path || within.iter().any(|part| key.starts_with(part));
        assert!(named.iter().any(there), "{heading}: `{path}` is missing");
    }
    printed
}

/// The same, and that the documents together have every key that the page names.
fn check(heading: &str, documents: &[Value]) {
    let printed = check_printed(heading, documents);
    for key in named(heading).into_iter().filter(|key| !key.starts_with(OF_A_FAILURE)) {
        assert!(printed.contains(key), "{heading}: there is no `{key}`");
    }
}

/// What a command prints that ends by itself; a check that fails does not make it print less.
fn printed(arguments: &[&str]) -> Value {
    let output = homa(&[arguments, &["--format", "json"]].concat());
    assert!([0, 1].contains(&code(&output)), "{arguments:?}: {}", stderr(&output));
    document(&output)
}

/// The entries of a list.
fn entries(list: &Value) -> Vec<Value> {
    list.as_array().expect("a list").clone()
}

#[test]
fn the_keys_of_lists_and_probes_are_those_of_the_reference() {
    check("## homa workloads", &entries(&printed(&["workloads"])));
    let one = printed(&["schemes", "dctcp"]);
    check("## homa schemes", &[entries(&printed(&["schemes"])), vec![one]].concat());
    check("## homa pias-thresholds", &entries(&printed(&["pias-thresholds", "w4", "imc10"])));
    // A machine without any fault has no remedy to show.
    let doctor = document(&DOCTOR);
    let fine = json!({ "checks": [{ "remedy": "" }] });
    check("## homa doctor", &[doctor, fine]);
    let of_a_scheme = printed(&["swarm", "--scheme", "tcp", "--seeds", "20"]);
    assert!(of_a_scheme.get("cells").is_none(), "{of_a_scheme}");
    check("## homa swarm", &[printed(&["swarm", "--seeds", "20"]), of_a_scheme]);
}

#[test]
fn the_keys_of_headroom_are_in_the_reference_and_no_other() {
    let small = ["hull", "headroom", "--link", "1Gbps", "--rtt", "300us", "--flows", "2"];
    let all = printed(&[&small[..], &["--flow", "200kB"]].concat());
    check("## homa hull headroom", std::slice::from_ref(&all));
    let rule = printed(&[&small[..], &["--rule-only"]].concat());
    assert!(rule["simulation"].is_null() && rule["rule"] == all["rule"], "{rule}");
    // 2 flows and 25 packets.
    assert!((rule["rule"]["headroom"].as_f64().unwrap() - 0.08).abs() < 1e-9, "{rule}");
    let crowd = homa(&["hull", "headroom", "--flows", "40"]);
    assert_eq!(code(&crowd), 2);
    assert!(stderr(&crowd).contains("hint: choose a lower --load"), "{}", stderr(&crowd));
}

#[test]
fn the_keys_of_thresholds_and_tails_are_in_the_reference() {
    let thresholds =
        |buffer| printed(&["pfc", "thresholds", "--link", "10Gbps", "--buffer", buffer]);
    check("## homa pfc thresholds", &[thresholds("1MB"), thresholds("1kB")]);
    let file = std::env::temp_dir().join(format!("homa-tail-{}.csv", std::process::id()));
    std::fs::write(&file, "us,count\n100,98\n20000,2\n").expect("a file");
    let tail = printed(&["tail", "--rtt", file.to_str().expect("UTF-8"), "--fanout", "1,40"]);
    std::fs::remove_file(&file).expect("it is there");
    check("## homa tail", std::slice::from_ref(&tail));
    let fanouts = &tail["distributions"][0]["fanouts"];
    assert_eq!((fanouts[0]["late"].as_u64(), fanouts[1]["late"].as_u64()), (Some(1), Some(5)));
}

#[test]
fn the_keys_of_a_reproduction_are_in_the_reference_and_no_other() {
    let out = std::env::temp_dir().join(format!("homa-json-{}", std::process::id()));
    let shown = printed(&["repro", "x15", "--out", out.to_str().expect("UTF-8")]);
    let _ = std::fs::remove_dir_all(&out);
    check("## homa repro", &entries(&shown));
    for entry in entries(&printed(&["repro", "--list"])) {
        assert_eq!(keys(&entry), ["id", "title"]);
    }
}

#[test]
fn the_keys_of_calls_are_in_the_reference_and_no_other() {
    let server = Server::start(&["--echo"]);
    let one = printed(&["call", &server.address]);
    let some = printed(&["call", &server.address, "--count", "2"]);
    let paced = printed(&["call", &server.address, "--count", "20", "--rate", "1k"]);
    let pings = printed(&["ping", &server.address, "--count", "2", "--interval", "1ms"]);
    let gone = server.address.clone();
    server.terminate();
    let none = printed(&["ping", &gone, "--count", "1", "--deadline", "100ms"]);
    check("## homa call, homa ping", &[one, some, paced, pings, none.clone()]);
    assert!(none["min_us"].is_null() && none["p99_us"].is_null(), "{none}");
}

/// What a command prints while a server is called. Only some RPCs and peers are sampled, so it is
/// repeated until a document shows one.
fn during_calls(server: &Server, command: &[&str], shows: impl FnMut(&Value) -> bool) -> Value {
    let mut calls = program();
    calls.args(["call", &server.address, "--count", "1000000"]).stdout(Stdio::null());
    let _calls = Ends(calls.spawn().expect("homa call"));
    let found = (0..20).map(|_| printed(command)).find(shows);
    found.unwrap_or_else(|| panic!("{command:?} shows no RPC"))
}

#[test]
fn the_keys_of_an_observed_server_are_in_the_reference() {
    let mut server = Server::start(&["--echo", "--metrics", "127.0.0.1:0"]);
    let endpoint = observed(&mut server);
    let top = ["top", &endpoint, "--interval", "100ms", "--count", "2"];
    let has = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let whole = |report: &Value| has(&report["busiest"]) && has(&report["rpcs"][1]["sizes"]);
    let tops = during_calls(&server, &top, |shown| entries(&shown["reports"]).iter().any(whole));
    check("## homa top", &entries(&tops["reports"]));
    let why = ["why", &endpoint, "--for", "200ms"];
    let slow = |shown: &Value| shown["slow"].is_object();
    check("## homa why", &[during_calls(&server, &why, slow)]);
    let priorities = ["ping", &server.address, "--priorities", "--count", "3"];
    check("## homa ping --priorities", &[printed(&priorities)]);
    server.terminate();
}

/// The document, if the rack could be built; else the error says what decides.
fn rack(output: &Output) -> Option<Value> {
    if code(output) == 2 {
        assert!(stderr(output).contains("hint: "), "{}", stderr(output));
        let error = stderr(output);
        let error = error.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        skip::part(&format!("a rack, whose keys are compared; here it ended with {error:?}"));
        return None;
    }
    Some(document(output))
}

/// Documents of every way to run a bench, as far as this machine lets it: on the rack, workflows,
/// an incast, simulated, against a server.
struct Benches {
    rack: Option<Value>,
    workflows: Option<Value>,
    incast: Option<Value>,
    simulated: Option<Value>,
    peer: Value,
    cp_node: Value,
}

impl Benches {
    fn run() -> Self {
        let alone = ["bench", "--hosts", "2", "--duration", "300ms", "--format", "json"];
        let server = Server::start(&["--echo"]);
        let brief = ["--duration", "300ms", "--load", "0.3"];
        let peer = printed(&[&["bench", "--peer", &server.address][..], &brief].concat());
        server.terminate();
        let server = Server::start(&["--cp-node"]);
        let ours = ["bench", "--peer", &server.address, "--cp-node"];
        let cp_node = printed(&[&ours[..], &brief].concat());
        server.terminate();
        Self {
            rack: rack(&RACK),
            workflows: rack(&WORKFLOWS),
            incast: rack(&INCAST),
            simulated: without_namespaces(&alone).and_then(|output| rack(&output)),
            peer,
            cp_node,
        }
    }
}

#[test]
fn the_keys_of_every_bench_are_in_the_reference_and_no_other() {
    let _alone = alone();
    let Benches { rack, workflows, incast, simulated, peer, cp_node } = Benches::run();
    check("### --peer with --cp-node", std::slice::from_ref(&without(&cp_node, "config")));
    let rows = [&rack, &simulated].into_iter().flatten().chain([&peer]);
    let rows: Vec<Value> = rows.flat_map(|shown| entries(&shown["transports"])).collect();
    let shown = [&rack, &workflows, &incast, &simulated].into_iter().flatten().chain([&peer]);
    let (tops, mut configs): (Vec<Value>, Vec<Value>) = shown
        .map(|shown| (without(&without(shown, "config"), "transports"), shown["config"].clone()))
        .unzip();
    configs.push(cp_node["config"].clone());
    if simulated.is_some() {
        check("## homa bench", &tops);
    } else {
        check_printed("## homa bench", &tops);
    }
    // On a busy machine one may fail while the others do not.
    match (&rack, &incast, &workflows) {
        (Some(_), Some(incast), Some(workflows)) => {
            check("### config", &configs);
            // Some kernels do not report resident memory.
            let told = rows.iter().any(|row| row["memory"].is_object());
            if told {
                check("### A row", &rows)
            } else {
                check_printed("### A row", &rows);
            }
            check("### A row of --incast", &entries(&incast["transports"]));
            check("### A row of --fan-out", &entries(&workflows["transports"]));
        }
        _ => {
            check_printed("### config", &configs);
            check_printed("### A row", &rows);
        }
    }
}

#[test]
fn the_keys_of_the_micro_benchmark_are_in_the_reference() {
    let _alone = alone();
    if let Some(micro) = rack(&MICRO) {
        check("### --micro", &[micro]);
    }
}

#[test]
fn the_grpc_bench_has_its_keys_or_asks_for_its_feature() {
    let _alone = alone();
    let output = homa(&["bench", "--grpc", "--duration", "250ms", "--format", "json"]);
    if cfg!(feature = "grpc") {
        if code(&output) == 2 && stderr(&output).contains("the machine is too busy") {
            return skip::test("a machine on which a search takes less than 100 ms");
        }
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        check("### --grpc", &[document(&output)]);
    } else {
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--features grpc"), "{}", stderr(&output));
    }
}

#[test]
fn the_keys_of_a_phantom_queue_are_those_of_the_reference() {
    // In a separate network namespace, so that no traffic of this machine is counted.
    let queue = ["hull", "attach", "lo", "--drain", "1Gbps", "--for", "50ms", "--format", "json"];
    let program = env!("CARGO_BIN_EXE_homa");
    match Command::new("unshare").arg("-n").arg(program).args(queue).output() {
        Ok(output) if code(&output) == 0 => {
            check("## homa hull attach", &entries(&document(&output)));
        }
        Ok(output) => println!("skipped: {}", stderr(&output)),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

/// The document with nothing below one of its keys, which has a separate part.
fn without(document: &Value, key: &str) -> Value {
    let mut document = document.clone();
    document[key] = Value::Null;
    document
}
