//! A phantom queue (HULL, NSDI 2012, §2.1 and §5.1): a counter that simulates the queue of a link
//! slightly slower than the port's, and marks packets before the real link is full.
//!
//! It wraps any other discipline, stores nothing and delays nothing. In series it counts the
//! packets that leave the port, at most at the link's rate. In parallel, like earlier virtual
//! queues, it counts the packets that arrive, including those that the port then drops. Packets
//! without ECT count and are never marked. The counter drains continuously, or in ticks like the
//! paper's hardware; either is computed when a packet passes, without events. A port that never
//! queues marks as well. Invariant: the backlog never falls below zero and saturates at 2.3 GB
//! instead of wrapping, so that thresholds above that never mark. Left out: the drain rate is a
//! share of the link's initial rate and does not follow later changes.

use homa_proto::Rate;

use crate::fabric::{Frame, Marks};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, Order, PortQueue, WaitingFrames};

/// Whether a packet is compared with the threshold before or after it counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhantomOrder {
    /// A packet is marked for the backlog of others. The paper does not state the order, but its
    /// throughput of 870 Mbit/s needs this one.
    #[default]
    CompareThenAdd,
    /// Every packet longer than the threshold is marked, even alone on an idle link.
    AddThenCompare,
}

/// Which packets are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhantomPlace {
    /// Packets that leave the port (HULL §2.1, remark 1).
    #[default]
    Series,
    /// Packets that arrive at the port.
    Parallel,
}

/// Configuration of a phantom queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhantomConfig {
    /// Drain rate in millionths of the link's rate (gamma).
    pub drain_ppm: u32,
    /// Marks if more virtual bytes than this are queued.
    pub threshold: u32,
    /// Whether a packet counts itself.
    pub order: PhantomOrder,
    /// Which packets are counted.
    pub place: PhantomPlace,
    /// Interval of draining; `None` drains continuously.
    pub tick: Option<SimDuration>,
    /// Wire bytes of each packet that do not count: preamble, gap and check sequence, which the
    /// paper's hardware does not see.
    pub uncounted: u16,
}

impl PhantomConfig {
    /// HULL's testbed (§5.1, §6): 95 % of the link, 1 KB, drained continuously. Its 983 Mbit/s of a
    /// full link (Figure 8) are 1514 of 1538 bytes, so its hardware counts without the rest.
    pub const PAPER: Self = Self {
        drain_ppm: 950_000,
        threshold: 1_000,
        order: PhantomOrder::CompareThenAdd,
        place: PhantomPlace::Series,
        tick: None,
        uncounted: 24,
    };
}

/// The counter, in billionths of a bit, because a kbit/s drains one of them per picosecond.
#[derive(Clone, Copy, Debug)]
struct Counter {
    kbps: u64,
    /// Picoseconds; 0 drains continuously.
    tick: u64,
    threshold: u64,
    counts_itself: bool,
    uncounted: u16,
    backlog: u64,
    /// Time of the last drain.
    at: u64,
}

const BYTE: u64 = 8_000_000_000;

impl Counter {
    fn new(config: PhantomConfig, link: Rate) -> Self {
        let kbps = u128::from(link.0) * u128::from(config.drain_ppm) / 1_000_000_000;
        Self {
            kbps: u64::try_from(kbps).unwrap_or(u64::MAX),
            tick: config.tick.map_or(0, |tick| tick.0),
            threshold: u64::from(config.threshold).saturating_mul(BYTE),
            counts_itself: config.order == PhantomOrder::AddThenCompare,
            uncounted: config.uncounted,
            backlog: 0,
            at: 0,
        }
    }

    fn drain(&mut self, at: SimTime) {
        let picos = match self.tick {
            0 => at.0.saturating_sub(self.at),
            tick => (at.0 / tick).saturating_sub(self.at / tick) * tick,
        };
        self.backlog = self.backlog.saturating_sub(picos.saturating_mul(self.kbps));
        self.at = self.at.max(at.0);
    }

    /// Counts a frame of `wire_bytes`; true if it should be marked.
    #[inline]
    fn passes(&mut self, wire_bytes: u16, at: SimTime) -> bool {
        self.drain(at);
        let found = self.backlog;
        let bytes = u64::from(wire_bytes.saturating_sub(self.uncounted));
        // If hosts ignore marks, the backlog saturates at 2.3 GB.
        self.backlog = self.backlog.saturating_add(bytes * BYTE);
        let compared = if self.counts_itself { self.backlog } else { found };
        compared > self.threshold
    }
}

/// A discipline with a phantom queue around it.
#[derive(Clone, Debug)]
pub struct Phantom<Q> {
    inner: Q,
    series: Option<Counter>,
    parallel: Option<Counter>,
}

impl<Q> Phantom<Q> {
    /// Wraps a port's discipline, for a link of rate `link`; with `None` it marks nothing.
    pub fn new(inner: Q, config: Option<PhantomConfig>, link: Rate) -> Self {
        let at = |place| {
            let config = config.filter(|config| config.place == place);
            config.map(|config| Counter::new(config, link))
        };
        Self { inner, series: at(PhantomPlace::Series), parallel: at(PhantomPlace::Parallel) }
    }
}

#[inline]
fn mark(counter: &mut Option<Counter>, frame: &mut Frame, at: SimTime) {
    if let Some(counter) = counter
        && counter.passes(frame.bytes, at)
        && frame.marks().has(Marks::ECT)
    {
        frame.set(Marks::CE);
    }
}

impl<Q: PortQueue> PortQueue for Phantom<Q> {
    type Tag = Q::Tag;

    const ORDER: Order = Q::ORDER;

    #[inline]
    fn tag(label: &Label, from: HostId) -> Q::Tag {
        Q::tag(label, from)
    }

    #[inline]
    fn arrives(&mut self, frame: &mut Frame, at: SimTime) {
        mark(&mut self.parallel, frame, at);
    }

    #[inline]
    fn admit(
        &mut self,
        waiting: &mut WaitingFrames<'_, Q::Tag>,
        slot: u32,
        room: u64,
    ) -> Admission {
        self.inner.admit(waiting, slot, room)
    }

    #[inline]
    fn next(&mut self, waiting: &mut WaitingFrames<'_, Q::Tag>) -> u32 {
        self.inner.next(waiting)
    }

    #[inline]
    fn departs(&mut self, frame: &mut Frame, at: SimTime) {
        self.inner.departs(frame, at);
        mark(&mut self.series, frame, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::StrictPriority;

    const LINK: Rate = Rate::gbps(1);
    /// Picoseconds per byte at that rate.
    const BYTE_TIME: u64 = 8_000;

    fn frame(bytes: u32, ect: bool) -> Frame {
        Frame::new(&Label { ect, ..Label::new(HostId(0), bytes) })
    }

    /// Which of `count` frames of `bytes` wire bytes, one every `gap` bytes, are marked.
    fn marked(config: PhantomConfig, (bytes, gap): (u32, u64), count: u64) -> Vec<u64> {
        let mut port = Phantom::new(StrictPriority, Some(config), LINK);
        let is_marked = |at: &u64| {
            let mut frame = frame(bytes, true);
            port.departs(&mut frame, SimTime(at * gap * BYTE_TIME));
            frame.marks().has(Marks::CE)
        };
        (0..count).filter(is_marked).collect()
    }

    #[test]
    fn back_to_back_frames_build_up_a_phantom_backlog() {
        // From one frame to the next, the counter adds 1514 bytes and drains 0.95 x 1538 = 1461.1,
        // so that 52.9 stay, and frame 19 finds 1005.1.
        let first = marked(PhantomConfig::PAPER, (1_538, 1_538), 40)[0];
        assert_eq!(first, 19);
        // If all wire bytes count, 76.9 stay per frame: 14 x 76.9 = 1076.6.
        let all = PhantomConfig { uncounted: 0, ..PhantomConfig::PAPER };
        assert_eq!(marked(all, (1_538, 1_538), 20), (14..20).collect::<Vec<_>>());
        // With short frames of 84 bytes, 4.2 stay per frame.
        assert_eq!(marked(all, (84, 84), 300)[0], 239);
    }

    #[test]
    fn a_rate_below_the_drain_rate_is_never_marked() {
        let all = PhantomConfig { uncounted: 0, ..PhantomConfig::PAPER };
        // 1538 bytes in the time of 1619 are 94.997 % of the link.
        assert!(marked(all, (1_538, 1_619), 10_000).is_empty());
        // A rate slightly above the drain rate is marked in the end.
        assert!(!marked(all, (1_538, 1_618), 10_000).is_empty());
    }

    #[test]
    fn a_packet_that_counts_itself_is_marked_on_an_idle_link() {
        let order = PhantomOrder::AddThenCompare;
        let config = PhantomConfig { order, ..PhantomConfig::PAPER };
        assert_eq!(marked(config, (1_538, 1_000_000), 3), [0, 1, 2]);
        assert!(marked(PhantomConfig::PAPER, (1_538, 1_000_000), 3).is_empty());
        // 1000 counted bytes do not exceed the threshold.
        assert!(marked(config, (1_024, 1_000_000), 3).is_empty());
        assert_eq!(marked(config, (1_025, 1_000_000), 3), [0, 1, 2]);
    }

    #[test]
    fn ticks_drain_like_continuous_time_up_to_one_tick() {
        let tick = Some(SimDuration::nanos(800));
        let config = PhantomConfig { tick, ..PhantomConfig::PAPER };
        let mut ticking = Counter::new(config, LINK);
        let mut flowing = Counter::new(PhantomConfig::PAPER, LINK);
        // 950 Mbit/s drain 95 bytes in 800 ns.
        let per_tick = 95 * BYTE;
        let mut at = 0;
        for n in 0..1_000 {
            at += 11_000_000 + n * 7_919;
            ticking.passes(1_538, SimTime(at));
            flowing.passes(1_538, SimTime(at));
            assert!(ticking.backlog.abs_diff(flowing.backlog) <= per_tick, "{n}");
        }
        let mut one = Counter { backlog: 1_000 * BYTE, at: 0, ..ticking };
        one.drain(SimTime(799_999));
        assert_eq!(one.backlog, 1_000 * BYTE);
        one.drain(SimTime(800_000));
        assert_eq!(one.backlog, 905 * BYTE);
        one.drain(SimTime(2_400_001));
        assert_eq!(one.backlog, 715 * BYTE);
    }

    #[test]
    fn a_backlog_saturates_and_does_not_wrap() {
        // Almost nothing drains.
        let config = PhantomConfig { drain_ppm: 1, ..PhantomConfig::PAPER };
        let mut counter = Counter::new(config, LINK);
        counter.backlog = u64::MAX - 2 * 1_514 * BYTE;
        assert!((0..5).all(|n| counter.passes(1_538, SimTime(n))));
        let never = PhantomConfig { threshold: u32::MAX, ..config };
        let mut counter = Counter::new(never, LINK);
        counter.backlog = u64::MAX - 2 * 1_514 * BYTE;
        assert!(!(0..5).any(|n| counter.passes(1_538, SimTime(n))));
    }

    #[test]
    fn frames_without_ect_count_and_are_not_marked() {
        let mut port = Phantom::new(StrictPriority, Some(PhantomConfig::PAPER), LINK);
        let mut pass = |ect| {
            let mut frame = frame(1_538, ect);
            port.departs(&mut frame, SimTime(5));
            frame.marks().has(Marks::CE)
        };
        assert_eq!(
            [pass(false), pass(false), pass(true), pass(false)],
            [false, false, true, false]
        );
    }

    #[test]
    fn in_parallel_arrivals_count_and_departures_do_not() {
        let place = PhantomPlace::Parallel;
        let config = PhantomConfig { place, ..PhantomConfig::PAPER };
        let mut port = Phantom::new(StrictPriority, Some(config), LINK);
        let mut marks = [0; 2];
        for n in 0..3 {
            let (mut arriving, mut leaving) = (frame(1_538, true), frame(1_538, true));
            // Three at once, as if from three links.
            port.arrives(&mut arriving, SimTime(0));
            port.departs(&mut leaving, SimTime(n * 1_538 * BYTE_TIME));
            for (count, frame) in marks.iter_mut().zip([arriving, leaving]) {
                *count += u32::from(frame.marks().has(Marks::CE));
            }
        }
        assert_eq!(marks, [2, 0]);
    }
}
