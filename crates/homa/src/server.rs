//! Serving requests: blocking and as futures.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use homa_proto::RpcHandle;
use tracing::Span;
use tracing::field::Empty;

use crate::config::Config;
use crate::engine::switchboard::{Arrived, Waiting};
use crate::error::{DrainTimeout, OpenError, ReplyError};
use crate::handle::{DRAIN_STEP, Engine};
use crate::message::Message;
use crate::payload::Payload;

/// Yields the requests that arrive at an address. Cheap to clone; any number of threads and tasks
/// may accept at a time. Dropping the last clone refuses the requests that nobody accepted.
#[derive(Clone, Debug)]
pub struct Server(Arc<Listening>);

/// Closes the port when the last handle is gone, and the address unless it is the engine's first,
/// as soon as the requests in progress there are answered.
#[derive(Debug)]
struct Listening {
    engine: Engine,
    local: SocketAddr,
}

impl Server {
    /// A server on an engine of its own.
    pub fn bind(at: SocketAddr) -> Result<Self, OpenError> {
        Engine::bind(at, Config::default())?.serve()
    }

    pub(crate) fn on(engine: Engine, local: SocketAddr) -> Self {
        Self(Arc::new(Listening { engine, local }))
    }

    /// The engine below.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Where clients reach this server.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Blocks until a request is here. Clients' hosts take turns, each with its requests in order
    /// of arrival. `None` once the server or the engine drains and no request is left.
    pub fn accept(&self) -> Option<Request> {
        let port = self.0.local.port();
        let mut access = self.0.engine.here()?;
        let mut ticket = None;
        let arrived = access.block(None, |state| {
            if let Some(ticket) = ticket.take() {
                state.board.stop_waiting(port, ticket);
            }
            match state.board.accept(port, &mut state.core) {
                Some(arrived) => Some(Some(arrived)),
                None if state.draining || state.board.is_draining(port) => Some(None),
                None => {
                    let waiting = Waiting::Thread(thread::current());
                    ticket = Some(state.board.wait_for_request(port, waiting));
                    None
                }
            }
        });
        drop(access);
        arrived.flatten().map(|arrived| self.request(arrived))
    }

    /// Ends this server gracefully, and leaves the engine to others: new requests are refused, as
    /// where nobody listens ([`CallError::PortUnreachable`](crate::CallError::PortUnreachable): not
    /// executed, another server may be asked), those that had arrived go on being yielded, then
    /// none. Returns when all replies are acknowledged, or fails when `timeout` has passed.
    ///
    /// ```
    /// # use homa::{CallError, Client, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// let ending = server.clone();
    /// let serving = std::thread::spawn(move || while let Some(request) = server.accept() {
    ///     let _ = request.reply("done");
    /// });
    /// let client = Client::new()?;
    /// assert_eq!(client.call(ending.local_addr(), "before")?, *b"done");
    /// ending.drain(std::time::Duration::from_secs(5))?;
    /// serving.join().unwrap();
    /// assert_eq!(client.call(ending.local_addr(), "after"), Err(CallError::PortUnreachable));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        let port = self.0.local.port();
        let until = Instant::now().checked_add(timeout);
        let Some(mut access) = self.0.engine.here() else { return Ok(()) };
        access.core.unlisten(port);
        access.board.drain_queue(port);
        access.submitted();
        loop {
            let requests = access.core.requests_at(port);
            if requests == 0 {
                return Ok(());
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(DrainTimeout { calls: 0, requests });
            }
            let step = until.map_or(now + DRAIN_STEP, |until| until.min(now + DRAIN_STEP));
            access.block(Some(step), |state| (state.core.requests_at(port) == 0).then_some(()));
        }
    }

    /// A future of the next request; `None` once the engine drains and no request is left.
    pub fn accept_async(&self) -> Accept<'_> {
        Accept { server: self, ticket: None }
    }

    fn request(&self, arrived: Arrived) -> Request {
        let Arrived { rpc, from, bytes } = arrived;
        // Where nobody listens this is one look at an atomic number.
        let size = bytes.len();
        let span =
            tracing::debug_span!("homa_request", peer = %from, bytes = size, outcome = Empty);
        Request { engine: self.0.engine.clone(), rpc: Some(rpc), from, bytes, span }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(mut access) = self.engine.here() else { return };
        let state = &mut *access;
        state.core.unlisten(self.local.port());
        state.board.close_queue(self.local.port(), &mut state.core);
        state.core.close(self.local);
        access.submitted();
    }
}

/// The future of [`Server::accept_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Accept<'a> {
    server: &'a Server,
    ticket: Option<u64>,
}

impl Future for Accept<'_> {
    type Output = Option<Request>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Listening { engine, local } = &*self.server.0;
        let port = local.port();
        let Some(mut access) = engine.here() else { return Poll::Ready(None) };
        if let Some(ticket) = self.ticket.take() {
            access.board.stop_waiting(port, ticket);
        }
        let state = &mut *access;
        let arrived = state.board.accept(port, &mut state.core);
        if arrived.is_none() && !access.draining && !access.board.is_draining(port) {
            let waiting = Waiting::Task(context.waker().clone());
            let ticket = access.board.wait_for_request(port, waiting);
            access.need_leader();
            drop(access);
            self.ticket = Some(ticket);
            return Poll::Pending;
        }
        drop(access);
        Poll::Ready(arrived.map(|arrived| self.server.request(arrived)))
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let Listening { engine, local } = &*self.server.0;
            let port = local.port();
            let Some(mut access) = engine.here() else { return };
            access.board.stop_waiting(port, ticket);
            access.board.nudge(port);
        }
    }
}

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
    span: Span,
}

impl Request {
    /// Who asks.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// The `tracing` span `homa_request` (level debug), open from the accept until the request is
    /// answered or dropped. Its fields are `peer`, `bytes` (of the request) and, at the end,
    /// `outcome`: `replied`, `dropped`, or `gone` where the client had given up before the reply.
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

    /// True when the client gave up: there is no use in going on.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = |rpc| self.engine.here().is_none_or(|a| a.board.is_cancelled(rpc));
        self.rpc.is_some_and(cancelled)
    }

    /// Takes the request's bytes without copying; what is left reads as empty.
    pub fn take_bytes(&mut self) -> Message {
        std::mem::take(&mut self.bytes)
    }

    /// Answers. Never blocks; where the reply is refused, request and response come back with the
    /// reason.
    ///
    /// ```
    /// # use homa::{Client, ReplyError, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// # let call = Client::new()?.call_async(server.local_addr(), "how long?");
    /// # let request = server.accept().unwrap();
    /// let mut replied = request.reply(vec![7; 100_000]);
    /// while let Err(refused) = replied {
    ///     match refused.error {
    ///         // Room comes as clients acknowledge what they received.
    ///         ReplyError::SendMemoryFull { .. } if !refused.request.is_cancelled() => {
    ///             std::thread::sleep(std::time::Duration::from_millis(1));
    ///             replied = refused.request.reply(refused.response);
    ///         }
    ///         ReplyError::MessageTooLong { .. } => replied = refused.request.reply("too long"),
    ///         _ => break, // Nobody waits for it any more.
    ///     }
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
                    access.board.answered(rpc);
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
            access.board.answered(rpc);
            access.core.cancel(rpc);
            access.submitted();
            drop(access);
            self.span.record("outcome", "dropped");
        }
    }
}
