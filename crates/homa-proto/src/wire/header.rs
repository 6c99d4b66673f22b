//! The common header: the first 28 bytes of every Homa packet (Linux `homa_wire.h`, branch main).
//!
//! | bytes | field | written | read |
//! |---|---|---|---|
//! | 0..2 | source port | sender's Homa port | yes |
//! | 2..4 | destination port | receiver's Homa port | yes |
//! | 4..8 | sequence | DATA: offset of the first payload byte; else 0 | DATA only |
//! | 8..11 | – | 0 | no |
//! | 11 | type | see [`kind`] | yes |
//! | 12 | data offset | DATA 0xe0, control 0x50 | no |
//! | 13 | flags | 0x06 | no |
//! | 14..16 | window | 0 | no |
//! | 16..18 | checksum | 0 | no |
//! | 18..20 | urgent | 0xb97d | no |
//! | 20..28 | RPC id, as the sender writes it | yes | yes |
//!
//! The first 20 bytes have the shape of a TCP header, because the kernel module lets network cards
//! segment its packets as TCP. Fields that are never read differ between senders (older ones leave
//! garbage in them, newer ones fill the checksum), so only the type is validated.

use super::field::{Be16, Be32, Be64, Byte};
use crate::packet::{Body, Packet, PeerId, RpcId};

/// Bytes in the common header.
pub const HEADER_LEN: usize = 28;

pub(super) const SOURCE: Be16<0> = Be16;
pub(super) const DESTINATION: Be16<2> = Be16;
pub(super) const SEQUENCE: Be32<4> = Be32;
pub(super) const KIND: Byte<11> = Byte;
const DATA_OFFSET: Byte<12> = Byte;
const FLAGS: Byte<13> = Byte;
const URGENT: Be16<18> = Be16;
pub(super) const RPC_ID: Be64<20> = Be64;

/// Packet types: byte 11 of the common header. RPC_UNKNOWN, BUSY, FREEZE and NEED_ACK consist of
/// the common header alone; the others have a module each.
pub mod kind {
    /// Bytes of a message (Homa §3.2).
    pub const DATA: u8 = 0x10;
    /// Permission to send more of a message (Homa §3.3).
    pub const GRANT: u8 = 0x11;
    /// Request to send bytes again (Homa §3.7).
    pub const RESEND: u8 = 0x12;
    /// Answer to a RESEND: its RPC is not known here (Linux; the paper answers with RESEND).
    pub const RPC_UNKNOWN: u8 = 0x13;
    /// Answer to a RESEND: the bytes will come later (Homa §3.7).
    pub const BUSY: u8 = 0x14;
    /// Priorities for unscheduled bytes (Homa §3.4).
    pub const CUTOFFS: u8 = 0x15;
    /// Stops the kernel module's tracing; decoded so that it is not counted as an error.
    pub const FREEZE: u8 = 0x16;
    /// Asks the client whether a response arrived, so that the server may forget it (Linux).
    pub const NEED_ACK: u8 = 0x17;
    /// Completed RPCs (Linux).
    pub const ACK: u8 = 0x18;
}

/// SYN and RST together mark a packet that may travel in the shape of TCP; the module always sets
/// both.
const SYN_RST: u8 = 0x06;
/// The second mark of such a packet.
const HOMA_URGENT: u16 = 0xb97d;

/// A packet with this header and body, as its receiver sees it.
#[inline(always)]
pub(super) fn read(head: &[u8; HEADER_LEN], peer: PeerId, priority: u8, body: Body) -> Packet {
    let (local_port, remote_port) = (DESTINATION.get(head), SOURCE.get(head));
    Packet { peer, priority, local_port, remote_port, id: RpcId(RPC_ID.get(head)), body }
}

/// Zeroes the packet and fills the common header of a control packet.
#[inline(always)]
pub(super) fn write<const N: usize>(out: &mut [u8; N], packet: &Packet, kind: u8) {
    *out = [0; N];
    SOURCE.set(out, packet.local_port);
    DESTINATION.set(out, packet.remote_port);
    KIND.set(out, kind);
    // In words of four bytes: a TCP header without options, as the module writes it.
    DATA_OFFSET.set(out, 5 << 4);
    FLAGS.set(out, SYN_RST);
    URGENT.set(out, HOMA_URGENT);
    RPC_ID.set(out, packet.id.0);
}

/// The fields of a DATA header beyond those of a control packet.
#[inline(always)]
pub(super) fn write_data<const N: usize>(out: &mut [u8; N], packet: &Packet, offset: u32) {
    write(out, packet, kind::DATA);
    SEQUENCE.set(out, offset);
    // All bytes before the payload: a card that segments repeats them in each packet.
    DATA_OFFSET.set(out, 14 << 4);
}
