//! Simulated time in whole picoseconds, because a byte at 100 Gbit/s lasts 80 of them.
//!
//! The protocol counts nanoseconds. [`SimTime::protocol`] rounds down, which keeps `now` monotone;
//! a deadline of `n` ns converts to exactly `1000 n` ps, so that a timer never fires early.

use homa_proto::{Duration, Rate, Time};

use core::ops::{Add, AddAssign, Sub};

/// A point in time: picoseconds since the start. `u64` lasts 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTime(pub u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimDuration(pub u64);

impl SimTime {
    /// The start.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// The same point on the protocol's clock, rounded down to a nanosecond.
    pub const fn protocol(self) -> Time {
        Time(self.0 / 1_000)
    }

    /// The time of a protocol deadline; [`SimTime::MAX`] if it does not fit.
    pub const fn from_protocol(time: Time) -> Self {
        Self(time.0.saturating_mul(1_000))
    }

    /// From `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> SimDuration {
        SimDuration(self.0.saturating_sub(earlier.0))
    }
}

impl SimDuration {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `n` nanoseconds.
    pub const fn nanos(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// A protocol duration; saturates.
    pub const fn from_protocol(duration: Duration) -> Self {
        Self(duration.0.saturating_mul(1_000))
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    fn add(self, span: SimDuration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<SimDuration> for SimTime {
    fn add_assign(&mut self, span: SimDuration) {
        *self = *self + span;
    }
}

impl Add for SimDuration {
    type Output = Self;
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<SimTime> for SimTime {
    type Output = SimDuration;
    fn sub(self, earlier: SimTime) -> SimDuration {
        self.since(earlier)
    }
}

/// A link's rate, prepared so that the serialisation times of usual rates need no division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    rate: Rate,
    /// Picoseconds per byte; 0 if that is not a whole number.
    per_byte: u64,
}

impl LinkRate {
    /// Prepares `rate`. A rate of zero counts as one bit per second.
    pub const fn new(rate: Rate) -> Self {
        let bits = if rate.0 == 0 { 1 } else { rate.0 };
        let per_byte = if 8_000_000_000_000 % bits == 0 { 8_000_000_000_000 / bits } else { 0 };
        Self { rate: Rate(bits), per_byte }
    }

    /// The rate.
    pub const fn rate(self) -> Rate {
        self.rate
    }

    /// How long `bytes` take to serialise, rounded up to a picosecond.
    pub const fn serialisation(self, bytes: u32) -> SimDuration {
        if self.per_byte != 0 {
            return SimDuration(self.per_byte.saturating_mul(bytes as u64));
        }
        let bits = bytes as u128 * 8_000_000_000_000;
        SimDuration(bits.div_ceil(self.rate.0 as u128) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_takes_its_exact_time_at_every_rate() {
        assert_eq!(LinkRate::new(Rate::gbps(100)).serialisation(1538), SimDuration(123_040));
        assert_eq!(LinkRate::new(Rate::mbps(100)).serialisation(1538), SimDuration(123_040_000));
        // 3 Gbit/s: 2666.67 ps a byte.
        assert_eq!(LinkRate::new(Rate::gbps(3)).serialisation(3), SimDuration(8_000));
        assert_eq!(LinkRate::new(Rate::gbps(3)).serialisation(1), SimDuration(2_667));
    }

    #[test]
    fn a_timer_of_the_protocol_never_fires_early() {
        let deadline = Time(1_234);
        assert_eq!(SimTime::from_protocol(deadline).protocol(), deadline);
        assert!(SimTime(SimTime::from_protocol(deadline).0 - 1).protocol() < deadline);
        assert_eq!(SimTime::from_protocol(Time::MAX), SimTime::MAX);
    }
}
