//! Strict priorities with marks between two thresholds, as switches of RDMA networks have them
//! (DCQCN, SIGCOMM 2015, §3.1; HPCC's simulator, `switch-mmu.cc`, revision 9f4be2a).
//!
//! A frame with ECT that leaves is marked by a ramp ([`EcnRamp`]) over the wire bytes of its level
//! that stay behind, at that instant. Left out: averages, and drops of frames without ECT.

use homa_workload::rng::Rng;

use crate::fabric::{Frame, Marks};
use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::Label;

use super::strict::LevelBytes;
use super::{Admission, EcnRamp, Order, PortQueue, WaitingFrames};

/// Strict priorities with a ramp of marks.
#[derive(Debug)]
pub struct Red {
    ramp: EcnRamp,
    rng: Rng,
    level_bytes: LevelBytes,
}

impl Red {
    /// The queue of port number `port`.
    pub fn new(ramp: EcnRamp, seed: u64, port: u32) -> Self {
        let own = seed ^ u64::from(port) << 32;
        Self { ramp, rng: Rng::stream(own, "RED marks"), level_bytes: LevelBytes::default() }
    }
}

impl PortQueue for Red {
    type Tag = ();

    const ORDER: Order = Order::Strict;

    #[inline]
    fn tag(_: &Label, _: HostId) {}

    #[inline]
    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, room: u64) -> Admission {
        self.level_bytes.admit(waiting, slot, room)
    }

    #[inline]
    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        self.level_bytes.next(waiting)
    }

    #[inline]
    fn departs(&mut self, frame: &mut Frame, _: SimTime) {
        let behind = self.level_bytes.at_level_of(frame);
        if frame.marks().has(Marks::ECT) && self.ramp.marks(behind, &mut self.rng) {
            frame.set(Marks::CE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::queue::tests::Bare;

    #[test]
    fn a_frame_is_marked_by_the_bytes_of_its_level_behind_it() {
        // A step: more than 2000 bytes behind a frame mark it.
        let mut port = Bare::new(Red::new(EcnRamp::to_one(2_000, 2_000), 1, 0));
        for (priority, ect) in [(0, true), (0, true), (0, false), (0, true), (7, true)] {
            let label = Label { priority, ect, ..Label::new(HostId(0), 1_000) };
            assert_eq!(port.arrives(label, u64::MAX).1, Admission::Queued);
        }
        let mut marked = Vec::new();
        while let Some(slot) = port.next() {
            let frame = &mut port.frames[slot as usize];
            port.queue.departs(frame, SimTime::ZERO);
            marked.push((slot, frame.marks().has(Marks::CE)));
        }
        // The frame of the highest level leaves first, with nothing of its level behind it.
        assert_eq!(marked, [(4, false), (0, true), (1, false), (2, false), (3, false)]);
        assert_eq!(port.queue.level_bytes, LevelBytes::default());
    }
}
