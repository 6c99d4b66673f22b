//! On a paced link a calling thread does not sleep before every packet, because it would wake too
//! late. It does not poll the sockets before every packet, either.

use std::{thread, time};

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::inline::{self, Completion};
use homa::proto::{Duration, Rate, UnscheduledLimit};
use homa::{CallOptions, Config, Engine};

/// The length of a request. All of it is unscheduled, so the client waits only for the link.
const LENGTH: u32 = 1_000_000;
/// The addresses of client and server.
const ENDS: [&str; 2] = ["10.0.0.1:1", "10.0.0.2:1"];

/// Returns how often the calling thread gave up its processor by itself.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Returns a configuration for a gigabit link, by which a whole request is unscheduled.
fn config() -> Config {
    let mut config = Config::default().link_rate(Rate::gbps(1));
    config.protocol.unscheduled = UnscheduledLimit::Fixed(LENGTH);
    config.protocol.loss.resend_after = Duration::secs(10);
    config
}

/// Returns a client that has just made a call.
fn asks(network: &MemoryNetwork) -> inline::Engine {
    let [from, to] = ENDS.map(|at| at.parse().unwrap());
    let driver = Box::new(network.driver(from).unwrap());
    let mut client = inline::Engine::with_driver(driver, config()).unwrap();
    client.call(to, vec![1; LENGTH as usize], 0, &CallOptions::default()).unwrap();
    client
}

#[test]
fn a_thread_does_not_sleep_before_every_packet_of_a_gigabit() {
    // The server's host stores the packets, and no server reads them.
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let [from, to] = ENDS.map(|at| at.parse().unwrap());
    let _server = network.driver(to).unwrap();
    let client = Engine::with_driver(Box::new(network.driver(from).unwrap()), config()).unwrap();
    let options = CallOptions::deadline(time::Duration::from_millis(500));
    let before = sleeps();
    let ended = client.client().call_with(to, vec![1; LENGTH as usize], &options);
    assert!(ended.is_err(), "no server answers");
    let (slept, metrics) = (sleeps() - before, client.metrics());
    assert!(metrics.driver.bytes_sent > LENGTH.into(), "{:?}", metrics.driver);
    let waits = metrics.engine.pacer_waits;
    assert!(waits > 200, "{waits} waits for the link");
    assert!(slept < 20, "slept {slept} times in {waits} waits for the link");
    let looks = metrics.driver.receive_calls;
    assert!(looks < waits * 3 / 4, "{looks} looks in {waits} waits for the link");
}

#[test]
fn turn_without_arrivals_does_not_poll_before_every_packet() {
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let _server = network.driver(ENDS[1].parse().unwrap()).unwrap();
    let mut client = asks(&network);
    let mut turns = 0;
    while client.metrics().driver.bytes_sent < LENGTH.into() {
        thread::sleep(client.timeout().expect("the rest is to be sent"));
        client.turn_without_arrivals();
        turns += 1;
    }
    // Timers may also cause a few receive calls.
    let looks = client.metrics().driver.receive_calls;
    assert!(looks < 10 && turns > 10, "{looks} looks in {turns} turns");
}

#[test]
fn a_timer_finds_arrivals_that_a_loop_did_not_poll_for() {
    let mut config = Config::default();
    config.protocol.loss.resend_after = Duration::millis(1);
    let at = "127.0.0.1:0".parse().unwrap();
    let mut client = inline::Engine::bind(at, config).unwrap();
    let server = Engine::bind(at, Config::default()).unwrap().serve().unwrap();
    let to = server.local_addr();
    thread::spawn(move || server.accept().map(|request| request.reply("an answer")));
    client.call(to, "a question", 0, &CallOptions::default()).unwrap();
    while !client.turn_without_arrivals() {
        thread::sleep(client.timeout().expect("the call has a deadline"));
    }
    let Some(Completion::Response { result, .. }) = client.next() else { panic!() };
    assert_eq!(result.unwrap(), b"an answer"[..]);
}

#[test]
fn a_loop_that_does_not_poll_learns_that_a_port_is_closed() {
    let network = MemoryNetwork::new(1, NetworkFaults::default());
    let mut client = asks(&network);
    while !client.turn_without_arrivals() {
        thread::sleep(client.timeout().expect("the call has a deadline"));
    }
    let sent = client.metrics().driver.bytes_sent;
    assert!(sent < u64::from(LENGTH) / 2, "{sent} bytes were sent without a reader");
}
