//! `--phantom-queue` and `--ecn-threshold`: how the rack's switch marks congestion, and which
//! rows that makes. A row whose hosts heed marks stands twice, without and with them, so that
//! what marks cost and gain is the difference of two lines; the others are measured once, with
//! the marking in place, which does nothing to them.

use std::fmt;

use homa_sim::fabric::queue::PhantomConfig;
use homa_testbed::{Marking, Transport};

use crate::values;

/// A phantom queue as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phantom {
    /// Drain rate, share of the link's.
    pub drain: f64,
    /// Bytes.
    pub threshold: u32,
}

impl Phantom {
    /// The configuration of the switch.
    fn config(self) -> PhantomConfig {
        PhantomConfig {
            drain_ppm: (self.drain * 1e6).round() as u32,
            threshold: self.threshold,
            ..PhantomConfig::PAPER
        }
    }
}

/// Share of a link full of full frames that phantom queues count.
const MOST_COUNTED: f64 = 1514.0 / 1538.0;

impl fmt::Display for Phantom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.drain, self.threshold)
    }
}

/// `0.95,1KB`.
pub fn phantom(text: &str) -> Result<Phantom, String> {
    let form = "write a share of the link's rate and bytes, such as 0.95,1KB (HULL §6)";
    let (drain, bytes) = text.split_once(',').ok_or(form)?;
    let drain: f64 = drain.trim().parse().map_err(|_| form)?;
    if !(1e-6..=1.0).contains(&drain) {
        return Err(
            "a phantom queue drains at a share of the link's rate above 0 and at most 1".into()
        );
    }
    Ok(Phantom { drain, threshold: threshold(bytes)? })
}

/// Bytes of a threshold.
pub fn threshold(text: &str) -> Result<u32, String> {
    u32::try_from(values::bytes(text)?).map_err(|_| "a threshold has at most 4 GB".into())
}

/// A row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRow {
    /// Over what.
    pub transport: Transport,
    /// Whether the switch marks; `None` if no marks were asked for.
    pub marks: Option<bool>,
}

impl PlannedRow {
    /// The row's name for people.
    pub fn label(self) -> String {
        match self.marks {
            Some(false) => format!("{} (no marks)", self.transport),
            _ => self.transport.to_string(),
        }
    }

    /// The switch's marking while this row is measured.
    pub fn marking(self, asked: &MarkingArgs) -> Marking {
        match self.marks {
            Some(true) => asked.marking(),
            _ => Marking::default(),
        }
    }
}

/// The options of marks.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct MarkingArgs {
    /// A phantom queue at every port of the switch (HULL §2.1): its drain rate as a share of the
    /// link's, and the virtual backlog in bytes above which packets are marked. Rows that react to
    /// marks (tcp-ecn, dctcp) are measured without it, too.
    #[arg(long, value_name = "SHARE,BYTES", value_parser = phantom)]
    pub phantom_queue: Option<Phantom>,
    /// Mark packets that arrive when more than this many bytes are queued at their priority (RFC
    /// 8257 §3.1). Rows that react to marks are measured without it, too.
    #[arg(long, value_name = "BYTES", value_parser = threshold)]
    pub ecn_threshold: Option<u32>,
}

impl MarkingArgs {
    /// The switch's marking.
    pub fn marking(&self) -> Marking {
        Marking {
            phantom: self.phantom_queue.map(Phantom::config),
            ecn_threshold: self.ecn_threshold,
        }
    }

    /// The rows for some transports, in order.
    pub fn rows(&self, transports: Vec<Transport>) -> Vec<PlannedRow> {
        let marking = self.marking().is_on();
        let of = |transport: Transport| {
            let marks: &[Option<bool>] = match (marking, transport.heeds_marks()) {
                (false, _) => &[None],
                (true, false) => &[Some(true)],
                (true, true) => &[Some(false), Some(true)],
            };
            marks.iter().map(move |&marks| PlannedRow { transport, marks })
        };
        transports.into_iter().flat_map(of).collect()
    }

    /// The marking for people; `None` if nothing is marked.
    pub fn line(&self) -> Option<String> {
        let phantom = self.phantom_queue.map(|queue| {
            let never = if queue.drain < MOST_COUNTED {
                String::new()
            } else {
                // Three digits, and not rounded up.
                let most = (MOST_COUNTED * 1e3).floor() / 10.0;
                format!(
                    " (never: frames count from the Ethernet header on, {most} % of a full link)"
                )
            };
            format!(
                "a phantom queue that drains at {} % of the link and marks beyond {} B{never}",
                (queue.drain * 1e8).round() / 1e6,
                queue.threshold
            )
        });
        let ecn = self.ecn_threshold.map(|bytes| format!("marks beyond {bytes} B waiting"));
        let parts: Vec<String> = [phantom, ecn].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("At every port: {}.", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::asked;
    use super::*;

    #[test]
    fn rows_that_heed_marks_stand_twice_where_there_are_marks() {
        let labels = |more: &[&str]| {
            let args = asked(&[&["--transport", "homa,tcp-ecn"], more].concat());
            args.rows().into_iter().map(PlannedRow::label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&[]), ["homa", "tcp-ecn"]);
        let marked = ["homa", "tcp-ecn (no marks)", "tcp-ecn"];
        assert_eq!(labels(&["--phantom-queue", "0.95,1KB"]), marked);
        assert_eq!(labels(&["--ecn-threshold", "30KB"]), marked);
        let args = asked(&["--phantom-queue", "0.9,3KB", "--ecn-threshold", "30KB"]);
        let marking = args.marks.marking();
        let phantom = marking.phantom.map(|queue| (queue.drain_ppm, queue.threshold));
        assert_eq!((phantom, marking.ecn_threshold), (Some((900_000, 3_000)), Some(30_000)));
        let planned = |marks| PlannedRow { transport: Transport::TcpEcn, marks };
        assert_eq!(planned(Some(false)).marking(&args.marks), Marking::default());
        assert_eq!(planned(Some(true)).marking(&args.marks), marking);
    }

    #[test]
    fn a_queue_that_never_marks_is_told() {
        let line = |queue| asked(&["--phantom-queue", queue]).marks.line().unwrap();
        assert!(!line("0.98,1KB").contains("never"), "{}", line("0.98,1KB"));
        assert!(line("0.99,1KB").contains("never: frames count"), "{}", line("0.99,1KB"));
        assert!(line("1,1KB").contains("98.4 % of a full link"), "{}", line("1,1KB"));
    }

    #[test]
    fn a_phantom_queue_is_a_share_and_bytes() {
        assert_eq!(phantom("0.95,1KB"), Ok(Phantom { drain: 0.95, threshold: 1_000 }));
        assert_eq!(phantom(&phantom("0.9,6KB").unwrap().to_string()), phantom("0.9,6KB"));
        for wrong in ["", "0.95", "1KB", "1.5,1KB", "0,1KB", "0.95,", "0.95,x", "nan,1KB"] {
            assert!(phantom(wrong).is_err(), "{wrong}");
        }
    }
}
