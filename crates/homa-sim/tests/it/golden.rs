//! Recorded results of every scheme in every conformance network: trace hash, slowdowns at three
//! sizes, and losses.
//!
//! A change that should not alter results must leave these tables as they are. If it should alter
//! them, its commit says so and records them again with `INSTA_UPDATE=always cargo test -p
//! homa-rpc-sim --test it golden`. A new scheme gets its own file under `tests/it/snapshots`.

use std::fmt::Write;

use homa_sim::experiment::run;
use homa_sim::scenario::{
    Exchange, PacerOptions, PhantomOptions, ScenarioOutcome, SchemeOptions, Span, TcpOptions,
};
use homa_sim::scheme::{Scheme, find};

use crate::common::{networks, scenario, transports};

/// The table shows the slowdown at these shares of the messages, ordered by size.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

fn row(outcome: &ScenarioOutcome) -> String {
    let buckets = &outcome.slowdown.buckets;
    let at = SHARES.map(|share| {
        let bucket = buckets.iter().find(|bucket| bucket.cum_share >= share - 1e-9);
        let bucket = bucket.expect("the last bin reaches 1");
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        format!("{:>9} {:>9}", text(bucket.p50), text(bucket.p99))
    });
    let drops = outcome.drops;
    format!(
        "{} {} {:>5} {:>5} {:>5}",
        outcome.trace_hash,
        at.join(" "),
        drops.overflow,
        drops.fault,
        drops.refused
    )
}

/// Schemes whose tables were recorded with one permanent connection per pair of hosts, as some
/// papers ran them (HULL §6, Homa/Linux). Their default is a connection per message.
const ONE_CONNECTION: [&str; 10] = [
    "tcp",
    "tcp-newreno",
    "tcp-ecn",
    "dctcp",
    "hull",
    "tcp-droptail",
    "dctcp-30k",
    "dctcp-6k-pacer",
    "tcp-ecn-pq",
    "tcp-qos",
];

/// Schemes whose NICs pace.
const PACED: [&str; 3] = ["hull", "dctcp-6k-pacer", "tcp-ecn-pq"];

/// The options of published figures where the default of a scheme is another.
fn published(scheme: &Scheme) -> SchemeOptions {
    let tcp = TcpOptions { connections: Some(1), ..TcpOptions::default() };
    // HULL §6: 1 KB.
    let phantom = PhantomOptions { threshold: Some(1_000.into()), ..PhantomOptions::default() };
    // HULL §6.3.
    let pacer = PacerOptions {
        period: Some(Span::nanos(7_200)),
        beta: Some(375.0),
        ..PacerOptions::default()
    };
    SchemeOptions {
        pacer: PACED.contains(&scheme.name).then_some(pacer),
        tcp: ONE_CONNECTION.contains(&scheme.name).then_some(tcp),
        phantom: (scheme.name == "hull").then_some(phantom),
        ..SchemeOptions::default()
    }
}

fn table(scheme: &Scheme, options: &SchemeOptions) -> String {
    let head = "network, exchange; trace hash; p50 and p99 at 10, 50 and 90 % of the messages; \
                frames that overflowed, frames lost to faults, packets refused";
    let mut table = format!("{head}\n");
    let exchanges = [("one way", Exchange::OneWay), ("echo", Exchange::Echo)];
    for (network, fabric) in networks(scheme) {
        for (name, exchange) in exchanges {
            if exchange == Exchange::Echo && scheme.one_way_only {
                continue;
            }
            let mut scenario = scenario(scheme, "w3", exchange);
            scenario.fabric = fabric.clone();
            scenario.options = options.clone();
            scenario.stop.messages = Some(500);
            scenario.stop.drain_limit = Span::nanos(20_000_000);
            let outcome = run(&scenario, &mut |_| ());
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", scheme.name));
            let what = format!("{network}, {name}");
            writeln!(table, "{what:<42} {}", row(&outcome)).expect("a string grows");
        }
    }
    table
}

#[test]
fn every_scheme_reproduces_its_recorded_results() {
    for scheme in transports() {
        insta::assert_snapshot!(scheme.name, table(scheme, &published(scheme)));
    }
}

#[test]
fn a_connection_per_message_reproduces_its_results() {
    for name in ["tcp", "dctcp", "hull"] {
        let scheme = find(name).expect("a row");
        let name = format!("{name}-per-message");
        insta::assert_snapshot!(name, table(scheme, &SchemeOptions::default()));
    }
}
