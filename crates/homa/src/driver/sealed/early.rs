//! Early data (0-RTT): requests that a client with a ticket sends beside its ClientHello
//! (`docs/encryption.md`, "Early data").
//!
//! Invariants: early data are whole requests that their clients allow to be executed more than
//! once, and nothing else; both ends check it. Until the server has accepted them, they also wait
//! for the session. A server seals by the session at once, within the limit of bytes for the
//! address, and opens nothing by it before the client was verified. Nothing else is sent to the
//! address: when the session ends, the engine has given up its requests, whose clients have to
//! prove themselves within a second.

use std::sync::Arc;

use homa_proto::wire::datagram;
use homa_proto::{Body, Duration, PeerId};

use super::frame::{FRONT, FULL};
use super::packets::{Arrival, seal_train};
use super::{
    Accepting, Entry, Gather, HandshakeDatagram, Outbox, Sealed, TAG, Timer, Train, Unfinished,
    Way, admits, pieces,
};
use crate::secure::{EARLY_MAX, EARLY_OVERHEAD, PeerIdentity};

/// Longest datagram in early data: with what is added, it is as long as those of the ClientHello.
const DATAGRAM_MAX: usize = FULL - FRONT - EARLY_OVERHEAD;
/// Clients with early data that may be unverified at a time.
const UNVALIDATED_MAX: usize = 256;
/// How long a client may be unverified: as long as it repeats its flight.
const LIFE: Duration = Duration::secs(5);
/// How long early data are opened, so that an attacker cannot deliver them much later. The requests
/// of a client that is not verified then end before its session, because they have a second.
const OPEN: Duration = Duration::secs(3);

/// Whether a datagram, in plaintext, consists of whole requests that may be executed more than
/// once.
fn is_repeatable(bytes: &[u8]) -> bool {
    let Ok(datagram) = datagram::decode(bytes) else { return false };
    let mut requests = 0;
    for decoded in datagram.packets(PeerId(0), 0) {
        match decoded {
            Ok(decoded) => match decoded.packet.body {
                Body::Data(data) if decoded.idempotent && data.span.len == data.message_length => {
                    requests += 1;
                }
                // Padding.
                Body::Freeze => {}
                _ => return false,
            },
            Err(_) => return false,
        }
    }
    requests > 0
}

impl Sealed {
    /// As client: sends the trains that wait for a way as early data. A train stays behind if it
    /// has a datagram that is too long or may not run twice, or if too many were sent.
    pub(super) fn send_early(&mut self, way: Way) {
        let Some(opening) = self.opening.get_mut(&way) else { return };
        let Some(attempt) = &mut opening.attempt else { return };
        // Tickets are those of cluster keys, and the server of one proves nothing else.
        if !attempt.handshake.may_send_early()
            || !admits(self.admission.as_deref(), &PeerIdentity::Cluster)
        {
            return;
        }
        let before = attempt.early.len();
        for waiting in self.waiting.trains(&way).filter(|waiting| !waiting.early) {
            let datagrams = waiting.bytes.chunks(waiting.train.datagram.max(1));
            let fits = |bytes: &[u8]| bytes.len() <= DATAGRAM_MAX && is_repeatable(bytes);
            if attempt.early.len() + datagrams.len() <= EARLY_MAX && datagrams.clone().all(fits) {
                attempt.early.extend(datagrams.filter_map(|of| attempt.handshake.seal_early(of)));
                waiting.early = true;
            }
        }
        self.push_early(way, before);
    }

    /// As client: sends the same early data again, with the ClientHello.
    pub(super) fn repeat_early(&mut self, way: Way) {
        let attempt = self.opening.get(&way).and_then(|opening| opening.attempt.as_ref());
        if attempt.is_some_and(|attempt| attempt.handshake.may_send_early()) {
            self.push_early(way, 0);
        }
    }

    fn push_early(&mut self, way: Way, first: usize) {
        let Some(opening) = self.opening.get(&way) else { return };
        let (link, Some(attempt)) = (opening.link, &opening.attempt) else { return };
        let (id, ours, parts) = (attempt.id, attempt.ours, attempt.early[first..].to_vec());
        for part in &parts {
            self.push_frame(way, link, &HandshakeDatagram::flight(true, id, ours, part), 0);
        }
    }

    /// As client: the server has accepted the early data, or they have to be sent again.
    pub(super) fn settle_early(&mut self, way: &Way, accepted: bool) {
        self.waiting.trains(way).for_each(|waiting| waiting.early &= accepted);
    }

    /// As server: whether early data can be accepted from one more client. Not from the address of
    /// a session: it may be forged, and datagrams for that session would be lost.
    pub(super) fn takes_early_data(&self, way: &Way) -> bool {
        self.unvalidated < UNVALIDATED_MAX && !self.sessions.has(way)
    }

    /// As server: a fragment of a handshake was received, perhaps of early data, or the last one.
    pub(super) fn accept_early(&mut self, name: (Way, u64)) {
        let (way, id) = name;
        let Some(accepting) = self.accepting.get_mut(&name) else { return };
        if let Some((session, theirs)) = accepting.handshake.early_session() {
            if !admits(self.admission.as_deref(), session.identity()) {
                return self.refuse(name);
            }
            let mut entry = Entry::new(session, (accepting.ours, theirs), way);
            entry.unfinished = Some(Unfinished::Prove(id));
            accepting.early = Some(Arc::clone(&entry.identity));
            self.sessions.add(entry);
            self.unvalidated += 1;
            self.counts.handshakes_early += 1;
            self.timers.start(OPEN, Timer::CloseEarly(way, id));
        }
        let Some(identity) = accepting.early.clone() else { return };
        for bytes in accepting.handshake.take_early_data() {
            if !is_repeatable(&bytes) {
                self.counts.early_datagrams_refused += 1;
                continue;
            }
            self.counts.early_datagrams_opened += 1;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&bytes);
            let range = start..self.bytes.len();
            self.arrivals.push(Arrival::new(way, Arc::clone(&identity), range).early());
        }
        if accepting.handshake.is_confirmed() && !accepting.validated {
            accepting.validated = true;
            let resumed = accepting.handshake.is_resumed();
            let challenged = accepting.challenging.of_client(&way);
            self.unvalidated -= 1;
            // It ends as others do from now on.
            self.accepted_first.push_back(name);
            self.sessions.note_validated(&way, id);
            self.counts.handshakes_resumed += u64::from(resumed);
            self.challenged.extend(challenged);
            self.established(way);
        }
    }

    /// As server: encrypts a train to a client with early data that is not verified, if its address
    /// may get it. If not, the train waits until the client is verified.
    pub(super) fn answer_early(
        &mut self,
        name: (Way, u64),
        train: &Train,
        outbox: &Outbox,
        messages: &dyn Gather,
    ) {
        let (datagrams, way) = (train.datagrams(), name.0);
        let accepting = self.accepting.get_mut(&name);
        let fits = accepting.is_some_and(|of| of.take_room(datagrams, train.len + datagrams * TAG));
        match self.sessions.to(&way).filter(|_| fits) {
            Some(entry) => {
                let into = (&mut self.out, &mut self.sent);
                let pieces = pieces(train, outbox, messages);
                self.counts.datagrams_sealed += seal_train(entry, train, pieces, into);
            }
            None => {
                let dropped = self.waiting.push(way, train, outbox, messages);
                self.counts.datagrams_without_session += dropped;
            }
        }
    }

    /// As server: no more early data of a client are opened.
    pub(super) fn close_early(&mut self, name: (Way, u64)) {
        let (way, id) = name;
        if let Some(accepting) = self.accepting.get_mut(&name) {
            accepting.handshake.close_early_data();
            self.timers.start(Duration(LIFE.0 - OPEN.0), Timer::EndEarly(way, id));
        }
    }

    /// As server: the time of a client with early data is over. If it is not verified, its session
    /// ends.
    pub(super) fn end_early(&mut self, name: (Way, u64)) {
        let (way, id) = name;
        if self.accepting.get(&name).is_some_and(Accepting::is_unvalidated) {
            self.unvalidated -= 1;
            self.sessions.end(&way, |entry| entry.unfinished == Some(Unfinished::Prove(id)));
            self.drop_waiting(way);
            self.end_accepting(name);
        }
    }
}
