//! Waits of a call that end if the engine takes no more calls, because it was closed or drains.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::balancer::BalanceError;
use crate::client::Client;
use crate::error::CallError;

/// Resolves once calls of a client are refused.
pub(super) struct Ended<'a> {
    client: &'a Client,
    ticket: Option<u64>,
}

impl<'a> Ended<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self { client, ticket: None }
    }
}

impl Future for Ended<'_> {
    type Output = CallError;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallError> {
        let client = self.client;
        let Some(mut access) = client.engine().here() else {
            return Poll::Ready(CallError::Forked);
        };
        if let Some(ticket) = self.ticket.take() {
            access.waiters.leave_end(ticket);
        }
        if let Some(refusal) = client.refusal(&access) {
            return Poll::Ready(refusal);
        }
        self.ticket = Some(access.waiters.wait_for_end(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && let Some(mut access) = self.client.engine().here()
        {
            access.waiters.leave_end(ticket);
        }
    }
}

/// What `wait` resolves to, unless calls are refused first.
pub(super) async fn or_ended<T>(
    wait: impl Future<Output = T>,
    ended: impl Future<Output = CallError>,
) -> Result<T, BalanceError> {
    let (mut wait, mut ended) = (pin!(wait), pin!(ended));
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => ended.as_mut().poll(context).map(|error| Err(BalanceError::Call(error))),
    })
    .await
}
