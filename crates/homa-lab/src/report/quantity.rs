//! The quantity that a figure shows of each simulation: a metric, or a percentile of
//! `measures.groups`.

use std::fmt;
use std::str::FromStr;

use crate::chart::Scale;
use crate::repro::metric::{Metric, Rank};
use crate::repro::tolerance::Measured;
use crate::store::Stored;

/// A quantity that can be drawn against an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// Any metric of a reproduction.
    Metric(Metric),
    /// `p99.9` (slowdown) or `p99.9_us` (latency): one of `measures.groups.percentiles` over
    /// messages of all sizes.
    Percentile {
        /// Per cent.
        percent: f64,
        /// Of latency in microseconds, instead of slowdown.
        us: bool,
    },
}

/// The default quantities. A quantity that was not measured, or that is the same everywhere, is
/// left out.
pub(super) fn usual() -> Vec<Quantity> {
    let names = [
        "p99",
        "p50",
        "p99_us@10",
        "p99_us@90",
        "goodput",
        "wasted",
        "tor_down.mean",
        "tor_down.max",
        "outcome.drops.overflow",
    ];
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

impl Quantity {
    /// Reads it from one result; `None` when it was not measured there.
    pub(super) fn read(&self, stored: &Stored) -> Option<Measured> {
        match self {
            Self::Metric(metric) => metric.read(stored),
            Self::Percentile { percent, us } => {
                let groups = &stored.outcome.groups;
                let all = groups.iter().find(|g| g.above_bytes == 0 && g.max_bytes.is_none())?;
                let known = all.percentiles.iter().find(|one| one.percent == *percent)?;
                Some(Measured::exact(if *us { known.us } else { known.slowdown }))
            }
        }
    }

    /// Its name in figures.
    pub(super) fn title(&self) -> String {
        let rank = |rank: &Rank| match rank {
            Rank::P50 => "median",
            Rank::P99 => "99th percentile",
        };
        match self {
            Self::Percentile { percent, us: true } => format!("Latency, {percent} % at most"),
            Self::Percentile { percent, us: false } => format!("Slowdown, {percent} % at most"),
            Self::Metric(metric) => match metric {
                Metric::Overall(of) => format!("Slowdown of all messages, {}", rank(of)),
                Metric::Slowdown(reading, at) => {
                    format!("Slowdown at {at} % of messages by size, {}", reading.title())
                }
                Metric::Latency(of, at) => {
                    format!("Latency at {at} % of messages by size, {}", rank(of))
                }
                Metric::Queue(tier, max, _) => {
                    let what = if *max { "longest" } else { "mean" };
                    format!("Queue at {}, {what}", crate::results::TIERS[*tier].0.replace('_', " "))
                }
                Metric::Priority(level) => format!("Use of priority level {level}"),
                Metric::Wasted => "Wasted bandwidth".to_owned(),
                Metric::Utilisation => "Utilisation".to_owned(),
                Metric::Goodput => "Goodput".to_owned(),
                Metric::Mean => "Mean latency".to_owned(),
                Metric::Path(path) if path == "drops.overflow" => "Packets dropped".to_owned(),
                other => other.to_string(),
            },
        }
    }

    /// The label of its axis: the unit.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Percentile { us: true, .. } => "µs",
            Self::Percentile { us: false, .. } => "slowdown",
            Self::Metric(metric) => match metric {
                Metric::Overall(_)
                | Metric::Slowdown(..)
                | Metric::Step(..)
                | Metric::Largest(_) => "slowdown",
                Metric::Latency(..)
                | Metric::Mean
                | Metric::Paired(_)
                | Metric::PreemptionLag
                | Metric::Queueing => "µs",
                Metric::Queue(..) => "KiB",
                Metric::Priority(_) | Metric::Wasted | Metric::Utilisation | Metric::Goodput => {
                    "% of the receivers' links"
                }
                Metric::ResponseRate | Metric::ResponseWireRate => "Gbit/s",
                Metric::Path(path) if path == "drops.overflow" => "packets",
                _ => "",
            },
        }
    }

    /// Times, slowdowns and queues that differ by a factor have a logarithmic axis, shares have
    /// none.
    pub(super) fn scale(&self, low: f64, high: f64) -> Scale {
        const FACTOR: f64 = 5.0;
        let share = self.unit().starts_with('%');
        if !share && low > 0.0 && high >= FACTOR * low { Scale::Log } else { Scale::Linear }
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let metric = match text.parse::<Metric>() {
            Ok(Metric::Limit(_) | Metric::Computed(_)) => {
                return Err(format!("`{text}` is not of one simulation: it is for `homa repro`"));
            }
            Ok(metric) => return Ok(Self::Metric(metric)),
            Err(message) => message,
        };
        let percent = |text: &str| {
            let percent = text.strip_prefix('p')?.parse::<f64>().ok()?;
            Some(percent).filter(|percent| *percent > 0.0 && *percent < 100.0)
        };
        let (number, us) = text.strip_suffix("_us").map_or((text, false), |number| (number, true));
        match percent(number) {
            Some(percent) => Ok(Self::Percentile { percent, us }),
            None => Err(format!(
                "{metric}, and `p99.9`, `p99.9_us` with any percentile of \
                 `measures.groups.percentiles`"
            )),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric(metric) => metric.fmt(f),
            Self::Percentile { percent, us } => {
                write!(f, "p{percent}{}", if *us { "_us" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["p99", "p99.9", "p99.9_us", "p99_us@50", "p50_us", "tor_down.max", "goodput"] {
            assert_eq!(name.parse::<Quantity>().unwrap().to_string(), name);
        }
        for wrong in ["p100", "p0_us", "quickness", "max_goodput", "p"] {
            assert!(wrong.parse::<Quantity>().is_err(), "{wrong}");
        }
        let advice = "quickness".parse::<Quantity>().unwrap_err();
        assert!(advice.contains("`p99_us@50`") && advice.contains("`p99.9_us`"), "{advice}");
        assert_eq!(usual().len(), 9, "every name is one");
    }

    #[test]
    fn shares_begin_at_zero_and_what_spans_a_factor_is_logarithmic() {
        let scale = |name: &str| name.parse::<Quantity>().unwrap().scale(1.0, 90.0);
        assert_eq!((scale("goodput"), scale("p99")), (Scale::Linear, Scale::Log));
        assert_eq!("p99".parse::<Quantity>().unwrap().scale(0.0, 90.0), Scale::Linear);
    }
}
