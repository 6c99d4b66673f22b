//! Networks that are set up otherwise than most: what a host's administrator may have changed.
//!
//! Each test gives itself a network namespace. Where there is none it says so and passes.

#[path = "common/alone.rs"]
mod alone;
mod common;

use std::fs;

use alone::is_alone;
use common::{echo, engine, message};
use homa::{Client, Config};

#[test]
fn a_client_reaches_both_families_whatever_the_system_sets_for_new_sockets() {
    if !is_alone("a_client_reaches_both_families_whatever_the_system_sets_for_new_sockets") {
        return;
    }
    if fs::write("/proc/sys/net/ipv6/bindv6only", "1").is_err() {
        return eprintln!("not run: /proc/sys cannot be written");
    }
    let client = Client::new().unwrap();
    for ip in ["127.0.0.1", "::1"] {
        let server = engine(ip, Config::default());
        echo(server.serve().unwrap());
        let answer = client.call(server.local_addr(), message(5_000, 1)).unwrap();
        assert!(answer == message(5_000, 1)[..], "{ip}");
    }
    let driver = client.engine().metrics().driver;
    assert_eq!(driver.ipv4_refused, 0);
}
