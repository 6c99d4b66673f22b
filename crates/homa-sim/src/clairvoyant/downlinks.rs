//! The receivers' links. Each sends the message with the fewest bytes left, and switches between
//! messages at once and without cost.
//!
//! A link has no clock. It returns the time at which its first message ends, and that time comes
//! back as [`Downlinks::end`]; its version shows if it is outdated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{SimDuration, SimTime};

/// A link. The message in transmission is in the heap like the others.
#[derive(Clone, Debug, Default)]
struct Downlink {
    /// Picoseconds left, and the job.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The time for which the first job's remainder is exact.
    known: SimTime,
    /// Picoseconds spent sending, up to `known`.
    busy: u64,
    /// Number of changes, which identifies outdated ends.
    version: u64,
}

/// The first message of a link ends, unless the link's version has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    link: usize,
    version: u64,
}

impl End {
    /// The link.
    pub fn link(self) -> usize {
        self.link
    }
}

/// An [`End`], and when it is due.
pub(crate) type Due = (SimTime, End);

/// The links of all receivers. Jobs are numbers; if two have the same time left, the lower number
/// goes first.
#[derive(Clone, Debug)]
pub(crate) struct Downlinks(Vec<Downlink>);

impl Downlinks {
    pub fn new(links: u32) -> Self {
        Self(vec![Downlink::default(); links as usize])
    }

    /// A job that `needs` a time on a link arrives at it.
    pub fn join(&mut self, now: SimTime, at: usize, (job, needs): (usize, SimDuration)) -> Due {
        let link = &mut self.0[at];
        link.progress(now);
        link.waiting.push(Reverse((needs.0, job)));
        link.version += 1;
        let left = link.waiting.peek().map_or(0, |Reverse((left, _))| *left);
        (now + SimDuration(left), End { link: at, version: link.version })
    }

    /// The job that has ended, if any, and the link's next end.
    pub fn end(&mut self, now: SimTime, end: End) -> Option<(usize, Option<Due>)> {
        let link = &mut self.0[end.link];
        if link.version != end.version {
            return None;
        }
        link.progress(now);
        let Reverse((_, job)) = link.waiting.pop()?;
        link.version += 1;
        let next = link.waiting.peek().map(|Reverse((left, _))| {
            (now + SimDuration(*left), End { version: link.version, ..end })
        });
        Some((job, next))
    }

    /// The time that a link has spent sending until `now`.
    pub fn busy(&self, now: SimTime, at: usize) -> SimDuration {
        let link = &self.0[at];
        let left = link.waiting.peek().map_or(0, |Reverse((left, _))| *left);
        SimDuration(link.busy + now.since(link.known).0.min(left))
    }
}

impl Downlink {
    /// Subtracts the time since the last update from the first job.
    fn progress(&mut self, now: SimTime) {
        if let Some(mut first) = self.waiting.peek_mut() {
            let sent = now.since(self.known).0.min(first.0.0);
            first.0.0 -= sent;
            self.busy += sent;
        }
        self.known = now;
    }
}
