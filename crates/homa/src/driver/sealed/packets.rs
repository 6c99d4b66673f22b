//! Datagrams with packets: encrypted when they leave, decrypted when they arrive. The datagram
//! header and its extensions are authenticated, everything behind them is encrypted.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use homa_proto::wire::datagram;

use super::frame::PHASE;
use super::reports::SentDatagrams;
use super::{
    Entry, Gather, HandshakeDatagram, Outbox, Sealed, TAG, Train, TrainPiece, Unfinished, Way,
    code, pieces,
};
use crate::driver::ReceivedTrain;
use crate::secure::{PeerIdentity, SealError, UnsealError};

/// Bytes of the datagram header, and the places of its fields.
const HEADER: usize = datagram::HEADER_LEN;
const FLAGS: usize = 1;
const EXTENSIONS: Range<usize> = 2..4;
const KEY: Range<usize> = 4..8;
const NUMBER: Range<usize> = 8..16;

/// Batches that one look may read if all of their datagrams were handshakes.
const ROUNDS: usize = 16;
/// Datagrams of no session that are handled of one batch. More are dropped, and senders repeat
/// handshakes.
const FRAMES_MAX: usize = 256;

/// A received train after decryption.
#[derive(Debug)]
pub struct Arrival {
    way: Way,
    identity: Arc<PeerIdentity>,
    datagram: usize,
    start: usize,
    end: usize,
    early: bool,
}

impl Arrival {
    /// A train of one datagram.
    pub fn new(way: Way, identity: Arc<PeerIdentity>, Range { start, end }: Range<usize>) -> Self {
        Self { way, identity, datagram: (end - start).max(1), start, end, early: false }
    }

    /// The same as early data.
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }

    /// It came as early data.
    pub fn is_early(&self) -> bool {
        self.early
    }

    /// Its sender, as verified.
    pub fn identity(&self) -> &Arc<PeerIdentity> {
        &self.identity
    }

    /// The train; `bytes` is the buffer of the batch.
    pub fn train<'a>(&self, bytes: &'a [u8]) -> ReceivedTrain<'a> {
        ReceivedTrain {
            from: self.way.to,
            socket: self.way.socket,
            to: self.way.source,
            datagram: self.datagram,
            bytes: &bytes[self.start..self.end],
        }
    }
}

/// A datagram that is not part of a session.
enum Stray {
    Handshake(Vec<u8>),
    UnknownKey { key: u32, number: u64, len: usize },
    Plaintext { id: Option<u64>, len: usize },
}

/// What a batch brought beside datagrams of sessions.
#[derive(Default)]
pub(super) struct Strays {
    list: Vec<(Way, Stray)>,
    confirmed: Vec<u64>,
}

/// Appends a train, encrypted with a session, to a batch. Returns the number of datagrams: 0 if the
/// session's keys are used up.
pub fn seal_train<'a>(
    entry: &mut Entry,
    train: &Train,
    pieces: impl Iterator<Item = &'a [u8]>,
    (out, sent): (&mut Outbox, &mut SentDatagrams),
) -> u64 {
    let (start, mut begin) = (out.bytes.len(), out.bytes.len());
    let mut sealed = Ok(());
    let mut datagrams = 0;
    for mut piece in pieces {
        while !piece.is_empty() {
            let room = train.datagram - (out.bytes.len() - begin);
            let (now, later) = piece.split_at(piece.len().min(room));
            out.bytes.extend_from_slice(now);
            piece = later;
            if out.bytes.len() - begin == train.datagram {
                sealed = sealed.and_then(|()| seal_last(entry, &mut out.bytes, begin, sent));
                begin = out.bytes.len();
                datagrams += 1;
            }
        }
    }
    if out.bytes.len() > begin {
        sealed = sealed.and_then(|()| seal_last(entry, &mut out.bytes, begin, sent));
        datagrams += 1;
    }
    if sealed.is_err() {
        out.bytes.truncate(start);
        return 0;
    }
    let (len, first) = (out.bytes.len() - start, out.pieces.len());
    out.pieces.push(TrainPiece::Buffered(start..start + len));
    let (datagram, pieces) = (train.datagram + TAG, first..first + 1);
    out.trains.push(Train { datagram: datagram.min(len), len, pieces, ..train.clone() });
    datagrams
}

/// Encrypts the datagram that begins at `begin` and is the end of `bytes`.
fn seal_last(
    entry: &mut Entry,
    bytes: &mut Vec<u8>,
    begin: usize,
    sent: &mut SentDatagrams,
) -> Result<(), SealError> {
    let about = datagram::quoted(&bytes[begin..]);
    bytes.extend_from_slice(&[0; TAG]);
    let datagram = &mut bytes[begin..];
    let (number, phase) = entry.session.next()?;
    sent.note(entry.theirs, number, about);
    datagram[FLAGS] = datagram[FLAGS] & !PHASE | if phase { PHASE } else { 0 };
    datagram[KEY].copy_from_slice(&entry.theirs.to_be_bytes());
    datagram[NUMBER].copy_from_slice(&number.to_be_bytes());
    let front = front(datagram).filter(|front| front + TAG <= datagram.len());
    let (front, packets) = datagram.split_at_mut(front.ok_or(SealError::Length)?);
    entry.session.seal(number, front, packets)
}

/// Bytes of the header and the extensions of a datagram; `None` if it is shorter than a header.
fn front(datagram: &[u8]) -> Option<usize> {
    let length = datagram.get(..HEADER)?[EXTENSIONS].try_into().ok()?;
    Some(HEADER + usize::from(u16::from_be_bytes(length)))
}

/// Decrypts a datagram in place; returns its length.
fn open(entry: &mut Entry, datagram: &mut [u8], number: u64) -> Result<usize, UnsealError> {
    let phase = datagram[FLAGS] & PHASE != 0;
    let front = front(datagram).filter(|front| front + TAG <= datagram.len());
    let (header, packets) = datagram.split_at_mut(front.ok_or(UnsealError::Forged)?);
    let len = header.len() + entry.session.open(number, phase, header, packets)?;
    // To the engine it is a datagram like any other.
    datagram[KEY].fill(0);
    Ok(len)
}

impl Sealed {
    /// Encrypts a train into the batch, or lets it wait for a session.
    pub(super) fn send_train(&mut self, train: &Train, outbox: &Outbox, messages: &dyn Gather) {
        let way = Way { to: train.to, socket: train.socket, source: train.source };
        let Some(entry) = self.sessions.to(&way) else {
            return self.hold(way, train, outbox, messages);
        };
        let unfinished = entry.unfinished;
        if let Some(Unfinished::Prove(id)) = unfinished {
            return self.answer_early((way, id), train, outbox, messages);
        }
        let pieces = pieces(train, outbox, messages);
        let sealed = seal_train(entry, train, pieces, (&mut self.out, &mut self.sent));
        self.counts.datagrams_sealed += sealed;
        if sealed == 0 {
            let used_up = entry.ours;
            self.sessions.end(&way, |entry| entry.ours == used_up);
            return self.hold(way, train, outbox, messages);
        }
        if unfinished.is_some() {
            let pieces = super::pieces(train, outbox, messages);
            let bytes: Vec<u8> = pieces.flatten().copied().collect();
            let quoted = bytes.chunks(train.datagram).filter_map(datagram::quoted);
            self.note_unconfirmed(&way, quoted);
        }
    }

    /// Receives trains of sessions, and handles handshakes.
    pub(super) fn receive_trains(&mut self, expected: bool) -> usize {
        self.arrivals.clear();
        self.bytes.clear();
        for _ in 0..ROUNDS {
            let trains = self.inner.receive(expected);
            if trains == 0 {
                break;
            }
            let (mut strays, mut frames) = (Strays::default(), FRAMES_MAX);
            for index in 0..trains {
                // In order: the end of a handshake may precede datagrams of its session.
                self.open_train(index, &mut strays);
                strays.confirmed.drain(..).for_each(|id| self.confirm(id));
                let some = strays.list.drain(..).take(frames);
                some.for_each(|(way, stray)| {
                    self.handle_stray(way, stray);
                    frames -= 1;
                });
            }
            self.flush();
            if !self.arrivals.is_empty() {
                break;
            }
        }
        self.count();
        self.arrivals.len()
    }

    /// Decrypts a train of the inner driver.
    fn open_train(&mut self, index: usize, strays: &mut Strays) {
        let train = self.inner.received(index);
        let way = Way { to: train.from, socket: train.socket, source: train.to };
        let (start, mut sender) = (self.bytes.len(), None);
        let local = |of: &[u8], range: Range<usize>| -> u64 {
            of[range].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        for datagram in train.bytes.chunks(train.datagram) {
            let len = datagram.len();
            if len < HEADER || datagram[0] != datagram::VERSION {
                self.counts.datagrams_forged += 1;
                continue;
            }
            let key = local(datagram, KEY) as u32;
            if key == 0 {
                let stray = match HandshakeDatagram::is_in(datagram) {
                    true => Stray::Handshake(datagram.to_vec()),
                    false => {
                        self.counts.datagrams_plaintext_refused += 1;
                        Stray::Plaintext { id: datagram::quoted(datagram).map(|of| of.id.0), len }
                    }
                };
                strays.push(way, stray);
                continue;
            }
            let number = local(datagram, NUMBER);
            let found = self.sessions.with_key(key);
            let Some(entry) = found.filter(|e| (e.way.to, e.way.socket) == (way.to, way.socket))
            else {
                self.counts.datagrams_unknown_key += 1;
                if !self.sessions.is_reserved(key) {
                    strays.push(way, Stray::UnknownKey { key, number, len });
                }
                continue;
            };
            let at = self.bytes.len();
            self.bytes.extend_from_slice(datagram);
            let opened = open(entry, &mut self.bytes[at..], number);
            // A datagram without packets only shows that its sender has the session.
            self.bytes.truncate(at + opened.ok().filter(|len| *len > HEADER).unwrap_or(0));
            match opened {
                Ok(_) => {
                    self.counts.datagrams_opened += 1;
                    entry.heard = true;
                    sender = Some(entry.identity.clone());
                    if let Some(Unfinished::Confirm(id)) = entry.unfinished {
                        entry.unfinished = None;
                        strays.confirmed.push(id);
                    }
                }
                Err(UnsealError::Replayed | UnsealError::TooOld) => {
                    self.counts.datagrams_replayed += 1;
                }
                Err(UnsealError::Forged) => self.counts.datagrams_forged += 1,
                Err(UnsealError::Exhausted) => {
                    // Nothing can be received by this session any more, so the peer needs another.
                    self.counts.datagrams_forged += 1;
                    let session = entry.way;
                    self.sessions.end(&session, |entry| entry.ours == key);
                    strays.push(way, Stray::UnknownKey { key, number, len });
                }
            }
        }
        let (datagram, end) = (train.datagram.saturating_sub(TAG).max(1), self.bytes.len());
        if end > start
            && let Some(identity) = sender
        {
            self.arrivals.push(Arrival { way, identity, datagram, start, end, early: false });
        }
    }

    /// Handles a datagram that belongs to no session.
    fn handle_stray(&mut self, way: Way, stray: Stray) {
        match stray {
            Stray::Handshake(datagram) => match HandshakeDatagram::read(&datagram) {
                Some(frame) => self.handle_frame(way, datagram.len(), &frame),
                None => self.counts.handshake_fragments_dropped += 1,
            },
            Stray::UnknownKey { key, number, len } => {
                self.notify(way, len, &HandshakeDatagram::UnknownKey { key, number });
            }
            Stray::Plaintext { id: Some(id), len } => {
                self.notify(
                    way,
                    len,
                    &HandshakeDatagram::Refused { id, code: code::KEYS_REQUIRED },
                );
            }
            Stray::Plaintext { id: None, .. } => {}
        }
    }

    fn handle_frame(&mut self, way: Way, len: usize, frame: &HandshakeDatagram<'_>) {
        match *frame {
            HandshakeDatagram::Flight { from_client: true, .. } => self.accept(way, len, frame),
            HandshakeDatagram::Flight { from_client: false, .. } => self.answered(way, frame),
            HandshakeDatagram::Retry { id, cookie } => self.retry(way, id, cookie),
            HandshakeDatagram::UnknownKey { key, .. } => self.renew(way, key),
            HandshakeDatagram::Refused { id, code } => self.refused(way, id, code),
        }
    }
}

impl Strays {
    fn push(&mut self, way: Way, stray: Stray) {
        // UDP allows port 0 for senders that want no answer.
        if way.to.port() != 0 && self.list.len() < FRAMES_MAX {
            self.list.push((way, stray));
        }
    }
}

/// The address and the local address of a way, for reports.
impl Way {
    /// True if datagrams from `from`, which arrived at `socket`, belong to the way.
    pub fn is_from(&self, (from, socket): (SocketAddr, usize)) -> bool {
        (self.to, self.socket) == (from, socket)
    }

    /// The same peer and socket with any local address.
    pub fn without_source(self) -> Self {
        Self { source: None::<IpAddr>, ..self }
    }
}
