//! A link that is down for a moment while calls are in progress (RFC 1122 §4.2.3.9).
//!
//! Each test creates network namespaces. If the system allows none, it prints a line and passes.

use std::thread;
use std::time::Duration;

use homa::{CallOptions, Config, Engine};

use crate::alone::is_alone;
use crate::common::{engine, message};
use crate::hosts::Host;

/// Waits until an engine's system refused a packet.
fn wait_for_refusal(engine: &Engine, before: u64) {
    while engine.metrics().driver.trains_refused == before {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The server answers a call with BUSY. Then the link of the client, or of the server, is down
/// until the system refuses a packet of that end.
fn call_over_a_flapping_link(of_client: bool) {
    let Some([client, server]) = Host::pair() else { return };
    let there = server.run(|| engine("10.8.0.2", Config::default().plaintext()));
    let accepting = there.serve().unwrap();
    let here = client.run(|| engine("10.8.0.1", Config::default().plaintext()));
    let (to, caller) = (there.local_addr(), here.client());
    let options = CallOptions::deadline(Duration::from_secs(60));
    let call = thread::spawn(move || caller.call_with(to, message(3_000, 1), &options));
    let request = accepting.accept().unwrap();
    while here.metrics().protocol.busys_received == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let (host, link, end) = match of_client {
        true => (&client, "near", &here),
        false => (&server, "far", &there),
    };
    let before = end.metrics().driver.trains_refused;
    host.ip(&format!("link set {link} down"));
    match of_client {
        true => {
            wait_for_refusal(end, before);
            host.ip(&format!("link set {link} up"));
            request.reply(message(3_000, 2)).unwrap();
        }
        false => {
            request.reply(message(3_000, 2)).unwrap();
            wait_for_refusal(end, before);
            host.ip(&format!("link set {link} up"));
        }
    }
    assert!(call.join().unwrap().unwrap()[..] == message(3_000, 2), "{of_client}");
}

#[test]
fn a_call_survives_a_link_that_is_down_for_a_moment() {
    if is_alone() {
        call_over_a_flapping_link(true);
    }
}

#[test]
fn a_reply_survives_a_link_that_is_down_for_a_moment() {
    if is_alone() {
        call_over_a_flapping_link(false);
    }
}
