//! One call at the server: runs its service, and answers the opening and the pulls with what the
//! service has written.
//!
//! Invariants: the service's response body is read only while an RPC waits for it, so that a slow
//! client delays the service. A call whose client cancels an RPC, resets it, or asks nothing for
//! ten minutes is dropped, with its service's future.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa::{RefusedReply, ReplyError};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use http_body::Body as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt;

use crate::channel::HOLD;
use crate::inbound::InboundBody;
use crate::serve::{Pull, Registration, Session, SessionKey, Sessions, first};
use crate::server::Layered;
use crate::timeout;
use crate::wire::{Answer, Open, Part};

/// How long a call waits for the next pull of its client. An engaged client has one outstanding at
/// all times, unless its reader is slow.
const UNREAD: Duration = Duration::from_secs(600);

/// Runs a call to its end.
pub(crate) async fn run(
    service: Layered,
    (open, room): (Open, Option<OwnedSemaphorePermit>),
    request: homa::Request,
    sessions: Arc<Sessions>,
    limit: Option<Duration>,
) {
    let key = (request.from().ip(), open.number);
    let window = open.window;
    let limit = timeout::of(&open.headers).into_iter().chain(limit).min();
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (push, pushes) = if open.complete {
        (None, None)
    } else {
        // One part waits for the service here, and the next one with its RPC.
        let (push, pushes) = mpsc::channel(1);
        (Some(push), Some(pushes))
    };
    let (pull, pulls) = mpsc::channel(1);
    let mut call = InProgress {
        key,
        until,
        output: ServiceOutput::new(respond(
            service,
            http_request((open, room), pushes, &request, until),
        )),
        session: Arc::new(Session::new(push, pull)),
        sessions,
        registered: None,
        pulls,
    };
    if call.session.takes_pushes() && !call.register() {
        return refuse(request, call.sessions.refusal(false), true).await;
    }
    call.answer_all(request, window).await;
}

type Responding = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;

fn respond(service: Layered, request: http::Request<Body>) -> Responding {
    Box::pin(async move {
        // A layer may refuse a request, for example because of its limit of concurrency.
        let response = service.oneshot(request).await;
        response.unwrap_or_else(|error| Status::from_error(error).into_http())
    })
}

/// The request that the service sees.
fn http_request(
    (open, room): (Open, Option<OwnedSemaphorePermit>),
    pushes: Option<mpsc::Receiver<crate::inbound::Pushed>>,
    request: &homa::Request,
    until: Option<Instant>,
) -> http::Request<Body> {
    let Open { method, path, headers, body, .. } = open;
    let body = Body::new(InboundBody::new((first(body), room), pushes));
    let mut seen = http::Request::new(body);
    *seen.method_mut() = method;
    *seen.version_mut() = Version::HTTP_2;
    *seen.headers_mut() = headers;
    *seen.uri_mut() = path.into();
    if let Some(until) = until {
        let left = until.saturating_duration_since(Instant::now());
        seen.headers_mut().insert(timeout::NAME, timeout::header(left));
    }
    if let Some(trace) = request.trace_context()
        && let Ok(trace) = HeaderValue::try_from(trace.to_string())
    {
        seen.headers_mut().insert("traceparent", trace);
    }
    seen.extensions_mut().insert(request.from());
    seen
}

struct InProgress {
    key: SessionKey,
    until: Option<Instant>,
    output: ServiceOutput,
    session: Arc<Session>,
    sessions: Arc<Sessions>,
    registered: Option<Registration>,
    pulls: mpsc::Receiver<Box<Pull>>,
}

/// What became of an RPC that waits for output.
enum Step {
    Part(Box<Part>),
    /// There is nothing yet, and the client should ask again.
    Nothing,
    /// The call's time is over.
    Late,
    /// The client wants no more.
    Abandoned,
}

impl InProgress {
    /// Makes the call known to later RPCs. False if there are too many calls.
    fn register(&mut self) -> bool {
        if self.registered.is_none() {
            self.registered = self.sessions.register(self.key, self.session.clone());
        }
        self.registered.is_some()
    }

    /// Answers the opening, then pulls, until the response has ended.
    async fn answer_all(mut self, mut request: homa::Request, mut window: u32) {
        for pulled in 0.. {
            let headless = !self.output.head_was_sent;
            let part = match self.step(&request, window).await {
                Step::Part(part) => *part,
                Step::Nothing => Part::default(),
                Step::Late => {
                    let late = Status::deadline_exceeded("the call's time is over");
                    return refuse(request, late, headless).await;
                }
                Step::Abandoned => return,
            };
            let ends = part.end.is_some();
            if !ends && !self.register() {
                return refuse(request, self.sessions.refusal(true), headless).await;
            }
            if !send(request, part, headless).await || ends {
                return;
            }
            let next = tokio::select! {
                next = self.pulls.recv() => next,
                () = self.session.reset.notified() => None,
                () = sleep(UNREAD) => None,
            };
            match next {
                Some(pull) if pull.sequence == pulled => {
                    (request, window) = (pull.request, pull.window);
                }
                // A pull out of turn is a fault of the client.
                Some(pull) => return crate::serve::reply(pull.request, Answer::Refused).await,
                None => return,
            }
        }
    }

    /// Waits for output while an RPC waits for it.
    async fn step(&mut self, request: &homa::Request, window: u32) -> Step {
        let ready = poll_fn(|context| Poll::Ready(self.output.poll_next(window as usize, context)));
        if let Poll::Ready(part) = ready.await {
            return Step::Part(Box::new(part));
        }
        // The answer to an opening usually comes soon; a stream may stay silent.
        if self.registered.is_some() {
            request.announce_delay(HOLD);
        }
        let hold = Instant::now() + HOLD;
        let until = self.until.map_or(hold, |until| until.min(hold));
        let reset: &Notify = &self.session.reset;
        tokio::select! {
            biased;
            part = self.output.next(window as usize) => Step::Part(Box::new(part)),
            () = request.cancelled() => Step::Abandoned,
            () = reset.notified() => Step::Abandoned,
            () = sleep_until(until) => if until < hold { Step::Late } else { Step::Nothing },
        }
    }
}

/// Ends a call by a status that the service did not write.
async fn refuse(request: homa::Request, status: Status, headless: bool) {
    crate::serve::reply(request, ended(status, headless)).await;
}

/// Sends a part of a response. False if the client is gone or the part was too long.
async fn send(request: homa::Request, part: Part, headless: bool) -> bool {
    let Some(message) = Answer::Part(part).encode() else {
        let status = Status::resource_exhausted("the metadata of the response is too long");
        crate::serve::reply(request, ended(status, headless)).await;
        return false;
    };
    match request.reply_async(message).await {
        Ok(()) => true,
        Err(refused) => {
            let RefusedReply { error, request, .. } = *refused;
            if let ReplyError::MessageTooLong { .. } = &error {
                let status = Status::resource_exhausted(error.to_string());
                crate::serve::reply(request, ended(status, headless)).await;
            }
            false
        }
    }
}

/// The message that ends a call with a status that the service did not write.
pub(crate) fn ended(status: Status, headless: bool) -> Answer {
    let (mut trailers, mut headers) = (HeaderMap::new(), HeaderMap::new());
    let _ = status.add_header(&mut trailers);
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let head = headless.then_some((StatusCode::OK, headers));
    Answer::Part(Part { head, end: Some(trailers), body: Vec::new() })
}

/// What the service writes.
struct ServiceOutput {
    stage: Stage,
    head: Option<(StatusCode, HeaderMap)>,
    head_was_sent: bool,
    body: Vec<Bytes>,
    bytes: usize,
    /// A message that was taken to see whether the response ends, for the next part.
    ahead: Option<Bytes>,
    end: Option<HeaderMap>,
}

enum Stage {
    Responding(Responding),
    Body(Body),
    Done,
}

impl ServiceOutput {
    fn new(responding: Responding) -> Self {
        let stage = Stage::Responding(responding);
        Self {
            stage,
            head: None,
            head_was_sent: false,
            body: Vec::new(),
            bytes: 0,
            ahead: None,
            end: None,
        }
    }

    /// Waits until there is something, and takes it. Nothing is lost if the future is dropped.
    async fn next(&mut self, window: usize) -> Part {
        poll_fn(|context| self.poll_next(window, context)).await
    }

    fn poll_next(&mut self, window: usize, context: &mut Context<'_>) -> Poll<Part> {
        self.gather(window, context);
        if self.head.is_none() && self.body.is_empty() && self.end.is_none() {
            return Poll::Pending;
        }
        self.bytes = 0;
        self.head_was_sent |= self.head.is_some();
        let body = std::mem::take(&mut self.body);
        Poll::Ready(Part { head: self.head.take(), end: self.end.take(), body })
    }

    /// Polls the service until it has nothing more at once, or the window is full.
    fn gather(&mut self, window: usize, context: &mut Context<'_>) {
        if let Some(data) = self.ahead.take() {
            self.add(data);
        }
        loop {
            match &mut self.stage {
                Stage::Responding(responding) => {
                    let Poll::Ready(response) = responding.as_mut().poll(context) else { return };
                    let (parts, body) = response.into_parts();
                    self.head = Some((parts.status, parts.headers));
                    self.stage = Stage::Body(body);
                }
                Stage::Body(_) if self.ahead.is_some() => return,
                Stage::Body(body) => {
                    let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else { return };
                    self.take(frame, window);
                }
                Stage::Done => return,
            }
        }
    }

    fn add(&mut self, data: Bytes) {
        self.bytes += data.len();
        self.body.push(data);
    }

    fn take(&mut self, frame: Option<Result<http_body::Frame<Bytes>, Status>>, window: usize) {
        let trailers = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                // At least one frame leaves, even if the client says that it has no room. Behind a
                // full window one more is taken, because the end of a unary response would
                // otherwise need a PULL of its own.
                Ok(data) if self.bytes >= window.max(1) => {
                    self.ahead = Some(data);
                    return;
                }
                Ok(data) => return self.add(data),
                Err(frame) => frame.into_trailers().unwrap_or_default(),
            },
            Some(Err(status)) => {
                let mut trailers = HeaderMap::new();
                let _ = status.add_header(&mut trailers);
                trailers
            }
            // A status without messages stands in the head.
            None => HeaderMap::new(),
        };
        (self.end, self.stage) = (Some(trailers), Stage::Done);
    }
}
