//! What arriving DATA shows about a link (Homa §3.7: missing bytes may only be waiting behind it).
//! If the rate is known: whether the link was full lately. If it is not: how fast outstanding bytes
//! arrive.
//!
//! A window in which bytes were outstanding all the time shows what the path delivers, more or less
//! than before. Any other window shows only that the path delivers no less (the
//! "application-limited" samples of draft-cheng-iccrg-delivery-rate-estimation).

use crate::units::{Duration, Rate, Time};

/// Shorter bursts than this are normal at any load.
const WINDOW: Duration = Duration::millis(5);
/// For how long the fastest delivery counts: once to twice this.
const EPOCH: Duration = Duration::millis(500);
/// Assumed until bytes were outstanding for a whole window. Slow, because a late RESEND costs
/// little and an early one asks for bytes that are in flight.
const UNMEASURED: Rate = Rate::mbps(100);

/// The measurements of one link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downlink {
    since: Time,
    bytes: u64,
    /// Wire bytes that arrived for this endpoint so far.
    pub(crate) ours: u64,
    full: bool,
    /// Nothing was outstanding for a part of this window.
    idle: bool,
    /// Bits per second: the fastest window of this epoch and of the one before; 0 if there was
    /// none.
    fastest: [u64; 2],
    epoch: Time,
}

impl Downlink {
    /// A packet of `bytes` wire bytes arrived; `more`: others are outstanding.
    pub(crate) fn received(&mut self, now: Time, bytes: u64, rate: Option<Rate>, more: bool) {
        let passed = now.since(self.since);
        if passed >= WINDOW {
            match rate {
                Some(rate) => self.full = self.bytes * 10 >= rate.bytes_in(passed) * 9,
                None => self.measure(now, passed),
            }
            (self.since, self.bytes, self.idle) = (now, 0, false);
        }
        self.bytes += bytes;
        self.ours += bytes;
        self.idle |= !more;
    }

    /// `bytes` wire bytes arrived for other endpoints of this host.
    pub(crate) fn received_by_sibling(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A window of a link of unknown rate ends.
    fn measure(&mut self, now: Time, passed: Duration) {
        // Without a rate, a full link cannot be told from a slow sender.
        self.full = false;
        let seen = u128::from(self.bytes) * 8_000_000_000 / u128::from(passed.0.max(1));
        let seen = u64::try_from(seen).unwrap_or(u64::MAX);
        // The window had pauses, so the link may be faster than it shows.
        if self.idle && seen <= self.rate().0 {
            return;
        }
        // The faster of two epochs counts, so one slow moment does not make a path slow.
        if now.since(self.epoch) >= EPOCH {
            self.fastest = [0, self.fastest[0]];
            self.epoch = now;
        }
        self.fastest[0] = self.fastest[0].max(seen);
    }

    fn rate(&self) -> Rate {
        match self.fastest[0].max(self.fastest[1]) {
            0 => UNMEASURED,
            seen => Rate(seen),
        }
    }

    /// How long outstanding bytes take by a link of unknown rate.
    pub(crate) fn time_for(&self, bytes: u64) -> Duration {
        self.rate().time_for(bytes)
    }

    /// True if nine tenths of the link were used in the last whole window; never if its rate is not
    /// known.
    pub(crate) fn is_full(&self, now: Time) -> bool {
        // An older window says nothing, because no DATA has arrived since.
        self.full && now.since(self.since) <= WINDOW + WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gap: Duration, rate: Option<Rate>, more: bool) -> (Downlink, Time) {
        let (mut link, mut now) = (Downlink::default(), Time(1_000_000_000));
        for _ in 0..2_000 {
            now += gap;
            link.received(now, 1_538, rate, more);
        }
        (link, now)
    }

    #[test]
    fn back_to_back_frames_fill_the_link_and_half_as_many_do_not() {
        let known = Some(Rate::mbps(100));
        let (link, now) = after(Duration::micros(124), known, true);
        assert!(link.is_full(now));
        assert!(!link.is_full(now + Duration::millis(11)), "silence empties it");
        let (link, now) = after(Duration::micros(248), known, true);
        assert!(!link.is_full(now));
    }

    #[test]
    fn owed_bytes_show_how_fast_a_link_of_unknown_rate_delivers() {
        let second = |rate: Rate| rate.bytes_in(Duration::secs(1));
        for rate in [Rate::mbps(10), Rate::mbps(100), Rate::gbps(10)] {
            let (link, now) = after(rate.time_for(1_538 * 64), None, true);
            assert!(!link.is_full(now), "nobody knows");
            // Each frame takes as long as 64 frames.
            let took = link.time_for(second(rate) / 64);
            assert!((990..=1_010).contains(&took.as_millis()), "{rate:?}: {took:?}");
        }
    }

    #[test]
    fn data_that_was_not_awaited_does_not_make_a_link_slow() {
        let (mut link, mut now) = after(Duration::micros(12), None, true);
        let fast = link.time_for(1_000_000);
        for _ in 0..2_000 {
            now += Duration::millis(3);
            link.received(now, 1_538, None, false);
        }
        assert_eq!(link.time_for(1_000_000), fast);
        let (link, _) = after(Duration::millis(3), None, false);
        assert_eq!(link.time_for(1_000_000), UNMEASURED.time_for(1_000_000));
    }

    #[test]
    fn a_link_that_became_slow_is_known_for_it_within_two_epochs() {
        let (mut link, mut now) = after(Duration::micros(12), None, true);
        for _ in 0..1_000 {
            now += Duration::micros(1_230);
            link.received(now, 1_538, None, true);
        }
        let took = link.time_for(Rate::mbps(10).bytes_in(Duration::secs(1)));
        assert!((990..=1_010).contains(&took.as_millis()), "{took:?}");
    }
}
