//! The TLS 1.3 handshake, sans-IO: fragments in, fragments out, a session at the end.
//!
//! As in QUIC (RFC 9001 §4), TLS messages form one stream of bytes for each level, and every
//! fragment names its level and offset. Fragments of the level Handshake are sealed with the
//! handshake keys; each has another number, also when it repeats bytes. The client repeats its
//! flight until the server confirms; the server only answers, so two ends cannot excite each other.
//!
//! Invariants: bytes of a level that is over, or not authentic, never reach TLS. A server has a
//! session only after it verified the client's last message. Each end learns the other's key id
//! from the authenticated transport parameters. A client gives out a challenge only of a server
//! that it has verified. Memory is bounded (`stream.rs`).
//!
//! Early data (`early_data.rs`) are datagrams in fragments of another level.
//!
//! Left out: timers, addresses, and the limit of bytes to an address that has not answered.

use std::net::SocketAddr;

use rustls::quic::{
    ClientConnection, Connection, KeyChange, PacketKeySet, Secrets, ServerConnection, Version,
};
use rustls::{AlertDescription, Error, HandshakeKind, PeerMisbehaved};

use super::early_data::EarlyData;
use super::keys::{Credentials, Keys};
use super::seal::{OVERHEAD, Seal};
use super::stream::HandshakeStream;
use super::{ALPN, HandshakeError, PeerIdentity, SecureSession};

/// The offset of a fragment that holds an alert, one byte, instead of a part of the stream.
const ALERT: u32 = u32::MAX;

/// The offset of the empty, sealed fragment with which a server confirms that it is complete.
const COMPLETE: u32 = u32::MAX - 1;

/// The offset of the sealed fragment with the server's challenge. Older clients drop it.
const CHALLENGE: u32 = u32::MAX - 2;

/// The offset of the sealed fragment with the server's ticket. Older clients ignore it.
const TICKET: u32 = u32::MAX - 3;

/// Least room for a fragment, so that a flight has a bounded number of them.
const ROOM_MIN: usize = 64;

/// The keys that protect handshake bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// None: bytes travel in plaintext, up to the ServerHello.
    Initial,
    /// The handshake keys.
    Handshake,
    /// The client's keys for early data: the bytes are a datagram, not a part of a stream.
    Early,
}

/// A part of the peer's handshake bytes, as it travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'a> {
    /// Which keys protect it.
    pub level: Level,
    /// Where its bytes begin in the stream of its level; the last values have other meanings.
    pub offset: u32,
    /// Its bytes; sealed ones are preceded by a number.
    pub bytes: &'a [u8],
}

/// What a caller does after a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Wait,
    /// Send the flight now: there are new bytes, or the peer asks for a repetition.
    Send,
}

/// One handshake with one peer.
pub(crate) struct Handshake {
    pub(super) tls: Box<Connection>,
    cluster: bool,
    /// The peer's bytes by level.
    incoming: [HandshakeStream; 2],
    /// Our bytes by level.
    outgoing: [Vec<u8>; 2],
    /// The level whose bytes TLS reads; none when the handshake is complete.
    reading: Option<Level>,
    pub(super) seal: Option<Box<Seal>>,
    /// Sealed fragments that arrived before the keys, as offset and bytes.
    pub(super) before_keys: Vec<(u32, Vec<u8>)>,
    pub(super) early: EarlyData,
    /// The keys of the session, until it is taken.
    traffic: Option<(PacketKeySet, Secrets)>,
    /// The reason why the handshake is over.
    failed: Option<HandshakeError>,
    /// The alert that the peer should get.
    alert: Option<u8>,
    /// The key id under which the peer wants to receive, once it is verified.
    theirs: Option<u32>,
    /// As server: the challenge for the client. As client: the server's, empty once it is taken.
    challenge: Option<Vec<u8>>,
    /// The peer has sealed a fragment, so it receives at its address.
    validated: bool,
    /// As client: the server is complete.
    confirmed: bool,
    /// As complete server: the client has to be told.
    confirm: bool,
    /// As complete server: the message with the ticket, if there is one.
    ticket: Vec<u8>,
    /// As client: a ticket was taken.
    has_ticket: bool,
}

impl Handshake {
    /// A handshake that we begin. `server` is verified unless the keys name another server name.
    /// `ours` is the key id under which we want to receive.
    ///
    /// # Errors
    /// The configuration of the keys cannot be used.
    pub(crate) fn client(
        keys: &Keys,
        server: SocketAddr,
        ours: u32,
    ) -> Result<Self, HandshakeError> {
        let credentials = keys.credentials();
        let name = credentials.name_of(server.ip());
        let client = credentials.client_of(server);
        let tls = ClientConnection::new(client, Version::V1, name, parameters(ours));
        let mut handshake = Self::new(tls.map(Connection::Client), &credentials)?;
        handshake.produce();
        handshake.offer_early_data();
        Ok(handshake)
    }

    /// A handshake that a client began. `ours` is the key id under which we want to receive.
    ///
    /// # Errors
    /// The configuration of the keys cannot be used.
    pub(crate) fn server(keys: &Keys, ours: u32) -> Result<Self, HandshakeError> {
        let credentials = keys.credentials();
        let tls = ServerConnection::new(credentials.server.clone(), Version::V1, parameters(ours));
        let mut handshake = Self::new(tls.map(Connection::Server), &credentials)?;
        if credentials.server.max_early_data_size > 0 {
            handshake.await_early_data();
        }
        Ok(handshake)
    }

    fn new(tls: Result<Connection, Error>, with: &Credentials) -> Result<Self, HandshakeError> {
        Ok(Self {
            tls: tls.map(Box::new).map_err(|error| HandshakeError::Config(error.to_string()))?,
            cluster: with.cluster,
            incoming: Default::default(),
            outgoing: Default::default(),
            reading: Some(Level::Initial),
            seal: None,
            before_keys: Vec::new(),
            early: EarlyData::default(),
            traffic: None,
            failed: None,
            alert: None,
            theirs: None,
            challenge: None,
            validated: false,
            confirmed: false,
            confirm: false,
            ticket: Vec::new(),
            has_ticket: false,
        })
    }

    /// As server: the client gets these bytes with our flight. It has them only if it receives at
    /// its address.
    pub(crate) fn set_challenge(&mut self, bytes: Vec<u8>) {
        self.challenge = Some(bytes);
    }

    /// As client: the bytes that the server, which is verified by now, has sent with its flight;
    /// once.
    pub(crate) fn take_challenge(&mut self) -> Option<Vec<u8>> {
        if self.is_server() || self.reading.is_some() || self.failed.is_some() {
            return None;
        }
        let bytes = std::mem::take(self.challenge.as_mut()?);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Takes a fragment from the peer, in any order, repeated or not.
    ///
    /// # Errors
    /// [`HandshakeError::Dropped`] if the fragment was dropped. Any other error is final: the
    /// caller should send the flight once more, which is the alert for the peer.
    pub(crate) fn receive(&mut self, fragment: Fragment<'_>) -> Result<Next, HandshakeError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        match fragment.level {
            Level::Initial => self.receive_plain(fragment.offset, fragment.bytes),
            Level::Handshake => self.receive_sealed(fragment.offset, fragment.bytes),
            Level::Early => self.receive_early(fragment.offset, fragment.bytes),
        }
    }

    fn receive_plain(&mut self, offset: u32, bytes: &[u8]) -> Result<Next, HandshakeError> {
        if self.reading != Some(Level::Initial) {
            // Only a client that did not get our flight sends its first bytes again.
            let repeats = self.is_server() && !self.validated && offset == 0;
            return Ok(if repeats { Next::Send } else { Next::Wait });
        }
        if offset == ALERT {
            return Err(self.refused(bytes));
        }
        let repeats = offset < self.incoming[0].read();
        self.incoming[0].insert(offset, bytes).map_err(HandshakeError::Dropped)?;
        let next = self.advance()?;
        let again = repeats && offset == 0 && self.is_server() && !self.outgoing[0].is_empty();
        Ok(if again { Next::Send } else { next })
    }

    fn receive_sealed(&mut self, offset: u32, bytes: &[u8]) -> Result<Next, HandshakeError> {
        let Some(seal) = &mut self.seal else {
            // A client seals nothing at this level before it has our ServerHello.
            return match self.is_server() {
                true => Err(HandshakeError::Dropped("it arrived before the keys")),
                false => self.keep_for_keys(offset, bytes),
            };
        };
        let opened = seal.opener.open(offset, bytes).map_err(HandshakeError::Dropped)?;
        self.validated = true;
        match offset {
            ALERT => Err(self.refused(&opened)),
            COMPLETE if self.is_server() => Err(HandshakeError::Dropped("only a server confirms")),
            COMPLETE => {
                self.confirmed = self.reading.is_none();
                Ok(Next::Wait)
            }
            CHALLENGE if self.is_server() => {
                Err(HandshakeError::Dropped("only a server challenges"))
            }
            CHALLENGE => {
                self.challenge.get_or_insert(opened);
                Ok(Next::Wait)
            }
            TICKET => self.receive_ticket(&opened),
            _ => self.receive_opened(offset, &opened),
        }
    }

    /// Takes a ticket of the server, which it issues after it has verified us; once.
    fn receive_ticket(&mut self, message: &[u8]) -> Result<Next, HandshakeError> {
        if self.is_server() || self.reading.is_some() || self.has_ticket {
            return Err(HandshakeError::Dropped("no ticket is due"));
        }
        self.has_ticket = true;
        let taken = self.tls.read_hs(message);
        taken.map(|()| Next::Wait).map_err(|_| HandshakeError::Dropped("it has no ticket"))
    }

    /// Takes authentic bytes of the level Handshake. Without bytes the client only asks for a
    /// repetition.
    fn receive_opened(&mut self, offset: u32, bytes: &[u8]) -> Result<Next, HandshakeError> {
        let repeats = self.is_server() && offset == 0;
        if self.reading.is_none() {
            self.confirm |= repeats;
            return Ok(if repeats { Next::Send } else { Next::Wait });
        }
        let repeats = repeats && (bytes.is_empty() || self.incoming[1].read() > 0);
        self.incoming[1].insert(offset, bytes).map_err(HandshakeError::Dropped)?;
        let next = self.advance()?;
        Ok(if repeats { Next::Send } else { next })
    }

    /// Passes the bytes that are in order to TLS.
    fn advance(&mut self) -> Result<Next, HandshakeError> {
        let mut next = Next::Wait;
        while let Some(level) = self.reading
            && let Some(bytes) = self.incoming[level as usize].next()
        {
            if let Err(error) = self.tls.read_hs(&bytes) {
                return Err(self.fail(error));
            }
            if self.produce() {
                next = Next::Send;
            }
            if level == Level::Initial && self.reading == Some(Level::Handshake) {
                match self.is_server() {
                    true => self.accept_early_data(),
                    false => self.open_kept()?,
                }
            }
            if !self.tls.is_handshaking() {
                self.theirs = self.tls.quic_transport_parameters().and_then(key_id);
                if self.theirs.is_none() {
                    return Err(self.fail(PeerMisbehaved::MissingQuicTransportParameters.into()));
                }
                self.reading = None;
                self.confirm = self.is_server();
                next = Next::Send;
            }
        }
        Ok(next)
    }

    /// Fragments that were waiting for the keys. Forged ones among them are dropped.
    fn open_kept(&mut self) -> Result<(), HandshakeError> {
        for (offset, bytes) in std::mem::take(&mut self.before_keys) {
            let Some(seal) = &mut self.seal else { break };
            let Ok(opened) = seal.opener.open(offset, &bytes) else { continue };
            self.validated = true;
            match offset {
                ALERT => return Err(self.refused(&opened)),
                COMPLETE | TICKET => {}
                CHALLENGE => drop(self.challenge.get_or_insert(opened)),
                _ => drop(self.incoming[1].insert(offset, &opened)),
            }
        }
        Ok(())
    }

    /// Takes what TLS has to say; whether there was anything.
    fn produce(&mut self) -> bool {
        let mut produced = false;
        loop {
            let level = if self.seal.is_some() { Level::Handshake } else { Level::Initial };
            // After the client's last message a server only has a ticket to send.
            let bytes = match self.is_server() && !self.tls.is_handshaking() {
                true => &mut self.ticket,
                false => &mut self.outgoing[level as usize],
            };
            let before = bytes.len();
            let change = self.tls.write_hs(bytes);
            produced |= bytes.len() > before;
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.seal = Some(Box::new(Seal::new(keys)));
                    self.reading = Some(Level::Handshake);
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    let (local, remote) = (keys.local.packet, keys.remote.packet);
                    self.traffic = Some((PacketKeySet { local, remote }, next));
                    return produced;
                }
                None => return produced,
            }
        }
    }

    /// Our flight in fragments of at most `room` bytes (at least 64), as they travel: everything
    /// that the peer may not have. Empty if there is nothing to send.
    pub(crate) fn flight(&mut self, room: usize) -> Vec<(Level, u32, Vec<u8>)> {
        let room = room.max(ROOM_MIN);
        let mut flight = Vec::new();
        if let Some(alert) = self.alert {
            self.push_sealed(ALERT, &[alert], &mut flight);
            return flight;
        }
        if self.failed.is_some() || self.confirmed {
            return flight;
        }
        let complete = self.reading.is_none();
        if self.is_server() && complete {
            if std::mem::take(&mut self.confirm) {
                let ticket = std::mem::take(&mut self.ticket);
                if !ticket.is_empty() && ticket.len() + OVERHEAD <= room {
                    self.push_sealed(TICKET, &ticket, &mut flight);
                }
                self.ticket = ticket;
                self.push_sealed(COMPLETE, &[], &mut flight);
            }
            return flight;
        }
        if !self.is_server() && self.seal.is_some() && !complete {
            // A part of the server's flight is missing: ask for it.
            self.push_sealed(0, &[], &mut flight);
            return flight;
        }
        // A peer that has the handshake keys has everything of the level before.
        if self.seal.is_none() || !self.validated {
            for (piece, offset) in self.outgoing[0].chunks(room).zip((0..).step_by(room)) {
                flight.push((Level::Initial, offset, piece.to_vec()));
            }
        }
        let bytes = std::mem::take(&mut self.outgoing[1]);
        let room = room - OVERHEAD;
        for (piece, offset) in bytes.chunks(room).zip((0..).step_by(room)) {
            self.push_sealed(offset, piece, &mut flight);
        }
        self.outgoing[1] = bytes;
        if self.is_server()
            && let Some(challenge) = self.challenge.clone().filter(|_| self.seal.is_some())
        {
            self.push_sealed(CHALLENGE, &challenge, &mut flight);
        }
        flight
    }

    /// Adds a fragment of the level Handshake; an alert also without keys.
    pub(super) fn push_sealed(
        &mut self,
        offset: u32,
        bytes: &[u8],
        flight: &mut Vec<(Level, u32, Vec<u8>)>,
    ) {
        match &mut self.seal {
            Some(seal) => {
                let sealed = seal.sealer.seal(offset, bytes);
                flight.extend(sealed.map(|sealed| (Level::Handshake, offset, sealed)));
            }
            None => flight.push((Level::Initial, offset, bytes.to_vec())),
        }
    }

    /// The session, once: when the client has verified the server, or the server the client.
    pub(crate) fn session(&mut self) -> Option<SecureSession> {
        if self.reading.is_some() || self.failed.is_some() || self.tls.alpn_protocol() != Some(ALPN)
        {
            return None;
        }
        self.take_session()
    }

    /// The session, once, as soon as its keys exist: a server may seal by it before it has
    /// verified the client, but must not open.
    pub(super) fn take_session(&mut self) -> Option<SecureSession> {
        let (keys, secrets) = self.traffic.take()?;
        let identity = match self.tls.peer_certificates().and_then(<[_]>::first) {
            _ if self.cluster => PeerIdentity::Cluster,
            Some(leaf) => PeerIdentity::Certificate(leaf.as_ref().into()),
            None => PeerIdentity::Anonymous,
        };
        Some(SecureSession::new(identity, !self.is_server(), keys, secrets))
    }

    /// The key id under which the peer wants to receive, when there is a session.
    pub(crate) fn peer_key(&self) -> Option<u32> {
        self.theirs
    }

    /// Whether the peer receives at its address: it has sealed a fragment with keys that it could
    /// only derive from our flight.
    pub(crate) fn is_address_validated(&self) -> bool {
        self.validated
    }

    /// Whether nothing is left to send: as client, the server has confirmed; as server, the client
    /// is verified.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed || self.is_server() && self.reading.is_none()
    }

    /// Whether a complete handshake resumed an older session with the same peer, whose identity it
    /// has.
    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(*self.tls, Connection::Server(_))
    }

    /// Ends the handshake because TLS refused the peer's bytes.
    fn fail(&mut self, error: Error) -> HandshakeError {
        let alert = self.tls.alert().unwrap_or(AlertDescription::InternalError);
        self.alert = Some(alert.into());
        let failed = match error {
            Error::InvalidCertificate(_) if self.cluster => HandshakeError::WrongKey,
            Error::InvalidCertificate(why) => HandshakeError::CertificateRefused(why.to_string()),
            Error::NoCertificatesPresented => {
                HandshakeError::CertificateRefused("there is none".to_owned())
            }
            Error::PeerIncompatible(why) => HandshakeError::Incompatible(format!("{why:?}")),
            other => HandshakeError::Protocol(other.to_string()),
        };
        self.failed.insert(failed).clone()
    }

    /// Ends the handshake because the peer sent an alert.
    fn refused(&mut self, bytes: &[u8]) -> HandshakeError {
        let &[code] = bytes else { return HandshakeError::Dropped("an alert has one byte") };
        let alert = AlertDescription::from(code);
        // The alerts of `Pins` and of a signature by another key.
        let key = matches!(alert, AlertDescription::AccessDenied | AlertDescription::DecryptError);
        let failed = match self.cluster && key {
            true => HandshakeError::KeyRefused,
            false => HandshakeError::RefusedByPeer { alert: code, name: format!("{alert:?}") },
        };
        self.failed.insert(failed).clone()
    }
}

/// Our transport parameters: a key id.
fn parameters(key: u32) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

/// The key id in transport parameters. 0 means plaintext, so it is none.
pub(super) fn key_id(parameters: &[u8]) -> Option<u32> {
    let key = u32::from_be_bytes(parameters.try_into().ok()?);
    (key != 0).then_some(key)
}
