//! How many peers speak to us: among how many the receive buffer is divided, when senders are told
//! how many bytes of a message they may send unasked (Homa §3.3, §3.5).
//!
//! Counted are peers heard of in this period or the one before, whichever are more. Peers known
//! from long ago, such as everyone who ever called once, or addresses that somebody made up, have
//! no part in the buffer.

use crate::endpoint::Endpoint;
use crate::sender::MAX_UNSCHEDULED;
use crate::units::Time;

/// A period has 2 to the power of this many nanoseconds: 8.6 s.
const PERIOD: u32 = 33;

/// Peers heard of.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    period: u64,
    /// In this period and the one before.
    peers: [u32; 2],
}

impl Presence {
    /// A packet arrived from a peer that was `last` heard of then, or never.
    pub(crate) fn heard(&mut self, last: Time, now: Time) {
        let period = now.0 >> PERIOD;
        if period != self.period {
            let before = if period == self.period + 1 { self.peers[0] } else { 0 };
            self.peers = [0, before];
            self.period = period;
        }
        if last == Time::ZERO || last.0 >> PERIOD != period {
            self.peers[0] += 1;
        }
    }

    fn count(&self) -> u32 {
        self.peers[0].max(self.peers[1]).max(1)
    }
}

impl Endpoint {
    /// Most unscheduled bytes of one message we want from one sender.
    pub(crate) fn unscheduled_cap(&self) -> u32 {
        let share = self.config.receive_buffer / self.presence.count();
        share.min(self.config.rtt_bytes_max).min(MAX_UNSCHEDULED)
    }
}
