//! A process that was stopped finds answers in its sockets. Only time in which it ran itself counts
//! as silence of its peers.

use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::Driver;
use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{self, Completion, Wait};
use homa::proto::{self, Rate};
use homa::{CallError, CallOptions, Config, Engine};

use crate::alone::{is_alone, process_of, this_test};
use crate::before::Before;
use crate::common::{echo, message};
use crate::datagram;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The profiles with a wire format. The timeout for silent servers, if the profile has one, is set
/// to `timeout`.
fn profiles(timeout: Duration) -> [(&'static str, Config); 3] {
    let timeout = proto::Duration::nanos(timeout.as_nanos() as u64);
    let paper = Config::default().protocol(proto::Config::sigcomm18(Rate::gbps(10)));
    [("default", Config::default()), ("linux", Config::linux()), ("sigcomm18", paper)].map(
        |(name, mut config)| {
            config.protocol.loss.timeout = config.protocol.loss.timeout.map(|_| timeout);
            (name, config)
        },
    )
}

/// Sends datagrams that are no packets.
fn noise(from: &mut impl Driver, to: SocketAddr, count: usize) {
    (0..count).for_each(|_| datagram::send(from, to, vec![0xee; 40]));
}

/// Makes a first call, after which the server knows the client.
fn introduce(client: &mut inline::Engine, server: &mut inline::Engine) {
    client.call(server.local_addr(), "hello", 1, &CallOptions::default()).unwrap();
    loop {
        client.poll(Wait::No).unwrap();
        server.poll(Wait::No).unwrap();
        if let Some(Completion::Request { id, bytes, .. }) = server.next() {
            server.reply(id, bytes).unwrap();
        }
        if let Some(Completion::Response { result, .. }) = client.next() {
            assert_eq!(result.unwrap(), *b"hello");
            return;
        }
    }
}

#[test]
fn timers_wait_until_earlier_arrivals_are_read() {
    for (profile, config) in profiles(Duration::from_millis(100)) {
        let network = MemoryNetwork::new(1, NetworkFaults::default());
        let open = |at: &str| network.driver(at.parse().unwrap()).unwrap();
        let inline = |at| inline::Engine::with_driver(Box::new(open(at)), config.clone()).unwrap();
        let (mut server, mut client) = (inline("10.0.0.1:1"), inline("10.0.0.2:2"));
        let mut stranger = open("10.0.0.3:3");
        server.listen().unwrap();
        introduce(&mut client, &mut server);
        client.call(server.local_addr(), "ping", 7, &CallOptions::default()).unwrap();
        client.poll(Wait::No).unwrap();
        // More datagrams than a turn receives arrive before the response.
        noise(&mut stranger, client.local_addr(), 3_000);
        while server.in_progress().1 == 0 || !server.poll(Wait::No).unwrap() {
            server.poll(Wait::No).unwrap();
        }
        let Some(Completion::Request { id, bytes, .. }) = server.next() else { panic!() };
        server.reply(id, bytes).unwrap();
        server.poll(Wait::No).unwrap();
        // The client does not run meanwhile.
        thread::sleep(Duration::from_millis(150));
        let begun = Instant::now();
        let result = loop {
            client.poll(Wait::No).unwrap();
            if let Some(Completion::Response { result, .. }) = client.next() {
                break result;
            }
            assert!(begun.elapsed() < GIVE_UP, "{profile}");
        };
        assert_eq!(result.unwrap(), *b"ping", "{profile}");
        assert_eq!(client.metrics().protocol.resends_sent, 0, "{profile}");
    }
}

#[test]
fn timers_run_while_packets_arrive_without_end() {
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let open = |at: &str| network.driver(at.parse().unwrap()).unwrap();
    let mut stranger = open("10.0.0.3:3");
    let driver = open("10.0.0.2:2");
    // At first there are also more datagrams than a turn receives.
    noise(&mut stranger, driver.local()[0], 4_000);
    let silent = open("10.0.0.1:1");
    // The socket never becomes empty.
    let hook = move |driver: &dyn Driver| noise(&mut stranger, driver.local()[0], 64);
    let flooded = Box::new(Before { driver, hook });
    let mut client = inline::Engine::with_driver(flooded, Config::default()).unwrap();
    let options = CallOptions::deadline(Duration::from_millis(50));
    client.call(silent.local()[0], "ping", 7, &options).unwrap();
    let begun = Instant::now();
    let result = loop {
        client.poll(Wait::No).unwrap();
        if let Some(Completion::Response { result, .. }) = client.next() {
            break result;
        }
        assert!(begun.elapsed() < GIVE_UP, "timers never ran");
    };
    assert!(matches!(result, Err(CallError::DeadlineExceeded)), "{result:?}");
    assert!(client.metrics().protocol.resends_sent > 0);
}

/// Set in the process that is stopped. It contains driver, profile and server.
const STOPPED: &str = "HOMA_TEST_STOPPED";
/// Longer than the client waits for a silent server.
const STOP: Duration = Duration::from_millis(350);
const TIMEOUT: Duration = Duration::from_millis(250);
const CALLS: usize = 16;
const BYTES: usize = 1_000_000;

fn open(driver: &str, ip: &str, config: &Config) -> Engine {
    let at = SocketAddr::new(ip.parse().unwrap(), 0);
    let open = if driver == "udp" { Engine::bind } else { Engine::raw_ip };
    open(at, config.clone()).unwrap()
}

fn config_of(profile: &str) -> Config {
    profiles(TIMEOUT).into_iter().find(|(name, _)| *name == profile).unwrap().1
}

/// Runs in the process that is stopped: makes 16 calls at a time until its input ends.
fn call_until_told(job: &str) {
    let words: Vec<&str> = job.split(' ').collect();
    let [driver, profile, server] = words[..] else { panic!("{job}") };
    let client = open(driver, "127.0.0.2", &config_of(profile)).client();
    let server: SocketAddr = server.parse().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        told.store(true, Ordering::Relaxed);
    });
    println!("begun");
    let request = message(BYTES, 1);
    let caller = |_| {
        let (client, over, request) = (client.clone(), over.clone(), request.clone());
        thread::spawn(move || {
            let mut results = Vec::new();
            while results.is_empty() || !over.load(Ordering::Relaxed) {
                let response = client.call(server, request.clone());
                results.push(response.map(|response| assert!(*response == *request)));
            }
            results
        })
    };
    let callers: Vec<_> = (0..CALLS).map(caller).collect();
    let results: Vec<_> = callers.into_iter().flat_map(|c| c.join().unwrap()).collect();
    let failures: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    println!("{} calls, {} failed {failures:?}", results.len(), failures.len());
}

/// Stops a client five times while it calls a server in this process.
fn stop_a_client(driver: &str) {
    for (profile, config) in profiles(TIMEOUT) {
        let server = open(driver, "127.0.0.1", &config);
        let echo = echo(server.serve().unwrap());
        let job = format!("{driver} {profile} {}", server.local_addr());
        let mut command = process_of(&this_test());
        let piped = command.env(STOPPED, job).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().any(|line| line.ends_with("begun")));
        let signal = |name: &str| {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([name, pid.as_str()]).status().unwrap().success());
        };
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(60));
            signal("-STOP");
            thread::sleep(STOP);
            signal("-CONT");
        }
        drop(child.stdin.take());
        let said = lines.find(|line| line.contains(" calls, ")).expect("it ends by itself");
        assert!(child.wait().unwrap().success());
        assert!(said.contains(" 0 failed"), "{driver}, {profile}: {said}");
        println!("{driver}, {profile}: {said}");
        let _ = server.drain(Duration::from_millis(100));
        assert!(echo.join().unwrap() >= CALLS);
    }
}

#[test]
fn a_process_that_is_stopped_loses_no_call_over_udp() {
    if let Ok(job) = std::env::var(STOPPED) {
        return call_until_told(&job);
    }
    stop_a_client("udp");
}

#[test]
fn a_process_that_is_stopped_loses_no_call_over_raw_ip() {
    if let Ok(job) = std::env::var(STOPPED) {
        return call_until_told(&job);
    }
    if is_alone() {
        stop_a_client("raw-ip");
    }
}
