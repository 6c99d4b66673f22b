//! The protocol's clock: nanoseconds since the engine was opened, read once per batch.

use std::time::Instant;

use homa_proto::{Duration, Time};

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A time of it as the system's; `None` beyond that one's range, as for never.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        if time == Time::MAX {
            return None;
        }
        self.0.checked_add(std::time::Duration::from_nanos(time.0))
    }
}

/// A standard duration in the protocol's units.
pub fn proto(duration: std::time::Duration) -> Duration {
    Duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// A protocol duration in standard units.
pub fn std(duration: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(duration.0)
}
