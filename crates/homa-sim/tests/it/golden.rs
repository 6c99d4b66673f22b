//! What every scheme did in every conformance network when its results were last looked at: trace
//! hash, slowdowns at three sizes, losses.
//!
//! A change that is not meant to alter results must leave these tables alone. One that is meant to
//! says so in its commit, and renews them: `INSTA_UPDATE=always cargo test -p homa-sim --test
//! it golden`. A new scheme gets its own file under `tests/it/snapshots`.

use std::fmt::Write;

use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Outcome, Span};
use homa_sim::scheme::Scheme;

use crate::common::{networks, scenario, transports};

/// Shares of the messages, by size, at which the table shows the slowdown.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

fn row(outcome: &Outcome) -> String {
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

fn table(scheme: &Scheme) -> String {
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
fn no_scheme_behaves_otherwise_than_when_last_looked_at() {
    for scheme in transports() {
        insta::assert_snapshot!(scheme.name, table(scheme));
    }
}
