//! Losses by time, and probes of the tail: RACK-TLP (RFC 8985).
//!
//! A segment is lost if a segment that was sent more than a reordering window later has arrived.
//! Left out: the adaptation of that window by the number of duplicates (§6.2 step 4), and timeouts
//! that only lose segments of sufficient age (§6.3).

use homa_proto::{Duration, Time};

use super::scoreboard::{DUP_THRESH, Scoreboard, Sent};

/// The probe's timeout before the first measurement (§7.2).
const FIRST_PROBE: Duration = Duration::secs(1);

/// A tail loss probe in flight (§7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailProbe {
    /// The acknowledgement number that acknowledges it.
    pub end: u64,
    /// It repeated a segment.
    pub repeats: bool,
}

/// RACK's state of a connection (§5.2).
#[derive(Clone, Copy, Debug)]
pub struct RackState {
    /// Of the segments that arrived, the one that was sent last: its send time and its end.
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
    /// The probe in flight.
    pub probe: Option<TailProbe>,
}

impl Default for RackState {
    /// The state at the start of a connection.
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

impl RackState {
    /// A segment arrived (§6.2 steps 1 to 3).
    #[inline]
    pub fn delivered(&mut self, now: Time, sent: &Sent) {
        let rtt = now.since(sent.at);
        if sent.repeated {
            if rtt < self.min_rtt {
                // The acknowledgement must be for its first copy.
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
        let immediate = !self.reordered && (recovering || board.sacked_segments() >= DUP_THRESH);
        if immediate || self.min_rtt == Duration::MAX {
            return Duration::ZERO;
        }
        let quarter = self.min_rtt.0 / 4;
        Duration(srtt.map_or(quarter, |srtt| quarter.min(srtt.0)))
    }

    /// Marks segments as lost that were sent long enough before one that arrived (§6.2 step 5);
    /// true if there were any.
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
                // All that follow were sent later, except segments that were sent again.
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

    /// How long to wait before the tail is probed (§7.2). If only one segment is in flight
    /// (`alone`), its acknowledgement may be delayed by `ack_delay`.
    pub fn probe_timeout(srtt: Option<Duration>, alone: bool, ack_delay: Duration) -> Duration {
        let twice = srtt.map_or(FIRST_PROBE, |srtt| Duration(2 * srtt.0));
        if alone { twice + ack_delay } else { twice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stream::StreamRange;

    /// Segments of 1,000 bytes, sent once per microsecond.
    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..segments).for_each(|i| board.push(i * 1_000, 1_000, Time(i * 1_000)));
        board
    }

    fn arrives(rack: &mut RackState, board: &mut Scoreboard, (now, index): (u64, u64)) -> bool {
        let block = StreamRange { start: index * 1_000, end: (index + 1) * 1_000 };
        board.sack(block, |sent| rack.delivered(Time(now), sent));
        rack.detect(Time(now), board, (Some(Duration::micros(40)), false))
    }

    #[test]
    fn a_late_segment_is_lost_after_a_quarter_of_a_round_trip() {
        let (mut rack, mut board) = (RackState::default(), board(5));
        // Segment 1 arrives after 40 us; segment 0 may still be in flight until 0 + 40 + 10 us.
        assert!(!arrives(&mut rack, &mut board, (41_000, 1)));
        assert_eq!(rack.due, Time(50_000));
        assert!(!rack.detect(Time(49_999), &mut board, (None, false)));
        assert!(rack.detect(Time(50_000), &mut board, (None, false)));
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
        assert_eq!(rack.due, Time::MAX, "segments 2 to 4 were sent after segment 1");
    }

    #[test]
    fn three_overtaking_segments_suffice_without_reordering() {
        for reorders in [false, true] {
            let (mut rack, mut board) = (RackState::default(), board(9));
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
    fn a_retransmission_can_be_lost_again() {
        let (mut rack, mut board) = (RackState::default(), board(5));
        (1..4).for_each(|i| {
            arrives(&mut rack, &mut board, (40_000 + i * 1_000, i));
        });
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
        board.resend(0, Time(44_000));
        board.push(5_000, 1_000, Time(45_000));
        assert!(!arrives(&mut rack, &mut board, (60_000, 4)));
        assert!(arrives(&mut rack, &mut board, (85_000, 5)), "sent after it, and arrived");
        assert_eq!(board.next_lost().map(|lost| lost.start), Some(0));
    }
}
