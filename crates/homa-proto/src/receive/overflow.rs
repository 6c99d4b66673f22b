//! How many bytes of a message its sender may send unasked (Homa §3.3, §3.5), where many do so at
//! once: the receive buffer takes what it takes, and only its overflow tells how many those are.
//!
//! After an overflow the share is half, once for all that overflowed together; after a while
//! without one it is twice as much again. Nobody's mere presence takes anything from others: not
//! that of everyone who ever called, nor of addresses that somebody made up. Whether a sender knows
//! its share is seen from what it sends, so that nothing lost or forgotten on the way leaves it
//! with a wrong one.

use crate::config::FULL_FRAME;
use crate::endpoint::Endpoint;
use crate::packet::{Data, Packet};
use crate::send::unscheduled::MAX_UNSCHEDULED;
use crate::units::{Duration, Time};

/// Overflows within this time are one: senders hear of it first, and what they sent before arrives.
const TOGETHER: Duration = Duration::millis(10);

/// After this long without overflow the share is doubled.
const CALM: Duration = Duration::secs(4);

/// Halvings after which no share is more than a packet.
const MOST: u32 = 6;

/// A sender that sends less unasked than it may is told so this seldom: it may have its reasons.
const TELL_AGAIN: Duration = Duration::secs(1);

/// The overflows of the receive buffer.
#[derive(Debug, Default)]
pub(crate) struct Overflows {
    halvings: u32,
    last: Time,
}

impl Overflows {
    /// Halvings that count now.
    fn now(&self, now: Time) -> u32 {
        if self.halvings == 0 {
            return 0;
        }
        let calm = u32::try_from(now.since(self.last).0 / CALM.0).unwrap_or(u32::MAX);
        self.halvings.saturating_sub(calm)
    }
}

impl Endpoint {
    /// Environment in: packets were dropped since the receive buffer was full.
    pub fn overflowed(&mut self, now: Time) {
        self.begin(now);
        let halvings = self.overflows.now(now);
        if halvings == 0 || now.since(self.overflows.last) >= TOGETHER {
            self.overflows = Overflows { halvings: (halvings + 1).min(MOST), last: now };
        }
    }

    /// Most unscheduled bytes of one message we want from one sender.
    pub(crate) fn unscheduled_cap(&self) -> u32 {
        let most = self.config.receive_buffer.min(self.config.rtt_bytes_max).min(MAX_UNSCHEDULED);
        most >> self.overflows.now(self.now)
    }

    /// The first packet of a message: its sender is told when its unscheduled bytes are more than
    /// its share, and more than a packet; or less than half.
    pub(crate) fn correct_sender(&mut self, now: Time, packet: &Packet, data: &Data) {
        let whole = data.span.len == data.message_length;
        if !self.config.policy().wire.corrects_senders || whole || data.retransmit {
            return;
        }
        let Some(peer) = self.peer(packet.peer) else { return };
        let last_told = peer.cutoffs_sent();
        // A packet may always be full, and is never cut for the share's sake.
        let least = peer.info.max_payload.max(FULL_FRAME);
        let share = self.unscheduled_cap();
        let more = data.incoming > least.saturating_add(share);
        let less = data.incoming < data.message_length.min(share / 2);
        if more || less && last_told.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
            self.send_cutoffs(now, packet);
        }
    }
}
