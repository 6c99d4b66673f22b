//! `homa serve`: a server for trying things out, between machines too.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use homa::handover::Handover;
use homa::metrics::Metrics;
use homa::metrics::http::Exporter;
use homa::{Config, Engine, Server};
use sd_notify::NotifyState;

use super::driver::{Driver, explain};
use super::pacing::Pacing;
use super::protection::{EarlyDataOption, Protection};
use super::systemd;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::line;
use crate::{cp_node, values};

/// How long requests in progress may take to finish after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(5);

/// Arguments of `homa serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on; port 0 picks a free port and prints it. If it is a name with
    /// several addresses, all of them that this machine has. Not needed if systemd passes sockets
    /// (LISTEN_FDS): UDP sockets are served, and a TCP socket with the name `metrics` has the
    /// metrics.
    #[arg(long, value_name = "ADDR", value_parser = values::listening)]
    bind: Option<values::Addresses>,
    /// What carries the packets.
    #[arg(long, value_enum, default_value_t = Driver::Udp)]
    driver: Driver,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    early_data: EarlyDataOption,
    #[command(flatten)]
    pacing: Pacing,
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
    /// Restart without loss: take over from the server before at the same address, and hand over to
    /// the next one, by files in this folder. While it ends, new requests are asked to come back,
    /// and not refused. Other users must not be able to write to the folder.
    #[arg(long, value_name = "FOLDER")]
    handover: Option<PathBuf>,
}

/// The name of the socket of metrics, among those that systemd passes.
const METRICS: &str = "metrics";

/// Serves until Ctrl-C or SIGTERM, then lets requests in progress finish.
pub fn run(args: &Args) -> Outcome {
    let (passed_metrics, sockets) =
        systemd::sockets()?.into_iter().partition::<Vec<_>, _>(|(_, name)| name == METRICS);
    let metrics = args.metrics.flatten().map(listen).transpose()?;
    let metrics =
        metrics.or(passed_metrics.into_iter().next().map(|(fd, _)| TcpListener::from(fd)));
    let (engines, servers) = open(args, sockets.into_iter().map(|(socket, _)| socket).collect())?;
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
    let _watchdog = systemd::watch(&engines);
    super::wait_for_the_end(None, || systemd::tell(NotifyState::Ready))
        .hint("raise the limit of descriptors (ulimit -n), or allow signal handlers")?;
    systemd::tell(NotifyState::Stopping);
    eprintln!("finishing requests in progress");
    for engine in &engines {
        end(engine, args.handover.as_deref());
    }
    let answered: u64 = serving.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    eprintln!("answered {answered} requests");
    if args.metrics == Some(None) {
        line(Metrics::of_all(&engines).to_openmetrics().trim_end());
    }
    Ok(Verdict::Passed)
}

/// Ends an engine gracefully, and hands its place over if there is a folder for it.
fn end(engine: &Engine, folder: Option<&Path>) {
    let unfinished = match folder {
        None => engine.drain(DRAIN).err(),
        Some(folder) => match engine.hand_over(DRAIN) {
            Ok(handover) => {
                let saved = handover.save(file_of(folder, engine.local_addr()));
                saved.unwrap_or_else(|error| eprintln!("warning: {error}"));
                handover.unfinished()
            }
            Err(error) => return eprintln!("warning: {error}"),
        },
    };
    if let Some(unfinished) = unfinished {
        eprintln!("warning: {unfinished}");
    }
}

/// The file by which servers at an address hand over.
fn file_of(folder: &Path, at: SocketAddr) -> PathBuf {
    folder.join(at.to_string())
}

/// What the server before at an address handed over. Without it, no request is executed twice
/// either, but some calls fail.
fn handed_over(args: &Args, at: SocketAddr) -> Option<Handover> {
    let taken = args.handover.as_deref().map(|folder| Handover::take(file_of(folder, at)))?;
    taken.unwrap_or_else(|error| {
        eprintln!("warning: {error}");
        None
    })
}

/// Refuses a folder in which the next server would find no handover, or one that others wrote.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let at = folder.display();
    if !folder.is_dir() {
        let hint = "make it, such as by RuntimeDirectory= of systemd";
        return Err(Failure::new(anyhow::anyhow!("there is no folder {at}"), hint));
    }
    let hint = format!("chmod 700 {at}, or name a folder of this user alone");
    let mode =
        folder.metadata().with_context(|| format!("{at} cannot be read")).hint(&hint)?.mode();
    if mode & 0o022 != 0 {
        let error = anyhow::anyhow!("others may write to {at} (mode {:03o})", mode & 0o777);
        return Err(Failure::new(error, hint));
    }
    let trial = folder.join(format!(".trial-{}", std::process::id()));
    let made = File::create_new(&trial).and_then(|_| fs::remove_file(&trial));
    made.with_context(|| format!("no file can be made in {at}"))
        .hint("let this user write there, or name another folder")
}

/// Opens an engine at each address and over each socket, and its servers.
fn open(args: &Args, sockets: Vec<OwnedFd>) -> Result<(Vec<Engine>, Vec<Server>), Failure> {
    let hint = "choose a free address of this machine, such as --bind 127.0.0.1:4000";
    let (mut engines, mut servers) = (Vec::new(), Vec::new());
    let bind = args.bind.as_ref().map_or(&[][..], |bind| &bind.0);
    if bind.is_empty() && sockets.is_empty() {
        let error = anyhow::anyhow!("no address to listen on");
        return Err(Failure::new(error, "give --bind, such as --bind 127.0.0.1:4000"));
    }
    let udp = args.driver == Driver::Udp;
    if !udp && (args.handover.is_some() || !sockets.is_empty()) {
        let error = anyhow::anyhow!("sockets that are passed, and --handover, need --driver udp");
        return Err(Failure::new(error, "leave --driver away"));
    }
    if let Some(folder) = args.handover.as_deref() {
        check_folder(folder)?;
        if bind.iter().any(|at| at.port() == 0) {
            let error = anyhow::anyhow!("--handover does not go with port 0, which always differs");
            return Err(Failure::new(error, "give --bind a port, such as 127.0.0.1:4000"));
        }
    }
    for socket in sockets {
        let hint = "give the socket unit ListenDatagram=, and BindIPv6Only=both for all addresses";
        let socket = UdpSocket::from(socket);
        let config = config(args, socket.local_addr().ok())?;
        servers.push(explain(Server::from_socket(socket, config), hint)?);
    }
    let passed = servers.len();
    for &(mut at) in bind {
        if at.port() == 0 {
            // All addresses of a name get the port that was chosen for the first.
            let first = servers.get(passed);
            at.set_port(first.map_or(0, |server: &Server| server.local_addr().port()));
        }
        let engine = args.driver.engine(at, config(args, Some(at))?, hint)?;
        servers.push(engine.serve().hint("choose another port")?);
    }
    for n in 0..servers.len() {
        let engine = servers[n].engine().clone();
        for n in 1..u16::from(args.ports) {
            let mut at = engine.local_addr();
            at.set_port(at.port().saturating_add(n));
            servers.push(engine.serve_at(at).hint("choose other ports")?);
        }
        engines.push(engine);
    }
    Ok((engines, servers))
}

/// The parameters of an engine at an address, which may take another's place there.
fn config(args: &Args, at: Option<SocketAddr>) -> Result<Config, Failure> {
    let handover = at.and_then(|at| handed_over(args, at));
    let config = args.pacing.apply(args.driver.config()).handover(handover);
    Ok(args.early_data.apply(args.protection.apply(config)?))
}

/// Binds a TCP address for metrics; an error if another program has it.
pub fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
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
