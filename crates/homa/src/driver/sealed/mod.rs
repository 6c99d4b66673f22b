//! Encryption: a driver around a driver of datagrams (`docs/udp-encapsulation.md`, "Encryption").
//!
//! What the engine sends is encrypted with the session of its peer, and what arrives is decrypted
//! (`packets`), so that neither the engine nor the protocol sees a key. If there is no session,
//! trains wait (`waiting`) while a handshake makes one (`client`, `server`). Sessions are made
//! between two engines, not for calls, and serve the calls of both directions.
//!
//! Invariants: nothing but handshakes leaves in plaintext, and nothing that arrives in plaintext
//! reaches the engine. A client's packets reach it only after the client was verified. An address
//! that has not answered gets at most three times the bytes that it sent, and the state that it can
//! cause is bounded. A handshake adds a session and ends none, except that a refused one ends a
//! session by which nothing arrived for a second.
//!
//! Left out: keys and ciphers (`crate::secure`), and the limits of clients that were verified,
//! which are the engine's.

mod challenge;
mod client;
mod early;
mod frame;
mod packets;
mod recorded;
mod reports;
mod retry;
mod server;
mod sessions;
#[cfg(test)]
mod tests;
mod timers;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use hashbrown::HashMap;
use homa_proto::{ClientDirectory, Duration, LinkId, Time};

use super::backlog::NoMessages;
use super::{
    ChallengedClient, Driver, DriverCounters, Encapsulation, Gather, LinkBacklog, Outbox,
    ReceivedTrain, Rejection, RouteMtu, SystemRefusal, TooBig, Train, TrainPiece,
    UnreachableReport,
};
use crate::error::HandshakeRefusal;
use crate::secure::{Keys, PeerIdentity, SecureSession, TAG};
use client::Opening;
pub(crate) use frame::{HandshakeDatagram, code};
use packets::{Arrival, seal_train};
pub use recorded::RecordedSessions;
use reports::SentDatagrams;
use retry::Retry;
use server::Accepting;
use sessions::{Entry, Sessions, Unfinished, Way};
use timers::Timers;
use waiting::{Waiting, pieces};

/// Most answers to datagrams of unknown senders in [`PAUSE`].
const NOTICES_MAX: u32 = 64;
/// Most handshakes of others that begin in [`PAUSE`]. Each takes some 0.3 ms of a core, so a flood
/// of them leaves 90 % to sessions.
const BEGINNINGS_MAX: u32 = 3;
/// The time for which these limits hold.
const PAUSE: Duration = Duration::millis(10);
/// How long a peer that refused a handshake is not asked again.
const COOLING: Duration = Duration::secs(1);

/// Decides whether a verified peer may use this engine.
pub type Admission = dyn Fn(&PeerIdentity) -> bool + Send + Sync;

/// Whether a verified peer may use this engine.
fn admits(admission: Option<&Admission>, peer: &PeerIdentity) -> bool {
    admission.is_none_or(|admits| admits(peer))
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Our flight of a handshake is repeated; the number of times that it was sent.
    Repeat(u64, u32),
    /// Another handshake begins, because one failed.
    Begin(Way),
    /// A client had its time to send early data.
    CloseEarly(Way, u64),
    /// A client with early data had its time to complete its handshake.
    EndEarly(Way, u64),
    /// A peer may be asked again.
    Cool(Way),
    /// What unknown senders may cause is renewed.
    Renewal,
    /// Cookies get another key.
    Rotate,
}

/// What unknown senders may cause in [`PAUSE`].
#[derive(Debug)]
struct Allowance {
    left: u32,
    most: u32,
}

impl Allowance {
    fn new(most: u32) -> Self {
        Self { left: most, most }
    }

    /// Takes one; false if none is left.
    fn take(&mut self, timers: &mut Timers<Timer>) -> bool {
        if self.left == self.most {
            timers.start(PAUSE, Timer::Renewal);
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// See the module's documentation.
pub struct Sealed {
    inner: Box<dyn Driver>,
    keys: Keys,
    admission: Option<Arc<Admission>>,
    /// The type-of-service byte of handshakes.
    tos: u8,
    sessions: Sessions,
    waiting: Waiting,
    /// Handshakes that we began.
    opening: HashMap<Way, Opening>,
    by_id: HashMap<u64, Way>,
    /// Handshakes that others began, and their order.
    accepting: HashMap<(Way, u64), Accepting>,
    accepted_first: VecDeque<(Way, u64)>,
    /// Number of those with early data whose client is not verified.
    unvalidated: usize,
    /// Those whose flight waits for the engine's challenge.
    unchallenged: Vec<(Way, u64)>,
    /// Boot id and remembered time of the engine's challenges, at the last look.
    challenge: Option<(u64, Duration)>,
    /// Clients that were verified and challenged.
    challenged: VecDeque<ChallengedClient>,
    /// Peers that are not asked for a while; with a reason if they refused.
    cooling: HashMap<Way, Option<HandshakeRefusal>>,
    timers: Timers<Timer>,
    /// Answers to unknown senders, and their handshakes.
    notices: Allowance,
    beginnings: Allowance,
    retry: Retry,
    out: Outbox,
    sent: SentDatagrams,
    arrivals: Vec<Arrival>,
    /// The bytes of `arrivals`.
    bytes: Vec<u8>,
    rejections: VecDeque<Rejection>,
    unreachable: VecDeque<UnreachableReport>,
    /// Our counts, and their sum with those of `inner`.
    counts: DriverCounters,
    counters: DriverCounters,
}

impl Sealed {
    /// Encrypts what a driver of datagrams carries. At most `max` sessions are kept.
    pub fn new(
        inner: Box<dyn Driver>,
        keys: Keys,
        admission: Option<Arc<Admission>>,
        max: u32,
        tos: u8,
    ) -> Self {
        Self {
            inner,
            keys,
            admission,
            tos,
            sessions: Sessions::new(max),
            waiting: Waiting::default(),
            opening: HashMap::new(),
            by_id: HashMap::new(),
            accepting: HashMap::new(),
            accepted_first: VecDeque::new(),
            unvalidated: 0,
            unchallenged: Vec::new(),
            challenge: None,
            challenged: VecDeque::new(),
            cooling: HashMap::new(),
            timers: Timers::new(),
            notices: Allowance::new(NOTICES_MAX),
            beginnings: Allowance::new(BEGINNINGS_MAX),
            retry: Retry::default(),
            out: Outbox::default(),
            sent: SentDatagrams::default(),
            arrivals: Vec::new(),
            bytes: Vec::new(),
            rejections: VecDeque::new(),
            unreachable: VecDeque::new(),
            counts: DriverCounters::default(),
            counters: DriverCounters::default(),
        }
    }

    /// Adds a datagram of a handshake to the batch; returns its length.
    fn push_frame(
        &mut self,
        way: Way,
        link: LinkId,
        frame: &HandshakeDatagram<'_>,
        least: usize,
    ) -> usize {
        let (start, first) = (self.out.bytes.len(), self.out.pieces.len());
        frame.write(least, &mut self.out.bytes);
        let len = self.out.bytes.len() - start;
        self.out.pieces.push(TrainPiece::Buffered(start..start + len));
        self.out.trains.push(Train {
            to: way.to,
            link,
            socket: way.socket,
            source: way.source,
            tos: self.tos,
            datagram: len,
            len,
            pieces: first..first + 1,
        });
        len
    }

    /// Answers an unknown sender, unless too many were answered just now.
    fn notify(&mut self, way: Way, received: usize, frame: &HandshakeDatagram<'_>) {
        if received >= frame::FRONT && self.notices.take(&mut self.timers) {
            self.push_frame(way, LinkId::default(), frame, 0);
        }
    }

    /// Adds a session if its peer is admitted, and sends what waits for it.
    fn complete(
        &mut self,
        way: Way,
        keys: (u32, u32),
        session: SecureSession,
        unfinished: Option<Unfinished>,
    ) -> bool {
        if !admits(self.admission.as_deref(), session.identity()) {
            return false;
        }
        let mut entry = Entry::new(session, keys, way);
        entry.unfinished = unfinished;
        self.sessions.add(entry);
        self.established(way);
        true
    }

    /// There is a session with a verified peer: sends what waits for it.
    fn established(&mut self, way: Way) {
        self.counts.handshakes_completed += 1;
        // Another handshake may begin at once if it is not the peer that asks for it.
        if let Some(Some(_)) = self.cooling.get(&way) {
            self.cooling.remove(&way);
        }
        for waiting in self.waiting.take(&way) {
            self.note_unconfirmed(&way, waiting.quoted());
            if waiting.early {
                continue;
            }
            let Some(entry) = self.sessions.to(&way) else { break };
            let bytes = [&waiting.bytes[..]].into_iter();
            let into = (&mut self.out, &mut self.sent);
            self.counts.datagrams_sealed += seal_train(entry, &waiting.train, bytes, into);
        }
    }

    /// Sends the batch.
    fn flush(&mut self) {
        if !self.out.trains.is_empty() {
            self.inner.send(&self.out, &NoMessages);
            self.out.clear();
            self.out.bytes.clear();
        }
        self.count();
    }

    fn count(&mut self) {
        self.counts.sessions = self.sessions.len() as u64;
        self.counters = *self.inner.counters();
        self.counters.add(&self.counts);
    }

    fn run_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Repeat(id, times) => self.repeat(id, times),
            Timer::Begin(way) => self.begin(way),
            Timer::CloseEarly(way, id) => self.close_early((way, id)),
            Timer::EndEarly(way, id) => self.end_early((way, id)),
            Timer::Cool(way) => self.cool(way),
            Timer::Rotate => self.rotate(),
            Timer::Renewal => {
                self.notices.left = self.notices.most;
                self.beginnings.left = self.beginnings.most;
                self.retry.renew();
            }
        }
    }
}

impl Driver for Sealed {
    fn encapsulation(&self) -> Encapsulation {
        self.inner.encapsulation()
    }

    fn routes(&self) -> Option<RouteMtu> {
        self.inner.routes()
    }

    fn good_mtu(&self) -> u16 {
        self.inner.good_mtu()
    }

    fn overhead(&self) -> u16 {
        TAG as u16
    }

    fn deadline(&self) -> Option<Time> {
        if self.unchallenged.is_empty() { self.timers.deadline() } else { Some(Time::ZERO) }
    }

    fn expire(&mut self, now: Time) {
        // The engine does not see the backlog of handshakes.
        let backlogged: Vec<LinkId> = self.inner.backlog().iter().map(|of| of.link).collect();
        backlogged.into_iter().for_each(|link| self.inner.resume(link));
        while let Some(timer) = self.timers.expired(now) {
            self.run_timer(timer);
        }
        self.challenge_clients();
        self.flush();
    }

    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.inner.bind(at)
    }

    fn unbind(&mut self, socket: usize) {
        self.sessions.unbind(socket);
        self.inner.unbind(socket);
    }

    fn local(&self) -> &[SocketAddr] {
        self.inner.local()
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.inner.reaches(socket, to)
    }

    fn hears(&self, socket: usize, peer: SocketAddr) -> bool {
        self.inner.hears(socket, peer)
    }

    fn names(&self) -> Option<Box<dyn ClientDirectory>> {
        self.inner.names()
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        for train in &outbox.trains {
            self.send_train(train, outbox, messages);
        }
        self.flush();
    }

    fn resume(&mut self, link: LinkId) {
        self.inner.resume(link);
    }

    fn backlog(&self) -> &[LinkBacklog] {
        self.inner.backlog()
    }

    fn receive(&mut self, expected: bool) -> usize {
        self.receive_trains(expected)
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        self.arrivals[index].train(&self.bytes)
    }

    fn identity(&self, index: usize) -> Option<&Arc<PeerIdentity>> {
        Some(self.arrivals[index].identity())
    }

    fn is_early_data(&self, index: usize) -> bool {
        self.arrivals[index].is_early()
    }

    fn awaits_ticket(&self) -> bool {
        self.opening.values().any(Opening::awaits_ticket)
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.next_unreachable()
    }

    fn too_big(&mut self) -> Option<TooBig> {
        self.next_too_big()
    }

    fn refusal(&mut self) -> Option<SystemRefusal> {
        self.next_refusal()
    }

    fn rejection(&mut self) -> Option<Rejection> {
        self.rejections.pop_front()
    }

    fn set_challenge(&mut self, challenge: Option<(u64, Duration)>) {
        self.challenge = challenge;
    }

    fn challenged(&mut self) -> Option<ChallengedClient> {
        self.challenged.pop_front()
    }

    fn refuse_arrivals(&mut self) {
        self.inner.refuse_arrivals();
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        self.inner.queued(link)
    }

    fn receive_buffer(&self) -> u32 {
        self.inner.receive_buffer()
    }

    fn unread(&self) -> u64 {
        self.inner.unread()
    }

    fn handles(&self) -> Vec<RawFd> {
        self.inner.handles()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.inner.first_handle()
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}
