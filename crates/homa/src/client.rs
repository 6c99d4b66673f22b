//! Calling servers: blocking and as futures.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use tracing::Span;

use crate::config::{CallOptions, Config};
use crate::engine::switchboard::{CallKey, Progress, Waiting};
use crate::error::{CallError, OpenError};
use crate::handle::Engine;
use crate::message::Message;
use crate::payload::Payload;

/// Makes calls. Cheap to clone; any number of threads and tasks may use one at a time.
#[derive(Clone, Debug)]
pub struct Client {
    engine: Engine,
}

impl Client {
    /// A client on an engine of its own, at any free port, that reaches IPv6 and IPv4 servers (only
    /// IPv4 where the host has no IPv6).
    pub fn new() -> Result<Self, OpenError> {
        let any = |ip| Engine::bind(SocketAddr::new(ip, 0), Config::default());
        let engine =
            any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        Ok(Self::on(engine))
    }

    pub(crate) fn on(engine: Engine) -> Self {
        Self { engine }
    }

    /// The engine below.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Calls a server and blocks until its response is here, with the default options (10 s).
    pub fn call(&self, to: SocketAddr, request: impl Into<Payload>) -> Result<Message, CallError> {
        self.call_with(to, request, &CallOptions::default())
    }

    /// Calls a server and blocks until its response is here.
    pub fn call_with(
        &self,
        to: SocketAddr,
        request: impl Into<Payload>,
        options: &CallOptions,
    ) -> Result<Message, CallError> {
        let request = request.into();
        let span = call_span(to, request.len());
        let _entered = span.enter();
        let Some(mut access) = self.engine.here() else { return report(Err(CallError::Forked)) };
        let key = start(&mut access, to, request, options)?;
        let waiting = || Waiting::Thread(thread::current());
        // The engine itself ends the call at its deadline.
        let result = access.block(None, |state| state.board.take(key, waiting));
        drop(access);
        report(result.unwrap_or(Err(CallError::ShuttingDown)))
    }

    /// Starts a call and returns its response as a future, with the default options (10 s). Any
    /// executor will do. Dropping the future cancels the call, here and at the server.
    ///
    /// A response that is here counts no longer against
    /// [`memory_budget`](homa_proto::Config::memory_budget), whether the future was polled or not:
    /// one that is awaited could otherwise wait for memory that those behind it hold. So responses
    /// nobody polls for take up to as many times
    /// [`max_message`](homa_proto::Config::max_message) as there are calls: bound the calls in
    /// progress.
    pub fn call_async(&self, to: SocketAddr, request: impl Into<Payload>) -> Call {
        self.call_async_with(to, request, &CallOptions::default())
    }

    /// Starts a call and returns its response as a future.
    pub fn call_async_with(
        &self,
        to: SocketAddr,
        request: impl Into<Payload>,
        options: &CallOptions,
    ) -> Call {
        let request = request.into();
        let span = call_span(to, request.len());
        let state = match self.engine.here() {
            Some(mut access) => match start(&mut access, to, request, options) {
                Ok(key) => CallState::Running(key),
                Err(error) => CallState::Refused(error),
            },
            None => CallState::Refused(CallError::Forked),
        };
        Call { engine: self.engine.clone(), state, span }
    }
}

/// Registers and submits a call, and sends what may leave.
fn start(
    access: &mut crate::engine::shared::Access<'_>,
    to: SocketAddr,
    request: Payload,
    options: &CallOptions,
) -> Result<CallKey, CallError> {
    if access.draining {
        return Err(CallError::ShuttingDown);
    }
    let key = access.board.reserve();
    match access.core.call(0, to, request, options, key.cookie()) {
        Ok(rpc) => access.board.started(key, rpc),
        Err(error) => {
            access.board.give_up(key);
            return Err(error);
        }
    }
    access.submitted();
    Ok(key)
}

fn call_span(to: SocketAddr, bytes: usize) -> Span {
    tracing::debug_span!("homa_call", %to, bytes)
}

fn report(result: Result<Message, CallError>) -> Result<Message, CallError> {
    match &result {
        Ok(response) => tracing::trace!(bytes = response.len(), "response"),
        Err(error) => tracing::debug!(%error, "call failed"),
    }
    result
}

/// A call in progress: resolves to its response. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "dropping a call cancels it"]
pub struct Call {
    engine: Engine,
    state: CallState,
    span: Span,
}

#[derive(Debug)]
enum CallState {
    Refused(CallError),
    Running(CallKey),
    Finished,
}

impl Call {
    /// What of a long response has arrived without a gap beyond its first `seen` bytes, as soon as
    /// there is something; `None` when the response is whole or the call failed: then await the
    /// call itself, which yields all of it. Only with
    /// [`readable_events`](homa_proto::Config::readable_events) is anything seen before that.
    ///
    /// ```no_run
    /// # async fn example(client: homa::Client, server: std::net::SocketAddr)
    /// # -> Result<(), homa::CallError> {
    /// let mut call = client.call_async(server, "a long story");
    /// let mut seen = 0;
    /// while let Some(bytes) = call.arrived(seen).await {
    ///     seen += bytes.len(); // and use them
    /// }
    /// let whole = call.await?;
    /// let rest = &whole[seen..];
    /// # Ok(())
    /// # }
    /// ```
    pub fn arrived(&mut self, seen: usize) -> Arrived<'_> {
        Arrived { call: self, seen }
    }
}

/// The future of [`Call::arrived`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Arrived<'a> {
    call: &'a mut Call,
    seen: usize,
}

impl Future for Arrived<'_> {
    type Output = Option<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CallState::Running(key) = self.call.state else { return Poll::Ready(None) };
        let Some(mut access) = self.call.engine.here() else { return Poll::Ready(None) };
        let waiting = Waiting::Task(context.waker().clone());
        match access.board.progress(key, self.seen, waiting) {
            Progress::Ended => Poll::Ready(None),
            Progress::Partial(partial) => {
                let bytes = access.core.read(&partial).and_then(|bytes| bytes.get(self.seen..));
                Poll::Ready(bytes.map(<[u8]>::to_vec))
            }
            Progress::Nothing => {
                access.need_leader();
                Poll::Pending
            }
        }
    }
}

impl Future for Call {
    type Output = Result<Message, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _entered = this.span.enter();
        let result = match &this.state {
            CallState::Refused(error) => Err(error.clone()),
            CallState::Finished => Err(CallError::ShuttingDown),
            CallState::Running(key) => match this.engine.here() {
                None => Err(CallError::Forked),
                Some(mut access) => {
                    let waiting = || Waiting::Task(context.waker().clone());
                    match access.board.take(*key, waiting) {
                        Some(result) => result,
                        None => {
                            access.need_leader();
                            return Poll::Pending;
                        }
                    }
                }
            },
        };
        this.state = CallState::Finished;
        Poll::Ready(report(result))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let CallState::Running(key) = self.state
            && let Some(mut access) = self.engine.here()
            && let Some(rpc) = access.board.give_up(key)
        {
            access.core.cancel(rpc);
            access.submitted();
        }
    }
}
