//! Trains that wait for a session, in plaintext. They are bounded in bytes: for each peer the
//! oldest is dropped for a new one, and the protocol repeats what it misses.

use std::collections::VecDeque;

use hashbrown::HashMap;
use homa_proto::Quoted;
use homa_proto::wire::datagram;

use super::sessions::Way;
use crate::driver::{Gather, Outbox, Train, TrainPiece};

/// Most bytes for one peer: the unscheduled bytes of a long message on any link.
const BYTES_OF_PEER: usize = 256 << 10;
/// Most bytes for all peers.
const BYTES_MAX: usize = 16 << 20;

/// A train and its datagrams.
pub struct WaitingTrain {
    /// The train.
    pub train: Train,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It was sent as early data, and waits for whether the server accepts them.
    pub early: bool,
}

impl WaitingTrain {
    /// The packets that show, for each datagram, what it was about.
    pub fn quoted(&self) -> impl Iterator<Item = Quoted> {
        self.bytes.chunks(self.train.datagram.max(1)).filter_map(datagram::quoted)
    }
}

/// What waits, by way.
#[derive(Default)]
pub struct Waiting {
    by_way: HashMap<Way, VecDeque<WaitingTrain>>,
    bytes: usize,
}

impl Waiting {
    /// Copies a train. Returns how many datagrams were dropped for it.
    pub fn push(&mut self, way: Way, train: &Train, from: &Outbox, messages: &dyn Gather) -> u64 {
        if self.bytes + train.len > BYTES_MAX || train.len > BYTES_OF_PEER {
            return train.datagrams() as u64;
        }
        let mut bytes = Vec::with_capacity(train.len);
        for piece in pieces(train, from, messages) {
            bytes.extend_from_slice(piece);
        }
        let queue = self.by_way.entry(way).or_default();
        let mut held: usize = queue.iter().map(|waiting| waiting.bytes.len()).sum();
        let mut dropped = 0;
        while held + bytes.len() > BYTES_OF_PEER
            && let Some(oldest) = queue.pop_front()
        {
            held -= oldest.bytes.len();
            self.bytes -= oldest.bytes.len();
            dropped += oldest.train.datagrams() as u64;
        }
        self.bytes += bytes.len();
        queue.push_back(WaitingTrain { train: train.clone(), bytes, early: false });
        dropped
    }

    /// Takes what waits for a way, in order.
    pub fn take(&mut self, way: &Way) -> VecDeque<WaitingTrain> {
        let queue = self.by_way.remove(way).unwrap_or_default();
        self.bytes -= queue.iter().map(|waiting| waiting.bytes.len()).sum::<usize>();
        queue
    }

    /// The trains that wait for a way.
    pub fn trains(&mut self, way: &Way) -> impl Iterator<Item = &mut WaitingTrain> {
        self.by_way.get_mut(way).into_iter().flatten()
    }

    /// What the datagrams that wait for a way are about.
    pub fn quoted(&self, way: &Way) -> impl Iterator<Item = Quoted> {
        self.by_way.get(way).into_iter().flatten().flat_map(WaitingTrain::quoted)
    }
}

/// The pieces of a train.
pub fn pieces<'a>(
    train: &Train,
    from: &'a Outbox,
    messages: &'a dyn Gather,
) -> impl Iterator<Item = &'a [u8]> {
    from.pieces[train.pieces.clone()].iter().map(move |piece| match piece {
        TrainPiece::Buffered(range) => &from.bytes[range.clone()],
        TrainPiece::Message(span) => messages.bytes(*span),
    })
}
