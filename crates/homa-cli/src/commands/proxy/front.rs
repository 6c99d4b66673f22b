//! Calls of local clients over HTTP/2, made over Homa: the proxy beside a client.
//!
//! A request that is no gRPC call gets a response of HTTP that says so. If a call fails on the way,
//! its client gets a status of gRPC, never a broken stream.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use homa::Client;
use homa_tonic::{Channel, DRAIN, Endpoint};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
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
use super::gather::{GatherMemory, PausesAllowed, gather};
use super::run::{FULL, RunningProxy, Setting, asked_to_end};
use super::socket::{LocalListener, LocalStream};
use super::{Args, LocalEnd};
use crate::failure::{Failure, Hint};
use crate::values;

/// How long a client of HTTP/1.1 may take to send a head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after the system returned no connection, for example because no descriptor was left.
const REST: Duration = Duration::from_millis(100);

/// What every call needs.
#[derive(Clone, Debug)]
struct Front {
    channel: Channel,
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
    let endpoint = Endpoint::from_shared(to).hint("give --to homa://HOST:PORT")?;
    let client = Client::with(setting.config()?).hint("see `homa doctor`")?;
    let engine = client.engine().clone();
    engine.drive_on_tokio().hint("raise the limit of descriptors (ulimit -n)")?;
    let channel = endpoint.client(client).connect_lazy().await;
    let channel = channel.hint("give the name or the address of the other host's proxy")?;
    channel.servers().into_iter().try_for_each(|to| setting.args.protection.check(to))?;
    let listeners = listen(setting.args, at).await?;
    let most = setting.args.concurrency;
    let room = Arc::new(Semaphore::new(most as usize));
    let (counts, memory) = (setting.counts.clone(), GatherMemory::default());
    let front = Front { channel, counts, most, room, memory };
    let at = listeners.iter().map(ToString::to_string).collect();
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(accept(listener, front.clone(), setting.ending.clone()));
    }
    Ok(RunningProxy { at, engines: vec![engine], tasks })
}

/// Opens the sockets of an end; all addresses of a name.
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
    let addresses = values::addresses(name).map_err(anyhow::Error::msg).hint(hint)?.0;
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

/// Serves one connection.
async fn serve(stream: LocalStream, front: Front, ending: watch::Receiver<bool>) {
    let (counts, most) = (front.counts.clone(), front.most);
    let answer = service_fn(move |request| front.clone().answer(request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    builder.http1().max_buf_size(LONGEST_HEAD as usize).auto_date_header(false);
    let mut http2 = builder.http2();
    http2.initial_stream_window_size(STREAM_WINDOW);
    http2.initial_connection_window_size(CONNECTION_WINDOW);
    http2.max_header_list_size(LONGEST_HEAD).max_concurrent_streams(most).auto_date_header(false);
    // Clients are programs of this host, which may cancel as many calls as they like.
    http2.max_pending_accept_reset_streams(most as usize).max_local_error_reset_streams(None);
    let connection = builder.serve_connection(stream, answer);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = asked_to_end(ending) => {
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

/// Why a request is no call of gRPC.
fn refusal<B>(request: &Request<B>) -> Option<ProxyRefusal> {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc");
    match request {
        _ if request.version() != Version::HTTP_2 => Some(ProxyRefusal::Http1),
        _ if request.method() != Method::POST => Some(ProxyRefusal::Method),
        _ if !rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' '))) => {
            Some(ProxyRefusal::ContentType)
        }
        _ => None,
    }
}

/// The response to a request that is no call.
fn refused(why: ProxyRefusal) -> Response<Body> {
    let (code, text) = match why {
        ProxyRefusal::Http1 => (
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "This is `homa proxy`: it accepts gRPC over HTTP/2 without TLS (prior knowledge), and \
             no HTTP/1.1.\n",
        ),
        ProxyRefusal::Method => (
            StatusCode::METHOD_NOT_ALLOWED,
            "This is `homa proxy`: it accepts calls of gRPC, which are POST requests.\n",
        ),
        _ => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "This is `homa proxy`: it accepts calls of gRPC, with content-type application/grpc.\n",
        ),
    };
    let text = http_body_util::Full::new(Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(Body::new(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match why {
        ProxyRefusal::Http1 => headers.insert(CONNECTION, HeaderValue::from_static("close")),
        ProxyRefusal::Method => headers.insert(ALLOW, HeaderValue::from_static("POST")),
        _ => None,
    };
    response
}

impl Front {
    /// Forwards a request.
    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
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
        let body = gather(body, PausesAllowed::BeforeMessages, &self.memory).await;
        let called = self.channel.call(Request::from_parts(head, Body::new(body))).await;
        Ok(match called {
            Ok(response) => response.map(|body| {
                Body::new(Answering { body, counts: self.counts, _call: call, _place: place })
            }),
            Err(status) => {
                self.counts.failed();
                status.into_http()
            }
        })
    }
}

/// The body of a response. A failure on the way becomes the status of its trailers.
struct Answering {
    body: Body,
    counts: Arc<ProxyCounts>,
    _call: CallInProgress,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            Ok(frame.unwrap_or_else(|status| {
                self.counts.failed();
                let mut trailers = HeaderMap::new();
                let _ = status.add_header(&mut trailers);
                Frame::trailers(trailers)
            }))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
