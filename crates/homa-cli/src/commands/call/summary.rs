//! The results of several calls: latencies, their distribution, and why some had no answer.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use homa::CallError;
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::pace::Rates;
use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{Format, json, line};

/// The ninetieth percentile.
const P90: u32 = 900_000;

/// The longest bar of the histogram, characters.
const BAR: u64 = 40;

/// Calls that ended, as they end.
#[derive(Debug, Default)]
pub struct Ended {
    /// Times of those that were answered, nanoseconds.
    pub answered_ns: Vec<u64>,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Kinds of errors, what the first of each said, and how many there were.
    errors: Vec<(Discriminant<CallError>, String, u64)>,
}

/// The error of a call without an answer, with advice for users of this command instead of
/// programmers.
fn said(error: &CallError) -> String {
    match error {
        CallError::SendMemoryFull { held } => format!(
            "more was asked than leaves this host (outgoing messages hold {held} bytes): choose a \
             lower --rate or --concurrency, or a smaller --size"
        ),
        error => error.to_string(),
    }
}

impl Ended {
    /// Counts a call of this many bytes that was answered after that time.
    pub fn answered(&mut self, bytes: usize, took: Duration) {
        self.bytes += bytes as u64;
        self.answered_ns.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a call of this many bytes that failed.
    pub fn failed(&mut self, bytes: usize, error: &CallError) {
        self.bytes += bytes as u64;
        let kind = discriminant(error);
        match self.errors.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., count)) => *count += 1,
            None => self.errors.push((kind, said(error), 1)),
        }
    }

    /// Calls without an answer.
    pub fn failures(&self) -> u64 {
        self.errors.iter().map(|(.., count)| count).sum()
    }

    /// All of them.
    pub fn calls(&self) -> u64 {
        self.answered_ns.len() as u64 + self.failures()
    }

    /// The summary after this time.
    pub fn summary(self, took: Duration) -> Summary {
        let (calls, failed) = (self.calls(), self.failures());
        let mut errors = self.errors;
        errors.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        let errors = errors.into_iter().map(|(_, error, calls)| Errors { error, calls });
        let sorted = Sorted::new(self.answered_ns);
        let us = |ns: Option<u64>| ns.map(|ns| (ns as f64 / 100.0).round() / 10.0);
        let p90 = Percentile::millionths(P90).and_then(|p90| sorted.percentile(p90));
        let seconds = took.as_secs_f64();
        Summary {
            calls,
            failed,
            bytes: self.bytes / calls.max(1),
            seconds: (seconds * 1e6).round() / 1e6,
            answers_per_second: (sorted.len() as f64 / seconds.max(1e-9) * 10.0).round() / 10.0,
            min_us: us(sorted.at_rank(1)),
            p50_us: us(sorted.percentile(Percentile::P50)),
            p90_us: us(p90),
            p99_us: us(sorted.percentile(Percentile::P99)),
            p999_us: us(sorted.percentile(Percentile::P999)),
            max_us: us(sorted.at_rank(sorted.len())),
            offered_per_second: None,
            reached_per_second: None,
            rates: None,
            errors: errors.collect(),
            histogram: histogram(sorted.values()),
        }
    }
}

/// Latencies of several calls in microseconds; absent when none was answered.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Calls that ended.
    pub calls: u64,
    /// Calls without an answer.
    pub failed: u64,
    /// Bytes of each request; if they differ, their mean.
    pub bytes: u64,
    /// From the first call to the end of the last one.
    pub seconds: f64,
    /// Answers in each of these seconds.
    pub answers_per_second: f64,
    /// Calls that were due per second, with a rate; over the same calls as the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_per_second: Option<f64>,
    /// Calls that ended per second, with a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_per_second: Option<f64>,
    #[serde(skip)]
    rates: Option<Rates>,
    /// Fastest.
    pub min_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Slowest.
    pub max_us: Option<f64>,
    /// Why calls had no answer, the most frequent reason first.
    pub errors: Vec<Errors>,
    /// Answered calls by latency, from the first bin that has any to the last.
    pub histogram: Vec<Bin>,
}

/// Calls that failed alike.
#[derive(Debug, Serialize)]
pub struct Errors {
    /// The text of the first of them.
    pub error: String,
    /// How many.
    pub calls: u64,
}

/// Calls that took about as long.
#[derive(Debug, PartialEq, Serialize)]
pub struct Bin {
    /// Longer than that of the bin before, at most this, microseconds.
    pub up_to_us: f64,
    /// How many.
    pub calls: u64,
}

/// Bins that end at 1, 2 and 5 times powers of ten, so that those of different runs are the same.
fn histogram(sorted_ns: &[u64]) -> Vec<Bin> {
    let decades = (0..12).map(|decade| 10u64.pow(decade));
    let ends = decades.flat_map(|ten| [ten, 2 * ten, 5 * ten]);
    let mut bins = Vec::new();
    let mut below = 0;
    for end_ns in ends.map(|tenth_us| tenth_us * 100) {
        let upto = sorted_ns.partition_point(|ns| *ns <= end_ns);
        if below < sorted_ns.len() && (upto > 0) {
            bins.push(Bin { up_to_us: end_ns as f64 / 1e3, calls: (upto - below) as u64 });
        }
        below = upto;
    }
    bins
}

impl Summary {
    /// With the rates at which calls were due and ended.
    pub fn at_rates(self, rates: Option<Rates>) -> Self {
        let tenths = |rate: f64| (rate * 10.0).round() / 10.0;
        Self {
            offered_per_second: rates.map(|rates| tenths(rates.offered)),
            reached_per_second: rates.map(|rates| tenths(rates.reached)),
            rates,
            ..self
        }
    }

    /// Prints it, and the hint if no call was answered. A call without an answer is a failed check,
    /// and so is a lower rate than the offered one.
    pub fn finish(&self, format: Format, hint: &str) -> Outcome {
        self.print(format)?;
        if self.failed == self.calls {
            eprintln!("hint: {hint}");
        }
        let behind = self.rates.filter(|rates| rates.is_behind);
        if let Some(Rates { offered, reached, .. }) = behind {
            eprintln!(
                "hint: only {reached:.1} of {offered:.1} calls/s were reached, so the latencies \
                 are those of a backlog: choose a lower --rate or a smaller --size, or a higher \
                 --concurrency if neither side is busy"
            );
        }
        let failed = self.failed > 0 || self.calls == 0 || behind.is_some();
        Ok(if failed { Verdict::CheckFailed } else { Verdict::Passed })
    }

    fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return json(self);
        }
        let us = |time: Option<f64>| time.map_or("-".into(), |us| format!("{us:.1}"));
        let rates = self.rates.map_or_else(String::new, |rates| format!("; {rates}"));
        line(format!(
            "{} calls of {} B in {:.1} s, {} without an answer, {} answers/s{rates}",
            self.calls, self.bytes, self.seconds, self.failed, self.answers_per_second
        ));
        line(format!(
            "us: min {}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
            us(self.min_us),
            us(self.p50_us),
            us(self.p90_us),
            us(self.p99_us),
            us(self.p999_us),
            us(self.max_us)
        ));
        for Errors { error, calls } in &self.errors {
            line(format!("{calls} without an answer: {error}"));
        }
        Ok(())
    }

    /// Prints the histogram as bars in the format for people.
    pub fn bars(&self, format: Format) {
        if format == Format::Json {
            return;
        }
        let most = self.histogram.iter().map(|bin| bin.calls).max().unwrap_or(1).max(1);
        for Bin { up_to_us, calls } in &self.histogram {
            let bar = "#".repeat((calls * BAR).div_ceil(most) as usize);
            line(format!("{up_to_us:>12} us {calls:>9} {bar}").trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_calls_count_by_reason_and_leave_no_latency() {
        let mut ended = Ended::default();
        ended.answered(100, Duration::from_micros(2));
        ended.answered(100, Duration::from_micros(1));
        for held in [1, 2, 3] {
            ended.failed(100, &CallError::SendMemoryFull { held });
        }
        ended.failed(700, &CallError::DeadlineExceeded);
        let summary = ended.summary(Duration::from_millis(500));
        assert_eq!((summary.calls, summary.failed, summary.bytes), (6, 4, 200));
        assert_eq!((summary.min_us, summary.max_us), (Some(1.0), Some(2.0)));
        assert_eq!(summary.answers_per_second, 4.0);
        let counts: Vec<u64> = summary.errors.iter().map(|error| error.calls).collect();
        assert_eq!(counts, [3, 1]);
        assert_eq!(Ended::default().summary(Duration::ZERO).p50_us, None);
    }

    #[test]
    fn every_answer_is_in_one_bin() {
        let bin = |up_to_us, calls| Bin { up_to_us, calls };
        let times = [900, 1_000, 1_001, 4_000, 21_000];
        let expected =
            [bin(1.0, 2), bin(2.0, 1), bin(5.0, 1), bin(10.0, 0), bin(20.0, 0), bin(50.0, 1)];
        assert_eq!(histogram(&times), expected);
        assert_eq!(histogram(&[]), []);
    }
}
