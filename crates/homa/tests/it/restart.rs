//! Clients of a server that is killed while calls are in service, with real processes and real
//! ICMP.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use homa::{CallError, CallOptions, Config, Engine};

use crate::alone::process_of;
use crate::common::{echo, engine, message};

/// Set in the process of the server. It contains the address, and whether the server answers.
const SERVE_AT: &str = "HOMA_TEST_SERVE_AT";
const ANSWERS: &str = "HOMA_TEST_ANSWERS";

/// The server's process. It prints a line for each request that is in service.
pub struct Server {
    process: Child,
    pub at: SocketAddr,
    lines: BufReader<std::process::ChildStdout>,
}

impl Server {
    pub fn start(at: &str, answers: bool) -> Self {
        let mut process = process_of("restart::another_process_serves")
            .env(SERVE_AT, at)
            .env(ANSWERS, answers.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let at = line_after(&mut lines, "at ").parse().unwrap();
        Self { process, at, lines }
    }

    pub fn wait_for_request(&mut self) {
        line_after(&mut self.lines, "request");
    }
}

/// The process is killed when the handle is dropped, also if an assertion fails.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the first line that begins with `start`, and returns the rest of the line.
fn line_after(lines: &mut impl BufRead, start: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the server's process ended");
        if let Some((_, rest)) = line.trim_end().split_once(start) {
            return rest.into();
        }
    }
}

/// The server's process if [`SERVE_AT`] is set, and otherwise an empty test.
#[test]
fn another_process_serves() {
    let Ok(at) = std::env::var(SERVE_AT) else { return };
    let engine = Engine::bind(at.parse().unwrap(), Config::default()).unwrap();
    let server = engine.serve().unwrap();
    println!("\nat {}", engine.local_addr());
    if std::env::var(ANSWERS).as_deref() == Ok("true") {
        drop(echo(server).join());
        return;
    }
    let mut held = Vec::new();
    while let Some(request) = server.accept() {
        held.push(request);
        println!("request");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn a_dead_servers_calls_are_retried_or_indeterminate() {
    for ip in ["127.0.0.1", "::1"] {
        let client = engine(ip, Config::default());
        let mut server = Server::start(&SocketAddr::new(ip.parse().unwrap(), 0).to_string(), false);
        let to = server.at;
        let call = |options: CallOptions, seed| {
            let client = client.client();
            let request = message(3_000, seed);
            thread::spawn(move || client.call_with(to, request, &options))
        };
        let deadline = CallOptions::deadline(Duration::from_secs(60));
        let repeated = call(deadline.idempotent(), 1);
        let once = call(deadline, 2);
        server.wait_for_request();
        server.wait_for_request();
        drop(server);
        assert_eq!(once.join().unwrap(), Err(CallError::Indeterminate), "{ip}");
        let next = Server::start(&to.to_string(), true);
        assert!(repeated.join().unwrap().unwrap()[..] == message(3_000, 1), "{ip}");
        drop(next);
    }
}

#[test]
fn an_engine_whose_server_ended_reports_port_unreachable() {
    let (client, server) =
        (engine("127.0.0.1", Config::default()), engine("127.0.0.1", Config::default()));
    let to = server.local_addr();
    // The server cannot say so for calls made within a network delay of its start.
    let told = std::iter::repeat_with(|| client.client().call(to, "anybody?"))
        .take(1_000)
        .find(|told| *told != Err(CallError::Indeterminate));
    assert_eq!(told, Some(Err(CallError::PortUnreachable)));
    let serving = echo(server.serve().unwrap());
    assert!(client.client().call(to, "and now?").is_ok());
    server.drain(Duration::from_secs(5)).unwrap();
    serving.join().unwrap();
    assert_eq!(client.client().call(to, "still?"), Err(CallError::PortUnreachable));
}

#[test]
fn calls_to_a_port_without_a_server_were_not_executed() {
    for ip in ["127.0.0.1", "::1"] {
        let client = engine(ip, Config::default());
        let nobody = std::net::UdpSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
        let to = nobody.local_addr().unwrap();
        drop(nobody);
        // There are several calls at once, because reports come for trains and not for each packet.
        let calls: Vec<_> = (0..50)
            .map(|seed| {
                let client = client.client();
                thread::spawn(move || client.call(to, message(100 + 100 * seed, seed as u64)))
            })
            .collect();
        for call in calls {
            assert_eq!(call.join().unwrap(), Err(CallError::PortUnreachable), "{ip}");
        }
    }
}
