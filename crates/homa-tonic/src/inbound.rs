//! The request body at the server: what the opening brought, then what is pushed.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::Status;

/// A part of a request body.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) body: Bytes,
    /// Whether it is the last one.
    pub(crate) complete: bool,
    /// Its share of the memory for bodies that are not read.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// A request body. Reading it makes room for the next push.
#[derive(Debug)]
pub(crate) struct InboundBody {
    first: Option<Bytes>,
    /// The share of `first` of the memory for bodies that are not read.
    room: Option<OwnedSemaphorePermit>,
    /// `None` after the last part.
    rest: Option<mpsc::Receiver<Pushed>>,
}

impl InboundBody {
    /// A body that begins with `first` and ends with it if there is no `rest`.
    pub(crate) fn new(
        (first, room): (Option<Bytes>, Option<OwnedSemaphorePermit>),
        rest: Option<mpsc::Receiver<Pushed>>,
    ) -> Self {
        Self { first, room, rest }
    }
}

impl http_body::Body for InboundBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(data) = self.first.take() {
                self.room = None;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
            match std::task::ready!(rest.poll_recv(context)) {
                Some(Pushed { body, complete, room }) => {
                    self.room = room;
                    if complete {
                        self.rest = None;
                    }
                    self.first = Some(body).filter(|body| !body.is_empty());
                }
                None => {
                    self.rest = None;
                    let gone = Status::cancelled("the client ended the call");
                    return Poll::Ready(Some(Err(gone)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.first, &self.rest) {
            (first, None) => SizeHint::with_exact(first.as_ref().map_or(0, Bytes::len) as u64),
            _ => SizeHint::default(),
        }
    }
}
