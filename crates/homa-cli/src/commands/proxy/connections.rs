//! The connections to the local server: one, and more if it has many calls in progress.
//!
//! A server allows a client a number of calls on one connection, often 100. The proxy's calls are
//! those of many clients, which would have a connection each. So there is another connection for
//! each [`MOST`] calls in progress.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::uri::Authority;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::Status;
use tonic::body::Body;

use super::LocalEnd;
use super::back::RequestBody;
use super::requests::Requests;
use super::socket::connect;

/// Bytes of one stream that are read ahead, on either connection.
pub const STREAM_WINDOW: u32 = 256 << 10;

/// The same of all streams of a connection. It is a multiple, because streams whose reader is slow
/// would otherwise stop the others.
pub const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;

/// Longest head of a request or response, bytes.
pub const LONGEST_HEAD: u32 = 64 << 10;

/// Calls in progress on one connection: HTTP/2 recommends that servers allow no fewer (RFC 9113
/// §6.5.2).
const MOST: usize = 100;

/// Attempts to send a request. A connection may close when a request is about to leave on it; then
/// the request comes back.
const ATTEMPTS: usize = 3;

/// A local server.
#[derive(Debug)]
pub struct LocalServer {
    to: LocalEnd,
    /// Whether it may be off loopback.
    anywhere: bool,
    name: String,
    authority: Authority,
    /// The client for requests that are not calls of gRPC.
    requests: Requests,
    open: Mutex<Vec<OpenConnection>>,
    /// Held by the task that opens a connection: when the last attempt failed, and why.
    opening: tokio::sync::Mutex<Option<(Instant, String)>>,
}

/// An open connection.
#[derive(Debug)]
struct OpenConnection {
    send: SendRequest<RequestBody>,
    calls: Arc<AtomicUsize>,
}

/// A call's place on a connection.
#[derive(Debug)]
pub struct StreamPlace {
    send: SendRequest<RequestBody>,
    calls: Arc<AtomicUsize>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenConnection {
    /// A place, if there is one.
    fn place(&self) -> Option<StreamPlace> {
        let (send, calls) = (self.send.clone(), self.calls.clone());
        if calls.fetch_add(1, Ordering::Relaxed) >= MOST {
            calls.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(StreamPlace { send, calls })
    }
}

impl LocalServer {
    /// A server that is not connected yet; an error if its name is none.
    pub fn new(to: LocalEnd, anywhere: bool) -> Result<Self, http::uri::InvalidUri> {
        let (name, authority) = match &to {
            LocalEnd::Tcp(at) => (format!("http://{at}"), at.parse()?),
            LocalEnd::Unix(path) => {
                (format!("unix:{}", path.display()), Authority::from_static("localhost"))
            }
        };
        let (open, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        let requests = Requests::new(to.clone(), anywhere);
        Ok(Self { to, anywhere, name, authority, requests, open, opening })
    }

    /// Makes a request name this server.
    fn name_in<B>(&self, request: &mut Request<B>) -> Result<(), Status> {
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        (uri.scheme, uri.authority) = (Some(http::uri::Scheme::HTTP), Some(self.authority.clone()));
        *request.uri_mut() = Uri::from_parts(uri)
            .map_err(|error| Status::invalid_argument(format!("no path of HTTP: {error}")))?;
        Ok(())
    }

    /// Sends a request that is not a call of gRPC, and waits for the head of its response.
    pub async fn request(&self, mut request: Request<Body>) -> Result<Response<Incoming>, Status> {
        self.name_in(&mut request)?;
        self.requests.send(request, &self.name).await
    }

    /// Sends a call, and waits for the head of its response. The place is to be kept until the
    /// response has ended.
    pub async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, StreamPlace), Status> {
        self.name_in(&mut request)?;
        let mut others = 1..ATTEMPTS;
        loop {
            let mut place = self.place().await?;
            let mut unsent = match place.send.try_send_request(request).await {
                Ok(response) => return Ok((response, place)),
                Err(unsent) => unsent,
            };
            match (unsent.take_message(), others.next()) {
                (Some(again), Some(_)) => request = again,
                _ => return Err(self.status(&unsent.into_error())),
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place on an open connection. Connections that are closed are forgotten, and those that are
    /// no longer needed.
    fn free_place(&self) -> Option<StreamPlace> {
        let mut open = self.open();
        open.retain(|connection| !connection.send.is_closed());
        let place = open.iter().find_map(OpenConnection::place)?;
        let idle = |connection: &OpenConnection| connection.calls.load(Ordering::Relaxed) == 0;
        if open.len() > 1 && open.last().is_some_and(idle) {
            open.pop();
        }
        Some(place)
    }

    async fn place(&self) -> Result<StreamPlace, Status> {
        if let Some(place) = self.free_place() {
            return Ok(place);
        }
        let asked = Instant::now();
        let mut failed = self.opening.lock().await;
        if let Some(place) = self.free_place() {
            return Ok(place);
        }
        // Many calls may wait for one attempt. If each then made its own, the last of them would
        // wait for all their timeouts.
        if let Some((at, why)) = &*failed
            && *at >= asked
        {
            return Err(Status::unavailable(why));
        }
        let stream = match connect(&self.to, self.anywhere).await {
            Ok(stream) => stream,
            Err(error) => {
                let why = format!("the server at {} cannot be reached: {error}", self.name);
                *failed = Some((Instant::now(), why.clone()));
                return Err(Status::unavailable(why));
            }
        };
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_header_list_size(LONGEST_HEAD);
        builder.initial_stream_window_size(STREAM_WINDOW);
        builder.initial_connection_window_size(CONNECTION_WINDOW);
        // Otherwise some cancelled calls too many would end the connection, with all others.
        builder.max_local_error_reset_streams(None);
        let (send, connection) =
            builder.handshake(stream).await.map_err(|error| self.status(&error))?;
        // Its calls hear why it ended.
        tokio::spawn(async move { drop(connection.await) });
        let connection = OpenConnection { send, calls: Arc::default() };
        let place = connection.place();
        self.open().push(connection);
        place.ok_or_else(|| Status::internal("a new connection has no place"))
    }

    /// The status of a call whose stream or connection failed.
    pub fn status(&self, error: &hyper::Error) -> Status {
        let causes =
            std::iter::successors(std::error::Error::source(error), |error| error.source());
        let mut h2 = causes.clone().filter_map(|cause| cause.downcast_ref::<h2::Error>());
        match h2.next().and_then(|error| Some((error.is_reset(), error.reason()?))) {
            // gRPC has a code for each reason.
            Some((true, reason)) => {
                let status = Status::from_error(Box::new(h2::Error::from(reason)));
                let text = format!("the server at {} reset the call: {reason}", self.name);
                Status::new(status.code(), text)
            }
            _ => {
                let why = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
                let name = &self.name;
                Status::unavailable(format!("the connection to the server at {name} ended: {why}"))
            }
        }
    }
}
