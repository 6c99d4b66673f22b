//! A proxy's life: opens both ends, waits for the end, drains.

use std::sync::Arc;

use anyhow::Context;
use homa::metrics::http::Exporter;
use homa::{Config, Engine};
use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counts::ProxyCounts;
use super::{Args, ProxyEnd, back, front};
use crate::commands::{serve, systemd, wait_for_the_end};
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::line;

/// What a client reads whose call is one too many.
pub const FULL: &str = "the proxy has as many calls in progress as --concurrency allows; the call \
                        was not executed";

/// A proxy that serves.
pub struct RunningProxy {
    /// Where it listens.
    pub at: Vec<String>,
    pub engines: Vec<Engine>,
    /// They end when calls in progress have, after they were asked to.
    pub tasks: JoinSet<anyhow::Result<()>>,
}

/// What both kinds of proxies need.
pub struct Setting<'a> {
    pub args: &'a Args,
    pub counts: Arc<ProxyCounts>,
    /// True if the proxy should end.
    pub ending: watch::Receiver<bool>,
}

impl Setting<'_> {
    /// The parameters of the engines.
    pub fn config(&self) -> Result<Config, Failure> {
        let config = self.args.protection.apply(self.args.pacing.apply(Config::default()))?;
        Ok(self.args.early_data.apply(config))
    }
}

/// Waits until the proxy should end.
pub async fn asked_to_end(mut ending: watch::Receiver<bool>) {
    // If the sender is gone, it should end, too.
    drop(ending.wait_for(|ending| *ending).await);
}

/// Forwards calls until Ctrl-C or SIGTERM.
pub fn run(args: &Args) -> Outcome {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.hint("the system refuses threads: raise `ulimit -u`")?;
    let (end, ending) = watch::channel(false);
    let counts = Arc::new(ProxyCounts::default());
    let setting = Setting { args, counts: counts.clone(), ending };
    let metrics = args.metrics.map(serve::listen).transpose()?;
    let RunningProxy { at, engines, mut tasks } = runtime.block_on(start(&setting))?;
    at.iter().for_each(|at| line(format!("listening on {at}")));
    let exporter = metrics.map(|at| export(at, &engines, &counts)).transpose()?;
    let _watchdog = systemd::watch(&engines);
    wait_for_the_end(None, || systemd::tell(NotifyState::Ready))
        .hint("raise the limit of descriptors (ulimit -n), or allow signal handlers")?;
    systemd::tell(NotifyState::Stopping);
    eprintln!("finishing calls in progress");
    end.send_replace(true);
    runtime.block_on(async {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended.context("a part of the proxy failed").and_then(|ended| ended)
            {
                eprintln!("warning: {error:#}");
            }
        }
    });
    drop(exporter);
    eprintln!("{}", counts.summary());
    // Lookups of names that no call needs any more may take longer than a service manager waits.
    runtime.shutdown_background();
    Ok(Verdict::Passed)
}

/// Opens the end that listens.
async fn start(setting: &Setting<'_>) -> Result<RunningProxy, Failure> {
    let Args { listen, to, .. } = setting.args;
    match (listen, to) {
        (ProxyEnd::Homa(at), ProxyEnd::Local(to)) => back::start(setting, at, to),
        (ProxyEnd::Local(_), ProxyEnd::Homa(_)) if setting.args.early_data.is_given() => {
            let error = anyhow::anyhow!(
                "--early-data has no effect beside clients: gRPC does not say which calls may be \
                 executed twice, so the proxy sends none early"
            );
            let hint = "give it to the proxy beside the server, --listen homa://ADDR, for clients \
                        that speak Homa themselves";
            Err(Failure::new(error, hint))
        }
        (ProxyEnd::Local(listen), ProxyEnd::Homa(to)) => front::start(setting, listen, to).await,
        (ProxyEnd::Homa(_), ProxyEnd::Homa(_)) => {
            let error = anyhow::anyhow!("both ends are Homa, and one has to be at local programs");
            Err(Failure::new(error, "give --to the local server, such as http://127.0.0.1:50051"))
        }
        (ProxyEnd::Local(_), ProxyEnd::Local(_)) => {
            let error = anyhow::anyhow!("no end is Homa");
            let hint = "give --to homa://HOST:PORT beside clients, or --listen homa://ADDR \
                        beside a server";
            Err(Failure::new(error, hint))
        }
    }
}

/// Serves metrics.
fn export(
    at: std::net::TcpListener,
    engines: &[Engine],
    counts: &Arc<ProxyCounts>,
) -> Result<Exporter, Failure> {
    let counts = counts.clone();
    let exporter = Exporter::with(engines, at, move || counts.to_openmetrics());
    let exporter = exporter.hint("raise the limit of threads (ulimit -u)")?;
    line(format!("metrics at http://{}/metrics", exporter.local_addr()));
    Ok(exporter)
}
