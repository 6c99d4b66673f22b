//! Received ranges of one message (Homa §3.3: DATA may arrive in any order and is collated by
//! offset).
//!
//! The rules are the kernel module's (Linux §2.3): a packet appends, opens a gap, or lies entirely
//! inside a gap. A packet that partly overlaps received bytes is discarded whole. So `received`
//! counts each byte once.

use crate::event::DropReason;
use alloc::vec::Vec;

/// Most gaps per message. Packets that would open another one are refused, because a hostile sender
/// could open one per byte.
const MAX_GAPS: usize = 1024;

/// Which bytes of a message have arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reassembly {
    length: u32,
    end: u32,
    missing: u32,
    gaps: Vec<(u32, u32)>,
}

impl Reassembly {
    pub(crate) const fn new(length: u32) -> Self {
        Self { length, end: 0, missing: 0, gaps: Vec::new() }
    }

    /// An empty message of another length.
    pub(crate) fn reuse(mut self, length: u32) -> Self {
        self.gaps.clear();
        Self { length, end: 0, missing: 0, gaps: self.gaps }
    }

    /// Length of the message in bytes.
    pub(crate) const fn length(&self) -> u32 {
        self.length
    }

    /// Bytes received.
    pub(crate) const fn received(&self) -> u32 {
        self.end - self.missing
    }

    /// End of the highest range received.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.received() == self.length
    }

    /// End of the prefix without gaps.
    pub(crate) fn contiguous(&self) -> u32 {
        self.gaps.first().map_or(self.end, |g| g.0)
    }

    /// Adds the bytes from `start` to before `end`, or says why they cannot be used.
    pub(crate) fn insert(&mut self, start: u32, end: u32) -> Result<(), DropReason> {
        if start >= end {
            return Err(DropReason::EmptyData);
        }
        if end > self.length {
            return Err(DropReason::BeyondEnd);
        }
        // Nearly all packets arrive in order.
        if start == self.end {
            self.end = end;
            return Ok(());
        }
        // The packet overtook others: it opens a gap.
        if start > self.end {
            if self.gaps.len() >= MAX_GAPS {
                return Err(DropReason::TooManyGaps);
            }
            self.gaps.push((self.end, start));
            self.missing += start - self.end;
            self.end = end;
            return Ok(());
        }
        self.fill(start, end)
    }

    fn fill(&mut self, start: u32, end: u32) -> Result<(), DropReason> {
        let full = self.gaps.len() >= MAX_GAPS;
        // Gaps are in order, so the first that ends beyond the packet's start may hold it.
        let at = self.gaps.partition_point(|g| g.1 <= start);
        let Some(gap) = self.gaps.get_mut(at).filter(|g| g.0 < end) else {
            let known = end <= self.end;
            return Err(if known { DropReason::Duplicate } else { DropReason::Overlap });
        };
        // Linux §2.3: a packet that overlaps received bytes is dropped whole.
        if start < gap.0 || end > gap.1 {
            return Err(DropReason::Overlap);
        }
        // A packet inside a gap splits it, which is one gap more.
        let splits = start > gap.0 && end < gap.1;
        if splits && full {
            return Err(DropReason::TooManyGaps);
        }
        self.missing -= end - start;
        match (start == gap.0, end == gap.1) {
            (true, true) => {
                self.gaps.remove(at);
            }
            (true, false) => gap.0 = end,
            (false, true) => gap.1 = start,
            (false, false) => {
                let rest = (end, gap.1);
                gap.1 = start;
                self.gaps.insert(at + 1, rest);
            }
        }
        Ok(())
    }

    /// The missing ranges in order: gaps that later bytes left, and the rest up to `limit`.
    pub(crate) fn missing_before(&self, limit: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let tail = (self.end < limit).then_some((self.end, limit));
        self.gaps.iter().copied().chain(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn agrees_with_a_bitmap_model_for_any_arrival_order() {
        arbtest::arbtest(|u| {
            let length = u.int_in_range(1..=60u32)?;
            let mut ours = Reassembly::new(length);
            let mut model = vec![false; length as usize];
            for _ in 0..u.int_in_range(0..=40)? {
                let start = u.int_in_range(0..=length + 2)?;
                let end = u.int_in_range(0..=length + 4)?;
                let inside = start < end && end <= length;
                let fresh = inside && !model[start as usize..end as usize].contains(&true);
                assert_eq!(ours.insert(start, end).is_ok(), fresh, "{ours:?} {start}..{end}");
                if fresh {
                    model[start as usize..end as usize].fill(true);
                }
                let received = model.iter().filter(|&&b| b).count() as u32;
                let prefix = model.iter().take_while(|&&b| b).count() as u32;
                assert_eq!((ours.received(), ours.contiguous()), (received, prefix));
                let mut holes = vec![false; length as usize];
                for (a, b) in ours.missing_before(length) {
                    holes[a as usize..b as usize].fill(true);
                }
                assert!(holes.iter().zip(&model).all(|(hole, got)| hole != got));
            }
            Ok(())
        });
    }

    #[test]
    fn every_other_byte_makes_no_more_gaps_than_are_tracked() {
        for first in [0, 999_999] {
            let mut m = Reassembly::new(1_000_000);
            m.insert(first, first + 1).unwrap();
            let refused = (1..499_999).filter(|n| m.insert(2 * n, 2 * n + 1).is_err()).count();
            assert_eq!(m.gaps.len(), MAX_GAPS);
            // Depending on the first packet, the others are appended or lie inside the gap before
            // it.
            assert!(refused > 499_998 - MAX_GAPS - 1, "{refused} refused");
            assert_eq!(m.insert(1, 2), Ok(()), "what closes a gap is welcome");
        }
    }

    #[test]
    fn a_packet_that_straddles_received_bytes_is_discarded_whole() {
        let mut m = Reassembly::new(3000);
        m.insert(0, 1000).unwrap();
        m.insert(2000, 3000).unwrap();
        assert_eq!(m.insert(900, 1100), Err(DropReason::Overlap));
        assert_eq!(m.insert(0, 1000), Err(DropReason::Duplicate));
        assert_eq!(m.insert(2000, 3001), Err(DropReason::BeyondEnd));
        assert_eq!(m.received(), 2000);
    }
}
