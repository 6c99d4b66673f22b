//! Segments that were sent and are not acknowledged: the scoreboard of RFC 6675 with the send times
//! of RFC 8985.
//!
//! Invariants: segments are contiguous and cover exactly the bytes from the acknowledgement to the
//! next byte to be sent; `pipe` is the bytes of segments that are neither selectively acknowledged
//! nor lost, unless they were sent again after the loss (RFC 6675 §4).

use std::collections::VecDeque;

use homa_proto::Time;

use crate::transport::stream::StreamRange;

/// A segment counts as lost after this many duplicates, or segments that overtook it (RFC 5681
/// §3.2, RFC 6675 §2).
pub const DUP_THRESH: u32 = 3;

/// A segment in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its first byte.
    pub start: u64,
    /// When it was last sent.
    pub at: Time,
    /// How many sequence numbers it takes.
    pub len: u32,
    /// It has arrived, beyond a gap.
    pub sacked: bool,
    /// It counts as lost.
    pub lost: bool,
    /// It was sent again after it was lost.
    pub resent: bool,
    /// It was sent more than once, so its round trip is unknown (Karn's rule).
    pub repeated: bool,
}

impl Sent {
    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    fn in_pipe(&self) -> bool {
        !self.sacked && (!self.lost || self.resent)
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Scoreboard {
    sent: VecDeque<Sent>,
    pipe: u32,
    /// Bytes that are selectively acknowledged.
    sacked: u32,
    /// Lost segments that wait to be sent again.
    to_resend: u32,
    /// End of the highest selectively acknowledged segment.
    highest_sacked: u64,
}

impl Scoreboard {
    /// Estimated bytes in flight.
    #[inline]
    pub fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Whether any segment is selectively acknowledged.
    #[inline]
    pub fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    /// How many segments are selectively acknowledged, counted up to three.
    pub fn sacked_segments(&self) -> u32 {
        let mut sacked = self.sent.iter().filter(|sent| sent.sacked);
        (0..DUP_THRESH).take_while(|_| sacked.next().is_some()).count() as u32
    }

    /// How many segments are not acknowledged.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// True if nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The segments in order.
    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter()
    }

    /// Adds new bytes that are sent.
    #[inline]
    pub fn push(&mut self, start: u64, len: u32, at: Time) {
        let flags = (false, false, false, false);
        let (sacked, lost, resent, repeated) = flags;
        self.sent.push_back(Sent { start, at, len, sacked, lost, resent, repeated });
        self.pipe += len;
    }

    /// Removes all bytes before `una`; each whole segment is passed to `gone`.
    #[inline]
    pub fn acknowledge(&mut self, una: u64, mut gone: impl FnMut(&Sent)) {
        while let Some(first) = self.sent.front_mut() {
            if first.end() <= una {
                let first = *first;
                self.count_out(&first);
                self.sent.pop_front();
                gone(&first);
                continue;
            }
            if first.start < una {
                // Only a part of the segment is acknowledged.
                let part = (una - first.start) as u32;
                if first.in_pipe() {
                    self.pipe -= part;
                } else if first.sacked {
                    self.sacked -= part;
                }
                first.start = una;
                first.len -= part;
            }
            break;
        }
    }

    fn count_out(&mut self, sent: &Sent) {
        if sent.in_pipe() {
            self.pipe -= sent.len;
        } else if sent.sacked {
            self.sacked -= sent.len;
        } else {
            self.to_resend -= 1;
        }
    }

    /// Records a selectively acknowledged block; segments not recorded before are passed to `gone`.
    pub fn sack(&mut self, block: StreamRange, mut gone: impl FnMut(&Sent)) {
        let first = self.sent.partition_point(|sent| sent.start < block.start);
        for index in first..self.sent.len() {
            let sent = self.sent[index];
            if sent.end() > block.end {
                break;
            }
            if sent.sacked {
                continue;
            }
            self.count_out(&sent);
            self.sacked += sent.len;
            self.sent[index].sacked = true;
            self.highest_sacked = self.highest_sacked.max(sent.end());
            gone(&sent);
        }
    }

    fn lose(&mut self, index: usize) {
        let sent = &mut self.sent[index];
        if sent.in_pipe() {
            self.pipe -= sent.len;
            self.to_resend += 1;
            (sent.lost, sent.resent) = (true, false);
        }
    }

    /// RFC 6675 §4, `IsLost`: at least three higher segments, or more bytes than two full segments,
    /// were selectively acknowledged. True if a segment is newly lost.
    pub fn lose_overtaken(&mut self, mss: u32) -> bool {
        let (mut segments, mut bytes, mut found) = (0, 0, false);
        for index in (0..self.sent.len()).rev() {
            let sent = self.sent[index];
            if sent.sacked {
                segments += 1;
                bytes += sent.len;
            } else if !sent.lost && (segments >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss) {
                self.lose(index);
                found = true;
            }
        }
        found
    }

    /// Marks the segments as lost for which `is_lost` says so, in order until it returns `None`;
    /// true if any was.
    pub fn lose_where(&mut self, mut is_lost: impl FnMut(&Sent) -> Option<bool>) -> bool {
        let mut found = false;
        for index in 0..self.sent.len() {
            let sent = self.sent[index];
            if !sent.in_pipe() {
                continue;
            }
            match is_lost(&sent) {
                Some(true) => self.lose(index),
                Some(false) => continue,
                None => break,
            }
            found = true;
        }
        found
    }

    /// Marks the first segment as lost (RFC 6582 §3.2).
    pub fn lose_first(&mut self) {
        if !self.sent.is_empty() {
            self.lose(0);
        }
    }

    /// Marks all segments as lost that are not selectively acknowledged (RFC 5681 §3.1).
    pub fn lose_all(&mut self) {
        (0..self.sent.len()).for_each(|index| self.lose(index));
    }

    /// The first lost segment that waits to be sent again.
    #[inline]
    pub fn next_lost(&self) -> Option<Sent> {
        if self.to_resend == 0 {
            return None;
        }
        self.sent.iter().find(|sent| !sent.sacked && sent.lost && !sent.resent).copied()
    }

    /// Records that a segment is sent again.
    pub fn resend(&mut self, start: u64, at: Time) {
        let index = self.sent.partition_point(|sent| sent.start < start);
        let Some(sent) = self.sent.get_mut(index) else { return };
        if !sent.in_pipe() && !sent.sacked {
            self.pipe += sent.len;
            self.to_resend -= 1;
            sent.resent = true;
        }
        (sent.at, sent.repeated) = (at, true);
    }

    /// The last segment.
    pub fn last(&self) -> Option<Sent> {
        self.sent.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    fn ten() -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..10).for_each(|index| board.push(index * 1_000, MSS, Time(index)));
        board
    }

    fn block(from: u64, to: u64) -> StreamRange {
        StreamRange { start: from * 1_000, end: to * 1_000 }
    }

    #[test]
    fn pipe_counts_bytes_neither_acknowledged_nor_lost() {
        let mut board = ten();
        assert_eq!(board.pipe(), 10_000);
        board.sack(block(2, 4), |_| ());
        assert_eq!((board.pipe(), board.lose_overtaken(MSS)), (8_000, false));
        // A third segment above 0 and 1, so these are lost; it says nothing about 4 and later ones.
        board.sack(block(5, 6), |_| ());
        assert!(board.lose_overtaken(MSS));
        assert_eq!((board.pipe(), board.next_lost().map(|it| it.start)), (5_000, Some(0)));
        board.resend(0, Time(50));
        assert_eq!((board.pipe(), board.next_lost().map(|it| it.start)), (6_000, Some(1_000)));
        assert!(!board.lose_overtaken(MSS), "old blocks do not lose retransmissions");
        // All segments except 1, 4 and 6 to 9 have arrived.
        board.acknowledge(1_000, |_| ());
        assert_eq!(board.pipe(), 5_000);
        board.acknowledge(4_000, |_| ());
        assert_eq!((board.pipe(), board.next_lost()), (5_000, None));
        board.acknowledge(10_000, |_| ());
        assert_eq!((board.pipe(), board.has_sacked(), board.len()), (0, false, 0));
    }

    #[test]
    fn a_timeout_loses_all_segments_that_have_not_arrived() {
        let mut board = ten();
        board.sack(block(8, 9), |_| ());
        board.lose_first();
        board.resend(0, Time(20));
        board.lose_all();
        assert_eq!(board.pipe(), 0);
        let mut order = Vec::new();
        while let Some(lost) = board.next_lost() {
            order.push(lost.start / 1_000);
            board.resend(lost.start, Time(30));
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(board.pipe(), 9_000);
    }

    #[test]
    fn an_acknowledgement_may_cover_a_part_of_a_segment() {
        let mut board = ten();
        board.acknowledge(1_300, |_| ());
        assert_eq!((board.pipe(), board.len()), (8_700, 9));
        assert_eq!(board.iter().next().map(|first| (first.start, first.len)), Some((1_300, 700)));
    }
}
