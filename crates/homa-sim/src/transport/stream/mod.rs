//! Byte streams that carry messages: what TCP and its relatives share.
//!
//! A message joins the end of a connection's stream and is delivered when its last byte is there
//! in order, so that a long message delays everything behind it on the same connection
//! (head-of-line blocking). Bytes have no values: a packet says which messages its span of the
//! stream belongs to, which a real stream says by lengths in front of messages. Those lengths cost
//! nothing here, as in the simulations of the papers. A packet holds bytes of at most
//! [`MAX_PIECES`] messages.

mod calls;
mod connections;
mod incoming;
mod outgoing;
mod ready;
mod table;
mod timers;

pub use calls::{Call, Calls, Waiting};
pub use connections::{ConnectionPolicy, Name, Names, Pick, Pools, Served};
pub use incoming::{Incoming, Interval, Received};
pub use outgoing::{Message, Outgoing};
pub use ready::Ready;
pub use table::{Key, Table};
pub use timers::Timers;

use homa_proto::MessageKind;

/// Messages that one packet can hold bytes of.
pub const MAX_PIECES: usize = 4;

/// A message as packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the RPC or one-way message at its client.
    pub number: u32,
    /// Bytes of the message.
    pub length: u32,
    /// Port of the client.
    pub port: u16,
    /// What it is.
    pub kind: MessageKind,
}

impl Piece {
    const NONE: Self = Self { number: 0, length: 0, port: 0, kind: MessageKind::OneWay };
}

/// The messages that a packet holds bytes of, in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of the first message before this packet.
    pub offset: u32,
    count: u8,
    pieces: [Piece; MAX_PIECES],
}

impl Pieces {
    /// No message.
    pub const NONE: Self = Self { offset: 0, count: 0, pieces: [Piece::NONE; MAX_PIECES] };

    fn push(&mut self, piece: Piece) {
        self.pieces[usize::from(self.count)] = piece;
        self.count += 1;
    }

    /// The messages.
    pub fn as_slice(&self) -> &[Piece] {
        &self.pieces[..usize::from(self.count)]
    }

    /// The message of the first byte.
    pub fn first(&self) -> Option<Piece> {
        self.as_slice().first().copied()
    }
}
