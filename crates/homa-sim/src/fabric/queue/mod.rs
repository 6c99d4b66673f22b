//! What a switch port does with frames that must wait: which one it refuses, marks, shortens or
//! throws out, and which one it sends next.
//!
//! A discipline is a [`PortQueue`], one value per port, chosen at compile time. The port keeps the
//! waiting frames themselves in eight lists ([`Waiting`]); a discipline decides which list a frame
//! joins and which one is served, and may keep more about the port (a counter, a random stream)
//! and about each packet ([`PortQueue::Tag`]). Frames that find the port idle never wait and are
//! not asked about. Left out: the memory of a switch, which the engine reckons and hands in as
//! room; interruption of frames, which knows strict priorities only (`engine/preemption.rs`).

mod combined;
mod ecn;
mod pfabric;
mod phantom;
mod strict;
mod trimming;

pub use combined::Combined;
pub use ecn::{EcnScope, EcnThreshold};
pub use pfabric::{PriorityDrop, Ranked};
pub use phantom::{Phantom, PhantomConfig, PhantomOrder, PhantomPlace};
pub use strict::StrictPriority;
pub use trimming::{Trimming, TrimmingConfig};

use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::Label;

use super::{Frame, Levels, Marks, OutputPort};

/// What the order of service at a port obeys, and what is dropped there: what a judge of traces may
/// demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Strict order of priority, first in, first out within a level; an arriving frame is dropped
    /// when it does not fit, and only then.
    Strict,
    /// The queue's own: the judge demands that the port does not idle while a frame waits.
    Own,
    /// Frames wait at the inputs of the switch, too, and for pauses: the judge demands nothing.
    Combined,
}

/// A queueing discipline, with what it keeps of one port.
pub trait PortQueue {
    /// What it needs to know of every packet in the fabric besides its [`Frame`]: `()`, or a rank.
    type Tag: Copy;

    /// What its order of service obeys.
    const ORDER: Order = Order::Own;

    /// Frames of higher priority may interrupt the one in service: the queue has no say then.
    const IS_PREEMPTIBLE: bool = false;

    /// The switch queues at its inputs, too (`engine/cioq`), and the queue is never asked.
    const IS_COMBINED: bool = false;

    /// The tag of a packet that leaves host `from`.
    fn tag(label: &Label, from: HostId) -> Self::Tag;

    /// A frame arrives at the port, whether it will have to wait or not, or will be lost.
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

    /// The first bit of a frame leaves the port, whether it had to wait or not.
    #[inline]
    fn departs(&mut self, _frame: &mut Frame, _at: SimTime) {}
}

/// What becomes of a frame that arrives at a port and has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits.
    Queued,
    /// It is lost.
    Dropped,
    /// This waiting frame was taken out of its list and is lost. The queue is asked again about the
    /// arriving one.
    Evicted(u32),
    /// It waits, and this frame, itself or one that waited, lost its payload
    /// ([`Waiting::trim`]).
    Trimmed(u32),
    /// This frame goes back to its sender: the arriving one; or one that was taken out of its list,
    /// and the queue is asked again about the arriving one.
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

    /// What the queue noted of a packet when it left its host.
    #[inline]
    pub fn tag(&self, slot: u32) -> Tag {
        self.tags[slot as usize]
    }

    /// The frames of a list, oldest first.
    pub fn list(&self, list: u8) -> impl Iterator<Item = u32> {
        self.port.list(self.levels, self.frames, list)
    }

    /// The highest list, 0 to 7, that holds a frame.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        self.port.highest()
    }

    /// True when a list holds no frame.
    #[inline]
    pub fn is_empty(&self, list: u8) -> bool {
        self.port.first_of(self.levels, list).is_none()
    }

    /// A frame that is in no list waits behind those of one.
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

    /// Takes a frame out of a list; false when it is not there. The list is searched from its head.
    pub fn take(&mut self, list: u8, slot: u32) -> bool {
        self.port.remove(self.levels, self.frames, (list, slot))
    }

    /// Sets CE in a frame's IP header (RFC 3168 §5).
    #[inline]
    pub fn mark_ce(&mut self, slot: u32) {
        self.frames[slot as usize].set(Marks::CE);
    }

    /// Cuts a frame that is in no list to `bytes` on the wire, headers only, and marks it as cut.
    pub fn trim(&mut self, slot: u32, bytes: u16) {
        let frame = &mut self.frames[slot as usize];
        frame.bytes = frame.bytes.min(bytes);
        frame.set(Marks::TRIMMED);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::topology::{NodeId, PortSpec, Tier};
    use homa_proto::Rate;

    /// A port with waiting frames, without a simulation around it.
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
