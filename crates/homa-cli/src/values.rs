//! Values on the command line with their units written out: `100Mbps`, `20s`, `128kB`, `0.8`.
//!
//! A number without a unit is refused where several units are in use: a link of `100` could be
//! anything.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use homa_sim::scenario::OfferedLoad;
use homa_workload::rng::Rng;
use homa_workload::sizes::{SizeDistribution, Workload};

/// Splits `12.5ms` into 12.5 and `ms`.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| format!("`{text}` is not a number"))?;
    Ok((number, text[end..].trim()))
}

/// A link rate, in bits per second: `100Mbps`, `2.5Gbps`.
pub fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "kbps" | "kbit/s" => 1e3,
        "mbps" | "mbit/s" => 1e6,
        "gbps" | "gbit/s" => 1e9,
        _ => return Err("write the rate with its unit, such as 100Mbps or 1Gbps".into()),
    };
    let bits = number * factor;
    if !(1e6..=1e12).contains(&bits) {
        return Err("a link has between 1Mbps and 1000Gbps".into());
    }
    Ok(bits as u64)
}

/// A length of time: `20s`, `500ms`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err("write the time with its unit, such as 500ms, 20s or 2m".into()),
    };
    // Rounded to nanoseconds.
    match Duration::try_from_secs_f64(number * factor) {
        Ok(time) if !time.is_zero() && time <= Duration::from_secs(86_400) => Ok(time),
        _ => Err("a time is longer than zero and at most a day".into()),
    }
}

/// A number of bytes: `131072`, `128kB` (1000 bytes each), `128KiB` (1024 bytes each), `2MB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "k" | "kB" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        _ => return Err("write bytes as 131072, 128kB, 128KiB or 2MB".into()),
    };
    let bytes = number * factor;
    if !(1.0..=1e12).contains(&bytes) {
        return Err("needs at least one byte, at most 1e12".into());
    }
    Ok(bytes as u64)
}

/// A length of a message, in bytes: at least one, because Homa cannot express an empty message.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    let limit = 1u64 << 31;
    match bytes(text)? {
        n if n < limit => Ok(n as u32),
        _ => Err(format!("a message has fewer than {limit} bytes")),
    }
}

/// Lengths of messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// From the first to the second, each as often; one size where they are equal.
    Range(u32, u32),
    /// As a workload has them.
    Workload(SizeDistribution),
}

impl Sizes {
    /// The largest, bytes.
    pub fn largest(&self) -> u32 {
        match self {
            Self::Range(_, high) => *high,
            Self::Workload(sizes) => sizes.quantile(1.0),
        }
    }

    /// The size in the middle, for a message alone.
    pub fn any(&self) -> u32 {
        match self {
            Self::Range(low, high) => low + (high - low) / 2,
            Self::Workload(sizes) => sizes.quantile(0.5),
        }
    }

    /// That of the next message.
    pub fn sample(&self, rng: &mut Rng) -> u32 {
        match self {
            Self::Range(low, high) => low + rng.uniform_below(high - low + 1),
            Self::Workload(sizes) => sizes.sample(rng),
        }
    }
}

/// Lengths of messages: `100`, `100..10kB`, `w4`, or a file of sizes.
pub fn sizes(text: &str) -> Result<Sizes, String> {
    if let Some((low, high)) = text.split_once("..").filter(|(low, _)| message_bytes(low).is_ok()) {
        let (low, high) = (message_bytes(low)?, message_bytes(high)?);
        return match low <= high {
            true => Ok(Sizes::Range(low, high)),
            false => Err(format!("{low} is more than {high}: write the smaller size first")),
        };
    }
    let number = text.starts_with(|first: char| first.is_ascii_digit());
    if number && !std::path::Path::new(text).exists() {
        return message_bytes(text).map(|bytes| Sizes::Range(bytes, bytes));
    }
    let workload = Workload::parse(text).map_err(|error| error.to_string())?;
    workload.sizes().map(Sizes::Workload).map_err(|error| error.to_string())
}

/// A number of things: `100000`, `100_000`, `100k`, `1M`.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.replace('_', "").parse().ok().and_then(|n: u64| n.checked_mul(factor));
    number.ok_or_else(|| "write a whole number, such as 100000, 100k or 1M".into())
}

/// Calls per second.
pub fn rate_of_calls(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix('k') {
        Some(thousands) => (thousands, 1e3),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if (1e-3..=1e7).contains(&(rate * factor)) => Ok(rate * factor),
        _ => Err("write calls per second, such as 500 or 20k".into()),
    }
}

/// The bytes of a message: at least one.
pub fn message_text(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a message needs at least one byte".into()),
        false => Ok(text.into()),
    }
}

/// An address and port; names are looked up.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map(|mut addresses| addresses.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("the name in `{text}` has no address")),
        Err(error) => Err(format!("{error}; write it as 10.0.0.7:4000, [::1]:4000 or name:4000")),
    }
}

/// Load as a share of a link's capacity.
pub fn load(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(load) if load > 0.0 && load < 1.0 => Ok(load),
        _ => Err("load is a share of the link between 0 and 1, such as 0.8".into()),
    }
}

/// Load as a share of a link's capacity, which more may be offered than it has.
pub fn offered(text: &str) -> Result<f64, String> {
    let load = text.parse::<f64>().unwrap_or(f64::NAN);
    OfferedLoad::check(load).map(|()| load).map_err(|must| format!("a load must {must}"))
}

/// The probability that a frame is lost or duplicated.
pub fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..1.0).contains(&p) => Ok(p),
        _ => Err("a probability is at least 0 and below 1, such as 0.01 for 1 %".into()),
    }
}

/// Writes a rate as [`rate`] reads it.
pub fn show_rate(bits_per_second: u64) -> String {
    match bits_per_second {
        b if b % 1_000_000_000 == 0 => format!("{}Gbps", b / 1_000_000_000),
        b if b % 1_000_000 == 0 => format!("{}Mbps", b / 1_000_000),
        b => format!("{}kbps", b as f64 / 1e3),
    }
}

/// Writes a time as [`duration`] reads it.
pub fn show_duration(time: Duration) -> String {
    match time.as_micros() {
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us if us % 1_000 == 0 => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_written() {
        assert_eq!(rate("100Mbps"), Ok(100_000_000));
        assert_eq!(rate("2.5 Gbps"), Ok(2_500_000_000));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(bytes("128kB"), Ok(128_000));
        assert_eq!(bytes("128KiB"), Ok(131_072));
        assert_eq!(bytes("131072"), Ok(131_072));
    }

    #[test]
    fn counts_are_written_out_or_in_thousands_and_millions() {
        let counts = ["100000", "100_000", "100k", "1M", "0"].map(count);
        assert_eq!(counts, [100_000, 100_000, 100_000, 1_000_000, 0].map(Ok));
        for wrong in ["1e6", "-1", "1.5", "", "k", "18446744073709551615k", "1G"] {
            assert!(count(wrong).unwrap_err().contains("100k"), "{wrong}");
        }
    }

    #[test]
    fn lengths_of_messages_are_a_size_a_range_or_a_workload() {
        assert_eq!(sizes("20kB"), Ok(Sizes::Range(20_000, 20_000)));
        assert_eq!(sizes("100..10kB"), Ok(Sizes::Range(100, 10_000)));
        assert_eq!(sizes("w1").map(|sizes| sizes.largest()), Ok(100_000));
        assert!(sizes("9..3").is_err() && sizes("w9").is_err() && sizes("5x").is_err());
        let mut rng = Rng::stream(1, "sizes");
        let drawn: Vec<u32> = (0..200).map(|_| Sizes::Range(3, 5).sample(&mut rng)).collect();
        assert!([3, 4, 5].iter().all(|size| drawn.contains(size)) && drawn.iter().all(|s| *s < 6));
        assert_eq!(rate_of_calls("20k"), Ok(20_000.0));
        assert!(rate_of_calls("0").is_err() && rate_of_calls("fast").is_err());
    }

    #[test]
    fn what_could_mean_two_things_is_refused() {
        assert!(rate("100").is_err());
        assert!(rate("100MB").is_err());
        assert!(duration("20").is_err());
        assert!(bytes("1.5x").is_err());
    }

    #[test]
    fn out_of_range_values_are_refused() {
        assert!(address("10.0.0.7").is_err());
        assert!(load("80").is_err());
        assert!(load("1").is_err());
        assert!(load("nan").is_err());
        assert!(offered("1.5").is_ok() && offered(&"9".repeat(300)).is_err());
        assert!(probability("1.0").is_err());
        assert!(bytes("0").is_err());
        assert!(message_bytes("3000MB").is_err());
        assert!(rate("0Mbps").is_err());
        assert!(duration("0s").is_err());
        assert!(duration("0.0000001us").is_err());
        assert!(duration("99999999999999999999999m").is_err());
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for bits in [100_000_000, 1_000_000_000, 2_500_000] {
            assert_eq!(rate(&show_rate(bits)), Ok(bits));
        }
        for ms in [1, 500, 20_000] {
            let time = Duration::from_millis(ms);
            assert_eq!(duration(&show_duration(time)), Ok(time));
        }
    }
}
