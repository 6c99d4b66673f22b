//! What the kernel still charges to our sockets (`SIOCOUTQ`), in wire bytes.
//!
//! It charges buffers, not payload, until the card's interrupt that reports them sent. How much a
//! wire byte costs is measured from what we hand down, and when nothing is charged any more, all of
//! it has left for certain.

use homa_proto::{Duration, Time};

/// Charge per wire byte before it is measured: a full packet in a buffer of 2,304 bytes.
const CHARGE: f64 = 2304.0 / 1538.0;
/// Least and most that a wire byte can cost: trains of full packets, and single small ones.
const CHARGES: [f64; 2] = [0.9, 32.0];
/// Least wire bytes of a packet, as far as rounding goes.
const FRAME_MIN: f64 = 60.0;
/// Spread before there are two measurements.
const FIRST_SPREAD: f64 = 0.1;
/// Least weight of a measurement.
const WEIGHT: f64 = 1.0 / 64.0;

/// See the module's documentation. Totals of wire bytes never wrap in the life of a host.
#[derive(Debug)]
pub struct Account {
    /// Handed down so far.
    pub handed: f64,
    /// Of that, known to have left.
    pub done: f64,
    /// Handed down before the last answer, or at its time.
    settled: f64,
    /// Time of the last answer.
    pub asked: Time,
    /// When something was handed down last.
    pub given: Time,
    /// Handed down since the last answer.
    pub unasked: u32,
    /// The last answer.
    charged: u32,
    charge: f64,
    /// How far measurements are from that, as a share of it: packets of all sizes differ.
    spread: f64,
    /// Usual wire bytes of a batch that was measured, and what they cost.
    batch: f64,
    batch_charge: f64,
    measured: u32,
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
pub struct AccountReport {
    /// Wire bytes that left since the last one.
    pub left: f64,
    /// Something that lay there at the last answer still does: the link was not idle since.
    pub busy: bool,
    /// Since the last answer: how uncertain it is when they left.
    pub since: Duration,
}

impl Account {
    /// Nothing handed down.
    pub fn new() -> Self {
        Self {
            handed: 0.0,
            done: 0.0,
            settled: 0.0,
            asked: Time::ZERO,
            given: Time::ZERO,
            unasked: 0,
            charged: 0,
            charge: CHARGE,
            spread: 0.0,
            batch: 0.0,
            batch_charge: 0.0,
            measured: 0,
        }
    }

    /// Notes what was handed down.
    pub fn sent(&mut self, now: Time, bytes: u32) {
        self.given = now;
        self.handed += f64::from(bytes);
        self.unasked = self.unasked.saturating_add(bytes);
        if now == self.asked {
            self.settled = self.handed;
        }
    }

    /// Wire bytes that have not left as far as known.
    pub fn outstanding(&self) -> f64 {
        self.handed - self.done
    }

    /// How many bytes more or fewer may be outstanding, since their sizes are not known.
    pub fn doubt(&self) -> f64 {
        // Single batches differ, the more of them the less; the average is not exact either.
        let outstanding = self.outstanding();
        self.spread * (3.0 * (outstanding * self.batch).sqrt() + outstanding / 4.0)
    }

    /// Takes in what is charged now.
    pub fn answer(&mut self, now: Time, charged: u32) -> AccountReport {
        let held = (f64::from(charged) / self.charge).min(self.outstanding());
        let mut done = if charged == 0 { self.handed } else { self.handed - held };
        // What other sizes explain is no report.
        let explained = (2.0 * self.doubt()).min(self.outstanding() / 8.0);
        if done - self.done < FRAME_MIN + if charged == 0 { 0.0 } else { explained } {
            done = self.done;
        }
        let left = done - self.done;
        let busy = done < self.settled;
        let since = now.since(self.asked);
        (self.done, self.settled, self.asked, self.unasked) = (done, self.handed, now, 0);
        self.charged = charged;
        AccountReport { left, busy, since }
    }

    /// All that was handed down before is known to have left, and of `sent` bytes since so much is
    /// charged.
    pub fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        (self.done, self.asked, self.charged, self.unasked) = (self.handed, now, 0, 0);
        self.sent(now, sent);
        self.measure(now, charged);
        self.answer(now, charged);
    }

    /// Batches until another measurement is of use.
    pub fn enough(&self) -> u32 {
        self.measured.min(16)
    }

    /// Measures the cost of a byte: so much is charged right after a batch.
    pub fn measure(&mut self, now: Time, charged: u32) {
        let [least, most] = CHARGES;
        let more = charged.saturating_sub(self.charged);
        let charge = f64::from(more) / f64::from(self.unasked.max(1));
        // Some of it left before we could ask: no measurement.
        if (now > self.asked && self.charged > 0) || charge < least {
            return;
        }
        let weight = (1.0 / f64::from(self.measured + 1)).max(WEIGHT);
        let off = (charge.min(most) - self.charge).abs() / self.charge;
        let off = if self.measured == 0 { FIRST_SPREAD } else { off };
        self.spread += (off - self.spread) * weight;
        // Of sums, not of quotients: a small packet costs much a byte, and counts little.
        self.batch += (f64::from(self.unasked) - self.batch) * weight;
        self.batch_charge += (f64::from(more) - self.batch_charge) * weight;
        self.charge = (self.batch_charge / self.batch).min(most);
        self.measured = self.measured.saturating_add(1);
    }
}
