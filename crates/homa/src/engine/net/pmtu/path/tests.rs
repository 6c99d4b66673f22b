//! Tests of the state of a path over time: packets are answered or lost, and their size follows.

use super::*;

/// A path to a peer that has sent a packet.
fn path(now: Time, v4: bool, mtu: u16, max: u16) -> Path {
    let mut path = Path::new(now, v4, mtu, max);
    path.note_heard(now);
    path
}

/// Simulates a path from `now` on. Packets of up to `passes` bytes are answered at once. Short
/// packets are answered if the peer is `alive`. Returns the time at the end.
fn follow(
    path: &mut Path,
    changes: &mut PathChanges,
    from: Time,
    until: Time,
    passes: u16,
    alive: bool,
) -> Time {
    let mut now = from;
    while now < until {
        path.wanted(path.max);
        if let Some(probe) = path.poll(now, true, changes) {
            if alive {
                path.note_heard(now);
                path.answered(now, probe.small_id(), changes);
            }
            if alive && probe.size <= passes {
                path.answered(now, probe.id, changes);
            }
        }
        now = path.due().max(now + Duration::millis(1));
    }
    now
}

fn seconds(n: u64) -> Time {
    Time::ZERO + Duration::secs(n)
}

#[test]
fn a_black_hole_is_avoided_within_100_ms_and_its_size_found() {
    for (passes, v4, least) in
        [(1300, true, 1285), (1200, true, 1200), (600, true, 576), (1290, false, 1280)]
    {
        let (mut path, mut changes) = (path(seconds(1), v4, 1500, 1500), PathChanges::default());
        path.lost(seconds(1));
        let fell = seconds(1) + Duration::millis(100);
        follow(&mut path, &mut changes, seconds(1), fell, passes, true);
        assert!(path.mtu() <= 1280, "{passes}: {}", path.mtu());
        let now = follow(&mut path, &mut changes, fell, seconds(60), passes, true);
        assert!((least..=passes).contains(&path.mtu()), "{passes}: {}", path.mtu());
        assert!(changes.black_holes >= 1, "{passes}");
        follow(&mut path, &mut changes, now, now + RAISE_MAX + RAISE_MAX, 1500, true);
        assert_eq!(path.mtu(), 1500);
    }
}

#[test]
fn larger_packets_are_sent_once_one_was_answered_and_no_earlier() {
    for (passes, least) in [(9000, 9000), (4000, 3985), (1500, 1500)] {
        let (mut path, mut changes) = (path(seconds(1), true, 1500, 9000), PathChanges::default());
        path.wanted(9000);
        let probe = path.poll(seconds(1), true, &mut changes).expect("an attempt");
        assert_eq!((probe.size, path.mtu()), (9000, 1500));
        let half = seconds(1) + Duration::millis(500);
        let now = follow(&mut path, &mut changes, seconds(1), half, passes, true);
        assert!((least..=passes).contains(&path.mtu()), "{passes}: {}", path.mtu());
        assert_eq!(changes.lowered, 0, "{passes}");
        // If the path is a black hole, it stays one, and is probed at longer and longer intervals.
        assert_eq!(path.is_settled(now + CONFIRMED), passes == 9000);
        let hour = now + Duration::secs(3600);
        let (mut now, mut tried) = (now, 0);
        while now < hour && path.mtu() < 9000 {
            path.wanted(9000);
            if let Some(probe) = path.poll(now, true, &mut changes) {
                tried += u32::from(probe.size == 9000);
                path.answered(now, probe.small_id(), &mut changes);
            }
            now = path.due().max(now + Duration::millis(1));
        }
        assert!(passes == 9000 || tried <= 3 * 70, "{tried} times in an hour");
    }
}

#[test]
fn larger_packets_are_tried_for_the_sake_of_long_messages_only() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 9000), PathChanges::default());
    path.wanted(9000);
    let second = seconds(2);
    follow(&mut path, &mut changes, seconds(1), second, 1500, true);
    // RPCs continue, but no message fills a packet.
    path.wanted = false;
    let (mut now, mut probes) = (second, 0);
    while now < seconds(1000) {
        probes += u32::from(path.poll(now, true, &mut changes).is_some());
        now = path.due().max(now + Duration::secs(1));
    }
    assert_eq!(probes, 0);
    assert!(path.wanted(9000));
    assert!(path.poll(now, true, &mut changes).is_some());
}

#[test]
fn the_largest_probed_size_follows_the_route() {
    let (mut path, mut changes) = (path(seconds(1), true, 1400, 1500), PathChanges::default());
    path.wanted(9000);
    follow(&mut path, &mut changes, seconds(1), seconds(4), 9000, true);
    assert_eq!(path.mtu(), 9000);
    // The MTU of the route alone lowers nothing.
    path.wanted(1500);
    assert_eq!(path.mtu(), 9000);
    assert!(path.is_settled(seconds(5)));
}

#[test]
fn if_jumbo_frames_vanish_ethernet_frames_replace_them() {
    let (mut path, mut changes) = (path(seconds(1), true, 9000, 9000), PathChanges::default());
    path.lost(seconds(1));
    let fell = seconds(1) + Duration::millis(40);
    follow(&mut path, &mut changes, seconds(1), fell, 1500, true);
    assert_eq!((path.mtu(), changes.black_holes), (1500, 1));
    let mut end = follow(&mut path, &mut changes, fell, seconds(3), 1500, true);
    assert_eq!((path.mtu(), changes.black_holes), (1500, 1));
    // The path recovers, and later passes less than before.
    end = follow(&mut path, &mut changes, end, end + RAISE_MAX, 9000, true);
    assert_eq!(path.mtu(), 9000);
    path.lost(end);
    follow(&mut path, &mut changes, end, end + Duration::millis(120), 1200, true);
    assert_eq!(path.mtu(), 1200);
}

#[test]
fn a_path_that_takes_not_even_the_floor_is_left_alone() {
    for v4 in [true, false] {
        let (mut path, mut changes) = (path(seconds(1), v4, 1500, 1500), PathChanges::default());
        path.lost(seconds(1));
        let second = seconds(1) + Duration::millis(900);
        follow(&mut path, &mut changes, seconds(1), second, 100, true);
        let floor = if v4 { FLOOR_V4 } else { FLOOR_V6 };
        assert_eq!((path.mtu(), path.probe()), (floor, None));
        assert!(changes.black_holes <= 2, "{changes:?}");
    }
}

#[test]
fn silence_and_single_losses_lower_nothing() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 1500), PathChanges::default());
    path.lost(seconds(1));
    follow(&mut path, &mut changes, seconds(1), seconds(2), 1500, false);
    path.note_heard(seconds(2));
    path.lost(seconds(2));
    // The first two probes are lost.
    let mut now = seconds(2);
    for attempt in 1..=3 {
        let probe = path.poll(now, true, &mut changes).expect("an attempt");
        path.answered(now, probe.small_id(), &mut changes);
        if attempt == 3 {
            path.answered(now, probe.id, &mut changes);
        }
        now = path.due();
    }
    assert_eq!((path.mtu(), changes), (1500, PathChanges::default()));
    assert!(path.is_settled(now), "and nothing is remembered");
}

#[test]
fn an_unused_low_path_costs_nothing_and_is_raised_when_used() {
    let (mut path, mut changes) = (path(seconds(1), true, 1400, 1500), PathChanges::default());
    assert_eq!(path.due(), seconds(1));
    assert_eq!(path.poll(seconds(1), false, &mut changes), None);
    assert_eq!(path.due(), Time::MAX, "a settled path is not probed");
    assert!(path.wanted(1500) && !path.wanted(1500));
    assert!(path.due() <= seconds(9));
    assert_eq!(path.poll(seconds(9), true, &mut changes).map(|probe| probe.size), Some(1500));
}

#[test]
fn loss_is_looked_into_now_and_then_only() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 1500), PathChanges::default());
    let (mut now, mut probes) = (seconds(1), 0);
    while now < seconds(2) {
        path.lost(now);
        if let Some(probe) = path.poll(now, true, &mut changes) {
            probes += 1;
            path.answered(now, probe.id, &mut changes);
        }
        now += Duration::millis(1);
    }
    assert_eq!(probes, 4);
}

#[test]
fn neither_loss_nor_silence_puts_larger_sizes_off() {
    let (mut path, mut changes) = (path(seconds(1), true, 1300, 1500), PathChanges::default());
    // A loss is reported at every answer while the path is being checked. From 3 s on, larger
    // packets are answered, too. Before, none was answered.
    let (mut now, mut raised) = (seconds(1), None);
    while now < seconds(6) && raised.is_none() {
        path.note_heard(now);
        path.lost(now);
        path.wanted(1500);
        if let Some(probe) = path.poll(now, true, &mut changes)
            && (probe.size == 1300 || now >= seconds(3))
        {
            path.answered(now, probe.id, &mut changes);
        }
        raised = (path.mtu() == 1500).then_some(now);
        now += Duration::millis(1);
    }
    assert!(raised.is_some_and(|at| at <= seconds(4) + Duration::millis(200)), "{raised:?}");
}

#[test]
fn a_report_lowers_the_size_but_not_below_the_floor() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 1500), PathChanges::default());
    path.too_big(seconds(1), 1300, &mut changes);
    assert_eq!((path.mtu(), changes.lowered), (1300, 1));
    path.too_big(seconds(1), 1400, &mut changes);
    assert_eq!(path.mtu(), 1300, "a report cannot raise");
    // The path is checked, and the report proves wrong.
    for nonsense in [0, 68, 575] {
        path.too_big(seconds(1), nonsense, &mut changes);
        assert_eq!(path.mtu(), 1300, "{nonsense}");
    }
    let soon = seconds(1) + RAISE_MIN;
    follow(&mut path, &mut changes, seconds(1), soon + Duration(2), 1500, true);
    assert_eq!((path.mtu(), changes.raised), (1500, 1), "a forgery lasts for a second");
}

#[test]
fn a_report_about_a_probe_ends_the_search_there() {
    let (mut path, mut changes) = (path(seconds(1), true, 1200, 1500), PathChanges::default());
    path.wanted(1500);
    let mut now = path.due();
    for size in [1500, 1400] {
        let probe = path.poll(now, true, &mut changes).expect("an attempt");
        assert_eq!(probe.size, size);
        if size == 1400 {
            path.answered(now, probe.id, &mut changes);
        }
        path.too_big(now, 1400, &mut changes);
        now += Duration(1);
    }
    assert_eq!((path.mtu(), path.probe()), (1400, None));
}

#[test]
fn a_path_without_traffic_causes_no_probes() {
    let (mut path, mut changes) = (path(seconds(1), true, 1200, 1500), PathChanges::default());
    let mut now = seconds(1);
    while now < seconds(100) {
        assert_eq!(path.poll(now, false, &mut changes), None);
        now = path.due().max(now + Duration(1));
    }
}

#[test]
fn nothing_is_probed_before_the_peer_was_heard() {
    let (mut path, mut changes) = (Path::new(seconds(1), true, 1500, 9000), PathChanges::default());
    path.wanted(9000);
    for ms in 0..10_000 {
        let now = seconds(1) + Duration::millis(ms);
        path.lost(now);
        assert_eq!(path.poll(now, true, &mut changes), None);
        assert!(path.due() == Time::MAX && path.awaits_peer());
    }
    path.note_heard(seconds(12));
    follow(&mut path, &mut changes, seconds(12), seconds(12) + Duration::millis(20), 9000, true);
    assert_eq!(path.mtu(), 9000, "both probes follow at once");
}

#[test]
fn a_peer_that_falls_silent_is_probed_once_and_again_when_heard() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 1500), PathChanges::default());
    let (mut probes, back) = (0, seconds(11));
    for ms in 0..10_000 {
        let now = seconds(1) + Duration::millis(ms);
        path.lost(now);
        probes += u32::from(path.poll(now, true, &mut changes).is_some());
    }
    assert_eq!(probes, u32::from(ATTEMPTS));
    path.note_heard(back);
    path.lost(back);
    assert!(path.poll(back, true, &mut changes).is_some());
}

#[test]
fn a_size_that_was_never_searched_is_searched_when_it_is_wanted() {
    let (mut path, mut changes) = (path(seconds(1), true, 1500, 9000), PathChanges::default());
    // A RESEND made the entry.
    path.lost(seconds(1));
    let mut now = seconds(1);
    while now < seconds(1) + Duration::millis(10) {
        if let Some(probe) = path.poll(now, true, &mut changes) {
            assert_eq!(probe.size, 1500, "nothing larger is wanted yet");
            path.answered(now, probe.id, &mut changes);
        }
        now += Duration::millis(1);
    }
    path.wanted(9000);
    let probe = path.poll(now, true, &mut changes).expect("the search begins");
    assert_eq!(probe.size, 9000);
    // A size that was lowered keeps its own time.
    path.answered(now, probe.id, &mut changes);
    path.too_big(now, 4000, &mut changes);
    path.wanted(9000);
    assert_eq!(path.poll(now + Duration::millis(900), true, &mut changes), None);
    let later = now + Duration::millis(1_000);
    assert_eq!(path.poll(later, true, &mut changes).map(|probe| probe.size), Some(9000));
}
