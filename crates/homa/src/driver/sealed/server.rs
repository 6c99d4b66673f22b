//! Handshakes that others begin. The server only answers what it receives: the client repeats what
//! is lost.
//!
//! A flight waits for the engine's challenge (`challenge`), which is part of it.
//!
//! Before the address has answered, it gets at most three times the bytes that it sent, with
//! headers. Handshakes in progress are bounded, and the oldest ends for a new one.

use std::sync::Arc;

use homa_proto::LinkId;

use super::challenge::{Challenging, SentChallenge};
use super::frame::{FRONT, FULL};
use super::{HandshakeDatagram, HandshakeRefusal, Sealed, Way, code};
use crate::secure::{Fragment, Handshake, HandshakeError, Level, Next, PeerIdentity};

/// Most handshakes of others that are kept.
const ACCEPTING_MAX: usize = 1024;
/// UDP and IPv4 headers, bytes.
const HEADERS: usize = 28;
/// Bytes that an address may get for each byte from it.
const AMPLIFICATION: usize = 3;

/// A handshake of a client.
pub struct Accepting {
    pub(super) handshake: Handshake,
    pub(super) ours: u32,
    /// The client of early data that were accepted, as its ticket names it.
    pub(super) early: Option<Arc<PeerIdentity>>,
    /// It was verified since.
    pub(super) validated: bool,
    /// Bytes from the address and to it, with headers.
    received: usize,
    sent: usize,
    /// It is over, and only tells the client why.
    failed: bool,
    pub(super) challenging: Challenging,
}

impl Accepting {
    /// Bytes that the address may get, with headers.
    fn most(&self) -> usize {
        match self.handshake.is_address_validated() {
            true => usize::MAX,
            false => AMPLIFICATION * self.received,
        }
    }

    /// Early data of a client that is not verified were accepted.
    pub(super) fn is_unvalidated(&self) -> bool {
        self.early.is_some() && !self.validated
    }

    /// Takes room for datagrams of `len` bytes in all; false if the address may not get them.
    pub(super) fn take_room(&mut self, datagrams: usize, len: usize) -> bool {
        let sent = self.sent + len + datagrams * HEADERS;
        let fits = sent <= self.most();
        self.sent = if fits { sent } else { self.sent };
        fits
    }
}

impl Sealed {
    /// A part of a client's flight arrived.
    pub(super) fn accept(&mut self, way: Way, len: usize, frame: &HandshakeDatagram<'_>) {
        let &HandshakeDatagram::Flight { id, level, offset, bytes, cookie, .. } = frame else {
            return;
        };
        let name = (way, id);
        if !self.accepting.contains_key(&name)
            && (level != Level::Initial || !self.may_begin(name, cookie, len) || !self.admit(name))
        {
            self.counts.handshake_fragments_dropped += 1;
            return;
        }
        let Some(accepting) = self.accepting.get_mut(&name) else { return };
        accepting.received += len + HEADERS;
        let received = accepting.handshake.receive(Fragment { level, offset, bytes });
        self.accept_early(name);
        let Some(accepting) = self.accepting.get_mut(&name) else { return };
        let session = accepting.handshake.session();
        let keys = (accepting.ours, accepting.handshake.peer_key().unwrap_or(0));
        let resumed = session.is_some() && accepting.handshake.is_resumed();
        let challenged = session.as_ref().and_then(|_| accepting.challenging.of_client(&way));
        if let Some(session) = session
            && !self.complete(way, keys, session, None)
        {
            return self.refuse(name);
        }
        self.counts.handshakes_resumed += u64::from(resumed);
        self.challenged.extend(challenged);
        match received {
            Ok(Next::Send) => self.answer(name),
            Ok(Next::Wait) => {}
            // The answer is an alert, and the client may ask for it again.
            Err(error) if error.is_final() => {
                let accepting = self.accepting.get_mut(&name);
                if accepting.is_some_and(|of| !std::mem::replace(&mut of.failed, true)) {
                    self.count_failure(error);
                }
                self.send_answer(name);
            }
            Err(_) => self.counts.handshake_fragments_dropped += 1,
        }
    }

    /// Ends a handshake with a client that is verified, but not admitted.
    pub(super) fn refuse(&mut self, name: (Way, u64)) {
        let (way, id) = name;
        self.counts.handshakes_refused += 1;
        let frame = HandshakeDatagram::Refused { id, code: code::NOT_ADMITTED };
        self.push_frame(way, LinkId::default(), &frame, 0);
        self.end_accepting(name);
    }

    /// Begins to accept a handshake; false if that is impossible.
    fn admit(&mut self, name: (Way, u64)) -> bool {
        let ours = self.sessions.reserve();
        let Ok(mut handshake) = Handshake::server(&self.keys, ours) else {
            self.sessions.release(ours);
            return false;
        };
        if !self.takes_early_data(&name.0) {
            handshake.reject_early_data();
        }
        // It also holds the names of handshakes that have ended.
        while self.accepted_first.len() >= ACCEPTING_MAX
            && let Some(oldest) = self.accepted_first.pop_front()
        {
            // Those with early data end by their timer.
            if !self.accepting.get(&oldest).is_some_and(Accepting::is_unvalidated) {
                self.end_accepting(oldest);
            }
        }
        let accepting = Accepting {
            handshake,
            ours,
            early: None,
            validated: false,
            received: 0,
            sent: 0,
            failed: false,
            challenging: Challenging::Not,
        };
        self.accepting.insert(name, accepting);
        self.accepted_first.push_back(name);
        true
    }

    /// Sends our flight, the first time as soon as there is a challenge for it.
    fn answer(&mut self, name: (Way, u64)) {
        let Some(accepting) = self.accepting.get_mut(&name) else { return };
        match accepting.challenging {
            Challenging::Not => {
                accepting.challenging = Challenging::Waits;
                self.unchallenged.push(name);
            }
            Challenging::Waits => {}
            Challenging::Done(_) => self.send_answer(name),
        }
    }

    /// Sends the flights that waited for a challenge.
    pub(super) fn challenge_clients(&mut self) {
        for name in std::mem::take(&mut self.unchallenged) {
            let Some(accepting) = self.accepting.get_mut(&name) else { continue };
            accepting.challenging = Challenging::Done(self.challenge.map(|(boot, remembered)| {
                let sent = SentChallenge::new(boot);
                accepting.handshake.set_challenge(sent.bytes(remembered));
                sent
            }));
            self.send_answer(name);
        }
    }

    /// Sends as much of our flight as the address may get.
    fn send_answer(&mut self, name: (Way, u64)) {
        let (way, id) = name;
        let Some(accepting) = self.accepting.get_mut(&name) else { return };
        let parts = accepting.handshake.flight(FULL - FRONT);
        let (ours, mut sent, most) = (accepting.ours, accepting.sent, accepting.most());
        for part in &parts {
            if sent + FRONT + part.2.len() + HEADERS > most {
                break;
            }
            let frame = HandshakeDatagram::flight(false, id, ours, part);
            sent += self.push_frame(way, LinkId::default(), &frame, 0) + HEADERS;
        }
        if let Some(accepting) = self.accepting.get_mut(&name) {
            accepting.sent = sent;
        }
    }

    fn count_failure(&mut self, error: HandshakeError) {
        match HandshakeRefusal::from(error) {
            HandshakeRefusal::OtherKey => self.counts.handshakes_refused += 1,
            _ => self.counts.handshakes_failed += 1,
        }
    }

    pub(super) fn end_accepting(&mut self, name: (Way, u64)) {
        if let Some(accepting) = self.accepting.remove(&name) {
            self.sessions.release(accepting.ours);
        }
    }
}
