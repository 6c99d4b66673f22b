//! How far a measured value may be from a published one, and what that decides.
//!
//! Written as a reader would say it: `10%`, `3` (in the unit of the value), `<=2.3`, `>=9.3`,
//! `250..400`, `x2` (a factor of two either way).

use std::fmt;
use std::str::FromStr;

use homa_workload::interval::student_t;
use serde::{Deserialize, Serialize};

/// A limit on a measured value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tolerance {
    /// This share of the published value, either way.
    Relative(f64),
    /// This much, either way.
    Absolute(f64),
    /// At most this, whatever was published.
    AtMost(f64),
    /// At least this, whatever was published.
    AtLeast(f64),
    /// Between these, whatever was published.
    Between(f64, f64),
    /// Between the published value divided and multiplied by this.
    Factor(f64),
}

impl Tolerance {
    /// The measured values that pass, for a published one.
    pub fn limits(self, published: f64) -> (f64, f64) {
        match self {
            Self::Relative(share) => {
                let margin = (published * share).abs();
                (published - margin, published + margin)
            }
            Self::Absolute(margin) => (published - margin, published + margin),
            Self::AtMost(limit) => (f64::NEG_INFINITY, limit),
            Self::AtLeast(limit) => (limit, f64::INFINITY),
            Self::Between(low, high) => (low, high),
            Self::Factor(factor) => (published / factor, published * factor),
        }
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no tolerance; allowed: `10%`, `3`, `<=2.3`, `>=9.3`, `2..4`, `x2`")
        };
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(wrong()),
        };
        let positive =
            |text: &str| number(text).and_then(|v| if v > 0.0 { Ok(v) } else { Err(wrong()) });
        let text = text.trim();
        if let Some(share) = text.strip_suffix('%') {
            return positive(share).map(|share| Self::Relative(share / 100.0));
        }
        if let Some(limit) = text.strip_prefix("<=") {
            return number(limit).map(Self::AtMost);
        }
        if let Some(limit) = text.strip_prefix(">=") {
            return number(limit).map(Self::AtLeast);
        }
        if let Some(factor) = text.strip_prefix('x') {
            return match positive(factor)? {
                factor if factor > 1.0 => Ok(Self::Factor(factor)),
                _ => Err(wrong()),
            };
        }
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (number(low)?, number(high)?);
            return if low < high { Ok(Self::Between(low, high)) } else { Err(wrong()) };
        }
        positive(text).map(Self::Absolute)
    }
}

impl TryFrom<String> for Tolerance {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Tolerance> for String {
    fn from(tolerance: Tolerance) -> Self {
        tolerance.to_string()
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Shares of a percent come back as written.
            Self::Relative(share) => write!(f, "{}%", (share * 1e6).round() / 1e4),
            Self::Absolute(margin) => write!(f, "{margin}"),
            Self::AtMost(limit) => write!(f, "<={limit}"),
            Self::AtLeast(limit) => write!(f, ">={limit}"),
            Self::Between(low, high) => write!(f, "{low}..{high}"),
            Self::Factor(factor) => write!(f, "x{factor}"),
        }
    }
}

/// A measured value and its 95 % confidence interval; an end that the sample cannot bound is
/// infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Measured {
    /// A value without spread: counted, not sampled.
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// With the ends of an interval, if there are any.
    pub fn between(value: f64, ends: [Option<f64>; 2]) -> Self {
        let low = ends[0].unwrap_or(f64::NEG_INFINITY).min(value);
        let high = ends[1].unwrap_or(f64::INFINITY).max(value);
        Self { value, low, high }
    }

    /// The ends as [`between`](Self::between) takes them: `None` if there is no bound.
    pub fn ends(self) -> [Option<f64>; 2] {
        [self.low, self.high].map(|end| Some(end).filter(|end| end.is_finite()))
    }

    /// The mean of several seeds, with Student's interval between them; one seed keeps its own.
    /// If one seed cannot bound a percentile, neither can the spread between seeds, because a
    /// percentile of too few values is wrong in the same way for each of them.
    pub fn pooled(seeds: &[Self]) -> Option<Self> {
        let count = seeds.len() as f64;
        match seeds {
            [] => None,
            [one] => Some(*one),
            many => {
                let value = many.iter().map(|m| m.value).sum::<f64>() / count;
                let squares: f64 = many.iter().map(|m| (m.value - value).powi(2)).sum();
                let error = (squares / (count - 1.0) / count).sqrt();
                let half = student_t(many.len() - 1) * error;
                let open = |end: fn(&Self) -> f64| many.iter().any(|m| end(m).is_infinite());
                let low = if open(|m| m.low) { f64::NEG_INFINITY } else { value - half };
                let high = if open(|m| m.high) { f64::INFINITY } else { value + half };
                Some(Self { value, low, high })
            }
        }
    }

    /// The quotient of two measures that know nothing of each other.
    pub fn over(self, other: Self) -> Option<Self> {
        if other.value <= 0.0 {
            return None;
        }
        let low = if other.high.is_finite() { self.low / other.high } else { f64::NEG_INFINITY };
        let high = if other.low > 0.0 { self.high / other.low } else { f64::INFINITY };
        Some(Self { value: self.value / other.value, low, high })
    }
}

/// The verdict of a comparison: true, false, or `None` if the interval contains a limit.
pub fn judge(measured: Measured, published: f64, tolerance: Tolerance) -> Option<bool> {
    let (low, high) = tolerance.limits(published);
    if measured.low >= low && measured.high <= high {
        Some(true)
    } else if measured.high < low || measured.low > high {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerance(text: &str) -> Tolerance {
        text.parse().unwrap()
    }

    #[test]
    fn tolerances_are_read_and_written_alike() {
        for text in ["10%", "2.5%", "3", "0.2", "<=2.3", ">=9.3", "250..400", "x2"] {
            assert_eq!(tolerance(text).to_string(), text);
        }
        for text in ["", "10 percent", "-3", "0", "x1", "x0.5", "4..2", "<2", "nan", "inf"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
    }

    #[test]
    fn limits_follow_the_published_value() {
        assert_eq!(tolerance("10%").limits(2.0), (1.8, 2.2));
        assert_eq!(tolerance("0.5").limits(2.0), (1.5, 2.5));
        assert_eq!(tolerance("x2").limits(3.0), (1.5, 6.0));
        assert_eq!(tolerance("250..400").limits(300.0), (250.0, 400.0));
        assert_eq!(tolerance("<=2.3").limits(2.2).1, 2.3);
    }

    #[test]
    fn an_interval_across_the_limit_decides_nothing() {
        let within = Measured::between(2.0, [Some(1.9), Some(2.1)]);
        let across = Measured::between(2.1, [Some(2.0), Some(2.3)]);
        let outside = Measured::between(3.0, [Some(2.5), Some(3.5)]);
        let unbounded = Measured::between(2.0, [Some(1.9), None]);
        let ten = tolerance("10%");
        assert_eq!(judge(within, 2.0, ten), Some(true));
        assert_eq!(judge(across, 2.0, ten), None);
        assert_eq!(judge(outside, 2.0, ten), Some(false));
        assert_eq!(judge(unbounded, 2.0, ten), None);
        assert_eq!(unbounded.ends(), [Some(1.9), None]);
        assert_eq!(judge(Measured::exact(2.3), 2.0, ten), Some(false));
        assert_eq!(judge(Measured::exact(9.5), 9.6, tolerance(">=9.3")), Some(true));
    }

    #[test]
    fn seeds_pool_into_their_mean_with_the_spread_between_them() {
        let seeds = [1.0, 2.0, 3.0].map(Measured::exact);
        let pooled = Measured::pooled(&seeds).unwrap();
        assert_eq!(pooled.value, 2.0);
        // 4.303 times 1 / sqrt(3).
        assert!((pooled.high - 2.0 - 2.4843).abs() < 1e-3, "{pooled:?}");
        assert_eq!(Measured::pooled(&seeds[..1]), Some(seeds[0]));
        let few = Measured::between(2.0, [Some(1.5), None]);
        let open = Measured::pooled(&[seeds[0], few, seeds[2]]).unwrap();
        assert_eq!((open.value, open.high), (2.0, f64::INFINITY));
        assert!(open.low.is_finite(), "{open:?}");
        assert_eq!(Measured::pooled(&[]), None);
    }

    #[test]
    fn quotients_widen_by_both_intervals() {
        let a = Measured::between(4.0, [Some(3.0), Some(5.0)]);
        let b = Measured::between(2.0, [Some(1.0), Some(2.5)]);
        let quotient = a.over(b).unwrap();
        assert_eq!((quotient.value, quotient.low, quotient.high), (2.0, 1.2, 5.0));
        assert_eq!(a.over(Measured::exact(0.0)), None);
    }
}
