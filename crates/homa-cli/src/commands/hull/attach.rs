//! `homa hull attach`: a phantom queue on a real port, for as long as the command runs.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use homa_proto::Rate;
use homa_testbed::hull::{Attached, HookPoint, HullError, PhantomPort, PhantomStatus};
use serde::Serialize;

use crate::commands::bench::threshold;
use crate::failure::{Failure, Outcome, Verdict};
use crate::output::{Format, json, line};
use crate::values::{self, show_rate};

/// Arguments of `homa hull attach`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The network device: the one behind the link, whose arriving packets are counted, or with
    /// --egress the one that sends.
    device: String,
    /// Drain rate: somewhat below the link's, such as 9.5Gbps for a link of 10Gbps (HULL §6).
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    #[arg(required_unless_present = "status")]
    drain: Option<u64>,
    /// Virtual backlog, in bytes, above which packets are marked. [default: 1KB]
    #[arg(long, value_name = "BYTES", value_parser = threshold)]
    threshold: Option<u32>,
    /// Count what the device is given to send, before its queueing discipline (in parallel),
    /// instead of what arrives at it (in series, as in the paper).
    #[arg(long)]
    egress: bool,
    /// Detach after this time. [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
    time: Option<Duration>,
    /// Attach nothing: print what others have attached to the device, and its rates over a second.
    #[arg(long, conflicts_with_all = ["drain", "threshold", "egress", "time"])]
    status: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Threshold of HULL's testbed (§6).
const THRESHOLD: u32 = 1_000;
/// How long rates are measured for `--status`.
const SECOND: Duration = Duration::from_secs(1);

/// One phantom queue, as scripts read it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    device: String,
    place: &'static str,
    drain_bps: u64,
    threshold_bytes: u32,
    /// Since it was attached.
    packets: u64,
    bytes: u64,
    marked: u64,
    /// Over the time that was looked at.
    mbps: f64,
    marked_per_s: f64,
}

impl Row {
    fn new(device: &str, before: &PhantomStatus, now: &PhantomStatus, lasted: Duration) -> Self {
        let per_s = |now: u64, before: u64| {
            now.saturating_sub(before) as f64 / lasted.as_secs_f64().max(1e-9)
        };
        let round = |value: f64| (value * 1e3).round() / 1e3;
        Self {
            device: device.into(),
            place: match now.place {
                HookPoint::Ingress => "ingress",
                HookPoint::Egress => "egress",
            },
            drain_bps: now.drain.0,
            threshold_bytes: now.threshold_bytes,
            packets: now.packets,
            bytes: now.bytes,
            marked: now.marked,
            mbps: round(per_s(now.bytes, before.bytes) * 8e-6),
            marked_per_s: round(per_s(now.marked, before.marked)),
        }
    }

    fn text(&self, place: HookPoint) -> String {
        format!(
            "{}, {place}: drains at {}, marks beyond {} B. {} packets, {} marked; {:.3} Mbit/s, \
             {:.1} marks a second.",
            self.device,
            show_rate(self.drain_bps),
            self.threshold_bytes,
            self.packets,
            self.marked,
            self.mbps,
            self.marked_per_s,
        )
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    if args.status {
        return status(args);
    }
    let place = if args.egress { HookPoint::Egress } else { HookPoint::Ingress };
    // clap asks for it.
    let drain = Rate(args.drain.unwrap_or_default());
    let threshold = args.threshold.unwrap_or(THRESHOLD);
    let queue = PhantomPort::attach(&args.device, place, (drain, threshold)).map_err(failure)?;
    let (began, before) = (Instant::now(), queue.status().map_err(failure)?);
    let until = args.time.map_or("Ctrl-C".into(), values::show_duration);
    eprintln!("attached to {}: {place}; until {until}", args.device);
    let link = DeviceLink::of(&args.device).filter(|_| !args.egress);
    if let Some(most) = link.map(DeviceLink::most_counted).filter(|most| *most <= drain.0) {
        eprintln!(
            "warning: by what {} says of its link, it brings at most {} Mbit/s, counted from the \
             Ethernet header on: at this drain rate nothing is ever marked",
            args.device,
            most / 1_000_000
        );
    }
    crate::commands::wait_for_the_end(args.time, || ()).map_err(no_signals)?;
    let now = queue.status().map_err(failure)?;
    let row = Row::new(&args.device, &before, &now, began.elapsed());
    drop(queue);
    eprintln!("detached");
    print(args, vec![(row, place)])
}

/// A link, as its device describes it.
#[derive(Clone, Copy, Debug)]
struct DeviceLink {
    mbps: u64,
    mtu: u64,
}

impl DeviceLink {
    /// `None`: the device does not say.
    fn of(device: &str) -> Option<Self> {
        let read = |what: &str| {
            let path = Path::new("/sys/class/net").join(device).join(what);
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        // Some devices give a number for "unknown".
        let mbps = read("speed").filter(|mbps| (1..10_000_000).contains(mbps))?;
        Some(Self { mbps, mtu: read("mtu")? })
    }

    /// Bits per second, from the Ethernet header on, when full frames fill it: preamble, gap and
    /// check sequence, 24 bytes, are not counted.
    fn most_counted(self) -> u64 {
        let counted = self.mtu + 14;
        self.mbps * 1_000_000 * counted / (counted + 24)
    }
}

/// Shows the queues that are attached to a device.
fn status(args: &Args) -> Outcome {
    let attached = Attached::to(&args.device).map_err(failure)?;
    let (began, before) = (Instant::now(), attached.status().map_err(failure)?);
    if !before.is_empty() {
        thread::sleep(SECOND);
    }
    let (now, lasted) = (attached.status().map_err(failure)?, began.elapsed());
    let row = |(before, now): (&PhantomStatus, &PhantomStatus)| {
        (Row::new(&args.device, before, now, lasted), now.place)
    };
    // Without those that were detached meanwhile.
    let both = before.iter().zip(&now).filter(|(_, now)| now.drain.0 > 0);
    let rows: Vec<(Row, HookPoint)> = both.map(row).collect();
    if rows.is_empty() && args.format == Format::Table {
        line(format!("No phantom queue is attached to {}.", args.device));
    }
    print(args, rows)
}

fn print(args: &Args, rows: Vec<(Row, HookPoint)>) -> Outcome {
    match args.format {
        Format::Table => rows.iter().for_each(|(row, place)| line(row.text(*place))),
        Format::Json => json(&rows.into_iter().map(|(row, _)| row).collect::<Vec<_>>())?,
    }
    Ok(Verdict::Passed)
}

fn no_signals(error: io::Error) -> Failure {
    Failure::new(error, "the sandbox refuses signal handlers: allow them (sigaction, eventfd)")
}

/// Adds advice to an error.
fn failure(error: HullError) -> Failure {
    let hint = match &error {
        HullError::NoDevice { .. } => "`ip link` lists the devices of this network",
        HullError::Lacks { .. } => {
            "run it as root, or give the program the capability (setcap); without it the \
             rack shows what marks do: homa bench --transport tcp-ecn --phantom-queue 0.95,1KB"
        }
        _ => {
            "it needs Linux 5.12 or later with eBPF allowed to this process: a container or a user \
             namespace may refuse it; the rack shows what marks do: homa bench --phantom-queue \
             0.95,1KB"
        }
    };
    Failure::new(error, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_brings_less_than_its_rate_as_counted() {
        // 1514 of 1538 bytes.
        assert_eq!(DeviceLink { mbps: 10_000, mtu: 1_500 }.most_counted(), 9_843_953_185);
        assert!(DeviceLink::of("no such device").is_none());
    }
}
