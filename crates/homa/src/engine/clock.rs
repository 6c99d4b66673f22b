//! The protocol's clock: nanoseconds since the engine was opened, read once per batch.
//!
//! The clock of an engine of `homa::testing` is that of its tokio runtime, which a test may pause.

use std::time::Instant;

use homa_proto::{Duration, Time};

use crate::driver::uptime::uptime;

/// Comparisons with the machine's clock.
const LOOKS: usize = 4;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    #[cfg(feature = "testing")]
    simulated: bool,
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            #[cfg(feature = "testing")]
            simulated: false,
        }
    }

    /// A clock that starts at zero now, in the time of the current tokio runtime.
    #[cfg(feature = "testing")]
    pub fn simulated() -> Self {
        Self { start: ::tokio::time::Instant::now().into_std(), simulated: true }
    }

    /// True if the time is that of a tokio runtime.
    #[cfg_attr(not(feature = "testing"), expect(clippy::unused_self, reason = "a feature is off"))]
    pub fn is_simulated(&self) -> bool {
        #[cfg(feature = "testing")]
        return self.simulated;
        #[cfg(not(feature = "testing"))]
        false
    }

    /// The time now, to be compared with what [`Self::instant`] returns.
    pub fn read(&self) -> Instant {
        #[cfg(feature = "testing")]
        if self.simulated {
            return ::tokio::time::Instant::now().into_std();
        }
        Instant::now()
    }

    /// A time on the machine's clock ([`uptime`]), which all processes share. It is not too early,
    /// and too late by no more than the time between two looks.
    pub fn uptime_at(&self, time: Time) -> std::time::Duration {
        // Both clocks are one, and other threads may run between two looks: take the closest.
        let look = || {
            let (before, here) = (uptime(), self.now());
            let after = uptime();
            (after - before, after.saturating_sub(std(Duration(here.0))))
        };
        let start = (0..LOOKS).map(|_| look()).min().map_or_else(uptime, |(_, start)| start);
        start + std(Duration(time.0))
    }

    /// The time now.
    pub fn now(&self) -> Time {
        let elapsed = self.read().saturating_duration_since(self.start);
        Time(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Converts a time to the system's clock; `None` for [`Time::MAX`] and beyond the system's
    /// range.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        // No timer is set, and the sum below could overflow.
        if time == Time::MAX {
            return None;
        }
        self.start.checked_add(std::time::Duration::from_nanos(time.0))
    }
}

/// Converts a standard duration to the protocol's type.
pub fn proto(duration: std::time::Duration) -> Duration {
    Duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts a protocol duration to the standard type.
pub fn std(duration: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(duration.0)
}
