//! Swift (SIGCOMM 2020, §3.1 to 3.3 and Algorithm 1): a window that follows the round-trip time.
//!
//! The window grows by a packet per round trip while a round trip takes less than its target, and
//! is cut in proportion to the excess otherwise, at most once per round trip. The target grows with
//! the switches on the path, and for small windows, so that many flows may share a queue. A window
//! of less than a packet is a pace: one packet in as many round trips as it is below one. Gaps and
//! silence cut the window by the largest part, and silence for five times sets it to the least.
//!
//! Sources: the paper, and `csg-htsim`, revision 841d9e7 (`swift.cpp`), for what the paper leaves
//! open: round trips are smoothed by 1/8, each acknowledged byte counts for growth, and a packet
//! leaves only if all of it fits. Invariant: the window stays in its range. Left out: the delays of
//! hosts as a second target (our hosts have constant ones), and selective acknowledgements: a gap
//! is sent again from its first byte on, as by the other schemes of this folder.

use homa_proto::{Duration, Time};

use super::control::{Lost, RateControl, RateRange, RateSignal};
use super::telemetry::SentAcross;

/// Parameters of Swift. Windows are full packets, times ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwiftConfig {
    /// The target without switches and with a window of `scaled_to` or more.
    pub base: u64,
    /// Addition for each switch, ħ.
    pub per_switch: u64,
    /// The largest addition for small windows.
    pub range: u64,
    /// The window up to which the addition is `range`.
    pub scaled_from: f64,
    /// The window from which on there is none.
    pub scaled_to: f64,
    /// Growth per round trip, ai.
    pub additive: f64,
    /// The part of the excess by which a window is cut, β.
    pub beta: f64,
    /// The largest cut, as a share of the window (max_mdf).
    pub largest_cut: f64,
    /// The first window.
    pub initial: f64,
    /// The least and the largest window.
    pub limits: (f64, f64),
    /// Message bytes and wire bytes of a full packet.
    pub packet: (u32, u32),
}

/// Timeouts in a row that set the window to the least.
const SILENCE: u32 = 5;

/// The state of a queue pair.
#[derive(Clone, Debug)]
pub struct Swift {
    link: u64,
    /// Full packets.
    window: f64,
    /// Message bytes and wire bytes of a full packet.
    packet: (u32, u32),
    /// Smoothed round trip, ns; 0 before the first.
    rtt: u64,
    /// When the window was cut.
    cut: Option<Time>,
    acknowledged: u32,
}

/// The target of a round trip, ns.
fn target(config: &SwiftConfig, window: f64, switches: u8) -> f64 {
    let (low, high) = (config.scaled_from.sqrt().recip(), config.scaled_to.sqrt().recip());
    let alpha = config.range as f64 / (low - high);
    let scaling = (alpha * (window.sqrt().recip() - high)).clamp(0.0, config.range as f64);
    config.base as f64 + f64::from(switches) * config.per_switch as f64 + scaling
}

/// The share of the window that is left after a round trip beyond the target.
fn share_left(config: &SwiftConfig, rtt: f64, target: f64) -> f64 {
    (1.0 - config.beta * (rtt - target) / rtt).max(1.0 - config.largest_cut)
}

impl Swift {
    /// Whether the window may be cut: the last cut was a round trip ago.
    fn may_cut(&self, now: Time) -> bool {
        self.cut.is_none_or(|cut| now >= cut + Duration(self.rtt))
    }

    /// A window that is the least already is not cut.
    fn cut_to(&mut self, config: &SwiftConfig, now: Time, share: f64) {
        let window = (self.window * share).max(config.limits.0);
        if window < self.window {
            (self.window, self.cut) = (window, Some(now));
        }
    }
}

impl RateControl for Swift {
    type Config = SwiftConfig;
    type Collected = SentAcross;
    const MOVES_NEXT: bool = true;

    fn new(config: &SwiftConfig, range: RateRange) -> Self {
        let SwiftConfig { initial: window, packet, .. } = *config;
        Self { link: range.most, window, packet, rtt: 0, cut: None, acknowledged: 0 }
    }

    /// That of the link while the window has a packet, or no round trip is known.
    fn rate(&self) -> u64 {
        if self.window >= 1.0 || self.rtt == 0 {
            return self.link;
        }
        let bits = self.window * f64::from(self.packet.1) * 8e9;
        ((bits / self.rtt as f64) as u64).clamp(1, self.link)
    }

    /// Whole packets; below one, the pace decides. Without a round trip there is no pace, and one
    /// packet at a time.
    fn window(&self, _: u32, _: u64) -> u32 {
        if self.window < 1.0 {
            return if self.rtt == 0 { 1 } else { u32::MAX };
        }
        let bytes = (self.window * f64::from(self.packet.0)) as u32;
        // The last packet must fit.
        bytes.saturating_sub(self.packet.0).saturating_add(1)
    }

    fn acknowledged(&mut self, config: &SwiftConfig, signal: &RateSignal<SentAcross>) {
        let SentAcross { at, switches } = signal.collected;
        let rtt = signal.now.since(at).0;
        let may_cut = self.may_cut(signal.now);
        self.rtt = if self.rtt == 0 { rtt } else { self.rtt - self.rtt / 8 + rtt / 8 };
        let news = signal.acknowledged.saturating_sub(self.acknowledged);
        self.acknowledged = self.acknowledged.max(signal.acknowledged);
        let target = target(config, self.window, switches);
        if (rtt as f64) < target {
            let growth = config.additive * f64::from(news) / f64::from(self.packet.0);
            self.window = (self.window + growth / self.window.max(1.0)).min(config.limits.1);
        } else if may_cut {
            self.cut_to(config, signal.now, share_left(config, rtt as f64, target));
        }
    }

    fn lost(&mut self, config: &SwiftConfig, now: Time, lost: Lost) {
        match lost {
            Lost::Silence(times) if times >= SILENCE => self.cut_to(config, now, 0.0),
            _ if self.may_cut(now) => self.cut_to(config, now, 1.0 - config.largest_cut),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: u64 = 1_000_000_000;
    /// Google's simulator (Bolt's comparison) has these.
    const CONFIG: SwiftConfig = SwiftConfig {
        base: 25_000,
        per_switch: 1_000,
        range: 100_000,
        scaled_from: 0.1,
        scaled_to: 256.0,
        additive: 1.0,
        beta: 0.8,
        largest_cut: 0.5,
        initial: 40.0,
        limits: (0.01, 300.0),
        packet: (1_000, 1_056),
    };
    const RANGE: RateRange = RateRange { least: GBPS / 10, most: 100 * GBPS };

    #[test]
    fn the_target_follows_switches_and_the_window() {
        for (window, switches, expected) in [
            (256.0, 0, 25_000.0),
            (300.0, 3, 28_000.0),
            (0.1, 1, 126_000.0),
            (0.01, 1, 126_000.0),
            // alpha = 100 / (3.16228 - .0625) = 32.2599 us; a window of 16 adds .1875 of it.
            (16.0, 0, 31_048.73),
            (1.0, 0, 55_243.67),
        ] {
            let target = target(&CONFIG, window, switches);
            assert!((target - expected).abs() < 0.5, "{window} {switches}: {target}");
        }
    }

    #[test]
    fn cuts_follow_the_excess_up_to_the_largest() {
        for (rtt, target, left) in [(100.0, 100.0, 1.0), (125.0, 100.0, 0.84), (900.0, 100.0, 0.5)]
        {
            assert!((share_left(&CONFIG, rtt, target) - left).abs() < 1e-9);
        }
    }

    /// The window after `bytes` were acknowledged after this round trip.
    fn heard(pair: &mut Swift, now: u64, rtt: u64, bytes: u32) -> f64 {
        let collected = SentAcross { at: Time(now - rtt), switches: 1 };
        let acknowledged = pair.acknowledged + bytes;
        let (now, next) = (Time(now), acknowledged + 9_000);
        let signal = RateSignal { now, acknowledged, next, marked: true, collected };
        pair.acknowledged(&CONFIG, &signal);
        pair.window
    }

    #[test]
    fn a_window_grows_by_a_packet_and_is_cut_once_per_round_trip() {
        let mut pair = Swift::new(&CONFIG, RANGE);
        assert_eq!((pair.window(0, 0), pair.rate()), (39_001, 100 * GBPS));
        // 40 packets come back in time.
        let grown = (1..=40).map(|n| heard(&mut pair, 10_000 + n, 10_000, 1_000)).last().unwrap();
        assert!((40.9..41.0).contains(&grown), "{grown}");
        let cut = heard(&mut pair, 900_000, 800_000, 1_000);
        assert!((cut / grown - 0.5).abs() < 1e-9, "{cut} of {grown}");
        assert_eq!(heard(&mut pair, 900_100, 800_000, 1_000), cut, "once per round trip");
        let late = 900_000 + 2 * pair.rtt;
        assert!(heard(&mut pair, late, 800_000, 1_000) < cut, "{pair:?}");
        // A cut by nothing does not delay the next one.
        let mut gentle = Swift::new(&CONFIG, RANGE);
        gentle.rtt = 800_000;
        gentle.cut_to(&CONFIG, Time(5), 1.0);
        assert!(gentle.may_cut(Time(6)), "{gentle:?}");
        // The same packet again is no growth.
        let same = pair.window;
        assert_eq!(heard(&mut pair, late + 1, 10_000, 0), same);
    }

    #[test]
    fn below_a_packet_the_window_is_a_pace() {
        let mut pair = Swift::new(&CONFIG, RANGE);
        (pair.window, pair.rtt) = (0.25, 40_000);
        assert_eq!(pair.window(0, 0), u32::MAX);
        // A packet in four round trips of 40 us.
        assert_eq!(pair.rate(), 1_056 * 8 * 1_000_000 / 160);
        let grown = heard(&mut pair, 100_000, 10_000, 1_000);
        assert!((grown - 1.25).abs() < 1e-9, "{grown}: each packet adds one");
        assert_eq!(pair.window(0, 0), 251);
        // Before the first round trip, one packet at a time.
        let first = Swift::new(&SwiftConfig { initial: 0.5, ..CONFIG }, RANGE);
        assert_eq!((first.window(0, 0), first.rate()), (1, 100 * GBPS));
    }

    #[test]
    fn loss_cuts_once_and_silence_ends_at_the_least() {
        let mut pair = Swift::new(&CONFIG, RANGE);
        pair.rtt = 10_000;
        pair.lost(&CONFIG, Time(1_000), Lost::Gap);
        assert_eq!(pair.window, 20.0);
        pair.lost(&CONFIG, Time(9_000), Lost::Gap);
        assert_eq!(pair.window, 20.0, "in the same round trip");
        pair.lost(&CONFIG, Time(11_000), Lost::Silence(4));
        assert_eq!(pair.window, 10.0);
        pair.lost(&CONFIG, Time(11_001), Lost::Silence(5));
        assert_eq!(pair.window, 0.01);
    }
}
