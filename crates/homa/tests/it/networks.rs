//! Networks with unusual settings that an administrator may have made.
//!
//! Each test creates a network namespace. If the system allows none, it prints a line and passes.

use std::fs;
use std::process::Command;

use homa::inline::{Engine, Wait};
use homa::{CallOptions, Client, Config};

use crate::alone::is_alone;
use crate::common::{echo, engine, message};

#[test]
fn a_client_reaches_both_families_despite_bindv6only() {
    if !is_alone() {
        return;
    }
    if fs::write("/proc/sys/net/ipv6/bindv6only", "1").is_err() {
        return skip::test("a writable /proc/sys");
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

/// Returns how many fragments of IPv4 packets this host made.
fn fragments() -> u64 {
    let snmp = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut rows = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, counts) = (rows.next().unwrap(), rows.next().unwrap());
    let mut columns = names.split(' ').zip(counts.split(' '));
    columns.find(|&(name, _)| name == "FragCreates").unwrap().1.parse().unwrap()
}

#[test]
fn datagrams_fit_into_the_link_that_the_route_takes() {
    if !is_alone() {
        return;
    }
    for step in [
        "link add narrow mtu 1300 type veth peer name far",
        "addr add 10.9.0.1/24 dev narrow",
        "link set far up",
        "link set narrow up",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:01 dev narrow",
    ] {
        let done = Command::new("ip").args(step.split(' ')).status().unwrap();
        if !done.success() && step.starts_with("link add") {
            skip::test("veth pairs");
            return;
        }
        assert!(done.success(), "ip {step}");
    }
    let mut client =
        Engine::bind("10.9.0.1:0".parse().unwrap(), Config::default().plaintext()).unwrap();
    let to = "10.9.0.2:4000".parse().unwrap();
    client.call(to, message(10_000, 1), 0, &CallOptions::default()).unwrap();
    while client.metrics().driver.bytes_sent < 10_000 {
        assert_eq!(client.in_progress().0, 1, "the call ended before it was sent");
        client.poll(Wait::No).unwrap();
    }
    assert_eq!(fragments(), 0);
}
