//! START_MSG: the wire that public forks of the kernel module have had since September 2026.
//!
//! | bytes | field |
//! |---|---|
//! | 28..32 | length of the message |
//!
//! A sender of that kind announces a message that is longer than its unscheduled bytes with
//! START_MSG and waits for grants. Its DATA no longer says `incoming`. Neither the packet's type
//! nor what became of those four bytes is published, so both are options, and nothing here is
//! tested against such a module.

use super::field::Be32;
use super::{
    DATA_LEN, Decoded, EncodeError, HEADER_LEN, data, decode, encode, fixed, header, room,
};
use crate::config::{DataLayout, StartMsg};
use crate::event::DropReason;
use crate::packet::{Body, Packet, PeerId};

/// Bytes in a START_MSG.
pub(super) const START_MSG_LEN: usize = 32;
const LENGTH: Be32<28> = Be32;

/// The four bytes that DATA may lack.
const INCOMING: core::ops::Range<usize> = 32..36;
const SHORT_LEN: usize = DATA_LEN - (INCOMING.end - INCOMING.start);

/// Like [`encode`], for a peer with this wire. `speaks`: the peer showed that it speaks it.
pub fn encode_for(
    packet: &Packet,
    start_msg: StartMsg,
    speaks: bool,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    match &packet.body {
        &Body::StartMsg { length } => {
            let out: &mut [u8; START_MSG_LEN] = room(out)?;
            header::write(out, packet, start_msg.opcode);
            LENGTH.set(out, length);
            Ok(START_MSG_LEN)
        }
        Body::Data(data) if speaks && start_msg.layout == DataLayout::Removed => {
            let mut full = [0; DATA_LEN];
            data::encode(packet, data, &mut full);
            let out: &mut [u8; SHORT_LEN] = room(out)?;
            out[..INCOMING.start].copy_from_slice(&full[..INCOMING.start]);
            out[INCOMING.start..].copy_from_slice(&full[INCOMING.end..]);
            Ok(SHORT_LEN)
        }
        _ => encode(packet, out),
    }
}

/// Like [`decode`], for a peer that may have this wire. `speaks`: it showed that it speaks it.
pub fn decode_from(
    bytes: &[u8],
    peer: PeerId,
    priority: u8,
    start_msg: StartMsg,
    speaks: bool,
) -> Result<Decoded<'_>, DropReason> {
    let head: &[u8; HEADER_LEN] = fixed(bytes)?;
    let kind = header::KIND.get(head);
    if kind == start_msg.opcode {
        let packet: &[u8; START_MSG_LEN] = fixed(bytes)?;
        let body = Body::StartMsg { length: LENGTH.get(packet) };
        return Ok(Decoded {
            packet: header::read(head, peer, priority, body),
            payload: &[],
            empty: false,
            idempotent: false,
        });
    }
    if kind == header::kind::DATA && speaks && start_msg.layout == DataLayout::Removed {
        let short: &[u8; SHORT_LEN] = fixed(bytes)?;
        let mut full = [0; DATA_LEN];
        full[..INCOMING.start].copy_from_slice(&short[..INCOMING.start]);
        full[INCOMING.end..].copy_from_slice(&short[INCOMING.start..]);
        // Port 0 marks one-way messages inside the endpoint (see `read`).
        if header::DESTINATION.get(head) == 0 || header::SOURCE.get(head) == 0 {
            return Err(DropReason::NoServer);
        }
        let (data, payload) = data::decode_parts(&full, &bytes[SHORT_LEN..])?;
        let packet = header::read(head, peer, priority, Body::Data(data));
        return Ok(Decoded { packet, payload, empty: false, idempotent: false });
    }
    decode(bytes, peer, priority)
}
