//! RTTbytes per peer (Homa §3.2, §3.3): link rate times the delay from sending a GRANT to receiving
//! the data that it allowed. The estimate is the smallest of the recent samples, because queues
//! only add delay. A peer that only receives from us is measured on the same round trip: from the
//! first packet of a message to its first GRANT.
//!
//! A window larger than the true product hides the delay behind its own bytes: if a sample is no
//! longer than the bytes ahead of it take to drain, it is only an upper bound. If the smallest
//! sample of a period is such a bound, the estimate is reduced by a sixteenth, at least by a frame,
//! so that windows cannot feed on the queue that they build.
//!
//! If the link's rate is not known, delays cannot be turned into bytes. Then the window itself is
//! measured: it starts as configured and grows until a full one takes about 100 µs longer than the
//! base delay.

use crate::config::FULL_FRAME;
use crate::units::{Duration, Rate, Time};

/// RTTbytes never fall below this: six full frames.
pub(crate) const RTT_BYTES_MIN: u32 = 6 * FULL_FRAME;
const PERIOD: Duration = Duration::millis(100);
const SAMPLES: u32 = 32;
/// For how long the least delay is believed, between half and all of it; BBR believes it as long.
const EPOCH: Duration = Duration::secs(10);
/// The window grows while a full one takes less than this longer than the base delay, and shrinks
/// if it takes twice this longer. A target for the delay, as in Swift (Kumar et al., SIGCOMM 2020,
/// §3.1): about what a host needs to wake a thread that turns a grant into data, during which the
/// data of other grants should arrive.
const WAIT_GROW: Duration = Duration::micros(100);
const WAIT_SHRINK: Duration = Duration::micros(200);
/// Smallest window if the rate is not known, since delay may be the host's: the kernel module's
/// unscheduled bytes by default.
const RTT_BYTES_UNKNOWN: u32 = 40_000;

#[derive(Clone, Debug)]
pub(crate) struct RttBytes {
    bytes: u32,
    least: Duration,
    /// The bytes ahead of the least sample took as long as the sample, so it is only an upper
    /// bound.
    explained: bool,
    samples: u32,
    /// A period has ended without growth behind a link of unknown rate. Until then periods end with
    /// enough samples, because the first window may be a small part of what a fast link needs.
    measured: bool,
    period_started: Time,
    /// The message of ours, by age, whose first GRANT we wait for, and when its first packet left.
    begun: Option<(u64, Time)>,
    /// The measurement if the link's rate is not known.
    unknown_rate: BehindUnknown,
}

/// The measurements of a peer behind a link of unknown rate.
#[derive(Clone, Debug)]
struct BehindUnknown {
    /// The least delay with half a window or more ahead, in this period.
    least_full: Duration,
    /// The least delay of any sample in this epoch and the one before, and when this one began.
    base: [Duration; 2],
    epoch: Time,
}

impl BehindUnknown {
    const NEW: Self =
        Self { least_full: Duration::MAX, base: [Duration::MAX; 2], epoch: Time::ZERO };

    fn sample(&mut self, now: Time, delay: Duration, full: bool) {
        // The base of the last epoch still counts, so that it never lapses at once.
        if now.since(self.epoch) >= EPOCH {
            self.base = [Duration::MAX, self.base[0]];
            self.epoch = now;
        }
        self.base[0] = self.base[0].min(delay);
        // Only a full window can show that it is too large.
        if full {
            self.least_full = self.least_full.min(delay);
        }
    }

    /// How much longer than the base delay a full window takes; `None` if there was none.
    fn wait(&mut self) -> Option<Duration> {
        let least = core::mem::replace(&mut self.least_full, Duration::MAX);
        let base = self.base[0].min(self.base[1]);
        (least != Duration::MAX).then(|| Duration(least.0.saturating_sub(base.0)))
    }
}

impl RttBytes {
    pub(crate) const fn new(bytes: u32) -> Self {
        Self {
            bytes,
            least: Duration::MAX,
            explained: false,
            samples: 0,
            measured: false,
            period_started: Time::ZERO,
            begun: None,
            unknown_rate: BehindUnknown::NEW,
        }
    }

    /// The present estimate.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Takes a sample: the bytes that a GRANT allowed arrived after `delay`, behind `ahead` bytes
    /// that were in flight already; `max` is the configured limit.
    pub(crate) fn sample(&mut self, now: Time, delay: Duration, ahead: u64, rate: Rate, max: u32) {
        // A new period begins.
        if self.samples == 0 {
            self.least = Duration::MAX;
        }
        if delay < self.least {
            self.least = delay;
            // The bytes ahead of it took as long, so the delay shows them and not the path.
            self.explained = delay <= rate.time_for(ahead + 2 * u64::from(FULL_FRAME));
        }
        if !self.ends_period(now) {
            return;
        }
        let bound = u32::try_from(rate.bytes_in(self.least)).unwrap_or(u32::MAX);
        // The true product is at most the bound, and perhaps smaller: try a smaller window.
        let next = if self.explained {
            let bytes = self.bytes.min(bound);
            bytes - (bytes / 16).max(FULL_FRAME).min(bytes)
        } else {
            bound
        };
        self.bytes = next.clamp(RTT_BYTES_MIN.min(max), max);
    }

    /// The same if the link's rate is not known. The window grows by half while a full one takes
    /// little longer than a packet alone. It shrinks if a full one takes much longer, because then
    /// its bytes wait for each other, or for those of others.
    pub(crate) fn sample_of_unknown(&mut self, now: Time, delay: Duration, ahead: u64, max: u32) {
        self.unknown_rate.sample(now, delay, ahead >= u64::from(self.bytes / 2));
        if !self.ends_period(now) {
            return;
        }
        let bytes = self.bytes;
        let next = match self.unknown_rate.wait() {
            Some(wait) if wait < WAIT_GROW => bytes.saturating_add(bytes / 2),
            Some(wait) if wait > WAIT_SHRINK => bytes - (bytes / 16).max(FULL_FRAME).min(bytes),
            Some(_) | None => bytes,
        };
        self.bytes = next.clamp(RTT_BYTES_UNKNOWN.min(max), max);
        // A window that grew may still be far too small: the next period ends soon.
        self.measured = self.bytes <= bytes;
    }

    /// Counts a sample; true if it is the last of its period.
    fn ends_period(&mut self, now: Time) -> bool {
        if self.samples == 0 {
            self.period_started = now;
        }
        self.samples += 1;
        let period = if self.measured { PERIOD } else { Duration::ZERO };
        let ends = self.samples >= SAMPLES && now.since(self.period_started) >= period;
        if ends {
            self.measured = true;
            self.samples = 0;
        }
        ends
    }

    /// The first packet of a message that needs grants leaves. One message at a time is measured.
    pub(crate) fn begin(&mut self, now: Time, age: u64) {
        // A message whose GRANT does not come must not stop the measurement for ever.
        if self.begun.is_none_or(|(_, at)| now.since(at) >= PERIOD) {
            self.begun = Some((age, now));
        }
    }

    /// When the message of this age began, if it is the one that is measured.
    pub(super) fn answered(&mut self, age: u64) -> Option<Time> {
        self.begun.take_if(|begun| begun.0 == age).map(|(_, at)| at)
    }
}

/// How long an event usually takes: smoothed mean and deviation, with the gains of TCP's estimator
/// (Jacobson and Karels 1988).
#[derive(Clone, Debug, Default)]
pub(crate) struct SmoothedTime {
    mean: u64,
    deviation: u64,
}

impl SmoothedTime {
    pub(crate) fn sample(&mut self, time: Duration) {
        // The first sample (RFC 6298 §2.2).
        if self.mean == 0 {
            *self = Self { mean: time.0, deviation: time.0 / 2 };
            return;
        }
        // RFC 6298 §2.3, with its gains of 1/4 and 1/8.
        let error = self.mean.abs_diff(time.0);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.mean = self.mean - self.mean / 8 + time.0 / 8;
    }

    /// Longer than nearly every sample.
    pub(crate) fn usual(&self) -> Duration {
        // RFC 6298 §2.2 and §2.3: the mean and four deviations.
        Duration(self.mean.saturating_add(self.deviation.saturating_mul(4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_time_follows_the_samples() {
        let mut time = SmoothedTime::default();
        assert_eq!(time.usual(), Duration::ZERO);
        for _ in 0..200 {
            time.sample(Duration::millis(80));
        }
        assert!((80..100).contains(&time.usual().as_millis()), "{:?}", time.usual());
        for _ in 0..200 {
            time.sample(Duration::micros(300));
        }
        assert!(time.usual() < Duration::millis(2), "{:?}", time.usual());
    }

    fn settle(start: u32, base: Duration, rate: Rate, senders: u64) -> u32 {
        let mut rtt = RttBytes::new(start);
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now += Duration::micros(200);
            // A saturated window delays its own grants: the true delay shows only if it is longer.
            let window = u64::from(rtt.bytes());
            let delay = base.max(rate.time_for(senders * window));
            let ahead = senders * window - u64::from(FULL_FRAME);
            rtt.sample(now, delay, ahead, rate, 1_000_000);
        }
        rtt.bytes()
    }

    #[test]
    fn the_estimate_settles_within_two_frames_of_the_product() {
        let rate = Rate::gbps(10);
        let base = Duration::micros(24);
        for start in [10_000, 200_000] {
            let bytes = settle(start, base, rate, 1);
            assert!(bytes.abs_diff(30_000) <= 2 * FULL_FRAME, "{start} settles at {bytes}");
        }
    }

    #[test]
    fn many_senders_at_once_do_not_talk_each_other_up() {
        let rate = Rate::mbps(100);
        assert_eq!(settle(60_000, Duration::micros(300), rate, 5), RTT_BYTES_MIN);
    }

    /// For a rate that is not known; one grant in four finds nothing in flight.
    fn settle_of_unknown(start: u32, base: Duration, rate: Rate, max: u32) -> u32 {
        let mut rtt = RttBytes::new(start);
        let mut now = Time::ZERO;
        for n in 0..20_000 {
            now += Duration::micros(200);
            let window = u64::from(rtt.bytes());
            let (delay, ahead) = match n % 4 {
                0 => (base, 0),
                _ => (base.max(rate.time_for(window)), window - u64::from(FULL_FRAME)),
            };
            rtt.sample_of_unknown(now, delay, ahead, max);
        }
        rtt.bytes()
    }

    #[test]
    fn a_window_fills_a_link_of_unknown_rate() {
        let base = Duration::micros(24);
        for (rate, product) in [(Rate::gbps(10), 30_000), (Rate::gbps(25), 75_000)] {
            for start in [10_000, 900_000] {
                let bytes = settle_of_unknown(start, base, rate, 1_000_000);
                let waits = rate.bytes_in(WAIT_SHRINK) as u32;
                let most = product + waits + 2 * FULL_FRAME;
                assert!((product..=most).contains(&bytes), "{rate:?} from {start}: {bytes}");
            }
        }
        assert_eq!(settle_of_unknown(10_000, base, Rate::gbps(100), 240_000), 240_000);
        let slow = settle_of_unknown(60_000, base, Rate::mbps(100), 240_000);
        assert_eq!(slow, RTT_BYTES_UNKNOWN);
    }

    #[test]
    fn a_window_that_is_never_full_stays() {
        let mut rtt = RttBytes::new(60_000);
        for n in 0..10_000 {
            let now = Time(n * 1_000_000);
            rtt.sample_of_unknown(now, Duration::micros(24), 0, 240_000);
        }
        assert_eq!(rtt.bytes(), 60_000);
    }

    #[test]
    fn never_below_six_frames_nor_above_the_cap() {
        let idle = Duration::nanos(100);
        assert_eq!(settle(50_000, idle, Rate::mbps(100), 1), RTT_BYTES_MIN);
        let mut rtt = RttBytes::new(10_000);
        for i in 0..100 {
            let now = Time(i * 10_000_000);
            rtt.sample(now, Duration::secs(1), 0, Rate::gbps(10), 60_000);
        }
        assert_eq!(rtt.bytes(), 60_000);
    }
}
