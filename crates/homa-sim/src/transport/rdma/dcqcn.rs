//! DCQCN (SIGCOMM 2015, §3.1, §3.3) in the form that network cards of Mellanox have and HPCC's
//! simulator follows (`rdma-hw.cc`, the functions `…Mlx`).
//!
//! A marked acknowledgement is a congestion notification. Every `alpha_every`, α moves towards one
//! if there was one, else towards zero. Every `cut_every`, the rate is cut by α/2 if there was one.
//! Every `rise_every` after a cut, the rate rises to half way between itself and its target; after
//! `recoveries` such times, the target rises first. The rate before a cut becomes the target only
//! if the rate has risen since the last one. All three clocks start with the first notification.
//! Invariant: the rate stays in its range, and the target below the link's rate. Left out: the
//! byte counter, and a limit on notifications at the receiver, which the limit on cuts subsumes.

use homa_proto::Time;

use super::control::{RateControl, RateRange, RateSignal, scaled};

/// Parameters of DCQCN. Times are ns, rates bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnConfig {
    /// Time between updates of α.
    pub alpha_every: u64,
    /// Time between cuts, at least.
    pub cut_every: u64,
    /// Time between rises.
    pub rise_every: u64,
    /// Weight of the newest update of α, g.
    pub gain: f64,
    /// Rises after a cut that leave the target as it is (F).
    pub recoveries: u32,
    /// Increment of the target at the next rise (R_AI).
    pub additive: u64,
    /// Increment at all later ones (R_HAI).
    pub hyper: u64,
}

/// The state of a queue pair.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    range: RateRange,
    rate: u64,
    target: u64,
    alpha: f64,
    /// When the first notification came, ns.
    first: Option<u64>,
    /// Updates of α that were counted.
    updates: u64,
    /// There was a notification since the last of them.
    marked: bool,
    /// When the rate is cut, ns.
    cut_at: Option<u64>,
    /// When it rises, ns.
    rise_at: Option<u64>,
    /// Rises since the last cut.
    rises: u32,
}

/// α after `updates`. If there was a notification, the first update counts it.
fn moved(alpha: f64, gain: f64, (updates, marked): (u64, bool)) -> f64 {
    if updates == 0 {
        return alpha;
    }
    let (mut alpha, mut left) =
        ((1.0 - gain) * alpha + if marked { gain } else { 0.0 }, updates - 1);
    // By squares, because a pair may be idle for long.
    let mut factor = 1.0 - gain;
    while left > 0 {
        if left & 1 == 1 {
            alpha *= factor;
        }
        (factor, left) = (factor * factor, left / 2);
    }
    alpha
}

/// Rate and target after a cut. `rose` is whether the rate has risen since the last one.
fn cut((rate, target): (u64, u64), alpha: f64, rose: bool, range: RateRange) -> (u64, u64) {
    let target = if rose { rate } else { target };
    (range.clamp(scaled(rate, 1.0 - alpha / 2.0)), target)
}

/// Rate and target after one more rise. `rises` is how often the rate has risen since the last cut.
fn risen(
    config: &DcqcnConfig,
    (rate, target): (u64, u64),
    rises: u32,
    range: RateRange,
) -> (u64, u64) {
    let more = match rises {
        _ if rises < config.recoveries => 0,
        _ if rises == config.recoveries => config.additive,
        _ => config.hyper,
    };
    let target = target.saturating_add(more).min(range.most);
    (rate / 2 + target / 2, target)
}

/// The first time after `now` at which the rate may be cut: 1 ns after a multiple of `every`, so
/// that α is updated before.
fn next_cut(first: u64, every: u64, now: u64) -> u64 {
    first + 1 + (now.saturating_sub(first + 1) / every + 1) * every
}

impl Dcqcn {
    /// Counts the updates of α until now.
    fn update(&mut self, config: &DcqcnConfig, now: u64) {
        let Some(first) = self.first else { return };
        let updates = now.saturating_sub(first) / config.alpha_every;
        let new = updates.saturating_sub(self.updates);
        self.alpha = moved(self.alpha, config.gain, (new, self.marked));
        self.marked &= new == 0;
        self.updates += new;
    }

    fn notified(&mut self, config: &DcqcnConfig, now: u64) {
        match self.first {
            None => {
                self.first = Some(now);
                self.target = self.rate;
            }
            Some(_) => {
                self.update(config, now);
                self.marked = true;
            }
        }
        let first = self.first.unwrap_or(now);
        self.cut_at.get_or_insert(next_cut(first, config.cut_every, now));
    }
}

impl RateControl for Dcqcn {
    type Config = DcqcnConfig;
    type Collected = ();

    fn new(_: &DcqcnConfig, range: RateRange) -> Self {
        Self {
            range,
            rate: range.most,
            target: range.most,
            alpha: 1.0,
            first: None,
            updates: 0,
            marked: false,
            cut_at: None,
            rise_at: None,
            rises: 0,
        }
    }

    fn rate(&self) -> u64 {
        self.rate
    }

    fn acknowledged(&mut self, config: &DcqcnConfig, signal: &RateSignal<()>) {
        if signal.marked {
            self.notified(config, signal.now.0);
        }
    }

    fn deadline(&self) -> Option<Time> {
        [self.cut_at, self.rise_at].into_iter().flatten().min().map(Time)
    }

    fn expire(&mut self, config: &DcqcnConfig, now: Time) {
        while let Some(Time(at)) = self.deadline().filter(|&at| at <= now) {
            let both = (self.rate, self.target);
            if self.cut_at == Some(at) {
                self.update(config, at);
                (self.rate, self.target) = cut(both, self.alpha, self.rises > 0, self.range);
                (self.rises, self.cut_at) = (0, None);
            } else {
                (self.rate, self.target) = risen(config, both, self.rises, self.range);
                self.rises += 1;
            }
            self.rise_at = Some(at + config.rise_every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: u64 = 1_000_000_000;
    const RANGE: RateRange = RateRange { least: GBPS, most: 100 * GBPS };
    const CONFIG: DcqcnConfig = DcqcnConfig {
        alpha_every: 1_000,
        cut_every: 4_000,
        rise_every: 300_000,
        gain: 1.0 / 256.0,
        recoveries: 1,
        additive: 20_000_000,
        hyper: 200_000_000,
    };

    #[test]
    fn alpha_rises_by_a_notification_and_else_falls() {
        for (alpha, updates, marked, expected) in [
            (0.5, 0, true, 0.5),
            (0.5, 1, true, 0.5 * 255.0 / 256.0 + 1.0 / 256.0),
            (0.5, 1, false, 0.5 * 255.0 / 256.0),
            (1.0, 3, false, (255.0f64 / 256.0).powi(3)),
            (0.0, 3, true, (255.0f64 / 256.0).powi(2) / 256.0),
        ] {
            let moved = moved(alpha, 1.0 / 256.0, (updates, marked));
            assert!((moved - expected).abs() < 1e-12, "{moved} for {expected}");
        }
    }

    #[test]
    fn a_cut_keeps_the_target_until_the_rate_has_risen() {
        for (rate, target, alpha, rose, expected) in [
            (100, 100, 1.0, false, (50, 100)),
            (50, 100, 1.0, false, (25, 100)),
            (75, 100, 0.5, true, (56, 75)),
            (1, 100, 1.0, false, (1, 100)),
        ] {
            let (after, target) = cut((rate * GBPS, target * GBPS), alpha, rose, RANGE);
            assert_eq!((after / GBPS, target / GBPS), expected);
        }
    }

    #[test]
    fn rises_recover_then_add_then_add_more() {
        let both = (50 * GBPS, 60 * GBPS);
        for (rises, rate, target) in
            [(0, 55.0, 60.0), (1, 55.01, 60.02), (2, 55.1, 60.2), (9, 55.1, 60.2)]
        {
            let now = risen(&CONFIG, both, rises, RANGE);
            let gbps = (now.0 as f64 / 1e9, now.1 as f64 / 1e9);
            assert!((gbps.0 - rate).abs() < 1e-6 && (gbps.1 - target).abs() < 1e-6, "{gbps:?}");
        }
        assert_eq!(risen(&CONFIG, (100 * GBPS, 100 * GBPS), 5, RANGE).1, 100 * GBPS);
    }

    #[test]
    fn cuts_have_a_clock_that_starts_with_the_first_notification() {
        let cases =
            [(500, 4_501), (4_500, 4_501), (4_501, 8_501), (4_502, 8_501), (20_000, 20_501)];
        for (now, expected) in cases {
            assert_eq!(next_cut(500, 4_000, now), expected, "{now}");
        }
    }

    /// By hand: α is 1 at the first notification, and three updates without one and one with it
    /// precede the first cut.
    #[test]
    fn notifications_cut_and_silence_restores() {
        let mut pair = Dcqcn::new(&CONFIG, RANGE);
        let signal = |now| RateSignal {
            now: Time(now),
            acknowledged: 1,
            next: 2,
            marked: true,
            collected: (),
        };
        pair.acknowledged(&CONFIG, &RateSignal { marked: false, ..signal(10) });
        assert_eq!(pair.deadline(), None);
        pair.acknowledged(&CONFIG, &signal(500));
        pair.acknowledged(&CONFIG, &signal(600));
        assert_eq!(pair.deadline(), Some(Time(4_501)));
        pair.expire(&CONFIG, Time(4_500));
        assert_eq!(pair.rate, 100 * GBPS);
        pair.expire(&CONFIG, Time(4_501));
        let kept: f64 = 255.0 / 256.0;
        let alpha = kept.powi(3) * (kept + 1.0 / 256.0);
        assert!(pair.rate.abs_diff(scaled(100 * GBPS, 1.0 - alpha / 2.0)) <= 1, "{pair:?}");
        assert_eq!((pair.target, pair.deadline()), (100 * GBPS, Some(Time(304_501))));
        let low = pair.rate;
        pair.expire(&CONFIG, Time(304_501));
        assert_eq!(pair.rate, low / 2 + 50 * GBPS);
        pair.expire(&CONFIG, Time(10_000_000));
        assert!(pair.rate > 99 * GBPS, "{pair:?}");
    }
}
