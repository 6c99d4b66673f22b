//! Handshakes that we begin, because the engine sends to a peer without a session.
//!
//! The client's timer drives a handshake: its flight is repeated, less and less often, until the
//! server confirms. A handshake that fails is begun again twice, because any host on the path can
//! make one fail by changing its first bytes. Then everything that waits for the peer is rejected,
//! and for a second everything that is sent to it.

use homa_proto::{Duration, LinkId, Quoted};

use super::frame::{FRONT, FULL, SMALL};
use super::{
    COOLING, Gather, HandshakeDatagram, Outbox, Rejection, Sealed, Timer, Train, Unfinished, Way,
    code,
};
use crate::config::random;
use crate::error::HandshakeRefusal;
use crate::secure::{COOKIE, Fragment, Handshake, HandshakeError, Level, Next};

/// Most handshakes that we have begun.
const OPENING_MAX: usize = 4096;
/// When a flight is repeated first, and at least how often it is repeated.
const REPEAT_MIN: Duration = Duration::millis(20);
const REPEAT_MAX: Duration = Duration::secs(1);
/// How often a flight is sent; the last is sent some 5 s after the first.
const TIMES: u32 = 10;
/// After this many, a flight's datagrams are smaller, because the path may take no larger ones.
const LARGE_TIMES: u32 = 3;
/// How often a handshake is tried.
const TRIES: u32 = 3;
/// Most datagrams that are remembered until the server confirms.
const SENT_MAX: usize = 256;

/// A session that we are opening.
pub struct Opening {
    /// `None` between two tries.
    pub(super) attempt: Option<Attempt>,
    pub(super) link: LinkId,
    failures: u32,
    /// Packets that were sent by the session before the server confirmed it.
    sent: Vec<Quoted>,
}

impl Opening {
    /// The server has accepted early data, and its ticket comes with the end of the handshake.
    /// Without early data the ticket comes before the first response.
    pub(super) fn awaits_ticket(&self) -> bool {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.complete);
        attempt.is_some_and(|attempt| attempt.handshake.is_early_data_accepted())
    }
}

/// One handshake.
pub(super) struct Attempt {
    pub(super) id: u64,
    pub(super) handshake: Handshake,
    pub(super) ours: u32,
    complete: bool,
    /// The early data that were sent, as they travel.
    pub(super) early: Vec<(Level, u32, Vec<u8>)>,
    /// The cookie of the server, which our flight repeats.
    cookie: Option<[u8; COOKIE]>,
}

impl From<HandshakeError> for HandshakeRefusal {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::WrongKey | HandshakeError::KeyRefused => Self::OtherKey,
            other => Self::Other(other.to_string().into()),
        }
    }
}

impl Sealed {
    /// Keeps a train until there is a session.
    pub(super) fn hold(&mut self, way: Way, train: &Train, from: &Outbox, messages: &dyn Gather) {
        self.counts.datagrams_without_session += self.waiting.push(way, train, from, messages);
        match self.cooling.get(&way) {
            Some(Some(why)) => self.reject(way, why.clone(), Vec::new()),
            _ => {
                self.connect(way, train.link);
                self.send_early(way);
            }
        }
    }

    /// Begins a handshake, unless there is one.
    pub(super) fn connect(&mut self, way: Way, link: LinkId) {
        if self.opening.contains_key(&way) {
            return;
        }
        if self.opening.len() >= OPENING_MAX {
            return self.drop_waiting(way);
        }
        let opening = Opening { attempt: None, link, failures: 0, sent: Vec::new() };
        self.opening.insert(way, opening);
        self.begin(way);
    }

    /// Begins a try.
    pub(super) fn begin(&mut self, way: Way) {
        let Some(opening) = self.opening.get_mut(&way).filter(|o| o.attempt.is_none()) else {
            return;
        };
        let ours = self.sessions.reserve();
        match Handshake::client(&self.keys, way.to, ours) {
            Ok(handshake) => {
                let id = random();
                let (early, cookie) = (Vec::new(), None);
                let attempt = Attempt { id, handshake, ours, complete: false, early, cookie };
                opening.attempt = Some(attempt);
                self.by_id.insert(id, way);
                self.send_flight(way, FULL);
                self.timers.start(REPEAT_MIN, Timer::Repeat(id, 1));
            }
            Err(error) => {
                self.sessions.release(ours);
                self.give_up(way, error.into());
            }
        }
    }

    fn send_flight(&mut self, way: Way, full: usize) {
        let Some(opening) = self.opening.get_mut(&way) else { return };
        let (link, Some(attempt)) = (opening.link, &mut opening.attempt) else { return };
        let (id, ours, cookie) = (attempt.id, attempt.ours, attempt.cookie);
        let cookie = cookie.as_ref().map_or(&[][..], |cookie| cookie);
        for part in attempt.handshake.flight(full - FRONT - cookie.len()) {
            let frame = HandshakeDatagram::flight(true, id, ours, &part).with_cookie(cookie);
            // The server may send three times as much before the address has answered.
            let first = part.0 == Level::Initial;
            self.push_frame(way, link, &frame, if first { full } else { 0 });
        }
        self.repeat_early(way);
    }

    /// Repeats the flight of a handshake that was sent `times` times.
    pub(super) fn repeat(&mut self, id: u64, times: u32) {
        let Some(&way) = self.by_id.get(&id) else { return };
        if times >= TIMES {
            self.counts.handshakes_unanswered += 1;
            self.end_attempt(way);
            self.opening.remove(&way);
            return self.drop_waiting(way);
        }
        self.send_flight(way, if times >= LARGE_TIMES { SMALL } else { FULL });
        let delay = Duration((REPEAT_MIN.0 << times).min(REPEAT_MAX.0));
        self.timers.start(delay, Timer::Repeat(id, times + 1));
    }

    /// Our handshake with this id, if it is with the sender.
    fn attempt(&mut self, from: Way, id: u64) -> Option<(Way, &mut Attempt)> {
        let way = *self.by_id.get(&id).filter(|way| way.is_from((from.to, from.socket)))?;
        let attempt = self.opening.get_mut(&way)?.attempt.as_mut()?;
        (attempt.id == id).then_some((way, attempt))
    }

    /// A part of a server's flight arrived.
    pub(super) fn answered(&mut self, from: Way, frame: &HandshakeDatagram<'_>) {
        let &HandshakeDatagram::Flight { id, level, offset, bytes, .. } = frame else {
            return;
        };
        let Some((way, attempt)) = self.attempt(from, id) else {
            self.counts.handshake_fragments_dropped += 1;
            return;
        };
        let received = attempt.handshake.receive(Fragment { level, offset, bytes });
        let confirmed = attempt.handshake.is_confirmed();
        let keys = (attempt.ours, attempt.handshake.peer_key().unwrap_or(0));
        let session = if attempt.complete { None } else { attempt.handshake.session() };
        attempt.complete |= session.is_some();
        let challenge = attempt.handshake.take_challenge();
        let resumed = session.is_some() && attempt.handshake.is_resumed();
        let early = session.is_some() && attempt.handshake.is_early_data_accepted();
        match received {
            Ok(Next::Send) => self.send_flight(way, FULL),
            Ok(Next::Wait) => {}
            Err(error) if error.is_final() => {
                self.send_flight(way, FULL);
                return self.fail(way, error.into());
            }
            Err(_) => self.counts.handshake_fragments_dropped += 1,
        }
        if let Some(session) = session {
            self.settle_early(&way, early);
            let unfinished = if early { Unfinished::Complete(id) } else { Unfinished::Confirm(id) };
            if !self.complete(way, keys, session, Some(unfinished)) {
                return self.give_up(way, HandshakeRefusal::NotAdmitted);
            }
        }
        self.counts.handshakes_resumed += u64::from(resumed);
        self.counts.handshakes_early += u64::from(early);
        if let Some(challenge) = challenge {
            self.deliver_challenge(way, &challenge);
        }
        if confirmed {
            self.sessions.confirmed(&way, id);
            self.confirm(id);
        }
    }

    /// A server that is flooded wants our flight again, with a cookie. We answer once at once, and
    /// later with the timer.
    pub(super) fn retry(&mut self, from: Way, id: u64, cookie: &[u8]) {
        if let Some((way, attempt)) = self.attempt(from, id)
            && let Ok(cookie) = cookie.try_into()
            && attempt.cookie.replace(cookie).is_none()
        {
            self.send_flight(way, FULL);
        }
    }

    /// The server has confirmed a handshake, or sent a datagram by its session.
    pub(super) fn confirm(&mut self, id: u64) {
        if let Some(way) = self.by_id.remove(&id) {
            self.opening.remove(&way);
        }
    }

    /// Remembers what was sent by a session that is not confirmed.
    pub(super) fn note_unconfirmed(&mut self, way: &Way, sent: impl Iterator<Item = Quoted>) {
        if let Some(opening) = self.opening.get_mut(way) {
            let room = SENT_MAX.saturating_sub(opening.sent.len());
            opening.sent.extend(sent.take(room));
        }
    }

    /// A peer refuses our handshake, without cryptographic proof: only a handshake in progress can
    /// end.
    pub(super) fn refused(&mut self, from: Way, id: u64, code: u8) {
        let Some((way, _)) = self.attempt(from, id) else { return };
        self.fail(
            way,
            match code {
                code::NO_KEYS => HandshakeRefusal::NoKeys,
                code::NOT_ADMITTED => HandshakeRefusal::NotAdmitted,
                _ => HandshakeRefusal::Other(
                    "it refused the handshake; check that it is a Homa engine with keys".into(),
                ),
            },
        );
    }

    /// A peer does not know the key of a datagram, perhaps because it restarted. Its sessions stay
    /// until there is a newer one, because any host on the path can send this.
    pub(super) fn renew(&mut self, from: Way, key: u32) {
        for way in [from, from.without_source()] {
            let free = !self.opening.contains_key(&way) && !self.cooling.contains_key(&way);
            if free && self.sessions.doubt(&way, key) {
                self.cooling.insert(way, None);
                self.timers.start(COOLING, Timer::Cool(way));
                return self.connect(way, LinkId::default());
            }
        }
    }

    /// A try failed.
    fn fail(&mut self, way: Way, why: HandshakeRefusal) {
        self.end_attempt(way);
        let Some(opening) = self.opening.get_mut(&way) else { return };
        opening.failures += 1;
        let failures = opening.failures;
        match failures < TRIES {
            true => self.timers.start(Duration(REPEAT_MIN.0 << failures), Timer::Begin(way)),
            false => self.give_up(way, why),
        }
    }

    /// Ends a try. A session that it has made, and that was not confirmed, ends too.
    fn end_attempt(&mut self, way: Way) {
        let opening = self.opening.get_mut(&way);
        let Some(attempt) = opening.and_then(|opening| opening.attempt.take()) else { return };
        self.by_id.remove(&attempt.id);
        self.sessions.release(attempt.ours);
        let ours = |of: Unfinished| of.is_ours(attempt.id);
        self.sessions.end(&way, |entry| entry.unfinished.is_some_and(ours));
        self.settle_early(&way, false);
    }

    /// No session can be made.
    fn give_up(&mut self, way: Way, why: HandshakeRefusal) {
        match why {
            HandshakeRefusal::Other(_) => self.counts.handshakes_failed += 1,
            _ => self.counts.handshakes_refused += 1,
        }
        self.end_attempt(way);
        let sent = self.opening.remove(&way).map(|opening| opening.sent).unwrap_or_default();
        self.cooling.insert(way, Some(why.clone()));
        self.timers.start(COOLING, Timer::Cool(way));
        self.reject(way, why, sent);
    }

    /// A peer may be asked again. If it refused us, and did not show since that it has the session
    /// that we have, that session is gone.
    pub(super) fn cool(&mut self, way: Way) {
        if let Some(Some(_)) = self.cooling.remove(&way) {
            self.sessions.end(&way, |entry| !entry.heard);
        }
    }

    /// Rejects what waits for a peer, and what was sent to it in vain.
    fn reject(&mut self, way: Way, why: HandshakeRefusal, sent: Vec<Quoted>) {
        let keys: Box<str> = self.keys.to_string().into();
        let waiting = self.waiting.take(&way);
        let quoted = sent.into_iter().chain(waiting.iter().flat_map(|waiting| waiting.quoted()));
        let reject =
            |quoted| Rejection { to: way.to, quoted, keys: keys.clone(), why: why.clone() };
        self.rejections.extend(quoted.map(reject));
    }

    pub(super) fn drop_waiting(&mut self, way: Way) {
        let dropped = self.waiting.take(&way);
        let datagrams = dropped.iter().map(|waiting| waiting.train.datagrams() as u64);
        self.counts.datagrams_without_session += datagrams.sum::<u64>();
    }
}
