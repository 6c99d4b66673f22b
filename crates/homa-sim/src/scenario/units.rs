//! Rates and times as people write them: `10Gbps`, `250ns`. Plain numbers are refused, so that no
//! plan leaves its unit to be guessed; the refusal says how to write them.

use std::fmt;
use std::str::FromStr;

use homa_proto::Rate;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::time::{SimDuration, SimTime};

/// A link rate in bits per second; text such as `10Gbps`, `2.5gbps` or `10G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Bandwidth(pub u64);

/// A length of time in picoseconds; text such as `250ns`, `1.5us` or `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Span(pub u64);

/// Text that is no rate or no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    expected: &'static str,
    /// The units that a plain number may have meant.
    units: [&'static str; 2],
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, expected, units } = self;
        if text.parse::<f64>().is_ok_and(f64::is_finite) {
            return write!(
                f,
                "`{text}` has no unit: write {text}{} or {text}{}",
                units[0], units[1]
            );
        }
        write!(f, "`{text}` is not {expected}")
    }
}

impl std::error::Error for UnitError {}

/// As they are written; when they are read, case does not matter, nor a missing `bps`.
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

/// `10G`, `10gbps` and `10Gbit/s` are `10Gbps`, but no `GBps`, which are bytes; times are read as
/// they are written.
fn is_unit(written: &str, name: &str) -> bool {
    let Some(prefix) = name.strip_suffix("bps") else { return written == name };
    let lower = written.to_ascii_lowercase();
    let rest = lower.strip_prefix(&prefix.to_ascii_lowercase());
    let known = |rest: &str| matches!(rest, "bps" | "bit" | "bit/s") || rest.is_empty();
    rest.is_some_and(known) && !written.is_empty() && !written.contains('B')
}

/// Reads `text` as a decimal number followed by one of `units`; exact to the last digit of the
/// unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(at);
    let &(_, scale) = units.iter().find(|(name, _)| is_unit(unit.trim(), name))?;
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
    ($type:ty, $units:expr, $likely:expr, $expected:expr) => {
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let (expected, units) = ($expected, $likely);
                let wrong = || UnitError { text: text.trim().to_owned(), expected, units };
                parse(text, &$units).map(Self).ok_or_else(wrong)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_any(Text($expected))?;
                text.parse().map_err(D::Error::custom)
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

/// Text, or a number as text, which the parser refuses with advice.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

/// A workload: its name, or the size of every message in bytes, as text or as a number.
pub(super) fn workload<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_any(Text("the name of a workload or a size in bytes"))
}

written!(Bandwidth, RATES, ["Gbps", "Mbps"], "a rate: write it like 10Gbps or 100Mbps");
written!(Span, TIMES, ["us", "ms"], "a time: write it like 250ns, 1.5us, 20ms or 2s");

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
    fn rates_are_read_in_every_common_way() {
        for text in ["10Gbps", "10gbps", "10G", "10 g", "10Gbit", "10gbit/s", "10000M"] {
            assert_eq!(text.parse(), Ok(Bandwidth(10_000_000_000)), "{text}");
        }
        for text in ["10GBps", "10GB", "10Tbps", "10/s"] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_without_unit_is_refused_with_what_to_write() {
        let said = |text: &str| text.parse::<Span>().unwrap_err().to_string();
        assert_eq!(said("5"), "`5` has no unit: write 5us or 5ms");
        assert_eq!(said("fast"), "`fast` is not a time: write it like 250ns, 1.5us, 20ms or 2s");
        let read = |text: &str| serde_json::from_str::<Bandwidth>(text);
        assert_eq!(read("\"25Gbps\"").unwrap(), Bandwidth::gbps(25));
        assert!(read("25").unwrap_err().to_string().contains("write 25Gbps or 25Mbps"));
        assert!(read("true").unwrap_err().to_string().contains("write it like 10Gbps"));
    }

    #[test]
    fn numbers_without_unit_and_unknown_units_are_refused() {
        for text in ["10", "10Gb", "fast", "", ".5us", "1.5.5us", "99999999999999s"] {
            assert!(text.parse::<Bandwidth>().is_err() && text.parse::<Span>().is_err(), "{text}");
        }
    }
}
