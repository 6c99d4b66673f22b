//! Levels of granted bytes: the lowest free ones, the boost of the tail, merged levels.

use super::{FIRST_BYTES, PacedSender, SCHEDULED, data, endpoint, simulator, submit};
use homa_proto::{Config, Overcommitment, PriorityAllocation};

#[test]
fn the_lowest_levels_are_used_first() {
    let mut receiver = endpoint(simulator(), 5);
    let mut levels = Vec::new();
    for peer in 0..5u32 {
        // Each new message is shorter than all before it.
        let mut message = PacedSender::new(peer, 2, 200_000 - 20_000 * peer);
        levels.push(message.arrive(&mut receiver, u64::from(peer)).first().map(|g| g.3));
    }
    // The fifth takes the place of the longest.
    assert_eq!(levels, [Some(0), Some(1), Some(2), Some(3), Some(3)]);
}

/// Levels of all grants of a lone message, by the bytes left to grant before each.
fn tail(config: Config, length: u32) -> Vec<(u32, u8)> {
    let mut receiver = endpoint(config, 1);
    let mut message = PacedSender::new(0, 2, length);
    let mut granted = FIRST_BYTES;
    let mut seen = Vec::new();
    let mut now = 0;
    while message.sent < length {
        now += 5_000;
        for (_, _, offset, level) in message.arrive(&mut receiver, now) {
            seen.push((length - granted, level));
            granted = offset;
        }
    }
    assert_eq!(granted, length);
    seen
}

#[test]
fn the_last_10_000_wire_bytes_use_unscheduled_levels() {
    let left = |packets: u32| packets * SCHEDULED;
    let expected = [
        (left(8), 0),
        (left(7), 0),
        // Six full packets are 9,228 wire bytes. Cutoffs 433, 2,339 and 6,756.
        (left(6), 4),
        (left(5), 4),
        (left(4), 5),
        (left(3), 5),
        (left(2), 5),
        (left(1), 6),
    ];
    assert_eq!(tail(simulator(), FIRST_BYTES + left(8)), expected);
    let off = simulator().tail_boost(0);
    assert!(tail(off, FIRST_BYTES + left(8)).iter().all(|grant| grant.1 == 0));
}

#[test]
fn a_split_may_have_any_number_of_unscheduled_levels() {
    let one = PriorityAllocation::precomputed(2, &[]);
    let largest = i32::MAX as u32;
    assert_eq!(one, Some(PriorityAllocation::Fixed { cutoffs: [0, largest, 0, 0, 0, 0, 0, 0] }));
    let w2 = PriorityAllocation::precomputed(8, &[269, 366, 512, 1_463]).expect("eight levels");
    let cutoffs = [0, 0, 0, largest, 1_463, 512, 366, 269];
    assert_eq!(w2, PriorityAllocation::Fixed { cutoffs });
    assert_eq!(PriorityAllocation::precomputed(4, &[1, 2, 3, 4]), None);
    assert_eq!(PriorityAllocation::precomputed(9, &[1]), None);
}

#[test]
fn fewer_network_levels_keep_the_degree() {
    for (network_levels, expected) in [(8, [4, 4, 5, 5, 5, 6, 7]), (4, [2, 2, 2, 2, 2, 3, 3])] {
        let config = simulator().network_levels(network_levels);
        let mut sender = endpoint(config.clone(), 1);
        submit(&mut sender, 0, 9_000);
        assert_eq!(data(&mut sender, 0).iter().map(|p| p.2).collect::<Vec<_>>(), expected);
        let mut receiver = endpoint(config, 5);
        let active = (0..5).filter(|&peer| {
            let mut message = PacedSender::new(peer, 2, 200_000 + 1_000 * peer);
            !message.arrive(&mut receiver, 0).is_empty()
        });
        assert_eq!(active.count(), 4);
    }
}

#[test]
fn the_degree_may_differ_from_the_number_of_levels() {
    let config = simulator().overcommitment(Overcommitment::Fixed(2));
    let mut receiver = endpoint(config, 5);
    let active = (0..5).filter(|&peer| {
        let mut message = PacedSender::new(peer, 2, 200_000 + 1_000 * peer);
        !message.arrive(&mut receiver, 0).is_empty()
    });
    assert_eq!(active.count(), 2);
}
