//! Packets that the socket or the device had no room for (EAGAIN, ENOBUFS). They are copied, and
//! sent first when there is room.
//!
//! They are copied because the messages that they belong to may end in the meantime. The backlog of
//! one link delays no train of another. The engine packs only control packets for a link that has a
//! backlog; those are tried at once, and join the backlog if they are refused, too.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use homa_proto::LinkId;

use super::{DriverCounters, Gather, LinkBacklog, Outbox, Train, TrainPiece};

/// After this many failed attempts, a train that the device's queue refuses is dropped, because
/// some queues never take a packet of its size and others wait behind it. With the engine's pauses
/// between attempts, this takes about 12 ms.
const ATTEMPTS_MAX: u32 = 16;
/// Most bytes in the backlog of a link, more than one batch. Packets beyond it are lost.
const BYTES_MAX: usize = 256 * 1024;

/// The queue that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The socket (EAGAIN): poll reports when it is writable.
    Socket(RawFd),
    /// The queue of a device (ENOBUFS). No event reports when it has room.
    Device,
}

impl Full {
    /// The socket that is full.
    fn socket(self) -> Option<RawFd> {
        match self {
            Self::Socket(fd) => Some(fd),
            Self::Device => None,
        }
    }
}

/// Delayed trains, by link.
#[derive(Debug, Default)]
pub struct Backlog {
    /// The links that have a backlog.
    links: Vec<LinkBacklog>,
    /// Their trains, in the same order.
    batches: Vec<LinkBatch>,
}

/// The delayed trains of a link. Each train has one piece.
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

    /// Copies a train without its first `offset` bytes.
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

    /// Removes the trains before `first`, and the first `offset` bytes of that train, because they
    /// were sent. Returns the destination of a train that was dropped.
    fn shorten(&mut self, (first, offset, full): (usize, usize, Full)) -> Option<SocketAddr> {
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
        if self.attempts < ATTEMPTS_MAX {
            return None;
        }
        self.attempts = 0;
        Some(trains.remove(0).to)
    }
}

impl Backlog {
    /// The backlog of each link.
    pub fn links(&self) -> &[LinkBacklog] {
        &self.links
    }

    /// Sending stopped at byte `offset` of train `at`, because its link is full. Keeps the
    /// remaining trains of that link, and returns those of other links.
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

    /// The index of a link's backlog, which is created if necessary.
    fn slot(&mut self, link: LinkId, full: Full) -> usize {
        let found = self.links.iter().position(|links| links.link == link);
        found.unwrap_or_else(|| {
            self.links.push(LinkBacklog { link, bytes: 0, socket: full.socket() });
            self.batches.push(LinkBatch::default());
            self.batches.len() - 1
        })
    }

    /// Takes the backlog of a link to send it; pass the rest to [`Self::put_back`].
    pub fn take(&mut self, link: LinkId) -> Option<LinkBatch> {
        let at = self.links.iter().position(|links| links.link == link)?;
        self.links.swap_remove(at);
        Some(self.batches.swap_remove(at))
    }

    /// Puts back what was not sent: see [`LinkBatch::shorten`]. Returns the destination of a train
    /// that was dropped.
    pub fn put_back(
        &mut self,
        link: LinkId,
        mut batch: LinkBatch,
        stopped: Option<(usize, usize, Full)>,
    ) -> Option<SocketAddr> {
        let stopped = stopped?;
        let given_up = batch.shorten(stopped);
        let bytes: usize = batch.outbox.trains.iter().map(|train| train.len).sum();
        if bytes > 0 {
            self.links.push(LinkBacklog { link, bytes, socket: stopped.2.socket() });
            self.batches.push(batch);
        }
        given_up
    }
}

/// A driver of sockets that keeps a backlog.
pub trait Sockets {
    /// Sends trains. If there is no room, returns the train and the byte at which it stopped.
    fn send_all(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<(), (usize, usize, Full)>;

    /// The queue of a device never took a packet for `to`.
    fn note_full_device(&mut self, to: SocketAddr);

    /// The backlog and the counters.
    fn backlog_mut(&mut self) -> (&mut Backlog, &mut DriverCounters);

    /// Sends some trains of a batch; those that find no room join the backlog.
    fn send_some(&mut self, trains: &[Train], outbox: &Outbox, messages: &dyn Gather) {
        if let Err(stopped) = self.send_all(trains, outbox, messages) {
            let (backlog, counters) = self.backlog_mut();
            let others = backlog.set_aside(trains, (outbox, messages), stopped, counters);
            self.send_some(&others, outbox, messages);
        }
    }

    /// Tries again to send the backlog of a link.
    fn send_backlog(&mut self, link: LinkId) {
        let Some(batch) = self.backlog_mut().0.take(link) else { return };
        let outbox = batch.outbox();
        let stopped = self.send_all(&outbox.trains, outbox, &NoMessages).err();
        let (backlog, counters) = self.backlog_mut();
        if let Some(to) = backlog.put_back(link, batch, stopped) {
            counters.trains_refused += 1;
            self.note_full_device(to);
        }
    }
}

/// For trains that are completely in their outbox.
pub struct NoMessages;

impl Gather for NoMessages {
    fn bytes(&self, _: homa_proto::Span) -> &[u8] {
        &[]
    }
}
