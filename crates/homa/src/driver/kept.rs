//! What the layers below had no room for (EAGAIN, ENOBUFS): copied, and sent first when they have.
//!
//! Bytes are copied because the messages that they belong to may end meanwhile. At most one batch
//! is kept: the engine packs no other as long as one waits.

use super::{Full, Gather, Outbox, Piece, Train, Waiting};

/// Attempts without success after which a train that the device's queue refuses is given up: there
/// are queues that never take a packet of its size, and others wait behind it. With the engine's
/// pauses between them, some 12 ms.
const ATTEMPTS_MAX: u32 = 16;

/// Trains that wait. Each has one piece.
#[derive(Debug, Default)]
pub struct Kept {
    outbox: Outbox,
    full: Option<Full>,
    attempts: u32,
}

impl Kept {
    /// How much waits, and for what.
    pub fn waiting(&self) -> Option<Waiting> {
        let full = self.full?;
        Some(Waiting { bytes: self.outbox.trains.iter().map(|train| train.len).sum(), full })
    }

    /// Keeps the trains from `first` on, but for the first `offset` bytes of that one.
    pub fn keep(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
        (first, mut offset): (usize, usize),
        full: Full,
    ) {
        self.full.get_or_insert(full);
        for train in trains.iter().skip(first) {
            let start = self.outbox.bytes.len();
            for piece in &outbox.pieces[train.pieces.clone()] {
                let bytes = match piece {
                    Piece::Buffered(range) => &outbox.bytes[range.clone()],
                    Piece::Message(span) => messages.bytes(*span),
                };
                self.outbox.bytes.extend_from_slice(bytes);
            }
            self.push(train, start + std::mem::take(&mut offset));
        }
    }

    /// Adds a train that lies from `start` to the end of the bytes.
    fn push(&mut self, train: &Train, start: usize) {
        let Outbox { bytes, pieces, trains } = &mut self.outbox;
        let at = pieces.len();
        pieces.push(Piece::Buffered(start..bytes.len()));
        trains.push(Train { len: bytes.len() - start, pieces: at..at + 1, ..train.clone() });
    }

    /// What is to be tried again; [`Self::put_back`] says how that went.
    pub fn take(&mut self) -> Outbox {
        std::mem::take(&mut self.outbox)
    }

    /// Of what was taken, all was sent but the trains from `stopped.0` on, of which that one was
    /// sent up to `stopped.1`. Returns how many were given up.
    pub fn put_back(&mut self, mut outbox: Outbox, stopped: Option<(usize, usize, Full)>) -> u64 {
        let Some((first, offset, full)) = stopped else {
            outbox.clear();
            outbox.bytes.clear();
            *self = Self { outbox, ..Self::default() };
            return 0;
        };
        outbox.trains.drain(..first);
        if let Some(train) = outbox.trains.first_mut() {
            train.len -= offset;
            if let Piece::Buffered(range) = &mut outbox.pieces[train.pieces.start] {
                range.start += offset;
            }
        }
        let stuck = full == Full::Device && (first, offset) == (0, 0);
        self.attempts = if stuck { self.attempts + 1 } else { 0 };
        let given_up = usize::from(self.attempts >= ATTEMPTS_MAX);
        if given_up > 0 {
            outbox.trains.remove(0);
            self.attempts = 0;
        }
        self.full = (!outbox.trains.is_empty()).then_some(full);
        self.outbox = outbox;
        given_up as u64
    }
}

/// For trains that lie in their outbox.
pub struct NoMessages;

impl Gather for NoMessages {
    fn bytes(&self, _: homa_proto::Span) -> &[u8] {
        &[]
    }
}
