//! ACK: RPCs that are complete at their client. Homa §3.8 leaves the format to the implementation;
//! the layout and the acknowledged completion are Linux's.
//!
//! | bytes | field |
//! |---|---|
//! | 28..30 | number of entries used |
//! | 30..80 | five entries of 10 bytes: a client's RPC id, the server's port; zero if not used |
//!
//! The RPC in the common header is acknowledged too, so a packet completes up to six RPCs. The
//! packet always has its full length, because the kernel module drops shorter ones, as we do.

use super::field::Be16;
use super::{fixed, header};
use crate::event::DropReason;
use crate::packet::{AckEntry, Acks, Body, Packet};

/// Bytes in an ACK.
pub const ACK_LEN: usize = 80;
/// Bytes in an entry: id (8) and server's port (2).
const ENTRY_LEN: usize = 10;

const COUNT: Be16<28> = Be16;
const ENTRIES: core::ops::Range<usize> = 30..ACK_LEN;
const _: () = assert!(ENTRIES.end - ENTRIES.start == Acks::CAPACITY * ENTRY_LEN);

#[inline]
pub(super) fn encode(packet: &Packet, acks: &Acks, out: &mut [u8; ACK_LEN]) {
    header::write(out, packet, header::kind::ACK);
    COUNT.set(out, acks.len() as u16);
    for (slot, entry) in out[ENTRIES].chunks_exact_mut(ENTRY_LEN).zip(acks.iter()) {
        let (id, port) = slot.split_at_mut(8);
        id.copy_from_slice(&entry.id.0.to_be_bytes());
        port.copy_from_slice(&entry.server_port.to_be_bytes());
    }
}

#[inline]
pub(super) fn decode(bytes: &[u8]) -> Result<Body, DropReason> {
    let packet: &[u8; ACK_LEN] = fixed(bytes)?;
    let mut acks = Acks::default();
    let entries = packet[ENTRIES].as_chunks::<ENTRY_LEN>().0;
    // A packet has five entries, whatever it says.
    for entry in entries.iter().take(COUNT.get(packet).into()) {
        let [id @ .., port_high, port_low] = *entry;
        let port = u16::from_be_bytes([port_high, port_low]);
        if let Some(entry) = AckEntry::read(u64::from_be_bytes(id), port) {
            // There are as many slots as entries, so no entry is left over.
            let _ = acks.push(entry);
        }
    }
    Ok(Body::Ack(acks))
}
