//! A coarse timing wheel: every live RPC has one entry, checked lazily (Homa's timers are
//! milliseconds).
//!
//! Invariants: entries fire at or after their time, never before; a stale entry (its RPC is gone or
//! was re-armed) is the caller's to ignore; order within a tick is order of arming.

use crate::table::Ref;
use crate::units::{Duration, Time};
use alloc::vec::Vec;

/// Length of a tick.
pub(crate) const TICK: Duration = Duration::millis(1);
const SLOTS: u64 = 256;

#[derive(Debug)]
pub(crate) struct Wheel {
    slots: [Vec<(u64, Ref)>; SLOTS as usize],
    occupied: [u64; (SLOTS / 64) as usize],
    /// All ticks before this one have fired.
    next: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { slots: [const { Vec::new() }; SLOTS as usize], occupied: [0; 4], next: 0 }
    }

    /// Arms an entry for `at` (at most 255 ticks ahead: then it fires early and is armed again).
    /// Returns the tick, by which the caller recognises the valid one of several entries.
    pub(crate) fn arm(&mut self, now: Time, at: Time, who: Ref) -> u64 {
        let current = now.0 / TICK.0;
        self.next = self.next.max(if self.is_empty() { current } else { self.next });
        let tick = at.0.div_ceil(TICK.0).clamp(self.next, self.next + SLOTS - 1).max(self.next);
        let slot = (tick % SLOTS) as usize;
        self.slots[slot].push((tick, who));
        self.occupied[slot / 64] |= 1 << (slot % 64);
        tick
    }

    fn is_empty(&self) -> bool {
        self.occupied == [0; 4]
    }

    /// The first tick that holds an entry.
    fn first(&self) -> Option<u64> {
        let start = self.next % SLOTS;
        (0..=4).find_map(|i| {
            let word = ((start / 64 + i) % 4) as usize;
            let mask = match i {
                0 => u64::MAX << (start % 64),
                4 => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            let slot = word as u64 * 64 + u64::from(bits.trailing_zeros());
            (bits != 0).then(|| self.next + (slot + SLOTS - start) % SLOTS)
        })
    }

    /// When the first entry fires.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.first().map(|tick| Time(tick * TICK.0))
    }

    /// Takes the entries of the first tick that is due, into `due`; false when none is.
    pub(crate) fn fire(&mut self, now: Time, due: &mut Vec<(u64, Ref)>) -> bool {
        let Some(tick) = self.first().filter(|tick| tick * TICK.0 <= now.0) else {
            return false;
        };
        let slot = (tick % SLOTS) as usize;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        self.next = tick + 1;
        due.clear();
        core::mem::swap(due, &mut self.slots[slot]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(index: u32) -> Ref {
        Ref { index, generation: 0 }
    }

    #[test]
    fn entries_fire_in_time_order_and_never_early() {
        arbtest::arbtest(|u| {
            let mut wheel = Wheel::new();
            let mut armed = std::collections::BTreeMap::new();
            let mut now = Time(u.int_in_range(0..=10_000_000_000)?);
            let mut due = Vec::new();
            for i in 0..u.int_in_range(1..=60u32)? {
                let at = now + Duration(u.int_in_range(0..=400_000_000)?);
                wheel.arm(now, at, who(i));
                armed.insert(i, at);
                now += Duration(u.int_in_range(0..=30_000_000)?);
                while wheel.fire(now, &mut due) {
                    for &(tick, r) in &due {
                        assert!(tick * TICK.0 <= now.0);
                        let at = armed.remove(&r.index).unwrap();
                        let early = at.0 > tick * TICK.0;
                        assert!(!early || at.0 - tick * TICK.0 < 400_000_000);
                    }
                }
            }
            let last = now + Duration::secs(1);
            while wheel.fire(last, &mut due) {
                due.iter().for_each(|(_, r)| assert!(armed.remove(&r.index).is_some()));
            }
            assert!(armed.is_empty() && wheel.deadline().is_none());
            Ok(())
        });
    }

    #[test]
    fn deadline_is_the_earliest_entry() {
        let mut wheel = Wheel::new();
        wheel.arm(Time::ZERO, Time(7_300_000), who(1));
        wheel.arm(Time::ZERO, Time(3_000_000), who(2));
        assert_eq!(wheel.deadline(), Some(Time(3_000_000)));
    }
}
