//! Exchanges whose segments follow from the RFCs.

use super::*;

const RTT: Duration = Duration::micros(100);

fn half() -> Vec<Duration> {
    vec![Duration(RTT.0 / 2)]
}

/// 1,000-byte segments, no delayed acknowledgements.
fn plain(recovery: Recovery) -> TcpConfig {
    let config = TcpConfig {
        recovery,
        mtu: 1_040,
        delayed_ack: None,
        initial_window: 2,
        slow_start_limit: 1,
        ..TcpConfig::newreno()
    };
    quick(config)
}

fn cwnd(world: &World<'_>, host: usize) -> u32 {
    world.hosts[host].connections().next().map_or(0, |connection| connection.sender.window.cwnd)
}

#[test]
fn slow_start_doubles_every_round_trip() {
    let mut path = |_: &Segment| half();
    let mut world = World::new(&plain(Recovery::NEWRENO), 2, &mut path);
    world.one_way(0, 1, 30_000);
    let mut windows = Vec::new();
    for round in 1..=3 {
        world.run_until(Time(1_000 + round * RTT.0));
        windows.push(cwnd(&world, 0));
    }
    assert_eq!(windows, [4_000, 8_000, 16_000]);
    let sent_at = |round| {
        let at = Time(1_000 + round * RTT.0);
        world.sent.iter().filter(|(time, host, _)| (*time, host.0) == (at, 0)).count()
    };
    assert_eq!([0, 1, 2, 3].map(sent_at), [2, 4, 8, 16]);
}

/// A path that loses the first copies of some 1,000-byte segments, by number.
fn losing(lost: &'static [u64]) -> impl FnMut(&Segment) -> Vec<Duration> {
    let mut left = lost.to_vec();
    move |segment: &Segment| {
        let at = left.iter().position(|&number| segment.len > 0 && segment.seq == number * 1_000);
        match at {
            Some(index) => {
                left.remove(index);
                Vec::new()
            }
            None => half(),
        }
    }
}

/// Sends a message of 40 segments with an initial window of 10 and loses some. Returns the window
/// after each round trip, the segments sent again, and when the message arrived.
fn lose(recovery: Recovery, lost: &'static [u64]) -> (Vec<u32>, Vec<u64>, Time) {
    let mut path = losing(lost);
    let config = TcpConfig { initial_window: 10, ..plain(recovery) };
    let mut world = World::new(&config, 2, &mut path);
    world.one_way(0, 1, 40_000);
    let mut windows = Vec::new();
    for round in 1..=6 {
        world.run_until(Time(1_000 + round * RTT.0));
        windows.push(cwnd(&world, 0));
    }
    world.run();
    let again = world.payloads(0).filter(|segment| segment.flags.has(Flags::RESENT));
    let again = again.map(|segment| segment.seq / 1_000).collect();
    let there = world.delivered.first().map_or(Time::MAX, |(_, _, at)| *at);
    (windows, again, there)
}

#[test]
fn three_duplicates_halve_and_inflate_the_window() {
    // Segment 0 of 10 is lost, which causes nine duplicates. At the third the threshold is 5
    // (limited transmit does not count) and the window 5 + 3; six more inflate it to 14. The full
    // acknowledgement one round trip later deflates it to the threshold.
    let (windows, again, _) = lose(Recovery::NEWRENO, &[0]);
    assert_eq!((windows[0], &again[..]), (14_000, &[0][..]));
    assert_eq!(windows[1], 5_000);
}

#[test]
fn an_unbounded_window_stays_unbounded_after_two_duplicates() {
    // Limited transmit adds two segments to the largest possible window.
    let config = TcpConfig { initial_window: u32::MAX, ..plain(Recovery::NEWRENO) };
    let mut path = losing(&[0]);
    let mut world = World::new(&config, 2, &mut path);
    world.one_way(0, 1, 40_000);
    let first = Time(1_000);
    assert_eq!(world.sent.iter().filter(|(at, ..)| *at == first).count(), 40);
    world.run();
    assert_eq!((world.delivered.len(), world.payloads(0).count()), (1, 41));
}

#[test]
fn a_partial_acknowledgement_sends_the_next_hole() {
    // RFC 6582: one hole per round trip, and no timeout.
    let (_, again, there) = lose(Recovery::NEWRENO, &[0, 3]);
    assert_eq!(again, [0, 3]);
    assert!(there < Time(1_000 + 900_000), "{there:?}");
}

#[test]
fn selective_acks_repair_several_holes_in_a_round_trip() {
    let lost = &[0, 2, 4];
    let (_, newreno, slow) = lose(Recovery::NEWRENO, lost);
    assert_eq!(newreno, lost);
    for recovery in [Recovery::SACK, Recovery::RACK] {
        let (windows, again, there) = lose(recovery, lost);
        assert_eq!((windows[0], &again[..]), (5_000, &lost[..]));
        assert!(there < slow, "{there:?} {slow:?}");
    }
}

#[test]
fn a_lost_tail_needs_a_timeout_or_a_probe() {
    let tail = &[38, 39];
    let (_, again, at_timeout) = lose(Recovery::SACK, tail);
    assert_eq!(again, tail);
    let (_, again, at_probe) = lose(Recovery::RACK, tail);
    assert_eq!(again, [39, 38], "the probe repeats the last; its block reveals the other");
    assert!(at_timeout > Time(1_001_000) && at_probe < Time(1_001_000));
}

#[test]
fn a_timeout_starts_from_one_segment() {
    // The whole first window is lost: 3 ms, the initial RTO, then slow start.
    let (windows, again, _) = lose(Recovery::SACK, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(windows, [10_000; 6]);
    assert_eq!(again, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let mut path = losing(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let config = TcpConfig { initial_window: 10, ..plain(Recovery::NEWRENO) };
    let mut world = World::new(&config, 2, &mut path);
    world.one_way(0, 1, 40_000);
    world.run_until(Time(1_000 + 3_000_000));
    assert_eq!(cwnd(&world, 0), 1_000);
    world.run_until(Time(1_000 + 3_000_000 + RTT.0));
    assert_eq!(cwnd(&world, 0), 2_000);
}

#[test]
fn without_fast_retransmit_only_losses_cost_a_timeout() {
    let mut delays = 0;
    let mut path = move |segment: &Segment| {
        delays += 1;
        let late = segment.len > 0 && delays % 5 == 0;
        vec![Duration(RTT.0 / 2 + if late { 30_000 } else { 0 })]
    };
    let mut world = World::new(&plain(Recovery::TIMEOUTS), 2, &mut path);
    world.one_way(0, 1, 100_000);
    world.run();
    assert!(world.payloads(0).all(|segment| !segment.flags.has(Flags::RESENT)));
    let (_, again, there) = lose(Recovery::TIMEOUTS, &[3]);
    assert_eq!(again.first(), Some(&3));
    assert!(there > Time(1_000_000), "a loss waits for the timer: {there:?}");
}

#[test]
fn a_long_message_delays_only_those_behind_it_on_its_connection() {
    let there = |connections| {
        let mut path = |_: &Segment| half();
        let config = TcpConfig { connections, ..plain(Recovery::NEWRENO) };
        let mut world = World::new(&config, 2, &mut path);
        world.one_way(0, 1, 200_000);
        world.one_way(0, 1, 100);
        world.run();
        let short = world.delivered.iter().find(|(_, message, _)| message.length == 100);
        short.map(|(_, _, at)| at.since(Time(1_000)))
    };
    assert!(there(ConnectionPolicy::ONE) > Some(Duration(5 * RTT.0)));
    assert_eq!(there(ConnectionPolicy::PerMessage), Some(Duration(RTT.0 / 2)));
    let idle = ConnectionPolicy::Pool { size: 2, pick: Pick::Idle };
    assert_eq!(there(idle), Some(Duration(RTT.0 / 2)));
}

#[test]
fn a_handshake_costs_a_round_trip_once_per_connection() {
    for (connections, expected) in
        [(ConnectionPolicy::ONE, [150, 50]), (ConnectionPolicy::PerMessage, [150, 150])]
    {
        let mut path = |_: &Segment| half();
        let config = TcpConfig { connections, handshake: true, ..plain(Recovery::NEWRENO) };
        let mut world = World::new(&config, 2, &mut path);
        let mut took = Vec::new();
        for _ in 0..2 {
            let begin = world.now;
            world.one_way(0, 1, 100);
            world.run();
            took.push(world.delivered.last().map_or(0, |(_, _, at)| at.since(begin).0 / 1_000));
        }
        assert_eq!(took, expected);
    }
}

#[test]
fn an_ack_overtaken_by_the_end_of_its_connection_gets_no_reply() {
    let mut path = |segment: &Segment| match segment.flags.has(Flags::SERVER) {
        // The server's FIN is faster, as on another path of a network that sprays packets.
        true if !segment.occupies() => vec![RTT],
        _ => half(),
    };
    let connections = ConnectionPolicy::PerMessage;
    let config = TcpConfig { connections, ..plain(Recovery::NEWRENO) };
    let mut world = World::new(&config, 2, &mut path);
    world.one_way(0, 1, 100);
    world.run();
    // Data and FIN, ACK, FIN, ACK.
    assert_eq!(world.sent.len(), 4, "{:?}", world.sent);
    assert_eq!((world.hosts[0].refused(), world.hosts[1].refused()), (0, 0));
}

#[test]
fn an_unlimited_pool_opens_a_connection_if_all_are_busy() {
    let mut path = |_: &Segment| half();
    let connections = ConnectionPolicy::IDLE;
    let config = TcpConfig { connections, ..plain(Recovery::NEWRENO) };
    let mut world = World::new(&config, 2, &mut path);
    for expected in [3, 3] {
        (0..3).for_each(|_| world.one_way(0, 1, 5_000));
        world.run();
        assert_eq!(world.hosts[0].connections().count(), expected);
    }
}

#[test]
fn a_host_sends_the_segment_of_the_higher_level_first() {
    let priorities = Priorities::Sent(vec![1_000]);
    let connections = ConnectionPolicy::IDLE;
    let config = TcpConfig { priorities, connections, ..plain(Recovery::SACK) };
    let mut host = Tcp::new(Arc::new(config), HostId(0), (0, 1));
    let mut sent = Vec::new();
    for length in [2_000, 500] {
        host.submit(Time(0), Submit::OneWay { peer: PeerId(1), length, cookie: 0 }).unwrap();
        sent.extend(host.transmit(Time(0)).map(|segment| (segment.len, segment.priority)));
    }
    sent.extend(host.transmit(Time(0)).map(|segment| (segment.len, segment.priority)));
    assert_eq!(sent, [(1_000, 7), (500, 7), (1_000, 6)]);
}

#[test]
fn an_idle_connection_starts_again_from_its_initial_window() {
    let run = |idle_restart| {
        let mut path = |_: &Segment| half();
        let config = TcpConfig { idle_restart, ..plain(Recovery::NEWRENO) };
        let mut world = World::new(&config, 2, &mut path);
        world.one_way(0, 1, 60_000);
        world.run();
        world.now += Duration::millis(50);
        let before = world.sent.len();
        world.one_way(0, 1, 60_000);
        world.sent.len() - before
    };
    assert_eq!(run(true), 2);
    assert!(run(false) >= 32);
}

#[test]
fn calls_fail_at_their_deadline_or_if_the_server_is_dead() {
    let mut path = |_: &Segment| Vec::new();
    let config = TcpConfig { max_timeouts: 3, ..plain(Recovery::NEWRENO) };
    let mut world = World::new(&config, 2, &mut path);
    world.call_until(0, (1, 100), Time(2_000_000));
    world.call(0, 1, 200);
    world.run();
    let expected =
        [(HostId(0), 100, RpcError::DeadlineExceeded), (HostId(0), 200, RpcError::PeerUnreachable)];
    assert_eq!(world.failed, expected);
    assert_eq!((world.hosts[0].calls(), world.released), ((0, 0), 2));
}

#[test]
fn a_restarted_server_resets_connections_of_its_former_life() {
    for handshake in [false, true] {
        let mut path = |_: &Segment| half();
        let config = TcpConfig { handshake, ..plain(Recovery::NEWRENO) };
        let mut world = World::new(&config, 2, &mut path);
        world.answers = false;
        world.call(0, 1, 100);
        world.run();
        world.hosts[1] = Tcp::new(Arc::new(config), HostId(1), (1, 1));
        world.answers = true;
        world.call(0, 1, 200);
        world.run();
        let lost = |cookie| (HostId(0), cookie, RpcError::Indeterminate);
        assert_eq!(world.failed, [lost(100), lost(200)]);
        world.call(0, 1, 300);
        world.run();
        assert_eq!(world.delivered.last().map(|(_, message, _)| message.cookie), Some(300));
    }
}

/// Sizes of the bursts of a long message through a window of 12 segments, whose acknowledgements
/// arrive one after the other.
fn bursts(tso_win_divisor: u32) -> Vec<u32> {
    let mut path = |segment: &Segment| {
        let place = if segment.len > 0 { 0 } else { (segment.ack / 1_000 + 11) % 12 };
        vec![Duration(RTT.0 / 2 + 10_000 * place)]
    };
    let config = TcpConfig {
        initial_window: 12,
        receive_window: 12_000,
        tso_win_divisor,
        ..plain(Recovery::NEWRENO)
    };
    let mut world = World::new(&config, 2, &mut path);
    world.one_way(0, 1, 28_500);
    world.run();
    assert_eq!(world.delivered.len(), 1);
    let mut bursts: BTreeMap<Time, u32> = BTreeMap::new();
    let data = world.sent.iter().filter(|(_, _, segment)| segment.len > 0);
    data.for_each(|(at, ..)| *bursts.entry(*at).or_default() += 1);
    bursts.into_values().collect()
}

#[test]
fn a_sender_waits_for_a_third_of_its_window() {
    let plain = bursts(0);
    assert!(plain[0] == 12 && plain[1..].contains(&1), "{plain:?}");
    let thirds = bursts(3);
    let [first, rest @ .., last] = &thirds[..] else { panic!("{thirds:?}") };
    assert_eq!(*first, 12, "nothing is under way at the start");
    assert!(rest.iter().all(|burst| *burst >= 4), "{thirds:?}");
    assert!(*last > 0, "the rest of a message does not wait: {thirds:?}");
    assert_eq!(thirds.iter().sum::<u32>(), 29);
}
