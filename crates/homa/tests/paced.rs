//! On a paced link a thread that calls does not sleep before every packet: it would wake too late.

use homa::driver::memory::{Faults, Network};
use homa::proto::{Duration, Rate, UnscheduledLimit};
use homa::{CallOptions, Config, Engine};

/// Bytes of a request, all of which may leave unasked: nothing but the link is waited for.
const LENGTH: u32 = 1_000_000;

/// Times that the calling thread gave up its processor by itself.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_thread_does_not_sleep_before_every_packet_of_a_gigabit() {
    let mut config = Config::default().link_rate(Rate::gbps(1));
    config.protocol.unscheduled = UnscheduledLimit::Fixed(LENGTH);
    config.protocol.loss.resend_after = Duration::secs(10);
    // The server's host keeps what arrives, and nobody looks at it.
    let network = Network::new(1, Faults::default());
    let [from, to] = ["10.0.0.1:1", "10.0.0.2:1"].map(|at| at.parse().unwrap());
    let _server = network.driver(to).unwrap();
    let client = Engine::with_driver(Box::new(network.driver(from).unwrap()), config).unwrap();
    let options = CallOptions::deadline(std::time::Duration::from_millis(500));
    let before = sleeps();
    let ended = client.client().call_with(to, vec![1; LENGTH as usize], &options);
    assert!(ended.is_err(), "nobody is there to answer");
    let (slept, metrics) = (sleeps() - before, client.metrics());
    assert!(metrics.driver.bytes_sent > LENGTH.into(), "{:?}", metrics.driver);
    let waits = metrics.engine.pacer_waits;
    assert!(waits > 200, "{waits} waits for the link");
    assert!(slept < 20, "slept {slept} times in {waits} waits for the link");
}
