//! The subcommands. Each file holds its arguments, their help, and what it does.

pub mod bench;
pub mod call;
pub mod completions;
pub mod doctor;
mod driver;
pub mod hull;
pub mod key;
mod pacing;
pub mod pcap;
pub mod pfc;
pub mod pias_thresholds;
pub mod ping;
mod protection;
pub mod proxy;
pub mod report;
pub mod repro;
pub mod schemes;
mod scrape;
pub mod serve;
pub mod sim;
pub mod swarm;
pub mod sweep;
mod systemd;
pub mod tail;
pub mod top;
pub mod why;
mod work;
pub mod workloads;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::args::Command;
use crate::failure::Outcome;

/// Runs a subcommand.
pub fn run(command: Command) -> Outcome {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Repro(args) => repro::run(&args),
        Command::Hull(args) => hull::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Schemes(args) => schemes::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::PiasThresholds(args) => pias_thresholds::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Swarm(args) => swarm::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Pfc(args) => pfc::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => completions::write_pages(&args),
        Command::Top(args) => top::run(&args),
        Command::Why(args) => why::run(&args),
    }
}

/// Descriptors that waiting for signals takes, at most.
const DESCRIPTORS: usize = 8;

/// Blocks until the user or the system asks to end, or that time has passed. Calls `ready` once the
/// signal handlers are installed.
fn wait_for_the_end(time: Option<Duration>, ready: impl FnOnce()) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    // If these descriptors are not available, later code would panic instead of reporting an error.
    let spare = (0..DESCRIPTORS).map(|_| std::fs::File::open("/dev/null"));
    drop(spare.collect::<io::Result<Vec<_>>>()?);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        ready();
        let ended = std::future::poll_fn(|context| {
            match terminate.poll_recv(context).is_ready() || interrupt.poll_recv(context).is_ready()
            {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        });
        match time {
            None => ended.await,
            // Whichever comes first.
            Some(time) => drop(tokio::time::timeout(time, ended).await),
        }
        Ok(())
    })
}

/// The local address from which a peer of either family can be reached, at a free port.
pub fn any_address_for(peer: SocketAddr) -> SocketAddr {
    let any = match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(any, 0)
}
