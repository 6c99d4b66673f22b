//! From a captured frame to the IP packet in it: link layers, VLAN tags, IPv4, IPv6.
//!
//! Lengths come from the IP header, so that padding behind a short packet is not taken for content,
//! and a truncated packet still has its true length. Nothing is reassembled: a fragment is
//! recognised and counted.
//!
//! Left out: link layers that do not carry Homa in practice. What tunnels carry is read by
//! [`super::tunnel`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Type of service (IPv4), traffic class (IPv6).
    pub class: u8,
    /// The payload, as far as it was captured.
    pub payload: &'a [u8],
    /// Bytes that the payload had.
    pub length: usize,
    /// The payload with all that follows it in the frame: padding, or what a length field that was
    /// not meant for a capture leaves out.
    pub frame: Payload<'a>,
    /// A piece of a larger packet.
    pub fragment: bool,
}

/// Bytes as far as they were captured, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// As captured.
    pub bytes: &'a [u8],
    /// On the wire.
    pub length: usize,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// IP.
    Ip(IpPacket<'a>),
    /// Another protocol, by its EtherType; below 1536: a length, hence 802.3.
    EtherType(u16),
}

/// Why nothing can be said about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreadable {
    /// A link type that is not understood here.
    LinkType(u16),
    /// A pcapng frame of an interface that no block described.
    NoInterface,
    /// The capture kept too little of the frame.
    Cut,
    /// The IP header contradicts itself.
    IpHeader,
    /// A fragment of a Homa packet, or of one that may be.
    Fragment,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkType(number) => write!(f, "link type {number}"),
            Self::NoInterface => f.write_str("interface not described"),
            Self::Cut => f.write_str("cut inside the headers"),
            Self::IpHeader => f.write_str("invalid IP header"),
            Self::Fragment => f.write_str("IP fragment"),
        }
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// VLAN tags: customer, provider, and an older provider's.
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Longest packet that is accepted if the IP header has no length, bytes: more than a kernel hands
/// to a card at a time.
const MAX_LENGTH: usize = 256 << 10;
/// Most extension headers that an IPv6 packet is believed to have.
const MAX_EXTENSIONS: usize = 16;

/// The link types that [`decode`] reads.
pub const LINK_TYPES: &str = "1 (Ethernet), 113 and 276 (Linux cooked), 0 and 108 (BSD loopback), \
                              12, 14, 101, 228 and 229 (raw IP)";

/// Reads a frame of a link type, which had `original` bytes before the capture cut it.
pub fn decode(link: u16, frame: &[u8], original: u32) -> Result<Content<'_>, Unreadable> {
    let missing = (original as usize).saturating_sub(frame.len());
    let content = |kind, bytes| content(kind, bytes, missing);
    let behind = |at, header| {
        let kind = be16(frame, at).ok_or(Unreadable::Cut)?;
        content(kind, frame.get(header..).ok_or(Unreadable::Cut)?)
    };
    match link {
        // BSD loopback: the address family in the byte order of the capturing host, or big-endian.
        0 | 108 => match (frame.first_chunk(), frame.get(4..)) {
            (Some([0, 0, 0, family] | [family, 0, 0, 0]), Some(rest)) => match family {
                2 => content(IPV4, rest),
                10 | 24 | 28 | 30 => content(IPV6, rest),
                _ => Ok(Content::EtherType(0)),
            },
            (Some(_), _) => Ok(Content::EtherType(0)),
            (None, _) => Err(Unreadable::Cut),
        },
        // The EtherType stands at an offset of the link header.
        1 => behind(12, 14),
        // Raw IP: by the registry, and by the numbers that BSDs gave it.
        12 | 14 | 101 | 228 | 229 => match frame.first().map(|byte| byte >> 4) {
            Some(4) => content(IPV4, frame),
            Some(6) => content(IPV6, frame),
            Some(_) => Err(Unreadable::IpHeader),
            None => Err(Unreadable::Cut),
        },
        113 => behind(14, 16),
        276 => behind(0, 20),
        other => Err(Unreadable::LinkType(other)),
    }
}

/// The content that an EtherType announces; the capture lacks the last `missing` bytes.
fn content(mut kind: u16, mut bytes: &[u8], missing: usize) -> Result<Content<'_>, Unreadable> {
    while VLAN.contains(&kind) {
        kind = be16(bytes, 2).ok_or(Unreadable::Cut)?;
        bytes = &bytes[4..];
    }
    match kind {
        IPV4 => ipv4(bytes, missing).map(Content::Ip),
        IPV6 => ipv6(bytes, missing).map(Content::Ip),
        other => Ok(Content::EtherType(other)),
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

/// Reads an IPv4 packet that lacks `missing` bytes; also one that an ICMP message quotes.
pub fn ipv4(bytes: &[u8], missing: usize) -> Result<IpPacket<'_>, Unreadable> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(Unreadable::Cut)?;
    let words = usize::from(header[0] & 0xf);
    if header[0] >> 4 != 4 || words < 5 {
        return Err(Unreadable::IpHeader);
    }
    let options = 4 * words;
    let payload = bytes.get(options..).ok_or(Unreadable::Cut)?;
    let frame = rest_of_frame(payload, missing);
    // A card that segments gets packets whose length it fills in later: 0.
    let length = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        total if overflows(total, frame.length + options) => frame.length,
        total => total.checked_sub(options).ok_or(Unreadable::IpHeader)?,
    };
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
    };
    // More fragments, or not the first.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    Ok(IpPacket {
        source: address(12),
        destination: address(16),
        protocol: header[9],
        class: header[1],
        payload: &payload[..payload.len().min(length)],
        length,
        frame,
        fragment,
    })
}

/// Whether a length field is that of a packet that is too long for it: 0, or the lower half.
fn overflows(field: usize, length: usize) -> bool {
    field == 0 || length > usize::from(u16::MAX) && length & usize::from(u16::MAX) == field
}

/// All that follows an IP header.
fn rest_of_frame(bytes: &[u8], missing: usize) -> Payload<'_> {
    let bytes = &bytes[..bytes.len().min(MAX_LENGTH)];
    Payload { bytes, length: bytes.len().saturating_add(missing).min(MAX_LENGTH) }
}

/// Reads an IPv6 packet that lacks `missing` bytes, past its extension headers.
pub fn ipv6(bytes: &[u8], missing: usize) -> Result<IpPacket<'_>, Unreadable> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(Unreadable::Cut)?;
    if header[0] >> 4 != 6 {
        return Err(Unreadable::IpHeader);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let mut frame = rest_of_frame(&bytes[40..], missing);
    let mut length = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        field if overflows(field, frame.length) => frame.length,
        length => length,
    };
    let mut payload = &frame.bytes[..frame.bytes.len().min(length)];
    let (mut protocol, mut fragment) = (header[6], false);
    for _ in 0..MAX_EXTENSIONS {
        let size = match protocol {
            // Hop by hop, routing, destination options, mobility, host identity, shim.
            0 | 43 | 60 | 135 | 139 | 140 => 8 + 8 * usize::from(byte(payload, 1)?),
            51 => 8 + 4 * usize::from(byte(payload, 1)?),
            44 => {
                let place = be16(payload, 2).ok_or(Unreadable::Cut)?;
                fragment |= place & 0xfff9 != 0;
                8
            }
            _ => break,
        };
        protocol = byte(payload, 0)?;
        length = length.checked_sub(size).ok_or(Unreadable::IpHeader)?;
        payload = payload.get(size..).ok_or(Unreadable::Cut)?;
        frame = Payload { bytes: &frame.bytes[size..], length: frame.length - size };
        if fragment {
            break;
        }
    }
    let class = header[0] << 4 | header[1] >> 4;
    let (source, destination) = (address(8), address(24));
    Ok(IpPacket { source, destination, protocol, class, payload, length, frame, fragment })
}

fn byte(bytes: &[u8], at: usize) -> Result<u8, Unreadable> {
    bytes.get(at).copied().ok_or(Unreadable::Cut)
}
