//! Strict priorities: the oldest frame of the highest nonempty level is sent, and a frame that does
//! not fit is dropped regardless of its priority (Homa §5.2, Table 1 of the paper: 8 levels).

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
