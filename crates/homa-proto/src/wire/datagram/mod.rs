//! Homa over UDP: the datagram header, version 1 (specified in `docs/udp-encapsulation.md`).
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: bit 0 set if a length (2 bytes) precedes every packet; others 0, ignored |
//! | 2..4 | length of the extensions in bytes |
//! | 4..8 | key id, 0 for plaintext |
//! | 8..16 | packet number |
//! | 16.. | extensions, then one packet, or several with a length each |
//!
//! The kernel module does not use this format. It has a version because it will change: an unknown
//! version or key is dropped, an unknown extension or flag is skipped.
//!
//! [`encode`] writes the header in front of one packet and leaves the payload to the caller, who
//! may gather it from several places. [`Writer`] fills one buffer with as many packets as fit.
//! [`decode`] and [`DecodedDatagram::packets`] read both without copying. Reading is bounded by the
//! datagram's length.
//!
//! ```
//! use homa_proto::wire::{self, datagram};
//! use homa_proto::{Body, Packet, PeerId, RpcId};
//!
//! let busy = Packet {
//!     peer: PeerId(3),
//!     priority: 7,
//!     local_port: 4_000,
//!     remote_port: 99,
//!     id: RpcId(0x8000_0000_0000_0002).server(),
//!     body: Body::Busy { come_back: None },
//! };
//! let mut bytes = [0; 64];
//! let length = datagram::encode(&busy, 1, &mut bytes)?;
//! assert_eq!(length, datagram::HEADER_LEN + wire::encoded_len(&busy.body));
//!
//! // The receiver sees the ports the other way round.
//! let received = datagram::decode(&bytes[..length]).unwrap();
//! let packet = received.packets(PeerId(8), 7).next().unwrap().unwrap().packet;
//! assert_eq!((packet.local_port, packet.remote_port, packet.body), (99, 4_000, busy.body));
//! # Ok::<(), wire::EncodeError>(())
//! ```
//!
//! Left out: sockets, encryption (the header has its place), and the decision which packets share a
//! datagram.

mod extension;
mod request_extensions;
mod trace;
mod writer;

pub use extension::kind as extension_kind;
pub use request_extensions::RequestExtensions;
pub use trace::{TraceContext, TraceParseError};
pub use writer::{Draft, Writer};

use super::field::{Be16, Be32, Be64, Byte};
use super::{DATA_LEN, Decoded, EncodeError, fixed};
use crate::event::{DropReason, Quoted};
use crate::packet::{Body, Packet, PeerId, RpcId};
pub(super) use extension::Extensions;
use request_extensions::{EncodedExtensions, Lists};

/// Bytes in the datagram header.
pub const HEADER_LEN: usize = 16;
/// Bytes in front of the payload in a datagram that carries one DATA packet and no extension. At an
/// MTU of 1500 bytes this leaves 1400 bytes under IPv4 and 1380 under IPv6.
pub const DATA_OVERHEAD: usize = HEADER_LEN + DATA_LEN;
/// Longest UDP payload: 65,535 bytes less the IPv4 and UDP headers.
pub const DATAGRAM_MAX: usize = 65_535 - 20 - 8;
/// Most bytes in front of that payload: of a packet that begins a request with all extensions.
pub const REQUEST_OVERHEAD: usize = DATA_OVERHEAD + RequestExtensions::MAX_LEN;
/// The version spoken here.
pub const VERSION: u8 = 1;
/// Flag: every packet is preceded by its length.
pub const AGGREGATE: u8 = 1;

/// Key id of datagrams that are not encrypted.
const PLAINTEXT: u32 = 0;
/// Bytes of a packet's length in an aggregate.
const LENGTH_LEN: usize = 2;

const VERSION_FIELD: Byte<0> = Byte;
const FLAGS: Byte<1> = Byte;
const EXTENSION_LENGTH: Be16<2> = Be16;
const KEY_ID: Be32<4> = Be32;
const NUMBER: Be64<8> = Be64;

/// Writes the datagram header, the extensions that the packet needs, and the packet's Homa header
/// to the start of `out`; returns their length. The payload of a DATA packet belongs right after.
#[inline]
pub fn encode(packet: &Packet, number: u64, out: &mut [u8]) -> Result<usize, EncodeError> {
    encode_request(packet, &RequestExtensions::NONE, number, out)
}

/// Like [`encode`], for a packet that may begin a request: then with the request's extensions.
#[inline]
pub fn encode_request(
    packet: &Packet,
    request_extensions: &RequestExtensions,
    number: u64,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    let extensions = Extensions::of(&packet.body);
    // A request's extensions are those of its first packet only.
    let request_extensions =
        if packet.begins_request() { request_extensions } else { &RequestExtensions::NONE };
    let at = HEADER_LEN + extensions.encoded_len() + request_extensions.encoded_len();
    let needed = at + super::encoded_len(&packet.body);
    if out.len() < needed {
        return Err(EncodeError::BufferTooSmall { needed });
    }
    write_header(out, number)?;
    if at > HEADER_LEN {
        let lists = request_extensions.write(&mut out[HEADER_LEN..]);
        let length = lists + extensions.write(&mut out[HEADER_LEN + lists..]);
        set_extension_length(out, length)?;
    }
    super::encode(packet, &mut out[at..])?;
    if request_extensions.idempotent {
        super::mark_idempotent(&mut out[at..])?;
    }
    Ok(needed)
}

#[inline(always)]
fn write_header(out: &mut [u8], number: u64) -> Result<(), EncodeError> {
    let header: &mut [u8; HEADER_LEN] = super::room(out)?;
    *header = [0; HEADER_LEN];
    VERSION_FIELD.set(header, VERSION);
    KEY_ID.set(header, PLAINTEXT);
    NUMBER.set(header, number);
    Ok(())
}

/// Bytes of the extensions that a packet needs.
pub fn extensions_len(body: &Body) -> usize {
    Extensions::of(body).encoded_len()
}

fn set_extension_length(out: &mut [u8], length: usize) -> Result<(), EncodeError> {
    let header: &mut [u8; HEADER_LEN] = super::room(out)?;
    EXTENSION_LENGTH.set(header, length as u16);
    Ok(())
}

/// A datagram whose header and extensions were understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedDatagram<'a> {
    /// The sender's number for it.
    pub number: u64,
    /// Extensions that were skipped because their type is not known here.
    pub unknown_extensions: u16,
    /// The extensions that control packets need, which are read again when one is found: most
    /// datagrams have none.
    extensions: &'a [u8],
    lists: Lists<'a>,
    aggregate: bool,
    packets: &'a [u8],
}

/// Reads a datagram's header and extensions.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<DecodedDatagram<'_>, DropReason> {
    match bytes.first() {
        None => return Err(DropReason::Truncated),
        Some(&VERSION) => {}
        // Other versions may have any layout, even a shorter header, so no other field is read.
        Some(_) => return Err(DropReason::UnknownVersion),
    }
    let header: &[u8; HEADER_LEN] = fixed(bytes)?;
    if KEY_ID.get(header) != PLAINTEXT {
        return Err(DropReason::UnknownKey);
    }
    let mut datagram = DecodedDatagram {
        number: NUMBER.get(header),
        unknown_extensions: 0,
        extensions: &[],
        lists: Lists::default(),
        aggregate: FLAGS.get(header) & AGGREGATE != 0,
        packets: &bytes[HEADER_LEN..],
    };
    let length = EXTENSION_LENGTH.get(header);
    if length > 0 {
        let (extensions, packets) =
            datagram.packets.split_at_checked(length.into()).ok_or(DropReason::Truncated)?;
        // Nearly all datagrams with extensions have deadlines alone.
        match Lists::only_deadlines(extensions) {
            Some(lists) => datagram.lists = lists,
            None => {
                datagram.extensions = extensions;
                (_, datagram.lists, datagram.unknown_extensions) = Extensions::read(extensions)?;
            }
        }
        datagram.packets = packets;
    }
    Ok(datagram)
}

/// The packet of a datagram of ours that an ICMP report quotes the beginning of (hosts quote 8
/// bytes, or many more): the one that begins a message, which proves most, or else its first
/// packet. Of an encrypted datagram nothing is known but its key id and the lower half of its
/// number, which are then the id.
pub fn quoted(bytes: &[u8]) -> Option<Quoted> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let key = u64::from(KEY_ID.get(header));
    if key != u64::from(PLAINTEXT) {
        let id = RpcId(key << 32 | NUMBER.get(header) & u64::from(u32::MAX));
        return Some(Quoted { id, begins: false });
    }
    let mut rest = rest.get(usize::from(EXTENSION_LENGTH.get(header))..)?;
    if FLAGS.get(header) & AGGREGATE == 0 {
        return super::quoted(rest);
    }
    let mut first = None;
    while let Some((length, packets)) = rest.split_first_chunk::<LENGTH_LEN>() {
        let Some(quoted) = super::quoted(packets) else { break };
        if quoted.begins {
            return Some(quoted);
        }
        first = first.or(Some(quoted));
        rest = packets.get(usize::from(u16::from_be_bytes(*length))..).unwrap_or_default();
    }
    first
}

impl<'a> DecodedDatagram<'a> {
    /// The packets, which arrived from `peer` at a priority level (0..=7). A packet that cannot be
    /// read does not hide those after it, unless it breaks the framing.
    #[inline]
    pub fn packets(&self, peer: PeerId, priority: u8) -> Packets<'a> {
        let extensions = EncodedExtensions::NONE;
        let (datagram, rest) = (*self, Some(self.packets));
        Packets { datagram, rest, peer, priority, extensions, idempotent: false }
    }
}

/// Iterates over the packets of a datagram.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    datagram: DecodedDatagram<'a>,
    /// Bytes that were not read; `None` at the end.
    rest: Option<&'a [u8]>,
    peer: PeerId,
    priority: u8,
    /// The extensions of the request that the packet read last begins.
    extensions: EncodedExtensions<'a>,
    /// That request is marked as one that may be executed more than once.
    idempotent: bool,
}

impl<'a> Packets<'a> {
    /// Bytes of the datagram that were not read yet: shows a reader of captures where the next
    /// packet begins.
    pub fn unread(&self) -> usize {
        self.rest.map_or(0, <[u8]>::len)
    }

    /// The extensions of the request that the packet read last begins, and its mark.
    #[inline]
    pub fn request_extensions(&self) -> RequestExtensions {
        let idempotent = self.idempotent;
        RequestExtensions { idempotent, ..self.extensions.request_extensions() }
    }

    /// True if it has any, not counting the mark.
    #[inline]
    pub fn has_request_extensions(&self) -> bool {
        self.extensions != EncodedExtensions::NONE
    }

    /// Takes the length and the bytes of the next packet of an aggregate.
    fn next_of_aggregate(&mut self, rest: &'a [u8]) -> Option<Result<&'a [u8], DropReason>> {
        if rest.is_empty() {
            return None;
        }
        let framed = rest
            .split_first_chunk::<LENGTH_LEN>()
            .and_then(|(length, rest)| rest.split_at_checked(u16::from_be_bytes(*length).into()));
        let Some((packet, rest)) = framed else {
            return Some(Err(DropReason::Truncated));
        };
        self.rest = Some(rest);
        Some(Ok(packet))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Decoded<'a>, DropReason>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let bytes = if self.datagram.aggregate {
            match self.next_of_aggregate(rest)? {
                Ok(packet) => packet,
                Err(reason) => {
                    (self.extensions, self.idempotent) = (EncodedExtensions::NONE, false);
                    return Some(Err(reason));
                }
            }
        } else {
            rest
        };
        let decoded = super::read(bytes, self.peer, self.priority, self.datagram.extensions);
        let lists = &mut self.datagram.lists;
        // The lists have an entry for each packet that begins a request.
        let begins = || decoded.as_ref().is_ok_and(|decoded| decoded.packet.begins_request());
        self.extensions =
            if !lists.are_empty() && begins() { lists.next() } else { EncodedExtensions::NONE };
        self.idempotent = decoded.as_ref().is_ok_and(|decoded| decoded.idempotent);
        Some(decoded)
    }
}
