//! Calls to one server as a `tower` service: feature `tower`.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::call::Call;
use crate::client::Client;
use crate::config::CallOptions;
use crate::error::CallError;
use crate::message::Message;
use crate::payload::Payload;
use crate::ready;

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
        ready::poll(&self.client.engine().towards(self.at), u32::MAX, &mut self.ticket, context)
    }

    fn call(&mut self, request: R) -> Call {
        self.client.call_async_with(self.at, request, &self.options)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        ready::leave(&self.client.engine().towards(self.at), &mut self.ticket);
    }
}
