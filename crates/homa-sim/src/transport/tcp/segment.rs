//! The packets of TCP hosts: header fields and the messages of the payload, without bytes.
//!
//! Sequence numbers are 64 bits, so that they never wrap. FIN takes one, SYN does not. Hosts have
//! equal receive windows, so segments do not carry them.

use crate::topology::HostId;
use crate::transport::stream::{ConnectionName, MessageTags, StreamRange};

use super::config::{HEADERS, TIMESTAMPS};

/// Ethernet header, frame check sequence, preamble and inter-frame gap.
const ETHERNET: u32 = 14 + 4 + 8 + 12;
/// The shortest frame (64 bytes) with preamble and gap.
const SHORTEST: u32 = 64 + 20;
/// The most blocks that fit next to time stamps (RFC 2018 §3).
pub const MAX_SACKS: usize = 3;

/// Bits of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// Opens a connection: from its client without `ACK`, from its server with it.
    pub const SYN: Self = Self(1);
    /// The stream ends after this segment.
    pub const FIN: Self = Self(2);
    /// There is no such connection.
    pub const RST: Self = Self(4);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(8);
    /// Congestion was experienced (RFC 3168).
    pub const ECE: Self = Self(16);
    /// The window was reduced (RFC 3168).
    pub const CWR: Self = Self(32);
    /// Switches may mark instead of drop.
    pub const ECT: Self = Self(64);
    /// The segment comes from the connection's server.
    pub const SERVER: Self = Self(128);
    /// The sender has received a segment from the other end.
    pub const PEER_SEEN: Self = Self(256);
    /// The payload was sent before.
    pub const RESENT: Self = Self(512);
    /// A reply to a segment whose bytes had all arrived before (RFC 2883).
    pub const DSACK: Self = Self(1024);
    /// The application chose the level, and the other end should use it, too.
    pub const CHOSEN: Self = Self(2048);
    /// Marked by its sender's host (DeTail §4.2.4).
    pub const CE: Self = Self(4096);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the bits of `other` if `condition` holds.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, condition: bool) -> Self {
        if condition { Self(self.0 | other.0) } else { self }
    }
}

/// Up to three blocks received beyond a gap, relative to the acknowledgement (RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    count: u8,
    blocks: [(u32, u32); MAX_SACKS],
}

impl Sacks {
    /// The first blocks of a list.
    pub fn new(ack: u64, beyond: &[StreamRange]) -> Self {
        let mut sacks = Self::default();
        for (block, it) in sacks.blocks.iter_mut().zip(beyond) {
            *block = ((it.start - ack) as u32, (it.end - ack) as u32);
            sacks.count += 1;
        }
        sacks
    }

    /// The blocks in the stream.
    pub fn iter(&self, ack: u64) -> impl Iterator<Item = StreamRange> {
        let blocks = self.blocks.into_iter().take(usize::from(self.count));
        blocks.map(move |(start, end)| StreamRange {
            start: ack + u64::from(start),
            end: ack + u64::from(end),
        })
    }

    /// True if there are no blocks.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the option with its padding (RFC 2018 §3).
    const fn bytes(&self) -> u32 {
        if self.count == 0 { 0 } else { 4 + 8 * self.count as u32 }
    }
}

/// A packet of a TCP host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Destination.
    pub to: HostId,
    /// The connection.
    pub name: ConnectionName,
    /// Its slot in the server's table, as far as the sender knows; a hint.
    pub server_slot: u32,
    /// Header bits.
    pub flags: Flags,
    /// Level in the network.
    pub priority: u8,
    /// Blocks beyond the acknowledgement.
    pub sacks: Sacks,
    /// Payload bytes.
    pub len: u32,
    /// The position of the first of them in the stream.
    pub seq: u64,
    /// The next byte expected.
    pub ack: u64,
    /// The messages that the payload belongs to.
    pub pieces: MessageTags,
}

impl Segment {
    /// The sequence numbers that it takes.
    #[inline]
    pub fn span(&self) -> StreamRange {
        let fin = u64::from(self.flags.has(Flags::FIN));
        StreamRange { start: self.seq, end: self.seq + u64::from(self.len) + fin }
    }

    /// Whether it takes sequence numbers, and therefore has to be acknowledged.
    #[inline]
    pub fn occupies(&self) -> bool {
        self.len > 0 || self.flags.has(Flags::FIN)
    }

    /// Size on the wire.
    #[inline]
    pub fn wire_bytes(&self, timestamps: bool) -> u32 {
        let options = self.sacks.bytes() + if timestamps { TIMESTAMPS } else { 0 };
        (ETHERNET + HEADERS + options + self.len).max(SHORTEST)
    }

    /// A flow hash, the same for all segments of a connection in both directions.
    #[inline]
    pub fn flow(&self) -> u32 {
        let ConnectionName { life, key } = self.name;
        let mixed = key.slot.wrapping_mul(0x9E37_79B9) ^ key.generation.rotate_left(16) ^ life;
        mixed.wrapping_mul(0x85EB_CA6B)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::stream::Key;

    #[test]
    fn sizes_on_the_wire() {
        let name = ConnectionName { life: 0, key: Key { slot: 0, generation: 0 } };
        let ack = Segment {
            to: HostId(1),
            name,
            server_slot: 0,
            flags: Flags::ACK,
            priority: 0,
            sacks: Sacks::default(),
            len: 0,
            seq: 0,
            ack: 0,
            pieces: MessageTags::NONE,
        };
        assert_eq!((ack.wire_bytes(false), ack.wire_bytes(true)), (84, 90));
        let full = |len, timestamps| Segment { len, ..ack }.wire_bytes(timestamps);
        assert_eq!((full(1_460, false), full(1_448, true)), (1_538, 1_538));
        let block = |start| StreamRange { start, end: start + 5 };
        let sacks = Sacks::new(100, &[block(200), block(150), block(300), block(400)]);
        assert_eq!(Segment { sacks, ..ack }.wire_bytes(true), 90 + 28);
        let read: Vec<StreamRange> = sacks.iter(100).collect();
        assert_eq!(read, [block(200), block(150), block(300)]);
    }
}
