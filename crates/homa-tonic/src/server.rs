//! The server: services by name, layers around them, and the loop that serves requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa::{Config, DrainTimeout, Engine, OpenError};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::layer::util::{Identity, Stack};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, ServiceExt};

use crate::metadata::is_grpc;
use crate::serve::{self, Sessions};

/// How long a server that was asked to end waits for requests in progress.
pub const DRAIN: Duration = Duration::from_secs(30);

/// A service without its type.
type BoxService = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// All services with the layers around them.
pub(crate) type Layered = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;

/// Builds a server, as `tonic::transport::Server` does.
#[derive(Clone, Debug)]
pub struct Server<L = Identity> {
    layer: L,
    config: Config,
    timeout: Option<Duration>,
    concurrency: Option<usize>,
}

/// A server could not be opened, or was ended before its requests were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The engine could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Requests were in progress 30 s after the signal.
    #[error(transparent)]
    Drain(#[from] DrainTimeout),
}

impl Server {
    /// A server without layers.
    pub fn builder() -> Self {
        let (layer, config) = (Identity::new(), Config::default());
        Self { layer, config, timeout: None, concurrency: None }
    }
}

impl<L> Server<L> {
    /// Adds a layer around all services. Layers that were added first see a request first.
    pub fn layer<N>(self, layer: N) -> Server<Stack<N, L>> {
        let Self { layer: outer, config, timeout, concurrency } = self;
        Server { layer: Stack::new(layer, outer), config, timeout, concurrency }
    }

    /// The parameters of the engine that [`Router::serve`] opens.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Limits the time of every request, as if each had this `grpc-timeout`. Default: none.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Limits the calls in service, of all clients together, to at least one
    /// ([`homa::Server::concurrency`]). Others wait in the engine, which refuses those that it
    /// expects to be late (`UNAVAILABLE`, and they were not executed). Default: none.
    ///
    /// A call is in service from its start until its service has returned a response, for at most
    /// 25 s; then streams of responses continue without being counted. A call whose client streams
    /// requests is not counted, because what follows its first message has to be accepted, too.
    pub fn concurrency_limit(self, most: usize) -> Self {
        Self { concurrency: Some(most), ..self }
    }

    /// Serves a service that tonic generated, under its name.
    pub fn add_service<S, B>(self, service: S) -> Router<L>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Display,
    {
        self.router().add_service(service)
    }

    /// Serves all requests with one service, whatever method they name: for proxies and gateways,
    /// which do not know the services.
    pub fn fallback_service<S, B>(self, service: S) -> Router<L>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Display,
    {
        self.router().fallback_service(service)
    }

    fn router(self) -> Router<L> {
        Router { server: self, services: ServiceTable::default() }
    }
}

/// A server with services.
#[derive(Clone, Debug)]
pub struct Router<L = Identity> {
    server: Server<L>,
    services: ServiceTable,
}

/// Which service gets a request.
#[derive(Clone, Debug, Default)]
struct ServiceTable {
    named: HashMap<&'static str, BoxService>,
    /// For requests that name none of them.
    fallback: Option<BoxService>,
}

impl<L> Router<L> {
    /// Serves one more service. It replaces an earlier one of the same name.
    pub fn add_service<S, B>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Display,
    {
        self.services.named.insert(S::NAME, boxed(service));
        self
    }

    /// Serves the requests that name no other service. Default: they end as `UNIMPLEMENTED`.
    pub fn fallback_service<S, B>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Display,
    {
        self.services.fallback = Some(boxed(service));
        self
    }

    /// Serves one more service, if there is one.
    pub fn add_optional_service<S, B>(self, service: Option<S>) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Display,
    {
        match service {
            Some(service) => self.add_service(service),
            None => self,
        }
    }

    /// Opens an engine at an address and serves until the future is dropped, which ends the
    /// requests in progress.
    ///
    /// Needs a runtime of tokio with time.
    pub async fn serve<S, B>(self, at: SocketAddr) -> Result<(), ServeError>
    where
        L: Layer<Services, Service = S>,
        S: Service<http::Request<Body>, Response = http::Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.serve_with_shutdown(at, pending()).await
    }

    /// As [`serve`](Self::serve), until `signal` resolves: from then on streams are refused, and
    /// those in progress have 30 s to end. When there are none, unary calls are refused as not
    /// executed, too.
    pub async fn serve_with_shutdown<S, B, F>(
        self,
        at: SocketAddr,
        signal: F,
    ) -> Result<(), ServeError>
    where
        L: Layer<Services, Service = S>,
        S: Service<http::Request<Body>, Response = http::Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        F: Future<Output = ()>,
    {
        let engine = Engine::bind(at, self.server.config.clone())?;
        engine.drive_on_tokio()?;
        self.serve_on(engine.serve()?, signal).await
    }

    /// Serves the requests of a server that is open already, until `signal` resolves. Let the
    /// runtime drive its engine ([`homa::Engine::drive_on_tokio`]), unless it is driven already.
    pub async fn serve_on<S, B, F>(self, server: homa::Server, signal: F) -> Result<(), ServeError>
    where
        L: Layer<Services, Service = S>,
        S: Service<http::Request<Body>, Response = http::Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        F: Future<Output = ()>,
    {
        let Self { server: Server { layer, timeout, concurrency, .. }, services } = self;
        let server = match concurrency {
            Some(most) => server.concurrency(most),
            None => server,
        };
        let layered = layer.layer(Services(Arc::new(services)));
        let layered = layered
            .map_response(|response: http::Response<B>| response.map(Body::new))
            .map_err(Into::into);
        let draining = server.clone();
        let sessions = Arc::new(Sessions::default());
        let service = BoxCloneSyncService::new(layered);
        let served = serve::all(server, service, sessions.clone(), timeout);
        tokio::pin!(served);
        tokio::select! {
            biased;
            () = &mut served => return Ok(()),
            () = signal => {}
        }
        // Streams in progress need further RPCs, which an engine that drains would refuse.
        let began = Instant::now();
        tokio::select! {
            biased;
            () = &mut served => return Ok(()),
            _ = tokio::time::timeout(DRAIN, sessions.end()) => {}
        }
        let left = DRAIN.saturating_sub(began.elapsed());
        let ((), drained) = tokio::join!(served, draining.drain_async(left));
        Ok(drained?)
    }
}

/// All services of a server, as one: what layers are put around.
#[derive(Clone, Debug)]
pub struct Services(Arc<ServiceTable>);

fn boxed<S, B>(service: S) -> BoxService
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Display,
{
    let service = service.map_response(|response: http::Response<B>| response.map(Body::new));
    BoxCloneSyncService::new(service)
}

impl Service<http::Request<Body>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Each request gets a clone of its service, which waits until it is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        // Only a call may run a method: a request of a web page could have its path, too.
        let is_call = request.method() == http::Method::POST && is_grpc(request.headers());
        let name = path.strip_prefix('/').filter(|_| is_call);
        let name = name.and_then(|path| path.split_once('/'));
        let named = name.and_then(|(name, _)| self.0.named.get(name));
        match named.or(self.0.fallback.as_ref()) {
            Some(service) => Box::pin(service.clone().oneshot(request)),
            None => {
                let what = match is_call {
                    true => format!("no service has the method {path}"),
                    false => "this server answers calls of gRPC only".to_owned(),
                };
                let refused = Status::new(Code::Unimplemented, what).into_http();
                Box::pin(std::future::ready(Ok(refused)))
            }
        }
    }
}
