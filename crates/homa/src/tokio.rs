//! Engines driven by a tokio runtime: feature `tokio`.
//!
//! A task of the runtime watches the engine's descriptor and drives. Futures that it wakes run
//! after it in the same thread, and their messages leave together once all of them have run.
//!
//! Left out: spinning, and other runtimes, which use [`Reactor`](crate::Reactor).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker, ready};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use ::tokio::time;

use crate::driver::{Poller, register};
use crate::engine::{DRAIN_STEP, Engine};
use crate::error::{DrainTimeout, OpenError};
use crate::handover::{Handover, HandoverError};
use crate::reactor::{Driven, Reactor};
use crate::server::Server;
use crate::sharded::Sharded;

impl Engine {
    /// Lets the current tokio runtime drive this engine, in a task that it spawns. Then calls and
    /// requests need no thread other than the runtime's: this is how an async service is fast. Call
    /// it once for each engine. Without it a helper thread drives and wakes the tasks.
    ///
    /// The engine stays usable by other runtimes and by blocking threads. If a task blocks the
    /// runtime for some milliseconds, or the runtime is dropped, the helper thread takes over. The
    /// task ends with the engine.
    ///
    /// # Errors
    /// [`OpenError::NoRuntime`] outside a runtime, and those of [`Self::reactor`].
    ///
    /// # Panics
    /// As the sockets of tokio, if the runtime was built without `enable_io`.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = homa::Server::bind("127.0.0.1:4000".parse()?)?;
    /// server.engine().drive_on_tokio()?;
    /// while let Some(request) = server.accept_async().await {
    ///     tokio::spawn(async move {
    ///         let reply = request.to_ascii_uppercase();
    ///         let _ = request.reply_async(reply).await; // The client may have given up.
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn drive_on_tokio(&self) -> Result<(), OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        if self.clock().is_simulated() {
            // Its host drives it.
            return Ok(());
        }
        let yields = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let reactor = self.reactor()?;
        let watched = register(reactor.poller()).map_err(OpenError::Resources)?;
        runtime.spawn(Driving { watched, reactor, waker: None, yields, aside: None });
        Ok(())
    }
}

impl Engine {
    /// As [`Self::drain`], without blocking the thread.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some calls and requests are unfinished when `timeout` has passed.
    ///
    /// # Panics
    /// As the timers of tokio: outside a runtime, and in one without `enable_time`.
    pub async fn drain_async(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.refuse();
        drained(timeout, || self.finish(Some(Instant::now())), || self.awaits_ticket()).await
    }

    /// As [`Self::hand_over`], without blocking the thread. If the future is dropped, this engine
    /// still asks clients of new requests to come back: call it again, or drop the engine.
    ///
    /// # Errors
    /// As [`Self::hand_over`].
    ///
    /// # Panics
    /// As the timers of tokio: outside a runtime, and in one without `enable_time`.
    pub async fn hand_over_async(&self, timeout: Duration) -> Result<Handover, HandoverError> {
        self.begin_hand_over()?;
        let left = until_zero(timeout, || self.finish(Some(Instant::now()))).await;
        self.end_hand_over(left.err().unwrap_or_default())
    }
}

impl Sharded {
    /// Opens a server for each shard, each in a thread with a tokio runtime that has only this
    /// thread and drives the shard. So the thread that receives a request also handles it, and no
    /// work moves between cores. With runtimes of several threads, work would move.
    ///
    /// `serve` makes the future of a thread. The thread ends with it, and then the tasks of the
    /// thread are dropped: let the future drain its server last. If it panics, the clients of this
    /// shard are refused from then on, and joining the thread returns the panic; a panic of a task
    /// only ends its request. For calls to others, open a client in each thread
    /// ([`Client::with`](crate::Client::with)), which gets another port, and let the runtime
    /// drive its engine; a client of the shards may leave from the shard of another thread.
    ///
    /// # Errors
    /// Those of [`Self::serve`]. If the system refuses a thread or a runtime
    /// ([`OpenError::Resources`]), or a shard is driven already, all shards begin to drain.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use homa::{Client, Config, Engine};
    ///
    /// let sharded = Engine::sharded("127.0.0.1:0".parse()?, 2, Config::default())?;
    /// let threads = sharded.serve_on_threads(|server| async move {
    ///     while let Some(request) = server.accept_async().await {
    ///         tokio::spawn(async move { request.reply_async("done").await });
    ///     }
    ///     let _ = server.drain_async(Duration::from_secs(5)).await;
    /// })?;
    /// assert_eq!(Client::new()?.call(sharded.local_addr(), "work")?, *b"done");
    /// sharded.drain(Duration::from_secs(5))?;
    /// threads.into_iter().for_each(|thread| thread.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_on_threads<F, W>(&self, serve: F) -> Result<Vec<JoinHandle<()>>, OpenError>
    where
        F: Fn(Server) -> W + Clone + Send + 'static,
        W: Future<Output = ()>,
    {
        let (opened, results) = mpsc::channel();
        let start = |(shard, server): (usize, Server)| {
            let (serve, opened) = (serve.clone(), opened.clone());
            let run = move || match runtime_driving(server.engine()) {
                Ok(runtime) => {
                    // The caller waits until no thread has a sender.
                    drop(opened);
                    runtime.block_on(async { serve(server).await });
                }
                Err(error) => drop(opened.send(error)),
            };
            thread::Builder::new().name(format!("homa-shard-{shard}")).spawn(run)
        };
        let threads: io::Result<_> = self.serve()?.into_iter().enumerate().map(start).collect();
        drop(opened);
        let threads = threads.map_err(OpenError::Resources);
        let opened = results.iter().next().map_or(Ok(()), Err);
        threads.and_then(|threads| opened.map(|()| threads)).inspect_err(|_| {
            self.engines().for_each(|engine| engine.refuse());
        })
    }

    /// As [`Self::drain`], without blocking the thread.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some calls and requests are unfinished when `timeout` has passed.
    ///
    /// # Panics
    /// As the timers of tokio: outside a runtime, and in one without `enable_time`.
    pub async fn drain_async(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.engines().for_each(|engine| engine.refuse());
        let awaits_ticket = || self.engines().any(|engine| engine.awaits_ticket());
        drained(timeout, || self.unfinished(Some(Instant::now())), awaits_ticket).await
    }
}

impl Server {
    /// As [`Self::drain`], without blocking the thread.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some replies are not acknowledged when `timeout` has passed.
    ///
    /// # Panics
    /// As the timers of tokio: outside a runtime, and in one without `enable_time`.
    pub async fn drain_async(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.refuse();
        until_zero(timeout, || (0, self.unfinished()))
            .await
            .map_err(|(calls, requests)| DrainTimeout { calls, requests })
    }
}

/// Waits until nothing is unfinished, and then for tickets; both within `most`.
async fn drained(
    most: Duration,
    unfinished: impl Fn() -> (usize, usize),
    awaits_ticket: impl Fn() -> bool,
) -> Result<(), DrainTimeout> {
    let began = time::Instant::now();
    let left = until_zero(most, unfinished).await;
    left.map_err(|(calls, requests)| DrainTimeout { calls, requests })?;
    let rest = most.saturating_sub(began.elapsed());
    let _ = until_zero(rest, || (usize::from(awaits_ticket()), 0)).await;
    Ok(())
}

/// Waits until nothing is unfinished; what is left if that takes longer than `most`.
async fn until_zero(
    most: Duration,
    unfinished: impl Fn() -> (usize, usize),
) -> Result<(), (usize, usize)> {
    let began = time::Instant::now();
    loop {
        let left = unfinished();
        if left == (0, 0) {
            return Ok(());
        }
        if began.elapsed() >= most {
            return Err(left);
        }
        time::sleep(DRAIN_STEP).await;
    }
}

/// A runtime of the current thread that drives an engine.
fn runtime_driving(engine: &Engine) -> Result<Runtime, OpenError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(OpenError::Resources)?;
    let inside = runtime.enter();
    engine.drive_on_tokio()?;
    drop(inside);
    Ok(runtime)
}

/// True in a thread of any runtime.
fn is_here() -> bool {
    Handle::try_current().is_ok()
}

/// The task.
struct Driving {
    watched: AsyncFd<Arc<Poller>>,
    reactor: Reactor,
    /// The engine has this waker.
    waker: Option<Waker>,
    /// The runtime has several threads. Each runs the task that was woken last before all others,
    /// so waking this one is not enough to let others run first.
    yields: bool,
    /// Lets the tasks run that are ready.
    aside: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Driving {
    /// Continues once the other tasks that are ready have run.
    fn step_aside(&mut self, context: &mut Context<'_>) {
        if self.yields {
            let mut aside = Box::pin(::tokio::task::yield_now());
            if aside.as_mut().poll(context).is_pending() {
                self.aside = Some(aside);
                return;
            }
        }
        context.waker().wake_by_ref();
    }
}

impl Future for Driving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !this.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            this.waker = Some(context.waker().clone());
            this.reactor.flush_with(context.waker().clone(), is_here);
        }
        let stepped_aside = this.aside.is_some();
        if let Some(aside) = &mut this.aside {
            ready!(aside.as_mut().poll(context));
            this.aside = None;
        }
        while let Poll::Ready(ready) = this.watched.poll_read_ready(context) {
            // An error means that the runtime ends.
            let Ok(mut guard) = ready else { return Poll::Ready(()) };
            match this.reactor.drive() {
                Driven::Wait => guard.clear_ready(),
                Driven::Closed => return Poll::Ready(()),
                Driven::Again => {
                    guard.retain_ready();
                    this.step_aside(context);
                    return Poll::Pending;
                }
            }
        }
        if this.reactor.is_closed() {
            return Poll::Ready(());
        }
        if this.reactor.has_unsent() {
            if this.yields && !stepped_aside {
                this.step_aside(context);
            } else {
                this.reactor.flush();
            }
        }
        Poll::Pending
    }
}
