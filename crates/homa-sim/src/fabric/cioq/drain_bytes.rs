//! Drain-byte counters (DeTail §4.2.1): for each priority, the bytes of equal or higher priority in
//! a queue. A newly arriving packet of that priority would have to wait for them.
//!
//! Invariants: counters never grow with the level; the counter of level 0 equals the bytes in the
//! queue.

use homa_proto::LEVELS;

/// One counter per priority level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainBytes([u32; LEVELS]);

impl DrainBytes {
    /// A packet arrives.
    #[inline]
    pub fn arrive(&mut self, priority: u8, bytes: u32) {
        let upto = usize::from(priority).min(LEVELS - 1);
        self.0[..=upto].iter_mut().for_each(|counter| *counter += bytes);
    }

    /// A packet that had arrived departs.
    #[inline]
    pub fn depart(&mut self, priority: u8, bytes: u32) {
        let upto = usize::from(priority).min(LEVELS - 1);
        self.0[..=upto].iter_mut().for_each(|counter| *counter -= bytes);
    }

    /// The bytes that a packet of this priority would wait for.
    #[inline]
    pub fn at(&self, priority: u8) -> u32 {
        self.0[usize::from(priority).min(LEVELS - 1)]
    }

    /// The levels, as bits, whose counter satisfies a condition.
    #[inline]
    pub fn levels(&self, condition: impl Fn(u32) -> bool) -> u8 {
        let bit = |(level, bytes): (usize, &u32)| u8::from(condition(*bytes)) << level;
        self.0.iter().enumerate().map(bit).fold(0, |all, one| all | one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_waits_for_all_bytes_of_its_level_and_above() {
        let mut drain = DrainBytes::default();
        drain.arrive(7, 100);
        drain.arrive(2, 1_000);
        assert_eq!([0, 2, 3, 7].map(|level| drain.at(level)), [1_100, 1_100, 100, 100]);
        assert_eq!(drain.levels(|bytes| bytes > 100), 0b111);
        drain.depart(7, 100);
        assert_eq!([0, 2, 3, 7].map(|level| drain.at(level)), [1_000, 1_000, 0, 0]);
    }
}
