//! `homa bench --peer`: open-loop load against a running `homa serve --echo`, on this machine or
//! another.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use homa_testbed::Transport;
use homa_workload::arrivals::schedule;
use homa_workload::bins::SizeBins;

use super::args::Args;
use super::config::{Config, Network, command_line};
use super::open_loop::{OpenLoop, idle_times};
use super::results::report::{BenchReport, Judged, TransportResult, print_broken};
use super::results::table;
use super::setup::{OFFER_HINT, idle_sizes, offer};
use super::units::rate;
use crate::cpu::process_time;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Format, Progress, json, line};

/// How long stragglers may take after the last arrival.
const GRACE: Duration = Duration::from_secs(5);

/// Loads the server and prints one row.
pub fn run(args: &Args, server: SocketAddr) -> Outcome {
    let (mut offer, sizes) = offer(args)?;
    // Two hosts: this one asks, the server answers.
    offer.hosts = 2;
    let arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
    let arrivals = &arrivals[..1];
    let mut engine = args.driver.inline(server, &args.protection)?;
    let progress = Progress::ticking(args.duration() + Duration::from_secs(1));
    progress.step("measuring idle round trips");
    let idle = idle_times(&mut engine, server, &idle_sizes(&sizes)).map_err(|error| match error
        .downcast()
    {
        Ok(call) => args.driver.failure(server, call, "--echo"),
        Err(error) => Failure::new(error, "run it again, and report it if it stays"),
    })?;
    progress.step("under load");
    let start = Instant::now();
    let load = OpenLoop {
        arrivals: &arrivals[0],
        servers: &[server; 2],
        start,
        end: start + args.duration() + GRACE,
        busy: &AtomicUsize::new(1),
    };
    let cpu = process_time();
    let loaded = load.run(&mut engine).hint("the socket failed under load: run it again")?;
    let cpu = process_time().saturating_sub(cpu).as_secs_f64() * 1e6;
    progress.finish();
    let counts = (arrivals[0].len(), loaded.errors);
    let each = cpu / loaded.records.len().max(1) as f64;
    let records = (&loaded.records[..], &idle);
    let bins = SizeBins::percent(&sizes);
    let mut row = TransportResult::new(Transport::Homa, counts, Some(each), records, &bins);
    let short = table::short_sizes(arrivals);
    let typical = table::typical(&short);
    row.idle_us = typical.and_then(|bytes| Some(idle.at(bytes)? / 1e3));
    let broken = row.broken();
    match args.format {
        Format::Json => {
            print_broken(&broken, args.format);
            let (config, transports) = (Config::new(args, Network::Peer), &[Judged::valid(row)]);
            json(&BenchReport { config, valid: true, why_simulated: None, transports })?;
        }
        Format::Table => {
            line(format!("Peer: {server} over {}; CPU of this side only.", args.driver.name()));
            let of_what = format!("of {} in each direction", rate(args.link()));
            line(table::load_line(args, &of_what));
            let table = table::loaded(short.len());
            line(table.head());
            let cells: Vec<String> = [row.label()].into_iter().chain(table::cells(&row)).collect();
            line(table.row(&cells));
            table::below(args, &row, typical, true).iter().for_each(line);
            print_broken(&broken, args.format);
            line(format!("Repeat: {}", command_line(args)));
        }
    }
    Ok(if broken.is_empty() { Verdict::Passed } else { Verdict::CheckFailed })
}
