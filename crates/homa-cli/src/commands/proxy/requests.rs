//! Requests over HTTP/1.1 at the local server. hyper-util's client keeps their connections, and
//! sends a request again if none of it was written. A safe request without a body is sent once more
//! if its connection ends, because the server may have closed it just before.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::LocalEnd;
use super::socket::{LocalStream, TcpOrUnix, connect};

/// Connections without a request that are kept.
const MOST_IDLE: usize = 64;

/// The client of one local server.
#[derive(Clone, Debug)]
pub struct Requests(Client<Connector, Body>);

/// Opens connections to a local server.
#[derive(Clone, Debug)]
struct Connector {
    to: LocalEnd,
    /// Whether it may be off loopback.
    anywhere: bool,
}

impl Service<Uri> for Connector {
    type Response = LocalStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<LocalStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { to, anywhere } = self.clone();
        Box::pin(async move { connect(&to, anywhere).await })
    }
}

impl Connection for TcpOrUnix {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Requests {
    /// A client that is not connected yet.
    pub fn new(to: LocalEnd, anywhere: bool) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(MOST_IDLE);
        Self(builder.build(Connector { to, anywhere }))
    }

    /// Sends a request whose URI names the server, and waits for the head of its response.
    pub async fn send(
        &self,
        mut request: Request<Body>,
        name: &str,
    ) -> Result<Response<Incoming>, Status> {
        *request.version_mut() = Version::HTTP_11;
        let again = repeatable(&request);
        let mut sent = self.0.request(request).await;
        if let Some(again) = again.filter(|_| sent.as_ref().is_err_and(|error| !error.is_connect()))
        {
            sent = self.0.request(again).await;
        }
        sent.map_err(|error| Status::unavailable(why(&error, name)))
    }
}

/// The same request, if it may be executed twice and has no body.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let repeatable = request.method().is_safe() && request.body().is_end_stream();
    repeatable.then(|| {
        let mut again = Request::new(Body::empty());
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        again
    })
}

fn why(error: &Error, name: &str) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    match error.is_connect() {
        true => format!("the server at {name} cannot be reached: {cause}"),
        false => format!("the connection to the server at {name} ended: {cause}"),
    }
}
