//! Calls from Homa, made at a local server, those of gRPC over HTTP/2 and other requests over
//! HTTP/1.1: the proxy beside a server.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use homa::Engine;
use homa_tonic::{DRAIN, Server, is_grpc};
use http::header::{CONTENT_LENGTH, HOST, TE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tower::service_fn;

use super::LocalEnd;
use super::connections::{LONGEST_HEAD, LocalServer, StreamPlace};
use super::counts::{CallInProgress, ProxyCounts, ProxyRefusal};
use super::gather::{BodyFraming, GatherMemory, Gathered, PausesAllowed, gather};
use super::plain;
use super::run::{FULL, RunningProxy, Setting, asked_to_end};
use crate::commands::driver::explain;
use crate::failure::{Failure, Hint};
use crate::values;

/// What every call needs.
#[derive(Clone, Debug)]
struct Back {
    local: Arc<LocalServer>,
    counts: Arc<ProxyCounts>,
    /// The places of further calls.
    room: Arc<Semaphore>,
    memory: GatherMemory,
}

/// Listens for other hosts.
pub fn start(setting: &Setting<'_>, at: &str, to: &LocalEnd) -> Result<RunningProxy, Failure> {
    let hint = "choose a free address of this machine, such as --listen homa://127.0.0.1:4000";
    let Some(address) = at.strip_prefix("homa://").filter(|at| !at.starts_with('/')) else {
        let error = anyhow::anyhow!("{at} names servers to call, and no address to listen at");
        return Err(Failure::new(error, hint));
    };
    let address = address.strip_suffix('/').unwrap_or(address);
    let addresses = values::listening(address).map_err(anyhow::Error::msg).hint(hint)?.0;
    if let LocalEnd::Tcp(name) = to {
        // A name may not be known yet. So connections are checked, too.
        let addresses = values::addresses(name).map_or(Vec::new(), |addresses| addresses.0);
        setting.args.check_local(&addresses)?;
    }
    let anywhere = setting.args.plain_http;
    let local = LocalServer::new(to.clone(), anywhere);
    let local = local.with_context(|| format!("{to:?} is no address of a server"));
    let local = local.hint("give --to http://HOST:PORT")?;
    let most = setting.args.concurrency as usize;
    let room = Arc::new(Semaphore::new(most));
    let (local, counts) = (Arc::new(local), setting.counts.clone());
    let back = Back { local, counts, room, memory: GatherMemory::default() };
    let service = service_fn(move |request| back.clone().answer(request));
    let router = Server::builder().concurrency_limit(most).fallback_service(service);
    let (mut at, mut engines, mut tasks) = (Vec::new(), Vec::<Engine>::new(), JoinSet::new());
    for mut address in addresses {
        if address.port() == 0 {
            // All addresses of a name get the port that was chosen for the first.
            address.set_port(engines.first().map_or(0, |engine| engine.local_addr().port()));
        }
        let engine = explain(Engine::bind(address, setting.config()?), hint)?;
        engine.drive_on_tokio().hint("raise the limit of descriptors (ulimit -n)")?;
        let server = engine.serve().hint("choose another port")?;
        at.push(format!("homa://{}", server.local_addr()));
        engines.push(engine);
        let (router, end) = (router.clone(), asked_to_end(setting.ending.clone()));
        tasks.spawn(async move {
            let ended = router.serve_on(server, end).await;
            ended.with_context(|| format!("calls were in progress after {DRAIN:?}"))
        });
    }
    Ok(RunningProxy { at, engines, tasks })
}

impl Back {
    /// Makes a call or another request at the local server.
    async fn answer(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        // The size of a request is known once it is whole. If it is not, the response is a stream,
        // too, or follows the end of the request.
        let whole = request.body().size_hint().exact().is_some();
        let grpc = is_grpc(request.headers());
        let Some(room) = self.room(whole).await else {
            self.counts.refused(ProxyRefusal::Full);
            return Ok(refused(grpc, Status::unavailable(FULL)));
        };
        let counts = self.counts.clone();
        let place = (counts.begin(), room);
        let answered = match grpc {
            true => self.call(request, whole, place).await,
            false => self.forward(request, place).await,
        };
        Ok(answered.unwrap_or_else(|status| {
            counts.failed();
            refused(grpc, status)
        }))
    }

    /// Makes a call of gRPC.
    async fn call(
        self,
        mut request: Request<Body>,
        whole: bool,
        of_call: (CallInProgress, OwnedSemaphorePermit),
    ) -> Result<Response<Body>, Status> {
        prepare(request.headers_mut())?;
        let (response, place) = self.local.send(request.map(RequestBody::from)).await?;
        let pauses = if whole { PausesAllowed::BeforeEnd } else { PausesAllowed::Never };
        let (head, body) = response.into_parts();
        let (local, counts) = (self.local, self.counts);
        let body = ResponseBody { body, local, counts, _place: Some(place), _of_call: of_call };
        let body: Gathered<ResponseBody> =
            gather(body, (BodyFraming::Grpc, pauses), &self.memory).await;
        Ok(Response::from_parts(head, Body::new(body)))
    }

    /// Makes any other request.
    async fn forward(
        self,
        mut request: Request<Body>,
        of_call: (CallInProgress, OwnedSemaphorePermit),
    ) -> Result<Response<Body>, Status> {
        if request.method() == Method::CONNECT {
            return Err(Status::invalid_argument("a proxy beside a server makes no tunnels"));
        }
        plain::strip(request.headers_mut());
        let length = request.body().size_hint().exact();
        plain::check_length(request.headers(), length)?;
        check_size(request.headers())?;
        let response = self.local.request(request).await?;
        if response.status().is_informational() {
            return Err(Status::unavailable("the server changes to another protocol unasked"));
        }
        let (mut head, body) = response.into_parts();
        plain::strip(&mut head.headers);
        let how = (BodyFraming::of(&body), PausesAllowed::BeforeEnd);
        let (local, counts) = (self.local, self.counts);
        let body = ResponseBody { body, local, counts, _place: None, _of_call: of_call };
        let body: Gathered<ResponseBody> = gather(body, how, &self.memory).await;
        Ok(Response::from_parts(head, Body::new(body.unless_failed()?)))
    }

    /// A place for a call. A request that is whole waits for it, and others would keep the parts
    /// that follow waiting, too.
    async fn room(&self, whole: bool) -> Option<OwnedSemaphorePermit> {
        match whole {
            true => self.room.clone().acquire_owned().await.ok(),
            false => self.room.clone().try_acquire_owned().ok(),
        }
    }
}

/// Headers as the local server should see them. All clients share its connections, which some
/// servers close because of a single request that they do not like.
fn prepare(headers: &mut HeaderMap) -> Result<(), Status> {
    // They could contradict the body and `:authority`.
    headers.remove(CONTENT_LENGTH);
    headers.remove(HOST);
    // homa-tonic removes it, and servers of gRPC look for it.
    headers.insert(TE, HeaderValue::from_static("trailers"));
    check_size(headers)
}

/// An error if the local server could refuse the head of a request because of its size.
fn check_size(headers: &HeaderMap) -> Result<(), Status> {
    // As HTTP/2 counts (RFC 9113 §6.5.2).
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    if bytes.sum::<usize>() > LONGEST_HEAD as usize {
        let text = format!("the proxy forwards at most {LONGEST_HEAD} bytes of metadata");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

/// The response to a request that was not answered by the local server.
fn refused(grpc: bool, status: Status) -> Response<Body> {
    if grpc { status.into_http() } else { plain::failed(&status) }
}

/// The body of a request. If its client ends the call, the server's stream is reset with CANCEL.
#[derive(Debug)]
pub struct RequestBody {
    body: Body,
    /// A frame of it was asked for.
    began: bool,
}

impl From<Body> for RequestBody {
    fn from(body: Body) -> Self {
        Self { body, began: false }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        self.began = true;
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_err(|_| h2::Error::from(h2::Reason::CANCEL))
    }

    /// Never in the frame of the headers: gRPC wants an empty DATA frame (gRPC over HTTP/2,
    /// Requests: EOS), and servers in Go wait for it.
    fn is_end_stream(&self) -> bool {
        self.began && self.body.is_end_stream()
    }
}

/// The body of a response.
#[derive(Debug)]
struct ResponseBody {
    body: Incoming,
    local: Arc<LocalServer>,
    counts: Arc<ProxyCounts>,
    /// Of a call of gRPC.
    _place: Option<StreamPlace>,
    _of_call: (CallInProgress, OwnedSemaphorePermit),
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_err(|error| {
            self.counts.failed();
            self.local.status(&error)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_request_without_messages_ends_with_an_empty_frame() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client));
        let (mut send, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("http://a/b.C/D").body(RequestBody::from(Body::empty()));
        tokio::spawn(send.send_request(request.unwrap()));
        let mut server = h2::server::handshake(server).await.unwrap();
        let (request, _respond) = server.accept().await.unwrap().unwrap();
        let mut body = request.into_body();
        assert!(!body.is_end_stream(), "the end stands in the headers");
        let ended = async {
            while let Some(data) = body.data().await {
                assert!(data.unwrap().is_empty());
            }
        };
        tokio::select! {
            () = ended => {}
            _ = server.accept() => panic!("the connection has ended"),
        }
    }

    #[test]
    fn headers_that_end_connections_are_kept_from_the_server() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(HOST, HeaderValue::from_static("other"));
        headers.insert("x", HeaderValue::from_static("y"));
        prepare(&mut headers).unwrap();
        let mut names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["te", "x"]);
        headers.insert("x", HeaderValue::from_bytes(&[b'x'; LONGEST_HEAD as usize - 42]).unwrap());
        let status = prepare(&mut headers).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
}
