//! Ranges of a message to send again, because its receiver asked for them (Homa §3.7).
//!
//! They lie on packet boundaries, so that a packet either was received or repeats the original one:
//! receivers discard packets that overlap what they have (Linux §2.3). If the packet size changed
//! while the message was in progress, a retransmission holds exactly the bytes asked for instead.
//! Those are gaps between packets that arrived, so nothing overlaps.

use super::message::{NextRange, OutgoingMessage, PacketSizes};
use alloc::vec::Vec;

/// Most ranges per message: enough for every other packet of the kernel module's longest message.
/// More are merged into one.
const MAX_RANGES: usize = 512;

/// A range to send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResendRange {
    pub start: u32,
    pub end: u32,
    /// Where the range ends that the receiver asked for.
    pub requested: u32,
}

/// Ranges to send again, ascending and disjoint.
pub(super) type ResendRanges = Vec<ResendRange>;

impl OutgoingMessage {
    /// Schedules a range of sent bytes for retransmission, on packet boundaries; false if nothing
    /// of it was sent yet.
    pub(crate) fn resend(&mut self, sizes: PacketSizes, range: (u32, u32), priority: u8) -> bool {
        let (start, end) = (range.0, range.1.min(self.sent));
        // Bytes that were not sent yet will be sent anyway.
        if start >= end {
            return false;
        }
        let (first, last) = match sizes.changed() {
            true => (start, end),
            // Receivers drop packets that partly overlap, so whole packets are repeated.
            false => {
                (self.packet_at(sizes, start).0, self.packet_at(sizes, end - 1).1.min(self.sent))
            }
        };
        self.resend_priority = priority;
        let ranges = self.resend.get_or_insert_default();
        ranges.push(ResendRange { start: first, end: last, requested: end });
        ranges.sort_unstable();
        // Ranges that touch are one, so that no byte is sent twice.
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
                kept.requested = kept.requested.max(next.requested);
            }
            touches
        });
        // One range over all of them retransmits more, but takes no memory.
        if ranges.len() > MAX_RANGES {
            let last = ranges[ranges.len() - 1];
            let hull = ResendRange { start: ranges[0].start, ..last };
            ranges.clear();
            ranges.push(hull);
        }
        true
    }

    pub(super) fn take_again(&mut self, sizes: PacketSizes) -> Option<NextRange> {
        let ResendRange { start, end: limit, requested } = *self.resend.as_ref()?.first()?;
        let end = self.packet_at(sizes, start).1.min(limit);
        let ranges = self.resend.as_mut()?;
        if end < limit {
            ranges[0].start = end;
        } else {
            ranges.remove(0);
            if ranges.is_empty() {
                self.resend = None;
            }
        }
        Some(NextRange { start, end, requested: Some(requested) })
    }
}
