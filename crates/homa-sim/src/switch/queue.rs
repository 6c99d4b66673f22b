//! Strict-priority queue: eight levels, first in first out within a level, one byte limit for all.
//!
//! Invariants: `bytes` is the sum over all queued frames and never exceeds the limit; the bit of a
//! level is set exactly when its queue is not empty; every frame offered is counted once as
//! accepted or dropped. Drop-tail: the arriving frame is dropped, whatever its priority, as in a
//! switch whose ports share no memory between classes. A frame allocates nothing once the queues
//! have grown.

use std::collections::VecDeque;

use super::{Frame, LEVELS};

/// An arriving frame that did not fit, given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<F>(pub F);

/// What one level saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Frames accepted.
    pub frames: u64,
    /// Wire bytes accepted.
    pub bytes: u64,
    /// Frames dropped for want of buffer.
    pub dropped_frames: u64,
    /// Wire bytes dropped.
    pub dropped_bytes: u64,
}

/// What a queue saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// By priority level.
    pub levels: [LevelCounters; LEVELS],
    /// Most bytes buffered at once.
    pub max_bytes: u64,
}

impl QueueCounters {
    /// Frames dropped, all levels.
    pub fn dropped_frames(&self) -> u64 {
        self.levels.iter().map(|level| level.dropped_frames).sum()
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct StrictPriorityQueue<F> {
    levels: [VecDeque<F>; LEVELS],
    /// Bit `n` set: level `n` holds a frame.
    occupied: u8,
    bytes: u64,
    limit_bytes: u64,
    counters: QueueCounters,
}

impl<F: Frame> StrictPriorityQueue<F> {
    /// An empty queue that holds at most `limit_bytes` wire bytes over all levels.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            levels: std::array::from_fn(|_| VecDeque::new()),
            occupied: 0,
            bytes: 0,
            limit_bytes,
            counters: QueueCounters::default(),
        }
    }

    /// Appends a frame to its level, when the buffer holds `reserved` bytes besides those queued (a
    /// frame in service still occupies memory).
    pub fn push(&mut self, frame: F, reserved: u32) -> Result<(), Dropped<F>> {
        let level = usize::from(frame.priority()).min(LEVELS - 1);
        let bytes = u64::from(frame.bytes());
        let occupancy = self.bytes + bytes + u64::from(reserved);
        let counters = &mut self.counters.levels[level];
        if occupancy > self.limit_bytes {
            counters.dropped_frames += 1;
            counters.dropped_bytes += bytes;
            return Err(Dropped(frame));
        }
        counters.frames += 1;
        counters.bytes += bytes;
        self.counters.max_bytes = self.counters.max_bytes.max(occupancy);
        self.bytes += bytes;
        self.occupied |= 1 << level;
        self.levels[level].push_back(frame);
        Ok(())
    }

    /// Removes the oldest frame of the highest level that has one.
    pub fn pop(&mut self) -> Option<F> {
        let level = (u8::BITS - 1).checked_sub(self.occupied.leading_zeros())? as usize;
        let frame = self.levels[level].pop_front()?;
        if self.levels[level].is_empty() {
            self.occupied &= !(1 << level);
        }
        self.bytes -= u64::from(frame.bytes());
        Some(frame)
    }

    /// Wire bytes queued.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True without frames.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// What was counted.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Frame for (u32, u8) {
        fn bytes(&self) -> u32 {
            self.0
        }
        fn priority(&self) -> u8 {
            self.1
        }
    }

    #[test]
    fn higher_levels_first_and_arrival_order_within_a_level() {
        let mut queue = StrictPriorityQueue::new(10_000);
        for frame in [(100, 0), (200, 7), (300, 3), (400, 7), (500, 255)] {
            queue.push(frame, 0).unwrap();
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|f| f.0).collect();
        assert_eq!(order, [200, 400, 500, 300, 100]);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn one_limit_for_all_levels_drops_the_arriving_frame() {
        let mut queue = StrictPriorityQueue::new(1_000);
        queue.push((600, 0), 0).unwrap();
        assert_eq!(queue.push((500, 7), 0), Err(Dropped((500, 7))));
        assert_eq!(queue.push((300, 7), 101), Err(Dropped((300, 7))));
        queue.push((400, 7), 0).unwrap();
        let counters = queue.counters();
        assert_eq!((counters.max_bytes, counters.dropped_frames()), (1_000, 2));
        assert_eq!(counters.levels[7].dropped_bytes, 800);
        assert_eq!(counters.levels[0].frames, 1);
    }
}
