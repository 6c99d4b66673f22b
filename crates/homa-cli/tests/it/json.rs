//! `docs/json.md` has every key that a command prints, and no key that none prints.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{code, document, homa, keys, program, stderr};
use crate::operating::observed;
use crate::page;
use crate::priorities::Ends;
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
pub fn check_printed(heading: &str, documents: &[Value]) -> BTreeSet<String> {
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
pub fn check(heading: &str, documents: &[Value]) {
    let printed = check_printed(heading, documents);
    for key in named(heading).into_iter().filter(|key| !key.starts_with(OF_A_FAILURE)) {
        assert!(printed.contains(key), "{heading}: there is no `{key}`");
    }
}

/// What a command prints that ends by itself; a check that fails does not make it print less.
pub fn printed(arguments: &[&str]) -> Value {
    let output = homa(&[arguments, &["--format", "json"]].concat());
    assert!([0, 1].contains(&code(&output)), "{arguments:?}: {}", stderr(&output));
    document(&output)
}

/// The entries of a list.
pub fn entries(list: &Value) -> Vec<Value> {
    list.as_array().expect("a list").clone()
}

#[test]
fn the_keys_of_lists_and_swarms_are_those_of_the_reference() {
    check("## homa workloads", &entries(&printed(&["workloads"])));
    let one = printed(&["schemes", "dctcp"]);
    check("## homa schemes", &[entries(&printed(&["schemes"])), vec![one]].concat());
    check("## homa pias-thresholds", &entries(&printed(&["pias-thresholds", "w4", "imc10"])));
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
