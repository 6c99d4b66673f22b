//! Grants: one packet each, paced per sender, the best message of each of the best senders.

use super::{
    FIRST_BYTES, PACKET_TIME, PacedSender, SCHEDULED, UNSCHEDULED, endpoint, grants, simulator,
};
use homa_proto::{Config, Endpoint, PriorityAllocation, Time};

/// One sender at a time: one scheduled level.
fn one_at_a_time() -> Config {
    let priorities =
        PriorityAllocation::precomputed(8, &[11, 125, 273, 468, 764, 1_275]).expect("eight levels");
    simulator().priorities(priorities)
}

/// Grants between two times, with the time of each.
fn timed(receiver: &mut Endpoint, from: u64, until: u64) -> Vec<(u64, u32, u32)> {
    let mut seen = Vec::new();
    let mut now = from;
    while let Some(at) = receiver.deadline().filter(|at| at.0 <= until) {
        assert!(at.0 >= now, "time goes on");
        now = at.0;
        receiver.expire(at);
        seen.extend(grants(receiver, now).into_iter().map(|g| (now - from, g.0, g.2)));
    }
    seen
}

#[test]
fn each_packet_of_a_lone_message_brings_a_grant_for_one_packet() {
    let mut receiver = endpoint(simulator(), 1);
    let mut message = PacedSender::new(0, 2, 40_000);
    for n in 1..=7u32 {
        let now = u64::from(n) * PACKET_TIME;
        let offset = FIRST_BYTES + n * SCHEDULED;
        if n < 7 {
            assert_eq!(message.arrive(&mut receiver, now), [(0, 2, offset, 0)]);
            assert_eq!(receiver.deadline(), None, "the window is full");
        } else {
            // The seventh packet is short, so a full packet more does not fill the room that it
            // leaves.
            let last = message.arrive(&mut receiver, now);
            assert_eq!(last.len(), 1);
        }
    }
    assert_eq!(message.sent, FIRST_BYTES);
}

/// Peer 1's message of 60,000 bytes. Its unscheduled bytes arrived while peer 0's shorter one was
/// granted, and it had its first grant at 2,000 ns.
fn long_with_an_empty_window(receiver: &mut Endpoint) -> PacedSender {
    let mut first = PacedSender::new(0, 2, FIRST_BYTES + 2 * SCHEDULED);
    let mut long = PacedSender::new(1, 2, 60_000);
    assert_eq!(first.arrive(receiver, 0).len(), 1);
    for _ in 0..7 {
        assert_eq!(long.arrive(receiver, 10), [], "another sender is granted");
    }
    let granted = first.arrive(receiver, 2_000);
    assert_eq!(granted, [(0, 2, first.length, 1), (1, 2, FIRST_BYTES + SCHEDULED, 0)]);
    long
}

#[test]
fn an_empty_window_fills_at_a_packet_per_packet_time() {
    let mut receiver = endpoint(one_at_a_time(), 2);
    let long = long_with_an_empty_window(&mut receiver);
    let paced: Vec<_> = (1..=6u32)
        .map(|n| (u64::from(n) * PACKET_TIME, 1, long.sent + (n + 1) * SCHEDULED))
        .collect();
    assert_eq!(timed(&mut receiver, 2_000, 100_000), paced);
    assert_eq!(receiver.deadline(), None, "10,766 wire bytes are outstanding");
}

#[test]
fn data_of_any_message_of_a_sender_brings_a_grant_for_its_best() {
    let mut receiver = endpoint(one_at_a_time(), 2);
    let long = long_with_an_empty_window(&mut receiver);
    let mut longer = PacedSender::new(1, 4, 70_000);
    // The timer of peer 1 is over by then.
    let granted = longer.arrive(&mut receiver, 9_000);
    assert_eq!(granted, [(1, 2, long.sent + 2 * SCHEDULED, 0)]);
}

#[test]
fn overcommitment_counts_senders_not_messages() {
    let mut receiver = endpoint(simulator(), 6);
    let mut granted = Vec::new();
    for peer in 0..6 {
        for id in [2, 4] {
            let length = 100_000 + peer * 10_000 - id as u32 * 1_000;
            let now = u64::from(peer) * 10_000 + id * 100;
            granted.extend(PacedSender::new(peer, id, length).arrive(&mut receiver, now));
        }
    }
    // Four of six senders; the shorter message of each as soon as it is known.
    let senders: Vec<(u32, u64)> = granted.iter().map(|g| (g.0, g.1)).collect();
    assert_eq!(senders, [(0, 2), (0, 4), (1, 2), (1, 4), (2, 2), (2, 4), (3, 2), (3, 4)]);
}

#[test]
fn within_a_packet_time_only_a_higher_level_is_granted_at() {
    let mut receiver = endpoint(one_at_a_time(), 2);
    let mut long = long_with_an_empty_window(&mut receiver);
    assert_eq!(receiver.deadline(), Some(Time(2_000 + PACKET_TIME)));
    assert_eq!(long.arrive(&mut receiver, 2_600), [], "its timer runs");
    // The last packet of another message of that sender has a higher level.
    let mut last = PacedSender::new(1, 4, FIRST_BYTES + SCHEDULED);
    assert_eq!(last.arrive(&mut receiver, 2_700).first(), Some(&(1, 4, last.length, 1)));
}

#[test]
fn the_fewest_bytes_to_grant_come_next_and_of_equals_the_older() {
    let mut receiver = endpoint(one_at_a_time(), 5);
    let mut first = PacedSender::new(4, 2, FIRST_BYTES + SCHEDULED + 1);
    assert_eq!(first.arrive(&mut receiver, 0).len(), 1);
    for (peer, length) in [(0, 50_001), (1, 50_000), (2, 50_000), (3, 60_000)] {
        for _ in 0..7 {
            let mut waiting = PacedSender::new(peer, 2, length);
            assert_eq!(waiting.arrive(&mut receiver, 10), []);
        }
    }
    let granted = first.arrive(&mut receiver, 2_000);
    assert_eq!(granted.iter().map(|g| g.0).collect::<Vec<_>>(), [4, 1]);
}

#[test]
fn nothing_is_ever_asked_for_again() {
    let mut receiver = endpoint(simulator(), 1);
    let mut message = PacedSender::new(0, 2, 5_000);
    let _ = message.arrive(&mut receiver, 0);
    assert_eq!(receiver.deadline(), None);
    receiver.expire(Time(60_000_000_000));
    assert_eq!(grants(&mut receiver, 60_000_000_000), []);
    assert_eq!(receiver.rpcs(), (0, 1), "the message still waits for its other packets");
}

#[test]
fn a_grant_withheld_for_memory_leaves_later() {
    // Memory for a packet of one message, for the granted bytes of another, and for the unscheduled
    // bytes of a third.
    let memory_budget = u64::from(UNSCHEDULED + 2 * FIRST_BYTES + SCHEDULED);
    let mut receiver = endpoint(simulator().memory_budget(memory_budget), 3);
    let mut first = PacedSender::new(0, 2, FIRST_BYTES);
    let mut second = PacedSender::new(1, 2, 40_000);
    let mut third = PacedSender::new(2, 2, 50_000);
    assert_eq!(first.arrive(&mut receiver, 0), []);
    assert_eq!(second.arrive(&mut receiver, 10).len(), 1);
    assert_eq!(third.arrive(&mut receiver, 20), []);
    let freed: Vec<_> = (1..7).flat_map(|n| first.arrive(&mut receiver, 20 + n * 1_000)).collect();
    assert!(freed.iter().any(|grant| grant.0 == 2), "{freed:?}");
}

#[test]
fn no_grant_while_10_000_wire_bytes_are_outstanding() {
    arbtest::arbtest(|u| {
        let mut receiver = endpoint(simulator(), 3);
        let frame = |len: u32, payload: u32| (len + 1_538 - payload).max(84);
        // (message, granted, wire bytes outstanding)
        let mut messages: Vec<(PacedSender, u32, u32)> = Vec::new();
        let mut now = 0;
        for _ in 0..200 {
            now += u.int_in_range(0..=3_000)?;
            if messages.len() < 6 && u.ratio(1, 8)? {
                let length = u.int_in_range(1..=60_000)?;
                let message = PacedSender::new(
                    u.int_in_range(0..=2)?,
                    2 * (messages.len() as u64 + 1),
                    length,
                );
                let first = length.min(FIRST_BYTES);
                let rest = first % UNSCHEDULED;
                let last = if rest > 0 { frame(rest, UNSCHEDULED) } else { 0 };
                messages.push((message, first, first / UNSCHEDULED * 1_538 + last));
            }
            let ready = |m: &(PacedSender, u32, u32)| m.0.sent < m.1;
            let able: Vec<usize> = (0..messages.len()).filter(|&i| ready(&messages[i])).collect();
            let mut sent = Vec::new();
            if able.is_empty() || u.ratio(1, 4)? {
                receiver.expire(Time(now));
                sent.extend(grants(&mut receiver, now));
            } else {
                let m = &mut messages[*u.choose(&able)?];
                let offset = m.0.sent;
                let payload = if offset < FIRST_BYTES { UNSCHEDULED } else { SCHEDULED };
                sent.extend(m.0.arrive(&mut receiver, now));
                m.2 -= frame(m.0.sent - offset, payload);
            }
            for (_, id, offset, _) in sent {
                let m = &mut messages[id as usize / 2 - 1];
                assert!(m.2 < 10_000, "{} wire bytes were outstanding", m.2);
                assert!(offset > m.1 && offset <= m.1 + SCHEDULED && offset <= m.0.length);
                m.2 += frame(offset - m.1, SCHEDULED);
                m.1 = offset;
            }
        }
        Ok(())
    });
}
