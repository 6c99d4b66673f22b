//! NSCC, the congestion window of a sender (UET 1.0; rules and constants as in `uet-htsim` 40ccb05,
//! `uec.cpp`).
//!
//! Two signals decide about every acknowledgement: whether its packet was marked, and its delay
//! above the round trip of an empty path. If a path is congested, marks and a long delay come
//! together, and the window shrinks by the mean delay. If only one of them is there, another path
//! is congested, or the queue is about to drain, and the window holds or grows. If little arrives
//! in a round trip and switches trim, the window becomes what arrived (quick adapt).
//!
//! Every decision is a function of numbers below, in whole bytes and nanoseconds. Invariant: the
//! window is between one full packet and the most. Left out: the receiver's penalty for the window,
//! and recovery without trimming (SLEEK), which are off by default there.

use homa_proto::{Rate, Time};

/// The network for which the constants are stated: 100 Gbit/s times 12 us.
const REFERENCE_BDP: u64 = 150_000;
/// Its round trip, nanoseconds.
const REFERENCE_RTT: u64 = 12_000;
/// Weight of a delay in the mean: a part in this many (delay EWMA .0125).
const MEAN_OVER: u64 = 80;
/// A path whose delay is below this is empty, nanoseconds.
const EMPTY: u64 = 1_000;
/// Full packets after which a window is adjusted within a round trip.
const ADJUST_PACKETS: u64 = 8;
/// Quick adapt needs less than a part in 2^3 of the largest window (qa gate).
const ADAPT_GATE: u32 = 3;
/// Quick adapt also begins at this multiple of the target delay (qa threshold).
const ADAPT_TARGETS: u64 = 4;

/// The parameters of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NsccConfig {
    /// Wire bytes of a full packet: the least window.
    pub full: u32,
    /// Message bytes in a full packet: the unit of growth.
    pub payload: u32,
    /// The host's link.
    pub link: Rate,
    /// Round trip of a full packet and its acknowledgement over the longest empty path, ns.
    pub base_rtt: u64,
    /// The bandwidth-delay product of the network, wire bytes.
    pub bdp: u64,
    /// The queueing delay to aim at, ns.
    pub target: u64,
    /// The first window, wire bytes.
    pub initial: u64,
    /// The largest window, thousandths of a flow's bandwidth-delay product.
    pub most: u32,
}

/// What an acknowledgement or one about a trimmed packet says.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSignal {
    pub now: Time,
    /// Wire bytes that newly arrived, or those of the trimmed packet.
    pub bytes: u64,
    /// The time since its packet was sent, ns, if that is known.
    pub rtt: Option<u64>,
    /// A switch marked the packet.
    pub marked: bool,
    /// Wire bytes in flight.
    pub in_flight: u64,
}

/// The change that an acknowledgement causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowRule {
    /// No mark and a long delay: grow by the same for every flow.
    Fair,
    /// No mark and a short delay: grow by the distance to the target.
    Proportional,
    /// A mark and a long delay.
    Decrease,
    /// A mark and a short delay: only the path should change.
    Hold,
}

const fn rule(marked: bool, delay: u64, target: u64) -> WindowRule {
    match (marked, delay >= target) {
        (false, true) => WindowRule::Fair,
        (false, false) => WindowRule::Proportional,
        (true, true) => WindowRule::Decrease,
        (true, false) => WindowRule::Hold,
    }
}

/// The delay that enters the mean: a long one without a mark counts as a quarter of the round trip,
/// because the queue was draining.
const fn sampled(delay: u64, (base_rtt, target): (u64, u64), marked: bool) -> u64 {
    if !marked && delay > target { base_rtt / 4 } else { delay }
}

/// The mean after a sample, both in the same unit.
const fn mean_after(mean: u64, sample: u64) -> u64 {
    // The mean is at most the largest sample, and samples are below 2^57.
    (mean * (MEAN_OVER - 1) + sample) / MEAN_OVER
}

/// The window after a decrease for this mean delay: by .8 of the share above the target, at most by
/// half.
fn decreased(window: u64, mean: u64, target: u64) -> u64 {
    let above = u128::from(mean.saturating_sub(target)) * 8;
    let cut = u128::from(window) * above / (u128::from(mean.max(1)) * 10);
    window - (cut as u64).min(window / 2)
}

impl NsccConfig {
    /// `number`, which is stated for the reference network, in this one.
    fn scaled(&self, number: u128, over: u64) -> u64 {
        let scaled = number * u128::from(self.bdp) / u128::from(REFERENCE_BDP) / u128::from(over);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// What `bytes` add to the pending increase, in bytes of window times bytes.
    fn fair(&self, bytes: u64) -> u64 {
        self.scaled(5 * u128::from(self.payload) * u128::from(bytes), 1)
    }

    /// The same for a delay of `below` less than the target.
    fn proportional(&self, bytes: u64, below: u64) -> u64 {
        let number = 4 * u128::from(self.payload) * u128::from(bytes) * u128::from(below);
        self.scaled(number, REFERENCE_RTT)
    }

    /// Bytes by which the window grows at once if the path has been empty for a window.
    fn fast(&self, bytes: u64) -> u64 {
        self.scaled(u128::from(bytes), 4)
    }

    /// Bytes by which the window grows per round trip in any case.
    fn eta(&self) -> u64 {
        self.scaled(15 * u128::from(self.payload), 100)
    }

    /// The largest window of a flow whose round trip without queues is `base_rtt`.
    pub fn largest(&self, base_rtt: u64) -> u64 {
        let bdp = u128::from(base_rtt) * u128::from(self.link.0) / 8_000_000_000;
        let most = bdp * u128::from(self.most) / 1_000;
        u64::try_from(most).unwrap_or(u64::MAX).max(self.full.into())
    }
}

/// The window of one flow; see the module's description.
#[derive(Clone, Debug)]
pub(super) struct Nscc {
    window: u64,
    largest: u64,
    /// The shortest round trip so far, ns.
    base_rtt: u64,
    /// Mean delay, picoseconds.
    mean_ps: u64,
    /// Pending increase: bytes of window times bytes.
    pending: u64,
    /// Bytes that arrived since the last adjustment.
    since_adjust: u64,
    last_adjust: Time,
    last_decrease: Time,
    /// Bytes in a row that found the path empty.
    empty_bytes: u64,
    is_fast: bool,
    adapt: QuickAdapt,
}

/// The period that quick adapt looks at.
#[derive(Clone, Debug, Default)]
struct QuickAdapt {
    /// Its end, once the first has begun.
    ends: Option<Time>,
    /// Bytes that arrived in it.
    achieved: u64,
    /// A packet was trimmed.
    trimmed: bool,
    /// Bytes that were in flight at the last adaptation: signals about them are not news.
    to_ignore: u64,
    ignored: u64,
}

impl Nscc {
    pub fn new(config: &NsccConfig, now: Time) -> Self {
        let largest = config.largest(config.base_rtt);
        Self {
            window: config.initial.max(config.full.into()),
            largest,
            base_rtt: config.base_rtt,
            mean_ps: 0,
            pending: 0,
            since_adjust: 0,
            last_adjust: now,
            last_decrease: now,
            empty_bytes: 0,
            is_fast: false,
            adapt: QuickAdapt::default(),
        }
    }

    /// Wire bytes that may be in flight.
    #[inline]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// An acknowledgement arrived.
    pub fn acknowledged(&mut self, config: &NsccConfig, signal: WindowSignal) {
        let WindowSignal { now, bytes, rtt, marked, .. } = signal;
        self.adapt.achieved += bytes;
        self.adapt.ignored += bytes;
        self.since_adjust += bytes;
        let delay = self.delay(config, rtt, marked);
        if self.adapts(config, &signal, (false, delay)) {
            return;
        }
        match rule(marked, delay, config.target) {
            WindowRule::Fair => self.pending = self.pending.saturating_add(config.fair(bytes)),
            WindowRule::Proportional => self.grow(config, bytes, delay),
            WindowRule::Decrease => self.decrease(config, now),
            WindowRule::Hold => {}
        }
        self.clamp(config);
        let period = now.since(self.last_adjust).0 > config.base_rtt;
        if self.since_adjust > ADJUST_PACKETS * u64::from(config.full) || period {
            self.adjust(config, now);
        }
        self.clamp(config);
    }

    /// A switch trimmed a packet. It costs the window its bytes unless it is `excused`: it was
    /// trimmed at the last hop, for which the receiver gives credit.
    pub fn trimmed(&mut self, config: &NsccConfig, signal: WindowSignal, excused: bool) {
        if let Some(rtt) = signal.rtt {
            self.observe_rtt(config, rtt);
        }
        self.adapt.ignored += signal.bytes;
        self.mean_ps = mean_after(self.mean_ps, config.base_rtt.saturating_mul(1_000));
        self.adapt.trimmed = true;
        let adapts = self.adapts(config, &WindowSignal { marked: true, ..signal }, (true, 0));
        if !adapts && !excused {
            self.lost(config, signal.bytes);
        }
    }

    /// A packet of `bytes` is no longer in flight, and did not arrive.
    pub fn lost(&mut self, config: &NsccConfig, bytes: u64) {
        self.window = self.window.saturating_sub(bytes);
        self.clamp(config);
    }

    /// The delay of an acknowledgement, which enters the mean if it was measured.
    fn delay(&mut self, config: &NsccConfig, rtt: Option<u64>, marked: bool) -> u64 {
        let Some(rtt) = rtt else { return self.mean_ps / 1_000 };
        self.observe_rtt(config, rtt);
        let delay = rtt - self.base_rtt;
        let sample = sampled(delay, (self.base_rtt, config.target), marked);
        self.mean_ps = mean_after(self.mean_ps, sample.saturating_mul(1_000));
        delay
    }

    fn observe_rtt(&mut self, config: &NsccConfig, rtt: u64) {
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
            self.largest = config.largest(rtt);
        }
    }

    /// Quick adapt. True if nothing else should change: it took place, or the signal is about bytes
    /// that were in flight when it did.
    fn adapts(
        &mut self,
        config: &NsccConfig,
        signal: &WindowSignal,
        (lost, delay): (bool, u64),
    ) -> bool {
        let adapt = &mut self.adapt;
        let mut over = false;
        if signal.marked && adapt.ignored < adapt.to_ignore {
            over = true;
        } else if adapt.ends.is_none_or(|ends| signal.now > ends) {
            let congested = adapt.trimmed || lost || delay > ADAPT_TARGETS * config.target;
            let few = adapt.achieved < self.largest >> ADAPT_GATE;
            if adapt.ends.is_some() && congested && few {
                self.window = adapt.achieved.max(config.full.into());
                (adapt.to_ignore, adapt.ignored) = (signal.in_flight, 0);
                adapt.trimmed = false;
                over = true;
            }
            adapt.achieved = 0;
            adapt.ends = Some(Time(signal.now.0 + self.base_rtt + config.target));
        }
        if over {
            (self.pending, self.since_adjust) = (0, 0);
        }
        over
    }

    fn grow(&mut self, config: &NsccConfig, bytes: u64, delay: u64) {
        if delay < EMPTY {
            self.empty_bytes += bytes;
            self.is_fast |= self.empty_bytes > self.window;
        } else {
            self.empty_bytes = 0;
            self.is_fast = false;
        }
        if self.is_fast {
            self.window = self.window.saturating_add(config.fast(bytes));
        } else {
            let more = config.proportional(bytes, config.target - delay);
            self.pending = self.pending.saturating_add(more);
        }
    }

    fn decrease(&mut self, config: &NsccConfig, now: Time) {
        (self.is_fast, self.empty_bytes) = (false, 0);
        let mean = self.mean_ps / 1_000;
        if mean > config.target && now.since(self.last_decrease).0 > self.base_rtt {
            self.window = decreased(self.window, mean, config.target);
            self.last_decrease = now;
        }
    }

    fn adjust(&mut self, config: &NsccConfig, now: Time) {
        self.window = self.window.saturating_add(self.pending / self.window.max(1));
        if now.since(self.last_adjust).0 >= config.base_rtt {
            self.window = self.window.saturating_add(config.eta());
            self.last_adjust = now;
        }
        (self.pending, self.since_adjust) = (0, 0);
    }

    fn clamp(&mut self, config: &NsccConfig) {
        self.window = self.window.min(self.largest).max(config.full.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fat tree of `uet-htsim` with its defaults.
    const CONFIG: NsccConfig = NsccConfig {
        full: 4_150,
        payload: 4_086,
        link: Rate::gbps(100),
        base_rtt: 14_023,
        bdp: 175_284,
        target: 10_517,
        initial: 262_926,
        most: 1_500,
    };

    fn signal(now: u64, bytes: u64, (delay, marked): (u64, bool)) -> WindowSignal {
        let rtt = Some(CONFIG.base_rtt + delay);
        WindowSignal { now: Time(now), bytes, rtt, marked, in_flight: 100_000 }
    }

    #[test]
    fn marks_and_delay_together_choose_the_rule() {
        for (marked, delay, expected) in [
            (false, 10_516, WindowRule::Proportional),
            (false, 10_517, WindowRule::Fair),
            (true, 10_516, WindowRule::Hold),
            (true, 10_517, WindowRule::Decrease),
        ] {
            assert_eq!(rule(marked, delay, CONFIG.target), expected, "{marked} {delay}");
        }
    }

    #[test]
    fn increases_are_those_of_the_reference_network_scaled() {
        // a = 175284 / 150000 = 1.16856; MSS 4086 bytes.
        assert_eq!(CONFIG.fair(4_150), 99_075_775);
        // alpha = 4 MSS a / 12 us = 1.592 bytes per ns.
        assert_eq!(CONFIG.proportional(4_150, 10_517), 69465328);
        assert_eq!(CONFIG.proportional(4_150, 0), 0);
        assert_eq!(CONFIG.fast(4_150), 1_212);
        assert_eq!(CONFIG.eta(), 716);
        assert_eq!(CONFIG.largest(14_023), 262_930);
    }

    #[test]
    fn decreases_follow_the_mean_delay_and_end_at_half() {
        for (mean, expected) in [
            (10_517, 100_000),
            (10_000, 100_000),
            // 1 - .8 (20000 - 10517) / 20000
            (20_000, 62_068),
            (28_046, 50_000),
            (1_000_000, 50_000),
        ] {
            assert_eq!(decreased(100_000, mean, CONFIG.target), expected, "{mean}");
        }
    }

    #[test]
    fn a_long_delay_without_a_mark_hardly_raises_the_mean() {
        let base = (14_000, 10_500);
        assert_eq!(sampled(20_000, base, true), 20_000);
        assert_eq!(sampled(20_000, base, false), 3_500);
        assert_eq!(sampled(10_500, base, false), 10_500);
        assert_eq!(mean_after(8_000, 16_000), 8_100);
    }

    #[test]
    fn an_empty_path_grows_fast_only_after_a_window() {
        let mut nscc = Nscc::new(&NsccConfig { initial: 8_300, ..CONFIG }, Time(0));
        let mut windows = Vec::new();
        for n in 0..4 {
            nscc.acknowledged(&CONFIG, signal(1_000 + n, 4_150, (0, false)));
            windows.push(nscc.window());
        }
        // Two packets are the window; the third is beyond it.
        assert_eq!(windows, [8_300, 8_300, 9_512, 10_724]);
        nscc.acknowledged(&CONFIG, signal(1_005, 4_150, (1_000, false)));
        assert_eq!(nscc.window(), 10_724, "no longer empty");
    }

    #[test]
    fn increases_wait_for_eight_packets_or_a_round_trip() {
        let start = NsccConfig { initial: 100_000, ..CONFIG };
        let mut nscc = Nscc::new(&start, Time(0));
        for _ in 0..8 {
            nscc.acknowledged(&CONFIG, signal(1, 4_150, (10_517, false)));
        }
        assert_eq!(nscc.window(), 100_000);
        nscc.acknowledged(&CONFIG, signal(1, 4_150, (10_517, false)));
        // 9 times `fair` over the window; eta only after a round trip.
        assert_eq!(nscc.window(), 100_000 + 9 * 99_075_775 / 100_000);
        let mut nscc = Nscc::new(&start, Time(0));
        nscc.acknowledged(&CONFIG, signal(14_024, 4_150, (10_517, false)));
        assert_eq!(nscc.window(), 100_000 + 990 + 716);
    }

    #[test]
    fn a_window_shrinks_once_per_round_trip_above_the_target() {
        let mut nscc = Nscc::new(&NsccConfig { initial: 100_000, ..CONFIG }, Time(0));
        nscc.mean_ps = 20_000_000;
        nscc.acknowledged(&CONFIG, signal(20_000, 0, (20_000, true)));
        let once = nscc.window();
        assert!((62_000..63_500).contains(&once), "{once}");
        nscc.acknowledged(&CONFIG, signal(20_001, 0, (20_000, true)));
        assert!(nscc.window() >= once);
    }

    #[test]
    fn quick_adapt_takes_what_arrived_and_ignores_what_flew() {
        let mut nscc = Nscc::new(&CONFIG, Time(0));
        // The first period begins, and a trimmed packet costs its bytes.
        nscc.trimmed(&CONFIG, signal(1, 4_150, (0, true)), false);
        assert_eq!(nscc.window(), CONFIG.initial - 4_150);
        nscc.acknowledged(&CONFIG, signal(10, 12_450, (20_000, true)));
        let period = CONFIG.base_rtt + CONFIG.target;
        nscc.trimmed(&CONFIG, signal(2 + period, 4_150, (0, true)), false);
        assert_eq!(nscc.window(), 12_450);
        // 100,000 bytes were in flight.
        nscc.trimmed(&CONFIG, signal(3 + period, 99_999, (0, true)), false);
        assert_eq!(nscc.window(), 12_450);
        nscc.trimmed(&CONFIG, signal(4 + period, 4_150, (0, true)), false);
        assert_eq!(nscc.window(), 8_300);
    }

    #[test]
    fn a_shorter_path_has_a_smaller_window() {
        let mut nscc = Nscc::new(&CONFIG, Time(0));
        let short = WindowSignal { rtt: Some(7_000), ..signal(7_000, 4_150, (0, false)) };
        nscc.acknowledged(&CONFIG, short);
        assert_eq!((nscc.base_rtt, nscc.window()), (7_000, 131_250));
        nscc.lost(&CONFIG, 1 << 40);
        assert_eq!(nscc.window(), 4_150);
    }
}
