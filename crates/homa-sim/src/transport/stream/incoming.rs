//! The receiving side of a stream: what is there in order, what is there beyond gaps, which
//! messages end where.
//!
//! Invariants: intervals beyond the in-order prefix neither touch nor overlap it or each other;
//! each message is delivered once, when the prefix passes its last byte, in the order of the
//! stream.

use std::collections::VecDeque;

use super::{Piece, Pieces};

/// Bytes of the stream: from the first to the one after the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It began at the end of the prefix, or before; nothing waits beyond a gap.
    InOrder,
    /// It closed (part of) a gap, and something beyond still waits or has just joined the prefix.
    FilledGap,
    /// It is beyond a gap.
    OutOfOrder,
    /// All of it was there before.
    Duplicate,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Everything before is there.
    next: u64,
    /// What is there beyond gaps, the latest touched first (RFC 2018 §4).
    beyond: Vec<Interval>,
    /// Messages known and not delivered: their first byte and what they are, in order.
    known: VecDeque<(u64, Piece)>,
    /// End of the last message delivered.
    delivered: u64,
}

impl Incoming {
    /// The first byte that is missing.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What is there beyond gaps, the latest touched first.
    #[inline]
    pub fn beyond(&self) -> &[Interval] {
        &self.beyond
    }

    /// Bytes from `start` on arrive, with a FIN after them that counts as one byte more if there is
    /// one.
    #[inline]
    pub fn receive(&mut self, span: Interval, pieces: &Pieces) -> Received {
        if span.end <= self.next {
            return Received::Duplicate;
        }
        self.note(span.start, pieces);
        if span.start > self.next {
            return self.insert(span);
        }
        self.next = span.end;
        if self.beyond.is_empty() {
            return Received::InOrder;
        }
        self.join();
        Received::FilledGap
    }

    /// Remembers the messages of a packet.
    fn note(&mut self, start: u64, pieces: &Pieces) {
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

    /// A span beyond a gap, merged with those that it touches.
    fn insert(&mut self, span: Interval) -> Received {
        if self.beyond.iter().any(|it| it.start <= span.start && span.end <= it.end) {
            return Received::Duplicate;
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
        Received::OutOfOrder
    }

    /// The prefix takes in what it reaches.
    fn join(&mut self) {
        while let Some(at) = self.beyond.iter().position(|it| it.start <= self.next) {
            self.next = self.next.max(self.beyond.remove(at).end);
        }
    }

    /// The next message that is there as a whole leaves.
    #[inline]
    pub fn complete(&mut self) -> Option<Piece> {
        let &(start, piece) = self.known.front()?;
        let end = start + u64::from(piece.length);
        if end > self.next {
            return None;
        }
        self.known.pop_front();
        self.delivered = end;
        Some(piece)
    }

    /// True when a message has begun or bytes wait beyond a gap.
    pub fn is_busy(&self) -> bool {
        !self.known.is_empty() || !self.beyond.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stream::Outgoing;
    use homa_proto::{MessageId, MessageKind};

    fn span(start: u64, end: u64) -> Interval {
        Interval { start, end }
    }

    #[test]
    fn the_latest_interval_comes_first_and_neighbours_merge() {
        let mut incoming = Incoming::default();
        for (start, end) in [(10, 20), (40, 50), (60, 70), (20, 30)] {
            let what = incoming.receive(span(start, end), &Pieces::NONE);
            assert_eq!(what, Received::OutOfOrder);
        }
        assert_eq!(incoming.beyond(), [span(10, 30), span(60, 70), span(40, 50)]);
        assert_eq!(incoming.receive(span(12, 28), &Pieces::NONE), Received::Duplicate);
        assert_eq!(incoming.receive(span(0, 10), &Pieces::NONE), Received::FilledGap);
        assert_eq!((incoming.next(), incoming.beyond().len()), (30, 2));
    }

    #[test]
    fn messages_come_whole_once_and_in_order_whatever_the_network_does() {
        arbtest::arbtest(|u| {
            let mut out = Outgoing::default();
            let count = u.int_in_range(1..=8)?;
            for number in 1..=count {
                let length = u.int_in_range(1..=400)?;
                let piece = Piece { number, length, port: 0, kind: MessageKind::OneWay };
                out.push(piece, MessageId(number));
            }
            let mut packets = Vec::new();
            let mut at = 0;
            while at < out.end() {
                let len = out.span(at, u.int_in_range(1..=300)?);
                packets.push((at, len));
                at += u64::from(len);
            }
            let (mut incoming, mut delivered) = (Incoming::default(), Vec::new());
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
