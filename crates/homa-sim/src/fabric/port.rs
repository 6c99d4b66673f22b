//! The sending end of a link: waiting frames, serialisation, and the pipe behind it. The discipline
//! (`queue/`) decides where frames wait and which one is next.
//!
//! A port needs no event for "transmission finished". When an event touches it, waiting frames
//! [`start`](OutputPort::start) as they would have up to now: back to back, in the queue's order
//! among the frames that had arrived by then, at exactly the times of their service. The only event
//! of a port is the arrival of the first frame in its pipe at the far end; as long as a frame
//! waits, the pipe holds one.
//!
//! Invariants: service is back to back while frames wait; frames leave the pipe in the order of
//! their service; `queued` is the sum over all levels.

use homa_proto::Rate;

use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, PortSpec, Tier};

use super::frames::{Frame, List, NONE};

/// The data of a port that every hop reads, in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct OutputPort {
    /// When the frame in service has left.
    pub(crate) free_at: SimTime,
    /// When the last frame of the pipe arrives.
    last_at: SimTime,
    pub(crate) delay: SimDuration,
    /// Wire bytes of all frames that entered service, without the rests of interrupted frames.
    pub(crate) sent_bytes: u64,
    /// Frames in service and on the link.
    pipe: List,
    /// Picoseconds per byte; 0 if that is not a whole number.
    per_byte: u32,
    /// Rate in Mbit/s.
    pub(crate) mbps: u32,
    pub(crate) to: NodeId,
    /// Wire bytes that wait, without the frame in service.
    queued: u32,
    /// Most wire bytes held, including the frame in service; `MAX` if unlimited.
    pub(crate) limit: u32,
    /// Bit `n` set: list `n` holds a frame.
    occupied: u8,
    pub(crate) tier: Tier,
    /// The far end may forward a frame after its header.
    pub(crate) cut_through: bool,
    pub(crate) link: LinkState,
}

/// What becomes of the frames at the far end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// They take effect there.
    Up,
    /// They are lost, because the link is down.
    Down,
    /// They may take effect in another partition of the network (`engine/partitions/`).
    Crossing,
}

/// The frames that wait, in lists; most disciplines use one per level. They are apart from
/// [`OutputPort`], because many hops find an empty queue.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Levels([List; 8]);

impl Levels {
    pub const EMPTY: Self = Self([List::EMPTY; 8]);
}

/// Bytes that a switch needs before it forwards a frame: preamble, Ethernet, IP, part of UDP.
const HEADER: u32 = 64;

impl OutputPort {
    pub(crate) fn new(spec: &PortSpec, limit: u32) -> Self {
        let mut port = Self {
            free_at: SimTime::ZERO,
            last_at: SimTime::ZERO,
            delay: spec.delay,
            sent_bytes: 0,
            pipe: List::EMPTY,
            per_byte: 0,
            mbps: 1,
            to: spec.to,
            queued: 0,
            limit,
            occupied: 0,
            tier: spec.tier,
            cut_through: false,
            link: LinkState::Up,
        };
        port.set_rate(spec.rate);
        port
    }

    /// Makes this the sending end of a link into another partition. Its frames leave here as soon
    /// as they have left the port; the delay of the link passes on the way.
    pub(crate) fn cross(&mut self) {
        (self.delay, self.link) = (SimDuration::ZERO, LinkState::Crossing);
    }

    /// Sets the rate from the next frame on, in whole Mbit/s and at least one.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.mbps = u32::try_from(rate.0 / 1_000_000).unwrap_or(u32::MAX).max(1);
        let whole = 8_000_000 % self.mbps == 0;
        self.per_byte = if whole { 8_000_000 / self.mbps } else { 0 };
    }

    /// Picoseconds to serialise `bytes`, rounded up.
    #[inline(always)]
    fn serialisation(&self, bytes: u32) -> u64 {
        if self.per_byte != 0 {
            return u64::from(self.per_byte) * u64::from(bytes);
        }
        (8_000_000 * u64::from(bytes)).div_ceil(u64::from(self.mbps))
    }

    /// The first frame of the pipe, and the last, if the pipe is not empty.
    #[inline]
    pub(crate) fn first_and_last(&self) -> (u32, u32) {
        (self.pipe.head, self.pipe.tail)
    }

    /// The waiting frame that enters service next, or [`NONE`].
    #[inline]
    pub(crate) fn first_waiting(&self, levels: &Levels) -> u32 {
        match self.occupied.checked_ilog2() {
            Some(level) => levels.0[level as usize & 7].head,
            None => NONE,
        }
    }

    /// The waiting frame that enters service next, and the last one of a level, each [`NONE`] if
    /// absent.
    #[inline]
    pub(crate) fn waiting(&self, levels: &Levels, level: u8) -> (u32, u32) {
        if self.occupied == 0 {
            return (NONE, NONE);
        }
        (self.first_waiting(levels), levels.0[usize::from(level & 7)].tail)
    }

    /// Wire bytes that wait.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    /// True if a waiting frame should have entered service by `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: SimTime) -> bool {
        (self.occupied != 0) & (self.free_at <= now)
    }

    /// True if a frame that arrives at `now` has to wait.
    #[inline]
    pub(crate) fn is_busy(&self, now: SimTime) -> bool {
        (self.occupied != 0) | (self.free_at > now)
    }

    /// The frame in service at `now`.
    #[inline]
    pub(crate) fn in_service(&self, frames: &[Frame], now: SimTime) -> Option<Frame> {
        (self.free_at > now && !self.pipe.is_empty()).then(|| frames[self.pipe.tail as usize])
    }

    /// Wire bytes of the frame in service that have not left, if it leaves at `mbps` Mbit/s.
    #[inline]
    pub(crate) fn residual(&self, now: SimTime, mbps: u32) -> u32 {
        (self.free_at.since(now).0 * u64::from(mbps)).div_ceil(8_000_000) as u32
    }

    /// True if a frame waits and no arrival will touch the port again, because the frame in service
    /// was cut through and has already arrived.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.pipe.is_empty() & (self.occupied != 0)
    }

    /// When an event begins the service of a waiting frame, because nothing else will touch the
    /// port. Where links cross this is after the moment when the port becomes free, so that a frame
    /// that arrives then may be the next one.
    #[inline]
    pub(crate) fn begins_next(&self) -> SimTime {
        match self.link {
            LinkState::Crossing => SimTime(self.free_at.0 + 1),
            LinkState::Up | LinkState::Down => self.free_at,
        }
    }

    /// Puts a frame into service. Returns its arrival if the pipe was empty, because the port then
    /// needs an event.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        frames: &mut [Frame],
        slot: u32,
        at: SimTime,
    ) -> Option<SimTime> {
        let bytes = frames[slot as usize].bytes;
        self.occupy(at, bytes);
        self.launch(frames, slot)
    }

    /// Occupies the wire for `bytes` more; returns when it is free.
    #[inline(always)]
    pub(crate) fn occupy(&mut self, at: SimTime, bytes: u16) -> SimTime {
        self.sent_bytes += u64::from(bytes);
        self.free_at = SimTime(at.0 + self.serialisation(u32::from(bytes)));
        self.free_at
    }

    /// Puts a frame whose last bit leaves at `free_at` into the pipe. Returns its arrival as
    /// [`OutputPort::start`] does.
    #[inline(always)]
    pub(crate) fn launch(&mut self, frames: &mut [Frame], slot: u32) -> Option<SimTime> {
        let mut arrival = SimTime(self.free_at.0 + self.delay.0);
        if self.cut_through {
            let bytes = u32::from(frames[slot as usize].bytes);
            arrival.0 -= self.serialisation(bytes) - self.serialisation(bytes.min(HEADER));
        }
        self.launch_to(frames, slot, arrival)
    }

    /// As [`OutputPort::launch`], for a frame that takes effect at the far end at `arrival`.
    #[inline(always)]
    pub(crate) fn launch_to(
        &mut self,
        frames: &mut [Frame],
        slot: u32,
        arrival: SimTime,
    ) -> Option<SimTime> {
        let frame = &mut frames[slot as usize];
        frame.next = NONE;
        frame.gap = (arrival.0 - self.last_at.0) as u32;
        self.last_at = arrival;
        let alone = self.pipe.is_empty();
        self.pipe.append(frames, slot);
        alone.then_some(self.last_at)
    }

    /// Appends a frame to a list of waiting frames.
    #[inline(always)]
    pub(crate) fn wait(
        &mut self,
        levels: &mut Levels,
        frames: &mut [Frame],
        (list, slot): (u8, u32),
    ) {
        let frame = &mut frames[slot as usize];
        frame.next = NONE;
        let level = list & 7;
        self.queued += u32::from(frame.bytes);
        self.occupied |= 1 << level;
        levels.0[usize::from(level)].append(frames, slot);
    }

    /// Takes the first waiting frame of the highest level, if any.
    pub(crate) fn take_first(&mut self, levels: &mut Levels, frames: &[Frame]) -> Option<u32> {
        (self.occupied != 0).then(|| self.remove_first(levels, frames))
    }

    /// As [`OutputPort::take_first`]; some frame must wait.
    #[inline(always)]
    pub(crate) fn remove_first(&mut self, levels: &mut Levels, frames: &[Frame]) -> u32 {
        let level = (7 - self.occupied.leading_zeros()) & 7;
        let list = &mut levels.0[level as usize];
        let slot = list.head;
        let Frame { next, bytes, .. } = frames[slot as usize];
        list.head = next;
        self.occupied &= !(u8::from(next == NONE) << level);
        self.queued -= u32::from(bytes);
        slot
    }

    /// Puts an interrupted frame before the others of its level.
    pub(crate) fn wait_first(&mut self, levels: &mut Levels, frames: &mut [Frame], slot: u32) {
        let level = frames[slot as usize].priority() & 7;
        let list = &mut levels.0[usize::from(level)];
        let (first, tail) = (list.head, list.tail);
        *list = List::EMPTY;
        self.wait(levels, frames, (level, slot));
        if first != NONE {
            frames[slot as usize].next = first;
            levels.0[usize::from(level)].tail = tail;
        }
    }

    /// Hides the frames of these lists from [`OutputPort::highest`] and the choice of the next
    /// frame. Returns which lists of them hold frames, for [`OutputPort::show`].
    #[inline]
    pub(crate) fn hide(&mut self, lists: u8) -> u8 {
        let hidden = self.occupied & lists;
        self.occupied &= !lists;
        hidden
    }

    /// Ends what [`OutputPort::hide`] began.
    #[inline]
    pub(crate) fn show(&mut self, hidden: u8) {
        self.occupied |= hidden;
    }

    /// The lists that hold frames, as bits.
    #[inline]
    pub(crate) fn occupied(&self) -> u8 {
        self.occupied
    }

    /// The highest nonempty list.
    #[inline]
    pub(crate) fn highest(&self) -> Option<u8> {
        self.occupied.checked_ilog2().map(|list| list as u8)
    }

    /// The oldest frame of a list.
    #[inline]
    pub(crate) fn first_of(&self, levels: &Levels, list: u8) -> Option<u32> {
        (self.occupied >> (list & 7) & 1 != 0).then_some(levels.0[usize::from(list & 7)].head)
    }

    /// The frames of a list, oldest first.
    pub(crate) fn list(
        &self,
        levels: &Levels,
        frames: &[Frame],
        list: u8,
    ) -> impl Iterator<Item = u32> {
        let follow = |slot: &u32| Some(frames[*slot as usize].next).filter(|next| *next != NONE);
        std::iter::successors(self.first_of(levels, list), follow)
    }

    /// Takes a frame out of a list, at any position; false if it is not in the list.
    pub(crate) fn remove(
        &mut self,
        levels: &mut Levels,
        frames: &mut [Frame],
        (list, slot): (u8, u32),
    ) -> bool {
        let mut before = None;
        for waiting in self.list(levels, frames, list) {
            if waiting == slot {
                break;
            }
            before = Some(waiting);
        }
        let Frame { next, bytes, .. } = frames[slot as usize];
        let queue = &mut levels.0[usize::from(list & 7)];
        let there = match before {
            None => self.occupied >> (list & 7) & 1 != 0 && queue.head == slot,
            Some(before) => frames[before as usize].next == slot,
        };
        if !there {
            return false;
        }
        match before {
            None => queue.head = next,
            Some(before) => frames[before as usize].next = next,
        }
        if next == NONE {
            queue.tail = before.unwrap_or(NONE);
        }
        self.occupied &= !(u8::from(queue.head == NONE) << (list & 7));
        self.queued -= u32::from(bytes);
        true
    }

    /// Takes the first frame of the pipe, which arrives now, and returns the arrival of the next
    /// one. Waiting frames should enter service before. `None` if the pipe is empty, or if its only
    /// frame is still on the link and the event only had to start service.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        frames: &[Frame],
        now: SimTime,
    ) -> Option<(u32, Option<SimTime>)> {
        let slot = self.pipe.head;
        let next = frames.get(slot as usize)?.next;
        if (slot == self.pipe.tail) & (self.last_at != now) {
            return None;
        }
        self.pipe.head = next;
        let gap = frames.get(next as usize).map(|frame| u64::from(frame.gap));
        Some((slot, gap.map(|gap| SimTime(now.0 + gap))))
    }
}
