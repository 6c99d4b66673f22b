//! Calling servers: blocking and as futures.

use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use homa_proto::wire::datagram::TraceContext;
use tracing::Span;
use tracing::field::Empty;

use crate::config::{CallOptions, Config, random};
use crate::engine::shared::{Access, Shared, SharedState};
use crate::engine::waiters::slot::CallSlot;
use crate::engine::waiters::{CallKey, ReadProgress, WakeTarget};
use crate::error::{CallError, OpenError};
use crate::handle::Engine;
use crate::message::Message;
use crate::payload::Payload;
use crate::ready::Ready;
use crate::request::Request;

/// Makes calls. Cheap to clone; any number of threads and tasks may use one at a time.
#[derive(Clone, Debug)]
pub struct Client {
    engine: Engine,
    inherited: Option<Inherited>,
}

/// What the calls of a client inherit from the request that they are made for.
#[derive(Clone, Copy, Debug)]
struct Inherited {
    deadline: Option<Instant>,
    trace: Option<TraceContext>,
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
        Self { engine, inherited: None }
    }

    /// The same client for calls on behalf of a request: none outlasts the request's
    /// [deadline](Request::deadline), after which it ends, or is refused, with
    /// [`CallError::DeadlineExceeded`], and all belong to its [trace](Request::trace_context), each
    /// as a step of its own, unless their options name another. [`Request::client`] is the server's
    /// own.
    ///
    /// ```
    /// # use homa::{CallError, Client, Request};
    /// # use std::net::SocketAddr;
    /// # #[allow(dead_code)]
    /// async fn serve(request: Request, outer: &Client, at: SocketAddr) -> Result<(), CallError> {
    ///     let client = outer.on_behalf_of(&request);
    ///     let found = client.call_async(at, request.to_vec()).await?;
    ///     let _ = request.reply(found);
    ///     Ok(())
    /// }
    /// ```
    pub fn on_behalf_of(&self, request: &Request) -> Self {
        let inherited = Inherited { deadline: request.deadline(), trace: request.trace_context() };
        Self { engine: self.engine.clone(), inherited: Some(inherited) }
    }

    /// The options of a call with what it inherits; `None` when its time is over.
    fn inherit(&self, options: &CallOptions) -> Option<CallOptions> {
        let mut options = *options;
        let Some(Inherited { deadline, trace }) = self.inherited else { return Some(options) };
        if let Some(deadline) = deadline {
            let left = deadline.checked_duration_since(Instant::now())?;
            options.deadline = options.deadline.min(left);
        }
        options.trace = options.trace.or_else(|| trace.map(|trace| trace.child(random())));
        Some(options)
    }

    /// Resolves when there is room for one more call with a request of any length, or at once with
    /// the error that every call will have. Another task may take the room first: then the call is
    /// refused as ever, and this may be awaited again. On a sharded engine ([`Engine::sharded`]) it
    /// waits for room in every shard, since it does not know where the call will go.
    ///
    /// ```
    /// # async fn example(client: homa::Client, server: std::net::SocketAddr)
    /// # -> Result<(), homa::CallError> {
    /// let mut calls = Vec::new();
    /// for n in 0..1_000_000u32 {
    ///     client.ready().await?;
    ///     calls.push(tokio::spawn(client.call_async(server, n.to_be_bytes())));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready(&self) -> Ready<'_> {
        Ready::new(self, None)
    }

    /// As [`Self::ready`], for a request of `bytes` bytes.
    pub fn ready_for(&self, bytes: usize) -> Ready<'_> {
        Ready::new(self, Some(bytes))
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
        let engine = self.engine.towards(to);
        let started = self.start(&engine, to, request, options, &span);
        report(started.and_then(|(running, shared, access)| {
            let result = access.block_on(running.key, &running.slot);
            shared.slots.put_back(running.slot);
            result
        }))
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
        let engine = self.engine.towards(to);
        let state = match self.start(&engine, to, request, options, &span) {
            Ok((running, ..)) => CallState::Running(running),
            Err(error) => CallState::Refused(error),
        };
        Call { engine: engine.into_owned(), state, span }
    }

    /// Registers and submits a call at the engine that hears of its server, and sends what may
    /// leave.
    fn start<'a>(
        &self,
        engine: &'a Engine,
        to: SocketAddr,
        request: Payload,
        options: &CallOptions,
        span: &Span,
    ) -> Result<(RunningCall, &'a Shared, Access<'a>), CallError> {
        let options = self.inherit(options).ok_or(CallError::DeadlineExceeded)?;
        let shared = engine.shared().ok_or(CallError::Forked)?;
        let slot = shared.slots.get();
        let mut access = shared.access();
        if access.draining {
            return Err(CallError::ShuttingDown);
        }
        let key = access.waiters.reserve(slot.clone());
        match access.core.call(0, to, request, &options, key.cookie()) {
            Ok(rpc) => {
                access.waiters.started(key, rpc);
                if !span.is_disabled() {
                    let id = access.core.id_of(rpc).map_or(0, |id| id.0);
                    access.unlocked(|| {
                        span.record("rpc", format_args!("{id:#x}"));
                        span.record("trace", options.trace.map(tracing::field::display));
                    });
                }
            }
            Err(error) => {
                access.waiters.give_up(key);
                shared.slots.put_back(slot);
                return Err(error);
            }
        }
        access.submitted();
        Ok((RunningCall { key, slot }, shared, access))
    }
}

/// A call's span (level debug): `rpc` is its number, written as `homa pcap` does.
fn call_span(to: SocketAddr, bytes: usize) -> Span {
    tracing::debug_span!("homa_call", rpc = Empty, peer = %to, bytes, trace = Empty)
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
    Running(RunningCall),
    Finished,
}

/// A call in progress, as its caller knows it.
#[derive(Debug)]
struct RunningCall {
    key: CallKey,
    /// Where its result will be.
    slot: Arc<CallSlot>,
}

impl Call {
    /// What of a long response has arrived without a gap beyond its first `seen` bytes, as soon as
    /// there is something; `None` when the response is whole or the call failed: then await the
    /// call itself, which yields all of it. Only with
    /// [`readable_events`](homa_proto::Config::readable_events) is anything seen before that.
    ///
    /// Reading does not copy: the part lies where it arrived. What arrives between this and the
    /// next look is copied once more when the response is whole, so look again soon.
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

/// Bytes of a response that is still arriving: see [`Call::arrived`]. Reads as a slice.
#[derive(Debug)]
pub struct Part<'a> {
    whole: Arc<Vec<u8>>,
    seen: usize,
    /// While it is there, the call is not awaited.
    call: PhantomData<&'a mut Call>,
}

impl Deref for Part<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.whole[self.seen..]
    }
}

impl<'a> Future for Arrived<'a> {
    type Output = Option<Part<'a>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CallState::Running(RunningCall { key, .. }) = self.call.state else {
            return Poll::Ready(None);
        };
        let Some(mut access) = self.call.engine.here() else { return Poll::Ready(None) };
        let SharedState { waiters, core, .. } = &mut *access;
        if let Some((partial, lent)) = waiters.take_lent(key)
            && let Some(lent) = core.give_back(&partial, lent)
        {
            // The response came meanwhile, without these bytes, or the call failed.
            waiters.lend(key, partial, lent.into());
        }
        let waiting = WakeTarget::Task(context.waker().clone());
        match waiters.progress(key, self.seen, waiting) {
            ReadProgress::Ended => Poll::Ready(None),
            ReadProgress::Partial(partial) => {
                let Some(lent) = core.lend(&partial) else { return Poll::Ready(None) };
                let whole = Arc::new(lent);
                waiters.lend(key, partial, whole.clone());
                Poll::Ready(Some(Part { whole, seen: self.seen, call: PhantomData }))
            }
            ReadProgress::Nothing => {
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
        let result = match (&this.state, this.engine.shared()) {
            (CallState::Refused(error), _) => Err(error.clone()),
            (CallState::Finished, _) => Err(CallError::ShuttingDown),
            (CallState::Running(_), None) => Err(CallError::Forked),
            (CallState::Running(running), Some(shared)) => {
                std::task::ready!(running.poll(shared, context))
            }
        };
        let ended = mem::replace(&mut this.state, CallState::Finished);
        if let (CallState::Running(running), Some(shared)) = (ended, this.engine.shared()) {
            shared.slots.put_back(running.slot);
        }
        Poll::Ready(report(result))
    }
}

impl RunningCall {
    /// Takes the result, without the engine's lock if it is there, or registers the task.
    fn poll(&self, shared: &Shared, context: &Context<'_>) -> Poll<Result<Message, CallError>> {
        loop {
            if let Some(result) = self.slot.take() {
                return Poll::Ready(result);
            }
            let mut access = shared.access();
            if access.waiters.wait(self.key, WakeTarget::Task(context.waker().clone())) {
                access.need_leader();
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.state, CallState::Finished);
        if let CallState::Running(RunningCall { key, slot }) = state
            && let Some(shared) = self.engine.shared()
        {
            if slot.take().is_none() {
                let mut access = shared.access();
                match access.waiters.give_up(key) {
                    Some(rpc) => {
                        access.core.cancel(rpc);
                        access.submitted();
                    }
                    // It just ended.
                    None => drop(slot.take()),
                }
            }
            shared.slots.put_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;
    use std::thread;

    use super::*;

    /// Where a result needs the lock, this hangs.
    #[test]
    fn a_result_is_taken_or_dropped_while_somebody_else_holds_the_engine() {
        let open = || Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (engine, other) = (open(), open());
        let (client, to, server) = (engine.client(), other.local_addr(), other.serve().unwrap());
        thread::spawn(move || {
            while let Some(request) = server.accept() {
                let _ = request.reply("ends");
            }
        });
        let [taken, dropped] = [(); 2].map(|()| client.call_async(to, "a question"));
        while engine.metrics().engine.calls_in_progress > 0 {
            thread::yield_now();
        }
        let held = engine.here();
        let taken = pin!(taken).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(taken, Poll::Ready(Ok(result)) if result == *b"ends"));
        drop(dropped);
        drop(held);
    }
}
