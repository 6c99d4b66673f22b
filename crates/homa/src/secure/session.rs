//! Sealed datagrams of one session: AEAD, packet numbers, the replay window and key updates, as in
//! QUIC (RFC 9001 §5 and §6), without header protection.
//!
//! Both directions change their keys together. The client of the handshake begins an update, when
//! either direction has used half of what the cipher allows, and only after the server has shown
//! that it has the current keys. The server follows when it opens the first datagram of the new
//! phase. So neither end is ever more than one phase ahead, without acknowledgements.
//!
//! Invariants: a packet number is sealed once; a datagram is opened once; keys never seal more than
//! the cipher's confidentiality limit, and no datagram is opened after as many forged ones as its
//! integrity limit.
//!
//! Left out: when a session ends, and a new handshake, which are the caller's.

use rustls::quic::{PacketKey, PacketKeySet, Secrets};

use super::window::{NUMBERS, NumberWindow};
use super::{PeerIdentity, SealError, TAG, UnsealError};

/// How many datagrams a set of keys may seal, and fail to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLimits {
    /// Datagrams of either direction after which keys are updated.
    pub(super) update: u64,
    /// Most sealed datagrams.
    pub(super) sealed: u64,
    /// Most datagrams that could not be opened, in the whole session.
    pub(super) forged: u64,
}

impl KeyLimits {
    /// The limits of a cipher (RFC 9001 §6.6): 2^23 datagrams for AES-GCM, which at two million a
    /// second takes four seconds.
    pub(super) fn of(key: &dyn PacketKey) -> Self {
        let sealed = key.confidentiality_limit().min(NUMBERS);
        Self { update: sealed / 2, sealed, forged: key.integrity_limit() }
    }
}

/// Keys that two engines have agreed on.
pub(crate) struct SecureSession {
    identity: PeerIdentity,
    /// Derives the keys after `next`.
    secrets: Secrets,
    current: PacketKeySet,
    next: PacketKeySet,
    /// Opens datagrams that were overtaken by an update.
    previous: Option<Box<dyn PacketKey>>,
    /// The phase bit of the current keys.
    phase: bool,
    /// Whether this end begins updates: it was the client.
    begins: bool,
    limits: KeyLimits,
    /// The next packet number.
    number: u64,
    /// The number that was given out and not sealed yet.
    given: Option<u64>,
    /// Datagrams sealed with the current keys.
    sealed: u64,
    /// Datagrams opened with the current keys, and the smallest number among them.
    opened: u64,
    smallest: u64,
    window: Box<NumberWindow>,
    /// Datagrams that could not be opened.
    forged: u64,
}

impl SecureSession {
    /// A session of the client (`begins`) or the server of a handshake.
    pub(super) fn new(
        identity: PeerIdentity,
        begins: bool,
        current: PacketKeySet,
        mut secrets: Secrets,
    ) -> Self {
        let next = secrets.next_packet_keys();
        let limits = KeyLimits::of(&*current.local);
        Self {
            identity,
            secrets,
            current,
            next,
            previous: None,
            phase: false,
            begins,
            limits,
            number: 0,
            given: None,
            sealed: 0,
            opened: 0,
            smallest: u64::MAX,
            window: Box::new(NumberWindow::new()),
            forged: 0,
        }
    }

    /// The peer, as verified by the handshake.
    pub(crate) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// The number of the next datagram and its phase bit, both for its header.
    ///
    /// # Errors
    /// [`SealError::Exhausted`]: a new handshake is needed.
    pub(crate) fn next(&mut self) -> Result<(u64, bool), SealError> {
        let used = self.sealed.max(self.opened) >= self.limits.update;
        if self.begins && used && self.opened > 0 {
            self.update();
        }
        if self.sealed >= self.limits.sealed || self.number >= NUMBERS {
            return Err(SealError::Exhausted);
        }
        let number = self.number;
        self.number += 1;
        self.given = Some(number);
        Ok((number, self.phase))
    }

    /// Seals a datagram in place, with the number that [`Self::next`] gave out last: `aad` is
    /// authenticated, and `payload`, whose last [`TAG`] bytes are free, is encrypted.
    ///
    /// # Errors
    /// The number is another one or was sealed already, or the buffer has no room for the tag.
    /// The datagram must then not be sent.
    pub(crate) fn seal(
        &mut self,
        number: u64,
        aad: &[u8],
        payload: &mut [u8],
    ) -> Result<(), SealError> {
        if self.given.take() != Some(number) {
            return Err(SealError::Number);
        }
        let length = payload.len().checked_sub(TAG).ok_or(SealError::Length)?;
        let (text, tag) = payload.split_at_mut(length);
        self.sealed += 1;
        let sealed = self.current.local.encrypt_in_place(number, aad, text);
        tag.copy_from_slice(sealed.map_err(|_| SealError::Length)?.as_ref());
        Ok(())
    }

    /// Opens a datagram in place; returns the length of its plaintext, the beginning of `payload`.
    ///
    /// # Errors
    /// The datagram has to be dropped. Then the contents of `payload` are undefined.
    pub(crate) fn open(
        &mut self,
        number: u64,
        phase: bool,
        aad: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, UnsealError> {
        if self.forged >= self.limits.forged {
            return Err(UnsealError::Exhausted);
        }
        self.window.check(number)?;
        // At the server, another phase bit means the keys before if the datagram was sent before
        // the first one of the current keys, and otherwise the keys after.
        let after = self.opened == 0 || number > self.smallest;
        let of_next = phase != self.phase && !self.begins && after;
        let key = match (phase == self.phase, of_next) {
            (true, _) => Some(&self.current.remote),
            (false, true) => Some(&self.next.remote),
            (false, false) => self.previous.as_ref(),
        };
        let opened = key.map(|key| key.decrypt_in_place(number, aad, payload));
        let Some(Ok(text)) = opened else {
            self.forged += 1;
            return Err(UnsealError::Forged);
        };
        let length = text.len();
        self.window.insert(number);
        if of_next {
            self.update();
        }
        if phase == self.phase {
            self.opened += 1;
            self.smallest = self.smallest.min(number);
        }
        Ok(length)
    }

    /// The next keys become the current ones.
    fn update(&mut self) {
        let after = self.secrets.next_packet_keys();
        let current = std::mem::replace(&mut self.next, after);
        let before = std::mem::replace(&mut self.current, current);
        self.previous = Some(before.remote);
        self.phase = !self.phase;
        self.sealed = 0;
        (self.opened, self.smallest) = (0, u64::MAX);
        // A number given out with the old phase bit must not be sealed with the new keys.
        self.given = None;
    }

    #[cfg(test)]
    pub(super) fn limits(&self) -> KeyLimits {
        self.limits
    }

    /// Other limits, so that a test reaches them.
    #[cfg(test)]
    pub(super) fn set_limits(&mut self, limits: KeyLimits) {
        self.limits = limits;
    }
}
