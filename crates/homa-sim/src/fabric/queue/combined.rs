//! Ports of switches that queue at their inputs, too: frames wait where `engine/cioq` keeps them,
//! strict priorities on either side, and no port of this kind is ever asked.

use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, Order, PortQueue, StrictPriority, WaitingFrames};

/// See the module's description.
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
