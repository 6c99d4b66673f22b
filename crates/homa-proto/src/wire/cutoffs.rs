//! CUTOFFS: which message lengths use which priority for unscheduled bytes (Homa §3.4).
//!
//! | bytes | field |
//! |---|---|
//! | 28..60 | longest message of levels 0 to 7, 4 bytes each; 0 for a level not used |
//! | 60..62 | version, to be echoed in DATA |

use super::field::Be16;
use super::{fixed, header};
use crate::config::LEVELS;
use crate::event::DropReason;
use crate::packet::{Body, Limits, Packet};

/// Bytes in a CUTOFFS packet.
pub const CUTOFFS_LEN: usize = 62;

const VERSION: Be16<60> = Be16;

/// The eight lengths.
const LENGTHS: core::ops::Range<usize> = 28..60;
const _: () = assert!(LENGTHS.end - LENGTHS.start == 4 * LEVELS);

#[inline(always)]
pub(super) fn encode(
    packet: &Packet,
    cutoffs: &[u32; LEVELS],
    version: u16,
    out: &mut [u8; CUTOFFS_LEN],
) {
    header::write(out, packet, header::kind::CUTOFFS);
    for (field, cutoff) in out[LENGTHS].as_chunks_mut().0.iter_mut().zip(cutoffs) {
        *field = cutoff.to_be_bytes();
    }
    VERSION.set(out, version);
}

#[inline(always)]
pub(super) fn decode(bytes: &[u8], limits: Option<Limits>) -> Result<Body, DropReason> {
    let packet: &[u8; CUTOFFS_LEN] = fixed(bytes)?;
    let mut cutoffs = [0; LEVELS];
    for (cutoff, field) in cutoffs.iter_mut().zip(packet[LENGTHS].as_chunks().0) {
        *cutoff = u32::from_be_bytes(*field);
    }
    Ok(Body::Cutoffs { cutoffs, version: VERSION.get(packet), limits })
}
