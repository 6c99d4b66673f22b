//! Packets as bytes: the exact layout of the Linux kernel module, branch main, and the UDP
//! datagrams that carry it.
//!
//! There are two encapsulations of the same nine packet types. *Native*: a Homa packet is the
//! payload of an IP packet of protocol 146; use [`encode`] and [`decode`]. *UDP*: one or more Homa
//! packets follow a datagram header that this project defines; use [`datagram`], which is specified
//! in `docs/udp-encapsulation.md`.
//!
//! Rules for both directions:
//! * Sending is strict: only what the kernel module emits, so that it and its tools understand us.
//! * Receiving is liberal: every layout that its branches of the last years emit is understood, and
//!   fields that its receivers ignore are ignored.
//! * No bytes cause a panic or an allocation. A packet that cannot be decoded is a [`DropReason`].
//! * The Homa checksum is written as 0 and never read, because no Homa receiver verifies it.
//!
//! Left out: what a packet *means* for an RPC, which is the endpoint's part; IP and UDP headers.

mod ack;
mod cutoffs;
mod data;
pub mod datagram;
mod field;
mod grant;
mod header;
pub mod pretty;
mod resend;
mod start_msg;

pub use ack::ACK_LEN;
pub use cutoffs::CUTOFFS_LEN;
pub use data::DATA_LEN;
pub use grant::GRANT_LEN;
pub use header::{HEADER_LEN, kind};
pub use resend::RESEND_LEN;
pub use start_msg::{decode_from, encode_for};

use crate::config::LEVELS;
use crate::event::{DropReason, Quoted};
use crate::packet::{Acks, Body, Packet, PeerId, RpcId};
use core::fmt;
use datagram::Extensions;

/// A packet read from bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The packet for the endpoint.
    pub packet: Packet,
    /// The message's bytes of a DATA packet; empty for every other type.
    pub payload: &'a [u8],
    /// The message of a DATA packet has no bytes: its one byte is padding.
    pub empty: bool,
    /// The packet begins a request that its client allows to be executed more than once, and says
    /// so ([`datagram::RequestExtensions::idempotent`]).
    pub idempotent: bool,
}

/// Marks a DATA packet that holds the only byte of its message: the message has no bytes. `header`
/// is the packet as [`encode`] wrote it.
pub fn mark_empty(header: &mut [u8]) -> Result<(), EncodeError> {
    data::mark_empty(room(header)?);
    Ok(())
}

/// Marks a DATA packet that begins a request: it may be executed more than once.
fn mark_idempotent(header: &mut [u8]) -> Result<(), EncodeError> {
    data::mark_idempotent(room(header)?);
    Ok(())
}

/// Why a packet was not written. No byte was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The buffer is too short: use one of `needed` bytes, or begin another datagram.
    BufferTooSmall {
        /// Bytes that the whole output would take.
        needed: usize,
    },
    /// A packet in the datagram has other values of the same extensions: begin another datagram.
    OtherExtensions,
    /// START_MSG to a peer whose wire does not have it: use [`encode_for`].
    NoStartMsg,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall { needed } => {
                write!(f, "the buffer is too small: offer {needed} bytes or begin a new datagram")
            }
            Self::OtherExtensions => {
                f.write_str("the datagram's extensions say something else: begin a new datagram")
            }
            Self::NoStartMsg => f.write_str("START_MSG has no type here: configure `start_msg`"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// Bytes that [`encode`] writes for a packet: its Homa header without the payload.
#[inline]
pub fn encoded_len(body: &Body) -> usize {
    match body {
        Body::Data(_) => DATA_LEN,
        Body::StartMsg { .. } => start_msg::START_MSG_LEN,
        Body::Grant { .. } => GRANT_LEN,
        Body::Resend { .. } => RESEND_LEN,
        Body::Cutoffs { .. } => CUTOFFS_LEN,
        Body::Ack(_) | Body::Proof(_) => ACK_LEN,
        Body::RpcUnknown { .. }
        | Body::Busy { .. }
        | Body::Freeze
        | Body::NeedAck
        | Body::Challenge { .. } => HEADER_LEN,
    }
}

/// Writes a packet's Homa header to the start of `out` and returns its length; the payload of a
/// DATA packet belongs right after it. Values that only UDP can carry (extensions) are left out.
#[inline]
pub fn encode(packet: &Packet, out: &mut [u8]) -> Result<usize, EncodeError> {
    match &packet.body {
        Body::Data(data) => data::encode(packet, data, room(out)?),
        Body::StartMsg { .. } => return Err(EncodeError::NoStartMsg),
        &Body::Grant { offset, priority } => grant::encode(packet, offset, priority, room(out)?),
        &Body::Resend { offset, length, priority } => {
            resend::encode(packet, (offset, length), priority, room(out)?);
        }
        Body::RpcUnknown { .. } => {
            header::write(room::<HEADER_LEN>(out)?, packet, kind::RPC_UNKNOWN)
        }
        Body::Busy { .. } => header::write(room::<HEADER_LEN>(out)?, packet, kind::BUSY),
        Body::Cutoffs { cutoffs, version, .. } => {
            cutoffs::encode(packet, cutoffs, *version, room(out)?);
        }
        Body::Freeze => header::write(room::<HEADER_LEN>(out)?, packet, kind::FREEZE),
        // A challenge is a NEED_ACK with an extension, so that any peer can answer it.
        Body::NeedAck | Body::Challenge { .. } => {
            header::write(room::<HEADER_LEN>(out)?, packet, kind::NEED_ACK);
        }
        Body::Ack(acks) => ack::encode(packet, acks, room(out)?),
        // A proof without its extension: the ACK of the challenge, which validates the address.
        Body::Proof(_) => ack::encode(packet, &Acks::default(), room(out)?),
    }
    Ok(encoded_len(&packet.body))
}

/// Reads a whole Homa packet that arrived from `peer` at a priority level (0..=7).
///
/// Ports are seen from here: the packet's source is [`Packet::remote_port`].
#[inline]
pub fn decode(bytes: &[u8], peer: PeerId, priority: u8) -> Result<Decoded<'_>, DropReason> {
    read(bytes, peer, priority, &[])
}

/// Reads a packet of a datagram with these extensions.
#[inline(always)]
fn read<'a>(
    bytes: &'a [u8],
    peer: PeerId,
    priority: u8,
    extensions: &[u8],
) -> Result<Decoded<'a>, DropReason> {
    let head: &[u8; HEADER_LEN] = fixed(bytes)?;
    if header::KIND.get(head) != kind::DATA {
        let packet = header::read(head, peer, priority, control(head, bytes, extensions)?);
        return Ok(Decoded { packet, payload: &[], empty: false, idempotent: false });
    }
    // Port 0 marks one-way messages inside the endpoint, so no packet from a network may have it.
    if header::DESTINATION.get(head) == 0 || header::SOURCE.get(head) == 0 {
        return Err(DropReason::NoServer);
    }
    let (data, payload) = data::decode(bytes)?;
    let empty = data.message_length == 1 && data::is_marked_empty(bytes);
    let packet = header::read(head, peer, priority, Body::Data(data));
    let idempotent = data::is_marked_idempotent(bytes) && packet.begins_request();
    Ok(Decoded { packet, payload, empty, idempotent })
}

/// Reads the body of a packet that is not DATA.
fn control(head: &[u8; HEADER_LEN], bytes: &[u8], extensions: &[u8]) -> Result<Body, DropReason> {
    let extensions = || Extensions::values(extensions);
    match header::KIND.get(head) {
        kind::GRANT => grant::decode(bytes),
        kind::RESEND => resend::decode(bytes),
        kind::RPC_UNKNOWN => {
            let Extensions { remembered, no_server, reason, .. } = extensions()?;
            Ok(Body::RpcUnknown { remembered, no_server, reason })
        }
        kind::BUSY => Ok(Body::Busy { come_back: extensions()?.come_back }),
        kind::CUTOFFS => cutoffs::decode(bytes, extensions()?.limits),
        kind::FREEZE => Ok(Body::Freeze),
        kind::NEED_ACK => Ok(match extensions()?.challenge {
            Some((boot, remembered)) => Body::Challenge { boot, remembered },
            None => Body::NeedAck,
        }),
        kind::ACK => match extensions()?.proof {
            Some(proof) => ack::decode(bytes).map(|_| Body::Proof(proof)),
            None => ack::decode(bytes),
        },
        _ => Err(DropReason::UnknownType),
    }
}

/// The Homa packet of ours that an ICMP report quotes the beginning of.
pub fn quoted(bytes: &[u8]) -> Option<Quoted> {
    let head: &[u8; HEADER_LEN] = bytes.first_chunk()?;
    let begins = header::KIND.get(head) == kind::DATA && data::begins_message(bytes);
    Some(Quoted { id: RpcId(header::RPC_ID.get(head)), begins })
}

/// The first `N` bytes of a received packet.
#[inline(always)]
fn fixed<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DropReason> {
    bytes.first_chunk().ok_or(DropReason::Truncated)
}

/// The first `N` bytes of a buffer.
#[inline(always)]
fn room<const N: usize>(out: &mut [u8]) -> Result<&mut [u8; N], EncodeError> {
    out.first_chunk_mut().ok_or(EncodeError::BufferTooSmall { needed: N })
}

/// A priority byte as a level: values above 7 count as the highest.
#[inline(always)]
fn level(byte: u8) -> u8 {
    byte.min(LEVELS as u8 - 1)
}
