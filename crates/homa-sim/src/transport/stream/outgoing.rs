//! The sending side of a stream: messages in order, kept until they are acknowledged.
//!
//! Invariant: messages are contiguous. The first message kept ends after the acknowledged prefix,
//! and the last one ends at [`OutboundStream::end`].

use std::collections::VecDeque;

use homa_proto::MessageId;

use super::{MAX_TAGS, MessageTag, MessageTags};

/// A message that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMessage {
    /// Its first byte in the stream.
    pub start: u64,
    /// Its description in packets.
    pub piece: MessageTag,
    /// Its id at the application.
    pub id: MessageId,
}

impl StreamMessage {
    fn end(&self) -> u64 {
        self.start + u64::from(self.piece.length)
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct OutboundStream {
    messages: VecDeque<StreamMessage>,
    end: u64,
}

impl OutboundStream {
    /// Appends a message.
    pub fn push(&mut self, piece: MessageTag, id: MessageId) {
        let message = StreamMessage { start: self.end, piece, id };
        self.end = message.end();
        self.messages.push_back(message);
    }

    /// The end of the last message, which is the number of bytes ever written.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Index in the queue of the message that holds a byte.
    fn index(&self, at: u64) -> usize {
        match self.messages.front() {
            Some(first) if at < first.end() => 0,
            _ => self.messages.partition_point(|message| message.end() <= at),
        }
    }

    /// The message that holds an unacknowledged byte, and the byte's offset in the message.
    #[inline]
    pub fn at(&self, at: u64) -> Option<(MessageTag, u32)> {
        let message = self.messages.get(self.index(at))?;
        Some((message.piece, (at - message.start) as u32))
    }

    /// How many bytes from `at` on fit in a packet with space for `room` bytes.
    #[inline]
    pub fn span(&self, at: u64, room: u32) -> u32 {
        let left = (self.end - at).min(u64::from(room));
        let last = self.messages.get(self.index(at) + MAX_TAGS - 1);
        last.map_or(left, |last| left.min(last.end() - at)) as u32
    }

    /// The messages in a range.
    #[inline]
    pub fn pieces(&self, at: u64, len: u32) -> MessageTags {
        let mut pieces = MessageTags::NONE;
        let end = at + u64::from(len);
        let first = self.index(at);
        for message in self.messages.range(first.min(self.messages.len())..) {
            if message.start >= end {
                break;
            }
            if message.start <= at {
                pieces.offset = (at - message.start) as u32;
            }
            pieces.push(message.piece);
        }
        pieces
    }

    /// Removes and returns the first message, if all its bytes lie before `una`.
    #[inline]
    pub fn release(&mut self, una: u64) -> Option<StreamMessage> {
        self.messages.front().filter(|message| message.end() <= una)?;
        self.messages.pop_front()
    }

    /// Removes and returns all messages, acknowledged or not.
    pub fn drain(&mut self) -> impl Iterator<Item = StreamMessage> {
        self.messages.drain(..)
    }

    /// Messages that are not wholly acknowledged.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether every message is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::MessageKind;

    fn stream(lengths: &[u32]) -> OutboundStream {
        let mut out = OutboundStream::default();
        for (number, &length) in (1..).zip(lengths) {
            let piece = MessageTag { number, length, port: 0, kind: MessageKind::OneWay };
            out.push(piece, MessageId(number));
        }
        out
    }

    #[test]
    fn a_packet_names_the_messages_of_its_span() {
        let out = stream(&[1_000, 10, 10, 2_000]);
        assert_eq!(out.span(0, 1_460), 1_460);
        let pieces = out.pieces(500, 960);
        assert_eq!(pieces.offset, 500);
        let numbers: Vec<u32> = pieces.as_slice().iter().map(|piece| piece.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(out.at(1_015), Some((pieces.as_slice()[2], 5)));
        let one = out.pieces(1_460, 1_460);
        assert_eq!((one.offset, one.as_slice().len()), (440, 1));
    }

    #[test]
    fn a_packet_ends_with_its_fourth_message() {
        let out = stream(&[100; 9]);
        assert_eq!(
            (out.span(0, 1_460), out.span(50, 1_460), out.span(700, 1_460)),
            (400, 350, 200)
        );
    }

    #[test]
    fn messages_are_released_when_their_last_byte_is_acknowledged() {
        let mut out = stream(&[100, 50]);
        assert_eq!(out.release(99), None);
        assert_eq!(out.release(120).map(|message| message.id), Some(MessageId(1)));
        assert_eq!(out.release(149), None);
        assert_eq!(out.release(150).map(|message| message.id), Some(MessageId(2)));
        assert!(out.is_empty() && out.end() == 150);
    }
}
