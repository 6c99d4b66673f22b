//! Keeps the queue below us short: at most two full packets (Homa §4).
//!
//! Packets that already left cannot be overtaken, so the order of sending is decided as late as
//! possible: the pacer says how many bytes may be pulled now. It knows from two sources:
//! * a [`clock`]: when the link will be idle, from its rate. The next packet is pulled as long
//!   before
//!   as we have been late at such times: a thread that spins keeps hardly more than the packet on
//!   the wire below it, one that sleeps the second packet as well;
//! * an [`account`]: what the kernel says is still queued. A card keeps packets there until its
//!   next
//!   interrupt, up to some 100 µs after they left; a shaper until they leave; veth and TAP not at
//!   all, and what they release at once says nothing of a link behind them.
//!
//! Where the rate is known the clock goes by it, and the account shows whether it is true. Where it
//! is not, a link that [`fast_link`]s all we send gets growing batches; once it does not, a clock
//! learns its rate from the account, and probes for more (`clock::probe`). A question is a system
//! call: there is one per two full packets or per batch at most, and a glance at the account while
//! a packet is waited for.
//!
//! Sizes are wire bytes: with IP, Ethernet, preamble and gap. Control packets are charged, not held
//! back.

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
/// A link that sends four packets in this time outruns us: packets cost us more than bytes cost it.
const QUANTUM: Duration = Duration::micros(8);
/// After so many batches that were not charged for, the next question whether they are.
const TRUSTED: u32 = 16;
/// So many batches in a row not charged for: the link releases at once.
const RELEASED: u8 = 4;

/// See the module's documentation.
#[derive(Debug)]
pub struct LinkPacer {
    clock: PacingClock,
    rate_known: bool,
    /// The link takes what we send as fast as we send it, as far as known. Without a known rate
    /// only.
    fast_link: Option<FastLink>,
    /// Batches until the next question whether they are charged for.
    trusted: u32,
    /// Batches in a row that were not.
    released: u8,
    wake: Option<Time>,
    waits: u64,
}

impl LinkPacer {
    /// A pacer for a link of the given rate, or one that learns it.
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

    /// Takes another rate, or none: the route changed, or says what it did not say before.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.clock.set_rate(rate);
        self.rate_known = rate.is_some();
        if self.rate_known {
            self.fast_link = None;
        }
        self.wake = None;
    }

    /// The rate of the link by what the kernel said is still queued: a guess. `None` while the rate
    /// that was told holds, or no guess is possible.
    pub fn estimate(&self) -> Option<Rate> {
        self.clock.estimate().filter(|_| self.fast_link.is_none())
    }

    /// This many engines share the link now, this one included: each has an equal part of a rate
    /// that it was told. A rate that is learned is that part already.
    pub fn set_senders(&mut self, now: Time, senders: u32) {
        if self.rate_known && self.clock.set_senders(now, senders) {
            self.wake = None;
        }
    }

    /// Until when this one sends, where the rate was told: one that packets wait for hands down
    /// another, even if it comes a little late.
    pub fn sends_until(&self) -> Option<Time> {
        let waiting = self.wake.is_some();
        let until = if waiting { self.clock.idle_after_next() } else { self.clock.idle_at() };
        self.rate_known.then_some(until)
    }

    /// Wire bytes that may be pulled now; 0 while the queue is full. `queued` asks the kernel.
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
        // Two packets are outstanding at most when there is room for one more.
        if budget >= FULL_FRAME {
            self.wake = None;
            return budget;
        }
        self.waits += 1;
        self.wake = Some(wake);
        0
    }

    /// Notes what was handed down.
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

    /// The link that took all we sent does not any more: of so many bytes so much is charged.
    fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        self.fast_link = None;
        self.clock.begin(now, sent, charged);
        (self.trusted, self.released) = (0, 0);
    }

    /// Is what we just handed down charged for?
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

    /// True while the link takes whatever we send as fast as we send it, as far as known: then
    /// packets cost more than bytes, and the order of few of them matters little. That it is fast
    /// enough for larger batches takes more proof: this costs no queue.
    pub fn outruns_us(&self) -> bool {
        match &self.fast_link {
            Some(fast_link) => fast_link.outruns_us(),
            None => self.clock.bytes_in(QUANTUM) >= f64::from(4 * FULL_FRAME),
        }
    }

    /// Times that it held packets back.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// When there will be room again; `None` when there is room now.
    pub fn wake(&self) -> Option<Time> {
        self.wake
    }
}
