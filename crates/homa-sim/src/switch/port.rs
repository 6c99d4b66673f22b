//! A switch output port: a queue and the link behind it, which carries one frame at a time.
//!
//! Not preemptive: a frame in service leaves whole. Store and forward: a frame departs when its
//! last bit has left, and occupies the buffer until then. Invariants: service is back to back while
//! frames wait (the next frame starts when the last one finished, however late the caller looks),
//! and departure times never decrease.

use crate::time::{LinkRate, SimTime};

use super::{Dropped, Frame, QueueCounters, StrictPriorityQueue};

/// A frame that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// When its last bit left.
    pub at: SimTime,
}

/// An output port with strict priorities.
///
/// Calls come in the order of time: before `enqueue(now, …)` take every departure up to `now` with
/// [`Port::next`]. Departures at exactly `now` may be taken after the frames that arrive at `now`.
#[derive(Clone, Debug)]
pub struct Port<F> {
    queue: StrictPriorityQueue<F>,
    rate: LinkRate,
    in_service: Option<Departure<F>>,
}

impl<F: Frame> Port<F> {
    /// An idle port to a link of `rate`, with `buffer_bytes` shared by all priorities.
    pub fn new(rate: LinkRate, buffer_bytes: u64) -> Self {
        Self { queue: StrictPriorityQueue::new(buffer_bytes), rate, in_service: None }
    }

    /// A frame arrives for this port. `Err` gives it back when the buffer is full.
    pub fn enqueue(&mut self, now: SimTime, frame: F) -> Result<(), Dropped<F>> {
        let in_service = self.in_service.as_ref();
        debug_assert!(
            in_service.is_none_or(|service| service.at >= now),
            "departures before {now:?} must be taken first"
        );
        self.queue.push(frame, in_service.map_or(0, |service| service.frame.bytes()))?;
        if self.in_service.is_none() {
            self.serve(now);
        }
        Ok(())
    }

    /// The next frame whose last bit has left by `now`; starts the one after it. Call until `None`.
    // Not an iterator: time is an argument.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: SimTime) -> Option<Departure<F>> {
        let departure = self.in_service.take_if(|service| service.at <= now)?;
        self.serve(departure.at);
        Some(departure)
    }

    /// When the frame in service will have left: the time to call [`Port::next`].
    pub fn departs(&self) -> Option<SimTime> {
        self.in_service.as_ref().map(|service| service.at)
    }

    /// Wire bytes in the buffer, the frame in service included.
    pub fn buffered_bytes(&self) -> u64 {
        let in_service = self.in_service.as_ref();
        self.queue.bytes() + in_service.map_or(0, |service| u64::from(service.frame.bytes()))
    }

    /// What was counted; every frame counts under its level.
    pub fn counters(&self) -> &QueueCounters {
        self.queue.counters()
    }

    fn serve(&mut self, start: SimTime) {
        self.in_service = self.queue.pop().map(|frame| {
            let at = start + self.rate.serialisation(frame.bytes());
            Departure { frame, at }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_proto::Rate;

    /// 10 Gbit/s: 800 ps a byte.
    fn port(buffer_bytes: u64) -> Port<(u32, u8)> {
        Port::new(LinkRate::new(Rate::gbps(10)), buffer_bytes)
    }

    fn drain(port: &mut Port<(u32, u8)>, now: SimTime) -> Vec<(u32, u64)> {
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
        port.enqueue(SimTime(2), (100, 7)).unwrap();
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
    fn the_frame_in_service_occupies_the_buffer_until_its_last_bit_left() {
        let mut port = port(1_500);
        port.enqueue(SimTime(0), (1_000, 0)).unwrap();
        assert_eq!(port.enqueue(SimTime(1), (501, 7)), Err(Dropped((501, 7))));
        port.enqueue(SimTime(1), (500, 7)).unwrap();
        assert_eq!(port.buffered_bytes(), 1_500);
        assert_eq!(drain(&mut port, SimTime(800_000)).len(), 1);
        assert_eq!(port.buffered_bytes(), 500);
        port.enqueue(SimTime(800_000), (1_000, 7)).unwrap();
        assert_eq!(port.counters().max_bytes, 1_500);
    }
}
