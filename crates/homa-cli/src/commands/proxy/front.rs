//! Calls of local clients over HTTP, made over Homa: the proxy beside a client.
//!
//! If a call of gRPC fails on the way, its client gets a status of gRPC, never a broken stream. Any
//! other request gets a status of HTTP, and a broken response if its head has been sent.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use homa::Client;
use homa_tonic::{DRAIN, Idempotent, is_grpc};
use http::header::{ALLOW, CONNECTION};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::connections::{CONNECTION_WINDOW, LONGEST_HEAD, STREAM_WINDOW};
use super::counts::{CallInProgress, ProxyCounts, ProxyRefusal};
use super::gather::{BodyFraming, GatherMemory, PausesAllowed, gather};
use super::plain;
use super::run::{FULL, RunningProxy, Setting, asked_to_end};
use super::servers::Servers;
use super::socket::{LocalListener, LocalStream};
use super::tunnel::{Tunnel, is_asked};
use super::{Args, LocalEnd};
use crate::failure::{Failure, Hint};
use crate::values;

/// How long a client of HTTP/1.1 may take to send a head, and keep a connection without a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Pause after the system returned no connection, for example because no descriptor was left.
const REST: Duration = Duration::from_millis(100);

/// What every call needs.
#[derive(Clone, Debug)]
struct Front {
    servers: Servers,
    counts: Arc<ProxyCounts>,
    /// The maximum number of calls in progress, and the places of further ones.
    most: u32,
    room: Arc<Semaphore>,
    memory: GatherMemory,
}

/// Listens for local clients, and opens a channel to the server.
pub async fn start(
    setting: &Setting<'_>,
    at: &LocalEnd,
    to: &str,
) -> Result<RunningProxy, Failure> {
    let client = Client::with(setting.config()?).hint("see `homa doctor`")?;
    let engine = client.engine().clone();
    engine.drive_on_tokio().hint("raise the limit of descriptors (ulimit -n)")?;
    let listeners = listen(setting.args, at).await?;
    let own = listeners.iter().filter_map(LocalListener::address).collect();
    let servers = Servers::open(setting, to, client, own).await?;
    let most = setting.args.concurrency;
    let room = Arc::new(Semaphore::new(most as usize));
    let (counts, memory) = (setting.counts.clone(), GatherMemory::default());
    let front = Front { servers, counts, most, room, memory };
    let at = listeners.iter().map(ToString::to_string).collect();
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(accept(listener, front.clone(), setting.ending.clone()));
    }
    Ok(RunningProxy { at, engines: vec![engine], tasks })
}

/// Opens the sockets of an end; of a name, at its addresses that this machine has.
async fn listen(args: &Args, at: &LocalEnd) -> Result<Vec<LocalListener>, Failure> {
    let hint = "choose a free address of this machine, such as --listen http://127.0.0.1:7000";
    let name = match at {
        LocalEnd::Tcp(name) => name,
        LocalEnd::Unix(path) => {
            let listener = LocalListener::unix(path).await;
            let listener = listener.with_context(|| format!("cannot listen at {path:?}"));
            let hint = "choose a path where no other process listens, in a folder that this user \
                        may write to";
            return Ok(vec![listener.hint(hint)?]);
        }
    };
    let addresses = values::listening(name).map_err(anyhow::Error::msg).hint(hint)?.0;
    args.check_local(&addresses)?;
    let mut listeners: Vec<LocalListener> = Vec::new();
    let mut chosen = None;
    for mut at in addresses {
        // All addresses of a name get the port that was chosen for the first.
        at.set_port(if at.port() == 0 { chosen.unwrap_or(0) } else { at.port() });
        let listener = tokio::net::TcpListener::bind(at).await;
        let listener = listener.with_context(|| format!("cannot listen at {at}")).hint(hint)?;
        chosen = chosen.or(listener.local_addr().ok().map(|at| at.port()));
        listeners.push(LocalListener::Tcp(listener));
    }
    Ok(listeners)
}

/// Accepts connections until the proxy should end, then waits for their calls.
async fn accept(
    listener: LocalListener,
    front: Front,
    ending: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (mut connections, mut warned) = (JoinSet::new(), false);
    let asked = asked_to_end(ending.clone());
    tokio::pin!(asked);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut asked => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => drop(connections.spawn(serve(stream, front.clone(), ending.clone()))),
            // There is no descriptor or no memory for more, or the client has gone already.
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    eprintln!(
                        "warning: clients at {listener} have to wait: {error}; raise the limit of \
                         descriptors (ulimit -n, LimitNOFILE= of systemd)"
                    );
                }
                sleep(REST).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    timeout(DRAIN, all).await.with_context(|| format!("calls were in progress after {DRAIN:?}"))
}

/// Serves one connection, and the tunnel that it may become.
async fn serve(stream: LocalStream, front: Front, ending: watch::Receiver<bool>) {
    let (counts, builder, tunnel) = (front.counts.clone(), builder(front.most), Tunnel::default());
    let answer = {
        let (front, tunnel) = (front.clone(), tunnel.clone());
        service_fn(move |request| front.clone().answer_or_tunnel(request, tunnel.clone()))
    };
    serve_http(&builder, stream, answer, (&counts, &ending)).await;
    if let Some((stream, server)) = tunnel.entered().await {
        let answer = service_fn(move |request| front.clone().answer(request, Some(server.clone())));
        serve_http(&builder, stream, answer, (&counts, &ending)).await;
    }
}

/// Serves HTTP on a stream until the client leaves, or until the calls in progress have ended after
/// the proxy was asked to end.
async fn serve_http<I, S>(
    builder: &auto::Builder<TokioExecutor>,
    stream: I,
    answer: S,
    (counts, ending): (&ProxyCounts, &watch::Receiver<bool>),
) where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    let connection = builder.serve_connection_with_upgrades(stream, answer);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = asked_to_end(ending.clone()) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served
        && breaks_rules(&*error)
    {
        counts.refused(ProxyRefusal::Protocol);
    }
}

/// How connections are served.
fn builder(most: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http1().max_buf_size(LONGEST_HEAD as usize).auto_date_header(false);
    let mut http2 = builder.http2();
    http2.initial_stream_window_size(STREAM_WINDOW);
    http2.initial_connection_window_size(CONNECTION_WINDOW);
    http2.max_header_list_size(LONGEST_HEAD).max_concurrent_streams(most).auto_date_header(false);
    // Clients are programs of this host, which may cancel as many calls as they like.
    http2.max_pending_accept_reset_streams(most as usize).max_local_error_reset_streams(None);
    builder
}

/// Whether a connection ended because of what the client sent, and not because it went away.
fn breaks_rules(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    !causes.any(|cause| {
        let h2 = cause.downcast_ref::<h2::Error>();
        let hyper = cause.downcast_ref::<hyper::Error>();
        cause.is::<io::Error>()
            || h2.is_some_and(|error| error.is_io() || error.is_go_away() && error.is_remote())
            || hyper.is_some_and(|error| error.is_incomplete_message() || error.is_timeout())
    })
}

/// Why a request that should be a call of gRPC is none.
fn refusal<B>(request: &Request<B>) -> Option<ProxyRefusal> {
    match request {
        _ if request.version() != Version::HTTP_2 => Some(ProxyRefusal::Http1),
        _ if request.method() != Method::POST => Some(ProxyRefusal::Method),
        _ => None,
    }
}

/// The response to a request that is no call.
fn refused(why: ProxyRefusal) -> Response<Body> {
    let (code, text) = match why {
        ProxyRefusal::Http1 => (
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "This is `homa proxy`: it accepts gRPC over HTTP/2 without TLS (prior knowledge), and \
             not over HTTP/1.1.\n",
        ),
        ProxyRefusal::Connect => (
            StatusCode::FORBIDDEN,
            "This is `homa proxy`: it calls one server, whatever a client asks for. A proxy with \
             --to 'homa://*' calls the host and port of a CONNECT.\n",
        ),
        _ => (
            StatusCode::METHOD_NOT_ALLOWED,
            "This is `homa proxy`: calls of gRPC, with content-type application/grpc, are POST \
             requests.\n",
        ),
    };
    let mut response = plain::text(code, text);
    let headers = response.headers_mut();
    match why {
        ProxyRefusal::Http1 | ProxyRefusal::Connect => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"))
        }
        ProxyRefusal::Method => headers.insert(ALLOW, HeaderValue::from_static("POST")),
        _ => None,
    };
    response
}

impl Front {
    /// Begins a tunnel if a request asks for it, and forwards other requests.
    async fn answer_or_tunnel(
        self,
        request: Request<Incoming>,
        tunnel: Tunnel,
    ) -> Result<Response<Body>, Infallible> {
        if !is_asked(&request) {
            return self.answer(request, None).await;
        }
        let Servers::Named(servers) = &self.servers else {
            self.counts.refused(ProxyRefusal::Connect);
            return Ok(refused(ProxyRefusal::Connect));
        };
        let named = request.uri().authority().cloned();
        match (servers.check(named.as_ref()), named) {
            (Ok(()), Some(server)) => {
                tunnel.begin(request, server);
                Ok(Response::new(Body::empty()))
            }
            (checked, _) => {
                self.counts.refused(ProxyRefusal::Connect);
                let why = checked.err().unwrap_or_default();
                let mut refused = plain::text(StatusCode::BAD_REQUEST, format!("{why}\n"));
                refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                Ok(refused)
            }
        }
    }

    /// Forwards a request, to the server of its tunnel if it has one.
    async fn answer(
        self,
        request: Request<Incoming>,
        server: Option<Authority>,
    ) -> Result<Response<Body>, Infallible> {
        match is_grpc(request.headers()) {
            _ if request.method() == Method::CONNECT => {
                self.counts.refused(ProxyRefusal::Connect);
                Ok(refused(ProxyRefusal::Connect))
            }
            true => self.call(request, server).await,
            false => self.forward(request, server).await,
        }
    }

    /// Makes a call of gRPC.
    async fn call(
        self,
        request: Request<Incoming>,
        server: Option<Authority>,
    ) -> Result<Response<Body>, Infallible> {
        if let Some(why) = refusal(&request) {
            self.counts.refused(why);
            return Ok(refused(why));
        }
        let Ok(place) = self.room.clone().try_acquire_owned() else {
            self.counts.refused(ProxyRefusal::Full);
            return Ok(Status::unavailable(FULL).into_http());
        };
        let call = self.counts.begin();
        let (head, body) = request.into_parts();
        let body = body.map_err(|error| Status::from_error(error.into()));
        let how = (BodyFraming::Grpc, PausesAllowed::BeforeMessages);
        let body = gather(body, how, &self.memory).await;
        let called = async {
            let server = server.as_ref().or(head.uri.authority());
            let mut channel = self.servers.channel(server).await?;
            channel.call(Request::from_parts(head, Body::new(body))).await
        };
        Ok(match called.await {
            Ok(response) => self.answering(response, FailureSeen::InTrailers, (call, place)),
            Err(status) => {
                self.counts.failed();
                status.into_http()
            }
        })
    }

    /// A response that is read as its client takes it.
    fn answering(
        self,
        response: Response<Body>,
        failures: FailureSeen,
        of_call: (CallInProgress, OwnedSemaphorePermit),
    ) -> Response<Body> {
        let counts = self.counts;
        response.map(|body| Body::new(Answering { body, failures, counts, _of_call: of_call }))
    }

    /// Makes any other request.
    async fn forward(
        self,
        request: Request<Incoming>,
        server: Option<Authority>,
    ) -> Result<Response<Body>, Infallible> {
        let (mut head, body) = request.into_parts();
        let named = match plain::prepare(&mut head) {
            Ok(named) => named,
            Err(status) => {
                self.counts.refused(ProxyRefusal::Protocol);
                return Ok(plain::failed(&status));
            }
        };
        let Ok(place) = self.room.clone().try_acquire_owned() else {
            self.counts.refused(ProxyRefusal::Full);
            return Ok(plain::text(StatusCode::SERVICE_UNAVAILABLE, format!("{FULL}\n")));
        };
        let call = self.counts.begin();
        let server = server.unwrap_or(named);
        let how = (BodyFraming::of(&body), PausesAllowed::BeforeEnd);
        let body = body.map_err(|error| Status::from_error(error.into()));
        let body = gather(body, how, &self.memory).await;
        let called = async {
            let mut channel = self.servers.channel(Some(&server)).await?;
            let mut request = Request::from_parts(head, Body::new(body));
            // It may be executed more than once (RFC 9110 §9.2.1).
            if request.method().is_safe() {
                request.extensions_mut().insert(Idempotent);
            }
            let mut response = channel.call(request).await?;
            match plain::status_of(&mut response).await {
                Some(status) => Err(status),
                None => Ok(response),
            }
        };
        Ok(match called.await {
            Ok(mut response) => {
                plain::answered(response.headers_mut());
                self.answering(response, FailureSeen::Broken, (call, place))
            }
            Err(status) => {
                self.counts.failed();
                plain::failed(&status)
            }
        })
    }
}

/// How the client of a response learns that it failed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureSeen {
    /// By the status of its trailers.
    InTrailers,
    /// Its stream or connection ends before the body does.
    Broken,
}

/// The body of a response.
struct Answering {
    body: Body,
    failures: FailureSeen,
    counts: Arc<ProxyCounts>,
    _of_call: (CallInProgress, OwnedSemaphorePermit),
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| match self.failures {
            FailureSeen::InTrailers => frame.or_else(|status| {
                self.counts.failed();
                let mut trailers = HeaderMap::new();
                let _ = status.add_header(&mut trailers);
                Ok(Frame::trailers(trailers))
            }),
            // The proxy beside the server reports a failure as a status of gRPC.
            FailureSeen::Broken => {
                let told = |frame: Frame<Bytes>| match frame.trailers_ref().and_then(plain::broken)
                {
                    Some(status) => Err(status),
                    None => Ok(frame),
                };
                frame.and_then(told).inspect_err(|_| self.counts.failed())
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
