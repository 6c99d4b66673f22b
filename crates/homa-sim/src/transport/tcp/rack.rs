//! Losses by time, and probes of the tail: RACK-TLP (RFC 8985).
//!
//! A segment is lost when one that was sent later by more than a reordering window has arrived.
//! Left out: the adaptation of that window by the number of duplicates (§6.2 step 4), and timeouts
//! that lose only what is old enough (§6.3).

use homa_proto::{Duration, Time};

use super::scoreboard::{DUP_THRESH, Scoreboard, Sent};

/// The probe's timeout before the first measurement (§7.2).
const FIRST_PROBE: Duration = Duration::secs(1);

/// A tail loss probe under way (§7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What will acknowledge it.
    pub end: u64,
    /// It repeated a segment.
    pub repeats: bool,
}

/// What RACK remembers of a connection (§5.2).
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// When the segment was sent that was sent last of those that arrived, and its end.
    latest: (Time, u64),
    /// Its round-trip time.
    rtt: Duration,
    min_rtt: Duration,
    /// The highest byte that arrived.
    forward: u64,
    /// A segment arrived after one that was sent later.
    reordered: bool,
    /// When segments that may only be late count as lost.
    pub due: Time,
    /// When the tail is probed.
    pub probe_due: Time,
    /// The probe that is under way.
    pub probe: Option<Probe>,
}

impl Default for Rack {
    /// At the start of a connection.
    fn default() -> Self {
        Self {
            latest: (Time::ZERO, 0),
            rtt: Duration::ZERO,
            min_rtt: Duration::MAX,
            forward: 0,
            reordered: false,
            due: Time::MAX,
            probe_due: Time::MAX,
            probe: None,
        }
    }
}

impl Rack {
    /// A segment arrived (§6.2 steps 1 to 3).
    #[inline]
    pub fn delivered(&mut self, now: Time, sent: &Sent) {
        let rtt = now.since(sent.at);
        if sent.repeated {
            if rtt < self.min_rtt {
                // The acknowledgement is of its first copy.
                return;
            }
        } else {
            self.min_rtt = Duration(self.min_rtt.0.min(rtt.0));
            self.reordered |= sent.end() < self.forward;
        }
        self.forward = self.forward.max(sent.end());
        if (sent.at, sent.end()) > self.latest {
            self.latest = (sent.at, sent.end());
            self.rtt = rtt;
        }
    }

    /// How much later than another a segment may arrive (§6.2 step 4).
    fn window(&self, board: &Scoreboard, srtt: Option<Duration>, recovering: bool) -> Duration {
        let impatient = !self.reordered && (recovering || board.sacked_segments() >= DUP_THRESH);
        if impatient || self.min_rtt == Duration::MAX {
            return Duration::ZERO;
        }
        let quarter = self.min_rtt.0 / 4;
        Duration(srtt.map_or(quarter, |srtt| quarter.min(srtt.0)))
    }

    /// Loses what was sent long enough before what arrived (§6.2 step 5); true if there was any.
    pub fn detect(
        &mut self,
        now: Time,
        board: &mut Scoreboard,
        (srtt, recovering): (Option<Duration>, bool),
    ) -> bool {
        let window = self.window(board, srtt, recovering);
        let mut due = Time::ZERO;
        let (latest, rtt) = (self.latest, self.rtt);
        let found = board.lose_where(|sent| {
            let again = sent.repeated && sent.at == latest.0;
            if again || (sent.at, sent.end()) >= latest {
                // Whatever follows was sent later, but for segments sent again.
                return if sent.repeated { Some(false) } else { None };
            }
            let lost_at = sent.at + rtt + window;
            if lost_at > now {
                due = due.max(lost_at);
            }
            Some(lost_at <= now)
        });
        self.due = if due == Time::ZERO { Time::MAX } else { due };
        found
    }

    /// How long to wait before the tail is probed (§7.2): `alone` if one segment is under way,
    /// whose acknowledgement may be delayed by `ack_delay`.
    pub fn probe_timeout(srtt: Option<Duration>, alone: bool, ack_delay: Duration) -> Duration {
        let twice = srtt.map_or(FIRST_PROBE, |srtt| Duration(2 * srtt.0));
        if alone { twice + ack_delay } else { twice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stream::Interval;

    /// Segments of 1,000 bytes, sent every microsecond.
    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..segments).for_each(|i| board.push(i * 1_000, 1_000, Time(i * 1_000)));
        board
    }

    fn arrives(rack: &mut Rack, board: &mut Scoreboard, (now, index): (u64, u64)) -> bool {
        let block = Interval { start: index * 1_000, end: (index + 1) * 1_000 };
        board.sack(block, |sent| rack.delivered(Time(now), sent));
        rack.detect(Time(now), board, (Some(Duration::micros(40)), false))
    }

    #[test]
    fn a_segment_is_late_for_a_quarter_of_a_round_trip_and_then_lost() {
        let (mut rack, mut board) = (Rack::default(), board(5));
        // Segment 1 arrives after 40 us; segment 0 may still be on its way until 0 + 40 + 10 us.
        assert!(!arrives(&mut rack, &mut board, (41_000, 1)));
        assert_eq!(rack.due, Time(50_000));
        assert!(!rack.detect(Time(49_999), &mut board, (None, false)));
        assert!(rack.detect(Time(50_000), &mut board, (None, false)));
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
        assert_eq!(rack.due, Time::MAX, "segments 2 to 4 were sent after segment 1");
    }

    #[test]
    fn three_that_overtook_are_enough_unless_the_network_reorders() {
        for reorders in [false, true] {
            let (mut rack, mut board) = (Rack::default(), board(9));
            if reorders {
                assert!(!arrives(&mut rack, &mut board, (41_000, 1)));
                assert!(!arrives(&mut rack, &mut board, (41_500, 0)));
                board.acknowledge(2_000, |_| ());
            }
            let lost: Vec<bool> = [3, 4, 5]
                .map(|index| arrives(&mut rack, &mut board, (40_000 + index * 1_000, index)))
                .to_vec();
            assert_eq!(lost, [false, false, !reorders], "segment 2 overtaken by 3, 4 and 5");
        }
    }

    #[test]
    fn what_is_sent_again_can_be_lost_again() {
        let (mut rack, mut board) = (Rack::default(), board(5));
        (1..4).for_each(|i| {
            arrives(&mut rack, &mut board, (40_000 + i * 1_000, i));
        });
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
        board.resend(0, Time(44_000));
        board.push(5_000, 1_000, Time(45_000));
        assert!(!arrives(&mut rack, &mut board, (60_000, 4)));
        assert!(arrives(&mut rack, &mut board, (85_000, 5)), "sent after it, and here");
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
    }
}
