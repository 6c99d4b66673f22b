//! Byte streams that carry messages: the parts that TCP and its relatives share.
//!
//! A message joins the end of a connection's stream and is delivered once its last byte is there in
//! order, so a long message delays everything behind it on the same connection (head-of-line
//! blocking). Bytes have no values. A packet states which messages its range of the stream belongs
//! to; a real stream would put lengths in front of messages. As in the simulations of the papers,
//! those lengths cost nothing. A packet holds bytes of at most [`MAX_TAGS`] messages.

mod calls;
mod connections;
mod incoming;
mod outgoing;
mod ready;
mod table;
mod timers;

pub use calls::{Calls, ServedCall, WaitingCall};
pub use connections::{ConnectionName, ConnectionNames, ConnectionPolicy, Pick, Pools, Served};
pub use incoming::{InboundStream, StreamEffect, StreamRange};
pub use outgoing::{OutboundStream, StreamMessage};
pub use ready::ReadyQueue;
pub use table::{Key, KeyedTable};
pub use timers::Timers;

use homa_proto::MessageKind;

/// The most messages that one packet can hold bytes of.
pub const MAX_TAGS: usize = 4;

/// A message as packets describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTag {
    /// Number of the RPC or one-way message at its client.
    pub number: u32,
    /// Bytes of the message.
    pub length: u32,
    /// Port at the client.
    pub port: u16,
    /// The kind of message.
    pub kind: MessageKind,
}

impl MessageTag {
    const NONE: Self = Self { number: 0, length: 0, port: 0, kind: MessageKind::OneWay };
}

/// The messages that a packet holds bytes of, in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTags {
    /// Bytes of the first message before this packet.
    pub offset: u32,
    count: u8,
    pieces: [MessageTag; MAX_TAGS],
}

impl MessageTags {
    /// No message.
    pub const NONE: Self = Self { offset: 0, count: 0, pieces: [MessageTag::NONE; MAX_TAGS] };

    fn push(&mut self, piece: MessageTag) {
        self.pieces[usize::from(self.count)] = piece;
        self.count += 1;
    }

    /// The messages.
    pub fn as_slice(&self) -> &[MessageTag] {
        &self.pieces[..usize::from(self.count)]
    }

    /// The message of the first byte.
    pub fn first(&self) -> Option<MessageTag> {
        self.as_slice().first().copied()
    }
}
