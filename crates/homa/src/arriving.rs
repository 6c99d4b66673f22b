//! Reading a request while it arrives.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use homa_proto::RpcHandle;

use crate::engine::wait::shared::SharedState;
use crate::engine::wait::waiters::WakeTarget;
use crate::error::RequestError;
use crate::message::Message;
use crate::request::Request;

impl Request {
    /// Bytes in the whole request, also if it is still arriving ([`Server::early`]).
    ///
    /// [`Server::early`]: crate::Server::early
    pub fn total_len(&self) -> usize {
        self.total
    }

    /// Takes the bytes that have arrived since the last call, and blocks until there are some.
    /// `None` once all were taken. A request that was accepted whole is one piece. The client may
    /// send about as many more bytes as were taken, so the request uses little memory, however slow
    /// its reader is ([`Server::early`]). You may [`reply`](Self::reply) before the end: the rest
    /// is then not sent.
    ///
    /// # Errors
    /// [`RequestError`] if the rest will not come. What was taken before may be wrong or
    /// incomplete, for example a part of a file, and the client does not know whether the request
    /// was executed.
    ///
    /// [`Server::early`]: crate::Server::early
    pub fn arrived(&mut self) -> Result<Option<Message>, RequestError> {
        let Some(rpc) = self.reading() else { return self.last_piece() };
        let until = self.until;
        let Some(mut access) = self.engine.here() else { return Err(RequestError::Forked) };
        let mut ticket = None;
        let piece = access.block(self.deadline, |state| {
            if let Some(ticket) = ticket.take() {
                state.waiters.leave_watch(rpc, ticket);
            }
            let piece = state.next_piece(rpc);
            if piece.is_none() {
                let waiting = WakeTarget::Thread(thread::current());
                ticket = Some(state.waiters.watch().wait(rpc, until, waiting));
            }
            piece
        });
        if let Some(ticket) = ticket {
            access.waiters.leave_watch(rpc, ticket);
        }
        access.accepted();
        drop(access);
        self.took(piece.unwrap_or(Err(RequestError::DeadlineExceeded)))
    }

    /// As [`Self::arrived`], as a future.
    ///
    /// ```
    /// # use homa::{Request, RequestError};
    /// # #[allow(dead_code)]
    /// async fn checksum(request: &mut Request) -> Result<u32, RequestError> {
    ///     let mut sum = 0u32;
    ///     while let Some(bytes) = request.arrived_async().await? {
    ///         sum = bytes.iter().fold(sum, |sum, &byte| sum.wrapping_add(byte.into()));
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn arrived_async(&mut self) -> ArrivedRequest<'_> {
        ArrivedRequest { request: self, ticket: None }
    }

    /// The RPC, if more of the request has to come.
    fn reading(&self) -> Option<RpcHandle> {
        self.rpc.filter(|_| self.arriving)
    }

    /// The bytes of a request that was accepted whole, once.
    fn last_piece(&mut self) -> Result<Option<Message>, RequestError> {
        Ok(Some(self.take_bytes()).filter(|bytes| !bytes.is_empty()))
    }

    /// Notes that the last piece was taken.
    fn took(
        &mut self,
        piece: Result<(Message, bool), RequestError>,
    ) -> Result<Option<Message>, RequestError> {
        let (bytes, last) = piece?;
        self.arriving = !last;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl SharedState {
    /// The next bytes of a request that is arriving, and whether they are the last; `None` if they
    /// have not come yet.
    fn next_piece(&mut self, rpc: RpcHandle) -> Option<Result<(Message, bool), RequestError>> {
        match self.core.take_arrived(rpc) {
            Some(bytes) => Some(Ok((bytes, false))),
            None => Some(self.waiters.rest(rpc)?.map(|bytes| (bytes, true))),
        }
    }
}

/// The future of [`Request::arrived_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ArrivedRequest<'a> {
    request: &'a mut Request,
    ticket: Option<u64>,
}

impl Future for ArrivedRequest<'_> {
    type Output = Result<Option<Message>, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { request, ticket } = &mut *self;
        let Some(rpc) = request.reading() else { return Poll::Ready(request.last_piece()) };
        let Some(mut access) = request.engine.here() else {
            return Poll::Ready(Err(RequestError::Forked));
        };
        if let Some(ticket) = ticket.take() {
            access.waiters.leave_watch(rpc, ticket);
        }
        let piece = access.next_piece(rpc);
        let late = request.remaining().is_some_and(|left| left.is_zero());
        let Some(piece) = piece.or(late.then_some(Err(RequestError::DeadlineExceeded))) else {
            let waiting = WakeTarget::Task(context.waker().clone());
            *ticket = Some(access.waiters.watch().wait(rpc, request.until, waiting));
            access.watched();
            return Poll::Pending;
        };
        access.accepted();
        drop(access);
        Poll::Ready(request.took(piece))
    }
}

impl Drop for ArrivedRequest<'_> {
    fn drop(&mut self) {
        if let (Some(rpc), Some(ticket)) = (self.request.rpc, self.ticket.take())
            && let Some(mut access) = self.request.engine.here()
        {
            access.waiters.leave_watch(rpc, ticket);
        }
    }
}
