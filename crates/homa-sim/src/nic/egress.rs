//! The egress queue of a host that marks its own packets (DeTail §4.2.4): strict priorities, drain
//! bytes per level, and a mark on packets that find more drain bytes, or more bytes of all levels,
//! than a threshold. The
//! transport then slows down, although no switch drops and back-pressure has reached the source.
//!
//! All packets that the transport may send wait here, as in an operating system's queue.
//! Invariants: packets of a level keep their order; the counters equal the queue. Left out: a limit
//! on its memory, because transports' windows have one.

use std::collections::VecDeque;

use crate::fabric::cioq::drain_bytes::DrainBytes;
use crate::transport::Label;
use homa_proto::LEVELS;

/// Packets that wait for the wire, by level.
#[derive(Debug)]
pub struct Egress<P> {
    queues: [VecDeque<(P, u32)>; LEVELS],
    drain: DrainBytes,
    /// Bytes above which a packet is marked.
    threshold: u32,
    /// Bytes of all levels count, not only those at the packet's level and above.
    whole: bool,
    /// Paused levels, as bits.
    pub paused: u8,
}

impl<P: Copy> Egress<P> {
    /// An empty queue that marks above `threshold` drain bytes, or with `whole` above that many
    /// bytes of all levels.
    pub fn new(threshold: u32, whole: bool) -> Self {
        let queues = std::array::from_fn(|_| VecDeque::new());
        Self { queues, drain: DrainBytes::default(), threshold, whole, paused: 0 }
    }

    /// True if an arriving packet should be marked.
    pub fn marks(&self, label: &Label) -> bool {
        let level = if self.whole { 0 } else { label.priority };
        label.ect && self.drain.at(level) > self.threshold
    }

    /// Appends a packet.
    pub fn push(&mut self, packet: P, label: &Label) {
        self.drain.arrive(label.priority, label.wire_bytes);
        let level = usize::from(label.priority).min(LEVELS - 1);
        self.queues[level].push_back((packet, label.wire_bytes));
    }

    /// Takes the oldest packet of the highest level that is not paused.
    pub fn pop(&mut self) -> Option<P> {
        let may_leave = |level: &usize| self.paused >> level & 1 == 0;
        let holds = |level: &usize| !self.queues[*level].is_empty();
        let level = (0..LEVELS).rev().filter(may_leave).find(holds)?;
        let (packet, bytes) = self.queues[level].pop_front()?;
        self.drain.depart(level as u8, bytes);
        Some(packet)
    }

    /// True if no packet may leave.
    pub fn is_idle(&self) -> bool {
        (0..LEVELS).all(|level| self.paused >> level & 1 != 0 || self.queues[level].is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::HostId;

    fn label(priority: u8) -> Label {
        Label { priority, ect: true, ..Label::new(HostId(1), 1_500) }
    }

    #[test]
    fn a_packet_is_marked_by_the_bytes_at_its_level_and_above() {
        let mut whole = Egress::new(3_000, true);
        (0..3).for_each(|number| whole.push(number, &label(0)));
        assert!(whole.marks(&label(7)), "4,500 bytes wait, of whatever level");
        let mut egress = Egress::new(3_000, false);
        for number in 0..3 {
            assert!(!egress.marks(&label(0)));
            egress.push(number, &label(0));
        }
        assert!(egress.marks(&label(0)), "4,500 bytes are in front");
        assert!(!egress.marks(&label(7)), "nothing is");
        assert!(!egress.marks(&Label { ect: false, ..label(0) }));
        egress.push(7, &label(7));
        egress.paused = 1 << 7;
        assert_eq!((egress.pop(), egress.pop()), (Some(0), Some(1)));
        egress.paused = 0;
        assert_eq!((egress.pop(), egress.pop(), egress.pop()), (Some(7), Some(2), None));
        assert!(egress.is_idle() && !egress.marks(&label(0)));
    }
}
