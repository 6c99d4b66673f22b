//! The sending end of a link: strict-priority queue, serialisation, and the pipe behind it.
//!
//! A port needs no event of its own for "transmission finished". Whoever looks at it first lets the
//! waiting frames [`serve`](Port::serve) up to the present: back to back, in strict order of
//! priority among those that had arrived by then, at exactly the times at which they would have
//! entered service. The only event of a port is the arrival of the first frame in its pipe at the
//! far end, and as long as a frame waits there is one in the pipe. Invariants: service is back to
//! back while frames wait; frames leave the pipe in the order of their service; `queued` is the sum
//! over all levels.

use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{NodeId, PortSpec, Tier};

use super::frames::{Frame, List, NONE};

/// What every hop touches: one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// When the frame in service will have left.
    pub free_at: SimTime,
    /// When the last frame of the pipe arrives.
    last_at: SimTime,
    delay: SimDuration,
    /// Wire bytes of all frames that entered service.
    pub sent_bytes: u64,
    /// Frames in service and on the way.
    pipe: List,
    /// Picoseconds per byte; 0 when that is not a whole number.
    per_byte: u32,
    pub to: NodeId,
    /// Wire bytes waiting, the frame in service not included.
    queued: u32,
    /// Most wire bytes held, the frame in service included; `MAX`: no limit.
    limit: u32,
    /// Bit `n` set: level `n` holds a frame.
    occupied: u8,
    pub tier: Tier,
}

/// The frames that wait, by level. Apart from [`Port`]: many hops find no queue.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Levels([List; 8]);

impl Levels {
    pub const EMPTY: Self = Self([List::EMPTY; 8]);
}

/// A frame that enters service, for the probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub slot: u32,
    pub at: SimTime,
}

impl Port {
    pub fn new(spec: &PortSpec, limit: u32) -> Self {
        let rate = LinkRate::new(spec.rate);
        Self {
            free_at: SimTime::ZERO,
            last_at: SimTime::ZERO,
            delay: spec.delay,
            sent_bytes: 0,
            pipe: List::EMPTY,
            per_byte: u32::try_from(rate.serialisation(1).0).unwrap_or(0),
            to: spec.to,
            queued: 0,
            limit,
            occupied: 0,
            tier: spec.tier,
        }
    }

    /// The first frame of the pipe.
    #[inline]
    pub fn first(&self) -> u32 {
        self.pipe.head
    }

    /// Wire bytes waiting.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// True when a waiting frame should have entered service before `now` (or at `now`, too).
    #[inline]
    pub fn is_due(&self, now: SimTime) -> bool {
        (self.occupied != 0) & (self.free_at <= now)
    }

    /// True when a frame that comes at `now` has to wait.
    #[inline]
    pub fn is_busy(&self, now: SimTime) -> bool {
        (self.occupied != 0) | (self.free_at > now)
    }

    /// The frame in service at `now`.
    #[inline]
    pub fn in_service(&self, frames: &[Frame], now: SimTime) -> Option<Frame> {
        (self.free_at > now && !self.pipe.is_empty()).then(|| frames[self.pipe.tail as usize])
    }

    /// Wire bytes of the frame in service that have not left yet.
    #[inline]
    pub fn residual(&self, now: SimTime) -> u32 {
        let left = self.free_at.since(now).0;
        if left == 0 { 0 } else { left.div_ceil(u64::from(self.per_byte.max(1))) as u32 }
    }

    /// True when `bytes` more fit, the frame in service being held until its last bit has left.
    #[inline]
    pub fn fits(&self, frames: &[Frame], now: SimTime, bytes: u16) -> bool {
        if self.limit == u32::MAX {
            return true;
        }
        let in_service = self.in_service(frames, now).map_or(0, |frame| frame.bytes);
        self.queued + u32::from(in_service) + u32::from(bytes) <= self.limit
    }

    /// A frame enters service. Gives its arrival when it is alone in the pipe: the port's next
    /// event.
    #[inline]
    pub fn start(&mut self, frames: &mut [Frame], slot: u32, at: SimTime) -> Option<SimTime> {
        let frame = &mut frames[slot as usize];
        self.sent_bytes += u64::from(frame.bytes);
        self.free_at = SimTime(at.0 + u64::from(self.per_byte) * u64::from(frame.bytes));
        let arrival = SimTime(self.free_at.0 + self.delay.0);
        frame.next = NONE;
        frame.gap = (arrival.0 - self.last_at.0) as u32;
        self.last_at = arrival;
        let alone = self.pipe.is_empty();
        self.pipe.append(frames, slot);
        alone.then_some(arrival)
    }

    /// A frame waits behind those of its level.
    #[inline]
    pub fn wait(&mut self, levels: &mut Levels, frames: &mut [Frame], slot: u32) {
        let frame = &mut frames[slot as usize];
        frame.next = NONE;
        let level = frame.priority() & 7;
        self.queued += u32::from(frame.bytes);
        self.occupied |= 1 << level;
        levels.0[usize::from(level)].append(frames, slot);
    }

    /// The next waiting frame enters service, back to back with the one before. Some frame must be
    /// due.
    #[inline]
    pub fn serve(&mut self, levels: &mut Levels, frames: &mut [Frame]) -> Started {
        let level = (7 - self.occupied.leading_zeros()) & 7;
        let list = &mut levels.0[level as usize];
        let slot = list.head;
        let Frame { next, bytes, .. } = frames[slot as usize];
        list.head = next;
        self.occupied &= !(u8::from(next == NONE) << level);
        self.queued -= u32::from(bytes);
        let at = self.free_at;
        self.start(frames, slot, at);
        Started { slot, at }
    }

    /// The first frame of the pipe arrives now; when will the next one? Let waiting frames enter
    /// service before.
    #[inline]
    pub fn arrive(&mut self, frames: &[Frame], now: SimTime) -> (u32, Option<SimTime>) {
        let slot = self.pipe.head;
        let next = frames[slot as usize].next;
        self.pipe.head = next;
        let gap = frames.get(next as usize).map(|frame| u64::from(frame.gap));
        (slot, gap.map(|gap| SimTime(now.0 + gap)))
    }
}
