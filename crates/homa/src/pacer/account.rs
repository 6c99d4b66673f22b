//! The kernel's account of bytes that have not left our sockets (`SIOCOUTQ`), in wire bytes.
//!
//! The kernel charges buffers, not payload, until the card's interrupt reports them as sent. The
//! charge per wire byte is measured from the packets that we pass down. If nothing is charged any
//! more, everything has left for certain.

use homa_proto::{Duration, Time};

/// Charge per wire byte before it is measured: a full packet in a buffer of 2,304 bytes.
const CHARGE: f64 = 2304.0 / 1538.0;
/// Smallest and largest charge per wire byte: trains of full packets, and single small packets.
const CHARGES: [f64; 2] = [0.9, 32.0];
/// Smallest packet, wire bytes, allowing for rounding.
const FRAME_MIN: f64 = 60.0;
/// Spread before there are two measurements.
const FIRST_SPREAD: f64 = 0.1;
/// Smallest weight of a measurement.
const WEIGHT: f64 = 1.0 / 64.0;

/// See the module's documentation. Totals of wire bytes do not overflow in the life of a host.
#[derive(Debug)]
pub struct Account {
    /// Total passed down.
    pub handed: f64,
    /// The part of it that is known to have left.
    pub done: f64,
    /// Total passed down before or at the time of the last report.
    settled: f64,
    /// Time of the last report.
    pub asked: Time,
    /// When something was last passed down.
    pub given: Time,
    /// Passed down since the last report.
    pub unasked: u32,
    /// The charge in the last report.
    charged: u32,
    charge: f64,
    /// Relative deviation of measurements from `charge`, because packets have different sizes.
    spread: f64,
    /// Average wire bytes of a measured batch, and their charge.
    batch: f64,
    batch_charge: f64,
    measured: u32,
}

/// The result of a query.
#[derive(Clone, Copy, Debug)]
pub struct AccountReport {
    /// Wire bytes that left since the last query.
    pub left: f64,
    /// Some bytes have been queued since before the last query, so the link was not idle in
    /// between.
    pub busy: bool,
    /// Time since the last query, which is the uncertainty of when the bytes left.
    pub since: Duration,
}

impl Account {
    /// An account on which nothing was passed down.
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

    /// Adds bytes that were passed down.
    pub fn sent(&mut self, now: Time, bytes: u32) {
        self.given = now;
        self.handed += f64::from(bytes);
        self.unasked = self.unasked.saturating_add(bytes);
        if now == self.asked {
            self.settled = self.handed;
        }
    }

    /// Wire bytes that are not known to have left.
    pub fn outstanding(&self) -> f64 {
        self.handed - self.done
    }

    /// How far the outstanding bytes may be off, because packet sizes differ.
    pub fn doubt(&self) -> f64 {
        // The deviations of single batches partly cancel out; the average has an error, too.
        let outstanding = self.outstanding();
        self.spread * (3.0 * (outstanding * self.batch).sqrt() + outstanding / 4.0)
    }

    /// Processes the current charge.
    pub fn answer(&mut self, now: Time, charged: u32) -> AccountReport {
        let held = (f64::from(charged) / self.charge).min(self.outstanding());
        let mut done = if charged == 0 { self.handed } else { self.handed - held };
        // A difference that packet sizes can explain is not a report.
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

    /// Everything passed down before has left; `charged` is the charge of the `sent` bytes since
    /// then.
    pub fn begin(&mut self, now: Time, sent: u32, charged: u32) {
        (self.done, self.asked, self.charged, self.unasked) = (self.handed, now, 0, 0);
        self.sent(now, sent);
        self.measure(now, charged);
        self.answer(now, charged);
    }

    /// Batches until another measurement is useful.
    pub fn enough(&self) -> u32 {
        self.measured.min(16)
    }

    /// Measures the charge per byte: `charged` is the charge right after a batch.
    pub fn measure(&mut self, now: Time, charged: u32) {
        let [least, most] = CHARGES;
        let more = charged.saturating_sub(self.charged);
        let charge = f64::from(more) / f64::from(self.unasked.max(1));
        // Some of the batch left before the query, so this is not a measurement.
        if (now > self.asked && self.charged > 0) || charge < least {
            return;
        }
        let weight = (1.0 / f64::from(self.measured + 1)).max(WEIGHT);
        let off = (charge.min(most) - self.charge).abs() / self.charge;
        let off = if self.measured == 0 { FIRST_SPREAD } else { off };
        self.spread += (off - self.spread) * weight;
        // A ratio of averages, not an average of ratios: a small packet has a large charge per
        // byte, but matters little.
        self.batch += (f64::from(self.unasked) - self.batch) * weight;
        self.batch_charge += (f64::from(more) - self.batch_charge) * weight;
        self.charge = (self.batch_charge / self.batch).min(most);
        self.measured = self.measured.saturating_add(1);
    }
}
