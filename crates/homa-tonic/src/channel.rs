//! Calls: one RPC for a unary call, and the first one of every other.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa::balance::{BalanceError, Balancer};
use homa::{CallError, CallOptions, Client, Message};
use http::uri::PathAndQuery;
use http::{HeaderMap, Uri};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::endpoint::{ConnectError, Endpoint};
use crate::pull::{self, Pulls};
use crate::push::{self, Pump};
use crate::wire::{CallNumber, ClientMessage, Open};
use crate::{status, timeout};

/// A server holds a call for which it has nothing to say for at most this long, then says so.
/// Therefore a server that is silent for longer than [`SILENCE`] is gone, whatever the call's own
/// timeout.
pub(crate) const HOLD: Duration = Duration::from_secs(25);

/// How long one RPC of a call may take.
const SILENCE: Duration = Duration::from_secs(40);

/// The name under which a W3C trace context travels in headers.
const TRACEPARENT: &str = "traceparent";

/// An extension of a request: the call may be executed more than once. If its server restarts, the
/// call is then sent again instead of failing.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(homa_tonic::Idempotent);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotent;

/// A server, or several of one name, for any client that tonic generates. Clones are cheap and
/// share the engine, and what is known of the servers.
#[derive(Clone, Debug)]
pub struct Channel(Arc<ChannelState>);

#[derive(Debug)]
pub(crate) struct ChannelState {
    client: Client,
    to: ChannelTarget,
    timeout: Option<Duration>,
    /// The upper half of the numbers of calls that take several RPCs.
    random: u64,
    calls: AtomicU64,
}

/// Whom a channel calls.
#[derive(Debug)]
pub(crate) enum ChannelTarget {
    One(SocketAddr),
    Several(Balancer),
}

/// The server of one call.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    channel: Arc<ChannelState>,
    to: SocketAddr,
}

impl Channel {
    /// `random` has to be unknown to other hosts.
    pub(crate) fn new(
        client: Client,
        to: ChannelTarget,
        timeout: Option<Duration>,
        random: u64,
    ) -> Self {
        Self(Arc::new(ChannelState { client, to, timeout, random, calls: AtomicU64::new(0) }))
    }

    /// The addresses of the servers that are known now.
    pub fn servers(&self) -> Vec<SocketAddr> {
        match &self.0.to {
            ChannelTarget::One(to) => vec![*to],
            ChannelTarget::Several(balancer) => balancer.servers(),
        }
    }

    /// A channel whose calls go to the servers of several endpoints, as `tonic`'s function of this
    /// name. Timeout, client and [`Endpoint::balance`] are those of the first one. No packet is
    /// sent.
    ///
    /// # Errors
    /// [`ConnectError::Several`] if an endpoint stands for several servers itself, and those of
    /// [`Endpoint::connect_lazy`].
    pub fn balance_list(list: impl IntoIterator<Item = Endpoint>) -> Result<Self, ConnectError> {
        crate::endpoint::balance_list(list.into_iter().collect())
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // A call that the engine refuses because of a limit waits for room itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(call(self.0.clone(), request))
    }
}

async fn call(
    channel: Arc<ChannelState>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Status> {
    let (mut parts, mut body) = request.into_parts();
    let limit = channel.limit(&mut parts.headers);
    let (first, complete) = push::at_once(&mut body).await?;
    // A part of a stream cannot be sent again to a server that has lost the parts before it.
    let twice = complete && parts.extensions.get::<Idempotent>().is_some();
    let number = channel.number();
    let open = Open {
        number,
        complete,
        window: pull::WINDOW,
        method: parts.method,
        path: path_of(&parts.uri),
        headers: parts.headers,
        body: first,
    };
    let message = ClientMessage::Open(Box::new(open)).encode();
    let message = message.ok_or_else(|| Status::resource_exhausted("the metadata is too long"))?;
    let opening = |to, idempotent, body: Option<Body>| {
        let destination = Destination { channel: channel.clone(), to };
        let pump = body.map(|body| Pump::start(destination.clone(), number, body, limit));
        let mut limit = limit;
        limit.options.idempotent = idempotent;
        Pulls::new(destination, number, limit, pump).open(message.clone())
    };
    let (pulls, part) = match &channel.to {
        ChannelTarget::One(to) => {
            let opened = opening(*to, twice, (!complete).then_some(body)).await;
            opened.map_err(|error| limit.status(error))?
        }
        // What the engine would repeat at the same server is repeated at another one.
        ChannelTarget::Several(balancer) if complete => {
            let opened = balancer
                .run(limit.until.map(Instant::into_std), twice, |to| opening(to, false, None))
                .await;
            opened.map_err(|error| limit.balance_status(error))?
        }
        ChannelTarget::Several(balancer) => {
            let lease = balancer.pick(limit.until.map(Instant::into_std)).await;
            let lease = lease.map_err(|error| limit.balance_status(error))?;
            let opened = opening(lease.server(), false, Some(body)).await;
            lease.ended(opened.as_ref().err());
            opened.map_err(|error| limit.status(error))?
        }
    };
    pulls.response(part?).await
}

/// The path and the query. A URI may have a query and no path, which stands for `/`.
fn path_of(uri: &Uri) -> PathAndQuery {
    let root = || PathAndQuery::from_static("/");
    match uri.path_and_query() {
        None => root(),
        Some(query) if query.as_str().starts_with('?') => {
            format!("/{}", query.as_str()).parse().unwrap_or_else(|_| root())
        }
        Some(path) => path.clone(),
    }
}

/// What limits the RPCs of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimit {
    /// When the call's own time is over.
    until: Option<Instant>,
    pub(crate) options: CallOptions,
}

impl ChannelState {
    fn number(&self) -> CallNumber {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        CallNumber(u128::from(self.random) << 64 | u128::from(call))
    }

    /// Reads the limits of a call from its headers, and adds that of the channel.
    fn limit(&self, headers: &mut HeaderMap) -> CallLimit {
        let asked = timeout::of(headers);
        let shortest = asked.into_iter().chain(self.timeout).min();
        if let Some(shortest) = shortest.filter(|shortest| asked != Some(*shortest)) {
            headers.insert(timeout::NAME, timeout::header(shortest));
        }
        // Of HTTP/2, for proxies.
        headers.remove(http::header::TE);
        let mut options = CallOptions::default();
        let trace = headers.get(TRACEPARENT).and_then(|trace| trace.to_str().ok()?.parse().ok());
        options.trace = trace;
        CallLimit { until: shortest.and_then(|after| Instant::now().checked_add(after)), options }
    }
}

impl Destination {
    /// Begins an RPC. The engine sends it even if its future is not polled.
    pub(crate) fn start(&self, message: &[Bytes], limit: &CallLimit) -> homa::Call {
        let left = limit.until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut options = limit.options;
        options.deadline = left.unwrap_or(SILENCE).min(SILENCE);
        self.channel.client.call_async_with(self.to, message.to_vec(), &options)
    }

    /// Waits for an RPC that [`start`](Self::start) began. If the engine had no room for it, begins
    /// it again once there is.
    pub(crate) async fn finish(
        &self,
        mut call: homa::Call,
        message: &[Bytes],
        limit: &CallLimit,
    ) -> Result<Message, CallError> {
        loop {
            match call.await {
                Err(
                    CallError::TooManyCalls { .. }
                    | CallError::TooManyCallsTo { .. }
                    | CallError::SendMemoryFull { .. }
                    | CallError::TooManyPeers { .. },
                ) => {
                    let bytes = message.iter().map(Bytes::len).sum();
                    let room = self.channel.client.ready_to(self.to, bytes);
                    match limit.until {
                        Some(until) => timeout_at(until, room)
                            .await
                            .unwrap_or(Err(CallError::DeadlineExceeded))?,
                        None => room.await?,
                    }
                    call = self.start(message, limit);
                }
                ended => return ended,
            }
        }
    }
}

impl CallLimit {
    /// The status of a call that ended without a response.
    pub(crate) fn status(&self, error: CallError) -> Status {
        let in_time = self.until.is_none_or(|until| Instant::now() < until);
        match error {
            CallError::DeadlineExceeded if in_time => {
                Status::unavailable("the server has been silent for 40 s")
            }
            error => status::of(error),
        }
    }

    fn balance_status(&self, error: BalanceError) -> Status {
        match error {
            BalanceError::Call(error) => self.status(error),
            other => status::without_server(other),
        }
    }
}
