//! Strict priorities: the oldest frame of the highest nonempty level is sent, and a frame that does
//! not fit is dropped regardless of its priority (Homa §5.2, Table 1 of the paper: 8 levels).

use crate::fabric::Frame;
use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, Order, PortQueue, WaitingFrames};

/// Strict priorities. The type has no size and costs nothing at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrictPriority;

impl PortQueue for StrictPriority {
    type Tag = ();

    const ORDER: Order = Order::Strict;

    const IS_PREEMPTIBLE: bool = true;

    #[inline]
    fn tag(_: &Label, _: HostId) {}

    #[inline(always)]
    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, room: u64) -> Admission {
        let frame = waiting.frame(slot);
        if u64::from(frame.bytes) > room {
            return Admission::Dropped;
        }
        waiting.append(frame.priority(), slot);
        Admission::Queued
    }

    #[inline(always)]
    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        waiting.take_highest()
    }
}

/// Strict priority that counts the wire bytes which wait at each level, for queues that mark.
/// Invariant: the counts are those of the frames that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelBytes([u32; 8]);

impl LevelBytes {
    /// The bytes that wait at the level of a frame.
    #[inline]
    pub fn at_level_of(&self, frame: &Frame) -> u32 {
        self.0[usize::from(frame.priority())]
    }

    /// As [`PortQueue::admit`].
    #[inline]
    pub fn admit(
        &mut self,
        waiting: &mut WaitingFrames<'_, ()>,
        slot: u32,
        room: u64,
    ) -> Admission {
        let frame = waiting.frame(slot);
        let admission = StrictPriority.admit(waiting, slot, room);
        if admission == Admission::Queued {
            self.0[usize::from(frame.priority())] += u32::from(frame.bytes);
        }
        admission
    }

    /// As [`PortQueue::next`].
    #[inline]
    pub fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        let slot = waiting.take_highest();
        let frame = waiting.frame(slot);
        self.0[usize::from(frame.priority())] -= u32::from(frame.bytes);
        slot
    }
}
