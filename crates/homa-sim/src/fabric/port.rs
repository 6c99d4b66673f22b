//! The sending end of a link: strict-priority queue, serialisation, and the pipe behind it.
//!
//! A port needs no event of its own for "transmission finished". Whoever looks at it first lets it
//! [`advance`](Port::advance) to the present: waiting frames enter service back to back, in strict
//! order of priority among those that had arrived by then, at exactly the times at which they would
//! have. The only event of a port is the arrival of the first frame in its pipe at the far end, and
//! as long as a frame waits there is one in the pipe. Invariants: service is back to back while
//! frames wait; frames leave the pipe in the order of their service; `queued` is the sum over all
//! levels.

use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{NodeId, PortSpec};

use super::frames::{Frame, List};

/// Two cache lines: the second, the queues, is touched only when frames wait.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Port {
    /// When the frame in service will have left.
    pub free_at: SimTime,
    delay: SimDuration,
    /// Wire bytes waiting, the frame in service not included.
    queued: u64,
    /// Most wire bytes held, the frame in service included.
    limit: u64,
    /// Frames in service and on the way.
    pipe: List,
    /// Wire bytes of all frames that entered service.
    pub sent_bytes: u64,
    /// Picoseconds per byte; 0 when that is not a whole number.
    per_byte: u32,
    pub to: NodeId,
    pub dropped_frames: u32,
    /// Bit `n` set: level `n` holds a frame.
    occupied: u8,
    levels: [List; 8],
}

/// A frame that enters service, for the probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub slot: u32,
    pub at: SimTime,
}

impl Port {
    pub fn new(spec: &PortSpec, limit: u64) -> Self {
        let rate = LinkRate::new(spec.rate);
        Self {
            free_at: SimTime::ZERO,
            delay: spec.delay,
            queued: 0,
            limit,
            pipe: List::EMPTY,
            sent_bytes: 0,
            per_byte: u32::try_from(rate.serialisation(1).0).unwrap_or(0),
            to: spec.to,
            dropped_frames: 0,
            occupied: 0,
            levels: [List::EMPTY; 8],
        }
    }

    /// Wire bytes waiting.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// True when a frame that came now would enter service at once.
    #[inline]
    pub fn is_idle(&self, now: SimTime) -> bool {
        self.free_at <= now && self.occupied == 0
    }

    /// Wire bytes of the frame in service that have not left yet.
    #[inline]
    pub fn residual(&self, now: SimTime) -> u32 {
        let left = self.free_at.since(now).0;
        if left == 0 { 0 } else { left.div_ceil(u64::from(self.per_byte.max(1))) as u32 }
    }

    /// Level of the frame that entered service last.
    #[inline]
    pub fn in_service_priority(&self, frames: &[Frame]) -> u8 {
        self.pipe.back().map_or(0, |slot| frames[slot as usize].priority)
    }

    /// True when `bytes` more fit, the frame in service being held until its last bit has left.
    #[inline]
    pub fn fits(&self, frames: &[Frame], now: SimTime, bytes: u32) -> bool {
        if self.limit == u64::MAX {
            return true;
        }
        let in_service = match self.pipe.back() {
            Some(slot) if self.free_at > now => frames[slot as usize].bytes,
            _ => 0,
        };
        self.queued + u64::from(in_service) + u64::from(bytes) <= self.limit
    }

    /// A frame enters service. True when it is alone in the pipe: then its arrival is the port's
    /// next event.
    #[inline]
    pub fn start(&mut self, frames: &mut [Frame], slot: u32, at: SimTime) -> bool {
        let bytes = frames[slot as usize].bytes;
        self.free_at = at + SimDuration(u64::from(self.per_byte) * u64::from(bytes));
        frames[slot as usize].at = self.free_at + self.delay;
        self.sent_bytes += u64::from(bytes);
        let alone = self.pipe.is_empty();
        self.pipe.push_back(frames, slot);
        alone
    }

    /// A frame waits behind those of its level.
    #[inline]
    pub fn wait(&mut self, frames: &mut [Frame], slot: u32) {
        let Frame { bytes, priority, .. } = frames[slot as usize];
        let level = usize::from(priority & 7);
        self.queued += u64::from(bytes);
        self.occupied |= 1 << level;
        self.levels[level].push_back(frames, slot);
    }

    /// The next frame that entered service before `now` (at `now`, too, if `inclusive`). Call until
    /// `None`.
    #[inline]
    pub fn advance(
        &mut self,
        frames: &mut [Frame],
        now: SimTime,
        inclusive: bool,
    ) -> Option<Started> {
        if self.occupied == 0 || self.free_at > now || (self.free_at == now && !inclusive) {
            return None;
        }
        let level = (7 - self.occupied.leading_zeros()) as usize;
        let slot = self.levels[level].pop_front(frames)?;
        if self.levels[level].is_empty() {
            self.occupied &= !(1 << level);
        }
        self.queued -= u64::from(frames[slot as usize].bytes);
        let at = self.free_at;
        self.start(frames, slot, at);
        Some(Started { slot, at })
    }

    /// The first frame of the pipe has arrived. Advance to the present before.
    #[inline]
    pub fn arrive(&mut self, frames: &[Frame]) -> Option<u32> {
        self.pipe.pop_front(frames)
    }

    /// When the first frame of the pipe arrives.
    #[inline]
    pub fn next_arrival(&self, frames: &[Frame]) -> Option<SimTime> {
        self.pipe.front().map(|slot| frames[slot as usize].at)
    }
}
