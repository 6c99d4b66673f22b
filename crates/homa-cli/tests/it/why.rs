//! `homa why` on engines whose RPCs are slow for a known reason.

use std::net::SocketAddr;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::metrics::http::Exporter;
use homa::proto::{Overcommitment, Rate};
use homa::{CallOptions, Config, Engine, Server};
use serde_json::Value;

use crate::common::{code, document, homa, stderr};

fn engine(config: Config) -> Engine {
    Engine::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config).expect("an engine")
}

/// Echoes after a pause, until the engine drains.
fn serve(server: Server, pause: Duration) {
    while let Some(mut request) = server.accept() {
        let bytes = request.take_bytes();
        thread::sleep(pause);
        let _ = request.reply(bytes);
    }
}

/// What calls.
struct Load<'a> {
    client: &'a Engine,
    threads: usize,
    bytes: usize,
}

/// Runs a command while clients call the server, whose handlers pause.
fn during(loads: &[Load<'_>], server: &Engine, pause: Duration, command: &[&str]) -> Output {
    let (ends, at) = (AtomicBool::new(false), server.local_addr());
    let serving = server.serve().expect("a server");
    thread::scope(|scope| {
        let served = scope.spawn(move || serve(serving, pause));
        for load in loads {
            for _ in 0..load.threads {
                scope.spawn(|| {
                    let client = load.client.client();
                    let options = CallOptions::deadline(Duration::from_secs(20));
                    while !ends.load(Ordering::Relaxed) {
                        let _ = client.call_with(at, vec![7; load.bytes], &options);
                    }
                });
            }
        }
        let output = homa(command);
        ends.store(true, Ordering::Relaxed);
        let _ = server.drain(Duration::from_secs(20));
        served.join().expect("the server ends");
        output
    })
}

fn report(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    document(output)
}

/// The share of a cause among the slow RPCs.
fn share(report: &Value, cause: &str) -> f64 {
    let causes = report["slow"]["causes"].as_array().expect("causes");
    let found = causes.iter().find(|of| of["cause"] == cause);
    found.map_or(0.0, |of| of["share"].as_f64().expect("a number"))
}

/// A machine that is busy with other tests may keep the process from running, so the advice may be
/// to give it more time.
fn advises(report: &Value, expected: &str) {
    let advice = report["advice"].as_str().expect("advice");
    assert!([expected, "processor"].contains(&advice), "{report}");
}

const SECOND: [&str; 4] = ["--for", "1s", "--format", "json"];

/// An engine's metrics endpoint, and its address.
fn page(of: &Engine) -> (Exporter, String) {
    let page = Exporter::loopback(of, 0).expect("a page");
    let at = page.local_addr().to_string();
    (page, at)
}

#[test]
fn slow_handlers_are_found_from_either_end() {
    let why = |of: &dyn Fn(&str, &str) -> Vec<String>| {
        let (client, server) = (engine(Config::default()), engine(Config::default()));
        let ((_of_client, here), (_of_server, there)) = (page(&client), page(&server));
        let load = [Load { client: &client, threads: 1, bytes: 100 }];
        let of = of(&here, &there);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let command = [&["why"], &of[..], &["--for", "2s", "--format", "json"]].concat();
        // Longer than other tests on this machine keep a thread from running.
        report(&during(&load, &server, Duration::from_millis(20), &command))
    };
    let of_server = why(&|_, there| vec![there.into()]);
    advises(&of_server, "application");
    assert!(share(&of_server, "application") > 0.5, "{of_server}");
    assert_eq!(of_server["slow"]["direction"], "server");
    // A client alone cannot tell the server from the network.
    let of_client = why(&|here, _| vec![here.into()]);
    advises(&of_client, "ask_server");
    let of_both = why(&|here, there| vec![here.into(), "--server".into(), there.into()]);
    advises(&of_both, "application");
    assert!(share(&of_both, "application") > 0.5, "{of_both}");
}

#[test]
fn a_full_link_is_found_at_its_sender() {
    let client = engine(Config::default().link_rate(Rate::mbps(20)));
    let server = engine(Config::default());
    let (_page, at) = page(&client);
    let load = [Load { client: &client, threads: 16, bytes: 20_000 }];
    let command = [&["why", &*at], &SECOND[..]].concat();
    let report = report(&during(&load, &server, Duration::ZERO, &command));
    advises(&report, "link_full");
    assert!(share(&report, "queue") > 0.5, "{report}");
}

#[test]
fn long_messages_that_wait_for_grants_are_found_at_their_sender() {
    let clients = [(); 6].map(|()| engine(Config::default()));
    // The server grants one message at a time.
    let protocol = Config::default().protocol.overcommitment(Overcommitment::Fixed(1));
    let server = engine(Config::default().protocol(protocol));
    let (_page, at) = page(&clients[0]);
    let load = clients.each_ref().map(|client| Load { client, threads: 4, bytes: 500_000 });
    let command = ["why", &at, "--for", "5s", "--format", "json"];
    let report = report(&during(&load, &server, Duration::ZERO, &command));
    advises(&report, "grants");
    assert!(share(&report, "grant") > 0.5, "{report}");
    assert_eq!(report["slow"]["size"], "long", "{report}");
}

#[test]
fn lost_packets_are_found() {
    let network = MemoryNetwork::new(3, NetworkFaults::NONE.lost(100_000));
    let [client, server] = [1, 2].map(|port| {
        let driver = network.driver(SocketAddr::from(([10, 0, 0, 1], port))).expect("a driver");
        Engine::with_driver(Box::new(driver), Config::default().plaintext()).expect("an engine")
    });
    let (_page, at) = page(&client);
    let load = [Load { client: &client, threads: 4, bytes: 3_000 }];
    let command = ["why", &at, "--for", "3s", "--format", "json"];
    let report = report(&during(&load, &server, Duration::ZERO, &command));
    advises(&report, "network_loss");
    assert!(share(&report, "loss") > 0.5, "{report}");
}

#[test]
fn a_report_needs_an_endpoint_but_no_rpcs() {
    let server = engine(Config::default());
    let (_page, at) = page(&server);
    let output = homa(&["why", &at, "--for", "100ms"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("No RPC that was followed ended"), "{text}");
    let closed = homa(&["why", "127.0.0.1:1"]);
    assert_eq!(code(&closed), 2);
    assert!(stderr(&closed).contains("no metrics at 127.0.0.1:1"), "{}", stderr(&closed));
}
