//! Keeps the queue below us short: at most two full packets (Homa §4).
//!
//! Packets that have left cannot be overtaken, so the order of sending is decided as late as
//! possible: the pacer returns the bytes that may be pulled now. It has two sources:
//! * a [`clock`] computes from the rate when the link will be idle. The next packet is pulled early
//!   by as much as we have been late at such times. A thread that spins keeps hardly more than one
//!   packet below; a thread that sleeps keeps a second one;
//! * an [`account`] shows the bytes that the kernel counts as queued. A card keeps packets on it
//!   until its next interrupt, up to about 100 µs after they left; a shaper until they leave; veth
//!   and TAP not at all, which says nothing about a link behind them.
//!
//! If the rate is known, the clock uses it, and the account shows whether it is right. If it is not
//! known, a [`fast_link`] gets growing batches as long as it drains them. Once it does not, a clock
//! learns its rate from the account, and probes for more (`clock::probe`). A query is a system
//! call: there is at most one per two full packets or per batch, and one glance at the account
//! during a wait.
//!
//! Sizes are wire bytes: with IP, Ethernet, preamble, and gap. Control packets are charged, but not
//! delayed.

mod account;
#[cfg(test)]
pub mod card;
mod clock;
mod fast_link;
#[cfg(test)]
mod tests;

use homa_proto::{Duration, FULL_FRAME, Rate, Time};

use clock::PacingClock;
use fast_link::FastLink;

/// The limit of Homa §4: two full packets.
const QUEUE_MAX: u32 = 2 * FULL_FRAME;
/// A link that sends four packets in this time is faster than we are: a packet costs us more than
/// its bytes cost the link.
const QUANTUM: Duration = Duration::micros(8);
/// After this many batches that were not charged, the account is queried again.
const TRUSTED: u32 = 16;
/// After this many consecutive batches that were not charged, the link releases packets at once.
const RELEASED: u8 = 4;

/// See the module's documentation.
#[derive(Debug)]
pub struct LinkPacer {
    clock: PacingClock,
    rate_known: bool,
    /// Set while the rate is unknown and the link takes packets as fast as we send them.
    fast_link: Option<FastLink>,
    /// Batches until the next check that batches are charged.
    trusted: u32,
    /// Consecutive batches that were not charged.
    released: u8,
    wake: Option<Time>,
    waits: u64,
}

impl LinkPacer {
    /// A pacer for a link of the given rate; without one, it learns the rate.
    pub fn new(rate: Option<Rate>) -> Self {
        let fast_link = rate.is_none().then(|| FastLink::new(Time::ZERO));
        Self {
            clock: PacingClock::new(rate),
            rate_known: rate.is_some(),
            fast_link,
            trusted: 0,
            released: 0,
            wake: None,
            waits: 0,
        }
    }

    /// Changes the rate because the route or its rate changed.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.clock.set_rate(rate);
        self.rate_known = rate.is_some();
        if self.rate_known {
            self.fast_link = None;
        }
        self.wake = None;
    }

    /// An estimate of the rate from the kernel's account. `None` while the given rate is right, or
    /// if no estimate is possible.
    pub fn estimate(&self) -> Option<Rate> {
        self.clock.estimate().filter(|_| self.fast_link.is_none())
    }

    /// Sets the number of engines that share the link now, including this one. Each has an equal
    /// part of a given rate. A learned rate is that part already.
    pub fn set_senders(&mut self, now: Time, senders: u32) {
        if self.rate_known && self.clock.set_senders(now, senders) {
            self.wake = None;
        }
    }

    /// Until when this engine sends, if the rate is known. If packets wait, one more is passed
    /// down, even if a little late.
    pub fn sends_until(&self) -> Option<Time> {
        let waiting = self.wake.is_some();
        let until = if waiting { self.clock.idle_after_next() } else { self.clock.idle_at() };
        self.rate_known.then_some(until)
    }

    /// Wire bytes that may be pulled now; 0 while the queue is full. `queued` queries the kernel.
    pub fn budget(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) -> u32 {
        if self.wake.is_some_and(|wake| now < wake) {
            return 0;
        }
        if let Some(fast_link) = &mut self.fast_link
            && fast_link.unchecked < QUEUE_MAX
        {
            return fast_link.batch;
        }
        let queued = match self.fast_link.take() {
            None => Some(queued),
            Some(mut fast_link) => match queued().unwrap_or(0) {
                0 => {
                    fast_link.idle();
                    return self.fast_link.insert(fast_link).batch;
                }
                charged => {
                    self.begin(now, fast_link.unchecked, charged);
                    None
                }
            },
        };
        if let Some(wake) = self.wake {
            self.clock.came(now.since(wake));
        }
        let (budget, wake) = self.clock.budget(now, || queued.and_then(|queued| queued()));
        // If there is budget for one more packet, at most two are outstanding.
        if budget >= FULL_FRAME {
            self.wake = None;
            return budget;
        }
        self.waits += 1;
        self.wake = Some(wake);
        0
    }

    /// Charges bytes that were passed down.
    pub fn sent(&mut self, now: Time, bytes: u32, queued: impl FnOnce() -> Option<u32>) {
        let large = bytes >= QUEUE_MAX - FULL_FRAME;
        if let Some(fast_link) = &mut self.fast_link {
            fast_link.unchecked = fast_link.unchecked.saturating_add(bytes);
            if large {
                let sent = fast_link.unchecked;
                match queued().unwrap_or(0) {
                    0 => {
                        fast_link.idle();
                        fast_link.drained(now, bytes);
                    }
                    charged => self.begin(now, sent, charged),
                }
            }
            return;
        }
        self.clock.sent(now, bytes);
        if large && self.trusted == 0 {
            if let Some(charged) = queued() {
                self.verify(now, bytes, charged);
            }
        } else if large {
            self.trusted -= 1;
        }
    }

    /// The link no longer takes packets as fast as we send them: `charged` is the charge of `sent`
    /// bytes.
    fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        self.fast_link = None;
        self.clock.begin(now, sent, charged);
        (self.trusted, self.released) = (0, 0);
    }

    /// Checks whether the kernel charges what we just passed down.
    fn verify(&mut self, now: Time, bytes: u32, charged: u32) {
        if charged > 0 {
            self.trusted = self.clock.charged(now, bytes, charged);
            self.released = 0;
            return;
        }
        self.clock.disregard();
        self.released = self.released.saturating_add(1);
        if self.released >= RELEASED {
            self.trusted = TRUSTED;
            if !self.rate_known {
                self.fast_link = Some(FastLink::new(now));
            }
        }
    }

    /// True while the link takes packets as fast as we send them. Packets then cost more than
    /// bytes, and the order of a few packets matters little. Larger batches need more proof that
    /// the link is fast, but this decision costs no queue.
    pub fn outruns_us(&self) -> bool {
        match &self.fast_link {
            Some(fast_link) => fast_link.outruns_us(),
            None => self.clock.bytes_in(QUANTUM) >= f64::from(4 * FULL_FRAME),
        }
    }

    /// Times that packets were delayed.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// When there will be budget again; `None` if there is budget now.
    pub fn wake(&self) -> Option<Time> {
        self.wake
    }
}
