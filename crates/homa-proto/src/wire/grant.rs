//! GRANT: the sender of a message may transmit up to an offset, at a priority (Homa §3.3).
//!
//! | bytes | field |
//! |---|---|
//! | 28..32 | offset: all bytes before it may be sent |
//! | 32 | priority level of the granted bytes |
//!
//! Kernel modules for Linux 6.10 and older append a byte; if it is not 0, it asks for a
//! retransmission of everything sent so far. It is ignored, because such a receiver also asks with
//! RESENDs after its timeout.

use super::field::{Be32, Byte};
use super::{fixed, header, level};
use crate::event::DropReason;
use crate::packet::{Body, Packet};

/// Bytes in a GRANT.
pub const GRANT_LEN: usize = 33;

const OFFSET: Be32<28> = Be32;
const PRIORITY: Byte<32> = Byte;

#[inline(always)]
pub(super) fn encode(packet: &Packet, offset: u32, priority: u8, out: &mut [u8; GRANT_LEN]) {
    header::write(out, packet, header::kind::GRANT);
    OFFSET.set(out, offset);
    PRIORITY.set(out, priority);
}

#[inline(always)]
pub(super) fn decode(bytes: &[u8]) -> Result<Body, DropReason> {
    let packet: &[u8; GRANT_LEN] = fixed(bytes)?;
    Ok(Body::Grant { offset: OFFSET.get(packet), priority: level(PRIORITY.get(packet)) })
}
