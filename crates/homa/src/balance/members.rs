//! The servers of a target as they come and go.
//!
//! Invariants: new servers are reported before those that are gone, so that the set is never empty
//! in between. [`Members`] has only servers of the best priority, because balancers of `tower` have
//! no priorities. A lookup that fails, or finds nothing, keeps the servers that are known, and is
//! repeated after a pause that doubles.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::tokio::runtime::Handle;
use ::tokio::sync::{Notify, mpsc};
use ::tokio::task::AbortHandle;
use ::tokio::time::{sleep, timeout};
use futures_core::Stream;
use tower::discover::Change;

use super::choose::{Draws, Rank};
use super::resolve::{ResolveError, Resolver};
use super::target::Target;
use crate::driver::fork::Process;
use crate::error::OpenError;

/// The pause after a lookup that failed, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A lookup that was asked for before its time waits at least this long after the last one.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// The servers of a target as they come and go, for balancers of `tower`: it is a
/// [`Discover`](tower::discover::Discover) with the address as the key. It never ends, and never
/// fails: if a lookup does, the servers that are known stay. Of SRV records it has those of the
/// best priority, without their weights.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::pin::Pin;
/// use std::time::Duration;
///
/// use homa::balance::Members;
/// use tower::discover::{Change, Discover};
///
/// let target = "homa+file:///etc/search-servers".parse()?;
/// let mut members = Members::of(target, Duration::from_secs(30))?;
/// let next = std::future::poll_fn(|context| Pin::new(&mut members).poll_discover(context));
/// if let Some(Ok(Change::Insert(server, ()))) = next.await {
///     println!("{server}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Members {
    changes: mpsc::UnboundedReceiver<Change<SocketAddr, ()>>,
    _watching: Watching,
}

impl Members {
    /// Looks up a target in a task of the current tokio runtime, and names of hosts again every
    /// `refresh`.
    ///
    /// # Errors
    /// [`OpenError::NoRuntime`] outside a runtime.
    pub fn of(target: Target, refresh: Duration) -> Result<Self, OpenError> {
        let (to, from) = mpsc::unbounded_channel();
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let mut known = Addresses::new();
        let watching = watch(&runtime, target, refresh, Arc::default(), move |found| match found {
            Ok(found) => {
                let changed = changes(&mut known, of_best_priority(found)).into_iter();
                let mut changed = changed.filter_map(ServerChange::without_rank);
                changed.all(|change| to.send(change).is_ok())
            }
            Err(_) => !to.is_closed(),
        });
        Ok(Self { changes: from, _watching: watching })
    }
}

impl Stream for Members {
    type Item = Result<Change<SocketAddr, ()>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.changes.poll_recv(context).map(|change| change.map(Ok))
    }
}

/// The task that looks a target up; dropping this ends it.
#[derive(Debug)]
pub(super) struct Watching {
    task: AbortHandle,
    process: Process,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The child of a fork has no thread that runs the task.
        if self.process.is_this() {
            self.task.abort();
        }
    }
}

/// How a server differs between two lookups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ServerChange {
    New(SocketAddr, Rank),
    /// It has another priority or weight.
    Ranked(SocketAddr, Rank),
    Gone(SocketAddr),
}

impl ServerChange {
    fn without_rank(self) -> Option<Change<SocketAddr, ()>> {
        match self {
            Self::New(server, _) => Some(Change::Insert(server, ())),
            Self::Ranked(..) => None,
            Self::Gone(server) => Some(Change::Remove(server)),
        }
    }
}

/// The servers that a lookup found.
pub(super) type Addresses = BTreeMap<SocketAddr, Rank>;

/// Looks a target up in a task of `runtime`, again and again, and when `asked`, until `report`
/// returns false.
pub(super) fn watch(
    runtime: &Handle,
    target: Target,
    refresh: Duration,
    asked: Arc<Notify>,
    mut report: impl FnMut(Result<Addresses, ResolveError>) -> bool + Send + 'static,
) -> Watching {
    let task = runtime.spawn(async move {
        let name = target.to_string();
        let mut resolver = Resolver::new(target, refresh);
        let mut draws = Draws::new(crate::config::random());
        let mut pause = FIRST_PAUSE;
        loop {
            let (found, wait) = match resolver.resolve().await {
                Ok(resolved) => {
                    pause = FIRST_PAUSE;
                    (Ok(resolved.addresses), resolved.again)
                }
                Err(error) => {
                    tracing::warn!(%error, target = name, "no addresses, the known ones stay");
                    // Clients that lost their name server together do not ask it together.
                    let wait = pause.mul_f64(0.75 + 0.5 * draws.share());
                    pause = (2 * pause).min(LONGEST_PAUSE);
                    (Err(error), wait)
                }
            };
            if !report(found) {
                return;
            }
            let least = wait.min(ASKED_EVERY);
            sleep(least).await;
            let _ = timeout(wait - least, asked.notified()).await;
        }
    });
    Watching { task: task.abort_handle(), process: Process::this() }
}

/// What changed, new servers first. `known` becomes what was found.
pub(super) fn changes(known: &mut Addresses, found: Addresses) -> Vec<ServerChange> {
    let come = found.iter().filter_map(|(server, rank)| match known.get(server) {
        None => Some(ServerChange::New(*server, *rank)),
        Some(before) if before != rank => Some(ServerChange::Ranked(*server, *rank)),
        Some(_) => None,
    });
    let gone = known.keys().filter(|server| !found.contains_key(server));
    let changes = come.chain(gone.map(|server| ServerChange::Gone(*server))).collect();
    *known = found;
    changes
}

fn of_best_priority(mut found: Addresses) -> Addresses {
    let best = found.values().map(|rank| rank.priority).min();
    found.retain(|_, rank| Some(rank.priority) == best);
    found
}
