//! Numbers with units as people write them: `25Gbps`, `20ms`, `128KiB`, `2km`, `5k`.
//!
//! This is the only place that reads such text, so the command line, plans and Python accept the
//! same forms of a quantity. Invariants: the arithmetic is in whole numbers, so a text has the same
//! value on every machine; what [`Quantity::show`] writes is read back as the same value; a rate, a
//! time or a length without a unit is refused, because `100` could mean anything.
//!
//! Left out: limits. A link of 1 Gbit/s at least, or a time of at most a day, is the business of
//! the option that has the limit.

use std::fmt;

/// The kind of a number, which decides the units it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bits per second: `25Gbps`, `25G`, `100Mbit/s`, `64kbps`; case does not matter, except that
    /// `GB/s` would be bytes and is refused.
    Rate,
    /// Picoseconds: `250ns`, `10us`, `1.5ms`, `20s`, `2m` (minutes), `1h`.
    Time,
    /// Bytes: `1500`, `1500B`, `1KB` (1000 bytes), `128KiB` (131,072 bytes), `2M`, `1GB`.
    Bytes,
    /// Millimetres: `100m`, `2km`.
    Length,
    /// Ones: `100000`, `100_000`, `100k`, `1M`.
    Count,
    /// Millionths per second: `500`, `0.5`, `20k`.
    PerSecond,
}

/// Names of one unit, the one that is written first, and its size in the smallest one.
type Unit = (&'static [&'static str], u64);

const MILLION: u64 = 1_000_000;
const BILLION: u64 = 1_000_000_000;

const RATES: &[Unit] =
    &[(&["Gbps"], BILLION), (&["Mbps"], MILLION), (&["kbps"], 1_000), (&["bps"], 1)];
const TIMES: &[Unit] = &[
    (&["ns"], 1_000),
    // The last two are the sign for micro and the Greek letter.
    (&["us", "\u{b5}s", "\u{3bc}s"], MILLION),
    (&["ms"], BILLION),
    (&["ps"], 1),
    (&["s"], 1_000 * BILLION),
    (&["m", "min"], 60_000 * BILLION),
    (&["h"], 3_600_000 * BILLION),
];
const BYTES: &[Unit] = &[
    (&["", "B"], 1),
    (&["kB", "KB", "k", "K"], 1_000),
    (&["MB", "M"], MILLION),
    (&["GB", "G"], BILLION),
    (&["KiB"], 1 << 10),
    (&["MiB"], 1 << 20),
    (&["GiB"], 1 << 30),
];
const LENGTHS: &[Unit] = &[(&["m"], 1_000), (&["km"], MILLION)];
const COUNTS: &[Unit] = &[(&[""], 1), (&["k"], 1_000), (&["M"], MILLION)];
const PER_SECOND: &[Unit] = &[(&[""], MILLION), (&["k"], BILLION), (&["M"], 1_000 * BILLION)];

/// Digits after the point that are read; more are finer than any unit.
const FRACTION: usize = 18;

impl Quantity {
    /// Reads a decimal number followed by a unit, in the smallest unit of the quantity. A
    /// finer fraction is cut off, but bytes and counts must be whole.
    ///
    /// # Errors
    ///
    /// [`UnitError`] if the number or the unit is none, or the value exceeds 64 bits.
    pub fn parse(self, text: &str) -> Result<u64, UnitError> {
        self.read(text.trim())
            .ok_or_else(|| UnitError { text: text.trim().to_owned(), quantity: self })
    }

    fn read(self, text: &str) -> Option<u64> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
        let at = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let unit = unit.trim();
        let &(_, scale) =
            self.units().iter().find(|(names, _)| names.iter().any(|name| self.is(unit, name)))?;
        let number = number.replace('_', "");
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        let mut value = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale);
        let fraction = fraction.get(..FRACTION).unwrap_or(fraction);
        if !fraction.is_empty() {
            let (part, whole) =
                (u128::from(fraction.parse::<u64>().ok()?), 10u128.pow(fraction.len() as u32));
            let part = part * u128::from(scale);
            if self.is_whole() && !part.is_multiple_of(whole) {
                return None;
            }
            value += part / whole;
        }
        u64::try_from(value).ok()
    }

    /// The shortest text of a value: with the largest unit that leaves a whole number.
    pub fn show(self, value: u64) -> String {
        // Minutes and hours are written in seconds.
        let is_shown = |names: &[&str]| self != Self::Time || names[0].ends_with('s');
        let units = self.units().iter().filter(|(names, _)| is_shown(names));
        let whole = units.filter(|(_, scale)| value.is_multiple_of(*scale));
        match whole.max_by_key(|(_, scale)| scale) {
            Some((names, scale)) if value > 0 => format!("{}{}", value / scale, names[0]),
            _ => format!("0{}", self.units()[0].0[0]),
        }
    }

    fn units(self) -> &'static [Unit] {
        match self {
            Self::Rate => RATES,
            Self::Time => TIMES,
            Self::Bytes => BYTES,
            Self::Length => LENGTHS,
            Self::Count => COUNTS,
            Self::PerSecond => PER_SECOND,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Bytes | Self::Count)
    }

    /// Whether `written` is the unit `name`. `10G`, `10gbps`, `10Gb/s` and `10Gbit/s` are `10Gbps`;
    /// other units are read as they are written, because `m` and `M` differ.
    fn is(self, written: &str, name: &str) -> bool {
        let Some(prefix) = name.strip_suffix("bps").filter(|_| self == Self::Rate) else {
            return written == name;
        };
        let lower = written.to_ascii_lowercase();
        let rest = lower.strip_prefix(&prefix.to_ascii_lowercase());
        let known = |rest: &str| matches!(rest, "bps" | "b/s" | "bit" | "bit/s" | "");
        rest.is_some_and(known) && !written.is_empty() && !written.contains('B')
    }

    /// Two units that a plain number may have meant; none if it needs no unit.
    fn likely(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Rate => Some(["Gbps", "Mbps"]),
            Self::Time => Some(["us", "ms"]),
            Self::Length => Some(["m", "km"]),
            Self::Bytes | Self::Count | Self::PerSecond => None,
        }
    }

    /// An example of its text, for errors: `a rate: write it like 25G, ...`.
    pub fn form(self) -> &'static str {
        match self {
            Self::Rate => "a rate: write it like 25Gbps, 25G, 100Mbps or 100Mbit/s",
            Self::Time => "a time: write it like 250ns, 10us, 1.5ms, 20s or 2m",
            Self::Bytes => "a number of bytes: write it like 1500, 1KB, 128KiB or 2MB",
            Self::Length => "a length: write it like 100m or 2km",
            Self::Count => "a whole number: write it like 100000, 100k or 1M",
            Self::PerSecond => "a number per second: write it like 500 or 20k",
        }
    }
}

/// Text that is no such quantity; it says how to write one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    quantity: Quantity,
}

impl UnitError {
    /// The same without the text, for messages that have named it: `has no unit: write 5us or 5ms`.
    pub fn advice(&self) -> String {
        let Self { text, quantity } = self;
        let is_plain =
            text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
        match quantity.likely().filter(|_| is_plain) {
            Some([first, second]) => format!("has no unit: write {text}{first} or {text}{second}"),
            None => format!("is not {}", quantity.form()),
        }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.text, self.advice())
    }
}

impl std::error::Error for UnitError {}

#[cfg(test)]
mod tests {
    use super::Quantity::{Bytes, Count, Length, PerSecond, Rate, Time};
    use super::*;

    #[test]
    fn every_accepted_form_has_its_exact_value() {
        let accepted: [(Quantity, u64, &[&str]); 14] = [
            (
                Rate,
                25 * BILLION,
                &["25G", "25Gbps", "25gbps", "25 g", "25Gbit", "25Gb/s", "25000M"],
            ),
            (Rate, 100 * MILLION, &["100Mbps", "100Mbit/s", "100mbit/s", "0.1Gbps", "100_000kbps"]),
            (Rate, 1, &["1bps", "1bit/s"]),
            (Time, 20_000 * BILLION, &["20s", "20 s", "20000ms", "20_000ms"]),
            (Time, 10 * MILLION, &["10us", "10\u{b5}s", "10\u{3bc}s", "0.01ms", " 10us "]),
            (Time, 250, &["0.25ns", "250ps"]),
            (Time, 120_000 * BILLION, &["2m", "2min", "120s"]),
            (Time, 0, &["0ns", "0s", "0.0000000000009ns"]),
            (Bytes, 1_500, &["1500", "1_500", "1500B", "1.5KB", "1.5kB", "1.5k", "1.5K"]),
            (Bytes, 131_072, &["128KiB", "128 KiB", "131072", "0.125MiB"]),
            (Bytes, 2 * BILLION, &["2GB", "2G", "2000MB", "2000M"]),
            (Length, 2 * MILLION, &["2km", "2000m", "2000 m"]),
            (Count, 100_000, &["100000", "100_000", "100k", "0.1M"]),
            (PerSecond, 20 * BILLION, &["20k", "20000", "0.02M"]),
        ];
        for (quantity, value, texts) in accepted {
            for text in texts {
                assert_eq!(quantity.parse(text), Ok(value), "{quantity:?} {text}");
            }
        }
    }

    #[test]
    fn what_could_mean_two_things_is_refused_with_an_example() {
        let refused: [(Quantity, &[&str], &str); 6] = [
            (Rate, &["10GBps", "10GB", "10Tbps", "10/s", "-1Gbps", "1e9bps"], "25Gbps, 25G"),
            (Time, &["5 sec", "5M", "5S", "5U", "-5us", "1e3us", "99999999999999s"], "20s or 2m"),
            (Bytes, &["1.5", "1.3333KB", "5kb", "5 bytes", "-5", "1e3", "5m"], "1KB, 128KiB"),
            (Length, &["5ft", "-1m", "5M"], "100m or 2km"),
            (Count, &["1.5", "1e6", "-1", "k", "1G", "18446744073709551615k"], "100k or 1M"),
            (PerSecond, &["fast", "-1", "1e3", "nan"], "500 or 20k"),
        ];
        for (quantity, texts, example) in refused {
            for text in texts.iter().chain(&["", "fast", ".5", "1.5.5", "."]) {
                let error = quantity.parse(text).unwrap_err().to_string();
                assert!(error.starts_with(&format!("`{text}` is not a")), "{quantity:?}: {error}");
                assert!(error.contains(example), "{quantity:?}: {error}");
            }
        }
    }

    #[test]
    fn a_number_without_a_unit_is_told_which_to_write() {
        let said = |quantity: Quantity| quantity.parse("5").unwrap_err().to_string();
        assert_eq!(said(Time), "`5` has no unit: write 5us or 5ms");
        assert_eq!(said(Rate), "`5` has no unit: write 5Gbps or 5Mbps");
        assert_eq!(said(Length), "`5` has no unit: write 5m or 5km");
        assert!(Rate.parse("inf").unwrap_err().to_string().contains("write it like"));
    }

    #[test]
    fn what_is_shown_is_short_and_read_back_as_the_same() {
        let shown = [
            (Rate, 2_500 * MILLION, "2500Mbps"),
            (Rate, 10 * BILLION, "10Gbps"),
            (Rate, 0, "0Gbps"),
            (Time, 1_500_000, "1500ns"),
            (Time, 120_000 * BILLION, "120s"),
            (Time, 0, "0ns"),
            (Bytes, 131_072, "128KiB"),
            (Bytes, 10 * MILLION, "10MB"),
            (Length, 100_000, "100m"),
            (Count, 5_000, "5k"),
            (PerSecond, 1_500 * MILLION, "1500"),
        ];
        for (quantity, value, text) in shown {
            assert_eq!(quantity.show(value), text, "{quantity:?}");
            assert_eq!(quantity.parse(text), Ok(value), "{quantity:?} {text}");
        }
    }
}
