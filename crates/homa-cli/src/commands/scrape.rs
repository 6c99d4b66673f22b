//! A scrape of a metrics endpoint: HTTP, then the OpenMetrics text format.
//!
//! The answer is bounded in size and time. Lines that are no samples are skipped, so an endpoint
//! that also has metrics of the application works.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Time limit for connecting, and for each read.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer, bytes. An engine's is about 20 KB.
const LONGEST: u64 = 8 << 20;

/// The samples of one moment.
#[derive(Debug)]
pub struct Scrape {
    /// When the answer arrived.
    pub taken: Instant,
    samples: BTreeMap<String, Vec<MetricSample>>,
}

/// One value of a metric.
#[derive(Debug, PartialEq)]
pub struct MetricSample {
    labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl MetricSample {
    /// The value of a label; empty if the sample does not have it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// The growth of a counter since an earlier scrape. If it became smaller, the engine was
    /// restarted, and all of it is new.
    pub fn grown(&self, name: &str, since: &Scrape) -> f64 {
        let before = since.same(name, self);
        if self.value < before { self.value } else { self.value - before }
    }

    /// True if it has all labels of another sample, with the same values, and perhaps more.
    pub fn is_part_of(&self, other: &Self) -> bool {
        other.labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }

    /// True if both have the same labels with the same values.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        self.labels == other.labels
    }
}

impl Scrape {
    /// Asks an endpoint that the user named.
    pub fn of_engine(endpoint: SocketAddr) -> Result<Self, Failure> {
        Self::fetch(endpoint).map_err(|error| {
            let error = anyhow::Error::from(error).context(format!("no metrics at {endpoint}"));
            Failure::new(
                error,
                "give the TCP address that `homa serve --metrics ADDR` prints, or that a program \
                 passes to `homa::metrics::http::Exporter`",
            )
        })
    }

    /// Asks an endpoint.
    fn fetch(endpoint: SocketAddr) -> io::Result<Self> {
        let mut page = TcpStream::connect_timeout(&endpoint, TIMEOUT)?;
        page.set_read_timeout(Some(TIMEOUT))?;
        page.set_write_timeout(Some(TIMEOUT))?;
        let ask = format!("GET /metrics HTTP/1.1\r\nHost: {endpoint}\r\nConnection: close\r\n\r\n");
        page.write_all(ask.as_bytes())?;
        let mut answer = Vec::new();
        page.take(LONGEST).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| wrong("the answer is not HTTP: is this the port of the RPCs?".into()))?;
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(wrong(format!("the endpoint answered \"{status}\"")));
        }
        let scrape = Self::parse(body);
        match scrape.all("homa_engine_peers").is_empty() {
            true => Err(wrong("the endpoint has no metrics of a Homa engine".into())),
            false => Ok(scrape),
        }
    }

    /// Reads OpenMetrics text.
    pub fn parse(text: &str) -> Self {
        let mut samples: BTreeMap<String, Vec<MetricSample>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, sample)) = sample(line) {
                samples.entry(name.to_owned()).or_default().push(sample);
            }
        }
        Self { taken: Instant::now(), samples }
    }

    /// The samples of a metric, in the order of the text.
    pub fn all(&self, name: &str) -> &[MetricSample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of a gauge, the sum over all engines; 0 if it is missing.
    pub fn value(&self, name: &str) -> f64 {
        self.all(name).iter().fold(0.0, |sum, sample| sum + sample.value)
    }

    /// True if there is a sample with the same labels.
    pub fn has(&self, name: &str, as_in: &MetricSample) -> bool {
        self.all(name).iter().any(|sample| sample.has_labels_of(as_in))
    }

    /// The value of the sample with the same labels; 0 if it is missing.
    pub fn same(&self, name: &str, as_in: &MetricSample) -> f64 {
        let mut all = self.all(name).iter();
        all.find(|sample| sample.has_labels_of(as_in)).map_or(0.0, |sample| sample.value)
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
            labels.insert(label.to_owned(), value);
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
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let scrape = Scrape::parse(concat!(
            "# HELP homa_x words\n",
            "homa_x{peer=\"a \\\"b\\\", c}\",of=\"1\"} 2.5\n",
            "homa_x{} +Inf\n",
            "homa_y 7 1234567\n",
            "broken{peer=\"a\n",
            "no value\n\n",
        ));
        let [first, second] = scrape.all("homa_x") else { panic!("{scrape:?}") };
        assert_eq!(
            (first.label("peer"), first.label("of"), first.value),
            ("a \"b\", c}", "1", 2.5)
        );
        assert_eq!((second.label("peer"), second.value), ("", f64::INFINITY));
        assert_eq!((scrape.value("homa_y"), scrape.value("missing")), (7.0, 0.0));
        assert!(scrape.all("broken").is_empty() && scrape.all("no").is_empty());
        let before = Scrape::parse("homa_x{of=\"1\",peer=\"a \\\"b\\\", c}\"} 1\n");
        assert_eq!(before.same("homa_x", first), 1.0, "the order of labels has no meaning");
    }
}
