//! Where the kernel refuses network namespaces: Homa alone, its hosts joined by memory instead of
//! links.
//!
//! This shows that the transport works and what its software costs, and nothing about queues,
//! priorities or TCP: the in-memory network has no rate and no time. The screen says so.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::memory::{self, Faults};
use homa::inline::Engine;
use homa_testbed::link::TCP_RTO_MIN;
use homa_testbed::{IdleTimes, TestbedError, Transport};
use homa_workload::arrivals::{Arrival, schedule};
use homa_workload::bins::SizeBins;

use super::config::{Config, Network, command_line};
use super::fabric::Wired;
use super::marking::Planned;
use super::open_loop::{Loaded, OpenLoop};
use super::rack::{OFFER_HINT, offer};
use super::report::{Report, TransportResult, kept};
use super::screen::Screen;
use super::{Args, Switch, twin};
use crate::cpu::process_time;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Format, Progress, json, line};

/// How long stragglers may take after the last arrival.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the load over memory; `refusal` says which setting keeps the rack away. It passes when Homa
/// keeps its promises, although nothing here is a valid row of a rack.
pub fn run(args: &Args, refusal: &TestbedError) -> Outcome {
    eprintln!("warning: {refusal}");
    let args = &possible(args)?;
    let (offer, sizes) = offer(args)?;
    let arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
    let (engines, addresses) = engines(args)?;
    let progress = Progress::ticking(args.duration());
    progress.step("homa, alone, over its in-memory network");
    let (busy, start) = (AtomicUsize::new(engines.len()), Instant::now());
    let cpu = process_time();
    let end = start + args.duration() + GRACE;
    let hosts: Vec<io::Result<Loaded>> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (mut engine, arrivals) in engines.into_iter().zip(&arrivals) {
            let load = OpenLoop { arrivals, servers: &addresses, start, end, busy: &busy };
            threads.push(scope.spawn(move || load.run(&mut engine)));
        }
        let died = || io::Error::other("a host's thread ended without a result");
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(died()))).collect()
    });
    let cpu = process_time().saturating_sub(cpu).as_secs_f64() * 1e6;
    progress.finish();
    let hosts: io::Result<Vec<Loaded>> = hosts.into_iter().collect();
    let hosts = hosts.hint("run it again, and report it if it stays")?;
    let errors = hosts.iter().map(|host| host.errors).sum();
    let records: Vec<_> = hosts.into_iter().flat_map(|host| host.records).collect();
    let counts = (arrivals.iter().map(Vec::len).sum(), errors);
    let each = cpu / records.len().max(1) as f64;
    let idle = IdleTimes::default();
    let bins = SizeBins::percent(&sizes);
    let mut row = TransportResult::new(Transport::Homa, counts, each, (&records, &idle), &bins);
    if args.twin {
        // Of the rack that is missing: nothing measured here is comparable with it.
        let homa = Planned { transport: Transport::Homa, marks: None };
        row.twin = twin::forecast(args, homa, &arrivals, (None, TCP_RTO_MIN))?;
    }
    let kept = print(args, &arrivals, row, refusal)?;
    Ok(if kept { Verdict::Passed } else { Verdict::CheckFailed })
}

/// What of the request can be done here, or why nothing of it.
fn possible(args: &Args) -> Result<Args, Failure> {
    let hint = "without a rack only the row `homa` can run, and nothing is drawn: `homa doctor` \
                names the setting";
    if args.chart.is_some() {
        return Err(Failure::new(anyhow::anyhow!("--chart needs a rack"), hint));
    }
    if args.fabric != Wired::SingleSwitch {
        return Err(Failure::new(anyhow::anyhow!("--fabric needs a rack"), hint));
    }
    if !args.transports().contains(&Transport::Homa) {
        return Err(Failure::new(anyhow::anyhow!("the rows of --transport need a rack"), hint));
    }
    for absent in args.transport.iter().filter(|&&t| t != Transport::Homa) {
        eprintln!("warning: {absent} needs a rack and is left out");
    }
    Ok(Args { transport: vec![Transport::Homa], ..args.clone() })
}

/// Prints the row. True when Homa kept what it promises.
fn print(
    args: &Args,
    arrivals: &[Vec<Arrival>],
    row: TransportResult,
    refusal: &TestbedError,
) -> Result<bool, Failure> {
    let broken = row.broken();
    match args.format {
        Format::Json => {
            let config = Config::new(args, Network::Memory);
            let kept = kept(&broken, args.format);
            json(&Report { config, valid: false, transports: &[row] })?;
            Ok(kept)
        }
        Format::Table => {
            let screen = Screen::new(args, arrivals);
            line(format!("NO RACK: {refusal}."));
            line(
                "Homa alone over an in-memory network without rate, queues or time: software only.",
            );
            screen.load("of every link of the rack that is missing");
            screen.row(&row, &IdleTimes::default(), true);
            if row.twin.is_some() {
                line("The twin is a forecast for the missing rack, compared with nothing.");
            }
            let kept = kept(&broken, args.format);
            line(
                "Not shown: everything that a network does. Nothing here compares with TCP; \
                 --buffer and --cc have no meaning.",
            );
            line(format!("Repeat: {}", command_line(args)));
            Ok(kept)
        }
    }
}

/// An engine per host, each a client and a server.
fn engines(args: &Args) -> Result<(Vec<Engine>, Vec<SocketAddr>), Failure> {
    let per_million = |p: f64| (p * 1e6) as u32;
    let faults = Faults::default().lost(per_million(args.loss));
    let faults = faults.duplicated(per_million(args.duplicate));
    let network = memory::Network::new(args.seed, faults);
    let mut config = homa::Config::default();
    if args.incast_control == Switch::Off {
        config.protocol.incast = None;
    }
    let mut engines = Vec::new();
    for host in 0..args.hosts() {
        // As on the rack: receivers grant one message per sender's address.
        let address = u32::from(Ipv4Addr::new(10, 77, 0, 1)) + host as u32;
        let at = SocketAddr::from((Ipv4Addr::from(address), 0));
        let driver = network.driver(at).hint("raise the limit of open files (ulimit -n)")?;
        let mut engine = Engine::with_driver(Box::new(driver), config.clone())
            .hint("choose fewer hosts with --hosts")?;
        engine.listen();
        engines.push(engine);
    }
    let addresses = engines.iter().map(Engine::local_addr).collect();
    Ok((engines, addresses))
}

#[cfg(test)]
mod tests {
    use super::super::asked;
    use super::*;

    #[test]
    fn every_host_has_an_address_of_its_own() {
        let (_engines, addresses) = engines(&asked(&["--hosts", "3"])).unwrap_or_else(|error| {
            panic!("{error:?}");
        });
        let ips: std::collections::BTreeSet<_> = addresses.iter().map(SocketAddr::ip).collect();
        assert_eq!(ips.len(), 3, "{addresses:?}");
    }
}
