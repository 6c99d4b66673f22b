//! A batch of outgoing messages in the form that `sendmmsg` takes.
//!
//! It is filled from trains and flushed at once. The pointers in it are valid only while the outbox
//! and the messages are borrowed, which `fill` and `flush` within one driver call guarantee.

use std::io;
use std::os::fd::RawFd;
use std::{ptr, slice};

use super::address::SocketName;
use super::control::Control;
use super::error_queue::{IcmpReport, IcmpReports, PathReport};
use crate::driver::refusal::{self, ErrnoMeaning};
use crate::driver::{DriverCounters, Full, Gather, Outbox, Train, TrainPiece};

/// Most trains in one system call.
pub const TRAINS_MAX: usize = 64;
/// Most datagrams of one train without offload: as many as a train can have.
const HEADERS_MAX: usize = 1024;
/// Most pieces of one message that the kernel accepts (UIO_MAXIOV).
const PIECES_MAX: usize = 1024;

/// After this many consecutive refusals a train is dropped; the first may have been about earlier
/// packets.
const REFUSALS_MAX: u32 = 3;
/// A refusal beside which a report about an earlier packet was read does not count, but no train is
/// tried more often than this.
const ATTEMPTS_MAX: u32 = 16;

/// The arrays of a `sendmmsg` call, reused for each call.
#[derive(Default)]
pub struct SendBatch {
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    entries: Vec<MessageEntry>,
    /// Entries sent or skipped so far.
    done: usize,
}

struct MessageEntry {
    name: SocketName,
    name_len: libc::socklen_t,
    control: Control,
    /// The train's index in the run.
    train: usize,
    /// Offset of the entry in its train.
    offset: usize,
    /// The kernel splits it into datagrams.
    segments: bool,
    /// Start and end in `pieces`.
    first: usize,
    last: usize,
}

// SAFETY: the raw pointers in `headers` and `pieces` are followed only by `flush`, called after
// `fill` within one `&mut` borrow of the driver; between driver calls they are never dereferenced.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Lays out `trains` for an IPv6 (`on_v6`) or IPv4 socket whose default is `class`. With
    /// offload, one entry per train; without, one per datagram.
    pub fn fill(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
        offload: bool,
        (on_v6, class): (bool, u8),
    ) {
        self.headers.clear();
        self.pieces.clear();
        self.entries.clear();
        self.done = 0;
        for (index, train) in trains.iter().enumerate() {
            let pieces = &outbox.pieces[train.pieces.clone()];
            // If the kernel would refuse the gather list, the train is split as if there were no
            // offload.
            let whole = (offload && pieces.len() <= PIECES_MAX) || train.datagrams() == 1;
            let step = if whole { train.len } else { train.datagram.max(1) };
            let mut cursor = Cursor { pieces: pieces.iter(), rest: &[] };
            let mut left = train.len;
            while left > 0 {
                let (len, offset) = (step.min(left), train.len - left);
                left -= len;
                let first = self.pieces.len();
                cursor.take(len, outbox, messages, &mut self.pieces);
                let (name, name_len) = SocketName::new(train.to, on_v6);
                let mut control = Control::empty();
                match (train.tos, train.to.is_ipv4()) {
                    (tos, _) if tos == class => {}
                    (tos, true) => {
                        control.push(libc::IPPROTO_IP, libc::IP_TOS, &i32::from(tos).to_ne_bytes());
                    }
                    (tos, false) => {
                        let class = i32::from(tos).to_ne_bytes();
                        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
                    }
                }
                if let Some(source) = train.source {
                    control.push_source(source);
                }
                let segments = len > train.datagram;
                if segments {
                    let segment = (train.datagram as u16).to_ne_bytes();
                    control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
                }
                let last = self.pieces.len();
                let train = index;
                let entry =
                    MessageEntry { name, name_len, control, train, offset, segments, first, last };
                self.entries.push(entry);
            }
        }
    }

    /// Sends the trains that it was filled with. Refused packets are counted and skipped. Reports
    /// about earlier packets, which the kernel returns instead of sending, go to `reports` if
    /// `meaning` accepts them.
    ///
    /// # Errors
    /// The position at which it stopped: everything before it is sent, the rest is not.
    pub fn flush_all(
        &mut self,
        fd: RawFd,
        trains: &[Train],
        reports: &mut IcmpReports,
        counters: &mut DriverCounters,
        meaning: impl Fn(&IcmpReport) -> Option<PathReport>,
    ) -> Result<(), SendStop> {
        let (mut refusals, mut attempts) = (0, 0);
        while let Some(entry) = self.entries.get(self.done) {
            let (train, first) = (&trains[entry.train], entry.first);
            let (at, offset, segments) = (entry.train, entry.offset, entry.segments);
            let stopped = |why| Err(SendStop { train: at, offset, why });
            counters.send_calls += 1;
            // A refused entry is tried alone, in case the system refuses only calls with several.
            let errno = match self.flush(fd, if attempts == 0 { HEADERS_MAX } else { 1 }) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    // A report may have stopped the call. It is now only in the queue.
                    reports.drain(fd, &meaning);
                    (refusals, attempts) = (0, 0);
                    continue;
                }
                Err(error) => error.raw_os_error().unwrap_or(0),
            };
            let what = refusal::meaning(errno);
            match what {
                ErrnoMeaning::Interrupted => {}
                _ if segments && matches!(errno, libc::EIO | libc::EINVAL) => {
                    return stopped(StopReason::Uncut { for_good: errno == libc::EIO });
                }
                ErrnoMeaning::SocketFull => return stopped(StopReason::Full(Full::Socket(fd))),
                ErrnoMeaning::DeviceFull => return stopped(StopReason::Full(Full::Device)),
                // The error may be that of an earlier packet, and then this one was not tried. The
                // report may already have been read, because the kernel sets the socket's error
                // after it queued the report.
                _ if what != ErrnoMeaning::Closed
                    && refusals + 1 < REFUSALS_MAX
                    && attempts < ATTEMPTS_MAX =>
                {
                    let reported = reports.drain(fd, &meaning);
                    refusals += u32::from(what != ErrnoMeaning::Lasting || !reported);
                    attempts += 1;
                }
                // The device's MTU is less than the datagrams, which are not fragmented.
                ErrnoMeaning::TooBig if segments => {
                    return stopped(StopReason::Uncut { for_good: false });
                }
                _ => {
                    counters.trains_refused += 1;
                    let piece = self.pieces[first];
                    // SAFETY: the piece was laid out over bytes of the outbox or of a message,
                    // which stay borrowed until this call returns.
                    let start = unsafe {
                        slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                    };
                    let report = IcmpReport::refused(train.to, errno, start);
                    // Reports that arrive without a pause show nothing about this packet.
                    let certain = attempts < ATTEMPTS_MAX || what != ErrnoMeaning::Lasting;
                    let report = meaning(&report).filter(|_| certain);
                    report.into_iter().for_each(|report| reports.push(report));
                    self.done += 1;
                    (refusals, attempts) = (0, 0);
                }
            }
        }
        Ok(())
    }

    /// Sends `most` entries of the rest, or as much as the kernel takes in one call; true if
    /// nothing is left. An error is about the first entry that is not sent.
    fn flush(&mut self, fd: RawFd, most: usize) -> io::Result<bool> {
        self.headers.clear();
        for entry in self.entries.iter_mut().skip(self.done).take(most) {
            let mut header = libc::msghdr {
                msg_name: (&raw mut entry.name).cast(),
                msg_namelen: entry.name_len,
                msg_iov: ptr::null_mut(),
                msg_iovlen: entry.last - entry.first,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            };
            header.msg_iov = self.pieces[entry.first..entry.last].as_mut_ptr();
            if entry.control.len() > 0 {
                entry.control.attach(&mut header, false);
            }
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        let sent = match &mut self.headers[..] {
            // SAFETY: the header points to a name, a piece array and a control buffer owned by
            // `self`, whose vectors are not touched until the call returns; the pieces point into
            // the outbox and the messages that the caller of `fill` and `flush` keeps borrowed. The
            // kernel only reads.
            [one] => match unsafe { libc::sendmsg(fd, &raw const one.msg_hdr, 0) } {
                error if error < 0 => -1,
                _ => 1,
            },
            // SAFETY: as above, for as many headers as announced.
            all => unsafe { libc::sendmmsg(fd, all.as_mut_ptr(), all.len() as libc::c_uint, 0) },
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        self.done += sent as usize;
        Ok(self.done == self.entries.len())
    }
}

/// Where and why a batch stopped.
#[derive(Clone, Copy, Debug)]
pub struct SendStop {
    /// The train.
    pub train: usize,
    /// Bytes of it that were sent.
    pub offset: usize,
    /// The reason.
    pub why: StopReason,
}

/// Why a batch stopped.
#[derive(Clone, Copy, Debug)]
pub enum StopReason {
    /// The kernel does not split the train into segments.
    Uncut {
        /// True if the device cannot split any train; false if the reason is this train.
        for_good: bool,
    },
    /// There is no room.
    Full(Full),
}

/// Walks through the pieces of a train.
struct Cursor<'a, I> {
    pieces: I,
    rest: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a TrainPiece>> Cursor<'a, I> {
    /// Appends the next `len` bytes to `into`, as a gather list.
    fn take(
        &mut self,
        mut len: usize,
        outbox: &'a Outbox,
        messages: &'a dyn Gather,
        into: &mut Vec<libc::iovec>,
    ) {
        while len > 0 {
            if self.rest.is_empty() {
                self.rest = match self.pieces.next() {
                    Some(TrainPiece::Buffered(range)) => &outbox.bytes[range.clone()],
                    Some(TrainPiece::Message(span)) => messages.bytes(*span),
                    None => return,
                };
            }
            let (now, later) = self.rest.split_at(len.min(self.rest.len()));
            self.rest = later;
            len -= now.len();
            into.push(libc::iovec { iov_base: now.as_ptr().cast_mut().cast(), iov_len: now.len() });
        }
    }
}
