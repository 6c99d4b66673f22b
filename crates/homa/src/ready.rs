//! Waiting for room: for one more call, or for the bytes of a reply.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::core::limits::{Capacity, CapacityWaiter};
use crate::error::CallError;

/// The future of [`Client::ready`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Ready<'a> {
    client: &'a Client,
    bytes: u32,
    /// Where it waits, of engines that share an address.
    waits_at: Option<Engine>,
    ticket: Option<u64>,
}

impl<'a> Ready<'a> {
    /// Room for a call with a request of so many bytes; as long as any, if `None`.
    pub(crate) fn new(client: &'a Client, bytes: Option<usize>) -> Self {
        let bytes = bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Self { client, bytes, waits_at: None, ticket: None }
    }
}

impl Future for Ready<'_> {
    type Output = Result<(), CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave();
        let (client, bytes) = (self.client, self.bytes);
        for engine in client.engine().shards() {
            match poll(&engine, bytes, &mut self.ticket, context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.waits_at = Some(engine);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Ready<'_> {
    fn leave(&mut self) {
        if let Some(engine) = self.waits_at.take() {
            leave(&engine, &mut self.ticket);
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Looks for room for a call; `ticket` is kept between looks.
pub(crate) fn poll(
    engine: &Engine,
    bytes: u32,
    ticket: &mut Option<u64>,
    context: &mut Context<'_>,
) -> Poll<Result<(), CallError>> {
    leave(engine, ticket);
    let Some(access) = engine.here() else { return Poll::Ready(Err(CallError::Forked)) };
    if access.draining {
        return Poll::Ready(Err(CallError::ShuttingDown));
    }
    // What is too long is refused as such.
    let waiter = CapacityWaiter::Call { bytes: bytes.min(access.core.longest()) };
    if access.core.capacity(waiter, (0, 0)) == Capacity::Enough {
        return Poll::Ready(Ok(()));
    }
    drop(access);
    *ticket = wait(engine, waiter, context);
    Poll::Pending
}

/// Waits for room, which may just have come.
pub(crate) fn wait(
    engine: &Engine,
    waiter: CapacityWaiter,
    context: &mut Context<'_>,
) -> Option<u64> {
    let mut access = engine.here()?;
    let ticket = access.waiters.capacity().wait(waiter, context.waker().clone());
    let state = &mut *access;
    state.waiters.offer_capacity(&state.core);
    access.need_leader();
    Some(ticket)
}

/// Waits no longer; what room there is is for the next.
pub(crate) fn leave(engine: &Engine, ticket: &mut Option<u64>) {
    if let Some(ticket) = ticket.take()
        && let Some(mut access) = engine.here()
    {
        access.waiters.leave_capacity(ticket);
        let state = &mut *access;
        state.waiters.offer_capacity(&state.core);
    }
}
