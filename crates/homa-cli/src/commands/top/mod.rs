//! `homa top`: what an engine does now, from its metrics endpoint (`homa serve --metrics`, or
//! `homa::metrics::http::Exporter` in a program of one's own).
//!
//! Two scrapes make a report: counters become rates, and histograms become percentiles of the RPCs
//! that ended between the scrapes, also by size. Both are of one process: if it was replaced,
//! reports begin anew. If the endpoint does not answer, it is asked again.

mod report;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa_workload::units::Quantity;
use serde::Serialize;

use super::scrape::Scrape;
use crate::failure::{Outcome, Verdict};
use crate::output::{self, Format};
use crate::values;
use report::Report;

/// Clears a terminal and moves its cursor to the first line.
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Least time between two scrapes: shorter ones would measure the scrapes.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `homa top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The metrics endpoint of the engine, such as 10.0.0.7:9464 (TCP).
    #[arg(value_name = "ADDR", value_parser = values::metrics)]
    endpoint: SocketAddr,
    /// Time between two reports.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = interval)]
    interval: Duration,
    /// Intervals to look at. One in which the endpoint does not answer, or the process is replaced,
    /// has no report. [default: until Ctrl-C; 1 with --format json]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = values::within::<u32>(Quantity::Count, 1..=u32::MAX.into()))]
    count: Option<u32>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The JSON document.
#[derive(Default, Serialize)]
struct Reports {
    reports: Vec<Report>,
    /// Intervals at whose end the endpoint did not answer.
    unanswered: u32,
    /// Times that the process was replaced.
    restarts: u32,
}

/// What an interval brought.
#[derive(Debug)]
enum Interval {
    Report(Box<Report>),
    /// Another process answered than before. The time since the last answer, seconds.
    Anew(f64),
    /// No answer. The time since the last one, seconds, and the reason.
    Silent(f64, io::Error),
}

/// Looks at the answer at the end of an interval; `last` is the scrape to compare with.
fn interval_of(last: &mut Scrape, answer: io::Result<Scrape>, now: Instant) -> Interval {
    let next = match answer {
        Ok(next) => next,
        Err(error) => {
            return Interval::Silent(now.duration_since(last.taken).as_secs_f64(), error);
        }
    };
    let interval = match next.is_another_engine_than(last) {
        true => Interval::Anew(next.taken.duration_since(last.taken).as_secs_f64()),
        false => Interval::Report(Box::new(Report::between(last, &next))),
    };
    *last = next;
    interval
}

impl Interval {
    /// For people.
    fn to_text(&self, endpoint: SocketAddr) -> String {
        match self {
            Self::Report(report) => report.to_text(endpoint),
            Self::Anew(since) => format!(
                "{endpoint}: the process was replaced (the last answer is {since:.1} s old): \
                 counters begin anew"
            ),
            Self::Silent(since, error) => {
                format!("{endpoint}: no answer for {since:.1} s ({error})")
            }
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let json = args.format == Format::Json;
    let count = args.count.or(json.then_some(1));
    let mut last = Scrape::of_engine(args.endpoint)?;
    let (mut asked, mut shown) = (last.taken, String::new());
    let (mut seen, mut answered, mut lost) = (Reports::default(), false, None);
    let mut done = 0;
    while count.is_none_or(|count| done < count) {
        std::thread::sleep((asked + args.interval).saturating_duration_since(Instant::now()));
        asked = Instant::now();
        let answer = Scrape::fetch(args.endpoint);
        let interval = interval_of(&mut last, answer, Instant::now());
        if !json {
            show(&mut shown, &interval, args.endpoint);
        }
        answered |= !matches!(interval, Interval::Silent(..));
        match interval {
            Interval::Report(report) if json => seen.reports.push(*report),
            Interval::Report(_) => {}
            Interval::Anew(_) => seen.restarts += 1,
            Interval::Silent(_, error) => {
                seen.unanswered += 1;
                lost = Some(error);
            }
        }
        done += 1;
    }
    match lost.filter(|_| !answered) {
        Some(error) => return Err(Scrape::failure(args.endpoint, error)),
        None if json => output::json(&seen)?,
        None => {}
    }
    Ok(Verdict::Passed)
}

/// Prints what an interval brought. On a terminal a report replaces the one before it, and remains
/// above the line of an endpoint that does not answer.
fn show(shown: &mut String, interval: &Interval, endpoint: SocketAddr) {
    let text = interval.to_text(endpoint);
    if !io::stdout().is_terminal() {
        return output::line(text);
    }
    match interval {
        Interval::Silent(..) => output::line(format!("{CLEAR}{shown}\n{text}")),
        _ => {
            output::line(format!("{CLEAR}{text}"));
            *shown = text;
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = values::duration(text)?;
    match time < LEAST_INTERVAL {
        true => Err("write at least 100ms".into()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(opened: u32, requests: u32, seconds: u64) -> Scrape {
        let mut page = Scrape::parse(&format!(
            "homa_engine_opened_timestamp_seconds {opened}\n\
             homa_protocol_requests_sent_total {requests}\n\
             homa_rpc_duration_seconds_count{{direction=\"server\",outcome=\"ok\"}} {requests}\n"
        ));
        page.taken += Duration::from_secs(seconds);
        page
    }

    #[test]
    fn a_restart_and_silence_are_no_reports() {
        let at = SocketAddr::from(([127, 0, 0, 1], 9464));
        let mut last = page(1, 10, 0);
        let start = last.taken;
        let mut after = |answer, seconds| {
            let now = start + Duration::from_secs(seconds);
            interval_of(&mut last, answer, now).to_text(at)
        };
        assert!(after(Ok(page(1, 20, 1)), 1).contains("server"), "a report");
        let refused = || Err(io::ErrorKind::ConnectionRefused.into());
        assert!(after(refused(), 3).contains("no answer for 2.0 s (connection refused)"));
        assert!(after(refused(), 4).contains("no answer for 3.0 s"), "since the last answer");
        // The new process made more requests than the old one.
        let anew = after(Ok(page(5, 50, 6)), 6);
        assert!(anew.contains("was replaced (the last answer is 5.0 s old)"), "{anew}");
        assert_eq!(anew.lines().count(), 1);
        let report = after(Ok(page(5, 60, 7)), 7);
        let server = report.lines().find(|line| line.starts_with("server")).expect("a line");
        assert!(server.contains("  10"), "10 requests in 1 s: {report}");
    }
}
