//! The receiving side of a stream: bytes that arrived in order, bytes beyond gaps, and the ends of
//! messages.
//!
//! Invariants: intervals beyond the in-order prefix neither touch nor overlap the prefix or each
//! other; each message is delivered once, when the prefix passes its last byte, in stream order.

use std::collections::VecDeque;

use super::{MessageTag, MessageTags};

/// A range of bytes of the stream; the end is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The effect of a range that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEffect {
    /// It started at or before the end of the prefix, and no bytes wait beyond a gap.
    InOrder,
    /// It filled (a part of) a gap. Bytes beyond it still wait, or have just joined the prefix.
    FilledGap,
    /// It is beyond a gap.
    OutOfOrder,
    /// All of its bytes had arrived before.
    Duplicate,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct InboundStream {
    /// All bytes before this one have arrived.
    next: u64,
    /// Ranges received beyond gaps, the most recently extended first (RFC 2018 §4).
    beyond: Vec<StreamRange>,
    /// Messages that are known but not delivered: first byte and description, in order.
    known: VecDeque<(u64, MessageTag)>,
    /// End of the last message delivered.
    delivered: u64,
}

impl InboundStream {
    /// The first missing byte.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Ranges received beyond gaps, the most recently extended first.
    #[inline]
    pub fn beyond(&self) -> &[StreamRange] {
        &self.beyond
    }

    /// Bytes from `start` on arrive. If a FIN follows them, it counts as one byte.
    #[inline]
    pub fn receive(&mut self, span: StreamRange, pieces: &MessageTags) -> StreamEffect {
        if span.end <= self.next {
            return StreamEffect::Duplicate;
        }
        self.note(span.start, pieces);
        if span.start > self.next {
            return self.insert(span);
        }
        self.next = span.end;
        if self.beyond.is_empty() {
            return StreamEffect::InOrder;
        }
        self.join();
        StreamEffect::FilledGap
    }

    /// Records the messages of a packet.
    fn note(&mut self, start: u64, pieces: &MessageTags) {
        let mut start = start.saturating_sub(u64::from(pieces.offset));
        for &piece in pieces.as_slice() {
            let end = start + u64::from(piece.length);
            if end > self.delivered {
                match self.known.back() {
                    Some(last) if last.0 == start => {}
                    Some(last) if last.0 > start => {
                        if let Err(at) = self.known.binary_search_by_key(&start, |it| it.0) {
                            self.known.insert(at, (start, piece));
                        }
                    }
                    _ => self.known.push_back((start, piece)),
                }
            }
            start = end;
        }
    }

    /// Adds a range beyond a gap, merged with those that it touches.
    fn insert(&mut self, span: StreamRange) -> StreamEffect {
        if self.beyond.iter().any(|it| it.start <= span.start && span.end <= it.end) {
            return StreamEffect::Duplicate;
        }
        let mut merged = span;
        self.beyond.retain(|it| {
            let touches = it.start <= merged.end && merged.start <= it.end;
            if touches {
                merged.start = merged.start.min(it.start);
                merged.end = merged.end.max(it.end);
            }
            !touches
        });
        self.beyond.insert(0, merged);
        StreamEffect::OutOfOrder
    }

    /// Extends the prefix by the ranges that it reaches.
    fn join(&mut self) {
        while let Some(at) = self.beyond.iter().position(|it| it.start <= self.next) {
            self.next = self.next.max(self.beyond.remove(at).end);
        }
    }

    /// Removes and returns the next message, if it is complete.
    #[inline]
    pub fn complete(&mut self) -> Option<MessageTag> {
        let &(start, piece) = self.known.front()?;
        let end = start + u64::from(piece.length);
        if end > self.next {
            return None;
        }
        self.known.pop_front();
        self.delivered = end;
        Some(piece)
    }

    /// Whether a message has started or bytes wait beyond a gap.
    pub fn is_busy(&self) -> bool {
        !self.known.is_empty() || !self.beyond.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stream::OutboundStream;
    use homa_proto::{MessageId, MessageKind};

    fn span(start: u64, end: u64) -> StreamRange {
        StreamRange { start, end }
    }

    #[test]
    fn the_latest_interval_comes_first_and_neighbours_merge() {
        let mut incoming = InboundStream::default();
        for (start, end) in [(10, 20), (40, 50), (60, 70), (20, 30)] {
            let what = incoming.receive(span(start, end), &MessageTags::NONE);
            assert_eq!(what, StreamEffect::OutOfOrder);
        }
        assert_eq!(incoming.beyond(), [span(10, 30), span(60, 70), span(40, 50)]);
        assert_eq!(incoming.receive(span(12, 28), &MessageTags::NONE), StreamEffect::Duplicate);
        assert_eq!(incoming.receive(span(0, 10), &MessageTags::NONE), StreamEffect::FilledGap);
        assert_eq!((incoming.next(), incoming.beyond().len()), (30, 2));
    }

    #[test]
    fn messages_arrive_whole_once_and_in_order_despite_faults() {
        arbtest::arbtest(|u| {
            let mut out = OutboundStream::default();
            let count = u.int_in_range(1..=8)?;
            for number in 1..=count {
                let length = u.int_in_range(1..=400)?;
                let piece = MessageTag { number, length, port: 0, kind: MessageKind::OneWay };
                out.push(piece, MessageId(number));
            }
            let mut packets = Vec::new();
            let mut at = 0;
            while at < out.end() {
                let len = out.span(at, u.int_in_range(1..=300)?);
                packets.push((at, len));
                at += u64::from(len);
            }
            let (mut incoming, mut delivered) = (InboundStream::default(), Vec::new());
            while !packets.is_empty() {
                let index = u.choose_index(packets.len())?;
                let (at, len) = packets[index];
                if u.ratio(2, 3)? {
                    packets.remove(index);
                }
                let pieces = out.pieces(at, len);
                incoming.receive(span(at, at + u64::from(len)), &pieces);
                delivered.extend(std::iter::from_fn(|| incoming.complete()).map(|p| p.number));
                assert!(delivered.iter().copied().eq(1..=delivered.len() as u32));
            }
            assert_eq!((delivered.len() as u32, incoming.next()), (count, out.end()));
            assert!(!incoming.is_busy());
            Ok(())
        });
    }
}
