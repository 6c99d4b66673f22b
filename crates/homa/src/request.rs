//! A request at its server: what it says, whether somebody still waits for it, and its answer.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use homa_proto::wire::datagram::TraceContext;
use homa_proto::{RpcHandle, Time};
use tracing::Span;
use tracing::field::Empty;

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::core::limits::CapacityWaiter;
use crate::engine::wait::shared::Access;
use crate::engine::wait::waiters::Accepted;
use crate::error::ReplyError;
use crate::message::Message;
use crate::payload::Payload;
use crate::ready;

/// A request to be answered. Reads as its bytes. Dropping it unanswered tells the client at once
/// that no answer will come: its call ends with
/// [`CallError::Indeterminate`](crate::CallError::Indeterminate), or is made again after a while if
/// it is idempotent. (The kernel module knows no such message: in its profile, the client asks
/// until it gives up.)
#[derive(Debug)]
pub struct Request {
    engine: Engine,
    /// `None` once answered.
    rpc: Option<RpcHandle>,
    from: SocketAddr,
    bytes: Message,
    /// On the protocol's clock and on the system's.
    until: Time,
    deadline: Option<Instant>,
    trace: Option<TraceContext>,
    span: Span,
}

impl Request {
    pub(crate) fn new(engine: Engine, accepted: Accepted) -> Self {
        let Accepted { rpc, from, bytes, id, context, deadline } = accepted;
        let trace = context.trace.map(|trace| *trace);
        // Where nobody listens this is one look at an atomic number.
        let span = tracing::debug_span!(
            "homa_request",
            rpc = format_args!("{:#x}", id.0),
            peer = %from,
            bytes = bytes.len(),
            trace = trace.map(tracing::field::display),
            outcome = Empty
        );
        Self { engine, rpc: Some(rpc), from, bytes, until: context.until, deadline, trace, span }
    }

    /// Who asks.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// The `tracing` span `homa_request` (level debug), open from the accept until the request is
    /// answered or dropped. Its fields are `rpc` (its number, written as `homa pcap` does), `peer`,
    /// `bytes` (of the request), `trace` where its client named one and, at the end, `outcome`:
    /// `replied`, `dropped`, or `gone` where the client had given up before the reply.
    /// Enter it to have what is done for the request in it; whoever is still in it at the end keeps
    /// it open.
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
        self.span.clone()
    }

    /// Until when the client waits for the answer. It says so with the request, as time left, so
    /// clocks need not agree; what the network took is not subtracted. `None` where it did not:
    /// builds of before, and over IP. Requests whose time is over before they are accepted are
    /// dropped unstarted (`homa_engine_requests_expired`).
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long the client will still wait, down to zero; `None` as [`Self::deadline`].
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The distributed trace that the client says the request belongs to (over UDP).
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.trace
    }

    /// A client of this server's engine whose calls are made on behalf of the request: see
    /// [`Client::on_behalf_of`].
    pub fn client(&self) -> Client {
        self.engine.client().on_behalf_of(self)
    }

    /// True when the client gave up, or its time is over: there is no use in going on.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = |rpc| self.engine.here().is_none_or(|a| a.waiters.is_cancelled(rpc));
        self.rpc.is_some_and(cancelled) || self.is_late()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Resolves when nobody waits for the answer any more: the client cancelled the call, gave it
    /// up, or its time is over, which is also how one that vanished is noticed. Until then pending;
    /// to be raced against the work.
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

    /// Takes the request's bytes without copying; what is left reads as empty.
    pub fn take_bytes(&mut self) -> Message {
        std::mem::take(&mut self.bytes)
    }

    /// Answers. Never blocks; where the reply is refused, request and response come back with the
    /// reason. [`Self::reply_async`] waits where there is no room.
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
                if matches!(result, Ok(()) | Err((ReplyError::Gone, _))) {
                    access.waiters.answered(rpc);
                    access.submitted();
                    drop(access);
                    self.rpc = None;
                    let outcome = if result.is_ok() { "replied" } else { "gone" };
                    self.span.record("outcome", outcome);
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
    /// Answers, and resolves once the engine has taken the response over: at once, or, where
    /// outgoing messages hold all the memory they may
    /// ([`send_memory`](crate::Config::send_memory)), when clients have acknowledged enough of
    /// them. From then on the engine sees to it; that the client has it is not waited for. A client
    /// that gives up meanwhile ends the wait ([`ReplyError::Gone`]). Dropping the future drops the
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
    /// When polled after it resolved.
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
        self.ticket = Some(access.waiters.watch().wait(rpc, request.until, waker));
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

/// A reply that was refused, with all that is needed to try again. Dropping it drops the request,
/// which tells the client.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RefusedReply {
    /// Why.
    pub error: ReplyError,
    /// The request, still to be answered unless the client is [gone](ReplyError::Gone).
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
        if let Some(rpc) = self.rpc.take()
            && let Some(mut access) = self.engine.here()
        {
            access.waiters.answered(rpc);
            access.core.cancel(rpc);
            access.submitted();
            drop(access);
            self.span.record("outcome", "dropped");
        }
    }
}
