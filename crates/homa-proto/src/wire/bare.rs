//! RPC_UNKNOWN, BUSY, FREEZE and NEED_ACK: packets that are their common header and say nothing else.
//!
//! * RPC_UNKNOWN answers a RESEND for an RPC that the sender does not know (Homa §3.7).
//! * BUSY answers a RESEND whose answer must wait (Homa §3.7).
//! * NEED_ACK asks the client whether a response arrived, so that the server may forget it (Linux).
//! * FREEZE stops the kernel module's tracing; decoded so that it is not counted as an error.

use super::header::{self, HEADER_LEN, kind};
use crate::packet::{Body, Packet};

#[inline(always)]
pub(super) fn encode(packet: &Packet, kind: u8, out: &mut [u8; HEADER_LEN]) {
    header::write(out, packet, kind);
}

/// The body of a packet of this type, if the type is one of the four.
#[inline(always)]
pub(super) fn decode(kind: u8) -> Option<Body> {
    match kind {
        kind::RPC_UNKNOWN => Some(Body::RpcUnknown { remembered: None }),
        kind::BUSY => Some(Body::Busy),
        kind::FREEZE => Some(Body::Freeze),
        kind::NEED_ACK => Some(Body::NeedAck),
        _ => None,
    }
}
