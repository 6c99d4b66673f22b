//! How many bytes of a message its sender may send unscheduled, and how it learns that.

use crate::config::FULL_FRAME;
use crate::endpoint::Endpoint;
use crate::packet::{Data, Packet};
use crate::send::unscheduled::max_unscheduled;
use crate::units::{Duration, Time};

/// How often a sender is told that it may send more unscheduled bytes: it may have reasons not to.
const TELL_AGAIN: Duration = Duration::secs(1);

impl Endpoint {
    /// Environment in: packets were dropped because the receive buffer was full.
    pub fn overflowed(&mut self, now: Time) {
        self.begin(now);
        self.overflows.record(now);
    }

    /// Most unscheduled bytes of one message that we want from one sender.
    pub(crate) fn unscheduled_cap(&self) -> u32 {
        let most = self.config.receive_buffer.min(self.config.rtt_bytes_max);
        let most = most.min(max_unscheduled(&self.config));
        most >> self.overflows.halvings(self.now)
    }

    /// The first packet of a message: its sender gets CUTOFFS if its unscheduled bytes are more
    /// than its share and more than a packet, or less than half of its share.
    pub(crate) fn correct_sender(&mut self, now: Time, packet: &Packet, data: &Data) {
        let whole = data.span.len == data.message_length;
        // A retransmission does not show how much its sender sends unscheduled.
        if !self.config.policy().wire.corrects_senders || whole || data.retransmit {
            return;
        }
        let Some(peer) = self.peer(packet.peer) else { return };
        let last_told = peer.cutoffs_sent();
        // A packet may always be full; the share never shortens it.
        let least = peer.info.max_payload.max(FULL_FRAME);
        let share = self.unscheduled_cap();
        let more = data.incoming > least.saturating_add(share);
        let less = data.incoming < data.message_length.min(share / 2);
        // Too much is corrected at once, because it overflows the buffer; too little only wastes
        // time.
        if more || less && last_told.is_none_or(|at| now.since(at) >= TELL_AGAIN) {
            self.send_cutoffs(now, packet);
        }
    }
}
