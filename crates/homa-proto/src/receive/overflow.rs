//! Overflows of the receive buffer: if many senders send unscheduled bytes at once (Homa §3.3,
//! §3.5), only an overflow shows how many they are.
//!
//! After an overflow each sender's share is halved, once for all packets that were dropped
//! together; after a while without one it is doubled. A peer takes nothing from others merely
//! because it called once, and an attacker takes nothing by making addresses up. The unscheduled
//! bytes that a sender sends show whether it has the right share, so a lost packet leaves no sender
//! with a wrong one.

use crate::units::{Duration, Time};

/// Overflows within this time are one: senders learn of it only then, and what they sent before
/// still arrives.
const TOGETHER: Duration = Duration::millis(10);

/// After this long without overflow the share is doubled.
const CALM: Duration = Duration::secs(4);

/// After this many halvings no share is more than a packet.
const MOST: u32 = 6;

/// The overflows of the receive buffer.
#[derive(Debug, Default)]
pub(crate) struct Overflows {
    halvings: u32,
    last: Time,
}

impl Overflows {
    /// The halvings that count now.
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
        // Packets that are dropped together are one overflow.
        if halvings == 0 || now.since(self.last) >= TOGETHER {
            *self = Self { halvings: (halvings + 1).min(MOST), last: now };
        }
    }
}
