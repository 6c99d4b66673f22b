//! Calls from Homa, made over HTTP/2 at a local server: the proxy beside a server.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use homa::Engine;
use homa_tonic::Server;
use http::header::TE;
use http::{HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tower::service_fn;

use super::ProxyEnd;
use super::connections::{LocalServer, StreamPlace};
use super::counts::{CallInProgress, ProxyCounts};
use super::gather::{Gathered, Patience, gather};
use super::run::{RunningProxy, Setting, asked_to_end};
use crate::commands::driver::explain;
use crate::failure::{Failure, Hint};
use crate::values;

/// Listens for other hosts.
pub fn start(setting: &Setting<'_>, at: &str, to: &ProxyEnd) -> Result<RunningProxy, Failure> {
    let hint = "choose a free address of this machine, such as --listen homa://127.0.0.1:4000";
    let address = at.strip_prefix("homa://").unwrap_or_default();
    let address = address.strip_suffix('/').unwrap_or(address);
    let addresses = values::addresses(address).map_err(anyhow::Error::msg).hint(hint)?.0;
    let local = LocalServer::new(to.clone()).hint("give --to http://HOST:PORT")?;
    let (local, counts) = (Arc::new(local), setting.counts.clone());
    let service = service_fn(move |request| forward(local.clone(), counts.clone(), request));
    let most = setting.args.concurrency as usize;
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
            router.serve_on(server, end).await.context("calls were in progress after 30 s")
        });
    }
    Ok(RunningProxy { at, engines, tasks })
}

/// Makes a call at the local server.
async fn forward(
    local: Arc<LocalServer>,
    counts: Arc<ProxyCounts>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let call = counts.begin();
    // The size of a request is known once it is whole. If it is not, the response is a stream, too,
    // or follows the end of the request.
    let whole = request.body().size_hint().exact().is_some();
    let pauses = if whole { Patience::BeforeEnd } else { Patience::Never };
    let mut request = request.map(RequestBody);
    // homa-tonic removes it, and servers of gRPC look for it.
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    let (response, place) = match local.send(request).await {
        Ok(sent) => sent,
        Err(status) => {
            counts.failed();
            return Ok(status.into_http());
        }
    };
    let (head, body) = response.into_parts();
    let body = ResponseBody { body, local, counts, _place: place, _call: call };
    let body: Gathered<ResponseBody> = gather(body, pauses).await;
    Ok(Response::from_parts(head, Body::new(body)))
}

/// The body of a request. If its client ends the call, the server's stream is reset with CANCEL.
#[derive(Debug)]
pub struct RequestBody(Body);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let frame = Pin::new(&mut self.0).poll_frame(context);
        frame.map_err(|_| h2::Error::from(h2::Reason::CANCEL))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// The body of a response.
#[derive(Debug)]
struct ResponseBody {
    body: Incoming,
    local: Arc<LocalServer>,
    counts: Arc<ProxyCounts>,
    _place: StreamPlace,
    _call: CallInProgress,
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
