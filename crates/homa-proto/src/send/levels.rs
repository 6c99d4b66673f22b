//! The levels of bytes that were granted and not sent (Homa §3.4): a GRANT gives its level to the
//! bytes that it allowed, and earlier ones keep theirs.

/// Runs of granted bytes with the same level per message; more are merged into the last.
const RUNS: usize = 4;

/// Runs of bytes with the same level, up to ascending offsets. The last run has no end: under the
/// kernel module's rule it is the only one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrantedLevels {
    ends: [u32; RUNS],
    levels: [u8; RUNS],
    /// Index of the last run.
    last: u8,
}

impl GrantedLevels {
    pub(crate) fn all(level: u8) -> Self {
        Self { levels: [level; RUNS], ..Self::default() }
    }

    /// Bytes up to `end` have `level`; those up to `sent` need none any more.
    pub(crate) fn push(&mut self, sent: u32, end: u32, level: u8) {
        // All bytes of the first run have left.
        while self.last > 0 && self.ends[0] <= sent {
            self.ends.rotate_left(1);
            self.levels.rotate_left(1);
            self.last -= 1;
        }
        let last = usize::from(self.last);
        let done = self.ends[last] <= sent;
        // A run of the same level grows. So does the last run if there is no room for another.
        if !done && self.levels[last] != level && last + 1 < RUNS {
            self.last += 1;
        }
        self.ends[usize::from(self.last)] = end;
        self.levels[usize::from(self.last)] = level;
    }

    pub(crate) fn at(&self, offset: u32) -> u8 {
        let last = usize::from(self.last);
        let run = self.ends[..last].iter().position(|&end| offset < end).unwrap_or(last);
        self.levels[run]
    }
}
