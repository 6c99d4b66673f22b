//! Numbers as people read them: times, rates, kilobytes.

use homa_testbed::Transport;
use serde::Serializer;

/// A time in the unit that suits it; a dash if there is none.
pub fn time(us: Option<f64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 1_000.0 => format!("{us:.0} us"),
        Some(us) if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        Some(us) if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        Some(us) if us < 10_000_000.0 => format!("{:.0} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
    }
}

/// A link's rate: 12.5 Mbit/s.
pub fn rate(bps: u64) -> String {
    match bps {
        1_000_000_000.. => format!("{} Gbit/s", bps as f64 / 1e9),
        1_000_000.. => format!("{} Mbit/s", bps as f64 / 1e6),
        _ => format!("{} kbit/s", bps as f64 / 1e3),
    }
}

/// Thousands of bytes.
pub fn kilobytes(bytes: f64) -> String {
    format!("{:.1} kB", bytes / 1e3)
}

/// A count with a comma before every three digits.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// Serialises a transport as its name on the command line.
pub fn by_name<S: Serializer>(transport: &Transport, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(transport.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_about_three_digits_and_a_unit() {
        let shown: Vec<String> =
            [Some(87.4), Some(3_312.0), Some(34_500.0), Some(345_000.0), Some(2e7), None]
                .into_iter()
                .map(time)
                .collect();
        assert_eq!(shown, ["87 us", "3.31 ms", "34.5 ms", "345 ms", "20.0 s", "-"]);
    }

    #[test]
    fn rates_and_counts_are_as_people_write_them() {
        assert_eq!(rate(12_500_000), "12.5 Mbit/s");
        assert_eq!(rate(10_000_000_000), "10 Gbit/s");
        assert_eq!([7, 1_500, 1_234_567].map(grouped), ["7", "1,500", "1,234,567"]);
    }
}
