//! Measures incoming traffic (Homa §3.4): the fraction of unscheduled bytes, and their distribution
//! over message lengths. The split of levels follows from the first, and from the second the
//! cutoffs, which give each unscheduled level equally many bytes (Homa Figure 4).
//!
//! Bytes count as on the wire. Control packets count as unscheduled bytes, because they travel at
//! the highest level. Old traffic fades by a sixteenth at each evaluation, so that about the last
//! 65,000 messages count; with fewer, the rare long messages of a heavy tail would come and go.

use crate::config::{LEVELS, NO_LIMIT};
use alloc::boxed::Box;

/// Buckets per doubling of the message length.
const STEPS: u32 = 16;
const BUCKETS: usize = (STEPS * 29) as usize;
/// Messages before the first evaluation; the distance to the next doubles up to `PERIOD`.
const FIRST: u32 = 256;
const PERIOD: u32 = 4096;
/// A control packet on the wire.
const CONTROL_BYTES: u64 = 84;

#[derive(Debug)]
pub(crate) struct Estimator {
    /// Unscheduled wire bytes by message length.
    unscheduled: Box<[u64; BUCKETS]>,
    unscheduled_total: u64,
    total: u64,
    until_due: u32,
    period: u32,
    /// Levels for unscheduled bytes at the last evaluation; 0 before the first.
    split: u8,
}

/// Lengths below 16 have a bucket each; from there on, a doubling has 16.
fn bucket(length: u32) -> usize {
    if length < STEPS {
        return length as usize;
    }
    let doubling = length.ilog2() - 4;
    (STEPS * (doubling + 1) + (length >> doubling) - STEPS) as usize
}

/// The largest length of a bucket.
fn upper(bucket: usize) -> u32 {
    let b = bucket as u32;
    if b < STEPS {
        return b;
    }
    let doubling = b / STEPS - 1;
    ((((b % STEPS) + STEPS + 1) << doubling) - 1).min(NO_LIMIT)
}

impl Estimator {
    pub(crate) fn new() -> Self {
        Self {
            unscheduled: Box::new([0; BUCKETS]),
            unscheduled_total: 0,
            total: 0,
            until_due: FIRST,
            period: FIRST,
            split: 0,
        }
    }

    /// An incoming message of `length` bytes, with `unscheduled` bytes that need no grant, in
    /// packets of `payload` bytes that cost `overhead` more on the wire.
    pub(crate) fn record(&mut self, length: u32, unscheduled: u32, payload: u32, overhead: u32) {
        let wire = |bytes: u32| {
            u64::from(bytes) + u64::from(bytes.div_ceil(payload)) * u64::from(overhead)
        };
        let first = wire(unscheduled.min(length));
        self.unscheduled[bucket(length)] += first;
        self.unscheduled_total += first;
        self.total += wire(length);
        self.until_due = self.until_due.saturating_sub(1);
    }

    pub(crate) fn record_control(&mut self) {
        self.unscheduled_total += CONTROL_BYTES;
        self.total += CONTROL_BYTES;
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.until_due == 0
    }

    /// The cutoffs for `levels` levels from the recorded traffic. Begins another period.
    pub(crate) fn allocate(&mut self, levels: u8) -> [u32; LEVELS] {
        // Homa §3.4: levels are divided in proportion to the bytes of both kinds.
        let unscheduled = self.unscheduled_levels(levels);
        self.split = unscheduled;
        let in_messages: u64 = self.unscheduled.iter().sum();
        let mut cutoffs = [0; LEVELS];
        let mut level = usize::from(levels) - 1;
        let lowest = usize::from(levels - unscheduled);
        let mut seen = 0;
        for (b, &bytes) in self.unscheduled.iter().enumerate() {
            seen += bytes;
            // Homa Figure 4: a level ends when it and those above carry their part of the bytes.
            while level > lowest
                && seen * u64::from(unscheduled)
                    >= in_messages * (usize::from(levels) - level) as u64
            {
                cutoffs[level] = upper(b);
                level -= 1;
            }
        }
        // The lowest unscheduled level takes the messages that are longer than any cutoff.
        cutoffs[lowest] = NO_LIMIT;
        self.fade();
        cutoffs
    }

    /// The number of levels for unscheduled bytes: their share, rounded to the nearest, but at
    /// least one level of each kind.
    ///
    /// If the share is near the middle between two splits, the longest messages would move it to
    /// and fro, and each change renumbers the levels of all senders. So another level for
    /// unscheduled bytes is added only a quarter beyond the middle, and removed at the middle: the
    /// loss of a scheduled level costs more, because their number is also the degree of
    /// overcommitment (Homa §3.5).
    fn unscheduled_levels(&self, levels: u8) -> u8 {
        // In quarters of a level.
        let quarters = |add: u64| {
            let share = self.unscheduled_total * u64::from(levels) * 4;
            (share / self.total.max(1) + add) / 4
        };
        let nearest = quarters(2);
        // Without a last split there is no reason to be reluctant.
        let split = match u64::from(self.split) {
            0 => nearest,
            now if nearest > now => quarters(1).max(now),
            _ => nearest,
        };
        (split as u8).clamp(1, levels.saturating_sub(1).max(1))
    }

    fn fade(&mut self) {
        let fade = |count: &mut u64| *count -= *count / 16;
        self.unscheduled.iter_mut().for_each(fade);
        fade(&mut self.unscheduled_total);
        fade(&mut self.total);
        self.period = (self.period * 2).min(PERIOD);
        self.until_due = self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_lies_in_its_bucket() {
        for length in (0..5000).chain([65_535, 65_536, 16 << 20, NO_LIMIT]) {
            let b = bucket(length);
            assert!(length <= upper(b), "{length}");
            assert!(b == 0 || length > upper(b - 1), "{length}");
        }
        assert!(bucket(NO_LIMIT) < BUCKETS);
    }

    #[test]
    fn a_share_near_the_middle_between_two_splits_settles_on_one() {
        let mut e = Estimator::new();
        let mut split_at = |tenths: u64| {
            (e.unscheduled_total, e.total) = (tenths, 80);
            e.allocate(8);
            e.split
        };
        // Tenths of a level: rounded at first, then up from three quarters, and down at the middle.
        let shares = [66, 65, 64, 66, 67, 68, 66, 65, 64, 80, 12, 17, 18, 24, 26, 2, 0];
        let splits = [7, 7, 6, 6, 6, 7, 7, 7, 6, 7, 1, 1, 2, 2, 2, 1, 1];
        assert_eq!(shares.map(&mut split_at), splits);
    }

    #[test]
    fn unscheduled_levels_carry_equal_bytes() {
        let mut e = Estimator::new();
        for length in 1..=4000 {
            e.record(length, 10_000, 1400, 0);
        }
        let cutoffs = e.allocate(8);
        assert_eq!(cutoffs[0], 0);
        // The bytes of messages up to length x grow as its square: level k of 7 ends at 4000 *
        // sqrt(k / 7).
        for (level, want) in [(7, 1512.0), (6, 2138.0), (5, 2619.0), (4, 3024.0), (3, 3381.0)] {
            let got = f64::from(cutoffs[level]);
            assert!((got / want - 1.0).abs() < 0.07, "level {level}: {got}, not {want}");
        }
        assert_eq!(cutoffs[1], NO_LIMIT);
    }
}
