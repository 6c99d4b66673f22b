//! Rates, times and bytes in plans, as people write them: `10Gbps`, `250ns`, `128KiB`. A rate or a
//! time without a unit is refused, because its unit would have to be guessed. Bytes and counts may
//! also be plain numbers. [`homa_workload::units`] defines the accepted forms.

use std::fmt;
use std::str::FromStr;

use homa_proto::Rate;
use homa_workload::units::Quantity;
use serde::de::{DeserializeSeed, Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::time::{SimDuration, SimTime};

pub use homa_workload::units::UnitError;

/// A link rate in bits per second; text such as `10Gbps`, `2.5gbps` or `10G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Bandwidth(pub u64);

/// A length of time in picoseconds; text such as `250ns`, `1.5us` or `2s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Span(pub u64);

impl Bandwidth {
    /// `n` gigabits per second.
    pub const fn gbps(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// `n` Mbit/s.
    pub const fn mbps(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// The same rate as a type of the protocol.
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

    /// The same time as a type of the simulator.
    pub const fn duration(self) -> SimDuration {
        SimDuration(self.0)
    }

    /// The time this long after the start of the run.
    pub const fn after_start(self) -> SimTime {
        SimTime(self.0)
    }
}

macro_rules! written {
    ($type:ty, $quantity:expr) => {
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $quantity.parse(text).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_any(Text($quantity.form()))?;
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
                f.write_str(&$quantity.show(self.0))
            }
        }
    };
}

/// Reads text, or a number as text. The parser refuses the latter with advice on how to write it.
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

/// Bytes, e.g. `131072` or `"128KiB"`, for keys that hold one number, an optional one, or a list.
pub(super) fn bytes<'de, D: Deserializer<'de>, T: NumericKey>(from: D) -> Result<T, D::Error> {
    held(from, Quantity::Bytes)
}

/// A count, e.g. `100000` or `"100k"`, for the same kinds of keys.
pub(super) fn count<'de, D: Deserializer<'de>, T: NumericKey>(from: D) -> Result<T, D::Error> {
    held(from, Quantity::Count)
}

fn held<'de, D: Deserializer<'de>, T: NumericKey>(
    from: D,
    quantity: Quantity,
) -> Result<T, D::Error> {
    let given = from.deserialize_any(NumericVisitor(quantity))?;
    T::of(given).map_err(D::Error::custom)
}

/// The value in the plan.
pub(super) enum NumericValue {
    None,
    One(u64),
    Many(Vec<u64>),
}

/// A type that a key of the plan can have.
pub(super) trait NumericKey: Sized {
    /// Converts the value, or says what the plan should contain.
    fn of(given: NumericValue) -> Result<Self, String>;
}

fn narrowed<T: TryFrom<u64>>(number: u64, most: impl fmt::Display) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("`{number}` is too large: the most is {most}"))
}

macro_rules! one_number {
    ($($number:ty)*) => {$(
        impl NumericKey for $number {
            fn of(given: NumericValue) -> Result<Self, String> {
                match given {
                    NumericValue::One(number) => narrowed(number, Self::MAX),
                    _ => Err("write one number, not a list".to_owned()),
                }
            }
        }
    )*};
}

one_number!(u16 u32 u64);

impl<T: NumericKey> NumericKey for Option<T> {
    fn of(given: NumericValue) -> Result<Self, String> {
        match given {
            NumericValue::None => Ok(None),
            given => T::of(given).map(Some),
        }
    }
}

impl NumericKey for Vec<u32> {
    fn of(given: NumericValue) -> Result<Self, String> {
        match given {
            NumericValue::Many(numbers) => {
                numbers.into_iter().map(|number| narrowed(number, u32::MAX)).collect()
            }
            NumericValue::None | NumericValue::One(_) => {
                Err("write a list, such as [1000, 2000]".to_owned())
            }
        }
    }
}

/// Reads a value of this quantity.
#[derive(Clone, Copy)]
struct NumericVisitor(Quantity);

impl<'de> Visitor<'de> for NumericVisitor {
    type Value = NumericValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.form())
    }

    fn visit_unit<E: Error>(self) -> Result<NumericValue, E> {
        Ok(NumericValue::None)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<NumericValue, E> {
        Ok(NumericValue::One(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<NumericValue, E> {
        let whole = u64::try_from(number);
        whole
            .map(NumericValue::One)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NumericValue, E> {
        self.0.parse(text).map(NumericValue::One).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NumericValue, A::Error> {
        let mut numbers = Vec::new();
        while let Some(given) = list.next_element_seed(self)? {
            numbers.push(u64::of(given).map_err(A::Error::custom)?);
        }
        Ok(NumericValue::Many(numbers))
    }
}

impl<'de> DeserializeSeed<'de> for NumericVisitor {
    type Value = NumericValue;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<NumericValue, D::Error> {
        from.deserialize_any(self)
    }
}

written!(Bandwidth, Quantity::Rate);
written!(Span, Quantity::Time);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_need_a_unit() {
        let read = |text: &str| serde_json::from_str::<Bandwidth>(text);
        assert_eq!(read("\"25G\"").unwrap(), Bandwidth::gbps(25));
        assert!(read("25").unwrap_err().to_string().contains("write 25Gbps or 25Mbps"));
        assert!(read("true").unwrap_err().to_string().contains("write it like 25Gbps"));
        assert_eq!(serde_json::from_str::<Span>("\"2m\"").unwrap(), Span::millis(120_000));
        assert_eq!(Span(1_500_000).to_string(), "1500ns");
        assert_eq!(Bandwidth(2_500_000_000).to_string(), "2500Mbps");
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Keys {
        #[serde(deserialize_with = "bytes")]
        one: u32,
        #[serde(deserialize_with = "bytes")]
        list: Vec<u32>,
        #[serde(default, deserialize_with = "bytes")]
        none: Option<u16>,
        #[serde(default, deserialize_with = "count")]
        count: Option<u64>,
    }

    #[test]
    fn bytes_and_counts_are_numbers_or_text() {
        let read = |text: &str| serde_json::from_str::<Keys>(text);
        let keys = |none, count| Keys { one: 2_000, list: vec![1, 2_048], none, count };
        let text = r#"{"one": "2KB", "list": [1, "2KiB"], "none": "1.5k", "count": "100k"}"#;
        assert_eq!(read(text).unwrap(), keys(Some(1_500), Some(100_000)));
        let text = r#"{"one": 2000, "list": [1, 2048], "count": null}"#;
        assert_eq!(read(text).unwrap(), keys(None, None));
        for (wrong, said) in [
            (r#"{"one": "2kb", "list": []}"#, "`2kb` is not a number of bytes: write it like 1500"),
            (r#"{"one": -2, "list": []}"#, "`-2`, expected a number of bytes: write it like 1500"),
            (r#"{"one": 2.5, "list": []}"#, "expected a number of bytes"),
            (r#"{"one": "5GB", "list": []}"#, "`5000000000` is too large: the most is 4294967295"),
            (r#"{"one": [5], "list": []}"#, "write one number, not a list"),
            (r#"{"one": 5, "list": 7}"#, "write a list"),
            (r#"{"one": 5, "list": [], "count": "1e6"}"#, "write it like 100000, 100k or 1M"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
