//! `homa ping --priorities`: whether the path to a server honours DSCP.
//!
//! A sender is not told what DSCP its packets arrived with. What counts is measurable: while our
//! bulk, in class CS0, fills the path, probes of higher classes must not wait for it. Bulk and
//! probes come from different engines, so that no queue of ours orders them, and the bulk is not
//! paced, so that it queues where the path is narrow. At most 512 kB are in progress.
//!
//! Left out: the way back, where the server chooses the classes, and which of several queues on the
//! path is the one that filled. It may be that of this host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::proto::Rate;
use homa::{CallError, CallOptions, Client, PriorityMap};
use serde::Serialize;

use super::Args;
use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{self, Align, Format, TextTable};
use crate::pages::located;

/// Class selectors that Homa uses by default, CS0 to CS5.
const CLASSES: u8 = 6;
/// Probes of each class.
const PROBES: u32 = 20;
/// Bulk requests in progress, and the bytes of each.
const BULK: usize = 8;
const BULK_BYTES: usize = 64_000;
/// A server that has answered none of this many probes does not answer.
const PROBES_WITHOUT_ANSWER: u32 = 3;
/// How long a bulk request may take.
const BULK_DEADLINE: Duration = Duration::from_secs(2);
/// How long the bulk fills the path before the first probe.
const FILL: Duration = Duration::from_millis(200);
/// A rate that does not pace, so that bulk queues in the path.
const UNPACED: Rate = Rate::gbps(400);
/// A queue that delays CS0 by less than this is no queue, microseconds.
const LEAST_DELAY_US: f64 = 50.0;
/// A class is served before the bulk if it waits for at most this share of what CS0 waits.
const SERVED_FIRST: f64 = 0.5;

/// What the probes show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathFinding {
    /// Every class above CS0 is served before CS0.
    Honoured,
    /// None is.
    Ignored,
    /// These are not, and others are.
    Partly(Vec<u8>),
    /// The bulk formed no queue.
    NoQueue,
    /// No probe was answered without the bulk.
    NoAnswer,
}

impl PathFinding {
    const fn name(&self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Ignored => "ignored",
            Self::Partly(_) => "partly",
            Self::NoQueue => "no_queue",
            Self::NoAnswer => "no_answer",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Honoured => "The path serves CS1 to CS5 before CS0: priorities work.".into(),
            Self::Ignored => "The path serves all classes alike, at least where the bulk queued, \
                              which may be this host's own queue (`tc -s qdisc`). Configure strict \
                              priority by DSCP: docs/operating/network.md."
                .into(),
            Self::Partly(classes) => {
                let names: Vec<String> = classes.iter().map(|class| format!("CS{class}")).collect();
                format!(
                    "The path does not serve {} before CS0, although it does others: map all of \
                     CS1 to CS5 above CS0, or set PriorityMap::Flat (docs/operating/network.md).",
                    names.join(", ")
                )
            }
            Self::NoQueue => {
                "No verdict: this host's bulk traffic formed no queue on the path. Run it again \
                 while other hosts send to the same server."
                    .into()
            }
            Self::NoAnswer => "No verdict: the server answered no call.".into(),
        }
    }
}

/// Decides from the median round trip without bulk, and those with bulk by class, in microseconds.
/// A class without answers was lost behind the bulk.
fn judge(idle: Option<f64>, loaded: &[Option<f64>]) -> PathFinding {
    let Some(idle) = idle else { return PathFinding::NoAnswer };
    let delay = |us: &Option<f64>| us.map_or(f64::INFINITY, |us| us - idle);
    let Some((low, high)) = loaded.split_first() else { return PathFinding::NoAnswer };
    let of_low = delay(low);
    if of_low < idle.max(LEAST_DELAY_US) {
        return PathFinding::NoQueue;
    }
    let waits = |us: &Option<f64>| us.is_none() || delay(us) > SERVED_FIRST * of_low;
    let late = (1..).zip(high).filter(|(_, us)| waits(us)).map(|(class, _)| class);
    let late: Vec<u8> = late.collect();
    match late.len() {
        0 => PathFinding::Honoured,
        all if all == high.len() => PathFinding::Ignored,
        _ => PathFinding::Partly(late),
    }
}

/// Probes of one class while the bulk fills the path.
#[derive(Debug, Default, Serialize)]
struct ClassProbes {
    class: u8,
    answered: u32,
    lost: u32,
    p50_us: Option<f64>,
    max_us: Option<f64>,
    #[serde(skip)]
    times: Vec<f64>,
    /// Why the first one was lost.
    #[serde(skip)]
    error: Option<CallError>,
}

impl ClassProbes {
    fn probe(&mut self, client: &Client, args: &Args) {
        let options = CallOptions::deadline(args.deadline);
        let start = Instant::now();
        match client.call_with(args.server, vec![7; args.size as usize], &options) {
            Ok(_) => self.times.push(start.elapsed().as_nanos() as f64 / 1e3),
            Err(error) => {
                self.lost += 1;
                self.error.get_or_insert(error);
            }
        }
    }

    fn finish(mut self) -> Self {
        self.times.sort_by(f64::total_cmp);
        self.answered = self.times.len() as u32;
        let tenth = |us: f64| (us * 10.0).round() / 10.0;
        // If most are lost, the median is.
        let median = (self.answered + self.lost) as usize / 2;
        self.p50_us = self.times.get(median).copied().map(tenth);
        self.max_us = self.times.last().copied().map(tenth);
        self
    }
}

/// The JSON document.
#[derive(Serialize)]
struct PriorityReport {
    idle_p50_us: Option<f64>,
    classes: Vec<ClassProbes>,
    finding: &'static str,
    text: String,
}

/// Runs the command: exit code 1 unless the path is seen to honour DSCP.
pub fn run(args: &Args) -> Outcome {
    // All engines use the same driver, and a fallback is reported once.
    let driver = args.driver.settle(args.driver.address_for(args.server));
    let open = |class: u8, rate: Option<Rate>| -> Result<Client, Failure> {
        let map = PriorityMap::Class(class);
        driver.client_of_class(args.server, &args.protection, map, rate)
    };
    let probes = (0..CLASSES).map(|class| open(class, None)).collect::<Result<Vec<_>, _>>()?;
    let bulk = open(0, Some(UNPACED))?;
    let mut idle = ClassProbes::default();
    let count = args.count.unwrap_or(PROBES);
    for _ in 0..count {
        idle.probe(&probes[0], args);
        if idle.times.is_empty() && idle.lost >= PROBES_WITHOUT_ANSWER {
            break;
        }
    }
    let idle = idle.finish();
    let classes = match idle.answered {
        0 => Vec::new(),
        _ => loaded(args, count, &bulk, &probes),
    };
    let finding = judge(idle.p50_us, &classes.iter().map(|of| of.p50_us).collect::<Vec<_>>());
    let error = idle.error.as_ref().filter(|_| finding == PathFinding::NoAnswer);
    let text = located(&finding.text());
    let text = error.map_or_else(|| text.clone(), |error| format!("{text} {error}"));
    let document =
        PriorityReport { idle_p50_us: idle.p50_us, classes, finding: finding.name(), text };
    match args.format {
        Format::Json => output::json(&document)?,
        Format::Table => print(args, &document),
    }
    if let Some(error) = error {
        eprintln!("hint: {}", driver.hint(args.server, error, "--echo"));
    }
    let passed = finding == PathFinding::Honoured;
    Ok(if passed { Verdict::Passed } else { Verdict::CheckFailed })
}

/// Probes all classes while the bulk fills the path: at the same time, so that all meet the same
/// queue.
fn loaded(args: &Args, count: u32, bulk: &Client, probes: &[Client]) -> Vec<ClassProbes> {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..BULK {
            scope.spawn(|| {
                let options = CallOptions::deadline(BULK_DEADLINE);
                while !ends.load(Ordering::Relaxed) {
                    let _ = bulk.call_with(args.server, vec![7; BULK_BYTES], &options);
                }
            });
        }
        thread::sleep(FILL);
        let new = |class| ClassProbes { class, ..ClassProbes::default() };
        let mut classes: Vec<ClassProbes> = (0..CLASSES).map(new).collect();
        for _ in 0..count {
            thread::scope(|round| {
                for (of, client) in classes.iter_mut().zip(probes) {
                    round.spawn(|| of.probe(client, args));
                }
            });
        }
        ends.store(true, Ordering::Relaxed);
        classes.into_iter().map(ClassProbes::finish).collect()
    })
}

fn print(args: &Args, document: &PriorityReport) {
    let us = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.1}"));
    output::line(format!("{}: {} us without bulk", args.server, us(document.idle_p50_us)));
    let columns = [
        ("class", Align::Left, 6),
        ("answered", Align::Right, 9),
        ("lost", Align::Right, 5),
        ("p50 us", Align::Right, 10),
        ("max us", Align::Right, 10),
    ];
    let table = TextTable::new(&columns);
    output::line(table.head());
    for of in &document.classes {
        let counts = [of.answered, of.lost].map(|count| count.to_string());
        let [answered, lost] = counts;
        let class = format!("CS{}", of.class);
        output::line(table.row(&[class, answered, lost, us(of.p50_us), us(of.max_us)]));
    }
    output::line(&document.text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_decide_only_if_the_bulk_formed_a_queue() {
        let all = |low: f64, high: [f64; 5]| {
            let loaded: Vec<_> = [low].into_iter().chain(high).map(Some).collect();
            judge(Some(40.0), &loaded)
        };
        assert_eq!(all(45.0, [45.0; 5]), PathFinding::NoQueue);
        assert_eq!(all(85.0, [45.0; 5]), PathFinding::NoQueue, "twice a short round trip");
        assert_eq!(all(2_000.0, [90.0; 5]), PathFinding::Honoured);
        assert_eq!(all(2_000.0, [1_900.0; 5]), PathFinding::Ignored);
        assert_eq!(all(2_000.0, [9_000.0, 80.0, 80.0, 80.0, 80.0]), PathFinding::Partly(vec![1]));
        // All packets of a class were lost behind the bulk.
        let lost = [Some(2_000.0), None, Some(90.0), Some(90.0), Some(90.0), Some(90.0)];
        assert_eq!(judge(Some(40.0), &lost), PathFinding::Partly(vec![1]));
        let low = [None, Some(90.0), Some(90.0), Some(90.0), Some(90.0), Some(90.0)];
        assert_eq!(judge(Some(40.0), &low), PathFinding::Honoured);
        assert_eq!(judge(Some(40.0), &[None; 6]), PathFinding::Ignored);
        assert_eq!(judge(None, &[]), PathFinding::NoAnswer);
    }
}
