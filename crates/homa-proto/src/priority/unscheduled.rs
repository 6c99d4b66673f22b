//! Levels of unscheduled bytes (Homa §3.4): the receiver chooses them in advance, as cutoffs on the
//! message length, and the sender applies them.

use super::Levels;
use crate::config::{LEVELS, NO_LIMIT};

/// The cutoffs until traffic was measured: half of the levels, with the lengths of the kernel
/// module's cutoffs at boot.
pub(super) fn initial(levels: u8) -> [u32; LEVELS] {
    const LENGTHS: [u32; 4] = [200, 2_800, 15_000, NO_LIMIT];
    let mut cutoffs = [0; LEVELS];
    let unscheduled = (usize::from(levels) / 2).max(1);
    for (i, level) in (0..usize::from(levels)).rev().take(unscheduled).enumerate() {
        cutoffs[level] = LENGTHS[i];
    }
    cutoffs[usize::from(levels) - unscheduled] = NO_LIMIT;
    cutoffs
}

/// True if senders should be told of the change: another split, or a cutoff that moved by a
/// quarter.
pub(super) fn differs(old: &[u32; LEVELS], new: &[u32; LEVELS], levels: u8) -> bool {
    old.iter()
        .zip(new)
        .take(usize::from(levels))
        .any(|(&a, &b)| (a == 0) != (b == 0) || a.abs_diff(b) > a.min(b) / 4)
}

impl Levels {
    /// Homa §3.4: the receiver sent cutoffs; a message uses the highest level whose cutoff is not
    /// below its length.
    ///
    /// Example: the cutoffs are 200 bytes (level 7) and 2,800 bytes (level 6). A message of 1,000
    /// bytes uses level 6.
    #[inline]
    fn level_by_cutoffs(&self, cutoffs: &[u32; LEVELS], length: u32) -> u8 {
        let fits = |&level: &u8| cutoffs[usize::from(level)] >= length;
        (1..=self.top()).rev().find(fits).unwrap_or(0)
    }

    /// The level for unscheduled bytes of a message to a peer that sent us `cutoffs`.
    pub(crate) fn unscheduled_priority(&self, cutoffs: Option<&[u32; LEVELS]>, length: u32) -> u8 {
        match (cutoffs, self.top()) {
            (Some(cutoffs), _) => self.level_by_cutoffs(cutoffs, length),
            // Before the first CUTOFFS arrive, the second highest level (Linux §2.2).
            (None, top @ 2..) => top - 1,
            (None, top) => top,
        }
    }

    /// The level that our senders give to unscheduled bytes.
    pub(crate) fn own_unscheduled_priority(&self, length: u32) -> u8 {
        self.unscheduled_priority(Some(&self.cutoffs), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn shorter_messages_use_higher_levels() {
        let levels = Levels::new(&Config::linux());
        let (cutoffs, version) = levels.cutoffs();
        assert_eq!(version, 1);
        let at = |length| levels.unscheduled_priority(Some(&cutoffs), length);
        assert_eq!([at(200), at(201), at(1_000)], [7, 6, 6]);
        assert_eq!([at(15_000), at(15_001)], [5, 4]);
        assert_eq!(levels.unscheduled_priority(None, 1), 6);
    }

    #[test]
    fn few_levels_still_leave_one_for_each_kind() {
        assert_eq!(initial(1)[0], NO_LIMIT);
        assert_eq!(initial(2)[..2], [0, NO_LIMIT]);
        assert_eq!(initial(3)[..3], [0, 0, NO_LIMIT]);
        assert_eq!(initial(8), [0, 0, 0, 0, NO_LIMIT, 15_000, 2_800, 200]);
    }
}
