//! Messages that SRPT keeps waiting for longer than anything times out: they are late, not lost.

use homa_sim::SimTime;
use homa_sim::experiment::replay;
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Scenario, Shape, SlowdownBy, Span,
};
use homa_sim::traffic::open_loop::ScheduledMessage;

const SECOND: u64 = 1_000_000_000_000;

/// Eight long echoes of host 0, whose downlink is slow: their requests are through after 1.3 s.
/// From then on, shorter requests of everybody to host 0 take all of its downlink for half a
/// minute. The long responses wait for grants, with nothing missing, and their servers hear nothing
/// meanwhile.
#[test]
fn a_response_that_waits_for_grants_for_half_a_minute_arrives() {
    let slow = Impaired {
        from: "tor0".to_owned(),
        to: "h0".to_owned(),
        one_way: true,
        at: Span(0),
        until: None,
        rate: Some(Bandwidth(25_000_000)),
        loss_ppm: None,
    };
    let mut scenario = Scenario {
        scheme: "homa".to_owned(),
        fabric: Fabric {
            shape: Shape::SingleSwitch { hosts: 5 },
            host_link: Bandwidth(50_000_000),
            fabric_link: Bandwidth(50_000_000),
            buffer: Buffer::PerPort { bytes: 131_072 },
            impaired: vec![slow],
            ..Fabric::default()
        },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.options.levels = Some(1);
    scenario.stop.messages = None;
    scenario.stop.drain_limit = Span::millis(60_000);
    let long =
        |n: u32| ScheduledMessage { at: SimTime(0), src: 0, dst: 1 + n % 4, bytes: 1_000_000 };
    // 4 MB/s for a link of 3.1 MB/s.
    let short = |n: u32| ScheduledMessage {
        at: SimTime(SECOND * 6 / 5 + u64::from(n) * SECOND / 20),
        src: 1 + n % 4,
        dst: 0,
        bytes: 200_000,
    };
    let arrivals: Vec<ScheduledMessage> = (0..8).map(long).chain((0..600).map(short)).collect();
    let count = arrivals.len() as u64;
    let replayed = replay(&scenario, arrivals, Exchange::Echo, &mut |_| ());
    let outcome = replayed.unwrap_or_else(|error| panic!("{error}")).outcome;
    assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (count, 0, 0));
    let waited = outcome.slowdown.buckets.last().and_then(|bin| bin.p99_us).unwrap_or(0.0);
    assert!(waited > 25e6, "the long ones waited for longer than servers stay silent: {waited} us");
}

/// A response of 40 MB whose packets wait in the switch below shorter messages while its server's
/// uplink carries a shorter one, too: what the client asks for again has been sent, nothing of it
/// was lost, and for longer than RPCs live without a sign of life nothing of it can be sent. The
/// server says so.
#[test]
fn a_response_that_waits_at_its_sender_and_in_the_switch_is_not_given_up() {
    let mut scenario = Scenario {
        scheme: "homa-paper".to_owned(),
        fabric: Fabric { shape: Shape::SingleSwitch { hosts: 6 }, ..Fabric::default() },
        slowdown: SlowdownBy::Idle,
        ..Scenario::default()
    };
    scenario.stop.messages = None;
    let mega = |millis: u64, src: u32, dst: u32, megabytes: u32| ScheduledMessage {
        at: SimTime(millis * SECOND / 1000),
        src,
        dst,
        bytes: megabytes * 1_000_000,
    };
    // The request is through after 34 ms. The client's downlink is full from 39 to 75 ms, the
    // server's uplink from 40 to 64.
    let long = mega(0, 0, 1, 40);
    let others = (3..6).map(|src| mega(39, src, 0, 15));
    let arrivals: Vec<ScheduledMessage> =
        [long].into_iter().chain(others).chain([mega(40, 1, 2, 30)]).collect();
    let count = arrivals.len() as u64;
    let replayed = replay(&scenario, arrivals, Exchange::Echo, &mut |_| ());
    let outcome = replayed.unwrap_or_else(|error| panic!("{error}")).outcome;
    assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (count, 0, 0));
}
