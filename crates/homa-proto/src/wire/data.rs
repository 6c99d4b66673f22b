//! DATA: a range of bytes of a message (Homa §3.2; layout of Linux branch main).
//!
//! | bytes | field |
//! |---|---|
//! | 28..32 | length of the message |
//! | 32..36 | incoming: bytes sent without a grant, or the end of a retransmitted range |
//! | 36..44 | piggybacked acknowledgement: the client's RPC id, 0 for none |
//! | 44..46 | piggybacked acknowledgement: the server's port |
//! | 46..48 | version of the receiver's cutoffs that the sender used |
//! | 48 | 1 if retransmitted |
//! | 49 | ours, in a pad byte of theirs: bit 0 incast (Homa §3.6), 1 empty, 2 idempotent |
//! | 50..52 | with the incast flag: most unscheduled bytes of the response (ours, as above) |
//! | 52..56 | segment offset: place of the payload in the message |
//! | 56.. | payload |
//!
//! A kernel sender that does not segment writes −1 as the segment offset, and the offset is the
//! common header's sequence; one that does may repeat a stale sequence. So the segment offset
//! counts unless it is −1. We write the true offset in both places, because some kernel receive
//! paths read only the segment offset.
//!
//! Invariant of what [`decode`] returns: there is at least one byte, and all lie within the
//! message.

use super::field::{Be16, Be32, Be64, Byte};
use super::{fixed, header};
use crate::event::DropReason;
use crate::packet::{AckEntry, Data, MessageId, Packet, RpcId, Span};

/// Bytes before the payload.
pub const DATA_LEN: usize = 56;

const MESSAGE_LENGTH: Be32<28> = Be32;
const INCOMING: Be32<32> = Be32;
const ACK_ID: Be64<36> = Be64;
const ACK_SERVER_PORT: Be16<44> = Be16;
const CUTOFF_VERSION: Be16<46> = Be16;
const RETRANSMIT: Byte<48> = Byte;
const FLAGS: Byte<49> = Byte;
const INCAST_LIMIT: Be16<50> = Be16;
const SEGMENT_OFFSET: Be32<52> = Be32;

/// Segment offset −1: the offset is in the common header's sequence.
const IN_SEQUENCE: u32 = u32::MAX;
const INCAST: u8 = 1;
const EMPTY: u8 = 2;
const IDEMPOTENT: u8 = 4;

/// True if the beginning of a DATA packet of ours shows that it has the first byte of its message.
pub(super) fn begins_message(bytes: &[u8]) -> bool {
    bytes.first_chunk::<DATA_LEN>().is_some_and(|packet| SEGMENT_OFFSET.get(packet) == 0)
}

#[inline(always)]
pub(super) fn encode(packet: &Packet, data: &Data, out: &mut [u8; DATA_LEN]) {
    header::write_data(out, packet, data.span.offset);
    MESSAGE_LENGTH.set(out, data.message_length);
    INCOMING.set(out, data.incoming);
    if let Some(ack) = data.ack {
        ACK_ID.set(out, ack.id.0);
        ACK_SERVER_PORT.set(out, ack.server_port);
    }
    CUTOFF_VERSION.set(out, data.cutoff_version);
    RETRANSMIT.set(out, u8::from(data.retransmit));
    if let Some(limit) = data.incast {
        FLAGS.set(out, INCAST);
        INCAST_LIMIT.set(out, limit);
    }
    SEGMENT_OFFSET.set(out, data.span.offset);
}

#[inline(always)]
pub(super) fn decode(bytes: &[u8]) -> Result<(Data, &[u8]), DropReason> {
    let packet: &[u8; DATA_LEN] = fixed(bytes)?;
    decode_parts(packet, &bytes[DATA_LEN..])
}

/// The same of a header and its payload.
#[inline(always)]
pub(super) fn decode_parts<'a>(
    packet: &[u8; DATA_LEN],
    payload: &'a [u8],
) -> Result<(Data, &'a [u8]), DropReason> {
    let offset = match SEGMENT_OFFSET.get(packet) {
        IN_SEQUENCE => header::SEQUENCE.get(packet),
        offset => offset,
    };
    let message_length = MESSAGE_LENGTH.get(packet);
    if payload.is_empty() || message_length == 0 {
        return Err(DropReason::EmptyData);
    }
    let len = u32::try_from(payload.len()).map_err(|_| DropReason::BeyondEnd)?;
    if offset.checked_add(len).is_none_or(|end| end > message_length) {
        return Err(DropReason::BeyondEnd);
    }
    let data = Data {
        span: Span { message: MessageId(0), offset, len },
        message_length,
        incoming: INCOMING.get(packet),
        ack: AckEntry::read(ACK_ID.get(packet), ACK_SERVER_PORT.get(packet)),
        cutoff_version: CUTOFF_VERSION.get(packet),
        retransmit: RETRANSMIT.get(packet) != 0,
        incast: (FLAGS.get(packet) & INCAST != 0).then(|| INCAST_LIMIT.get(packet)),
    };
    Ok((data, payload))
}

pub(super) fn mark_empty(out: &mut [u8; DATA_LEN]) {
    FLAGS.set(out, FLAGS.get(out) | EMPTY);
}

/// True for DATA that is marked so.
#[inline(always)]
pub(super) fn is_marked_empty(bytes: &[u8]) -> bool {
    is_marked(bytes, EMPTY)
}

pub(super) fn mark_idempotent(out: &mut [u8; DATA_LEN]) {
    FLAGS.set(out, FLAGS.get(out) | IDEMPOTENT);
}

/// True for DATA that is marked so.
#[inline(always)]
pub(super) fn is_marked_idempotent(bytes: &[u8]) -> bool {
    is_marked(bytes, IDEMPOTENT)
}

#[inline(always)]
fn is_marked(bytes: &[u8], flag: u8) -> bool {
    bytes.first_chunk::<DATA_LEN>().is_some_and(|packet| FLAGS.get(packet) & flag != 0)
}

impl AckEntry {
    /// An acknowledgement as it is on the wire. Clients' ids are even and never 0; any other value
    /// is no acknowledgement.
    #[inline(always)]
    pub(super) fn read(id: u64, server_port: u16) -> Option<Self> {
        let id = RpcId(id);
        (id.0 != 0 && !id.from_server()).then_some(Self { id, server_port })
    }
}
