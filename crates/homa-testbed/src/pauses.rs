//! Pauses: times at which a thread of the rack made no progress, because its processor was taken
//! away or because one step took unusually long.
//!
//! A step is a poll of the sockets, one host's turn, or a round of the switch. An RPC that meets a
//! pause waits for this machine and not for the network, so that a tail is shown with and without
//! such RPCs. Threads that sleep between steps are watched as well, but their sleep does not count.
//!
//! Left out: the cause. A kernel thread, a hypervisor and a long copy of our own code look alike
//! from here.

use crate::RackConfig;

/// A step is a pause if it takes this many times longer than a full frame takes on a link.
const FRAMES: u64 = 2;

/// Pauses of several threads, as spans of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// From, to; nanoseconds.
    spans: Vec<(u64, u64)>,
}

impl Pauses {
    /// The shortest step that counts as a pause on such a rack, nanoseconds.
    pub fn shortest_ns(rack: &RackConfig) -> u64 {
        FRAMES * rack.full_frame_ns()
    }

    /// Notes a step, if it was as long as `shortest_ns`.
    pub(crate) fn step(&mut self, shortest_ns: u64, from: u64, to: u64) {
        if to.saturating_sub(from) >= shortest_ns {
            self.spans.push((from, to));
        }
    }

    /// The pauses of all threads in the order of time; pauses that overlap become one.
    pub(crate) fn merged(threads: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<_> = threads.into_iter().flat_map(|pauses| pauses.spans).collect();
        all.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => spans.push((from, to)),
            }
        }
        Self { spans }
    }

    /// Number of pauses.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// Their total, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.spans.iter().map(|(from, to)| to - from).sum()
    }

    /// Whether one of them lies between the two times, wholly or in part.
    pub fn meet(&self, from: u64, to: u64) -> bool {
        let after = self.spans.partition_point(|span| span.1 <= from);
        self.spans.get(after).is_some_and(|span| span.0 < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pauses_become_one_and_short_steps_are_none() {
        let [mut hosts, mut switch] = [Pauses::default(), Pauses::default()];
        for (from, to) in [(0, 100), (100, 199), (1_000, 1_500)] {
            hosts.step(100, from, to);
        }
        switch.step(100, 1_400, 1_700);
        switch.step(100, 50, 20);
        let pauses = Pauses::merged([hosts, switch]);
        assert_eq!((pauses.count(), pauses.total_ns()), (2, 800));
        for (from, to, met) in [
            (0, 1, true),
            (99, 100, true),
            (100, 1_000, false),
            (500, 1_001, true),
            (1_699, 9_000, true),
            (1_700, 9_000, false),
        ] {
            assert_eq!(pauses.meet(from, to), met, "{from} to {to}");
        }
    }
}
