//! Rates and times as people write them: `10Gbps`, `250ns`. Plain numbers are refused, so that no
//! plan leaves its unit to be guessed.

use std::fmt;
use std::str::FromStr;

use homa_proto::Rate;
use serde::{Deserialize, Serialize};

use crate::time::{SimDuration, SimTime};

/// A link rate in bits per second; text such as `10Gbps` or `2.5Gbps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bandwidth(pub u64);

/// A length of time in picoseconds; text such as `250ns`, `1.5us` or `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub u64);

/// Text that is no rate or no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.expected)
    }
}

impl std::error::Error for UnitError {}

const RATES: [(&str, u64); 4] =
    [("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000), ("bps", 1)];
const TIMES: [(&str, u64); 5] =
    [("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("ps", 1), ("s", 1_000_000_000_000)];

impl Bandwidth {
    /// `n` gigabits per second.
    pub const fn gbps(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// `n` Mbit/s.
    pub const fn mbps(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// As the protocol counts it.
    pub const fn rate(self) -> Rate {
        Rate(self.0)
    }
}

impl Span {
    /// `n` nanoseconds.
    pub const fn nanos(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// As the simulator counts it.
    pub const fn duration(self) -> SimDuration {
        SimDuration(self.0)
    }

    /// That long after the start.
    pub const fn after_start(self) -> SimTime {
        SimTime(self.0)
    }
}

/// Reads `text` as a decimal number followed by one of `units`; exact to the last digit of the
/// unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(at);
    let &(_, scale) = units.iter().find(|(name, _)| *name == unit.trim())?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() || fraction.len() > 12 {
        return None;
    }
    let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if !fraction.is_empty() {
        let digits = fraction.parse::<u64>().ok()?;
        let part = u128::from(digits) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
        value = value.checked_add(u64::try_from(part).ok()?)?;
    }
    Some(value)
}

/// The shortest text: the largest unit that leaves a whole number.
fn text(value: u64, units: &[(&str, u64)]) -> String {
    let whole = units.iter().filter(|(_, scale)| value.is_multiple_of(*scale));
    match whole.max_by_key(|(_, scale)| scale) {
        Some((name, scale)) if value > 0 => format!("{}{name}", value / scale),
        _ => format!("0{}", units[0].0),
    }
}

macro_rules! written {
    ($type:ty, $units:expr, $expected:expr) => {
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let wrong = || UnitError { text: text.to_owned(), expected: $expected };
                parse(text, &$units).map(Self).ok_or_else(wrong)
            }
        }

        impl TryFrom<String> for $type {
            type Error = UnitError;
            fn try_from(text: String) -> Result<Self, UnitError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&text(self.0, &$units))
            }
        }
    };
}

written!(Bandwidth, RATES, "a rate: write it like 10Gbps or 100Mbps");
written!(Span, TIMES, "a time: write it like 250ns, 1.5us, 20ms or 2s");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_exactly_and_written_shortest() {
        let rates = [("10Gbps", 10_000_000_000), ("2.5Gbps", 2_500_000_000), ("1bps", 1)];
        for (text, bits) in rates {
            assert_eq!(text.parse(), Ok(Bandwidth(bits)));
        }
        assert_eq!(Bandwidth(2_500_000_000).to_string(), "2500Mbps");
        let times = [("1.5us", 1_500_000), ("0ns", 0), ("3 ms", 3_000_000_000), ("0.25ns", 250)];
        for (text, picos) in times {
            assert_eq!(text.parse(), Ok(Span(picos)));
        }
        assert_eq!(Span(1_500_000).to_string(), "1500ns");
        assert_eq!(Span(0).to_string(), "0ns");
        assert_eq!(Span(2_000_000_000_000).to_string(), "2s");
    }

    #[test]
    fn numbers_without_unit_and_unknown_units_are_refused() {
        for text in ["10", "10Gb", "fast", "", ".5us", "1.5.5us", "99999999999999s"] {
            assert!(text.parse::<Bandwidth>().is_err() && text.parse::<Span>().is_err(), "{text}");
        }
    }
}
