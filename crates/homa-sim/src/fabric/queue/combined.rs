//! The discipline of input-queued switches. It is never called, because frames wait in the queues
//! of `engine/cioq`, which serve strict priorities on either side.

use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, Order, PortQueue, StrictPriority, WaitingFrames};

/// Marks ports of input-queued switches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Combined;

impl PortQueue for Combined {
    type Tag = ();

    const ORDER: Order = Order::Combined;

    const IS_COMBINED: bool = true;

    #[inline]
    fn tag(_: &Label, _: HostId) {}

    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, room: u64) -> Admission {
        StrictPriority.admit(waiting, slot, room)
    }

    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        StrictPriority.next(waiting)
    }
}
