//! `homa why`: where the time of slow RPCs goes, from the metrics endpoint of an engine, and the
//! one thing to change.
//!
//! The engine follows one RPC in 16 from stage to stage (`homa_rpc_stage_seconds`). Two scrapes of
//! one process (`watch`) give the RPCs that ended between them (`groups`); `split` takes the slow
//! ones and names causes; `advice` decides, and `text` says it.
//!
//! A client cannot tell the server's time from that of the network. The server's endpoint, if it is
//! given, tells, unless it followed too few requests (`server`). Left out: single RPCs
//! (`homa pcap`), time in the application of the client, and how long a request waited in the
//! server's socket, which no engine sees.

mod advice;
mod groups;
mod server;
mod split;
mod stalls;
mod text;
mod watch;

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Outcome, Verdict};
use crate::output::{self, Format};
use crate::values;
use advice::Advice;
use split::{Cause, Evidence, Slow};
use watch::Watches;

/// Arguments of `homa why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The metrics endpoint of the engine, such as 10.0.0.7:9464 (TCP).
    #[arg(value_name = "ADDR", value_parser = values::metrics)]
    endpoint: SocketAddr,
    /// How long to watch.
    #[arg(long = "for", default_value = "30s", value_name = "TIME")]
    #[arg(value_parser = watched)]
    watched: Duration,
    /// The metrics endpoint of the server that the engine calls most: tells the server's time from
    /// that of the network.
    #[arg(long, value_name = "ADDR", value_parser = values::metrics)]
    server: Option<SocketAddr>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The JSON document.
#[derive(Serialize)]
struct WhyReport {
    seconds: f64,
    rpcs_followed: f64,
    /// Processes that were replaced meanwhile. The report is about the time since.
    restarts: u32,
    stalls: f64,
    stalled_s: f64,
    /// The same of the server's process; `None` without its endpoint.
    server_stalls: Option<f64>,
    server_stalled_s: Option<f64>,
    /// Restarts and silence of the endpoints, in words.
    notes: Vec<String>,
    /// The RPCs that the advice is about.
    slow: Option<SlowRpcs>,
    advice: &'static str,
    text: String,
}

#[derive(Serialize)]
struct SlowRpcs {
    direction: String,
    size: String,
    followed: f64,
    mean_us: f64,
    best_us: f64,
    /// A part of it is assumed: no wait was as short as a round trip in a datacenter.
    best_is_assumed: bool,
    /// Requests of this size that the server followed; `None` if it was not asked, or knows enough.
    server_followed_only: Option<f64>,
    causes: Vec<CauseTime>,
}

#[derive(Serialize)]
struct CauseTime {
    cause: &'static str,
    mean_us: f64,
    share: f64,
}

/// Runs the command. A report without RPCs is a report, too.
pub fn run(args: &Args) -> Outcome {
    let mut watches = Watches::begin(args.endpoint, args.server)?;
    let asked = args.watched.as_secs_f64();
    eprintln!("watching {} for {asked:.0} s", args.endpoint);
    watches.watch(args.watched)?;
    let (engine, server) = watches.windows();
    let evidence = Evidence { asked, ..Evidence::between(engine, server) };
    let (advice, slow) = advice::advise(&evidence);
    let notes = watches.notes();
    match args.format {
        Format::Table => {
            output::line(text::report(args.endpoint, &notes, &evidence, slow, advice));
        }
        Format::Json => {
            let seen = (watches.restarts(), notes);
            output::json(&document(&evidence, seen, slow, advice))?;
        }
    }
    Ok(Verdict::Passed)
}

fn document(
    evidence: &Evidence,
    (restarts, notes): (u32, Vec<String>),
    slow: Option<&Slow>,
    advice: Advice,
) -> WhyReport {
    let rpcs = slow.map(|slow| {
        let cause = |cause: Cause| {
            let seconds = slow.time(cause);
            let share = slow.share(cause);
            (seconds > 0.0).then(|| CauseTime {
                cause: cause.name(),
                mean_us: seconds * 1e6,
                share,
            })
        };
        SlowRpcs {
            direction: slow.direction.clone(),
            size: slow.size.clone(),
            followed: slow.rpcs,
            mean_us: slow.mean * 1e6,
            best_us: slow.best * 1e6,
            best_is_assumed: slow.direction == "client" && evidence.too_long().is_some(),
            server_followed_only: slow.server.few(),
            causes: Cause::ALL.into_iter().filter_map(cause).collect(),
        }
    });
    WhyReport {
        seconds: evidence.seconds,
        rpcs_followed: evidence.followed,
        restarts,
        stalls: evidence.stalls.times,
        stalled_s: evidence.stalls.seconds,
        server_stalls: evidence.server_stalls.map(|of| of.times),
        server_stalled_s: evidence.server_stalls.map(|of| of.seconds),
        notes,
        slow: rpcs,
        advice: advice.name(),
        text: text::advice(evidence, slow, advice),
    }
}

fn watched(text: &str) -> Result<Duration, String> {
    let time = values::duration(text)?;
    match time < Duration::from_millis(100) {
        true => Err("write at least 100ms".into()),
        false => Ok(time),
    }
}
