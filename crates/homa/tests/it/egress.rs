//! The interface by which packets leave, as the kernel reports it. Each test runs in a network
//! namespace of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use homa::doctor;
use homa::inline::{Engine, Wait};
use homa::proto::Rate;
use homa::{CallOptions, Config};

use crate::alone::is_alone;
use crate::common::{echo, engine, message};

/// Runs `ip`. Returns false if this kernel lacks this kind of interface.
fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    done.success()
}

/// Creates a bridge with one port, at 10.9.0.1.
fn bridge() -> bool {
    for step in ["link add br0 type bridge", "link add tap0 type veth peer name far"] {
        if !ip(step) {
            skip::test(&format!("a kernel that takes `ip {step}`"));
            return false;
        }
    }
    [
        "link set tap0 master br0",
        "link set tap0 up",
        "link set far up",
        "link set br0 up",
        "addr add 10.9.0.1/24 dev br0",
        "neigh add 10.9.0.2 lladdr 02:00:00:00:00:01 dev br0",
    ]
    .into_iter()
    .for_each(|step| assert!(ip(step), "ip {step}"));
    true
}

fn link_to(address: &str) -> (String, String, &'static str) {
    let found = doctor::link_to(address.parse().unwrap()).expect("a route");
    (found.interface, found.kind, found.certainty)
}

fn link(name: &str, kind: &str, certainty: &'static str) -> (String, String, &'static str) {
    (name.to_owned(), kind.to_owned(), certainty)
}

#[test]
fn interfaces_are_found_and_virtual_speeds_are_not_trusted() {
    if !is_alone() {
        return;
    }
    for own in ["127.0.0.1", "::1", "fd00::66"] {
        assert_eq!(link_to(own), link("lo", "loopback", "unlimited"));
    }
    assert_eq!(doctor::link_to([192, 0, 2, 1].into()), None, "no route leads there");
    if !bridge() {
        return;
    }
    assert_eq!(link_to("10.9.0.2"), link("br0", "bridge", "unknown"));
    assert_eq!(link_to("10.9.0.1"), link("lo", "loopback", "unlimited"));
    let up = doctor::links().unwrap();
    let veth = up.iter().find(|link| link.interface == "tap0").unwrap();
    assert_eq!((&*veth.kind, veth.certainty), ("veth", "unknown"));
    for (name, kind, more) in [
        ("one", "dummy", ""),
        ("two", "vlan", " id 7"),
        ("three", "bond", ""),
        ("four", "macvlan", ""),
    ] {
        let below = if matches!(kind, "vlan" | "macvlan") { " link far" } else { "" };
        if !ip(&format!("link add{below} name {name} type {kind}{more}")) {
            skip::part(&format!("a kernel with interfaces of kind {kind}"));
            continue;
        }
        assert!(ip(&format!("link set {name} up")));
        assert!(ip(&format!("addr add 10.9.7.1/24 dev {name}")));
        assert_eq!(link_to("10.9.7.2"), link(name, kind, "unknown"));
        assert!(ip(&format!("link del {name}")));
    }
}

/// The interfaces in the metrics, with the sources of their rates.
fn links(engine: &Engine) -> Vec<(String, &'static str)> {
    engine.metrics().links.into_iter().map(|link| (link.interface, link.source)).collect()
}

#[test]
fn an_engine_follows_its_routes_and_reports_their_rates() {
    if !is_alone() || !bridge() {
        return;
    }
    let server = engine("127.0.0.1", Config::default());
    echo(server.serve().unwrap());
    let mut client =
        Engine::bind("0.0.0.0:0".parse().unwrap(), Config::default().plaintext()).unwrap();
    assert_eq!(links(&client), []);
    let nobody = "10.9.0.2:4000".parse().unwrap();
    client.call(nobody, message(300_000, 1), 0, &CallOptions::default()).unwrap();
    client.call(server.local_addr(), message(300_000, 2), 1, &CallOptions::default()).unwrap();
    let known = [("br0".to_owned(), "unknown"), ("lo".to_owned(), "unlimited")];
    assert_eq!(links(&client), known);
    let text = client.metrics().to_openmetrics();
    let line = "homa_egress_rate_bits_per_second{interface=\"br0\",source=\"unknown\"} NaN\n";
    assert!(text.contains(line), "{text}");
    assert!(ip("addr add 10.9.1.1/24 dev far"));
    assert!(ip("route add 10.9.0.2/32 dev far"));
    let start = Instant::now();
    while links(&client).iter().all(|(interface, _)| interface != "far") {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", links(&client));
        std::thread::sleep(Duration::from_millis(50));
        client.poll(Wait::No).unwrap();
        client.call(nobody, message(100, 1), 0, &CallOptions::default()).unwrap();
    }
}

#[test]
fn the_users_word_counts_more_than_any_route() {
    if !is_alone() {
        return;
    }
    let server = engine("127.0.0.1", Config::default());
    echo(server.serve().unwrap());
    let config = Config::default().link_rate(Rate::gbps(1));
    let mut client = Engine::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    client.call(server.local_addr(), message(300_000, 2), 1, &CallOptions::default()).unwrap();
    assert_eq!(links(&client), [("*".to_owned(), "configured")]);
    let text = client.metrics().to_openmetrics();
    assert!(text.contains("{interface=\"*\",source=\"configured\"} 1000000000\n"), "{text}");
}
