//! RESEND: the sender of a message should retransmit a range, at a priority (Homa §3.7).
//!
//! | bytes | field |
//! |---|---|
//! | 28..32 | offset: first missing byte |
//! | 32..36 | length; −1: everything sent so far, because the receiver has nothing |
//! | 36 | priority level of the retransmitted bytes |
//!
//! The variant that was proposed for the upstream kernel ends before the priority; then it is the
//! highest.

use super::field::{Be32, Byte};
use super::{fixed, header, level};
use crate::config::LEVELS;
use crate::event::DropReason;
use crate::packet::{Body, Packet, ResendLength};

/// Bytes in a RESEND.
pub const RESEND_LEN: usize = 37;
/// Bytes in a RESEND without a priority.
const SHORT_LEN: usize = RESEND_LEN - 1;

const OFFSET: Be32<28> = Be32;
const LENGTH: Be32<32> = Be32;
const PRIORITY: Byte<36> = Byte;

/// Length −1.
const ALL: u32 = u32::MAX;

#[inline(always)]
pub(super) fn encode(
    packet: &Packet,
    (offset, length): (u32, ResendLength),
    priority: u8,
    out: &mut [u8; RESEND_LEN],
) {
    header::write(out, packet, header::kind::RESEND);
    OFFSET.set(out, offset);
    let length = match length {
        ResendLength::Bytes(length) => length,
        ResendLength::All => ALL,
    };
    LENGTH.set(out, length);
    PRIORITY.set(out, priority);
}

#[inline(always)]
pub(super) fn decode(bytes: &[u8]) -> Result<Body, DropReason> {
    let packet: &[u8; SHORT_LEN] = fixed(bytes)?;
    let length = match LENGTH.get(packet) {
        ALL => ResendLength::All,
        length => ResendLength::Bytes(length),
    };
    let priority = match bytes.first_chunk::<RESEND_LEN>() {
        Some(packet) => level(PRIORITY.get(packet)),
        // The variant for the upstream kernel has no levels.
        None => LEVELS as u8 - 1,
    };
    Ok(Body::Resend { offset: OFFSET.get(packet), length, priority })
}
