//! A coarse timing wheel: the slot of every live RPC has one entry, which is checked lazily (Homa's
//! timers are milliseconds).
//!
//! Invariants: an entry fires at or after its time, never before; within a tick the order is that
//! of arming. An entry belongs to the slot of the table, not to the RPC: the next RPC in the slot
//! mostly needs no other entry, and one that fires too early costs only a check.

use crate::units::{Duration, Time};
use alloc::vec::Vec;

/// Length of a tick.
pub(crate) const TICK: Duration = Duration::millis(1);
const SLOTS: u64 = 256;

#[derive(Debug)]
pub(crate) struct Wheel {
    /// Slots of the wheel; each tick within the horizon has one. Empty before the first entry,
    /// because in a simulation without timers this would be half of every endpoint.
    slots: Vec<Vec<u32>>,
    occupied: [u64; (SLOTS / 64) as usize],
    /// All ticks before this one have fired.
    next: u64,
    /// The first tick that has an entry; [`u64::MAX`]: none.
    first: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), occupied: [0; 4], next: 0, first: u64::MAX }
    }

    /// Arms an entry for `at`, unless `armed`, the tick of the slot's present one, is early enough.
    /// An entry more than 255 ticks ahead fires early and is armed again.
    pub(crate) fn arm(&mut self, now: Time, at: Time, index: u32, armed: &mut u64) {
        // The slot's entry fires early enough, and is then armed again for `at`.
        if *armed != 0 && *armed <= at.0 / TICK.0 {
            return;
        }
        // The wheel is empty: it continues from the present, not from its last entry.
        if self.first == u64::MAX {
            self.next = self.next.max(now.0 / TICK.0).max(1);
        }
        let tick = at.0.div_ceil(TICK.0).clamp(self.next, self.next + SLOTS - 1);
        if *armed != 0 && *armed <= tick {
            return;
        }
        *armed = tick;
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS as usize, Vec::new);
        }
        let slot = (tick % SLOTS) as usize;
        self.slots[slot].push(index);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.first = self.first.min(tick);
    }

    /// The first tick that holds an entry, from `next` on.
    fn search(&self) -> u64 {
        let start = self.next % SLOTS;
        let found = (0..=4).find_map(|i| {
            // Four words, and the first one again for the slots before `start`.
            let word = ((start / 64 + i) % 4) as usize;
            let mask = match i {
                0 => u64::MAX << (start % 64),
                4 => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            let slot = word as u64 * 64 + u64::from(bits.trailing_zeros());
            (bits != 0).then(|| self.next + (slot + SLOTS - start) % SLOTS)
        });
        found.unwrap_or(u64::MAX)
    }

    /// When the first entry fires.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.first != u64::MAX).then(|| Time(self.first * TICK.0))
    }

    /// Moves the entries of the first tick that is due to `due`, and returns the tick.
    pub(crate) fn fire(&mut self, now: Time, due: &mut Vec<u32>) -> Option<u64> {
        let tick = self.first;
        if tick > now.0 / TICK.0 {
            return None;
        }
        let slot = (tick % SLOTS) as usize;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        // Entries that are armed while these are handled belong to a later tick.
        self.next = tick + 1;
        self.first = self.search();
        due.clear();
        core::mem::swap(due, &mut self.slots[slot]);
        Some(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fire_in_time_order_and_never_early() {
        arbtest::arbtest(|u| {
            let mut wheel = Wheel::new();
            let mut wanted = std::collections::BTreeMap::new();
            let mut now = Time(u.int_in_range(0..=10_000_000_000)?);
            let mut due = Vec::new();
            for i in 0..u.int_in_range(1..=60u32)? {
                let at = now + Duration(u.int_in_range(0..=400_000_000)?);
                wheel.arm(now, at, i, &mut 0);
                wanted.insert(i, at);
                now += Duration(u.int_in_range(0..=30_000_000)?);
                while let Some(tick) = wheel.fire(now, &mut due) {
                    assert!(tick * TICK.0 <= now.0);
                    for index in &due {
                        let at = wanted.remove(index).unwrap();
                        let early = at.0 > tick * TICK.0;
                        assert!(!early || at.0 - tick * TICK.0 < 400_000_000);
                    }
                }
            }
            let last = now + Duration::secs(1);
            while wheel.fire(last, &mut due).is_some() {
                due.iter().for_each(|index| assert!(wanted.remove(index).is_some()));
            }
            assert!(wanted.is_empty() && wheel.deadline().is_none());
            Ok(())
        });
    }

    #[test]
    fn deadline_is_the_earliest_entry() {
        let mut wheel = Wheel::new();
        wheel.arm(Time::ZERO, Time(7_300_000), 1, &mut 0);
        wheel.arm(Time::ZERO, Time(3_000_000), 2, &mut 0);
        assert_eq!(wheel.deadline(), Some(Time(3_000_000)));
    }

    #[test]
    fn a_slot_that_is_looked_at_in_time_gets_no_second_entry() {
        let mut wheel = Wheel::new();
        let (mut due, mut armed) = (Vec::new(), 0);
        wheel.arm(Time::ZERO, Time(5_000_000), 1, &mut armed);
        wheel.arm(Time::ZERO, Time(9_000_000), 1, &mut armed);
        assert_eq!((wheel.fire(Time(9_000_000), &mut due), due.as_slice()), (Some(5), &[1][..]));
        assert_eq!(wheel.deadline(), None);
        wheel.arm(Time(9_000_000), Time(20_000_000), 1, &mut 0);
        wheel.arm(Time(9_000_000), Time(15_000_000), 1, &mut 20);
        assert_eq!(wheel.deadline(), Some(Time(15_000_000)));
    }
}
