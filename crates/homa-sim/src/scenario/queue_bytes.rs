//! Bytes of a queue that may follow the network: a number, a multiple of the bandwidth-delay
//! product (BDP) of a port, or what the port sends in some time.
//!
//! The BDP of a port is its rate times the round trip of the network without queueing, so that one
//! plan fits every rate: `"1.25 BDP"` is 12,100 bytes at 10 Gbit/s and 7.7 us, and 388,750 bytes at
//! 400 Gbit/s and 6.2 us. `"8us"` is 1000 bytes at 1 Gbit/s.

use std::fmt;
use std::str::FromStr;

use homa_proto::{Duration, Rate};
use homa_workload::units::Quantity;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A threshold of a queue; see the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBytes {
    /// The same bytes at every port.
    Fixed(u32),
    /// A multiple of the port's BDP.
    Bdp {
        /// Thousandths of a BDP.
        thousandths: u32,
        /// Bytes, at least.
        least: u32,
    },
    /// What the port sends in this time.
    Time(Duration),
}

/// The unit of a multiple.
const BDP: &str = "BDP";
/// Between a multiple and its least value.
const AT_LEAST: &str = ", at least ";
/// The largest multiple, in thousandths. More than a thousand round trips is a mistake.
const MOST: f64 = 1e6;

impl QueueBytes {
    /// The bytes at a port of this rate, in a network with this round trip.
    pub fn at(self, port: Rate, round_trip: Duration) -> u32 {
        let sent = |time: Duration| u128::from(port.bytes_in(time));
        let bytes = match self {
            Self::Fixed(bytes) => bytes.into(),
            Self::Bdp { thousandths, least } => {
                (sent(round_trip) * u128::from(thousandths) / 1_000).max(least.into())
            }
            Self::Time(time) => sent(time),
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl From<u32> for QueueBytes {
    fn from(bytes: u32) -> Self {
        Self::Fixed(bytes)
    }
}

impl fmt::Display for QueueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Bdp { thousandths, least } => {
                write!(f, "{} {BDP}", f64::from(thousandths) / 1e3)?;
                if least > 0 { write!(f, "{AT_LEAST}{least}") } else { Ok(()) }
            }
            Self::Time(time) => f.write_str(&Quantity::Time.show(time.0.saturating_mul(1_000))),
        }
    }
}

impl FromStr for QueueBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = |text: &str| {
            let bytes = Quantity::Bytes.parse(text).map_err(|error| {
                format!(
                    "{error}, as a multiple of the port's rate times the round trip (1.25 BDP) \
                         or as the time in which the port sends it (8us)"
                )
            })?;
            let most = u32::MAX;
            u32::try_from(bytes).map_err(|_| format!("`{text}` is too large: the most is {most}"))
        };
        let (multiple, least) = text.split_once(AT_LEAST.trim_end()).unwrap_or((text, "0"));
        let Some(multiple) = multiple.trim_end().strip_suffix(BDP) else {
            return match Quantity::Time.parse(text) {
                Ok(picos) => Ok(Self::Time(Duration(picos / 1_000))),
                Err(_) => bytes(text).map(Self::Fixed),
            };
        };
        let times = multiple.trim().parse::<f64>().ok().map(|times| (times * 1e3).round());
        match times.filter(|times| (1.0..=MOST).contains(times)) {
            Some(times) => Ok(Self::Bdp { thousandths: times as u32, least: bytes(least.trim())? }),
            None => Err(format!("`{text}` is no multiple of the BDP: write it like 1.25 BDP")),
        }
    }
}

impl Serialize for QueueBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Fixed(bytes) => serializer.serialize_u32(bytes),
            Self::Bdp { .. } | Self::Time(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for QueueBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QueueBytesVisitor)
    }
}

struct QueueBytesVisitor;

impl Visitor<'_> for QueueBytesVisitor {
    type Value = QueueBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, 1.25 BDP or 8us", Quantity::Bytes.form())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<QueueBytes, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<QueueBytes, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<QueueBytes, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_follows_the_port_and_the_round_trip() {
        let trip = Duration(6_220);
        let of = |text: &str, gbps| text.parse::<QueueBytes>().unwrap().at(Rate::gbps(gbps), trip);
        assert_eq!(of("1.25 BDP", 400), 388_750);
        assert_eq!(of("1.25 BDP", 100), 97_187);
        assert_eq!(of("1.25 BDP, at least 100KB", 100), 100_000);
        assert_eq!(of("1.25 BDP, at least 100KB", 400), 388_750);
        assert_eq!([10, 400].map(|gbps| of("64KiB", gbps)), [65_536; 2]);
        assert_eq!([1, 400].map(|gbps| of("8us", gbps)), [1_000, 400_000]);
        let huge = QueueBytes::Bdp { thousandths: 1_000_000, least: 0 };
        assert_eq!(huge.at(Rate::gbps(800), Duration::secs(9)), u32::MAX);
    }

    #[test]
    fn thresholds_are_read_as_they_are_written() {
        for (text, written) in [
            ("65", "65"),
            ("\"2KiB\"", "2048"),
            ("\"1.25 BDP\"", "\"1.25 BDP\""),
            ("\"0.5BDP\"", "\"0.5 BDP\""),
            ("\"2 BDP, at least 1KB\"", "\"2 BDP, at least 1000\""),
            ("\"8us\"", "\"8us\""),
        ] {
            let read: QueueBytes = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
            assert_eq!(serde_json::from_str::<QueueBytes>(written).unwrap(), read);
        }
        for wrong in
            ["\"1.25 BPD\"", "\"-1 BDP\"", "\"BDP\"", "\"1e9 BDP\"", "-5", "2.5", "\"9GB\""]
        {
            let error = serde_json::from_str::<QueueBytes>(wrong).unwrap_err().to_string();
            assert!(error.contains("write") || error.contains("most"), "{wrong}: {error}");
        }
    }
}
