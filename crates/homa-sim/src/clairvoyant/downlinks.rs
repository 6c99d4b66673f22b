//! The receivers' links: each sends the message that has least left, and changes over at once and
//! for free.
//!
//! A link has no clock. It says when its first message will be through, and that moment comes back
//! as [`Downlinks::end`]; what changed meanwhile is told apart by its version.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{SimDuration, SimTime};

/// A link. The message being sent is in the heap like the others.
#[derive(Clone, Debug, Default)]
struct Downlink {
    /// Picoseconds left, job.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Up to when the first one's remainder is known.
    known: SimTime,
    /// Picoseconds in which it sent something, up to then.
    busy: u64,
    /// Counts changes, so that outdated ends are told apart.
    version: u64,
}

/// The first message of a link is through, unless the link's version changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    link: usize,
    version: u64,
}

impl End {
    /// Of which link.
    pub fn link(self) -> usize {
        self.link
    }
}

/// When to come back with an [`End`].
pub(crate) type Due = (SimTime, End);

/// See the module's description. Jobs are numbers; of two with as much left, the lower one goes
/// first.
#[derive(Clone, Debug)]
pub(crate) struct Downlinks(Vec<Downlink>);

impl Downlinks {
    pub fn new(links: u32) -> Self {
        Self(vec![Downlink::default(); links as usize])
    }

    /// A job reaches a link, on which it `needs` so long.
    pub fn join(&mut self, now: SimTime, at: usize, (job, needs): (usize, SimDuration)) -> Due {
        let link = &mut self.0[at];
        link.progress(now);
        link.waiting.push(Reverse((needs.0, job)));
        link.version += 1;
        let left = link.waiting.peek().map_or(0, |Reverse((left, _))| *left);
        (now + SimDuration(left), End { link: at, version: link.version })
    }

    /// The job that is through, if one is, and the link's next end.
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

    /// How long a link has sent something by now.
    pub fn busy(&self, now: SimTime, at: usize) -> SimDuration {
        let link = &self.0[at];
        let left = link.waiting.peek().map_or(0, |Reverse((left, _))| *left);
        SimDuration(link.busy + now.since(link.known).0.min(left))
    }
}

impl Downlink {
    /// Takes off the first one what was sent since the last look.
    fn progress(&mut self, now: SimTime) {
        if let Some(mut first) = self.waiting.peek_mut() {
            let sent = now.since(self.known).0.min(first.0.0);
            first.0.0 -= sent;
            self.busy += sent;
        }
        self.known = now;
    }
}
