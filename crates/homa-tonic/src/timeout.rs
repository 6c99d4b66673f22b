//! The header `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, Requests).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Its name.
pub(crate) const NAME: HeaderName = HeaderName::from_static("grpc-timeout");

/// The timeout that headers ask for. A value that is none is as if the header were absent, as other
/// implementations treat it.
pub(crate) fn of(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(NAME)?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// The header for a timeout, rounded up to the first unit in which it has at most eight digits.
pub(crate) fn header(timeout: Duration) -> HeaderValue {
    let nanos = timeout.as_nanos();
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S')];
    let units = units.into_iter().chain([(60_000_000_000, 'M'), (3_600_000_000_000, 'H')]);
    let fits =
        units.map(|(unit, name)| (nanos.div_ceil(unit), name)).find(|(n, _)| *n < 100_000_000);
    let (count, name) = fits.unwrap_or((99_999_999, 'H'));
    HeaderValue::try_from(format!("{count}{name}")).expect("digits and a letter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Option<Duration> {
        of(&[(NAME, HeaderValue::from_str(value).unwrap())].into_iter().collect())
    }

    #[test]
    fn timeouts_of_every_unit_are_read() {
        assert_eq!(parse("3H"), Some(Duration::from_secs(10_800)));
        assert_eq!(parse("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parse("42S"), Some(Duration::from_secs(42)));
        assert_eq!(parse("13m"), Some(Duration::from_millis(13)));
        assert_eq!(parse("2u"), Some(Duration::from_micros(2)));
        assert_eq!(parse("82n"), Some(Duration::from_nanos(82)));
        for none in ["", "S", "5", "5s", "123456789S", "-1S", "+1S", "1 S", "1.5S"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn timeouts_are_written_so_that_they_are_read_again() {
        for timeout in [Duration::ZERO, Duration::from_nanos(7), Duration::from_millis(1_500)] {
            assert_eq!(parse(header(timeout).to_str().unwrap()), Some(timeout));
        }
        let long = parse(header(Duration::MAX).to_str().unwrap()).unwrap();
        assert!(long > Duration::from_secs(86_400 * 365 * 1_000));
    }
}
