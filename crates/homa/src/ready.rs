//! Waiting until a call or a reply would be accepted.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::core::canonical;
use crate::engine::core::limits::{Capacity, CapacityWaiter, Promised};
use crate::error::CallError;

/// The future of [`Client::ready`], [`Client::ready_for`] and [`Client::ready_to`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Ready<'a> {
    client: &'a Client,
    to: Option<SocketAddr>,
    bytes: u32,
    /// The shard at which it waits.
    waits_at: Option<Engine>,
    ticket: Option<u64>,
}

impl<'a> Ready<'a> {
    /// Waits for a call to a server, or any if `None`, with a request of `bytes` bytes, or of any
    /// length if `None`.
    pub(crate) fn new(client: &'a Client, to: Option<SocketAddr>, bytes: Option<usize>) -> Self {
        let bytes = bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Self { client, to, bytes, waits_at: None, ticket: None }
    }

    fn poll_at(
        &mut self,
        engine: Engine,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        let polled = poll(self.client, &engine, self.to, self.bytes, &mut self.ticket, context);
        self.waits_at = polled.is_pending().then_some(engine);
        polled
    }
}

impl Future for Ready<'_> {
    type Output = Result<(), CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave();
        let engine = self.client.engine();
        if let Some(to) = self.to {
            return self.poll_at(engine.towards(to).into_owned(), context);
        }
        for engine in engine.shards() {
            match self.poll_at(engine, context) {
                Poll::Ready(Ok(())) => {}
                ended_or_pending => return ended_or_pending,
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

/// Checks the capacity for a call, to a server if it is known, and registers the task if there is
/// not enough. `ticket` identifies the registration between polls.
pub(crate) fn poll(
    client: &Client,
    engine: &Engine,
    to: Option<SocketAddr>,
    bytes: u32,
    ticket: &mut Option<u64>,
    context: &mut Context<'_>,
) -> Poll<Result<(), CallError>> {
    leave(engine, ticket);
    let Some(access) = engine.here() else { return Poll::Ready(Err(CallError::Forked)) };
    if let Some(refusal) = client.refusal(&access) {
        return Poll::Ready(Err(refusal));
    }
    // A request that is too long is refused when it is submitted, so it need not wait.
    let bytes = bytes.min(access.core.longest());
    let waiter = CapacityWaiter::Call { to: to.map(canonical), bytes };
    if access.core.capacity(waiter, &Promised::default()) == Capacity::Enough {
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
