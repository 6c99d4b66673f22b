//! `tower` services (feature `tower`): a server that is called, and a service that answers.
//!
//! [`Server`] calls one server. Its requests are plain payloads, or [`CallRequest`]s with options
//! for each call, so that shared middleware (retries, balancing, limits) passes on what a call
//! inherits from the request that it serves. With feature `tokio`, `serve` answers the requests of
//! a [`Server`](crate::Server) by any service that takes an [`Incoming`].
//!
//! Left out: layers, which `tower` has.

#[cfg(feature = "tokio")]
mod serve;

use std::net::SocketAddr;
use std::ops::Deref;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tower_service::Service;

use homa_proto::wire::datagram::TraceContext;

use crate::call::Call;
use crate::call_options::CallOptions;
use crate::client::Client;
use crate::error::CallError;
use crate::message::Message;
use crate::payload::Payload;
use crate::ready;
use crate::request::Request;
#[cfg(feature = "tokio")]
pub use serve::{Serving, serve};

/// Calls one server. It is ready when one more call would be accepted, as with [`Client::ready`].
/// Another caller may be faster, and the call is refused then. Clones wait independently.
///
/// ```
/// use tower_service::Service;
///
/// # async fn example(client: homa::Client, server: std::net::SocketAddr)
/// # -> Result<(), homa::CallError> {
/// let mut service = homa::tower::Server::new(client, server, homa::CallOptions::default());
/// std::future::poll_fn(|context| Service::<&str>::poll_ready(&mut service, context)).await?;
/// let response = service.call("ping").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    client: Client,
    at: SocketAddr,
    options: CallOptions,
    ticket: Option<u64>,
}

impl Server {
    /// The server at an address, called by `client` with `options`.
    pub fn new(client: Client, at: SocketAddr, options: CallOptions) -> Self {
        Self { client, at, options, ticket: None }
    }
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.at, self.options)
    }
}

impl<R: Into<Payload>> Service<R> for Server {
    type Response = Message;
    type Error = CallError;
    type Future = Call;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let engine = self.client.engine().towards(self.at);
        ready::poll(&self.client, &engine, Some(self.at), u32::MAX, &mut self.ticket, context)
    }

    fn call(&mut self, request: R) -> Call {
        self.client.call_async_with(self.at, request, &self.options)
    }
}

impl Service<CallRequest> for Server {
    type Response = Message;
    type Error = CallError;
    type Future = Call;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        match Service::<Payload>::poll_ready(self, context) {
            // The request may be on behalf of one in progress, whose calls are not refused.
            Poll::Ready(Err(CallError::ShuttingDown)) => Poll::Ready(Ok(())),
            polled => polled,
        }
    }

    fn call(&mut self, request: CallRequest) -> Call {
        let CallRequest { payload, options, behalf } = request;
        match behalf.map(|behalf| self.client.on_behalf_of_client(&behalf)) {
            Some(client) => client.call_async_with(self.at, payload, &options),
            None => self.client.call_async_with(self.at, payload, &options),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        ready::leave(&self.client.engine().towards(self.at), &mut self.ticket);
    }
}

/// A request with options for this call only. It can be cloned and sent again.
///
/// ```
/// use std::time::Duration;
///
/// use homa::CallOptions;
/// use homa::tower::{CallRequest, Incoming};
///
/// fn onward(incoming: &Incoming) -> CallRequest {
///     let options = CallOptions::deadline(Duration::from_millis(50)).idempotent();
///     CallRequest::new("get 7").options(options).on_behalf_of(incoming)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CallRequest {
    payload: Payload,
    options: CallOptions,
    behalf: Option<Client>,
}

impl CallRequest {
    /// A request with the default options.
    pub fn new(payload: impl Into<Payload>) -> Self {
        Self { payload: payload.into(), options: CallOptions::default(), behalf: None }
    }

    /// Sets the deadline, idempotence, and trace.
    pub fn options(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }

    /// Makes the call on behalf of a request that is being answered: it ends at the latest at the
    /// request's deadline, and belongs to its trace. See [`Client::on_behalf_of`].
    pub fn on_behalf_of(self, incoming: &Incoming) -> Self {
        Self { behalf: Some(incoming.client()), ..self }
    }
}

/// A request that a service answers: what the service needs of a [`Request`]. It dereferences to
/// its bytes.
#[derive(Clone, Debug)]
pub struct Incoming {
    bytes: Message,
    from: SocketAddr,
    deadline: Option<Instant>,
    trace: Option<TraceContext>,
    client: Client,
}

impl Incoming {
    /// Takes the bytes of a request, which then has none.
    pub fn of(request: &mut Request) -> Self {
        Self {
            from: request.from(),
            deadline: request.deadline(),
            trace: request.trace_context(),
            client: request.client(),
            bytes: request.take_bytes(),
        }
    }

    /// The client's address.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// The remaining time until the client stops waiting; `None` if it sent no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        let now = || self.client.engine().clock().read();
        self.deadline.map(|deadline| deadline.saturating_duration_since(now()))
    }

    /// The distributed trace of the request, if the client sent one.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.trace
    }

    /// A client for calls on behalf of the request: see [`Client::on_behalf_of`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Message {
        self.bytes
    }
}

impl Deref for Incoming {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
