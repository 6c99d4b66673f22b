//! `homa why` on engines whose RPCs are slow for a known reason.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::metrics::http::Exporter;
use homa::proto::{Overcommitment, Rate};
use homa::{CallOptions, Config, Engine, Server};
use serde_json::Value;

use crate::common::{code, document, homa, stderr};
use crate::operating::observed;
use crate::server as process;

fn engine(config: Config) -> Engine {
    Engine::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config).expect("an engine")
}

/// Threads that answer requests.
const HANDLERS: usize = 8;

/// Answers after a pause, until the engine drains.
fn serve(server: &Server, pause: Duration) {
    while let Some(request) = server.accept() {
        thread::sleep(pause);
        let _ = request.reply(Vec::<u8>::new());
    }
}

/// What calls.
struct Load<'a> {
    client: &'a Engine,
    threads: usize,
    bytes: usize,
}

impl Load<'_> {
    /// Calls until it ends.
    fn call(&self, at: SocketAddr, pause: Duration, ends: &AtomicBool) {
        let client = self.client.client();
        let options = CallOptions::deadline(Duration::from_secs(20));
        while !ends.load(Ordering::Relaxed) {
            let _ = client.call_with(at, vec![7; self.bytes], &options);
            thread::sleep(pause);
        }
    }
}

/// What a command reports. Only one RPC in 16 is followed, so it is repeated if the machine was too
/// busy for one to end in time.
fn reported(command: &[&str]) -> Output {
    let mut outputs = (0..20).map(|_| homa(command));
    let followed = |output: &Output| code(output) != 0 || !document(output)["slow"].is_null();
    outputs.find(followed).expect("an RPC in 16 is followed")
}

/// What a command reports while clients call the server, whose handlers pause.
fn during(loads: &[Load<'_>], server: &Engine, pause: Duration, command: &[&str]) -> Value {
    let (ends, at) = (AtomicBool::new(false), server.local_addr());
    let serving = server.serve().expect("a server");
    thread::scope(|scope| {
        (0..HANDLERS).for_each(|_| {
            scope.spawn(|| serve(&serving, pause));
        });
        for load in loads {
            for _ in 0..load.threads {
                scope.spawn(|| load.call(at, Duration::ZERO, &ends));
            }
        }
        let output = reported(command);
        ends.store(true, Ordering::Relaxed);
        let _ = server.drain(Duration::from_secs(20));
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        document(&output)
    })
}

/// The number of a cause, 0 if slow RPCs spent no time on it.
fn of(report: &Value, cause: &str, number: &str) -> f64 {
    let causes = report["slow"]["causes"].as_array().expect("causes");
    let found = causes.iter().find(|of| of["cause"] == cause);
    found.map_or(0.0, |of| of[number].as_f64().expect("a number"))
}

/// The causes add up to the time of the slow RPCs, and the advice follows from the one that takes
/// most of it, if there are enough of them. How much one takes depends on what else the machine
/// does.
fn advises(report: &Value, cause: &str, expected: &[&str]) {
    let causes = report["slow"]["causes"].as_array().expect("causes");
    let shares: f64 = causes.iter().filter_map(|of| of["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{report}");
    let advice = report["advice"].as_str().expect("advice");
    let followed = report["slow"]["followed"].as_f64().expect("a number");
    if followed < 10.0 {
        assert_eq!(advice, "too_few", "{report}");
    } else {
        assert!(of(report, cause, "share") < 0.5 || expected.contains(&advice), "{report}");
    }
}

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
        let load = [Load { client: &client, threads: HANDLERS, bytes: 100 }];
        let of = of(&here, &there);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let command = [&["why"], &of[..], &["--for", "2s", "--format", "json"]].concat();
        during(&load, &server, Duration::from_millis(20), &command)
    };
    // No pause is shorter than asked for, and at most 250 us of it count as the link's round trip.
    let finds = |report: &Value, direction: &str, cause: &str, advice: &str| {
        assert_eq!(report["slow"]["direction"], direction, "{report}");
        assert!(of(report, cause, "mean_us") >= 19_750.0, "{report}");
        advises(report, cause, &[advice]);
    };
    let of_server = why(&|_, there| vec![there.into()]);
    finds(&of_server, "server", "application", "application");
    // A client alone cannot tell the server from the network.
    let of_client = why(&|here, _| vec![here.into()]);
    finds(&of_client, "client", "server_or_network", "ask_server");
    let of_both = why(&|here, there| vec![here.into(), "--server".into(), there.into()]);
    finds(&of_both, "client", "application", "application");
}

#[test]
fn a_full_link_is_found_at_its_sender() {
    let client = engine(Config::default().link_rate(Rate::mbps(20)));
    let server = engine(Config::default());
    let (_page, at) = page(&client);
    let load = [Load { client: &client, threads: 16, bytes: 2_000 }];
    let command = ["why", &at, "--for", "3s", "--format", "json"];
    let report = during(&load, &server, Duration::ZERO, &command);
    // The bytes of a request take 800 us of the link, and those of 15 others are before them.
    let best = report["slow"]["best_us"].as_f64().expect("a number");
    assert!(best >= 800.0 && of(&report, "queue", "mean_us") > best, "{report}");
    advises(&report, "queue", &["link_full", "processor"]);
}

#[test]
fn long_messages_that_wait_for_grants_are_found_at_their_sender() {
    let clients = [(); 6].map(|()| engine(Config::default()));
    // The server grants one message at a time.
    let protocol = Config::default().protocol.overcommitment(Overcommitment::Fixed(1));
    let server = engine(Config::default().protocol(protocol));
    let (_page, at) = page(&clients[0]);
    let load = clients.each_ref().map(|client| Load { client, threads: 4, bytes: 500_000 });
    let command = ["why", &at, "--for", "3s", "--format", "json"];
    let report = during(&load, &server, Duration::ZERO, &command);
    assert_eq!(report["slow"]["size"], "long", "{report}");
    // 23 messages wait for one.
    assert!(of(&report, "grant", "share") > 0.2, "{report}");
    advises(&report, "grant", &["grants"]);
}

#[test]
fn lost_packets_are_found() {
    // Three requests in four lose one of their packets. If many more were lost, all packets of a
    // size could be by chance, which is the sign of a path that takes smaller ones.
    let network = MemoryNetwork::new(3, NetworkFaults::NONE.lost(30_000));
    let [client, server] = [1, 2].map(|port| {
        let driver = network.driver(SocketAddr::from(([10, 0, 0, 1], port))).expect("a driver");
        Engine::with_driver(Box::new(driver), Config::default().plaintext()).expect("an engine")
    });
    let (_page, at) = page(&client);
    let load = [Load { client: &client, threads: 4, bytes: 60_000 }];
    let command = ["why", &at, "--for", "3s", "--format", "json"];
    let report = during(&load, &server, Duration::ZERO, &command);
    // A RESEND leaves after 2 ms at the earliest.
    assert!(of(&report, "loss", "mean_us") > 1_000.0, "{report}");
    advises(&report, "loss", &["network_loss", "processor"]);
}

/// Stops and continues a process until `ends`.
fn stop_now_and_then(process: u32, ends: &AtomicBool) {
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &process.to_string()]).status();
        assert!(status.expect("kill is there").success());
        thread::sleep(Duration::from_millis(100));
    };
    while !ends.load(Ordering::Relaxed) {
        signal("-STOP");
        signal("-CONT");
    }
}

#[test]
fn a_server_that_is_stopped_is_found_from_either_end() {
    let mut server = process::Server::start(&["--echo", "--metrics", "127.0.0.1:0"]);
    let (there, at) = (observed(&mut server), server.address.parse().expect("an address"));
    let client = engine(Config::default());
    let (_page, here) = page(&client);
    let load = Load { client: &client, threads: 32, bytes: 100 };
    let ends = AtomicBool::new(false);
    let [of_server, of_client, of_both] = thread::scope(|scope| {
        scope.spawn(|| stop_now_and_then(server.process(), &ends));
        for _ in 0..load.threads {
            // Often enough that each stop delays more than one call in 20.
            scope.spawn(|| load.call(at, Duration::from_millis(20), &ends));
        }
        let rest = ["--for", "4s", "--format", "json"];
        let of: [&[&str]; 3] = [&[&there], &[&here], &[&here, "--server", &there]];
        let outputs = of.map(|of| reported(&[&["why"], of, &rest].concat()));
        ends.store(true, Ordering::Relaxed);
        outputs.map(|output| {
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            document(&output)
        })
    });
    // A tenth of the time at the very least, and half if the machine is idle.
    assert!(of_server["stalled_s"].as_f64().is_some_and(|time| time > 0.4), "{of_server}");
    let is = |report: &Value, advice: &[&str]| {
        let few = report["slow"]["followed"].as_f64().is_some_and(|followed| followed < 10.0);
        let advice = if few { &["too_few"] } else { advice };
        assert!(advice.iter().any(|advice| report["advice"] == **advice), "{report}");
    };
    is(&of_server, &["processor"]);
    // The machine may be too busy for the client, too.
    is(&of_client, &["ask_server", "processor"]);
    is(&of_both, &["server_processor", "processor"]);
    server.terminate();
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
