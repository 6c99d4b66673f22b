//! Which frames the two memories of a port have room for.
//!
//! By default a frame without room at its output waits at its input, and all levels count. Where
//! outputs drop (`CioqConfig::output_drops`), every frame crosses, the output drops those without
//! room, and lower levels do not count against a frame. That rule is fitted: DeTail does not say
//! what its switches without pauses drop, and of five rules this one has its published times
//! (DeTail §6.3).

use crate::fabric::cioq::drain_bytes::DrainBytes;

/// Wire bytes of a full frame. Outputs reserve two for each higher level.
const FULL: u32 = 1_538;

/// Level and wire bytes of a frame.
pub(super) type Size = (u8, u32);

/// The memory of a port and the rule for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Wire bytes of each side of a port.
    limit: u32,
    /// Wire bytes that a level leaves to each higher level at an output.
    reserve: u32,
    /// Outputs drop frames without room, and lower levels do not count.
    drops: bool,
}

impl Room {
    /// The memory of each side in wire bytes.
    pub fn new(limit: u32, drops: bool) -> Self {
        Self { limit, reserve: (2 * FULL).min(limit / 16), drops }
    }

    /// Wire bytes that an output may hold when a frame of a level crosses. A level leaves two full
    /// frames, or a sixteenth of the memory if that is less, to each higher level.
    #[inline]
    pub fn of_level(self, level: u8) -> u32 {
        self.limit - self.reserve * u32::from(7 - (level & 7))
    }

    /// True if an input has room for a frame besides what it holds.
    #[inline]
    pub fn at_input(self, held: &DrainBytes, (level, bytes): Size) -> bool {
        held.at(if self.drops { level } else { 0 }) + bytes <= self.limit
    }

    /// A bit for each level, set if the shortest frame of that level may cross to an output.
    #[inline]
    pub fn open_levels(self, held: &DrainBytes) -> u8 {
        const SHORTEST: u32 = 64;
        let held = held.at(0);
        if held == 0 || self.drops {
            return u8::MAX;
        }
        let open = |level: &u8| held + SHORTEST <= self.of_level(*level);
        (0..8).filter(open).fold(0, |levels, level| levels | 1 << level)
    }

    /// True if a frame may cross to an output that holds this. An empty queue takes any frame.
    #[inline]
    pub fn may_cross(self, held: &DrainBytes, (level, bytes): Size) -> bool {
        let held = held.at(0);
        self.drops || held == 0 || held + bytes <= self.of_level(level)
    }

    /// True if the output drops a frame that has crossed.
    #[inline]
    pub fn is_dropped(self, held: &DrainBytes, (level, bytes): Size) -> bool {
        let held = held.at(level);
        self.drops && held > 0 && held + bytes > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_levels_do_not_count_where_outputs_drop() {
        let mut held = DrainBytes::default();
        held.arrive(0, 90_000);
        held.arrive(7, 9_000);
        let (waits, drops) = (Room::new(100_000, false), Room::new(100_000, true));
        let (low, high) = ((0, 1_538), (7, 1_538));
        assert!(!waits.at_input(&held, low) && !waits.at_input(&held, high));
        assert!(!drops.at_input(&held, low) && drops.at_input(&held, high));
        assert!(!waits.may_cross(&held, low) && !waits.is_dropped(&held, low));
        assert!(drops.may_cross(&held, low) && drops.is_dropped(&held, low));
        assert!(drops.may_cross(&held, high) && !drops.is_dropped(&held, high));
        assert_eq!((waits.open_levels(&held), drops.open_levels(&held)), (1 << 7, u8::MAX));
    }
}
