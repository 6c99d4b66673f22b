//! How many bytes of a message its sender may send unasked (Homa §3.3, §3.5), where many do so at
//! once: the receive buffer takes what it takes, and only its overflow tells how many those are.
//!
//! After an overflow the share is half, once for all that overflowed together; after a while
//! without one it is twice as much again. Nobody's mere presence takes anything from others: not
//! that of everyone who ever called, nor of addresses that somebody made up. Whether a sender knows
//! its share is seen from what it sends, so that nothing lost or forgotten on the way leaves it
//! with a wrong one.

use crate::units::{Duration, Time};

/// Overflows within this time are one: senders hear of it first, and what they sent before arrives.
const TOGETHER: Duration = Duration::millis(10);

/// After this long without overflow the share is doubled.
const CALM: Duration = Duration::secs(4);

/// Halvings after which no share is more than a packet.
const MOST: u32 = 6;

/// The overflows of the receive buffer.
#[derive(Debug, Default)]
pub(crate) struct Overflows {
    halvings: u32,
    last: Time,
}

impl Overflows {
    /// Halvings that count now.
    pub(super) fn halvings(&self, now: Time) -> u32 {
        if self.halvings == 0 {
            return 0;
        }
        let calm = u32::try_from(now.since(self.last).0 / CALM.0).unwrap_or(u32::MAX);
        self.halvings.saturating_sub(calm)
    }

    /// The buffer overflowed.
    pub(super) fn record(&mut self, now: Time) {
        let halvings = self.halvings(now);
        if halvings == 0 || now.since(self.last) >= TOGETHER {
            *self = Self { halvings: (halvings + 1).min(MOST), last: now };
        }
    }
}
