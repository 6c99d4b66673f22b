//! Messages that SRPT keeps waiting for longer than anything times out: they are late, not lost.

use homa_sim::SimTime;
use homa_sim::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Scenario, Shape, SlowdownBy, Span, replay,
};
use homa_sim::traffic::open_loop::Arrival;

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
    let long = |n: u32| Arrival { at: SimTime(0), src: 0, dst: 1 + n % 4, bytes: 1_000_000 };
    // 4 MB/s for a link of 3.1 MB/s.
    let short = |n: u32| Arrival {
        at: SimTime(SECOND * 6 / 5 + u64::from(n) * SECOND / 20),
        src: 1 + n % 4,
        dst: 0,
        bytes: 200_000,
    };
    let arrivals: Vec<Arrival> = (0..8).map(long).chain((0..600).map(short)).collect();
    let count = arrivals.len() as u64;
    let replayed = replay(&scenario, arrivals, Exchange::Echo, &mut |_| ());
    let outcome = replayed.unwrap_or_else(|error| panic!("{error}")).outcome;
    assert_eq!((outcome.messages, outcome.failed, outcome.undelivered), (count, 0, 0));
    let waited = outcome.slowdown.buckets.last().and_then(|bin| bin.p99_us).unwrap_or(0.0);
    assert!(waited > 25e6, "the long ones waited for longer than servers stay silent: {waited} us");
}
