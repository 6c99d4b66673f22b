//! The client's half of a streaming request: pushes the request body in parts, one after another,
//! each as soon as the server has taken the one before, so that a slow service delays the writer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::body::Body;

use crate::channel::{CallLimit, Destination};
use crate::status;
use crate::wire::{Answer, CallNumber, ClientMessage};

/// Bytes after which a part is sent although the body has more at once.
const PART: usize = 64 << 10;

/// The same of a first part, which may be a whole unary request.
const FIRST_PART: usize = 4 << 20;

/// How long a push that arrives before its call is repeated.
const OVERTAKES: Duration = Duration::from_secs(10);

/// What a body has without waiting, and whether that is all.
pub(crate) async fn at_once(body: &mut Body) -> Result<(Vec<Bytes>, bool), Status> {
    let mut part = Vec::new();
    poll_fn(|context| match poll_part(body, context, &mut part, FIRST_PART) {
        Poll::Ready(complete) => {
            Poll::Ready(complete.map(|complete| (part.split_off(0), complete)))
        }
        Poll::Pending => Poll::Ready(Ok((part.split_off(0), false))),
    })
    .await
}

/// Waits until a body has something, and returns what it has then, and whether that is the rest.
async fn next(body: &mut Body) -> Result<(Vec<Bytes>, bool), Status> {
    let mut part = Vec::new();
    poll_fn(|context| match poll_part(body, context, &mut part, PART) {
        Poll::Ready(complete) => {
            Poll::Ready(complete.map(|complete| (part.split_off(0), complete)))
        }
        Poll::Pending if part.is_empty() => Poll::Pending,
        Poll::Pending => Poll::Ready(Ok((part.split_off(0), false))),
    })
    .await
}

/// Adds to `part` what the body has, up to `most` bytes and a frame. Ready with true at its end.
fn poll_part(
    body: &mut Body,
    context: &mut Context<'_>,
    part: &mut Vec<Bytes>,
    most: usize,
) -> Poll<Result<bool, Status>> {
    let (mut bytes, mut full) = (0, false);
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(context)) {
            // Clients have no trailers.
            Some(Ok(frame)) => {
                part.extend(frame.into_data().ok().inspect(|data| bytes += data.len()));
                if full {
                    return Poll::Ready(Ok(false));
                }
                // One more frame is taken, because the end may follow at once.
                full = bytes >= most;
            }
            Some(Err(status)) => return Poll::Ready(Err(status)),
            None => return Poll::Ready(Ok(true)),
        }
    }
}

/// The task that pushes, until it has ended; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Pump(Option<JoinHandle<Result<(), Status>>>);

impl Pump {
    pub(crate) fn start(
        target: Destination,
        number: CallNumber,
        body: Body,
        limit: CallLimit,
    ) -> Self {
        Self(Some(tokio::spawn(push(target, number, body, limit))))
    }

    /// Resolves if the request body fails, and never otherwise.
    pub(crate) async fn failed(&mut self) -> Status {
        if let Some(task) = &mut self.0 {
            let ended = task.await;
            self.0 = None;
            if let Ok(Err(status)) = ended {
                return status;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn push(
    target: Destination,
    number: CallNumber,
    mut body: Body,
    limit: CallLimit,
) -> Result<(), Status> {
    let mut sequence = 0;
    loop {
        let (part, complete) = next(&mut body).await?;
        let mut pieces = pieces(part).peekable();
        while let Some(piece) = pieces.next() {
            let complete = complete && pieces.peek().is_none();
            let push = ClientMessage::Push { number, sequence, complete, body: piece };
            let message = push.encode().unwrap_or_default();
            if push_one(&target, &message, &limit).await? == Pushed::Unwanted || complete {
                return Ok(());
            }
            sequence += 1;
        }
    }
}

/// A part in pieces of at most [`PART`] bytes; an empty part is one empty piece.
fn pieces(part: Vec<Bytes>) -> impl Iterator<Item = Vec<Bytes>> {
    let small = part.iter().map(Bytes::len).sum::<usize>() <= PART;
    let whole = small.then(|| part.clone());
    let cut = move |mut bytes: Bytes| {
        std::iter::from_fn(move || {
            (!bytes.is_empty()).then(|| vec![bytes.split_to(bytes.len().min(PART))])
        })
    };
    let cut = part.into_iter().filter(move |_| !small).flat_map(cut);
    whole.into_iter().chain(cut)
}

#[derive(PartialEq, Eq)]
enum Pushed {
    Taken,
    Unwanted,
}

/// Pushes one part until the server has taken it or wants no more.
async fn push_one(
    target: &Destination,
    message: &[Bytes],
    limit: &CallLimit,
) -> Result<Pushed, Status> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let answer = target.finish(target.start(message, limit), message, limit).await;
        let answer = answer.map_err(|error| limit.status(error))?;
        match Answer::decode(answer.into_bytes()).map_err(status::malformed)? {
            Answer::Part(_) => return Ok(Pushed::Taken),
            Answer::Later => {}
            // The push may have overtaken the opening, which can be longer. If the call has ended
            // instead, the opening's answer says so, and drops this task.
            Answer::Unknown if began.elapsed() < OVERTAKES => {
                sleep(pause).await;
                pause = (2 * pause).min(Duration::from_millis(100));
            }
            Answer::Unknown | Answer::Closed => return Ok(Pushed::Unwanted),
            Answer::Refused => return Err(status::malformed("the server refused a push")),
        }
    }
}
