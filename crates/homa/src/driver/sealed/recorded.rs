//! Reads encrypted datagrams of a capture, with a log of secrets (`docs/encryption.md`).
//!
//! A session is found by the random bytes of the ClientHello: the log names its secrets, and the
//! handshake the key ids of both ends. So the capture must contain the first datagrams of the
//! handshake. Memory: only handshakes that the log names are remembered, each once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use homa_proto::wire::datagram;

use super::HandshakeDatagram;
use super::frame::PHASE;
use crate::secure::{Level, RecordedKeys, TAG};

/// Bytes of the datagram header.
const HEADER: usize = datagram::HEADER_LEN;
/// Places of the random bytes in a ClientHello, and of the length of the session id in both hellos:
/// behind type, length and version.
const RANDOM: std::ops::Range<usize> = 6..38;
const SESSION_ID: usize = 38;

/// Opens encrypted datagrams of a capture with a log of secrets, which engines write with
/// [`Keys::key_log`](crate::Keys::key_log).
///
/// Give it all UDP payloads in the order of the capture: it learns key ids from handshakes.
#[derive(Default)]
pub struct RecordedSessions {
    log: BTreeMap<[u8; 32], Secrets>,
    /// Handshakes whose server has not answered, by addresses and id.
    begun: BTreeMap<(SocketAddr, SocketAddr, u64), Begun>,
    /// By the receiver and its key id.
    keys: BTreeMap<(SocketAddr, u32), RecordedKeys>,
}

/// The first secrets of a session.
#[derive(Default)]
struct Secrets {
    client: Vec<u8>,
    server: Vec<u8>,
}

struct Begun {
    random: [u8; 32],
    /// The client's key id.
    key: u32,
}

impl RecordedSessions {
    /// A reader with a log in the format of SSLKEYLOGFILE. Lines of other programs are skipped.
    pub fn new(log: &str) -> Self {
        let mut read = Self::default();
        for line in log.lines() {
            let mut words = line.split_whitespace();
            let label = words.next().unwrap_or_default();
            let (Some(random), Some(secret)) =
                (words.next().and_then(bytes), words.next().and_then(bytes))
            else {
                continue;
            };
            let Ok(random) = <[u8; 32]>::try_from(random) else { continue };
            match label {
                "CLIENT_TRAFFIC_SECRET_0" => read.log.entry(random).or_default().client = secret,
                "SERVER_TRAFFIC_SECRET_0" => read.log.entry(random).or_default().server = secret,
                _ => {}
            }
        }
        read
    }

    /// Number of sessions whose secrets the log has.
    pub fn sessions(&self) -> usize {
        self.log.len()
    }

    /// Reads a UDP payload: a datagram, or a train of them as a kernel cuts or joins it. Returns it
    /// as it would be in plaintext. `None` if it is not encrypted, or not of a session that the log
    /// names.
    pub fn open(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
        let key = u32::from_be_bytes(*payload.get(4..)?.first_chunk()?);
        if payload[0] != datagram::VERSION {
            return None;
        }
        if key == 0 {
            if HandshakeDatagram::is_in(payload) {
                self.learn(from, to, &HandshakeDatagram::read(payload)?);
            }
            return None;
        }
        let keys = self.keys.get_mut(&(to, key))?;
        let size = first_of_train(payload)?;
        let mut plain = Vec::with_capacity(payload.len());
        for datagram in payload.chunks(size) {
            let start = plain.len();
            plain.extend_from_slice(datagram);
            let length = open(keys, &mut plain[start..])?;
            plain.truncate(start + length);
        }
        Some(plain)
    }

    /// Learns from a handshake.
    fn learn(&mut self, from: SocketAddr, to: SocketAddr, frame: &HandshakeDatagram<'_>) {
        let &HandshakeDatagram::Flight {
            from_client,
            id,
            key,
            level: Level::Initial,
            offset: 0,
            bytes,
            ..
        } = frame
        else {
            return;
        };
        if from_client {
            let random = bytes.get(RANDOM).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            if let Some(random) = random.filter(|random| self.log.contains_key(random)) {
                self.begun.entry((from, to, id)).or_insert(Begun { random, key });
            }
            return;
        }
        let Some(begun) = self.begun.get(&(to, from, id)) else { return };
        let Some(secrets) = self.log.get(&begun.random) else { return };
        let Some(suite) = cipher_suite(bytes) else { return };
        for (receiver, key, secret) in
            [(from, key, &secrets.client), (to, begun.key, &secrets.server)]
        {
            if let Some(keys) = RecordedKeys::new(suite, secret) {
                self.keys.entry((receiver, key)).or_insert(keys);
            }
        }
    }
}

/// The cipher suite in a ServerHello.
fn cipher_suite(hello: &[u8]) -> Option<u16> {
    let at = SESSION_ID + 1 + usize::from(*hello.get(SESSION_ID)?);
    Some(u16::from_be_bytes(*hello.get(at..)?.first_chunk()?))
}

/// Bytes of the first datagram of a train: the next one has the same key id, and the next number.
fn first_of_train(payload: &[u8]) -> Option<usize> {
    let number = u64::from_be_bytes(*payload.get(8..)?.first_chunk()?);
    let mut next = payload[4..8].to_vec();
    next.extend_from_slice(&number.wrapping_add(1).to_be_bytes());
    let rest = payload.get(HEADER..)?;
    let found = rest
        .windows(HEADER)
        .position(|header| header[0] == datagram::VERSION && header[4..] == next);
    let size = found.map_or(payload.len(), |at| HEADER + at);
    (size > HEADER + TAG).then_some(size)
}

/// Opens a datagram in place, as if it had been sent in plaintext; returns its length.
fn open(keys: &mut RecordedKeys, datagram: &mut [u8]) -> Option<usize> {
    let (header, _) = datagram.split_first_chunk::<HEADER>()?;
    let phase = header[1] & PHASE != 0;
    let front = HEADER + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let number = u64::from_be_bytes(*header[8..].first_chunk()?);
    let (front, packets) = datagram.split_at_mut_checked(front)?;
    let length = front.len() + keys.open(number, phase, front, packets)?;
    front[1] &= !PHASE;
    front[4..8].fill(0);
    Some(length)
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| pairs.map(byte).collect()).flatten()
}

/// No secrets.
impl fmt::Debug for RecordedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedSessions").field("log", &self.log.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sealed::frame::{FRONT, FULL};
    use crate::secure::{Fragment, Handshake, Keys, Next, SecureSession};

    const CLIENT_KEY: u32 = 0x0c11_e417;
    const SERVER_KEY: u32 = 0x5e47_0e40;

    fn addresses() -> (SocketAddr, SocketAddr) {
        ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:4000".parse().unwrap())
    }

    /// The payloads of a handshake in order, `true` for those of the client, and both sessions.
    fn handshake(keys: &Keys) -> (Vec<(bool, Vec<u8>)>, SecureSession, SecureSession) {
        let mut ends = [
            Handshake::server(keys, SERVER_KEY).unwrap(),
            Handshake::client(keys, ([10, 0, 0, 2], 2).into(), CLIENT_KEY).unwrap(),
        ];
        let (mut payloads, mut from_client) = (Vec::new(), true);
        let mut flight = ends[1].flight(FULL - FRONT);
        while !flight.is_empty() {
            let mut next = Next::Wait;
            for part in &flight {
                let key = if from_client { CLIENT_KEY } else { SERVER_KEY };
                let mut payload = Vec::new();
                HandshakeDatagram::flight(from_client, 77, key, part).write(0, &mut payload);
                payloads.push((from_client, payload));
                let fragment = Fragment { level: part.0, offset: part.1, bytes: &part.2 };
                if ends[usize::from(!from_client)].receive(fragment) == Ok(Next::Send) {
                    next = Next::Send;
                }
            }
            from_client = !from_client;
            flight = match next {
                Next::Send => ends[usize::from(from_client)].flight(FULL - FRONT),
                Next::Wait => Vec::new(),
            };
        }
        let [mut server, mut client] = ends;
        (payloads, client.session().unwrap(), server.session().unwrap())
    }

    /// A train of datagrams of a session, and what it is in plaintext.
    fn train(session: &mut SecureSession, key: u32, texts: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        for text in texts {
            let (number, phase) = session.next().unwrap();
            let header = |flags: u8, key: u32| {
                let header = [&[datagram::VERSION, flags, 0, 0][..], &key.to_be_bytes()].concat();
                [header, number.to_be_bytes().to_vec()].concat()
            };
            let aad = header(if phase { PHASE } else { 0 }, key);
            let mut payload = [*text, &[0; TAG]].concat();
            session.seal(number, &aad, &mut payload).unwrap();
            sealed.extend([aad, payload].concat());
            plain.extend([&header(0, 0)[..], text].concat());
        }
        (sealed, plain)
    }

    #[test]
    fn a_log_of_secrets_opens_trains_of_both_directions() {
        let path = std::env::temp_dir().join(format!("homa-recorded-{}", std::process::id()));
        let keys = Keys::cluster([3; 32]).unwrap().key_log(&path).unwrap();
        let (payloads, mut client, mut server) = handshake(&keys);
        let log = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut read = RecordedSessions::new(&log);
        let mut blind = RecordedSessions::new("CLIENT_TRAFFIC_SECRET_0 00 00\n# no secrets\n");
        assert_eq!((read.sessions(), blind.sessions()), (1, 0));
        let (at_client, at_server) = addresses();
        for (from_client, payload) in &payloads {
            let (from, to) =
                if *from_client { (at_client, at_server) } else { (at_server, at_client) };
            assert_eq!(read.open(from, to, payload), None);
            assert_eq!(blind.open(from, to, payload), None);
        }
        let texts: [&[u8]; 3] = [&[1; 100], &[2; 100], &[3; 40]];
        for (session, key, from, to) in [
            (&mut client, SERVER_KEY, at_client, at_server),
            (&mut server, CLIENT_KEY, at_server, at_client),
        ] {
            let (sealed, plain) = train(session, key, &texts);
            assert_eq!(blind.open(from, to, &sealed), None);
            assert_eq!(read.open(to, from, &sealed), None, "another direction");
            assert_eq!(read.open(from, to, &sealed[..sealed.len() - 1]), None, "a cut capture");
            assert_eq!(read.open(from, to, &sealed), Some(plain));
        }
    }
}
