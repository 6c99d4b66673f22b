//! Metrics endpoints that misbehave, as `homa top` and `homa why` meet them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::common::{code, document, homa, stderr};

/// How an endpoint answers one client.
type Answer = Box<dyn FnOnce(&mut TcpStream) + Send>;

/// An endpoint that gives these answers, one to each client, and then closes each connection.
fn endpoint(answers: Vec<Answer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let mut answers = answers.into_iter();
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let _ = client.read(&mut [0; 1024]);
            if let Some(answer) = answers.next() {
                answer(&mut client);
            }
        }
    });
    at
}

fn says(text: impl Into<Vec<u8>>) -> Answer {
    let text = text.into();
    // A client that has read enough may have disconnected.
    Box::new(move |client| drop(client.write_all(&text)))
}

fn closes() -> Answer {
    Box::new(|_| {})
}

/// What an engine says that was opened at a time, with that many requests so far.
fn page(opened: u32, requests: u32, more: &str) -> Answer {
    let body = format!(
        "homa_engine_peers 1\nhoma_engine_opened_timestamp_seconds {opened}\n\
         homa_protocol_requests_delivered_total {requests}\n\
         homa_rpc_duration_seconds_count{{direction=\"server\",outcome=\"ok\"}} {requests}\n\
         {more}# EOF\n"
    );
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0";
    says(format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

fn stdout(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_answer_that_is_cut_or_impossible_is_an_error() {
    let table = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhoma_engine_peers 1\n", "20 of 900 bytes"),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text\r\n\r\n\
             homa_engine_peers 1\n",
            "OpenMetrics ends with the line \"# EOF\"",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhoma_engine_peers NaN\n", "homa_engine_peers is NaN"),
        ("", "closed the connection without an answer"),
    ];
    for (answer, wrong) in table {
        for command in ["top", "why"] {
            let output = homa(&[command, &endpoint(vec![says(answer)])]);
            assert_eq!(code(&output), 2, "{command}: {answer}");
            assert!(stderr(&output).contains(wrong), "{wrong}: {}", stderr(&output));
        }
    }
}

#[test]
fn an_answer_without_end_is_an_error() {
    let endless: Answer = Box::new(|client| {
        let head = "HTTP/1.1 200 OK\r\n\r\n";
        let mut sent = client.write_all(head.as_bytes());
        let lines = "homa_engine_peers 1\n".repeat(5_000);
        while sent.is_ok() {
            sent = client.write_all(lines.as_bytes());
        }
    });
    let output = homa(&["top", &endpoint(vec![endless])]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("the answer has more than 4 MiB"), "{}", stderr(&output));
}

#[test]
fn an_endpoint_that_is_silent_or_too_slow_is_given_up() {
    let silent: Answer = Box::new(|client| drop(client.read(&mut [0; 1])));
    let drips: Answer = Box::new(|client| {
        let text = "HTTP/1.1 200 OK\r\n".repeat(100);
        let each = |byte| client.write_all(&[byte]).map(|()| thread::sleep(Duration::from_secs(1)));
        let _ = text.bytes().try_for_each(each);
    });
    thread::scope(|scope| {
        for (answer, wrong) in [
            (silent, "no answer within 5 s: is this the metrics address?"),
            (drips, "after 5 s the answer was not complete"),
        ] {
            scope.spawn(move || {
                let output = homa(&["top", &endpoint(vec![answer])]);
                assert_eq!(code(&output), 2);
                assert!(stderr(&output).contains(wrong), "{wrong}: {}", stderr(&output));
            });
        }
    });
}

#[test]
fn no_endpoint_controls_the_terminal() {
    let labels = |count: u32| {
        format!(
            "homa_protocol_drops_total{{reason=\"\x1b[2J\"}} {count}\n\
             homa_peer_rpcs_total{{direction=\"server\",peer=\"\x1b]0;x\x07\u{9b}1m\"}} {count}\n\
             homa_rpc_stage_rpcs_total{{direction=\"client\",size=\"\x1b[1m\",up_to=\"1\"}} \
             {count}\n"
        )
    };
    let controls = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    for command in ["top", "why"] {
        for format in ["table", "json"] {
            let at = endpoint(vec![page(1, 1, &labels(1)), page(1, 2, &labels(50))]);
            let time = if command == "top" { "--interval" } else { "--for" };
            let count = ["--count", "1"];
            let count = if command == "top" { &count[..] } else { &[] };
            let command = [&[command, &at, time, "100ms", "--format", format], count].concat();
            let output = homa(&command);
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            let text = stdout(&output);
            assert!(!controls(&text), "{command:?}: {text:?}");
            assert!(command[0] == "why" || text.contains(r"\u{1b}[2J"), "{text}");
        }
    }
    let error = "HTTP/1.1 500 \x1b[31mred\r\n\r\n\x1b[2Jgone\u{9b}1m";
    let output = homa(&["top", &endpoint(vec![says(error)])]);
    assert!(!controls(&stderr(&output)), "{:?}", stderr(&output));
    assert!(stderr(&output).contains("500"), "{}", stderr(&output));
}

#[test]
fn top_survives_a_restart_and_begins_anew() {
    let answers = || {
        let cut = says("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n");
        vec![page(1, 10, ""), page(1, 20, ""), closes(), cut, page(2, 30, ""), page(2, 40, "")]
    };
    let each = ["--interval", "100ms", "--count", "5"];
    let output = homa(&[&["top", &endpoint(answers())], &each[..]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.matches("answered/s").count(), 2, "{text}");
    assert_eq!(text.matches("no answer for").count(), 2, "{text}");
    assert!(text.contains("(the answer was cut: 0 of 900 bytes came (Content-Length))"), "{text}");
    let anew: Vec<&str> = text.lines().filter(|line| line.contains("was replaced")).collect();
    assert_eq!(anew.len(), 1, "{text}");
    let output = homa(&[&["top", &endpoint(answers())], &each[..], &["--format", "json"]].concat());
    let seen = document(&output);
    assert_eq!((&seen["unanswered"], &seen["restarts"]), (&2.into(), &1.into()), "{seen}");
    let reports = seen["reports"].as_array().expect("reports");
    assert_eq!(reports.len(), 2, "{seen}");
    for report in reports {
        let rate = report["rpcs"][1]["ok_per_s"].as_f64().expect("a number");
        let requests = rate * report["seconds"].as_f64().expect("a number");
        assert!((requests - 10.0).abs() < 1e-6, "of one process: {seen}");
    }
    // Without any answer after the first there is nothing to show.
    let output =
        homa(&["top", &endpoint(vec![page(1, 10, "")]), "--interval", "100ms", "--count", "2"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("without an answer"), "{}", stderr(&output));
}

/// Followed short RPCs of a direction, with 1 ms in a stage for each.
fn followed((direction, stage): (&str, &str), rpcs: u32) -> String {
    let labels = format!("direction=\"{direction}\",size=\"short\",up_to=\"0.001\"");
    format!(
        "homa_rpc_stage_rpcs_total{{{labels}}} {rpcs}\n\
         homa_rpc_stage_seconds_total{{{labels},stage=\"{stage}\"}} {}\n",
        f64::from(rpcs) * 1e-3
    )
}

#[test]
fn why_is_about_the_process_that_is_there_at_the_end() {
    let why = |answers: Vec<Answer>, time: &str, format: &str| {
        homa(&["why", &endpoint(answers), "--for", time, "--format", format])
    };
    let page = |opened, rpcs| page(opened, rpcs, &followed(("server", "application"), rpcs));
    // Looks after 1 and 2 s: the first is not answered, and the new process counted more already.
    let answers = || vec![page(1, 10), closes(), page(2, 500), page(2, 530)];
    let text = stdout(&why(answers(), "3s", "table"));
    assert!(text.contains(": 30 RPCs were followed in 1 s"), "{text}");
    assert!(text.contains("was restarted, at the latest 2 s after this began"), "{text}");
    let report = document(&why(answers(), "3s", "json"));
    assert_eq!((&report["restarts"], &report["rpcs_followed"]), (&1.into(), &30.0.into()));
    assert_eq!(report["advice"], "application", "{report}");
    // A gap at the end is waited for, and one that lasts is an error.
    let report = document(&why(vec![page(1, 10), closes(), page(1, 50)], "100ms", "json"));
    assert_eq!(report["rpcs_followed"], 40.0, "{report}");
    let gone = why(vec![page(1, 10)], "100ms", "json");
    assert_eq!(code(&gone), 2);
    assert!(stderr(&gone).contains("no answer of 127.0.0.1:"), "{}", stderr(&gone));
}

#[test]
fn a_server_that_falls_silent_takes_only_its_own_part_away() {
    let calls = |rpcs| page(1, rpcs, &followed(("client", "wait"), rpcs));
    let engine = || endpoint(vec![calls(10), calls(90)]);
    let why = |server: Vec<Answer>| {
        let command = ["why", &engine(), "--server", &endpoint(server), "--for", "100ms"];
        document(&homa(&[&command[..], &["--format", "json"]].concat()))
    };
    let report = why(vec![page(1, 10, "")]);
    assert_eq!((&report["rpcs_followed"], &report["advice"]), (&80.0.into(), &"ask_server".into()));
    let note = report["notes"][0].as_str().expect("a note");
    assert!(note.contains("did not answer for") && note.ends_with("without its part."), "{note}");
    // It answers, and followed no call.
    let report = why(vec![page(1, 10, ""), page(1, 10, "")]);
    assert_eq!(report["advice"], "ask_server", "{report}");
    assert_eq!(report["slow"]["server_followed_only"], 0.0, "{report}");
    assert!(report["notes"].as_array().is_some_and(Vec::is_empty), "{report}");
}
