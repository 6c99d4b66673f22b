//! `homa serve` with the commands that talk to it, on loopback.

mod common;
#[path = "common/server.rs"]
mod server;

use common::{code, document, homa, keys, stderr};
use server::Server;

#[test]
fn a_call_brings_back_what_the_server_echoes() {
    let server = Server::start(&["--echo"]);
    let output = homa(&["call", &server.address, "--data", "over and over"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(output.stdout, b"over and over");
    let many =
        homa(&["call", &server.address, "--size", "20kB", "--count", "20", "--format", "json"]);
    let summary = document(&many);
    assert_eq!(summary["calls"], 20);
    assert_eq!((&summary["failed"], &summary["bytes"]), (&0.into(), &20_000.into()));
    let one = document(&homa(&["call", &server.address, "--format", "json"]));
    assert_eq!((&one["calls"], &one["bytes"]), (&1.into(), &5.into()), "{one}");
    let end = server.terminate();
    assert_eq!(code(&end), 0, "{}", stderr(&end));
    assert!(stderr(&end).contains("answered 22 requests"), "{}", stderr(&end));
}

#[test]
fn a_server_without_echo_says_how_much_it_got() {
    let server = Server::start(&[]);
    let output = homa(&["call", &server.address, "--data", "12345"]);
    assert_eq!(output.stdout, b"5 bytes\n", "{}", stderr(&output));
    server.terminate();
}

#[test]
fn ping_without_a_server_fails_the_check_and_hints() {
    let server = Server::start(&["--echo"]);
    let arguments = ["--count", "3", "--interval", "1ms", "--deadline", "300ms"];
    let there = homa(&[&["ping", &server.address], &arguments[..]].concat());
    assert_eq!(code(&there), 0, "{}", stderr(&there));
    let address = server.address.clone();
    server.terminate();
    let gone = homa(&[&["ping", &address], &arguments[..]].concat());
    assert_eq!(code(&gone), 1);
    assert!(stderr(&gone).trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
}

#[test]
fn bench_peer_loads_a_server_and_loses_nothing() {
    let server = Server::start(&["--echo"]);
    let arguments = ["--load", "0.5", "--duration", "500ms", "--format", "json"];
    let output = homa(&[&["bench", "--peer", &server.address], &arguments[..]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report = document(&output);
    assert_eq!(keys(&report), ["config", "transports", "valid"]);
    assert_eq!(report["config"]["network"], "peer");
    let row = &report["transports"][0];
    assert_eq!(row["errors"], 0);
    assert_eq!(row["offered"], row["completed"]);
    server.terminate();
}

#[test]
fn bench_peer_prints_a_line_that_repeats_it_and_no_time_of_a_rack() {
    let server = Server::start(&["--echo"]);
    let shown = |arguments: &[&str]| {
        let output = homa(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let brief = ["--load", "0.5", "--duration", "300ms", "--workload", "w2"];
    let first = shown(&[&["bench", "--peer", &server.address], &brief[..]].concat());
    let repeat = first.lines().find_map(|line| line.strip_prefix("Repeat: homa "));
    let words: Vec<&str> = repeat.expect("the line").split(' ').collect();
    let second = shown(&words);
    assert!(second.contains(repeat.expect("the line")), "{second}");
    assert!(first.contains("idle, ") && !first.contains("the wire"), "{first}");
    server.terminate();
}
