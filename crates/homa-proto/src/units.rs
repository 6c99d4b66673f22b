//! Time and rate: the only units that cross a module border.
//!
//! The protocol counts whole nanoseconds since an epoch that the environment chooses. A simulator
//! that counts picoseconds divides at the border, because every constant of the protocol is a
//! microsecond or longer. `u64` nanoseconds last 584 years; picoseconds would wrap after 213 days.

use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since the environment's epoch. Never decreases between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any process runs.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` nanoseconds.
    pub const fn nanos(n: u64) -> Self {
        Self(n)
    }

    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The larger of two durations.
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl Time {
    /// The environment's epoch.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, d: Self) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

/// A link rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// `n` megabits per second.
    pub const fn mbps(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` gigabits per second.
    pub const fn gbps(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// How long `bytes` take to serialise, rounded up.
    pub const fn time_for(self, bytes: u64) -> Duration {
        // The product exceeds 64 bits from 2.3 GB on.
        let bits = bytes as u128 * 8 * 1_000_000_000;
        Duration(bits.div_ceil(self.0 as u128) as u64)
    }

    /// How many whole bytes fit in `time`.
    pub const fn bytes_in(self, time: Duration) -> u64 {
        (self.0 as u128 * time.0 as u128 / 8_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_at_10_gbps_takes_1230_ns() {
        assert_eq!(Rate::gbps(10).time_for(1538), Duration::nanos(1231));
        assert_eq!(Rate::gbps(10).bytes_in(Duration::micros(8)), 10_000);
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Time::MAX + Duration::secs(1), Time::MAX);
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }
}
