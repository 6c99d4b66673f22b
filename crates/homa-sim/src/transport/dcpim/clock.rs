//! The time table of the matching: rounds of equal length, counted from time 0 on all hosts.
//!
//! Hosts are synchronised, as in the authors' simulator. In the first half of a round requests and
//! in the second half grants travel; receivers accept when the next round begins. An epoch has the
//! rounds of one matching. While an epoch's hosts match, those of the epoch before send data.

use homa_proto::{Duration, Time};

/// See the module's description. Rounds have consecutive numbers over all epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundClock {
    /// Length of a round; at least 2 ns.
    pub round: Duration,
    /// Rounds of an epoch; at least 1.
    pub rounds: u32,
}

impl RoundClock {
    /// The round that a time is in.
    pub fn at(self, now: Time) -> u64 {
        now.0 / self.round.0
    }

    /// When a round begins.
    pub fn start(self, round: u64) -> Time {
        Time(round * self.round.0)
    }

    /// When senders answer the requests of a round.
    pub fn half(self, round: u64) -> Time {
        Time(self.start(round).0 + self.round.0 / 2)
    }

    /// The epoch in which a round is.
    pub fn epoch(self, round: u64) -> u64 {
        round / u64::from(self.rounds)
    }

    /// The number of a round within its epoch, from 0.
    pub fn number(self, round: u64) -> u32 {
        (round % u64::from(self.rounds)) as u32
    }

    /// When an epoch ends.
    pub fn end(self, epoch: u64) -> Time {
        Time((epoch + 1) * u64::from(self.rounds) * self.round.0)
    }

    /// Length of an epoch.
    pub fn length(self) -> Duration {
        Duration(self.round.0 * u64::from(self.rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_epochs_follow_each_other_without_gaps() {
        let clock = RoundClock { round: Duration(100), rounds: 4 };
        assert_eq!([0, 99, 100, 399, 400].map(|at| clock.at(Time(at))), [0, 0, 1, 3, 4]);
        assert_eq!((clock.start(5), clock.half(5)), (Time(500), Time(550)));
        assert_eq!([3, 4, 7].map(|round| clock.epoch(round)), [0, 1, 1]);
        assert_eq!([3, 4, 7].map(|round| clock.number(round)), [3, 0, 3]);
        // A day has more rounds than 32 bits count.
        let day = Time(86_400_000_000_000);
        assert_eq!(clock.start(clock.at(day)), day);
        assert_eq!((clock.end(0), clock.length()), (clock.start(4), Duration(400)));
    }
}
