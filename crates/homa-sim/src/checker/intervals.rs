//! A set of byte ranges, kept as sorted disjoint intervals that do not touch.
//!
//! Deliberately unlike the protocol's gap list: it records the bytes present, and shares no code.

/// See the module's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(u32, u32)>);

impl Intervals {
    /// Adds the bytes from `start` up to but not including `end`; returns how many are new.
    pub fn add(&mut self, start: u32, end: u32) -> u32 {
        let before = self.bytes();
        if start >= end {
            return 0;
        }
        let (mut start, mut end) = (start, end);
        self.0.retain(|&(s, e)| {
            let touches = s <= end && start <= e;
            if touches {
                start = start.min(s);
                end = end.max(e);
            }
            !touches
        });
        let place = self.0.partition_point(|&(s, _)| s < start);
        self.0.insert(place, (start, end));
        self.bytes() - before
    }

    /// Whether every byte from `start` up to but not including `end` is present.
    pub fn contains(&self, start: u32, end: u32) -> bool {
        start >= end || self.0.iter().any(|&(s, e)| s <= start && end <= e)
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u32 {
        self.0.iter().map(|&(s, e)| e - s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_workload::rng::Rng;

    #[test]
    fn ranges_agree_with_one_flag_per_byte() {
        let mut rng = Rng::stream(1, "intervals");
        for _ in 0..200 {
            let (mut set, mut flags) = (Intervals::default(), [false; 64]);
            for _ in 0..12 {
                let (a, b) = (rng.uniform_below(65), rng.uniform_below(65));
                let range = a.min(b) as usize..a.max(b) as usize;
                let new = flags[range.clone()].iter().filter(|&&here| !here).count();
                flags[range].fill(true);
                assert_eq!(set.add(a.min(b), a.max(b)), new as u32);
                let (c, d) = (rng.uniform_below(65), rng.uniform_below(65));
                let all = flags[c.min(d) as usize..c.max(d) as usize].iter().all(|&here| here);
                assert_eq!(set.contains(c.min(d), c.max(d)), all);
            }
        }
    }
}
