//! What scripts rely on: exit codes, streams, JSON shapes, and a hint at the end of every error.

use std::process::{Command, Output};

use serde_json::Value;

fn homa(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homa"));
    command.args(arguments).env("NO_COLOR", "1");
    command.output().expect("the program starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by itself")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

/// The keys of an object, as the contract lists them.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn assert_usage_error(arguments: &[&str]) {
    let output = homa(arguments);
    let text = stderr(&output);
    assert_eq!(code(&output), 2, "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote data");
    let last = text.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("hint: "), "{arguments:?} ended with `{last}`");
}

#[test]
fn usage_errors_exit_2_and_end_with_a_hint() {
    assert_usage_error(&["nonsense"]);
    assert_usage_error(&["bench", "--load", "80"]);
    assert_usage_error(&["bench", "--link", "100"]);
    assert_usage_error(&["bench", "--duration", "20"]);
    assert_usage_error(&["bench", "--format", "xml"]);
    assert_usage_error(&["workloads", "/nonexistent/sizes.csv"]);
    assert_usage_error(&["workloads", "w9"]);
}

#[test]
fn help_is_data_and_exits_0() {
    for arguments in [vec!["--help"], vec!["bench", "--help"], vec!["--version"]] {
        let output = homa(&arguments);
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(!output.stdout.is_empty());
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn workloads_lists_five_with_their_key_figures() {
    let output = homa(&["workloads", "--format", "json"]);
    assert_eq!(code(&output), 0);
    let list = document(&output);
    let list = list.as_array().expect("an array");
    let names: Vec<_> = list.iter().map(|w| w["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["w1", "w2", "w3", "w4", "w5"]);
    assert_eq!(list[2]["p50_bytes"], 268);
    assert_eq!(list[3]["max_bytes"], 10_000_000);
}

#[test]
fn a_table_of_ones_own_is_described_like_the_built_in_ones() {
    let path = std::env::temp_dir().join(format!("homa-sizes-{}.csv", std::process::id()));
    std::fs::write(&path, "size_bytes,cumulative_fraction\n100,0.5\n2000,1\n").expect("written");
    let output = homa(&["workloads", path.to_str().expect("UTF-8"), "--format", "json"]);
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(document(&output)[0]["mean_bytes"], 1050.0);
}

#[test]
fn doctor_says_for_each_probe_what_follows() {
    let output = homa(&["doctor", "--format", "json"]);
    assert!([0, 1].contains(&code(&output)), "{}", stderr(&output));
    let report = document(&output);
    let checks = report["checks"].as_array().expect("an array");
    let names: Vec<_> = checks.iter().filter_map(|c| c["name"].as_str()).collect();
    for probe in ["cores", "namespaces", "udp", "udp gso", "udp gro", "receive buffer", "tcp"] {
        assert!(names.contains(&probe), "{probe} is missing in {names:?}");
    }
    for check in checks {
        assert!(check["consequence"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        let fine = check["status"] == "ok";
        assert!(fine || check["remedy"].is_string(), "no remedy in {check}");
    }
}

/// The whole micro benchmark with rounds so short that only its shape means something.
#[test]
fn micro_prints_the_documented_shape() {
    let output = homa(&["bench", "--micro", "--duration", "100ms", "--format", "json"]);
    if code(&output) == 2 {
        // No namespaces here: then the error must say what decides.
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
        return;
    }
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = document(&output);
    assert_eq!(keys(&report), ["echo", "rate", "throughput"]);
    let echo = report["echo"].as_array().expect("an array");
    for path in ["raw-udp-spin", "raw-udp-blocking", "tcp-spin", "tcp-blocking"] {
        for bytes in [100, 10_000] {
            let row = echo.iter().find(|row| row["path"] == path && row["bytes"] == bytes);
            let row = row.unwrap_or_else(|| panic!("no row {path} {bytes}"));
            assert!(row["p50_us"].as_f64() > Some(0.0) && row["p99_us"].is_f64(), "{row}");
        }
    }
    let rate = report["rate"].as_array().expect("an array");
    for (peers, outstanding) in [(1, 64), (1, 256), (64, 2)] {
        let row = rate.iter().find(|row| {
            row["transport"] == "tcp-batched"
                && row["peers"] == peers
                && row["outstanding"] == outstanding
        });
        assert!(row.is_some_and(|row| row["rpcs_per_s"].as_f64() > Some(0.0)), "{rate:?}");
    }
    assert!(report["throughput"][0]["mb_per_s"].as_f64() > Some(0.0));
}
