//! `homa serve` with the commands that talk to it, on loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::certificates;
use crate::common::{code, document, homa, keys, stderr};
use crate::folder::Folder;
use crate::refused::tried_without_namespaces;
use crate::server::Server;

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
fn an_empty_request_is_answered() {
    let server = Server::start(&[]);
    for request in [["--size", "0"], ["--data", ""]] {
        let output = homa(&[&["call", &server.address], &request[..]].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains("8 B in"), "the answer to 0 bytes: {}", stderr(&output));
    }
    server.terminate();
}

#[test]
fn all_addresses_of_a_name_are_served_and_tried() {
    let mut expected: Vec<_> = ("localhost", 0).to_socket_addrs().expect("a name").collect();
    expected.sort_unstable();
    expected.dedup();
    let mut server = Server::at("localhost:0", &["--echo"]);
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    for _ in 1..expected.len() {
        let next = server.line("listening on ");
        assert!(next != server.address && next.ends_with(&format!(":{port}")), "{next}");
    }
    let name = format!("localhost:{port}");
    let output = homa(&["call", &name]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"hello"[..]), "{}", stderr(&output));
    assert_eq!(code(&homa(&["ping", &name, "--count", "1"])), 0);
    server.terminate();
    // A server at the last of them.
    let at = expected.last().expect("an address").to_string();
    let server = Server::at(&at, &["--echo"]);
    let port = server.address.rsplit(':').next().expect("a port");
    let output = homa(&["call", &format!("localhost:{port}")]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"hello"[..]), "{}", stderr(&output));
    server.terminate();
}

#[test]
fn without_af_xdp_auto_says_so_once_and_xdp_what_to_do() {
    // Loopback is not an Ethernet interface.
    let server = Server::start(&["--echo", "--driver", "auto"]);
    let call = homa(&["call", &server.address, "--count", "3", "--driver", "auto"]);
    assert_eq!(code(&call), 0, "{}", stderr(&call));
    assert_eq!(stderr(&call).matches("using --driver udp").count(), 1, "{}", stderr(&call));
    let refused = homa(&["ping", &server.address, "--driver", "xdp"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--driver auto"), "{}", stderr(&refused));
    let end = server.terminate();
    assert_eq!(stderr(&end).matches("using --driver udp").count(), 1, "{}", stderr(&end));
}

#[test]
fn load_is_offered_at_a_rate_or_by_a_number_of_callers() {
    let server = Server::start(&["--echo"]);
    let call = |arguments: &[&str]| {
        let all = [&["call", &server.address, "--format", "json"], arguments].concat();
        document(&homa(&all))
    };
    let rate = call(&["--rate", "2k", "--count", "200", "--size", "100..2kB"]);
    assert_eq!((&rate["calls"], &rate["failed"]), (&200.into(), &0.into()), "{rate}");
    assert!((300..1800).contains(&rate["bytes"].as_u64().expect("a mean")), "{rate}");
    // A hundred milliseconds of arrivals, on average.
    assert!(rate["seconds"].as_f64().expect("a time") > 0.05, "{rate}");
    let counted = rate["histogram"].as_array().expect("bins").iter();
    assert_eq!(counted.map(|bin| bin["calls"].as_u64().expect("calls")).sum::<u64>(), 200);
    // Faster than one call after another can be.
    let fast = ["--rate", "1M", "--count", "5k", "--concurrency", "1"];
    let fast = homa(&[&["call", &server.address, "--format", "json"][..], &fast].concat());
    assert_eq!(code(&fast), 1, "{}", stderr(&fast));
    assert!(stderr(&fast).contains(" calls/s were reached"), "{}", stderr(&fast));
    let [offered, reached] = ["offered_per_second", "reached_per_second"]
        .map(|key| document(&fast)[key].as_f64().expect("a rate"));
    assert!((0.9e6..1.1e6).contains(&offered) && reached < 0.9e6, "{offered} {reached}");
    let callers = call(&["--concurrency", "8", "--duration", "200ms", "--size", "w1"]);
    assert_eq!(callers["failed"], 0, "{callers}");
    assert!(callers.get("offered_per_second").is_none(), "{callers}");
    assert!(callers["seconds"].as_f64().expect("a time") >= 0.2, "{callers}");
    let endless = homa(&["call", &server.address, "--rate", "5"]);
    assert_eq!(code(&endless), 2);
    assert!(stderr(&endless).contains("--duration"), "{}", stderr(&endless));
    server.terminate();
}

#[test]
fn a_server_that_is_gone_is_asked_less_often_and_named_once() {
    let server = Server::start(&["--echo"]);
    let address = server.address.clone();
    server.terminate();
    let gone = homa(&["call", &address, "--duration", "1s", "--deadline", "100ms"]);
    assert_eq!(code(&gone), 1);
    let said = [stderr(&gone), String::from_utf8(gone.stdout.clone()).expect("UTF-8")].concat();
    assert!(said.lines().count() < 10, "{said}");
    let reason = said.lines().find(|line| line.contains(" without an answer: ")).expect("why");
    let calls: u64 = reason.split(' ').next().and_then(|n| n.parse().ok()).expect("how many");
    assert!((2..=9).contains(&calls), "pauses of 10, 20, ... 640 ms between them: {said}");
    assert!(said.contains("hint: is a Homa server there?"), "{said}");
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
fn bench_peer_prints_a_line_that_repeats_it() {
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
    assert!(first.contains("idle round trip of ") && !first.contains("on the wire"), "{first}");
    server.terminate();
}

/// A running server and the address of its counters.
struct Counted {
    server: Server,
    metrics: String,
}

impl Counted {
    fn start() -> Self {
        let mut server = Server::start(&["--echo", "--metrics", "127.0.0.1:0"]);
        let url = server.line("metrics at http://");
        let metrics = url.strip_suffix("/metrics").expect("the path").to_owned();
        Self { server, metrics }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.metrics).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a timeout");
        stream
    }

    /// The answer to these bytes.
    fn say(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may have had enough before the end.
        let _ = stream.write_all(request);
        read(stream)
    }

    fn get(&self, path: &str) -> String {
        self.say(format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes())
    }
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer to its end");
    answer
}

/// The value of a counter.
fn value(answer: &str, name: &str) -> u64 {
    let line = answer.lines().find_map(|line| line.strip_prefix(name)).expect("the counter");
    line.trim().parse().expect("a number")
}

#[test]
fn the_counters_of_the_running_server_are_read_over_http() {
    let server = Counted::start();
    let before = server.get("/metrics");
    let (head, body) = before.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.lines().any(|line| line == format!("Content-Type: {kind}")), "{head}");
    assert!(head.lines().any(|line| line == format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let received = "homa_driver_datagrams_received_total";
    let call = homa(&["call", &server.server.address, "--count", "3"]);
    assert_eq!(code(&call), 0, "{}", stderr(&call));
    let after = server.get("/metrics?since=ever");
    assert!(value(&after, received) >= value(&before, received) + 3, "{after}");
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", "405"),
        (b"GET /metrics HTTP/1.0\n\n", "200"),
        (b"GET http://here/metrics?a HTTP/1.1\r\nHost: here\n\r\n", "200"),
        (b"GET http://here HTTP/1.1\r\n\r\n", "404"),
    ] {
        let answer = server.say(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let head = server.say(b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn silence_and_garbage_are_ended_and_hold_up_nobody() {
    let server = Counted::start();
    // One after the other they would exceed the deadline.
    let silent = server.connect();
    let mut slow: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /met").expect("written");
    }
    let gone = server.connect();
    gone.shutdown(Shutdown::Both).expect("it was open");
    assert!(server.get("/metrics").starts_with("HTTP/1.1 200 "));
    slow.push(silent);
    for held_up in slow {
        assert!(read(held_up).starts_with("HTTP/1.1 408 "));
    }
    for (garbage, status) in [
        (&b"\0\xff\xfe\r\n\r\n"[..], "400"),
        (b"GET /metrics SPDY/9\r\n\r\n", "400"),
        (&[b'x'; 100_000], "431"),
    ] {
        let answer = server.say(garbage);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert!(server.get("/metrics").starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_address_that_is_taken_is_refused_with_what_to_do() {
    let server = Counted::start();
    let output = homa(&["serve", "--bind", "127.0.0.1:0", "--metrics", &server.metrics]);
    assert_eq!(code(&output), 2);
    assert!(output.stdout.is_empty(), "it is no server");
    let said = stderr(&output);
    assert!(said.contains(&format!("no metrics at {}", server.metrics)), "{said}");
    assert!(said.contains("hint: choose a free TCP address"), "{said}");
}

#[test]
fn calls_with_the_key_of_a_new_file_are_encrypted() {
    let folder = Folder::new("keys");
    let path = |name: &str| folder.path(name);
    let (key, other) = (path("cluster.key"), path("other.key"));
    for file in [&key, &other] {
        let made = homa(&["key", "new", file]);
        assert_eq!(code(&made), 0, "{}", stderr(&made));
        let mode = std::fs::metadata(file).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let doctor = |file: &str, certificates: &[String]| {
        let mut line = vec!["doctor", "--key", file];
        line.extend(certificates.iter().map(String::as_str));
        // Where there can be no rack it tries none, which takes seconds and all cores.
        tried_without_namespaces(&line).unwrap_or_else(|| homa(&line))
    };
    let found = doctor(&key, &certificates::options(&folder, "valid", 2999));
    let missing = doctor(&path("none.key"), &[]);
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(code(&found) == 0 && text.contains("a cluster key that only its owner"), "{text}");
    assert!(text.contains("valid.crt expires in "), "{text}");
    assert_eq!(code(&missing), 1, "a file that cannot be used");
    let again = homa(&["key", "new", &key]);
    assert_eq!(code(&again), 2, "a key is never overwritten");
    let server = Server::start(&["--echo", "--key", &key]);
    // The name has several addresses on most machines, and the server is at one of them.
    let name = server.address.replace("127.0.0.1", "localhost");
    let call = homa(&["call", &name, "--data", "secret", "--key", &key]);
    assert_eq!((code(&call), &call.stdout[..]), (0, &b"secret"[..]), "{}", stderr(&call));
    for wrong in [&["--key", &other][..], &["--plaintext"], &[]] {
        let refused = homa(&[&["call", &server.address, "--deadline", "60s"], wrong].concat());
        assert_eq!(code(&refused), 2, "{wrong:?}");
        assert!(stderr(&refused).contains("--key"), "{wrong:?}: {}", stderr(&refused));
    }
    server.terminate();
    let server = Server::start(&["--echo", "--plaintext"]);
    let refused = homa(&["call", &server.address, "--key", &key]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("--plaintext"), "{}", stderr(&refused));
    server.terminate();
}

#[test]
fn other_hosts_need_a_key_or_the_choice_of_plaintext() {
    let other = "192.0.2.1:9";
    for arguments in [
        &["serve", "--bind", "0.0.0.0:0"][..],
        &["call", other],
        &["call", other, "--count", "9"],
        &["ping", other],
        &["bench", "--peer", other],
    ] {
        let refused = homa(arguments);
        assert_eq!(code(&refused), 2, "{arguments:?}");
        let text = stderr(&refused);
        assert!(text.contains("plaintext") && text.contains("homa key new"), "{text}");
        assert!(text.contains("hint: give --key FILE"), "{text}");
    }
    let chosen = homa(&["ping", other, "--plaintext", "--count", "1", "--deadline", "1ms"]);
    assert!(!stderr(&chosen).contains("homa key new"), "{}", stderr(&chosen));
}
