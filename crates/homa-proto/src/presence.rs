//! How many peers speak to us: among how many the receive buffer is divided, when senders are told
//! how many bytes of a message they may send unasked (Homa §3.3, §3.5).
//!
//! Counted are peers heard of in this period or the one before, whichever are more. Peers known
//! from long ago, such as everyone who ever called once, or addresses that somebody made up, have
//! no part in the buffer. Whether a sender knows its share is seen from what it sends, so that
//! nothing lost or forgotten on the way leaves it with a wrong one.

use crate::config::{FULL_FRAME, Profile};
use crate::endpoint::Endpoint;
use crate::packet::{Data, Packet};
use crate::sender::MAX_UNSCHEDULED;
use crate::units::{Duration, Time};

/// A period has 2 to the power of this many nanoseconds: 8.6 s.
const PERIOD: u32 = 33;

/// A sender that sends less unasked than it may is told so this seldom: it may have its reasons.
const TELL_AGAIN: Duration = Duration::secs(1);

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

    /// For [`Endpoint::read_ahead`].
    pub(crate) const fn read_ahead(&self) -> u64 {
        self.period
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

    /// The first packet of a message: its sender is told when its unscheduled bytes are more than
    /// twice its share, or less than half.
    pub(crate) fn correct_sender(&mut self, now: Time, packet: &Packet, data: &Data) {
        let whole = data.span.len == data.message_length;
        if self.config.profile != Profile::Default || whole || data.retransmit {
            return;
        }
        let Some(peer) = self.peer(packet.peer) else { return };
        let told = peer.more.cutoffs_sent;
        // A packet may always be full.
        let least = peer.info.max_payload.max(FULL_FRAME);
        let share = self.unscheduled_cap();
        let more = data.incoming > least.max(share.saturating_mul(2));
        let less = data.incoming < data.message_length.min(share / 2);
        if more || less && told.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
            self.send_cutoffs(now, packet);
        }
    }
}
