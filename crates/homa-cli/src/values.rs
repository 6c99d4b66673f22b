//! Values on the command line: quantities with their units, as [`homa_workload::units`] reads them,
//! within the limits of the option; shares, addresses, sizes of messages.
//!
//! An error says what to write and does not repeat the value, which clap names with the option.

use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

use homa_sim::scenario::OfferedLoad;
use homa_workload::rng::Rng;
use homa_workload::sizes::{SizeDistribution, Workload};
use homa_workload::units::Quantity;

use crate::reach;

/// How long an address of several may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);

fn read(quantity: Quantity, text: &str) -> Result<u64, String> {
    quantity.parse(text).map_err(|error| error.advice())
}

/// A parser of a quantity between two values of its smallest unit.
pub fn within<T: TryFrom<u64>>(
    quantity: Quantity,
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let value = read(quantity, text)?;
        let (low, high) = (range.start(), range.end());
        let fits = T::try_from(value).ok().filter(|_| range.contains(&value));
        fits.ok_or_else(|| format!("is out of range: write {low} to {high}"))
    }
}

/// A link rate, in bits per second: `100Mbps`, `2.5G`.
pub fn rate(text: &str) -> Result<u64, String> {
    match read(Quantity::Rate, text)? {
        bits @ 1_000_000..=1_000_000_000_000 => Ok(bits),
        _ => Err("is out of range: write 1Mbps to 1000Gbps".into()),
    }
}

/// A length of time: `20s`, `500ms`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let picos = read(Quantity::Time, text)?;
    // Rounded to nanoseconds.
    match Duration::from_nanos((picos + 500) / 1_000) {
        time if !time.is_zero() && time <= Duration::from_secs(86_400) => Ok(time),
        _ => Err("is out of range: write a time above zero and at most a day, such as 20s".into()),
    }
}

/// A number of bytes: `131072`, `128kB` (1000 bytes each), `128KiB` (1024 bytes each), `2MB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    within(Quantity::Bytes, 1..=1_000_000_000_000)(text)
}

/// A length in metres: `100m`, `2km`.
pub fn metres(text: &str) -> Result<f64, String> {
    match read(Quantity::Length, text)? {
        millimetres @ 0..=100_000_000 => Ok(millimetres as f64 / 1e3),
        _ => Err("is out of range: write at most 100km".into()),
    }
}

/// A length of a message, in bytes; it may be empty.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    let limit = 1u64 << 31;
    match within::<u64>(Quantity::Bytes, 0..=u64::MAX)(text)? {
        n if n < limit => Ok(n as u32),
        _ => Err(format!("a message has fewer than {limit} bytes")),
    }
}

/// Lengths of messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Uniform from the first to the second; one size if they are equal.
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

/// Says on stderr how the user's table of sizes was understood, and its mean.
pub fn tell_table(name: &str, sizes: &SizeDistribution) {
    if let Some(form) = sizes.form() {
        eprintln!("{name}: {form}; mean {:.1} B", sizes.mean_bytes());
    }
    if let Some(doubt) = sizes.doubt() {
        eprintln!("warning: {name}: {doubt}");
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
    read(Quantity::Count, text)
}

/// A seed of everything random.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// Calls per second.
pub fn rate_of_calls(text: &str) -> Result<f64, String> {
    match read(Quantity::PerSecond, text)? as f64 / 1e6 {
        rate if (1e-3..=1e7).contains(&rate) => Ok(rate),
        _ => Err("is out of range: write calls per second from 0.001 to 10M".into()),
    }
}

/// The addresses of a name, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub Vec<SocketAddr>);

/// An address and port to listen at; the addresses of a name that this machine has.
pub fn listening(text: &str) -> Result<Addresses, String> {
    addresses(text).map(|all| Addresses(reach::own(all.0)))
}

/// An address and port; all addresses of a name.
pub fn addresses(text: &str) -> Result<Addresses, String> {
    match reach::addresses(text) {
        Ok(all) if all.is_empty() => Err(format!("the name in `{text}` has no address")),
        Ok(all) => Ok(Addresses(all)),
        Err(error) => Err(format!(
            "{error}; write it as 10.0.0.7:4000, [::1]:4000, [fe80::1%eth0]:4000 or name:4000"
        )),
    }
}

/// An address and port; the first one of a name.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    addresses(text).map(|all| all.0[0])
}

/// The address and port of a server; if a name has several addresses, one at which an engine
/// answers.
pub fn server(text: &str) -> Result<SocketAddr, String> {
    match &addresses(text)?.0[..] {
        // It lets a socket choose; nothing can be sent to it.
        [first, ..] if first.port() == 0 => {
            Err("no server has port 0: give the port that `homa serve` says it listens on".into())
        }
        [one] => Ok(*one),
        several => Ok(reach::first_reached(several).unwrap_or(several[0])),
    }
}

/// The TCP address of metrics; if a name has several addresses, one that accepts a connection.
pub fn metrics(text: &str) -> Result<SocketAddr, String> {
    let accepts = |at: &&SocketAddr| TcpStream::connect_timeout(at, CONNECT).is_ok();
    match &addresses(text)?.0[..] {
        [first, ..] if first.port() == 0 => {
            Err("nothing listens at port 0: give the port that `homa serve --metrics` prints"
                .into())
        }
        [one] => Ok(*one),
        several => Ok(*several.iter().find(accepts).unwrap_or(&several[0])),
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
    Quantity::Rate.show(bits_per_second)
}

/// Writes a time as [`duration`] reads it.
pub fn show_duration(time: Duration) -> String {
    let picos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000);
    Quantity::Time.show(picos)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn metrics_are_found_at_any_address_of_a_name() {
        for listens in ["127.0.0.1:0", "[::1]:0"] {
            // A host without IPv6 has one address less.
            let Ok(listener) = std::net::TcpListener::bind(listens) else { continue };
            let at = listener.local_addr().unwrap();
            let all = addresses(&format!("localhost:{}", at.port())).unwrap().0;
            if all.contains(&at) {
                assert_eq!(metrics(&format!("localhost:{}", at.port())), Ok(at));
            }
        }
        assert!(metrics("127.0.0.1:0").unwrap_err().contains("nothing listens at port 0"));
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
        assert!(rate("0Mbps").is_err() && rate("1001G").is_err());
        assert!(metres("101km").is_err() && metres("2km") == Ok(2_000.0));
        assert!(within::<u16>(Quantity::Bytes, 84..=65_536)("64KiB").is_err(), "beyond its type");
        let frame = within::<u32>(Quantity::Bytes, 84..=65_536);
        assert_eq!(frame("1.5KB"), Ok(1_500));
        assert_eq!(frame("83"), Err("is out of range: write 84 to 65536".into()));
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
