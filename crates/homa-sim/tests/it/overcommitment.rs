//! The limit on all outstanding grants (profile `default`, Homa §3.5) never delays the grants of a
//! message in favour of longer ones.

use homa_sim::SimTime;
use homa_sim::experiment::replay;
use homa_sim::scenario::{Exchange, Fabric, Scenario, Shape, SlowdownBy};
use homa_sim::traffic::open_loop::ScheduledMessage;

const MILLISECOND: u64 = 1_000_000_000;

/// Eight senders are each granted RTTbytes of a long message. Then each gets three shorter messages
/// for other receivers, which it sends first, so for milliseconds none of the granted bytes arrive.
/// A message of 60 kB from an idle sender should still take 59 us, as in an idle network.
#[test]
fn unused_grants_of_busy_senders_do_not_delay_short_messages() {
    let mut scenario = Scenario {
        scheme: "homa".to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 34 }, ..Fabric::default() },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.stop.messages = None;
    let message = |millis: u64, src, dst, bytes| ScheduledMessage {
        at: SimTime(millis * MILLISECOND),
        src,
        dst,
        bytes,
    };
    let long = (1..9).map(|src| message(0, src, 0, 20_000_000));
    let shorter = (0..24).map(|n| message(1, 1 + n % 8, 9 + n, 5_000_000));
    let short = message(2, 33, 0, 60_000);
    let arrivals: Vec<ScheduledMessage> = long.chain(shorter).chain([short]).collect();
    let count = arrivals.len() as u64;
    let replayed = replay(&scenario, arrivals, Exchange::OneWay, &mut |_| ());
    let outcome = replayed.unwrap_or_else(|error| panic!("{error}")).outcome;
    assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (count, 0, 0));
    let shortest = outcome.slowdown.buckets.iter().filter_map(|bin| bin.p99_us).next();
    assert!(shortest.is_some_and(|us| us < 80.0), "{shortest:?} us");
}
