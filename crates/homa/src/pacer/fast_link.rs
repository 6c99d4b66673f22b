//! A link that takes packets at once, or faster than we send: loopback, veth, TAP.
//!
//! A query of the queue is a system call, so it is made once per two full packets or per batch,
//! whichever is longer. If every batch has drained by the time of the query, at 300 Mbit/s or more,
//! the link is faster than we are, and the batch grows until the query pays for itself. Single
//! batches prove nothing, because they may be in the bucket of a shaper, or this thread may have
//! been stalled before the query.

use homa_proto::{FULL_FRAME, Rate, Time};

use super::QUEUE_MAX;

/// Largest batch on a link that is faster than we are: two full trains.
pub const BATCH_MAX: u32 = 120 * 1024;
/// After this many queries in a row that found nothing queued, our packets do not fill the link.
const IDLE_ANSWERS: u8 = 4;
/// A link that drains at least this much at this rate is fast, because no shaper's bucket holds as
/// much. Half a million small RPCs a second are about 700 Mbit/s: with a higher rate here, their
/// batches would stay small.
const DRAINED_MIN: u32 = 12 * FULL_FRAME;
const FAST: Rate = Rate::mbps(300);

/// See the module's documentation.
#[derive(Debug)]
pub struct FastLink {
    /// Sent since the last query.
    pub unchecked: u32,
    /// Bytes that may be sent at once.
    pub batch: u32,
    /// Consecutive queries that found nothing queued.
    idle_answers: u8,
    /// Bytes that drained before the query, at [`FAST`] or more, and since when.
    drained: u32,
    since: Time,
}

impl FastLink {
    pub fn new(now: Time) -> Self {
        Self { unchecked: 0, batch: QUEUE_MAX, idle_answers: 0, drained: 0, since: now }
    }

    /// True if the link takes packets as fast as we send them.
    pub fn outruns_us(&self) -> bool {
        self.idle_answers >= IDLE_ANSWERS
    }

    /// A query found nothing queued.
    pub fn idle(&mut self) {
        self.unchecked = 0;
        self.idle_answers = self.idle_answers.saturating_add(1);
    }

    /// All of a large batch drained while it was being sent, so the batch may grow.
    pub fn drained(&mut self, now: Time, bytes: u32) {
        if self.is_fast(now) && bytes >= self.batch / 2 {
            self.batch = (2 * self.batch).min(BATCH_MAX);
        }
        self.drained = self.drained.saturating_add(bytes);
    }

    /// Judges the bytes that drained before `now`. The engine's clock does not advance during a
    /// turn.
    fn is_fast(&mut self, now: Time) -> bool {
        let elapsed = now.since(self.since);
        if elapsed > FAST.time_for(u64::from(self.drained)) {
            (self.since, self.drained) = (now, 0);
        }
        now > self.since && self.drained >= DRAINED_MIN
    }
}
