//! Levels of scheduled bytes (Homa §3.4): a level per active message, the fewest remaining bytes
//! highest. The *lowest* levels are used first, so that a new message finds a higher one free (no
//! preemption lag, Figure 5).

use super::Levels;

impl Levels {
    /// Homa §3.4, Figure 5: each active message has its own level, and the lowest levels are used
    /// first. `rank` 0 has the fewest bytes left.
    ///
    /// Example: of 4 scheduled levels, one message gets level 0; two get levels 1 and 0.
    pub(crate) fn scheduled_priority(&self, rank: usize, active: usize) -> u8 {
        // If there are more messages than levels, the last ones share the lowest.
        let used = active.min(usize::from(self.scheduled_levels()));
        // Of the `used` lowest levels, the first message gets the highest.
        used.saturating_sub(1 + rank) as u8
    }

    /// How many levels carry scheduled bytes, at least 1.
    pub(crate) const fn scheduled_levels(&self) -> u8 {
        self.scheduled
    }

    /// Derives that number from new cutoffs.
    pub(super) fn count_scheduled(&mut self) {
        let free = self.cutoffs.iter().take(usize::from(self.levels)).take_while(|&&c| c == 0);
        // If there is one level only, both kinds of bytes share it.
        self.scheduled = (free.count() as u8).max(1);
    }

    /// The highest level for scheduled bytes.
    pub(crate) const fn scheduled_top(&self) -> u8 {
        self.scheduled_levels() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PriorityAllocation};
    use crate::units::Rate;

    #[test]
    fn a_lone_message_takes_the_lowest_level() {
        let mut config = Config::for_users(Rate::gbps(10));
        config.priorities =
            PriorityAllocation::Fixed { cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200] };
        let levels = Levels::new(&config);
        assert_eq!(levels.scheduled_levels(), 4);
        assert_eq!(levels.scheduled_priority(0, 1), 0);
        assert_eq!([0, 1].map(|r| levels.scheduled_priority(r, 2)), [1, 0]);
        let eight = [0, 1, 2, 3, 4, 5, 6, 7].map(|r| levels.scheduled_priority(r, 8));
        assert_eq!(eight, [3, 2, 1, 0, 0, 0, 0, 0]);
    }
}
