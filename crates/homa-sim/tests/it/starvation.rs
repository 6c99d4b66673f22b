//! Messages that SRPT delays for longer than every timeout. They arrive late, but they must not
//! fail.

use homa_sim::SimTime;
use homa_sim::experiment::replay;
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Scenario, Shape, SlowdownBy, Span,
};
use homa_sim::traffic::open_loop::ScheduledMessage;

const SECOND: u64 = 1_000_000_000_000;

/// Host 0, whose downlink is slow, sends eight long echo requests, which arrive within 1.3 s. Then
/// shorter requests from all other hosts to host 0 take its whole downlink for half a minute. The
/// long responses wait for grants while no packet is missing, and their servers receive nothing.
#[test]
fn a_response_arrives_after_half_a_minute_without_grants() {
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
    // 4 MB/s on a link that carries 3.1 MB/s.
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
    assert!(waited > 25e6, "long responses must wait longer than every timeout: {waited} us");
}

/// Packets of a 40 MB response wait in the switch behind shorter messages, and at the same time a
/// shorter message occupies the server's uplink. The client's RESENDs ask for bytes that were sent
/// and not lost, and for longer than an RPC survives without any packet the server can send none of
/// its response. It should answer with BUSY, so that the client does not give up.
#[test]
fn a_response_queued_at_server_and_switch_does_not_time_out() {
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
    // The request has arrived after 34 ms. The client's downlink is busy from 39 to 75 ms, the
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
