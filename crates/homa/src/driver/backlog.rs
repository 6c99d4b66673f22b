//! What the layers below had no room for (EAGAIN, ENOBUFS): copied, and sent first when they have.
//!
//! Bytes are copied because the messages that they belong to may end meanwhile. What waits for
//! one link holds back no train of another. The engine packs nothing but control packets for a
//! link that something waits for; they are tried at once, and wait behind the rest where they
//! are refused, too.

use homa_proto::LinkId;

use super::{DriverCounters, Full, Gather, LinkBacklog, Outbox, Train, TrainPiece};

/// Attempts without success after which a train that the device's queue refuses is given up: there
/// are queues that never take a packet of its size, and others wait behind it. With the engine's
/// pauses between them, some 12 ms.
const ATTEMPTS_MAX: u32 = 16;
/// Bytes that wait for one link; what is refused beyond them is lost. More than a batch.
const BYTES_MAX: usize = 256 * 1024;

/// Trains that wait, by link.
#[derive(Debug, Default)]
pub struct Backlog {
    /// What each of them waits for.
    links: Vec<LinkBacklog>,
    /// In the same order.
    batches: Vec<LinkBatch>,
}

/// What waits for a link. Each train has one piece.
#[derive(Debug, Default)]
pub struct LinkBatch {
    outbox: Outbox,
    attempts: u32,
}

impl LinkBatch {
    /// The trains.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Copies a train, but for its first `offset` bytes.
    fn push(&mut self, train: &Train, from: &Outbox, messages: &dyn Gather, offset: usize) {
        let Outbox { bytes, pieces, trains } = &mut self.outbox;
        let start = bytes.len() + offset;
        for piece in &from.pieces[train.pieces.clone()] {
            bytes.extend_from_slice(match piece {
                TrainPiece::Buffered(range) => &from.bytes[range.clone()],
                TrainPiece::Message(span) => messages.bytes(*span),
            });
        }
        let at = pieces.len();
        pieces.push(TrainPiece::Buffered(start..bytes.len()));
        trains.push(Train { len: bytes.len() - start, pieces: at..at + 1, ..train.clone() });
    }

    /// Forgets what was sent: all but the trains from `stopped.0` on, of which that one was sent up
    /// to `stopped.1`. Returns how many were given up.
    fn shorten(&mut self, (first, offset, full): (usize, usize, Full)) -> usize {
        let Outbox { pieces, trains, .. } = &mut self.outbox;
        trains.drain(..first);
        if let Some(train) = trains.first_mut() {
            train.len -= offset;
            if let TrainPiece::Buffered(range) = &mut pieces[train.pieces.start] {
                range.start += offset;
            }
        }
        let stuck = full == Full::Device && (first, offset) == (0, 0);
        self.attempts = if stuck { self.attempts + 1 } else { 0 };
        let given_up = usize::from(self.attempts >= ATTEMPTS_MAX);
        if given_up > 0 {
            trains.remove(0);
            self.attempts = 0;
        }
        given_up
    }
}

impl Backlog {
    /// How much waits for each link, and for what.
    pub fn links(&self) -> &[LinkBacklog] {
        &self.links
    }

    /// Of `trains` those from `at` on are left, of which that one was sent up to `offset` and
    /// has no room: keeps what leaves by its link, and returns the others.
    pub fn set_aside(
        &mut self,
        trains: &[Train],
        (outbox, messages): (&Outbox, &dyn Gather),
        (at, mut offset, full): (usize, usize, Full),
        counters: &mut DriverCounters,
    ) -> Vec<Train> {
        let link = trains[at].link;
        let slot = self.slot(link, full);
        let (stuck, others): (Vec<_>, Vec<_>) =
            trains[at..].iter().cloned().partition(|train| train.link == link);
        for train in stuck {
            let left = train.len - offset;
            if self.links[slot].bytes + left > BYTES_MAX {
                counters.trains_refused += 1;
            } else {
                self.links[slot].bytes += left;
                self.batches[slot].push(&train, outbox, messages, offset);
                counters.trains_delayed += 1;
            }
            offset = 0;
        }
        others
    }

    /// The place of a link for which something waits from now on.
    fn slot(&mut self, link: LinkId, full: Full) -> usize {
        let found = self.links.iter().position(|links| links.link == link);
        found.unwrap_or_else(|| {
            self.links.push(LinkBacklog { link, bytes: 0, socket: full.socket() });
            self.batches.push(LinkBatch::default());
            self.batches.len() - 1
        })
    }

    /// What is to be tried again; [`Self::put_back`] says how that went.
    pub fn take(&mut self, link: LinkId) -> Option<LinkBatch> {
        let at = self.links.iter().position(|links| links.link == link)?;
        self.links.swap_remove(at);
        Some(self.batches.swap_remove(at))
    }

    /// What was taken was sent, but for what `stopped` says: see [`LinkBatch::shorten`]. Returns how
    /// many trains were given up.
    pub fn put_back(
        &mut self,
        link: LinkId,
        mut batch: LinkBatch,
        stopped: Option<(usize, usize, Full)>,
    ) -> u64 {
        let Some(stopped) = stopped else { return 0 };
        let given_up = batch.shorten(stopped);
        let bytes: usize = batch.outbox.trains.iter().map(|train| train.len).sum();
        if bytes > 0 {
            self.links.push(LinkBacklog { link, bytes, socket: stopped.2.socket() });
            self.batches.push(batch);
        }
        given_up as u64
    }
}

/// A driver of sockets, which keeps what has no room.
pub trait Sockets {
    /// Sends trains, or those before where it says that there was no room.
    fn send_all(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<(), (usize, usize, Full)>;

    /// What waits, and what is counted of that.
    fn backlog_mut(&mut self) -> (&mut Backlog, &mut DriverCounters);

    /// Sends some trains of a batch; what has no room is kept.
    fn send_some(&mut self, trains: &[Train], outbox: &Outbox, messages: &dyn Gather) {
        if let Err(stopped) = self.send_all(trains, outbox, messages) {
            let (backlog, counters) = self.backlog_mut();
            let others = backlog.set_aside(trains, (outbox, messages), stopped, counters);
            self.send_some(&others, outbox, messages);
        }
    }

    /// Tries again to send what waits for a link.
    fn send_backlog(&mut self, link: LinkId) {
        let Some(batch) = self.backlog_mut().0.take(link) else { return };
        let outbox = batch.outbox();
        let stopped = self.send_all(&outbox.trains, outbox, &NoMessages).err();
        let (backlog, counters) = self.backlog_mut();
        counters.trains_refused += backlog.put_back(link, batch, stopped);
    }
}

/// For trains that lie in their outbox.
struct NoMessages;

impl Gather for NoMessages {
    fn bytes(&self, _: homa_proto::Span) -> &[u8] {
        &[]
    }
}
