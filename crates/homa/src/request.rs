//! A request at its server: its bytes, its deadline, and its answer.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use homa_proto::wire::datagram::TraceContext;
use homa_proto::{RpcHandle, Time};
use tracing::Span;

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::core::limits::CapacityWaiter;
use crate::engine::wait::shared::Access;
use crate::engine::wait::waiters::{Accepted, WakeTarget};
use crate::error::ReplyError;
use crate::message::Message;
use crate::payload::Payload;
use crate::ready;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;
use crate::spans::{RequestEnd, RequestSpan};

/// A request to be answered. It dereferences to its bytes. If it is dropped without an answer, for
/// example because its handler panics, its client is told at once, and the call ends with
/// [`CallError::Abandoned`](crate::CallError::Abandoned). If the last reply was refused because it
/// was too long, the error is
/// [`CallError::ResponseTooLong`](crate::CallError::ResponseTooLong). The kernel module has no such
/// message, so in its profile the client asks until it gives up.
#[derive(Debug)]
pub struct Request {
    pub(crate) engine: Engine,
    /// `None` once answered.
    pub(crate) rpc: Option<RpcHandle>,
    from: SocketAddr,
    pub(crate) bytes: Message,
    /// Bytes in the whole request.
    pub(crate) total: usize,
    /// It was accepted before it was whole, and its last bytes were not taken.
    pub(crate) arriving: bool,
    /// The deadline, on the protocol's clock and on the system's.
    pub(crate) until: Time,
    pub(crate) deadline: Option<Instant>,
    trace: Option<TraceContext>,
    #[cfg(feature = "encryption")]
    identity: Option<Arc<PeerIdentity>>,
    pub(crate) span: RequestSpan,
    /// Exists while the request is in progress, once it was asked for.
    mark: OnceLock<Arc<()>>,
}

impl Request {
    /// A request ends: its response was accepted as a whole, the client is gone, or the request was
    /// dropped.
    pub(crate) fn end(
        rpc: &mut Option<RpcHandle>,
        span: &mut RequestSpan,
        mut access: Access<'_>,
        how: RequestEnd,
    ) {
        let Some(rpc) = rpc.take() else { return };
        access.answered(rpc);
        access.submitted();
        drop(access);
        span.ended(how);
    }

    pub(crate) fn new(engine: Engine, accepted: Accepted) -> Self {
        let Accepted { rpc, from, bytes, id, context, deadline, arriving } = accepted;
        let total = arriving.unwrap_or(bytes.len());
        let trace = context.trace.map(|trace| *trace);
        let local = engine.local_addr();
        let span = RequestSpan::begin(id.0, from, local, total, trace);
        let (rpc, until, mark) = (Some(rpc), context.until, OnceLock::new());
        Self {
            engine,
            rpc,
            from,
            bytes,
            total,
            arriving: arriving.is_some(),
            until,
            deadline,
            trace,
            #[cfg(feature = "encryption")]
            identity: context.identity,
            span,
            mark,
        }
    }

    /// The client's address.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Who the client has proved to be; `None` without
    /// [`Config::keys`](method@crate::Config::keys).
    #[cfg(feature = "encryption")]
    pub fn peer_identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_deref()
    }

    /// The `tracing` span `homa_request` (level debug), which is open from the accept until the
    /// request is answered or dropped. Its fields are `rpc` (the id in the format of `homa pcap`),
    /// `peer`, `bytes` (of the request), `trace` if the client sent one, and finally `outcome`:
    /// `replied`, `dropped`, or `gone` if the client had given up before the reply. Enter the span
    /// so that the work for the request is recorded in it; a clone that you keep also keeps it
    /// open.
    ///
    /// ```
    /// # use homa::{Client, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// # let call = Client::new()?.call_async(server.local_addr(), "world");
    /// let request = server.accept().unwrap();
    /// let reply = request.span().in_scope(|| format!("hello, {} bytes", request.len()));
    /// request.reply(reply)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn span(&self) -> Span {
        self.span.tracing().clone()
    }

    /// All spans of the request.
    pub(crate) fn spans(&self) -> &RequestSpan {
        &self.span
    }

    /// The context of OpenTelemetry with the request's span (feature `opentelemetry`): attach it,
    /// so that the spans of the work for the request are its children. `tower::serve` does that.
    /// The span ends with the answer. Its name is `homa`, because requests have no method here:
    /// `update_name` gives it another.
    ///
    /// ```
    /// # use homa::Request;
    /// use opentelemetry::Context;
    /// use opentelemetry::trace::{FutureExt, TraceContextExt};
    ///
    /// # async fn find(request: &[u8]) -> Vec<u8> { request.to_vec() }
    /// # #[allow(dead_code)]
    /// async fn serve(request: Request) {
    ///     let context: Context = request.opentelemetry_context();
    ///     context.span().update_name("search/find");
    ///     let found = find(&request).with_context(context).await;
    ///     let _ = request.reply(found);
    /// }
    /// ```
    #[cfg(feature = "opentelemetry")]
    pub fn opentelemetry_context(&self) -> opentelemetry::Context {
        self.span.context().clone()
    }

    /// The time at which the client stops waiting for the answer. The client sends the remaining
    /// time with the request, so clocks need not agree; the time in the network is not subtracted.
    /// `None` if the client did not send one (older clients, raw IP). A request whose deadline
    /// passes before it is accepted is dropped and counted (`homa_engine_requests_expired`).
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The remaining time until [`Self::deadline`], at least zero; `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        let now = || self.engine.clock().read();
        self.deadline.map(|deadline| deadline.saturating_duration_since(now()))
    }

    /// The distributed trace of the request, if the client sent one (UDP only).
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.trace
    }

    /// A client of this server's engine for calls on behalf of the request: see
    /// [`Client::on_behalf_of`].
    pub fn client(&self) -> Client {
        self.engine.client().on_behalf_of(self)
    }

    /// A mark that exists as long as this request is in progress; `None` if it is not one of
    /// `engine`.
    pub(crate) fn mark_of(&self, engine: &Engine) -> Option<Weak<()>> {
        let mark = || Arc::downgrade(self.mark.get_or_init(Arc::default));
        engine.is_sibling(&self.engine).then(mark)
    }

    /// True if the client cancelled the call or the deadline has passed, so that the work can stop.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = |rpc| self.engine.here().is_none_or(|a| a.waiters.is_cancelled(rpc));
        self.rpc.is_some_and(cancelled) || self.is_late()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.engine.clock().read())
    }

    /// Resolves when the client stops waiting for the answer: it cancelled the call, gave it up, or
    /// the deadline passed. The deadline is also how a client that disappeared is noticed. Race it
    /// against the work.
    ///
    /// ```
    /// # use homa::Request;
    /// # async fn work(request: &Request) -> Vec<u8> { vec![1] }
    /// # #[allow(dead_code)]
    /// async fn serve(request: Request) {
    ///     let answer = tokio::select! {
    ///         answer = work(&request) => answer,
    ///         () = request.cancelled() => return,
    ///     };
    ///     let _ = request.reply(answer);
    /// }
    /// ```
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled { request: self, ticket: None }
    }

    /// Says that the answer will take about `delay` from now, for example because the request waits
    /// for an event. A client asks for its response a few milliseconds after the request; it is
    /// then told not to ask again before that time (at most a minute), which saves packets for
    /// both. Without this, it is told to wait for as long as the request has been in service, up
    /// to 10 s. The answer can be given at any time. The cost: a client without other calls to
    /// this server may notice only at the end of the time that the server died. UDP only.
    pub fn announce_delay(&self, delay: Duration) {
        if let Some(rpc) = self.rpc
            && let Some(mut access) = self.engine.here()
        {
            access.core.announce_delay(rpc, delay);
        }
    }

    /// Takes the request out of the server's limit of
    /// [concurrency](crate::Server::concurrency): it waits for something else than the work of this
    /// server, for example for an event. Another request may be accepted in its place, and the time
    /// to its answer says nothing about how long the server works.
    pub fn set_aside(&self) {
        if let Some(rpc) = self.rpc
            && let Some(mut access) = self.engine.here()
        {
            access.waiters.set_aside(rpc);
        }
    }

    /// Takes the request's bytes without copying them; the request then dereferences to an empty
    /// slice.
    pub fn take_bytes(&mut self) -> Message {
        std::mem::take(&mut self.bytes)
    }

    /// Answers the request. It never blocks. If the reply is refused, the request and the response
    /// are returned with the reason. If memory is the reason, [`Self::reply_async`] waits for it.
    ///
    /// ```
    /// # use homa::{Client, ReplyError, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// # let call = Client::new()?.call_async(server.local_addr(), "how long?");
    /// # let request = server.accept().unwrap();
    /// if let Err(refused) = request.reply(vec![7; 64 << 20])
    ///     && let ReplyError::MessageTooLong { max, .. } = refused.error
    /// {
    ///     refused.request.reply(format!("too long: at most {max} bytes"))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reply(mut self, response: impl Into<Payload>) -> Result<(), Box<RefusedReply>> {
        let response = response.into();
        let result = match self.rpc.map(|rpc| (rpc, self.engine.here())) {
            Some((_, None)) => Err((ReplyError::Forked, response)),
            Some((rpc, Some(mut access))) => {
                let result = access.core.reply(rpc, response);
                match result {
                    Ok(()) => {
                        Self::end(&mut self.rpc, &mut self.span, access, RequestEnd::Replied);
                    }
                    Err((ReplyError::Gone, _)) => {
                        Self::end(&mut self.rpc, &mut self.span, access, RequestEnd::Gone);
                    }
                    Err(_) => {}
                }
                result
            }
            None => Err((ReplyError::Gone, response)),
        };
        result
            .map_err(|(error, response)| Box::new(RefusedReply { error, request: self, response }))
    }
}

impl Request {
    /// Answers the request, and resolves once the engine has accepted the response. If outgoing
    /// messages use all of [`send_memory`](crate::Config::send_memory), this takes until clients
    /// have acknowledged enough of them. It does not wait for the delivery. If the client gives up
    /// in the meantime, it resolves with [`ReplyError::Gone`]. Dropping the future drops the
    /// request.
    pub fn reply_async(self, response: impl Into<Payload>) -> Replying {
        let engine = self.engine.clone();
        Replying { engine, reply: Some((self, response.into())), ticket: None }
    }
}

/// The future of [`Request::reply_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Replying {
    engine: Engine,
    reply: Option<(Request, Payload)>,
    ticket: Option<u64>,
}

impl Future for Replying {
    type Output = Result<(), Box<RefusedReply>>;

    /// # Panics
    /// If it is polled after it resolved.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (request, response) = this.reply.take().expect("polled after it resolved");
        ready::leave(&this.engine, &mut this.ticket);
        let (rpc, bytes) = (request.rpc, u32::try_from(response.len()).unwrap_or(u32::MAX));
        let refused = match (request.reply(response), rpc) {
            (Err(refused), Some(rpc))
                if matches!(refused.error, ReplyError::SendMemoryFull { .. }) =>
            {
                (refused, CapacityWaiter::Reply { rpc, bytes })
            }
            (result, _) => return Poll::Ready(result),
        };
        let (RefusedReply { request, response, .. }, waiter) = (*refused.0, refused.1);
        this.ticket = ready::wait(&this.engine, waiter, context);
        this.reply = Some((request, response));
        Poll::Pending
    }
}

impl Drop for Replying {
    fn drop(&mut self) {
        ready::leave(&self.engine, &mut self.ticket);
    }
}

/// The future of [`Request::cancelled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Cancelled<'a> {
    request: &'a Request,
    ticket: Option<u64>,
}

impl Cancelled<'_> {
    fn leave(&mut self, access: &mut Access<'_>) {
        if let (Some(rpc), Some(ticket)) = (self.request.rpc, self.ticket.take()) {
            access.waiters.leave_watch(rpc, ticket);
        }
    }
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let request = self.request;
        let Some(rpc) = request.rpc else { return Poll::Ready(()) };
        let Some(mut access) = request.engine.here() else { return Poll::Ready(()) };
        self.leave(&mut access);
        if access.waiters.is_cancelled(rpc) || request.is_late() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        self.ticket =
            Some(access.waiters.watch().wait(rpc, request.until, WakeTarget::Task(waker)));
        access.watched();
        Poll::Pending
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some()
            && let Some(mut access) = self.request.engine.here()
        {
            self.leave(&mut access);
        }
    }
}

/// A refused reply, with the request and the response so that you can try again. Dropping it drops
/// the request, and the client is told.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RefusedReply {
    /// The reason.
    pub error: ReplyError,
    /// The request, which still waits for an answer unless the client is [gone](ReplyError::Gone).
    pub request: Request,
    /// The response.
    pub response: Payload,
}

impl Deref for Request {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(rpc) = self.rpc
            && let Some(mut access) = self.engine.here()
        {
            access.core.abandon(rpc);
            Self::end(&mut self.rpc, &mut self.span, access, RequestEnd::Dropped);
        }
    }
}
