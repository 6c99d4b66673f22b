//! The client's half of a response: takes it from the answers to the opening RPC and to pulls.
//!
//! One RPC of a call is outstanding until the response ends: the opening, then pull after pull. The
//! next pull leaves when an answer is taken, so that at most two windows of bytes wait for a reader
//! that is slow, and the server writes no more than those.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use homa::{CallError, Message};
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::channel::{CallLimit, Destination};
use crate::push::Pump;
use crate::status;
use crate::wire::{Answer, CallNumber, ClientMessage, Part};

/// Bytes of a response for which the client has room.
pub(crate) const WINDOW: u32 = 64 << 10;

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Pulls {
    target: Destination,
    number: CallNumber,
    limit: CallLimit,
    pump: Option<Pump>,
    /// Pulls so far.
    sequence: u32,
    /// Whether the server may hold the call beyond its current RPC.
    held: bool,
}

impl Pulls {
    pub(crate) fn new(
        target: Destination,
        number: CallNumber,
        limit: CallLimit,
        pump: Option<Pump>,
    ) -> Self {
        Self { target, number, limit, pump, sequence: 0, held: true }
    }

    /// Sends the opening and waits for its answer, or for the status of a request body that fails.
    pub(crate) async fn open(
        mut self,
        opening: Vec<Bytes>,
    ) -> Result<(Self, Result<Part, Status>), CallError> {
        let call = self.target.start(&opening, &self.limit);
        let part = self.exchange(call, &opening).await;
        if part.is_err() {
            self.held = self.pump.is_some();
        }
        let part = part?;
        self.limit.options.idempotent = false;
        Ok((self, part))
    }

    /// Waits for the head of the response.
    pub(crate) async fn response(mut self, mut part: Part) -> Result<http::Response<Body>, Status> {
        while part.head.is_none() {
            if part.end.is_some() || !part.body.is_empty() {
                return Err(status::malformed("a response without a head"));
            }
            let (call, message) = self.pull();
            part = self.answer(call, &message).await?;
        }
        let (code, headers) = part.head.take().unwrap_or_default();
        let body = Body::new(PulledBody::new(self, part));
        Ok(response(code, headers, body))
    }

    /// Begins the next pull.
    fn pull(&mut self) -> (homa::Call, Vec<Bytes>) {
        let pull =
            ClientMessage::Pull { number: self.number, sequence: self.sequence, window: WINDOW };
        self.sequence += 1;
        let message = pull.encode().unwrap_or_default();
        (self.target.start(&message, &self.limit), message)
    }

    /// Waits for an answer.
    async fn answer(&mut self, call: homa::Call, message: &[Bytes]) -> Result<Part, Status> {
        let answer = self.exchange(call, message).await;
        answer.unwrap_or_else(|error| Err(self.limit.status(error)))
    }

    /// Waits for an answer, or for the status of a request body that fails.
    async fn exchange(
        &mut self,
        call: homa::Call,
        message: &[Bytes],
    ) -> Result<Result<Part, Status>, CallError> {
        let finish = self.target.finish(call, message, &self.limit);
        let answer = match &mut self.pump {
            None => finish.await?,
            Some(pump) => tokio::select! {
                answer = finish => answer?,
                status = pump.failed() => return Ok(Err(status)),
            },
        };
        Ok(self.part(answer))
    }

    fn part(&mut self, answer: Message) -> Result<Part, Status> {
        match Answer::decode(answer.into_bytes()).map_err(status::malformed)? {
            Answer::Part(part) => {
                self.held = part.end.is_none();
                Ok(part)
            }
            Answer::Unknown => {
                self.held = false;
                Err(Status::unavailable(
                    "the server no longer has this call: it restarted, or nothing was read for \
                     ten minutes",
                ))
            }
            Answer::Refused => Err(Status::unimplemented(
                "the server does not speak this version of gRPC over Homa: update the older end",
            )),
            _ => Err(status::malformed("an answer to a push")),
        }
    }

    /// The next pull as a future that owns the call.
    fn next(mut self) -> NextPart {
        let (call, message) = self.pull();
        Box::pin(async move {
            let part = self.answer(call, &message).await;
            (self, part)
        })
    }
}

impl Drop for Pulls {
    /// Tells the server that the rest is not wanted.
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        // Without a runtime the process ends; then the server notices the silence.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (target, limit, number) = (self.target.clone(), self.limit, self.number);
        runtime.spawn(async move {
            let reset = ClientMessage::Reset { number }.encode().unwrap_or_default();
            let _ = target.finish(target.start(&reset, &limit), &reset, &limit).await;
        });
    }
}

type NextPart = Pin<Box<dyn Future<Output = (Pulls, Result<Part, Status>)> + Send>>;

/// A response of the given parts.
fn response(code: StatusCode, headers: HeaderMap, body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    *response.headers_mut() = headers;
    response
}

/// The body of a response.
struct PulledBody {
    /// Bytes that are here.
    data: VecDeque<Bytes>,
    rest: Rest,
}

/// What follows the bytes that are here.
enum Rest {
    Pulling(NextPart),
    Trailers(HeaderMap),
    End,
}

impl PulledBody {
    fn new(mut pulls: Pulls, part: Part) -> Self {
        let Part { end, body, .. } = part;
        let rest = match end {
            Some(trailers) => {
                pulls.pump = None;
                // A status without messages stands in the head. A proxy to HTTP/2 has to
                // see at once that nothing follows, because it then ends the stream with the head.
                if trailers.is_empty() { Rest::End } else { Rest::Trailers(trailers) }
            }
            None => Rest::Pulling(pulls.next()),
        };
        Self { data: body.into(), rest }
    }
}

impl http_body::Body for PulledBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(data) = self.data.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            match std::mem::replace(&mut self.rest, Rest::End) {
                Rest::Pulling(mut next) => {
                    let Poll::Ready((pulls, part)) = next.as_mut().poll(context) else {
                        self.rest = Rest::Pulling(next);
                        return Poll::Pending;
                    };
                    match part {
                        Ok(part) => *self = Self::new(pulls, part),
                        Err(status) => return Poll::Ready(Some(Err(status))),
                    }
                }
                Rest::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Rest::End => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && matches!(self.rest, Rest::End)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
