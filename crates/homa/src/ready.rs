//! Waiting until a call or a reply would be accepted.

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
    /// The shard at which it waits.
    waits_at: Option<Engine>,
    ticket: Option<u64>,
}

impl<'a> Ready<'a> {
    /// Waits for a call with a request of `bytes` bytes, or of any length if `None`.
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

/// Checks the capacity for a call, and registers the task if there is not enough. `ticket`
/// identifies the registration between polls.
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
    // A request that is too long is refused when it is submitted, so it need not wait.
    let waiter = CapacityWaiter::Call { bytes: bytes.min(access.core.longest()) };
    if access.core.capacity(waiter, (0, 0)) == Capacity::Enough {
        return Poll::Ready(Ok(()));
    }
    drop(access);
    *ticket = wait(engine, waiter, context);
    Poll::Pending
}

/// Registers a task. Capacity may have become free just before, so it is offered at once.
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

/// Removes a registration, and offers the free capacity to the next waiter.
pub(crate) fn leave(engine: &Engine, ticket: &mut Option<u64>) {
    if let Some(ticket) = ticket.take()
        && let Some(mut access) = engine.here()
    {
        access.waiters.leave_capacity(ticket);
        let state = &mut *access;
        state.waiters.offer_capacity(&state.core);
    }
}
