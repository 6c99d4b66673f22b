//! An outgoing message: which bytes may be sent, which were, and the boundaries of its packets.
//!
//! Invariant: packet boundaries are a function of the message and the packet size of its peer, so a
//! retransmission repeats the original packets (Linux §2.3). If the packet size changed while
//! messages were in progress, see `retransmit`.

use super::levels::GrantedLevels;
use super::retransmit::ResendRanges;
use crate::config::{Config, GrantedLevel};
use crate::link::LinkId;
use crate::peer::Peer;
use alloc::boxed::Box;

/// [`OutgoingMessage::queued`] of a message that is not in the SRPT queue: no message has this many
/// bytes left.
pub(super) const NOT_QUEUED: u32 = u32::MAX;

/// Message bytes per packet to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketSizes {
    unscheduled: u32,
    scheduled: u32,
    /// Some packets may have had other sizes.
    changed: bool,
}

impl PacketSizes {
    pub(crate) fn new(config: &Config, peer: &Peer) -> Self {
        let unscheduled = peer.info.max_payload;
        let scheduled = unscheduled.saturating_add(config.scheduled_extra);
        Self { unscheduled, scheduled, changed: false }
    }

    /// For ranges that the receiver asks for again.
    pub(crate) fn again(config: &Config, peer: &Peer) -> Self {
        Self { changed: peer.payload_changed(), ..Self::new(config, peer) }
    }

    pub(super) const fn changed(self) -> bool {
        self.changed
    }
}

/// The next range to send.
pub(super) struct NextRange {
    pub start: u32,
    pub end: u32,
    /// A retransmission: where the range ends that the receiver asked for.
    pub requested: Option<u32>,
}

/// An outgoing message.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OutgoingMessage {
    pub(crate) length: u32,
    /// Bytes before this go without a grant.
    pub(crate) unscheduled: u32,
    /// All bytes before this may be sent.
    pub(crate) granted: u32,
    /// All bytes before this were sent at least once.
    pub(crate) sent: u32,
    /// Bytes before this exist and may leave in whole packets: all, unless the application writes
    /// the message while it is sent.
    pub(super) ready: u32,
    /// Key of the valid entry in the SRPT queue, or [`NOT_QUEUED`].
    pub(super) queued: u32,
    pub(super) in_fifo: bool,
    /// The link to its peer.
    pub(crate) link: LinkId,
    /// Level of retransmitted bytes, from the last RESEND.
    pub(crate) resend_priority: u8,
    /// Bytes in its first packet that do not belong to the message.
    head: u8,
    /// Order of submission.
    pub(crate) age: u64,
    /// Levels of granted bytes.
    pub(super) levels: GrantedLevels,
    /// Absent unless a packet was lost.
    pub(super) resend: Option<Box<ResendRanges>>,
}

impl Default for OutgoingMessage {
    fn default() -> Self {
        Self::new(0, 0, 0, LinkId::default())
    }
}

impl OutgoingMessage {
    /// A message of `length` bytes, the `age`th.
    pub(crate) fn new(length: u32, unscheduled: u32, age: u64, link: LinkId) -> Self {
        Self {
            length,
            unscheduled,
            granted: unscheduled,
            sent: 0,
            ready: length,
            queued: NOT_QUEUED,
            in_fifo: false,
            link,
            resend_priority: 0,
            head: 0,
            age,
            levels: GrantedLevels::default(),
            resend: None,
        }
    }

    /// The same if the first packet holds `head` bytes beside the message. Unscheduled bytes still
    /// fill packets.
    pub(crate) fn with_head(self, head: u8) -> Self {
        // A message that is unscheduled as a whole stays so.
        let unscheduled = match self.unscheduled < self.length {
            // At least one byte is unscheduled, because the receiver learns about the message from
            // it.
            true if head > 0 => self.unscheduled.saturating_sub(head.into()).max(1),
            _ => self.unscheduled,
        };
        Self { head, unscheduled, granted: unscheduled, ..self }
    }

    /// True once a message was submitted.
    pub(crate) const fn exists(&self) -> bool {
        self.length > 0
    }

    pub(crate) const fn fully_sent(&self) -> bool {
        self.sent >= self.length && self.resend.is_none()
    }

    /// True while bytes may be sent for the first time, or have to be retransmitted.
    pub(crate) const fn has_bytes_to_send(&self) -> bool {
        self.may_send_more() || self.resend.is_some()
    }

    /// True while bytes may be sent for the first time.
    pub(crate) const fn may_send_more(&self) -> bool {
        self.sent < self.granted && self.sent < self.ready
    }

    /// True until the application has written the message whole.
    pub(crate) const fn is_being_written(&self) -> bool {
        self.ready < self.length
    }

    /// True if all that the application has written was sent, and it has to write more.
    pub(crate) const fn waits_for_writer(&self) -> bool {
        self.is_being_written() && self.sent >= self.ready
    }

    /// Only the first `bytes` bytes exist so far. A packet leaves when all its bytes exist.
    pub(super) fn set_written(&mut self, sizes: PacketSizes, bytes: u32) {
        // If packets have grown since, the boundary may lie before bytes that have left.
        let whole = |bytes| self.packet_at(sizes, bytes).0.max(self.sent);
        self.ready = if bytes < self.length { whole(bytes) } else { self.length };
    }

    pub(super) const fn is_queued(&self) -> bool {
        self.queued != NOT_QUEUED
    }

    /// Bytes left, which SRPT orders by.
    pub(super) fn remaining(&self) -> u32 {
        let again: u32 =
            self.resend.iter().flat_map(|ranges| ranges.iter()).map(|r| r.end - r.start).sum();
        self.length - self.sent + again
    }

    /// Bytes up to `offset` are granted, at `level`.
    pub(crate) fn grant(&mut self, offset: u32, level: u8, rule: GrantedLevel) {
        // A peer may name any offset, and no byte beyond the end exists.
        let offset = offset.min(self.length);
        match rule {
            // The kernel module: a GRANT sets the level of all bytes that have not left.
            GrantedLevel::AllUnsent => self.levels = GrantedLevels::all(level),
            GrantedLevel::OwnBytes if offset > self.granted => {
                self.levels.push(self.sent, offset, level);
            }
            // A GRANT that a later one overtook allows nothing new.
            GrantedLevel::OwnBytes => {}
        }
        // GRANTs may overtake each other, and a grant is never withdrawn.
        self.granted = self.granted.max(offset);
    }

    /// Start and end of the part of the message that holds `offset`, and its bytes per packet. The
    /// unscheduled limit is always a packet boundary.
    fn part_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32, u32) {
        // Packets of the two parts may have different sizes, so neither crosses the limit.
        if offset < self.unscheduled {
            (0, self.unscheduled.min(self.length), sizes.unscheduled)
        } else {
            (self.unscheduled, self.length, sizes.scheduled)
        }
    }

    /// The original packet that holds `offset`.
    pub(super) fn packet_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32) {
        let (base, limit, payload) = self.part_at(sizes, offset);
        // As if the head were the message's first bytes.
        // The head leaves a byte free, because each packet has to carry some of the message.
        let head = if base == 0 { u32::from(self.head).min(payload - 1) } else { 0 };
        let start = base + (offset - base + head) / payload * payload;
        (start.saturating_sub(head), start.saturating_add(payload - head).min(limit))
    }

    /// Forgets that anything was sent, because the server has nothing of it.
    pub(crate) fn restart(&mut self) {
        self.resend = None;
        self.sent = 0;
        self.granted = self.unscheduled;
    }

    /// Takes the next packet.
    pub(super) fn take(&mut self, sizes: PacketSizes) -> NextRange {
        if let Some(accepted) = self.take_again(sizes) {
            return accepted;
        }
        // The bytes sent so far end with a packet.
        let start = self.sent;
        let (_, limit, payload) = self.part_at(sizes, start);
        let head = if start == 0 { u32::from(self.head).min(payload - 1) } else { 0 };
        // If the packet size grew since the bytes were written, they may be less than a packet.
        self.sent = start.saturating_add(payload - head).min(limit).min(self.ready);
        NextRange { start, end: self.sent, requested: None }
    }
}
