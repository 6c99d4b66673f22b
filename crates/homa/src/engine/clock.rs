//! The protocol's clock: nanoseconds since the engine was opened, read once per batch.

use std::time::Instant;

use homa_proto::{Duration, Time};

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Converts a time to the system's clock; `None` for [`Time::MAX`] and beyond the system's
    /// range.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        if time == Time::MAX {
            return None;
        }
        self.0.checked_add(std::time::Duration::from_nanos(time.0))
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
