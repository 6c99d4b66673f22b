//! The beginning of a body, read before it is forwarded, so that a short call is one RPC.
//!
//! HTTP/2 brings a unary call in several frames, and only the last one says that nothing follows.
//! If each were forwarded when it arrives, the call would take several RPCs, and the network could
//! not order it by its length. So a body is read until it ends, until a part of it cannot be the
//! whole body of a unary call, or until it pauses. A message that has begun is waited for, because
//! the other side could not use a part of it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;

/// Bytes in front of each message: a flag and its length (gRPC over HTTP/2,
/// Length-Prefixed-Message).
const PREFIX: usize = 5;

/// Longest body that is read as a whole: a message of 4 MiB, which is the default limit of gRPC's
/// libraries.
const LONGEST: usize = (4 << 20) + PREFIX;

/// Bytes of a body of several messages that are read at most.
const SEVERAL: usize = 64 << 10;

/// Memory of a proxy for long bodies that are read as a whole, KiB.
const MEMORY: usize = 256 << 10;

/// How long a body that may end soon is waited for. A timer of tokio takes up to a millisecond
/// longer.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a body of HTTP may pause before its known end. A part of it may be all that the other
/// side needs, for example to refuse an upload.
const GAP: Duration = Duration::from_millis(10);

/// When a body may pause without being forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausesAllowed {
    /// Before its first message, and after one of several frames. Clients send the end together
    /// with the last message if that is short.
    BeforeMessages,
    /// Also before its end, because servers send the status after the last message.
    BeforeEnd,
    /// Never: it is a stream.
    Never,
}

/// How a body says where its first message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// By the prefix of the message.
    Grpc,
    /// The body of any other message of HTTP is one message, whose length may be known.
    Http(Option<u64>),
}

impl BodyFraming {
    /// That of an HTTP body.
    pub fn of<B: Body>(body: &B) -> Self {
        Self::Http(body.size_hint().exact())
    }

    /// The length of the first message, if it is known before the body is read. Of a body without a
    /// length any part could be the last.
    fn first(self) -> Option<usize> {
        match self {
            Self::Grpc => None,
            Self::Http(bytes) => Some(bytes.unwrap_or(0).try_into().unwrap_or(usize::MAX)),
        }
    }
}

/// The rest of the memory for long bodies that are read as a whole. A body that does not fit is
/// forwarded in parts.
#[derive(Clone, Debug)]
pub struct GatherMemory(Arc<Semaphore>);

impl Default for GatherMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MEMORY)))
    }
}

impl GatherMemory {
    /// A share for a body, if there is one.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_many_owned(u32::try_from(bytes.div_ceil(1 << 10)).ok()?).ok()
    }
}

/// How to continue with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadNext {
    /// Wait for more.
    Wait,
    /// Wait for a pause.
    Pause,
    /// Forward the messages that have arrived.
    Stop,
}

/// Decides by the bytes that are there, and by the length of the first message with its prefix if
/// that is known.
fn read_next(bytes: usize, first: Option<usize>) -> ReadNext {
    match first {
        _ if bytes > LONGEST => ReadNext::Stop,
        None if bytes == 0 => ReadNext::Pause,
        None => ReadNext::Wait,
        Some(first) if first > LONGEST => ReadNext::Stop,
        Some(first) if bytes < first => ReadNext::Wait,
        Some(first) if bytes > first && bytes >= SEVERAL => ReadNext::Stop,
        Some(_) => ReadNext::Pause,
    }
}

/// The length of the first message with its prefix, if the prefix is there.
fn first_message(parts: &VecDeque<Bytes>) -> Option<usize> {
    let mut prefix = parts.iter().flatten().skip(1).copied();
    let mut next = || prefix.next();
    let length = u32::from_be_bytes([next()?, next()?, next()?, next()?]);
    Some(PREFIX.saturating_add(length as usize))
}

/// A body whose beginning was read.
#[derive(Debug)]
pub struct Gathered<B> {
    parts: VecDeque<Bytes>,
    rest: Unread<B>,
    _share: Option<OwnedSemaphorePermit>,
}

impl<B> Gathered<B> {
    /// The status of a body that failed before any of it was forwarded.
    pub fn unless_failed(self) -> Result<Self, Status> {
        match self.rest {
            Unread::Failed(status) => Err(status),
            rest => Ok(Self { rest, ..self }),
        }
    }
}

/// What follows the beginning.
#[derive(Debug)]
enum Unread<B> {
    Body(B),
    Trailers(HeaderMap),
    Failed(Status),
    End,
}

/// Reads the beginning of a body.
pub async fn gather<B>(
    mut body: B,
    (framing, pauses): (BodyFraming, PausesAllowed),
    memory: &GatherMemory,
) -> Gathered<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    let (mut parts, mut bytes, mut first, mut share) = (VecDeque::new(), 0, None, None);
    let (mut until, mut known) = (None, framing.first());
    let rest = loop {
        if body.is_end_stream() {
            break Unread::End;
        }
        if let Some(length) = known.take() {
            first = Some(length);
            let long = (SEVERAL..=LONGEST).contains(&length);
            share = long.then(|| memory.take(length)).flatten();
            if long && share.is_none() {
                break Unread::Body(body);
            }
        }
        let frame = match read_next(bytes, first) {
            ReadNext::Stop => None,
            ReadNext::Wait => {
                until = None;
                rest_of_message(&mut body, framing).await
            }
            ReadNext::Pause => {
                let waits = match pauses {
                    PausesAllowed::BeforeEnd => true,
                    PausesAllowed::BeforeMessages => parts.len() != 1,
                    PausesAllowed::Never => false,
                };
                // Frames that keep coming do not make the wait longer.
                match waits {
                    true => {
                        let at = *until.get_or_insert_with(|| Instant::now() + PAUSE);
                        timeout_at(at, body.frame()).await.ok()
                    }
                    false => at_once(&mut body).await,
                }
            }
        };
        let Some(frame) = frame else { break Unread::Body(body) };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                bytes += data.len();
                parts.push_back(data);
                if first.is_none() {
                    known = first_message(&parts);
                }
            }
            Some(Ok(Err(other))) => match other.into_trailers() {
                Ok(trailers) => break Unread::Trailers(trailers),
                Err(_) => continue,
            },
            Some(Err(status)) => break Unread::Failed(status),
            None => break Unread::End,
        }
    };
    let whole = matches!(rest, Unread::End | Unread::Trailers(_));
    match whole && bytes > SEVERAL {
        true => Gathered { parts: joined(parts, bytes, share), rest, _share: None },
        false => Gathered { parts, rest, _share: share },
    }
}

/// The next frame of a message that has begun, unless it is one of HTTP that pauses.
async fn rest_of_message<B>(body: &mut B, framing: BodyFraming) -> Option<NextFrame>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    match framing {
        BodyFraming::Grpc => Some(body.frame().await),
        BodyFraming::Http(_) => timeout(GAP, body.frame()).await.ok(),
    }
}

/// A frame of a body, or its end.
type NextFrame = Option<Result<Frame<Bytes>, Status>>;

/// The next frame, if it is here.
async fn at_once<B>(body: &mut B) -> Option<NextFrame>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A long body, with its share of the memory for those. It is dropped when the engine has delivered
/// it.
struct WholeBody {
    bytes: BytesMut,
    _share: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for WholeBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One part, because homa-tonic sends at most a window of parts at once, but any part as a whole.
fn joined(
    parts: VecDeque<Bytes>,
    length: usize,
    share: Option<OwnedSemaphorePermit>,
) -> VecDeque<Bytes> {
    let mut bytes = BytesMut::with_capacity(length);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    VecDeque::from([Bytes::from_owner(WholeBody { bytes, _share: share })])
}

impl<B> Body for Gathered<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Unread::Body(body) = &mut self.rest {
            return Pin::new(body).poll_frame(context);
        }
        Poll::Ready(match std::mem::replace(&mut self.rest, Unread::End) {
            Unread::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            Unread::Failed(status) => Some(Err(status)),
            Unread::Body(_) | Unread::End => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        let ended = match &self.rest {
            Unread::Body(body) => body.is_end_stream(),
            Unread::Trailers(_) | Unread::Failed(_) => false,
            Unread::End => true,
        };
        self.parts.is_empty() && ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_has_begun_is_waited_for() {
        assert_eq!(
            read_next(0, None),
            ReadNext::Pause,
            "a client may wait for the response's head"
        );
        assert_eq!(read_next(3, None), ReadNext::Wait);
        assert_eq!(read_next(99, Some(100)), ReadNext::Wait);
        assert_eq!(read_next(100, Some(100)), ReadNext::Pause, "is it all?");
        assert_eq!(read_next(1 << 20, Some(1 << 20)), ReadNext::Pause);
        assert_eq!(read_next(120, Some(100)), ReadNext::Pause);
        assert_eq!(read_next(SEVERAL, Some(100)), ReadNext::Stop);
        assert_eq!(read_next(5, Some(LONGEST + 1)), ReadNext::Stop, "it is forwarded in parts");
        assert_eq!(read_next(LONGEST, Some(LONGEST)), ReadNext::Pause);
        assert_eq!(read_next(LONGEST + 1, Some(LONGEST)), ReadNext::Stop);
    }

    #[tokio::test]
    async fn long_bodies_are_whole_while_there_is_memory_for_them() {
        let body = || {
            let mut message = vec![0; 100_000];
            message[1..PREFIX].copy_from_slice(&(100_000 - PREFIX as u32).to_be_bytes());
            let frames = [Bytes::from(message.split_off(60_000)), Bytes::from(message)];
            let frames = frames.into_iter().rev().map(|bytes| Ok(Frame::data(bytes)));
            http_body_util::StreamBody::new(tokio_stream::iter(frames))
        };
        let memory = GatherMemory(Arc::new(Semaphore::new(100)));
        let mut first = gather(body(), (BodyFraming::Grpc, PausesAllowed::Never), &memory).await;
        let mut second = gather(body(), (BodyFraming::Grpc, PausesAllowed::Never), &memory).await;
        let length = |frame: Option<Result<Frame<Bytes>, Status>>| {
            frame.unwrap().unwrap().into_data().unwrap().len()
        };
        let held = first.frame().await;
        drop(first);
        assert_eq!(length(second.frame().await), 60_000, "the engine still has the first");
        assert_eq!(length(second.frame().await), 40_000);
        assert_eq!(length(held), 100_000);
        drop(second);
        let mut third = gather(body(), (BodyFraming::Grpc, PausesAllowed::Never), &memory).await;
        assert_eq!(length(third.frame().await), 100_000);
    }

    /// Without one end for all pauses, 64 KiB of such messages would be waited for.
    #[tokio::test]
    async fn messages_that_keep_coming_are_forwarded_after_one_pause() {
        let message = Bytes::from_static(&[0, 0, 0, 0, 3, 1, 2, 3]);
        let frames = tokio_stream::iter(std::iter::repeat_n(message, 1_000));
        let paced = tokio_stream::StreamExt::then(frames, |bytes| async {
            tokio::time::sleep(PAUSE / 2).await;
            Ok(Frame::data(bytes))
        });
        let body = http_body_util::StreamBody::new(Box::pin(paced));
        let gathered =
            gather(body, (BodyFraming::Grpc, PausesAllowed::BeforeEnd), &GatherMemory::default())
                .await;
        assert!(gathered.parts.len() < 100, "{} of 1,000", gathered.parts.len());
    }

    #[test]
    fn the_length_of_a_message_may_be_divided_between_parts() {
        let parts = |parts: &[&'static [u8]]| {
            first_message(&parts.iter().map(|part| Bytes::from_static(part)).collect())
        };
        assert_eq!(parts(&[&[0, 0, 0], &[1, 2, 9]]), Some(5 + 258));
        assert_eq!(parts(&[&[0, 0, 0], &[], &[1]]), None);
        assert_eq!(parts(&[&[1, 255, 255, 255, 255]]), Some(5 + u32::MAX as usize));
    }
}
