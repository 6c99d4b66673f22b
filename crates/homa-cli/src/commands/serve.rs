//! `homa serve`: a server for trying things out, between machines too.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use homa::metrics::Metrics;
use homa::metrics::http::Exporter;
use homa::{Engine, Server};
use sd_notify::NotifyState;

use super::driver::Driver;
use super::protection::Protection;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::line;
use crate::{cp_node, values};

/// How long requests in progress may take to finish after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(5);

/// Arguments of `homa serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on; port 0 picks a free port and prints it. If it is a name with
    /// several addresses, all of them.
    #[arg(long, value_name = "ADDR", value_parser = values::addresses)]
    bind: values::Addresses,
    /// What carries the packets.
    #[arg(long, value_enum, default_value_t = Driver::Udp)]
    driver: Driver,
    #[command(flatten)]
    protection: Protection,
    /// Answer every request with its own bytes. Without it, the answer is one line with their
    /// number.
    #[arg(long)]
    echo: bool,
    /// Answer as the `cp_node server` of the Linux kernel module does, for its clients and for
    /// `homa bench --cp-node`. The module's servers listen on ports from 4000 up.
    #[arg(long, conflicts_with = "echo")]
    cp_node: bool,
    /// With --cp-node: number of consecutive ports to listen on.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "cp_node")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    ports: u8,
    /// Serve metrics as OpenMetrics text over HTTP (GET /metrics) at this TCP address; port 0 picks
    /// a free one, which is then printed. There is no access control: choose loopback or a private
    /// network. Without an address, metrics are printed at the end.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, value_parser = values::address)]
    metrics: Option<Option<SocketAddr>>,
}

/// Serves until Ctrl-C or SIGTERM, then lets requests in progress finish.
pub fn run(args: &Args) -> Outcome {
    let metrics = args.metrics.flatten().map(listen).transpose()?;
    let (engines, servers) = open(args)?;
    servers.iter().for_each(|server| line(format!("listening on {}", server.local_addr())));
    // It ends last: requests that finish at the end are counted, too.
    let exporter = metrics.map(|listener| Exporter::of_all(&engines, listener)).transpose();
    let exporter = exporter.hint("raise the limit of threads (ulimit -u)")?;
    if let Some(exporter) = &exporter {
        line(format!("metrics at http://{}/metrics", exporter.local_addr()));
    }
    let make = match args {
        Args { cp_node: true, .. } => cp_node::respond,
        Args { echo: true, .. } => |bytes| bytes,
        _ => |bytes: Vec<u8>| format!("{} bytes\n", bytes.len()).into_bytes(),
    };
    let serving = servers.into_iter().map(|server| thread::spawn(move || answer(&server, make)));
    let serving: Vec<_> = serving.collect();
    super::wait_for_the_end(None, || tell_systemd(NotifyState::Ready))
        .hint("raise the limit of descriptors (ulimit -n), or allow signal handlers")?;
    tell_systemd(NotifyState::Stopping);
    eprintln!("finishing requests in progress");
    for engine in &engines {
        if let Err(unfinished) = engine.drain(DRAIN) {
            eprintln!("warning: {unfinished}");
        }
    }
    let answered: u64 = serving.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    eprintln!("answered {answered} requests");
    if args.metrics == Some(None) {
        line(Metrics::of_all(&engines).to_openmetrics().trim_end());
    }
    Ok(Verdict::Passed)
}

/// Tells systemd, if it started this program (`Type=notify`). An error is no reason to end.
fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(false, &[state]) {
        eprintln!("warning: systemd was not told: {error}");
    }
}

/// Opens an engine at each address, and its servers.
fn open(args: &Args) -> Result<(Vec<Engine>, Vec<Server>), Failure> {
    let hint = "choose a free address of this machine, such as 0.0.0.0:4000";
    let (mut engines, mut servers) = (Vec::new(), Vec::new());
    for &(mut at) in &args.bind.0 {
        if at.port() == 0 {
            // All addresses of a name get the port that was chosen for the first.
            at.set_port(servers.first().map_or(0, |server: &Server| server.local_addr().port()));
        }
        let engine = args.driver.engine(at, hint, &args.protection)?;
        servers.push(engine.serve().hint("choose another port")?);
        for n in 1..u16::from(args.ports) {
            let mut at = engine.local_addr();
            at.set_port(at.port().saturating_add(n));
            servers.push(engine.serve_at(at).hint("choose other ports")?);
        }
        engines.push(engine);
    }
    Ok((engines, servers))
}

/// Binds a TCP address for metrics; an error if another program has it.
fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    let hint = "choose a free TCP address of this machine for --metrics, such as 127.0.0.1:9464, \
                or port 0 for any";
    TcpListener::bind(at).with_context(|| format!("no metrics at {at}")).hint(hint)
}

/// Answers requests until the engine drains; returns how many.
fn answer(server: &Server, make: fn(Vec<u8>) -> Vec<u8>) -> u64 {
    let mut answered = 0;
    while let Some(mut request) = server.accept() {
        let response = make(request.take_bytes().into_vec());
        // A client that gave up meanwhile is its own affair.
        if request.reply(response).is_ok() {
            answered += 1;
        }
    }
    answered
}
