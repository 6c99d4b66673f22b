//! Whether our link has been full lately, judged by the DATA that arrived (Homa §3.7: what is
//! missing may only be waiting behind it).

use crate::config::FULL_FRAME;
use crate::units::{Duration, Rate, Time};

/// What is looked at as one piece; shorter bursts are normal at any load.
const WINDOW: Duration = Duration::millis(5);

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downlink {
    since: Time,
    bytes: u64,
    full: bool,
}

impl Downlink {
    /// A packet of `payload` bytes arrived, of at most `max_payload`.
    pub(crate) fn received(&mut self, now: Time, payload: u32, max_payload: u32, rate: Rate) {
        let passed = now.since(self.since);
        if passed >= WINDOW {
            self.full = self.bytes * 10 >= rate.bytes_in(passed) * 9;
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += u64::from(payload + FULL_FRAME.saturating_sub(max_payload));
    }

    /// True when nine tenths of the link were used in the last whole window.
    pub(crate) fn is_full(&self, now: Time) -> bool {
        self.full && now.since(self.since) <= WINDOW + WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(gap: Duration) -> (Downlink, Time) {
        let (mut link, mut now) = (Downlink::default(), Time(1_000_000_000));
        for _ in 0..200 {
            now += gap;
            link.received(now, 1_400, 1_400, Rate::mbps(100));
        }
        (link, now)
    }

    #[test]
    fn back_to_back_frames_fill_the_link_and_half_as_many_do_not() {
        let (link, now) = after(Duration::micros(124));
        assert!(link.is_full(now));
        assert!(!link.is_full(now + Duration::millis(11)), "silence empties it");
        let (link, now) = after(Duration::micros(248));
        assert!(!link.is_full(now));
    }
}
