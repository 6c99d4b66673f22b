//! What scripts rely on: exit codes, streams, JSON shapes, and a hint at the end of every error.

use crate::common::{code, document, homa, stderr};

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
    assert_usage_error(&["call", "10.0.0.7"]);
    assert_usage_error(&["call", "127.0.0.1:9", "--size", "0"]);
    assert_usage_error(&["call", "127.0.0.1:9", "--data", ""]);
    assert_usage_error(&["ping", "127.0.0.1:9", "--count", "0"]);
    assert_usage_error(&["serve"]);
    assert_usage_error(&["bench", "--micro", "--peer", "127.0.0.1:9"]);
    assert_usage_error(&["bench", "--transport", "carrier-pigeon"]);
    assert_usage_error(&["bench", "--cc", "wishful"]);
    assert_usage_error(&["bench", "--hosts", "1"]);
    assert_usage_error(&["bench", "--link", "100Mbps", "--duration", "1440m"]);
    assert_usage_error(&["bench", "--micro", "--only", "homa-inline,typo"]);
    assert_usage_error(&["bench", "--micro", "--only", ","]);
    assert_usage_error(&["bench", "--incast", "4294967295"]);
    assert_usage_error(&["bench", "--peer", "127.0.0.1:65535", "--cp-node", "--ports", "2"]);
    assert_usage_error(&["call", "127.0.0.1:9", "--size", "2000MB"]);
    assert_usage_error(&["ping", "127.0.0.1:9", "--size", "2MB", "--driver", "raw-ip"]);
    assert_usage_error(&["sim", "--seed", "9223372036854775808"]);
    assert_usage_error(&["swarm", "--seeds", "0"]);
    assert_usage_error(&["swarm", "--scheme", "ideal", "--seeds", "1"]);
    assert_usage_error(&["bench", "--twin", "--cc", "bbr", "--transport", "tcp,tcp-pool"]);
    assert_usage_error(&["bench", "--degrade", "spine1:10"]);
    assert_usage_error(&["bench", "--hosts", "5", "--fabric", "leaf-spine"]);
    assert_usage_error(&["sim", "--max-load", "0.5..0.9", "--load", "0.5"]);
    assert_usage_error(&["sim", "--max-load", "0.5..0.9", "--trace", "/nonexistent/x"]);
}

#[test]
fn a_number_of_hundreds_of_digits_is_refused_in_a_line() {
    let long = "9".repeat(300);
    let set = format!("load.fraction={long}");
    for arguments in [["sim", "--load", &long], ["bench", "--link", &long], ["sim", "--set", &set]]
    {
        assert_usage_error(&arguments);
        let text = stderr(&homa(&arguments));
        assert!(text.contains("99999…(300 digits)") && text.len() < 500, "{text}");
    }
}

#[test]
fn what_a_rack_cannot_be_is_said_before_anything_is_tried() {
    for arguments in [
        ["--hosts", "0"],
        ["--hosts", "1000"],
        ["--buffer", "1"],
        ["--workload", "/nonexistent"],
        ["--chart", "/nonexistent/bench.svg"],
        ["--duration", "1us"],
        ["--duration", "0.0000001us"],
    ] {
        let arguments = [&["bench"], &arguments[..]].concat();
        assert_usage_error(&arguments);
        let text = stderr(&homa(&arguments));
        assert!(!text.contains("trying") && !text.contains("doctor"), "{arguments:?}: {text}");
    }
}

#[test]
fn a_hint_is_about_the_error() {
    let text = stderr(&homa(&["call", "224.0.0.1:9", "--deadline", "1m", "--plaintext"]));
    assert!(text.contains("not the address of a single host"), "{text}");
    assert!(text.contains("hint: give the address and port"), "{text}");
    for arguments in [
        &["call", "127.0.0.1:0", "--deadline", "1m"][..],
        &["bench", "--peer", "127.0.0.1:0"],
        &["bench", "--peer", "127.0.0.1:0", "--cp-node"],
    ] {
        let text = stderr(&homa(arguments));
        assert!(text.contains("no server has port 0: give the port"), "{arguments:?}: {text}");
    }
    for (arguments, serve) in [
        (&["call", "127.0.0.1:9", "--deadline", "300ms"][..], "--echo"),
        (&["bench", "--peer", "127.0.0.1:9", "--cp-node"], "--cp-node"),
    ] {
        let text = stderr(&homa(arguments));
        let hint = format!(
            "hint: is a Homa server there? `homa serve --bind 127.0.0.1:9 {serve}` starts one"
        );
        assert!(text.contains(&hint), "{arguments:?}: {text}");
    }
}

#[test]
fn an_error_says_its_cause_once() {
    let path = std::env::temp_dir().join(format!("homa-no-table-{}.csv", std::process::id()));
    std::fs::write(&path, "bytes\n").expect("written");
    let text = stderr(&homa(&["workloads", path.to_str().expect("UTF-8")]));
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(text.matches("expected the header").count(), 1, "{text}");
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
