//! Early data (0-RTT, RFC 8446 §2.3): datagrams that a client with a ticket sends beside its
//! ClientHello, under keys of the ticket.
//!
//! Invariants: the server accepts early data at most once for each ticket, because it takes the
//! ticket out of its memory (`keys.rs`). Only a client seals with these keys, and only before it
//! has the server's hello. A fragment is opened at most once. Bytes that were not accepted are
//! never opened.
//!
//! Left out: what the datagrams may contain, which both ends of the layer above decide.

use rustls::quic::Connection;

use super::handshake::{Handshake, Level, Next, key_id};
use super::seal::{Opener, Sealer};
use super::stream::LENGTH_MAX;
use super::{HandshakeError, SecureSession};

/// Most sealed fragments that are kept until the keys to open them exist, and most datagrams of
/// early data that a client sends in one handshake.
pub(crate) const EARLY_MAX: usize = 16;

/// Bytes that sealing adds to a datagram of early data.
pub(crate) const EARLY_OVERHEAD: usize = super::seal::OVERHEAD;

/// The early data of a handshake.
#[derive(Default)]
pub(super) struct EarlyData {
    /// As client: the key, while it may be used.
    sealer: Option<Sealer>,
    /// As server: its credentials allow early data.
    allowed: bool,
    /// As server: the key, if early data were accepted.
    opener: Option<Opener>,
    /// As server: datagrams that were opened.
    opened: Vec<Vec<u8>>,
}

impl Handshake {
    /// As client: takes the keys, if the ticket has any.
    pub(super) fn offer_early_data(&mut self) {
        let keys = self.tls.zero_rtt_keys();
        self.early.sealer = keys.map(|keys| Sealer::new(keys.packet));
    }

    /// As server: keeps early data that arrive before the keys.
    pub(super) fn await_early_data(&mut self) {
        self.early.allowed = true;
    }

    /// As server: takes the keys if TLS accepts early data, and opens what arrived before.
    pub(super) fn accept_early_data(&mut self) {
        let keys = self.tls.zero_rtt_keys();
        self.early.opener = keys.map(|keys| Opener::new(keys.packet));
        for (offset, bytes) in std::mem::take(&mut self.before_keys) {
            let _ = self.receive_early(offset, &bytes);
        }
    }

    /// As client: the ticket allows early data, and the server has not answered.
    pub(crate) fn may_send_early(&self) -> bool {
        self.early.sealer.is_some() && self.seal.is_none()
    }

    /// As client: a datagram as early data, as it travels; if [`Self::may_send_early`].
    pub(crate) fn seal_early(&mut self, datagram: &[u8]) -> Option<(Level, u32, Vec<u8>)> {
        let sealer = self.early.sealer.as_mut().filter(|_| self.seal.is_none());
        Some((Level::Early, 0, sealer?.seal(0, datagram)?))
    }

    /// As client with a session: the server accepted the early data.
    pub(crate) fn is_early_data_accepted(&self) -> bool {
        matches!(&*self.tls, Connection::Client(tls) if tls.is_early_data_accepted())
    }

    /// As server, before the first fragment: accepts no early data.
    pub(crate) fn reject_early_data(&mut self) {
        if let Connection::Server(tls) = &mut *self.tls {
            tls.reject_early_data();
        }
    }

    /// As server: the session and the client's key id, once, if early data were accepted. The
    /// client is not verified: seal by the session, but open nothing before
    /// [`Self::is_confirmed`].
    pub(crate) fn early_session(&mut self) -> Option<(SecureSession, u32)> {
        self.early.opener.as_ref()?;
        // The ticket's secret authenticates the whole ClientHello.
        let theirs = self.tls.quic_transport_parameters().and_then(key_id)?;
        Some((self.take_session()?, theirs))
    }

    /// As server: opens no more early data.
    pub(crate) fn close_early_data(&mut self) {
        self.early.opener = None;
    }

    /// As server: the datagrams of the client's early data that were opened since the last call.
    pub(crate) fn take_early_data(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.early.opened)
    }

    /// Keeps a sealed fragment until there are keys.
    pub(super) fn keep_for_keys(
        &mut self,
        offset: u32,
        bytes: &[u8],
    ) -> Result<Next, HandshakeError> {
        let kept: usize = self.before_keys.iter().map(|(_, bytes)| bytes.len()).sum();
        let full = self.before_keys.len() == EARLY_MAX || kept + bytes.len() > LENGTH_MAX as usize;
        if full {
            return Err(HandshakeError::Dropped("it arrived before the keys"));
        }
        self.before_keys.push((offset, bytes.to_vec()));
        Ok(Next::Wait)
    }

    pub(super) fn receive_early(
        &mut self,
        offset: u32,
        bytes: &[u8],
    ) -> Result<Next, HandshakeError> {
        if !self.is_server() {
            return Err(HandshakeError::Dropped("only a client sends early data"));
        }
        match (&mut self.early.opener, &self.seal) {
            (Some(opener), _) => {
                let opened = opener.open(offset, bytes).map_err(HandshakeError::Dropped)?;
                self.early.opened.push(opened);
                Ok(Next::Wait)
            }
            (None, None) if self.early.allowed => self.keep_for_keys(offset, bytes),
            (None, _) => Err(HandshakeError::Dropped("no early data are accepted")),
        }
    }
}
