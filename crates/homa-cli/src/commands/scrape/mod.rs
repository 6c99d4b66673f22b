//! A scrape of a metrics endpoint: HTTP, then the OpenMetrics text format.
//!
//! The endpoint is not trusted: `http` bounds the answer in size and time, numbers that no engine
//! has are refused, and control characters of labels are escaped before anything can print them.
//! Lines about other metrics are skipped if they are no samples, so an endpoint that also has
//! metrics of the application works.

mod http;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use crate::failure::Failure;
use crate::output::printable;

/// The metrics of engines begin with this.
const OURS: &str = "homa_";
/// The metric that may be NaN or infinite: a link may have no known rate, or no limit.
const RATE: &str = "homa_egress_rate_bits_per_second";
/// When an engine was opened.
const OPENED: &str = "homa_engine_opened_timestamp_seconds";
/// Counters that never become smaller while an engine lives, unlike those of a peer.
const STEADY: &str = "homa_protocol_";

type Labels = BTreeMap<String, String>;

/// The samples of one moment.
#[derive(Debug)]
pub struct Scrape {
    /// When the answer arrived.
    pub taken: Instant,
    families: BTreeMap<String, Samples>,
}

/// The samples of a metric, in the order of the text, and the places of their labels.
#[derive(Debug, Default)]
struct Samples {
    samples: Vec<MetricSample>,
    places: BTreeMap<Labels, usize>,
}

impl Samples {
    fn find(&self, labels: &Labels) -> Option<&MetricSample> {
        self.places.get(labels).map(|&place| &self.samples[place])
    }
}

/// One value of a metric.
#[derive(Debug, PartialEq)]
pub struct MetricSample {
    labels: Labels,
    /// Its value.
    pub value: f64,
}

impl MetricSample {
    /// The value of a label; empty if the sample does not have it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// The growth of a counter since an earlier scrape. If it became smaller, it began anew, and
    /// all of it counts: a peer left the list of the busiest and came back.
    pub fn grown(&self, name: &str, since: &Scrape) -> f64 {
        let before = since.same(name, self);
        if self.value < before { self.value } else { self.value - before }
    }

    /// True if it has all labels of another sample, with the same values, and perhaps more.
    pub fn is_part_of(&self, other: &Self) -> bool {
        other.labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }
}

impl Scrape {
    /// Asks an endpoint that the user named.
    pub fn of_engine(endpoint: SocketAddr) -> Result<Self, Failure> {
        Self::fetch(endpoint).map_err(|error| Self::failure(endpoint, error))
    }

    /// An endpoint gave no metrics.
    pub fn failure(endpoint: SocketAddr, error: io::Error) -> Failure {
        let error = anyhow::Error::from(error).context(format!("no metrics at {endpoint}"));
        Failure::new(
            error,
            "give the TCP address that `homa serve --metrics ADDR` prints, or that a program \
             passes to `homa::metrics::http::Exporter`",
        )
    }

    /// Asks an endpoint.
    pub fn fetch(endpoint: SocketAddr) -> io::Result<Self> {
        let scrape = Self::read(&http::get(endpoint)?).map_err(http::wrong)?;
        match scrape.all("homa_engine_peers").is_empty() {
            true => Err(http::wrong("the endpoint has no metrics of a Homa engine".into())),
            false => Ok(scrape),
        }
    }

    /// Reads OpenMetrics text; otherwise the defect of a line of an engine.
    fn read(text: &str) -> Result<Self, String> {
        let mut families: BTreeMap<String, Samples> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match sample(line) {
                Some((name, sample)) => {
                    check(name, sample.value)?;
                    let family = families.entry(name.to_owned()).or_default();
                    family.places.insert(sample.labels.clone(), family.samples.len());
                    family.samples.push(sample);
                }
                None if line.starts_with(OURS) => {
                    return Err(format!("this line has no value: \"{}\"", printable(line)));
                }
                None => {}
            }
        }
        Ok(Self { taken: Instant::now(), families })
    }

    /// Text that is right.
    #[cfg(test)]
    pub fn parse(text: &str) -> Self {
        Self::read(text).expect("metrics of an engine")
    }

    /// True if the process behind the endpoint was replaced since an earlier scrape, or one of its
    /// engines: then counters began anew.
    pub fn is_another_engine_than(&self, before: &Self) -> bool {
        let opened = before.all(OPENED).iter();
        let reopened = |of: &MetricSample| self.find(OPENED, of).map(|now| now.value);
        if opened.clone().any(|of| reopened(of) != Some(of.value)) {
            return true;
        }
        let steady = before.families.iter().filter(|(name, _)| is_steady(name));
        let fell = |name: &str, of: &MetricSample| {
            self.find(name, of).is_none_or(|now| now.value < of.value)
        };
        steady.into_iter().any(|(name, family)| family.samples.iter().any(|of| fell(name, of)))
    }

    fn find(&self, name: &str, as_in: &MetricSample) -> Option<&MetricSample> {
        self.families.get(name)?.find(&as_in.labels)
    }

    /// The samples of a metric, in the order of the text.
    pub fn all(&self, name: &str) -> &[MetricSample] {
        self.families.get(name).map_or(&[], |family| &family.samples)
    }

    /// The value of a gauge, the sum over all engines; 0 if it is missing.
    pub fn value(&self, name: &str) -> f64 {
        self.all(name).iter().fold(0.0, |sum, sample| sum + sample.value)
    }

    /// True if there is a sample with the same labels.
    pub fn has(&self, name: &str, as_in: &MetricSample) -> bool {
        self.find(name, as_in).is_some()
    }

    /// The value of the sample with the same labels; 0 if it is missing.
    pub fn same(&self, name: &str, as_in: &MetricSample) -> f64 {
        self.find(name, as_in).map_or(0.0, |sample| sample.value)
    }
}

/// True for the counters of the protocol.
fn is_steady(name: &str) -> bool {
    name.starts_with(STEADY) && name.ends_with("_total")
}

/// An error if no engine has this value of a metric. They have counts, sizes and times.
fn check(name: &str, value: f64) -> Result<(), String> {
    let possible = (0.0..=u64::MAX as f64).contains(&value);
    let of_link = name == RATE && (value.is_nan() || value == f64::INFINITY);
    match possible || of_link || !name.starts_with(OURS) {
        true => Ok(()),
        false => Err(format!("{} is {value}, which no engine reports", printable(name))),
    }
}

/// Reads `name{label="value",…} number`.
fn sample(line: &str) -> Option<(&str, MetricSample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, after) = quoted(after)?;
            labels.insert(label.to_owned(), printable(&value));
            rest = after.strip_prefix(',').unwrap_or(after);
            if after.starts_with('}') {
                break;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, MetricSample { labels, value }))
}

/// A label's value up to its closing quote, and the rest of the line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests;
