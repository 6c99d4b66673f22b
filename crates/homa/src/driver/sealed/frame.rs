//! Datagrams of the handshake (`docs/udp-encapsulation.md`, "Encryption"): written and read.
//!
//! Behind the datagram header they look like a Homa packet of an unknown type, so builds without
//! encryption drop and count them, and an ICMP report that quotes one names its id.

use crate::secure::{COOKIE, Level};

/// Bytes of the datagram header.
pub const HEADER: usize = 16;
/// Bytes in front of a fragment's bytes.
pub const FRONT: usize = HEADER + 40;
/// The UDP payload of a flight's datagrams at first, bytes: it passes wherever IPv6 does.
pub const FULL: usize = 1200;
/// The UDP payload after several datagrams were lost, bytes: it passes wherever IPv4 does.
pub const SMALL: usize = 576 - 28;

/// Flag of the datagram header: the key phase of an encrypted datagram.
pub const PHASE: u8 = 2;
/// Flag of the datagram header: the datagram belongs to a handshake.
const HANDSHAKE: u8 = 4;

/// The packet type, where builds without encryption look for it.
const KIND: u8 = 0x1f;

const VERSION: u8 = 1;
const FLIGHT_OF_CLIENT: u8 = 1;
const FLIGHT_OF_SERVER: u8 = 2;
const UNKNOWN_KEY: u8 = 3;
const REFUSED: u8 = 4;
const RETRY: u8 = 5;
const FLIGHT_WITH_COOKIE: u8 = 6;

/// A datagram of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeDatagram<'a> {
    /// A part of a flight.
    Flight {
        /// The client sent it.
        from_client: bool,
        /// The client's random number of the handshake.
        id: u64,
        /// The key id under which its sender wants to receive.
        key: u32,
        /// The level of its bytes.
        level: Level,
        /// Its place in the level's stream.
        offset: u32,
        /// Its bytes.
        bytes: &'a [u8],
        /// The server's cookie, which the client repeats: empty, or [`COOKIE`] bytes.
        cookie: &'a [u8],
    },
    /// The server wants the client's flight again, with this cookie.
    Retry {
        /// The handshake's id.
        id: u64,
        /// [`COOKIE`] bytes.
        cookie: &'a [u8],
    },
    /// The sender has no session with this key id: the answer to a datagram.
    UnknownKey {
        /// The key id of the datagram.
        key: u32,
        /// The packet number of the datagram.
        number: u64,
    },
    /// The sender refuses a handshake, or a plaintext request.
    Refused {
        /// The handshake's id, or the request's RPC id.
        id: u64,
        /// One of [`code`].
        code: u8,
    },
}

/// Why a handshake is refused, as it is written.
pub mod code {
    /// The sender has no keys.
    pub const NO_KEYS: u8 = 1;
    /// The sender accepts only encrypted requests.
    pub const KEYS_REQUIRED: u8 = 2;
    /// The sender's policy does not admit the receiver's identity.
    pub const NOT_ADMITTED: u8 = 3;
}

impl<'a> HandshakeDatagram<'a> {
    /// The frame of a fragment of a flight.
    pub fn flight(from_client: bool, id: u64, key: u32, of: &'a (Level, u32, Vec<u8>)) -> Self {
        let &(level, offset, ref bytes) = of;
        Self::Flight { from_client, id, key, level, offset, bytes, cookie: &[] }
    }

    /// The frame with a cookie, if it is one of a client's first flight.
    pub fn with_cookie(mut self, of_server: &'a [u8]) -> Self {
        if let Self::Flight { from_client: true, level: Level::Initial, cookie, .. } = &mut self {
            *cookie = of_server;
        }
        self
    }

    /// Appends the datagram, with zeros up to `least` bytes.
    pub fn write(&self, least: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[VERSION, HANDSHAKE, 0, 0]);
        out.extend_from_slice(&[0; 12 + 11]);
        // As in any Homa packet: the type, the data offset, and TCP's flags and urgent pointer.
        out.extend_from_slice(&[KIND, 0x50, 6, 0, 0, 0, 0, 0xb9, 0x7d]);
        let mut behind: &[u8] = &[];
        let (id, kind, what, key, offset, bytes): (u64, u8, u8, u32, u32, &[u8]) = match *self {
            Self::Flight { from_client, id, key, level, offset, bytes, cookie } => {
                behind = cookie;
                let kind = match (from_client, cookie.is_empty()) {
                    (true, true) => FLIGHT_OF_CLIENT,
                    (true, false) => FLIGHT_WITH_COOKIE,
                    (false, _) => FLIGHT_OF_SERVER,
                };
                (id, kind, level as u8, key, offset, bytes)
            }
            Self::Retry { id, cookie } => (id, RETRY, 0, 0, 0, cookie),
            Self::UnknownKey { key, number } => (number, UNKNOWN_KEY, 0, key, 0, &[]),
            Self::Refused { id, code } => (id, REFUSED, code, 0, 0, &[]),
        };
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&[kind, what]);
        out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(behind);
        out.resize(out.len().max(start + least), 0);
    }

    /// True if a datagram of at least 16 bytes under key id 0 belongs to a handshake.
    pub fn is_in(datagram: &[u8]) -> bool {
        datagram[1] & HANDSHAKE != 0
    }

    /// Reads a datagram for which [`Self::is_in`] is true; `None` if it is malformed.
    pub fn read(datagram: &'a [u8]) -> Option<Self> {
        let body = datagram.get(HEADER..)?;
        let (front, rest) = body.split_first_chunk::<{ FRONT - HEADER }>()?;
        let be64 = |at: usize| Some(u64::from_be_bytes(front[at..at + 8].try_into().ok()?));
        let be32 = |at: usize| Some(u32::from_be_bytes(front[at..at + 4].try_into().ok()?));
        let (id, key, offset) = (be64(20)?, be32(32)?, be32(36)?);
        if front[11] != KIND {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([front[30], front[31]]));
        Some(match (front[28], front[29]) {
            (kind @ (FLIGHT_OF_CLIENT | FLIGHT_OF_SERVER | FLIGHT_WITH_COOKIE), level @ 0..=2) => {
                let from_client = kind != FLIGHT_OF_SERVER;
                let level = match level {
                    0 => Level::Initial,
                    1 => Level::Handshake,
                    _ => Level::Early,
                };
                let (bytes, behind) = rest.split_at_checked(len)?;
                let cookie = behind.get(..if kind == FLIGHT_WITH_COOKIE { COOKIE } else { 0 })?;
                Self::Flight { from_client, id, key, level, offset, bytes, cookie }
            }
            (RETRY, _) if len == COOKIE => Self::Retry { id, cookie: rest.get(..len)? },
            (UNKNOWN_KEY, _) => Self::UnknownKey { key, number: id },
            (REFUSED, code) => Self::Refused { id, code },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::wire::datagram;
    use homa_proto::{DropReason, PeerId, RpcId};

    use super::*;

    fn frames() -> [HandshakeDatagram<'static>; 7] {
        let flight = |from_client, level| HandshakeDatagram::Flight {
            from_client,
            id: 0x1122_3344_5566_7788,
            key: 7,
            level,
            offset: 1144,
            bytes: b"flight",
            cookie: &[],
        };
        [
            flight(true, Level::Initial),
            flight(false, Level::Handshake),
            flight(true, Level::Early),
            flight(true, Level::Initial).with_cookie(&[7; COOKIE]),
            HandshakeDatagram::Retry { id: 5, cookie: &[8; COOKIE] },
            HandshakeDatagram::UnknownKey { key: 9, number: 1 << 40 },
            HandshakeDatagram::Refused { id: 3, code: code::NO_KEYS },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for frame in frames() {
            for least in [0, FULL] {
                let mut bytes = Vec::new();
                frame.write(least, &mut bytes);
                assert!(bytes.len() >= least && HandshakeDatagram::is_in(&bytes));
                assert_eq!(HandshakeDatagram::read(&bytes), Some(frame));
            }
        }
    }

    #[test]
    fn a_truncated_handshake_datagram_is_not_read() {
        for frame in frames() {
            let mut bytes = Vec::new();
            frame.write(0, &mut bytes);
            for length in HEADER..bytes.len() {
                assert_eq!(
                    HandshakeDatagram::read(&bytes[..length]),
                    None,
                    "{length} bytes of {frame:?}"
                );
            }
        }
    }

    #[test]
    fn a_build_without_encryption_drops_the_handshake() {
        for frame in frames() {
            let mut bytes = Vec::new();
            frame.write(FULL, &mut bytes);
            let packets = datagram::decode(&bytes).unwrap().packets(PeerId(0), 0);
            let read: Vec<_> = packets.map(|packet| packet.map(|_| ())).collect();
            assert_eq!(read, [Err(DropReason::UnknownType)]);
        }
    }

    #[test]
    fn an_icmp_report_about_a_handshake_names_its_id() {
        let mut bytes = Vec::new();
        frames()[0].write(FULL, &mut bytes);
        let quoted = datagram::quoted(&bytes[..FRONT]).unwrap();
        assert_eq!((quoted.id, quoted.begins), (RpcId(0x1122_3344_5566_7788), false));
    }
}
