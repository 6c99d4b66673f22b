//! The transport Basic of Homa Figure 8: one level, every message granted, five packets at a time.

use super::{LINK, PacedSender, UNSCHEDULED, data, endpoint, submit};
use homa_proto::{Config, UnscheduledLimit};

fn basic() -> Config {
    Config::basic(LINK).unscheduled(UnscheduledLimit::Fixed(9_328))
}

#[test]
fn every_message_is_granted_on_its_own() {
    let mut receiver = endpoint(basic(), 3);
    for peer in 0..3 {
        for id in (2..42).step_by(2) {
            let mut message = PacedSender::new(peer, id, 100_000);
            let grants = message.arrive(&mut receiver, 0);
            // 1,442 bytes are here: RTTbytes and five packets beyond them.
            assert_eq!(grants, [(peer, id, 1_442 + 10_000 + 5 * UNSCHEDULED, 0)]);
        }
    }
}

#[test]
fn the_next_grant_waits_for_room_in_the_window() {
    let mut receiver = endpoint(basic(), 1);
    let mut message = PacedSender::new(0, 2, 100_000);
    let counts: Vec<usize> =
        (0..13).map(|n| message.arrive(&mut receiver, n * 1_000).len()).collect();
    // 17,210 bytes outstanding after a grant; the sixth packet leaves less than 10,000.
    assert_eq!(counts, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn all_its_packets_have_one_level() {
    let mut sender = endpoint(basic(), 1);
    for length in [10, 1_000, 9_000] {
        submit(&mut sender, 0, length);
    }
    assert!(data(&mut sender, 0).iter().all(|p| p.2 == 0));
}
