//! Connections with data to send: levels from 7 down, round-robin within a level.

use std::collections::VecDeque;

use super::table::Key;

/// Network priority levels.
const LEVELS: usize = 8;

/// See the module's description.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    levels: [VecDeque<Key>; LEVELS],
    /// One bit for each level that is not empty.
    occupied: u8,
}

impl ReadyQueue {
    /// Appends to a level, 0 to 7.
    #[inline]
    pub fn push(&mut self, level: u8, key: Key) {
        let level = usize::from(level) % LEVELS;
        self.levels[level].push_back(key);
        self.occupied |= 1 << level;
    }

    /// Removes and returns the first connection of the highest non-empty level among `levels`.
    #[inline]
    pub fn pop(&mut self, levels: u8) -> Option<Key> {
        let level = 7_u32.checked_sub((self.occupied & levels).leading_zeros())? as usize;
        let first = self.levels[level].pop_front();
        if self.levels[level].is_empty() {
            self.occupied &= !(1 << level);
        }
        first
    }

    /// Whether no connection is ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_levels_go_first_and_one_level_is_round_robin() {
        let key = |slot| Key { slot, generation: 0 };
        let mut ready = ReadyQueue::default();
        for (level, slot) in [(0, 1), (7, 2), (0, 3), (7, 4), (3, 5)] {
            ready.push(level, key(slot));
        }
        let order: Vec<u32> =
            std::iter::from_fn(|| ready.pop(u8::MAX)).map(|key| key.slot).collect();
        assert_eq!(order, [2, 4, 5, 1, 3]);
        ready.push(7, key(6));
        ready.push(2, key(7));
        assert_eq!((ready.pop(0x7f).map(|key| key.slot), ready.pop(0x7f)), (Some(7), None));
        assert_eq!(ready.pop(0x80).map(|key| key.slot), Some(6), "no longer paused");
        assert!(ready.is_empty());
    }
}
