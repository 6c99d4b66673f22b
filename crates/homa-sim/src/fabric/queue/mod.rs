//! Queueing disciplines of a switch's port: which waiting frame it drops, marks, trims or evicts,
//! and which one it sends next.
//!
//! A discipline is a [`PortQueue`], with one value per port, chosen at compile time. The port keeps
//! the waiting frames in eight lists ([`WaitingFrames`]). The discipline decides which list a frame
//! joins and which frame is served, and may keep data per port (e.g. a counter or a random stream)
//! and per packet ([`PortQueue::Tag`]). If a frame finds the port idle, it never waits and the
//! discipline is not asked. Left out: the memory of a switch, which the engine computes and passes
//! in as `room`; preemption, which supports strict priorities only (`engine/preemption.rs`).

mod combined;
mod ecn;
mod pfabric;
mod phantom;
mod ramp;
mod red;
mod strict;
mod trimming;

pub use combined::Combined;
pub use ecn::{EcnScope, EcnThreshold};
pub use pfabric::{PriorityDrop, Ranked};
pub use phantom::{Phantom, PhantomConfig, PhantomOrder, PhantomPlace};
pub(crate) use ramp::CERTAIN;
pub use ramp::EcnRamp;
pub use red::Red;
pub use strict::StrictPriority;
pub use trimming::{Trimming, TrimmingConfig};

use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::Label;

use super::{Frame, Levels, Marks, OutputPort};

/// The rules of service and drops at a port that a trace can be verified against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Strict priority, first in, first out within a level. An arriving frame is dropped if and
    /// only if it does not fit.
    Strict,
    /// The discipline's own rule. A trace is verified only for a port that idles while a frame
    /// waits.
    Own,
    /// Frames also wait at the switch's inputs and for pauses, so that nothing can be verified.
    Combined,
}

/// A queueing discipline, with its state for one port.
pub trait PortQueue: Send {
    /// Data that it needs about every packet besides its [`Frame`], for example a rank; `()` if
    /// none.
    type Tag: Copy + Send;

    /// The order of service, for verification.
    const ORDER: Order = Order::Own;

    /// A frame of higher priority may interrupt the one in service. The discipline is not asked
    /// then.
    const IS_PREEMPTIBLE: bool = false;

    /// The switch also queues at its inputs (`engine/cioq`), and this discipline is never asked.
    const IS_COMBINED: bool = false;

    /// The tag of a packet that leaves host `from`.
    fn tag(label: &Label, from: HostId) -> Self::Tag;

    /// A frame arrives at the port. It is called for every frame, including those that do not wait
    /// or are lost.
    #[inline]
    fn arrives(&mut self, _frame: &mut Frame, _at: SimTime) {}

    /// A frame arrives and has to wait; the port's memory has `room` for that many wire bytes. A
    /// frame that is [`Queued`](Admission::Queued) or [`Trimmed`](Admission::Trimmed) is in a list
    /// afterwards.
    fn admit(
        &mut self,
        waiting: &mut WaitingFrames<'_, Self::Tag>,
        slot: u32,
        room: u64,
    ) -> Admission;

    /// Takes the frame that is sent next out of its list. At least one frame waits.
    fn next(&mut self, waiting: &mut WaitingFrames<'_, Self::Tag>) -> u32;

    /// The first bit of a frame leaves the port, whether the frame waited or not.
    #[inline]
    fn departs(&mut self, _frame: &mut Frame, _at: SimTime) {}
}

/// The decision about a frame that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits.
    Queued,
    /// It is lost.
    Dropped,
    /// This waiting frame was taken out of its list and is lost. The discipline is asked again
    /// about the arriving frame.
    Evicted(u32),
    /// The arriving frame waits, and this frame, either the arriving one or one that waited, lost
    /// its payload ([`WaitingFrames::trim`]).
    Trimmed(u32),
    /// This frame returns to its sender. If it is not the arriving frame, it was taken out of its
    /// list, and the discipline is asked again about the arriving one.
    Returned(u32),
}

/// The frames that wait at one port, in eight lists.
pub struct WaitingFrames<'a, Tag> {
    pub(crate) port: &'a mut OutputPort,
    pub(crate) levels: &'a mut Levels,
    pub(crate) frames: &'a mut [Frame],
    pub(crate) tags: &'a [Tag],
}

impl<Tag: Copy> WaitingFrames<'_, Tag> {
    /// Wire bytes that wait in all lists, without the frame in service.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.port.queued()
    }

    /// A frame of this port.
    #[inline]
    pub fn frame(&self, slot: u32) -> Frame {
        self.frames[slot as usize]
    }

    /// The tag of a packet, made when it left its host.
    #[inline]
    pub fn tag(&self, slot: u32) -> Tag {
        self.tags[slot as usize]
    }

    /// The frames of a list, oldest first.
    pub fn list(&self, list: u8) -> impl Iterator<Item = u32> {
        self.port.list(self.levels, self.frames, list)
    }

    /// The highest nonempty list, 0 to 7.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        self.port.highest()
    }

    /// True if a list is empty.
    #[inline]
    pub fn is_empty(&self, list: u8) -> bool {
        self.port.first_of(self.levels, list).is_none()
    }

    /// Appends a frame, which must be in no list, to a list.
    #[inline]
    pub fn append(&mut self, list: u8, slot: u32) {
        self.port.wait(self.levels, self.frames, (list, slot));
    }

    /// Takes the oldest frame out of the highest list; some frame must wait.
    #[inline(always)]
    pub fn take_highest(&mut self) -> u32 {
        self.port.remove_first(self.levels, self.frames)
    }

    /// Takes the oldest frame out of a list.
    pub fn take_first(&mut self, list: u8) -> Option<u32> {
        let slot = self.port.first_of(self.levels, list)?;
        self.take(list, slot).then_some(slot)
    }

    /// Takes a frame out of a list, which is searched from its head; false if it is not in it.
    pub fn take(&mut self, list: u8, slot: u32) -> bool {
        self.port.remove(self.levels, self.frames, (list, slot))
    }

    /// Sets CE in a frame's IP header (RFC 3168 §5).
    #[inline]
    pub fn mark_ce(&mut self, slot: u32) {
        self.frames[slot as usize].set(Marks::CE);
    }

    /// Trims a frame, which must be in no list, to `bytes` on the wire (its headers), and marks it.
    pub fn trim(&mut self, slot: u32, bytes: u16) {
        let frame = &mut self.frames[slot as usize];
        frame.bytes = frame.bytes.min(bytes);
        frame.set(Marks::TRIMMED);
    }

    /// Marks a trimmed frame as one of a last hop.
    pub fn note_last_hop(&mut self, slot: u32) {
        self.frames[slot as usize].set(Marks::LAST_HOP);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::topology::{NodeId, PortSpec, Tier};
    use homa_proto::Rate;

    /// A port with waiting frames but without a simulation.
    pub struct Bare<Q: PortQueue> {
        pub queue: Q,
        pub port: OutputPort,
        pub levels: Levels,
        pub frames: Vec<Frame>,
        pub tags: Vec<Q::Tag>,
    }

    impl<Q: PortQueue> Bare<Q> {
        pub fn new(queue: Q) -> Self {
            let spec = PortSpec {
                from: NodeId(1),
                to: NodeId(0),
                tier: Tier::TorDown,
                rate: Rate::gbps(10),
                delay: crate::SimDuration::ZERO,
            };
            let port = OutputPort::new(&spec, u32::MAX);
            Self { queue, port, levels: Levels::EMPTY, frames: Vec::new(), tags: Vec::new() }
        }

        pub fn arrives(&mut self, label: Label, room: u64) -> (u32, Admission) {
            let slot = self.frames.len() as u32;
            self.frames.push(Frame::new(&label));
            self.tags.push(Q::tag(&label, HostId(1)));
            let Self { queue, port, levels, frames, tags } = self;
            let mut waiting = WaitingFrames { port, levels, frames, tags };
            (slot, queue.admit(&mut waiting, slot, room))
        }

        pub fn next(&mut self) -> Option<u32> {
            let Self { queue, port, levels, frames, tags } = self;
            let mut waiting = WaitingFrames { port, levels, frames, tags };
            waiting.highest()?;
            Some(queue.next(&mut waiting))
        }
    }
}
