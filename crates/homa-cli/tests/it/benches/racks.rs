//! Benches on racks, each on one processor and beside other such racks.

use serde_json::Value;

use super::beside_racks;
use super::runs::{INCAST, RACK, WORKFLOWS, report, shown};
use crate::json::{check, check_printed, entries, printed};
use crate::refused::without_namespaces;
use crate::server::Server;

#[test]
fn the_rack_counts_every_rpc_and_runs_none_twice() {
    let _racks = beside_racks();
    let Some(report) = report(&RACK) else { return };
    let rto = &report["config"]["tcp_rto_min_ms"];
    assert!([5, 200].map(Value::from).contains(rto), "{report}");
    let rows = report["transports"].as_array().expect("an array");
    assert_eq!(report["valid"], rows.iter().all(|row| row["valid"] == true));
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["homa", "tcp-ecn", "tcp-ecn"], "without marks and with them");
    for row in rows {
        assert_eq!(
            (row["valid"] == true, &row["source"]),
            (row["reason"].is_null(), &"measured".into())
        );
        let count = |key: &str| row[key].as_u64().expect("a count");
        assert_eq!(count("offered"), count("completed") + count("errors"));
        assert_eq!(row["offered"], rows[0]["offered"], "the same arrivals for each row");
    }
    let homa = &rows[0];
    assert_eq!((&homa["errors"], &homa["completed"]), (&0.into(), &homa["offered"]));
    assert_eq!(homa["executed"], homa["started"]);
    let held = |key: &str| homa["memory"][key].as_u64();
    // Some kernels do not tell.
    assert!(held("start_bytes") <= held("peak_bytes"), "{homa}");
    assert_ne!(held("start_bytes"), Some(0));
    let trend = ["early_bytes", "late_bytes", "allowed_bytes"].map(|key| held(key).is_some());
    assert!(trend == [homa["memory"]["flat"].is_boolean(); 3], "{homa}");
}

#[cfg(feature = "grpc")]
#[test]
fn grpc_calls_end_on_the_rack_with_and_without_proxies() {
    let _racks = beside_racks();
    let Some(report) = report(&super::runs::GRPC) else { return };
    let rows = report["transports"].as_array().expect("an array");
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["grpc", "grpc-proxy"]);
    for row in rows {
        assert_eq!(row["source"], "measured");
        assert_eq!((&row["errors"], &row["completed"]), (&0.into(), &row["offered"]), "{row}");
        assert_eq!(row["executed"], row["started"], "none ran twice");
    }
    let cpu = |row: &Value| row["cpu_us_per_rpc"].as_f64().expect("a number");
    assert!(cpu(&rows[1]) > cpu(&rows[0]), "the proxies' time counts: {report}");
}

#[test]
fn an_incast_ends_every_request_that_it_begins() {
    let _racks = beside_racks();
    let Some(report) = report(&INCAST) else { return };
    assert_eq!(report["config"]["incast_control"], false);
    for row in report["transports"].as_array().expect("an array") {
        assert_eq!((&row["completed"], &row["errors"]), (&row["offered"], &0.into()));
    }
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
            rack: shown(&RACK),
            workflows: shown(&WORKFLOWS),
            incast: shown(&INCAST),
            simulated: without_namespaces(&alone).and_then(|output| shown(&output)),
            peer,
            cp_node,
        }
    }
}

#[test]
fn the_keys_of_every_bench_are_in_the_reference_and_no_other() {
    let _racks = beside_racks();
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

/// The document with nothing below one of its keys, which has a separate part.
fn without(document: &Value, key: &str) -> Value {
    let mut document = document.clone();
    document[key] = Value::Null;
    document
}
