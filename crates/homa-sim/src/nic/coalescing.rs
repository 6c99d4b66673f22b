//! Interrupt coalescing and receive offload (HULL §2.3, §4.1): a card collects frames before it
//! interrupts its host, and consecutive frames of one flow reach the network stack as one.
//!
//! An interrupt comes with the `frames`-th frame or `delay` after the first one, and no earlier
//! than `gap` after the previous interrupt. The first two are ethtool's rx-frames and rx-usecs; the
//! third is the interrupt throttling of Intel's cards, constant or as their driver adapts it
//! ([`throttling`](super::throttling)). The processor ([`Cpu`]) then takes the
//! frames that arrived before the interrupt out of the ring, one delivery after the other. A
//! delivery consists of frames of one flow with equal marks and at most `merge` bytes in total, and
//! TCP acknowledges only its end. Every interrupt has a cost, even if the processor is still
//! working. Invariant: [`ReceiveRing::due`] covers everything that waits. Left out: a full ring
//! (senders' windows are shorter), and polling without interrupts under load (NAPI).

use std::collections::VecDeque;

use homa_proto::{Duration, Time};

use crate::transport::PacketMeta;

use super::UNCOUNTED;
use super::cpu::Cpu;
use super::throttling::{Throttle, Work};

/// The least time between interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptGap {
    /// Always the same; none if it is 0.
    Constant(Duration),
    /// As the driver `e1000e` sets it ([`Throttle`]).
    E1000e,
}

impl Default for InterruptGap {
    fn default() -> Self {
        Self::Constant(Duration::ZERO)
    }
}

/// Configuration of a receive ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoalescingConfig {
    /// Frames until an interrupt (rx-frames); with 0 or 1 each frame interrupts, and with `None`
    /// the number is irrelevant.
    pub frames: Option<u32>,
    /// Time from the first frame to the interrupt (rx-usecs), regardless of `frames`.
    pub delay: Duration,
    /// Least time between interrupts.
    pub gap: InterruptGap,
    /// Most wire bytes of one delivery; 0 delivers every frame separately.
    pub merge: u32,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
struct RingEntry<P> {
    packet: P,
    arrival: PacketMeta,
    flow: u32,
    bytes: u32,
}

/// Counts of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Interrupts.
    pub interrupts: u64,
    /// Frames.
    pub frames: u64,
    /// Deliveries to the network stack.
    pub deliveries: u64,
}

/// Frames between their arrival and their delivery.
#[derive(Debug)]
pub struct ReceiveRing<P> {
    config: CoalescingConfig,
    frames: VecDeque<RingEntry<P>>,
    /// Frames at the head of the ring that an interrupt has announced.
    announced: usize,
    /// Arrival of the first frame that no interrupt has announced.
    first: Time,
    /// Time of the next interrupt; `MAX` if no frame waits for one.
    interrupt: Time,
    /// Time of the last interrupt.
    last: Option<Time>,
    /// Interrupts whose cost the processor has not paid yet.
    owed: u32,
    /// Number of frames of the present delivery, and its end.
    delivery: (usize, Time),
    /// The counts so far.
    pub counted: RingCounts,
    /// What the driver adapts the gap to.
    pub throttle: Throttle,
}

impl<P: Copy> ReceiveRing<P> {
    /// An empty ring.
    pub fn new(config: CoalescingConfig) -> Self {
        Self {
            config,
            frames: VecDeque::new(),
            announced: 0,
            first: Time::MAX,
            interrupt: Time::MAX,
            last: None,
            owed: 0,
            delivery: (0, Time::MAX),
            counted: RingCounts::default(),
            throttle: Throttle::default(),
        }
    }

    /// A frame arrives. Call [`ReceiveRing::take`] afterwards.
    pub fn push(
        &mut self,
        now: Time,
        (packet, arrival): (P, PacketMeta),
        (flow, bytes): (u32, u32),
    ) {
        self.counted.frames += 1;
        self.frames.push_back(RingEntry { packet, arrival, flow, bytes });
        let waiting = (self.frames.len() - self.announced) as u32;
        if waiting == 1 {
            self.first = now;
        }
        let enough = self.config.frames.is_some_and(|frames| waiting >= frames);
        let raised = if enough { now } else { self.first + self.config.delay };
        self.throttle.received.add(Work { frames: 1, bytes: bytes.saturating_sub(UNCOUNTED) });
        let gap = match self.config.gap {
            InterruptGap::Constant(gap) => gap,
            InterruptGap::E1000e => self.throttle.gap(),
        };
        let earliest = self.last.map_or(Time::ZERO, |last| last + gap);
        self.interrupt = raised.min(self.interrupt).max(earliest);
    }

    /// Time of the next delivery or interrupt.
    pub fn due(&self) -> Option<Time> {
        let due = self.interrupt.min(self.delivery.1);
        (due != Time::MAX).then_some(due)
    }

    /// A frame for the network stack, marked as merged if the next one belongs to the same
    /// delivery. Call it until `None`.
    pub fn take(&mut self, now: Time, cpu: &mut Cpu) -> Option<(P, PacketMeta)> {
        loop {
            if self.delivery.1 <= now && self.delivery.0 > 0 {
                let frame = self.frames.pop_front()?;
                self.announced -= 1;
                self.delivery.0 -= 1;
                let merged = self.delivery.0 > 0;
                if !merged {
                    self.delivery.1 = Time::MAX;
                }
                return Some((frame.packet, PacketMeta { merged, ..frame.arrival }));
            }
            // Interrupts and ends of deliveries take effect in the order of time.
            if self.interrupt <= now && self.interrupt <= self.delivery.1 {
                self.announced = self.frames.len();
                self.owed += 1;
                self.counted.interrupts += 1;
                self.throttle.interrupt();
                (self.last, self.interrupt) = (Some(self.interrupt), Time::MAX);
            }
            if self.delivery.0 > 0 || self.announced == 0 {
                return None;
            }
            self.begin(now, cpu);
        }
    }

    /// The processor takes the next delivery out of the ring.
    fn begin(&mut self, now: Time, cpu: &mut Cpu) {
        let frames = self.merged();
        let costs = cpu.config;
        let cost = costs.interrupt.0 * u64::from(std::mem::take(&mut self.owed))
            + costs.frame.0 * frames as u64
            + costs.delivery.0;
        self.counted.deliveries += 1;
        self.delivery = (frames, cpu.work(now, Duration(cost)));
    }

    /// Number of frames at the head of the ring that form one delivery.
    fn merged(&self) -> usize {
        let mut bytes = 0;
        let alike = |a: &RingEntry<P>, b: &RingEntry<P>| {
            (a.arrival.from, a.flow, a.arrival.ce, a.arrival.priority)
                == (b.arrival.from, b.flow, b.arrival.ce, b.arrival.priority)
        };
        let Some(head) = self.frames.front() else { return 0 };
        let announced = self.frames.iter().take(self.announced);
        let fits = announced.take_while(|frame| {
            bytes += frame.bytes;
            alike(head, frame) && bytes <= self.config.merge
        });
        fits.count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::cpu::CpuConfig;
    use crate::topology::HostId;

    const DATA: u32 = 1_538;

    /// For frames that arrive at these times: when each is delivered, and whether the next one
    /// belongs to the same delivery.
    fn deliveries(
        config: CoalescingConfig,
        costs: CpuConfig,
        arrivals: &[u64],
    ) -> (Vec<(u64, bool)>, RingCounts) {
        let (mut ring, mut cpu) = (ReceiveRing::new(config), Cpu::new(costs));
        let mut given = Vec::new();
        let mut arrivals = arrivals.iter().copied().peekable();
        loop {
            let next = arrivals.peek().map(|at| Time(*at));
            let now = [next, ring.due()].into_iter().flatten().min();
            let Some(now) = now else { return (given, ring.counted) };
            if next == Some(now) {
                arrivals.next();
                ring.push(now, (0, PacketMeta::new(HostId(1), 0)), (7, DATA));
            }
            while let Some((_, arrival)) = ring.take(now, &mut cpu) {
                given.push((now.0, arrival.merged));
            }
        }
    }

    const FREE: CpuConfig = CpuConfig {
        interrupt: Duration::ZERO,
        frame: Duration::ZERO,
        delivery: Duration::ZERO,
        send: Duration::ZERO,
    };

    #[test]
    fn an_interrupt_comes_by_number_of_frames_or_by_age() {
        let config = CoalescingConfig {
            frames: Some(3),
            delay: Duration(1_000),
            ..CoalescingConfig::default()
        };
        let (given, counted) = deliveries(config, FREE, &[0, 10, 20, 30, 40]);
        let times: Vec<u64> = given.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [20, 20, 20, 1_030, 1_030]);
        assert_eq!((counted.interrupts, counted.deliveries), (2, 5));
    }

    #[test]
    fn interrupts_keep_a_gap_but_a_lone_frame_does_not_wait() {
        let gap = InterruptGap::Constant(Duration(500));
        let config = CoalescingConfig { frames: Some(1), gap, ..CoalescingConfig::default() };
        let (given, counted) = deliveries(config, FREE, &[0, 10, 20, 600, 2_000]);
        let times: Vec<u64> = given.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 500, 500, 1_000, 2_000]);
        assert_eq!(counted.interrupts, 4);
    }

    #[test]
    fn consecutive_frames_of_a_flow_merge_up_to_a_size() {
        let config = CoalescingConfig {
            frames: Some(5),
            delay: Duration(9_999),
            merge: 2 * DATA,
            ..CoalescingConfig::default()
        };
        let (given, counted) = deliveries(config, FREE, &[1, 2, 3, 4, 5]);
        let merged: Vec<bool> = given.iter().map(|(_, merged)| *merged).collect();
        assert_eq!(merged, [true, false, true, false, false]);
        assert_eq!(counted.deliveries, 3);
    }

    /// Frames at 10 Gbit/s, one every 1230 ns.
    fn saturated(frames: u32) -> (f64, f64) {
        let config = CoalescingConfig {
            frames: Some(frames),
            delay: Duration::micros(16),
            merge: 65_536,
            ..CoalescingConfig::default()
        };
        let arrivals: Vec<u64> = (0..20_000).map(|n| n * 1_230).collect();
        let (given, counted) = deliveries(config, CpuConfig::PAPER, &arrivals);
        let per_delivery = counted.frames as f64 / counted.deliveries as f64;
        (per_delivery, given[given.len() - 1].0 as f64 / arrivals[arrivals.len() - 1] as f64)
    }

    #[test]
    fn an_interrupt_per_frame_saturates_the_processor() {
        // HULL §4.1, Table 2: with rx-frames 8 the processor keeps up. Without coalescing it does
        // not, although it then merges the frames that accumulate.
        let (eight, all) = saturated(8);
        assert!((7.0..10.0).contains(&eight) && all < 1.01, "{eight} {all}");
        let (none, late) = saturated(0);
        assert!(none > 20.0 && late > 1.15, "{none} {late}");
    }
}
