//! Copies the bytes of a train into frames.

use std::slice;

use crate::driver::{Gather, Outbox, Train, TrainPiece};

/// The bytes of a train, one datagram after the other.
pub struct TrainBytes<'a> {
    pieces: slice::Iter<'a, TrainPiece>,
    rest: &'a [u8],
}

impl<'a> TrainBytes<'a> {
    /// All bytes of a train.
    pub fn of(train: &Train, outbox: &'a Outbox) -> Self {
        Self { pieces: outbox.pieces[train.pieces.clone()].iter(), rest: &[] }
    }

    /// Copies the next bytes to fill `into`.
    pub fn copy(&mut self, mut into: &mut [u8], outbox: &'a Outbox, messages: &'a dyn Gather) {
        while !into.is_empty() {
            if self.rest.is_empty() {
                self.rest = match self.pieces.next() {
                    Some(TrainPiece::Buffered(range)) => &outbox.bytes[range.clone()],
                    Some(TrainPiece::Message(span)) => messages.bytes(*span),
                    None => return,
                };
            }
            let len = into.len().min(self.rest.len());
            let (now, later) = self.rest.split_at(len);
            let (place, left) = into.split_at_mut(len);
            place.copy_from_slice(now);
            (self.rest, into) = (later, left);
        }
    }
}
