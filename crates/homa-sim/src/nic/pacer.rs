//! The pacer of a NIC (HULL, NSDI 2012, §4.2 and §5.1): a token bucket whose rate follows the
//! traffic of its host, and the table of the flows whose packets pass through it.
//!
//! Every `period` the rate becomes (1 - gain) x rate + gain x offered / period + backlog_gain x
//! backlog (eq. 4), all in bytes and seconds. No event happens at those times. The state is updated
//! when it is read, and the departure of the first packet is computed through all changes of the
//! rate before it. An arrival computes it anew, because otherwise a packet that became first at a
//! low rate would wait as long as that rate needed. `offered` counts the bytes that enter the
//! bucket, not those of flows that bypass it.
//!
//! If an acknowledgement echoes congestion, its flow is associated for `expiry` with some
//! probability; later echoes renew that with the same probability. A flow whose packets still wait
//! stays associated, because later packets would otherwise overtake them and its sender would
//! assume losses (the paper does not cover this). If the table is full, no flow is added.
//!
//! Invariants: tokens never exceed the depth, the rate stays between floor and ceiling, `backlog`
//! is the sum over `waiting`. Left out: drops if the FIFO is full (the NIC then takes no more
//! packets from its host), and several buckets (remark 4).

use std::collections::VecDeque;

use homa_proto::{Duration, Time};
use homa_workload::rng::Rng;

/// Configuration of a pacer; rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacerConfig {
    /// Time between changes of the rate (T_r).
    pub period: Duration,
    /// Weight of the latest period (eta).
    pub gain: f64,
    /// Weight of the backlog, per second (beta).
    pub backlog_gain: f64,
    /// Probability that an echo associates its flow (p_a).
    pub probability: f64,
    /// Time that a flow stays associated (T_i).
    pub expiry: Duration,
    /// Most tokens, bytes.
    pub depth: u32,
    /// Tokens arrive at multiples of this time, in whole bytes and at least one; `None` adds them
    /// continuously.
    pub tick: Option<Duration>,
    /// Bytes that may wait for tokens before the NIC takes no more from the host.
    pub fifo: u32,
    /// Largest number of flows in the table.
    pub entries: u32,
    /// Lowest rate.
    pub floor: f64,
    /// Highest rate, and the initial one.
    pub ceiling: f64,
}

/// Rate and tokens at a time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    /// Bytes that arrived in the present period.
    offered: f64,
    /// The time, in nanoseconds.
    at: u64,
}

/// Tolerance for missing tokens, because they are counted in floating point.
const ROUNDING: f64 = 1e-6;

impl Bucket {
    /// Advances to `to` while `backlog` bytes wait.
    fn advance(&mut self, to: u64, backlog: f64, config: &PacerConfig) {
        let period = config.period.0.max(1);
        while self.at < to {
            if backlog == 0.0 && self.offered == 0.0 && self.rate <= config.floor {
                return self.fill(to, config);
            }
            let change = (self.at / period + 1) * period;
            self.fill(change.min(to), config);
            if self.at == change {
                self.estimate(backlog, config);
            }
        }
    }

    /// Adds tokens at the present rate until `to`.
    fn fill(&mut self, to: u64, config: &PacerConfig) {
        let came = match config.tick {
            Some(tick) => (to / tick.0 - self.at / tick.0) as f64 * self.per_tick(tick),
            None => (to - self.at) as f64 * 1e-9 * self.rate,
        };
        self.tokens = (self.tokens + came).min(f64::from(config.depth));
        self.at = to;
    }

    fn per_tick(&self, tick: Duration) -> f64 {
        (self.rate * tick.0 as f64 * 1e-9).floor().max(1.0)
    }

    /// Updates the rate by equation 4.
    fn estimate(&mut self, backlog: f64, config: &PacerConfig) {
        let sample = self.offered / (config.period.0.max(1) as f64 * 1e-9);
        let rate =
            (1.0 - config.gain) * self.rate + config.gain * sample + config.backlog_gain * backlog;
        self.rate = rate.clamp(config.floor, config.ceiling);
        self.offered = 0.0;
    }

    /// When tokens suffice for a packet, if no other packet arrives and `backlog` bytes wait.
    fn departure(mut self, bytes: u32, backlog: f64, config: &PacerConfig) -> u64 {
        let needed = f64::from(bytes.min(config.depth));
        let period = config.period.0.max(1);
        loop {
            let missing = needed - self.tokens;
            if missing <= ROUNDING {
                return self.at;
            }
            let then = match config.tick {
                Some(tick) => {
                    let ticks = (missing / self.per_tick(tick)).ceil() as u64;
                    (self.at / tick.0 + ticks) * tick.0
                }
                None => self.at + (missing / self.rate * 1e9).ceil() as u64,
            };
            let change = (self.at / period + 1) * period;
            if then <= change {
                return then;
            }
            self.advance(change, backlog, config);
        }
    }
}

/// Packets that left a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Number of packets.
    pub packets: u64,
    /// Sum of their waiting times in nanoseconds.
    pub waited: u64,
}

/// A flow: the other end, and a label that distinguishes it from other flows to that end.
pub type Flow = (u32, u32);

/// An associated flow.
#[derive(Clone, Copy, Debug)]
struct AssociatedFlow {
    flow: Flow,
    until: Time,
    /// Number of its packets that wait.
    waiting: u32,
}

impl AssociatedFlow {
    fn holds(&self, now: Time) -> bool {
        self.until > now || self.waiting > 0
    }
}

/// A packet that waits for tokens.
#[derive(Clone, Copy, Debug)]
struct PacedPacket<P> {
    packet: P,
    bytes: u32,
    flow: Flow,
    /// Start of the wait in nanoseconds.
    since: u64,
}

/// The token bucket, its queue and the associated flows.
#[derive(Debug)]
pub struct NicPacer<P> {
    config: PacerConfig,
    bucket: Bucket,
    waiting: VecDeque<PacedPacket<P>>,
    backlog: u32,
    released: Released,
    table: Vec<AssociatedFlow>,
    rng: Rng,
}

impl<P: Copy> NicPacer<P> {
    /// A pacer with a full bucket, at the highest rate.
    pub fn new(config: PacerConfig, rng: Rng) -> Self {
        let (rate, tokens) = (config.ceiling, f64::from(config.depth));
        Self {
            config,
            bucket: Bucket { rate, tokens, offered: 0.0, at: 0 },
            waiting: VecDeque::new(),
            backlog: 0,
            released: Released::default(),
            table: Vec::new(),
            rng,
        }
    }

    /// An acknowledgement echoed congestion to a flow.
    pub fn echoed(&mut self, flow: Flow, now: Time) {
        if !self.rng.chance(self.config.probability) {
            return;
        }
        let until = now + self.config.expiry;
        self.table.retain(|entry| entry.holds(now));
        let has_room = self.table.len() < self.config.entries as usize;
        match self.table.iter_mut().find(|entry| entry.flow == flow) {
            Some(entry) => entry.until = until,
            None if has_room => {
                self.table.push(AssociatedFlow { flow, until, waiting: 0 });
            }
            None => {}
        }
    }

    /// True if packets of a flow pass through the bucket.
    pub fn is_associated(&self, flow: Flow, now: Time) -> bool {
        self.table.iter().any(|entry| entry.flow == flow && entry.holds(now))
    }

    /// Advances the state to `now`.
    pub fn advance(&mut self, now: Time) {
        self.bucket.advance(now.0, f64::from(self.backlog), &self.config);
    }

    /// Queues a packet of an associated flow for tokens.
    pub fn offer(&mut self, flow: Flow, packet: P, bytes: u32) {
        if let Some(entry) = self.table.iter_mut().find(|entry| entry.flow == flow) {
            entry.waiting += 1;
        }
        self.bucket.offered += f64::from(bytes);
        self.backlog += bytes;
        self.waiting.push_back(PacedPacket { packet, bytes, flow, since: self.bucket.at });
    }

    /// Takes the first packet, if tokens suffice for it.
    pub fn release(&mut self) -> Option<P> {
        let &PacedPacket { packet, bytes, flow, since } = self.waiting.front()?;
        let needed = f64::from(bytes.min(self.config.depth));
        if self.bucket.tokens + ROUNDING < needed {
            return None;
        }
        self.bucket.tokens = (self.bucket.tokens - needed).max(0.0);
        self.backlog -= bytes;
        if let Some(entry) = self.table.iter_mut().find(|entry| entry.flow == flow) {
            entry.waiting = entry.waiting.saturating_sub(1);
        }
        self.released.packets += 1;
        self.released.waited += self.bucket.at - since;
        self.waiting.pop_front();
        Some(packet)
    }

    /// When tokens will suffice for the first packet, if no other arrives.
    pub fn due(&self) -> Option<Time> {
        let bytes = self.waiting.front()?.bytes;
        let backlog = f64::from(self.backlog);
        Some(Time(self.bucket.departure(bytes, backlog, &self.config)))
    }

    /// The packets that left the bucket so far.
    pub fn released(&self) -> Released {
        self.released
    }

    /// True if the FIFO takes another packet.
    pub fn has_room(&self) -> bool {
        self.backlog < self.config.fifo
    }

    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The rate in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bucket.rate
    }

    /// Bytes that wait.
    pub fn backlog(&self) -> u32 {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HULL §5.1 and Table 3: a gigabit, tokens every 16 us.
    const TESTBED: PacerConfig = PacerConfig {
        period: Duration::micros(64),
        gain: 0.125,
        backlog_gain: 16.0,
        probability: 0.125,
        expiry: Duration::millis(10),
        depth: 3_000,
        tick: Some(Duration::micros(16)),
        fifo: 128 * 1_024,
        entries: 64,
        floor: 1.25e6,
        ceiling: 125e6,
    };
    const FLOWING: PacerConfig = PacerConfig { tick: None, ..TESTBED };

    fn pacer(config: PacerConfig) -> NicPacer<u32> {
        NicPacer::new(config, Rng::stream(1, "pacer"))
    }

    /// Departure times in nanoseconds of packets offered at these times, if the wire is free.
    fn departures(pacer: &mut NicPacer<u32>, offers: &[(u64, u32)], end: u64) -> Vec<u64> {
        let mut offers = offers.iter().peekable();
        let mut left = Vec::new();
        let mut now = 0;
        while now <= end {
            pacer.advance(Time(now));
            while let Some(&&(_, bytes)) = offers.peek().filter(|(at, _)| *at <= now) {
                pacer.offer((1, 7), 0, bytes);
                offers.next();
            }
            while pacer.release().is_some() {
                left.push(now);
            }
            let due = pacer.due().map_or(u64::MAX, |due| due.0);
            let next = offers.peek().map_or(u64::MAX, |(at, _)| *at);
            assert!(due > now, "a packet that may leave has left");
            now = due.min(next);
        }
        left
    }

    #[test]
    fn equation_4_for_two_periods() {
        let mut pacer = pacer(FLOWING);
        pacer.bucket.rate = 50e6;
        pacer.bucket.tokens = 0.0;
        pacer.offer((1, 7), 1, 1_500);
        // Not yet the end of the period.
        pacer.advance(Time(63_999));
        assert_eq!(pacer.rate(), 50e6);
        pacer.advance(Time(64_000));
        let once = 0.875 * 50e6 + 0.125 * 1_500.0 / 64e-6 + 16.0 * 1_500.0;
        assert!((pacer.rate() - once).abs() < 1.0, "{}", pacer.rate());
        assert_eq!(pacer.release(), Some(1));
        pacer.advance(Time(128_000));
        assert!((pacer.rate() - 0.875 * once).abs() < 1.0, "{}", pacer.rate());
    }

    #[test]
    fn the_rate_stays_between_floor_and_ceiling() {
        let mut pacer = pacer(TESTBED);
        assert_eq!(pacer.rate(), 125e6);
        pacer.advance(Time(1_000_000_000));
        assert_eq!(pacer.rate(), 1.25e6);
        for _ in 0..100 {
            pacer.offer((1, 7), 0, 1_538);
        }
        pacer.advance(Time(1_000_064_000));
        assert_eq!(pacer.rate(), 125e6, "100 packets in a period are more than the link");
    }

    #[test]
    fn a_steady_stream_has_no_backlog_and_keeps_its_rate() {
        // 1538 bytes every 24.608 us: 500 Mbit/s.
        let offers: Vec<(u64, u32)> = (0..2_000).map(|n| (n * 24_608, 1_538)).collect();
        let mut pacer = pacer(FLOWING);
        let left = departures(&mut pacer, &offers, 60_000_000);
        assert_eq!(left.len(), 2_000);
        assert!((pacer.rate() - 62.5e6).abs() > 1.0, "it decays when the stream ends");
        let waits: Vec<u64> =
            left.iter().zip(&offers).map(|(left, (at, _))| left - at).skip(1_000).collect();
        // In steady state the rate is the input and beta / eta times the backlog, and a backlog of
        // one packet adds 0.2 Mbit/s.
        assert!(waits.iter().all(|wait| *wait < 200_000), "{:?}", waits.iter().max());
    }

    #[test]
    fn a_burst_is_spread_at_the_rate_of_the_periods_before() {
        // 16 packets at once every 393.7 us (500 Mbit/s) leave 24.6 us apart instead of 12.3.
        let offers: Vec<(u64, u32)> =
            (0..200).flat_map(|burst| (0..16).map(move |_| (burst * 393_728, 1_538))).collect();
        let left = departures(&mut pacer(FLOWING), &offers, 200_000_000);
        assert_eq!(left.len(), 3_200);
        let gaps: Vec<u64> = left[1_600..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        let close = gaps.iter().filter(|gap| **gap < 12_000).count();
        assert!(close * 10 < gaps.len(), "{close} of {} are closer than the link's", gaps.len());
    }

    #[test]
    fn tokens_come_at_ticks_in_whole_bytes() {
        // Slightly over one megabyte per second, which is 16 bytes and a fraction per tick.
        let slow = PacerConfig { floor: 1.05e6, ceiling: 1.05e6, ..TESTBED };
        let mut pacer = pacer(slow);
        // The full bucket of 3000 bytes, less 1538, leaves 76 missing: 5 ticks of 16.
        let left = departures(&mut pacer, &[(1_000, 1_538), (1_000, 1_538)], 10_000_000);
        assert_eq!(left, [1_000, 5 * 16_000]);
    }

    #[test]
    fn the_first_packet_leaves_sooner_if_the_rate_rises() {
        let mut pacer = pacer(FLOWING);
        pacer.advance(Time(1_000_000_000));
        for _ in 0..3 {
            pacer.offer((1, 7), 0, 1_538);
        }
        assert_eq!(pacer.release(), Some(0));
        // 76 bytes are missing for the second packet, 1614 for the third. At 1.25 MB/s, the rate
        // that has been reached, that would take 1.3 ms.
        let alone = pacer.due().unwrap().0 - 1_000_000_000;
        assert_eq!(alone, 60_800);
        pacer.advance(Time(1_000_060_800));
        assert_eq!(pacer.release(), Some(0));
        let estimated = 0.875 * 1.25e6 + 0.125 * 3.0 * 1_538.0 / 64e-6 + 16.0 * 1_538.0;
        assert!(estimated > 10e6);
        let third = pacer.due().unwrap().0 - 1_000_060_800;
        assert!((100_000..400_000).contains(&third), "{third}");
        // More packets arrive, so that the rate rises and the first packet leaves sooner.
        for _ in 0..20 {
            pacer.offer((1, 7), 0, 1_538);
        }
        let sooner = pacer.due().unwrap().0 - 1_000_060_800;
        assert!(sooner < third, "{sooner} {third}");
    }

    #[test]
    fn a_packet_longer_than_the_bucket_leaves_with_a_full_one() {
        let left = departures(&mut pacer(TESTBED), &[(500, 9_038), (500, 9_038)], 10_000_000);
        assert_eq!(left.len(), 2);
    }

    #[test]
    fn an_eighth_of_the_echoes_associates_a_flow_for_ten_ms() {
        let mut pacer = pacer(TESTBED);
        let now = Time(5_000_000);
        let flows = 4_000;
        let mut associated = 0;
        for flow in 0..flows {
            pacer.table.clear();
            pacer.echoed((1, flow), now);
            associated += u32::from(pacer.is_associated((1, flow), now));
        }
        assert!((450..550).contains(&associated), "{associated}");
        let sure = PacerConfig { probability: 1.0, ..TESTBED };
        let mut pacer = self::pacer(sure);
        pacer.echoed((1, 7), now);
        assert!(pacer.is_associated((1, 7), Time(14_999_999)));
        assert!(!pacer.is_associated((1, 7), Time(15_000_000)));
        assert!(!pacer.is_associated((2, 7), now));
    }

    #[test]
    fn a_full_table_takes_no_flow_until_one_expires() {
        let mut pacer = pacer(PacerConfig { probability: 1.0, ..TESTBED });
        for flow in 0..64 {
            pacer.echoed((1, flow), Time(0));
        }
        pacer.echoed((1, 64), Time(1));
        assert!(!pacer.is_associated((1, 64), Time(1)));
        pacer.echoed((1, 3), Time(1));
        assert!(pacer.is_associated((1, 3), Time(10_000_000)), "renewed");
        pacer.echoed((1, 64), Time(10_000_000));
        assert!(pacer.is_associated((1, 64), Time(10_000_000)));
    }

    #[test]
    fn a_flow_is_associated_until_its_last_packet_has_left() {
        let sure = PacerConfig { probability: 1.0, ..TESTBED };
        let mut pacer = pacer(sure);
        pacer.echoed((1, 7), Time(0));
        let late = Time(20_000_000);
        pacer.advance(Time(1_000));
        for _ in 0..3 {
            pacer.offer((1, 7), 0, 1_538);
        }
        assert_eq!(pacer.release(), Some(0));
        assert!(pacer.is_associated((1, 7), late), "two of its packets wait");
        pacer.advance(late);
        while pacer.release().is_some() || pacer.due().is_some() {
            pacer.advance(pacer.due().unwrap_or(late));
        }
        assert!(!pacer.is_associated((1, 7), late));
    }
}
