//! A link that releases what it is given at once, or faster than we are: loopback, veth, TAP.
//!
//! A question is a system call, so it is asked once per two full packets or per batch, whichever is
//! longer. A link that has swallowed every batch by the time the question is asked, at 300 Mbit/s
//! or more, is faster than we are; the batch grows until it pays for itself. Single batches prove
//! nothing: they may be in a shaper's bucket, or this thread stood still before it asked.

use homa_proto::{FULL_FRAME, Rate, Time};

use super::QUEUE_MAX;

/// Largest batch on a link that is faster than we are: room for two full trains.
pub const BATCH_MAX: u32 = 120 * 1024;
/// So many times in a row nothing was queued any more: what we send does not fill the link, be it
/// fast or ours be little.
const IDLE_ANSWERS: u8 = 4;
/// A link that swallows at least this much at this rate is fast: no shaper's bucket holds that.
/// Half a million small RPCs a second are some 700 Mbit/s: at a higher rate here their batches
/// would stay small.
const DRAINED_MIN: u32 = 12 * FULL_FRAME;
const FAST: Rate = Rate::mbps(300);

/// See the module's documentation.
#[derive(Debug)]
pub struct FastLink {
    /// Sent since the last answer.
    pub unchecked: u32,
    /// What may be sent at once.
    pub batch: u32,
    /// Answers in a row that nothing was queued.
    idle_answers: u8,
    /// Bytes that left before we could ask, at no less than [`FAST`], and since when.
    drained: u32,
    since: Time,
}

impl FastLink {
    pub fn new(now: Time) -> Self {
        Self { unchecked: 0, batch: QUEUE_MAX, idle_answers: 0, drained: 0, since: now }
    }

    /// It takes whatever we send, as far as known.
    pub fn outruns_us(&self) -> bool {
        self.idle_answers >= IDLE_ANSWERS
    }

    /// Nothing was queued any more.
    pub fn idle(&mut self) {
        self.unchecked = 0;
        self.idle_answers = self.idle_answers.saturating_add(1);
    }

    /// All of a large batch left while we were sending it: more may go at once.
    pub fn drained(&mut self, now: Time, bytes: u32) {
        if self.is_fast(now) && bytes >= self.batch / 2 {
            self.batch = (2 * self.batch).min(BATCH_MAX);
        }
        self.drained = self.drained.saturating_add(bytes);
    }

    /// Judges what left before `now`: the clock stands still during a turn, however long it takes.
    fn is_fast(&mut self, now: Time) -> bool {
        let elapsed = now.since(self.since);
        if elapsed > FAST.time_for(u64::from(self.drained)) {
            (self.since, self.drained) = (now, 0);
        }
        now > self.since && self.drained >= DRAINED_MIN
    }
}
