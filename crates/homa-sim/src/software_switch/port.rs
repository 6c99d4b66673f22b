//! An output port of a software switch: a queue and the link behind it, which carries one frame at
//! a time.
//!
//! A discipline of [`crate::fabric::queue`] decides which frame waits, is marked, is dropped or is
//! sent next; the port has the frames, the memory and the clock. It does not preempt a frame in
//! service. It stores and forwards: a frame departs when its last bit has left, and occupies the
//! buffer until then. If a frame finds the port idle, it is never dropped.
//!
//! Invariants: service is back to back while frames wait (the next frame starts when the last one
//! finished, even if the caller is late), departure times never decrease, and marks are those that
//! the simulator would set at these times. Left out: disciplines that evict, trim or return waiting
//! frames.

use crate::fabric::queue::{Admission, Order, PortQueue, WaitingFrames};
use crate::fabric::{self, Levels, StrictPriority};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortSpec, Tier};
use crate::transport::Label;

use super::SwitchFrame;

/// A frame that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// When its last bit left.
    pub at: SimTime,
    /// The port set a mark.
    pub marked: bool,
}

/// An arriving frame that did not fit, given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<F>(pub F);

/// An output port.
///
/// Calls should come in the order of time. Before `enqueue(now, …)`, take every departure up to
/// `now` with [`SoftwarePort::next`]; departures at exactly `now` may be taken after the frames
/// that arrive at `now`.
#[derive(Clone, Debug)]
pub struct SoftwarePort<F, Q: PortQueue = StrictPriority> {
    queue: Q,
    lists: fabric::OutputPort,
    levels: Levels,
    /// By slot: the header that the discipline reads, its tag, and the frame.
    headers: Vec<fabric::Frame>,
    tags: Vec<Q::Tag>,
    frames: Vec<Option<F>>,
    free: Vec<u32>,
    rate: LinkRate,
    limit_bytes: u64,
    /// Slot of the frame in service, and when its last bit leaves.
    in_service: Option<(u32, SimTime)>,
}

impl<F: SwitchFrame, Q: PortQueue> SoftwarePort<F, Q> {
    /// An idle port of a link of `rate`, with `buffer_bytes` shared by all priorities.
    pub fn new(rate: LinkRate, buffer_bytes: u64, queue: Q) -> Self {
        const {
            assert!(
                matches!(Q::ORDER, Order::Strict),
                "the software switch supports strict priorities only"
            )
        }
        // Only the lists of waiting frames of the simulator's port are used.
        let spec = PortSpec {
            from: NodeId(0),
            to: NodeId(0),
            tier: Tier::TorDown,
            rate: rate.rate(),
            delay: SimDuration::ZERO,
        };
        Self {
            queue,
            lists: fabric::OutputPort::new(&spec, u32::MAX),
            levels: Levels::EMPTY,
            headers: Vec::new(),
            tags: Vec::new(),
            frames: Vec::new(),
            free: Vec::new(),
            rate,
            limit_bytes: buffer_bytes,
            in_service: None,
        }
    }

    /// Queues a frame. If the buffer is full, the error gives it back.
    pub fn enqueue(&mut self, now: SimTime, frame: F) -> Result<(), Dropped<F>> {
        debug_assert!(
            self.in_service.is_none_or(|(_, at)| at >= now),
            "departures before {now:?} must be taken first"
        );
        let label = Label {
            priority: frame.priority().min(7),
            ..Label::new(HostId(0), frame.bytes().min(u32::from(u16::MAX)))
        };
        let mut header = fabric::Frame::new(&label);
        header.set(frame.marks());
        self.queue.arrives(&mut header, now);
        let slot = self.insert(header, Q::tag(&label, HostId(0)), frame);
        let Some((served, _)) = self.in_service else {
            self.begin(slot, now);
            return Ok(());
        };
        let held = u64::from(self.lists.queued()) + u64::from(self.headers[served as usize].bytes);
        let room = self.limit_bytes.saturating_sub(held);
        let Self { queue, lists: port, levels, headers: frames, tags, .. } = self;
        let admission = queue.admit(&mut WaitingFrames { port, levels, frames, tags }, slot, room);
        if admission == Admission::Queued {
            return Ok(());
        }
        self.take(slot).map_or(Ok(()), |(frame, _)| Err(Dropped(frame)))
    }

    /// The next frame whose last bit has left by `now`; starts the one after it. Call it until
    /// `None`.
    // Not an iterator, because the time is an argument.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: SimTime) -> Option<Departure<F>> {
        let (slot, at) = self.in_service.take_if(|(_, at)| *at <= now)?;
        let left = self.take(slot);
        if self.lists.queued() > 0 {
            let Self { queue, lists: port, levels, headers: frames, tags, .. } = self;
            let slot = queue.next(&mut WaitingFrames { port, levels, frames, tags });
            self.begin(slot, at);
        }
        left.map(|(frame, marked)| Departure { frame, at, marked })
    }

    /// The link has another rate from the next frame on.
    pub fn set_rate(&mut self, rate: LinkRate) {
        self.rate = rate;
    }

    /// When the frame in service leaves; call [`SoftwarePort::next`] then.
    pub fn departs(&self) -> Option<SimTime> {
        self.in_service.map(|(_, at)| at)
    }

    /// Wire bytes that wait, without the frame in service.
    pub fn waiting_bytes(&self) -> u32 {
        self.lists.queued()
    }

    /// Wire bytes in the buffer, including the frame in service.
    pub fn buffered_bytes(&self) -> u64 {
        let served = self.in_service.map(|(slot, _)| self.headers[slot as usize].bytes);
        u64::from(self.lists.queued()) + u64::from(served.unwrap_or(0))
    }

    /// Wire bytes that wait at `level` and above, which a frame of that level would wait for.
    pub fn drain_bytes(&self, level: u8) -> u32 {
        let lists = (level..8).flat_map(|l| self.lists.list(&self.levels, &self.headers, l));
        lists.map(|slot| u32::from(self.headers[slot as usize].bytes)).sum()
    }

    /// How long a frame that arrives now at the lowest level would wait for service.
    pub fn longest_wait(&self, now: SimTime) -> SimDuration {
        let in_service = self.in_service.map_or(SimDuration::ZERO, |(_, at)| at.since(now));
        in_service + self.rate.serialisation(self.lists.queued())
    }

    fn insert(&mut self, header: fabric::Frame, tag: Q::Tag, frame: F) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                let at = slot as usize;
                (self.headers[at], self.tags[at], self.frames[at]) = (header, tag, Some(frame));
                slot
            }
            None => {
                self.headers.push(header);
                self.tags.push(tag);
                self.frames.push(Some(frame));
                (self.headers.len() - 1) as u32
            }
        }
    }

    /// The first bit of a frame leaves.
    fn begin(&mut self, slot: u32, at: SimTime) {
        let header = &mut self.headers[slot as usize];
        self.queue.departs(header, at);
        self.in_service = Some((slot, at + self.rate.serialisation(u32::from(header.bytes))));
    }

    /// Takes a frame, which must be in no list, out of the port; true if it has new marks.
    fn take(&mut self, slot: u32) -> Option<(F, bool)> {
        let mut frame = self.frames[slot as usize].take()?;
        self.free.push(slot);
        let marks = self.headers[slot as usize].marks();
        let marked = marks != frame.marks();
        if marked {
            frame.mark(marks);
        }
        Some((frame, marked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Marks;
    use crate::fabric::queue::{EcnScope, EcnThreshold, Phantom, PhantomConfig};
    use homa_proto::Rate;

    impl SwitchFrame for (u32, u8) {
        fn bytes(&self) -> u32 {
            self.0
        }
        fn priority(&self) -> u8 {
            self.1
        }
    }

    const LINK: Rate = Rate::gbps(10);

    /// 10 Gbit/s, which is 800 ps per byte.
    fn port(buffer_bytes: u64) -> SoftwarePort<(u32, u8)> {
        SoftwarePort::new(LinkRate::new(LINK), buffer_bytes, StrictPriority)
    }

    fn drain(port: &mut SoftwarePort<(u32, u8)>, now: SimTime) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| port.next(now)).map(|d| (d.frame.0, d.at.0)).collect()
    }

    #[test]
    fn an_idle_port_still_takes_the_serialisation_time() {
        let mut port = port(10_000);
        port.enqueue(SimTime(5_000), (1_000, 0)).unwrap();
        assert_eq!(port.departs(), Some(SimTime(805_000)));
        assert_eq!(port.next(SimTime(804_999)), None);
        assert_eq!(drain(&mut port, SimTime(805_000)), [(1_000, 805_000)]);
        assert_eq!(port.departs(), None);
    }

    #[test]
    fn a_high_priority_frame_waits_for_the_frame_in_service_only() {
        let mut port = port(10_000);
        port.enqueue(SimTime(0), (1_000, 0)).unwrap();
        port.enqueue(SimTime(1), (1_100, 0)).unwrap();
        port.enqueue(SimTime(2), (100, 255)).unwrap();
        assert_eq!(
            (port.drain_bytes(7), port.drain_bytes(0), port.waiting_bytes()),
            (100, 1_200, 1_200)
        );
        assert_eq!(port.longest_wait(SimTime(400_000)), SimDuration(400_000 + 1_200 * 800));
        let late = SimTime(1_000_000_000);
        assert_eq!(drain(&mut port, late), [(1_000, 800_000), (100, 880_000), (1_100, 1_760_000)]);
    }

    #[test]
    fn a_late_caller_does_not_slow_the_link() {
        let mut port = port(10_000);
        for _ in 0..3 {
            port.enqueue(SimTime(0), (1_000, 0)).unwrap();
        }
        assert_eq!(drain(&mut port, SimTime(1_700_000)), [(1_000, 800_000), (1_000, 1_600_000)]);
        assert_eq!(port.departs(), Some(SimTime(2_400_000)));
    }

    #[test]
    fn a_frame_occupies_the_buffer_until_its_last_bit_has_left() {
        let mut port = port(1_500);
        port.enqueue(SimTime(0), (1_000, 0)).unwrap();
        assert_eq!(port.enqueue(SimTime(1), (501, 7)), Err(Dropped((501, 7))));
        port.enqueue(SimTime(1), (500, 7)).unwrap();
        assert_eq!(port.buffered_bytes(), 1_500);
        assert_eq!(drain(&mut port, SimTime(800_000)).len(), 1);
        assert_eq!(port.buffered_bytes(), 500);
        port.enqueue(SimTime(800_000), (1_000, 7)).unwrap();
        assert_eq!(port.buffered_bytes(), 1_500);
    }

    /// Number, bytes, marks.
    type Marked = (u32, u32, Marks);

    impl SwitchFrame for Marked {
        fn bytes(&self) -> u32 {
            self.1
        }
        fn priority(&self) -> u8 {
            0
        }
        fn marks(&self) -> Marks {
            self.2
        }
        fn mark(&mut self, marks: Marks) {
            self.2 = marks;
        }
    }

    /// Which of 60 full frames back to back are marked if every third has no ECT.
    fn marked<Q: PortQueue>(queue: Q) -> Vec<u32> {
        let mut port = SoftwarePort::new(LinkRate::new(LINK), u64::MAX, queue);
        for n in 0..60_u32 {
            let ect = Marks::NONE.with(Marks::ECT, !n.is_multiple_of(3));
            port.enqueue(SimTime(0), (n, 1_538, ect)).unwrap();
        }
        let left: Vec<_> = std::iter::from_fn(|| port.next(SimTime::MAX)).collect();
        assert_eq!(left.len(), 60);
        for Departure { frame, marked, .. } in &left {
            assert_eq!(*marked, frame.2.has(Marks::CE));
            assert!(!frame.2.has(Marks::CE) || frame.2.has(Marks::ECT), "{frame:?}");
        }
        left.iter().filter(|left| left.marked).map(|left| left.frame.0).collect()
    }

    #[test]
    fn disciplines_mark_as_they_do_in_the_simulator() {
        let ect = |n: &u32| !n.is_multiple_of(3);
        // As in `fabric/queue/phantom.rs`, the 20th of a train is the first above 1 KB.
        let phantom = Phantom::new(StrictPriority, Some(PhantomConfig::PAPER), LINK);
        assert_eq!(marked(phantom), (19..60).filter(ect).collect::<Vec<_>>());
        // One frame is in service, so the 12th finds ten waiting, which are more than 15,000 bytes.
        let threshold = EcnThreshold::new(15_000, EcnScope::Queue);
        assert_eq!(marked(threshold), (11..60).filter(ect).collect::<Vec<_>>());
        assert!(marked(StrictPriority).is_empty());
    }
}
