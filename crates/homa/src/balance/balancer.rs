//! Calls to a set of servers: attempts, retries and hedges, all within one deadline.

#[cfg(test)]
mod tests;

use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::tokio::runtime::Handle;
use ::tokio::sync::{Notify, watch};
use ::tokio::time::{sleep, timeout, timeout_at};

use super::budget::AttemptBudget;
use super::detached::{self, within};
use super::ended::{Ended, or_ended};
use super::health::{AttemptEnd, judge};
use super::members::{Addresses, Watching, changes, watch as watch_members};
use super::resolve::ResolveError;
use super::servers::ServerSet;
use super::target::Target;
use super::{Config, now};
use crate::call_options::CallOptions;
use crate::client::Client;
use crate::config::random;
use crate::driver::fork::Process;
use crate::error::{CallError, OpenError};
use crate::message::Message;
use crate::payload::Payload;

/// The pause after which all servers are tried again, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Retries in each second that need no budget of calls.
const RETRIES_PER_SECOND: f64 = 10.0;

/// A call to a set of servers ended without a response.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BalanceError {
    /// No server is known. The lookup is repeated; with [`Config::wait_for_ready`] calls wait for
    /// it instead.
    #[error("no server is known, the call was not executed: {0}")]
    NoServers(#[source] Arc<ResolveError>),
    /// No server was known before the deadline.
    #[error(
        "no server was known before the deadline, the call was not executed: check the name, or \
         wait longer"
    )]
    Late,
    /// The last attempt failed.
    #[error(transparent)]
    Call(CallError),
}

/// Calls the servers of a [`Target`]. Clones are cheap, and share what is known of the servers.
///
/// Each attempt goes to the less loaded of two servers that are drawn at random. A call that was
/// certainly not executed is repeated at another server ([`CallError::is_retryable`]), within its
/// deadline and a budget for all calls. If the call is idempotent
/// ([`CallOptions::idempotent`]), it is also repeated if it may have been executed, and hedged: if
/// it takes longer than 95 % of recent calls, another server is called, too, and the slower call
/// is cancelled. The numbers of the budgets are in [`Config`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use homa::balance::{Balancer, Config};
/// use homa::{CallOptions, Client};
///
/// let client = Client::new()?;
/// client.engine().drive_on_tokio()?;
/// let search = Balancer::new("homa:///search.internal:4000".parse()?, Config::default())?;
/// let options = CallOptions::default().idempotent();
/// let found = search.call(&client, "get 7", &options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Balancer(Arc<BalancerState>);

#[derive(Debug)]
struct BalancerState {
    config: Config,
    set: Arc<Mutex<ServerSet>>,
    membership: watch::Receiver<Membership>,
    /// Asks for a lookup before its time.
    look_up: Arc<Notify>,
    /// For the timers, if the callers have none.
    runtime: Option<Handle>,
    /// The child of a fork has no thread that looks up.
    process: Process,
    _watching: Watching,
}

impl Drop for BalancerState {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The last receiver takes a lock, which a thread of the parent may have held.
            std::mem::forget(self.membership.clone());
        }
    }
}

/// Whether servers are known.
#[derive(Clone, Debug)]
enum Membership {
    /// The first lookup is in progress.
    Unknown,
    Known,
    Failed(Arc<ResolveError>),
}

/// The server of an attempt that is in progress. Dropping it says that the attempt was given up.
#[derive(Debug)]
#[must_use = "an attempt whose lease is dropped counts as given up"]
pub struct Lease {
    set: Arc<Mutex<ServerSet>>,
    look_up: Arc<Notify>,
    process: Process,
    at: SocketAddr,
    began: Instant,
    end: AttemptEnd,
}

fn lock(set: &Mutex<ServerSet>) -> MutexGuard<'_, ServerSet> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Balancer {
    /// Looks a target up in a task of the current tokio runtime, again and again until the last
    /// clone is dropped.
    ///
    /// # Errors
    /// [`OpenError::NoRuntime`] outside a runtime.
    pub fn new(target: Target, config: Config) -> Result<Self, OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        Ok(Self::on(&runtime, None, target, config))
    }

    /// For programs without a tokio runtime: a thread, one for all balancers of the process, looks
    /// targets up and has the timers. Calls may be polled by any executor.
    ///
    /// ```no_run
    /// # fn block_on<T>(_: impl Future<Output = T>) -> T { unreachable!() }
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use homa::balance::{Balancer, Config};
    /// use homa::{CallOptions, Client};
    ///
    /// let client = Client::new()?;
    /// let target = "homa:///search.internal:4000".parse()?;
    /// let search = Balancer::detached(target, Config::default())?;
    /// let found = block_on(search.call(&client, "get 7", &CallOptions::default()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Resources`] if the system refuses the thread.
    pub fn detached(target: Target, config: Config) -> Result<Self, OpenError> {
        let runtime = detached::runtime().map_err(OpenError::Resources)?;
        Ok(Self::on(&runtime, Some(runtime.clone()), target, config))
    }

    fn on(looks_up: &Handle, runtime: Option<Handle>, target: Target, config: Config) -> Self {
        let retries = AttemptBudget::share(config.retry_budget).or_per_second(RETRIES_PER_SECOND);
        let retries = if config.retry_budget > 0.0 { retries } else { AttemptBudget::share(0.0) };
        let hedges = AttemptBudget::share(config.hedge_budget);
        let seed = config.seed.unwrap_or_else(random);
        let set = Arc::new(Mutex::new(ServerSet::new(seed, retries, hedges)));
        let look_up = Arc::new(Notify::new());
        let (to, membership) = watch::channel(Membership::Unknown);
        let (shared, mut known) = (set.clone(), Addresses::new());
        let (refresh, asked) = (config.refresh, look_up.clone());
        let _watching = watch_members(looks_up, target, refresh, asked, move |found| {
            match found {
                Ok(found) => {
                    let mut set = lock(&shared);
                    changes(&mut known, found).into_iter().for_each(|change| set.apply(change));
                    drop(set);
                    to.send_replace(Membership::Known);
                }
                Err(error) => {
                    to.send_if_modified(|membership| match membership {
                        Membership::Known => false,
                        not_known => {
                            *not_known = Membership::Failed(Arc::new(error));
                            true
                        }
                    });
                }
            }
            !to.is_closed()
        });
        let process = Process::this();
        let state = BalancerState { config, set, membership, look_up, runtime, process, _watching };
        Self(Arc::new(state))
    }

    /// The servers that are known now, in the order of their addresses. None in the child of a
    /// fork.
    pub fn servers(&self) -> Vec<SocketAddr> {
        if self.here().is_err() {
            return Vec::new();
        }
        lock(&self.0.set).members().collect()
    }

    /// Calls one of the servers, or several one after another: see [`Balancer`].
    /// [`CallOptions::deadline`] limits all attempts together. If the client's engine takes no more
    /// calls, also while the call waits for a server, it ends with [`CallError::ShuttingDown`].
    ///
    /// # Errors
    /// See [`BalanceError`].
    pub async fn call(
        &self,
        client: &Client,
        request: impl Into<Payload>,
        options: &CallOptions,
    ) -> Result<Message, BalanceError> {
        let request = request.into().shared();
        let until = now().checked_add(options.deadline);
        let attempt = |to: SocketAddr| {
            let request = request.clone();
            async move {
                loop {
                    let left = until.map(|until| until.saturating_duration_since(now()));
                    // What the engine would repeat at the same server, is repeated at another.
                    let options = CallOptions {
                        deadline: left.unwrap_or(options.deadline),
                        idempotent: false,
                        wait_for_ready: false,
                        may_run_twice: options.idempotent,
                        ..*options
                    };
                    let error = match client.call_async_with(to, request.clone(), &options).await {
                        Err(error) if is_own_limit(&error) => error,
                        ended => return ended,
                    };
                    let room = client.ready_to(to, request.len());
                    timeout(left.unwrap_or(options.deadline), room).await.map_err(|_| error)??;
                }
            }
        };
        self.here()?;
        let ended = || Ended::new(client);
        let attempts = self.attempts(until, options.idempotent, attempt, ended);
        within(self.0.runtime.as_ref(), attempts).await
    }

    /// Makes a call by attempts of any kind: `attempt` makes one at the given server. It is
    /// repeated, and hedged if the call is `idempotent`, as [`Self::call`] does. An attempt has to
    /// end at `until` by itself.
    ///
    /// # Errors
    /// See [`BalanceError`].
    pub async fn run<T, F>(
        &self,
        until: Option<Instant>,
        idempotent: bool,
        attempt: impl Fn(SocketAddr) -> F,
    ) -> Result<T, BalanceError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.here()?;
        let attempts = self.attempts(until, idempotent, attempt, pending);
        within(self.0.runtime.as_ref(), attempts).await
    }

    /// Makes attempts. Waits between them last until `ended` at most.
    async fn attempts<T, F, E>(
        &self,
        until: Option<Instant>,
        idempotent: bool,
        attempt: impl Fn(SocketAddr) -> F,
        ended: impl Fn() -> E,
    ) -> Result<T, BalanceError>
    where
        F: Future<Output = Result<T, CallError>>,
        E: Future<Output = CallError>,
    {
        let began = now();
        {
            let mut set = lock(&self.0.set);
            set.retries.call(began);
            set.hedges.call(began);
        }
        let (mut tried, mut pause) = (Vec::new(), FIRST_PAUSE);
        loop {
            let lease = or_ended(self.pick_but(&tried, until), ended()).await??;
            tried.push(lease.at);
            let error = match self.once(lease, idempotent, &mut tried, &attempt).await {
                Ok(result) => {
                    lock(&self.0.set).times.record(now() - began);
                    return Ok(result);
                }
                Err(error) => error,
            };
            let untried = lock(&self.0.set).has_other(&tried, now());
            let wait = if untried { Duration::ZERO } else { pause };
            let in_time = until.is_none_or(|until| now() + wait < until);
            let (_, again) = judge(&error, idempotent);
            if !again || !in_time || !lock(&self.0.set).retries.take() {
                return Err(BalanceError::Call(error));
            }
            if !untried {
                or_ended(sleep(wait), ended()).await?;
                pause = (2 * pause).min(LONGEST_PAUSE);
                tried.clear();
            }
        }
    }

    /// Chooses a server for an attempt that the caller makes. It waits until `until` for the first
    /// lookup of the target.
    ///
    /// # Errors
    /// [`BalanceError::NoServers`], [`BalanceError::Late`].
    pub async fn pick(&self, until: Option<Instant>) -> Result<Lease, BalanceError> {
        self.here()?;
        within(self.0.runtime.as_ref(), self.pick_but(&[], until)).await
    }

    /// An error in the child of a fork.
    fn here(&self) -> Result<(), BalanceError> {
        self.0.process.is_this().then_some(()).ok_or(BalanceError::Call(CallError::Forked))
    }

    /// Waits until `until` for the first lookup of the target.
    ///
    /// # Errors
    /// [`BalanceError::NoServers`], [`BalanceError::Late`].
    pub async fn connected(&self, until: Option<Instant>) -> Result<(), BalanceError> {
        self.here()?;
        let known = || (!self.servers().is_empty()).then_some(());
        within(self.0.runtime.as_ref(), self.once_known(until, known)).await
    }

    async fn pick_but(
        &self,
        tried: &[SocketAddr],
        until: Option<Instant>,
    ) -> Result<Lease, BalanceError> {
        self.once_known(until, || self.choose(tried, false)).await
    }

    /// What `found` returns, as soon as servers are known.
    async fn once_known<T>(
        &self,
        until: Option<Instant>,
        found: impl Fn() -> Option<T>,
    ) -> Result<T, BalanceError> {
        let mut membership = self.0.membership.clone();
        loop {
            let now = membership.borrow_and_update().clone();
            if let Some(found) = found() {
                return Ok(found);
            }
            if let Membership::Failed(error) = now
                && !self.0.config.wait_for_ready
            {
                return Err(BalanceError::NoServers(error));
            }
            let changed = membership.changed();
            let changed = match until {
                Some(until) => timeout_at(until.into(), changed).await,
                None => Ok(changed.await),
            };
            // The task that looks up ends with the runtime.
            if !matches!(changed, Ok(Ok(()))) {
                return Err(BalanceError::Late);
            }
        }
    }

    fn choose(&self, tried: &[SocketAddr], other: bool) -> Option<Lease> {
        let began = now();
        let at = lock(&self.0.set).choose(tried, other, began)?;
        let (set, look_up) = (self.0.set.clone(), self.0.look_up.clone());
        let process = self.0.process;
        Some(Lease { set, look_up, process, at, began, end: AttemptEnd::Unknown })
    }

    /// One attempt, and a second one beside it if the call may be hedged. Each that fails may be
    /// replaced by another while the other one is in progress.
    async fn once<T, F>(
        &self,
        lease: Lease,
        idempotent: bool,
        tried: &mut Vec<SocketAddr>,
        attempt: &impl Fn(SocketAddr) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let delay = if idempotent { self.hedge_after() } else { None };
        let Some(delay) = delay else { return lease.follow(attempt).await };
        let mut first = Box::pin(lease.follow(attempt));
        if let Ok(ended) = timeout(delay, first.as_mut()).await {
            return ended;
        }
        // A hedge has to go to another server, which is not ejected. If one of the two attempts is
        // refused, for example because nothing listens there, another one takes its place, as a
        // retry. Otherwise the call would wait for the other server alone, which may be silent.
        let (mut racing, mut again, mut repeated) = (vec![first], true, false);
        loop {
            if again && let Some(lease) = self.hedge(tried, repeated) {
                tried.push(lease.at);
                racing.push(Box::pin(lease.follow(attempt)));
            }
            let ended = poll_fn(|context| poll_any(&mut racing, context)).await;
            let Err(error) = &ended else { return ended };
            let (end, repeats) = judge(error, idempotent);
            // The first answer counts, also one that is an error.
            if racing.is_empty() || end == AttemptEnd::Answered {
                return ended;
            }
            again &= repeats;
            repeated = true;
        }
    }

    fn hedge_after(&self) -> Option<Duration> {
        let config = &self.0.config;
        let late = || lock(&self.0.set).times.late();
        config.hedge_after.or_else(late).filter(|_| config.hedge_budget > 0.0)
    }

    fn hedge(&self, tried: &[SocketAddr], repeated: bool) -> Option<Lease> {
        let lease = self.choose(tried, true)?;
        // In two steps, because dropping the lease takes the lock.
        let mut set = lock(&self.0.set);
        let permitted = if repeated { set.retries.take() } else { set.hedges.take() };
        drop(set);
        permitted.then_some(lease)
    }
}

impl Lease {
    /// The server.
    pub fn server(&self) -> SocketAddr {
        self.at
    }

    /// The attempt has ended, with this error or an answer.
    pub fn ended(mut self, error: Option<&CallError>) {
        self.end = error.map_or(AttemptEnd::Answered, |error| judge(error, false).0);
    }

    /// Makes the attempt.
    async fn follow<T, F>(self, attempt: &impl Fn(SocketAddr) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let result = attempt(self.at).await;
        self.ended(result.as_ref().err());
        result
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A thread of the parent may have held the locks.
        if !self.process.is_this() {
            return;
        }
        let now = now();
        let took = now - self.began;
        let absent = lock(&self.set).ended(self.at, self.end, took, now);
        if absent {
            // Perhaps the server has moved.
            self.look_up.notify_one();
        }
    }
}

/// Resolves to the result of the future that ends first, and removes that one from `racing`.
fn poll_any<F: Future>(racing: &mut Vec<Pin<Box<F>>>, context: &mut Context) -> Poll<F::Output> {
    for n in 0..racing.len() {
        if let Poll::Ready(result) = racing[n].as_mut().poll(context) {
            drop(racing.remove(n));
            return Poll::Ready(result);
        }
    }
    Poll::Pending
}

/// True if this engine, not the server, has too much to do.
fn is_own_limit(error: &CallError) -> bool {
    error.is_overloaded() && *error != CallError::Overloaded
}
