//! A call in progress as a future, and reading its response while it arrives.

use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::engine::Engine;
use crate::engine::wait::shared::{Access, Shared, SharedState};
use crate::engine::wait::slot::CallSlot;
use crate::engine::wait::waiters::{CallKey, ReadProgress, WakeTarget};
use crate::error::{CallError, WriteError};
use crate::message::Message;
use crate::spans::CallSpan;
use crate::status;
use crate::waiting_call::{Pause, WaitingCall};

/// A call in progress. It resolves to the response; dropping it cancels the call.
#[derive(Debug)]
#[must_use = "dropping a call cancels it"]
pub struct Call {
    engine: Engine,
    state: CallState,
    /// Set if the call waits for its server.
    waiting: Option<Box<WaitingCall>>,
    span: CallSpan,
    /// The reply is a [`Reply`](crate::Reply).
    has_status: bool,
}

#[derive(Debug)]
enum CallState {
    Refused(CallError),
    Running(RunningCall),
    /// No server is there: until the call is made again.
    Pausing(Pause),
    Finished,
}

/// A call that was accepted by the engine.
#[derive(Debug)]
pub(crate) struct RunningCall {
    /// Its key in the table of waiters.
    pub(crate) key: CallKey,
    /// Receives its result.
    pub(crate) slot: Arc<CallSlot>,
}

impl Call {
    /// A call that was started or refused.
    pub(crate) fn new(
        engine: Engine,
        started: Result<RunningCall, CallError>,
        waiting: Option<Box<WaitingCall>>,
        span: CallSpan,
        has_status: bool,
    ) -> Self {
        let state = CallState::new(started);
        Self { engine, state, waiting, span, has_status }
    }

    /// Waits for, and returns, the contiguous bytes after offset `seen` of a long response. Returns
    /// `None` once the response is complete or the call has failed: then await the call itself,
    /// which yields the whole response. Bytes are visible before that only if
    /// [`readable_events`](crate::Config::readable_events) is on.
    ///
    /// Reading does not copy. Bytes that arrive between two looks are copied once more when the
    /// response is complete, so look again soon.
    ///
    /// ```no_run
    /// # async fn example(client: homa::Client, server: std::net::SocketAddr)
    /// # -> Result<(), homa::CallError> {
    /// let mut call = client.call_async(server, "a long story");
    /// let mut seen = 0;
    /// while let Some(bytes) = call.arrived(seen).await {
    ///     seen += bytes.len(); // and use them
    /// }
    /// let whole = call.await?;
    /// let rest = &whole[seen..];
    /// # Ok(())
    /// # }
    /// ```
    pub fn arrived(&mut self, seen: usize) -> Arrived<'_> {
        Arrived { call: self, seen }
    }
}

impl Call {
    /// Blocks until the response arrives, as [`Client::call`](crate::Client::call).
    ///
    /// # Errors
    /// Each variant of [`CallError`] says what to do.
    pub fn wait(mut self) -> Result<Message, CallError> {
        let state = mem::replace(&mut self.state, CallState::Finished);
        let _entered = self.span.tracing().enter();
        let result = match (state, self.engine.shared()) {
            (CallState::Refused(error), _) => Err(error),
            (CallState::Finished, _) => Err(CallError::ShuttingDown),
            (CallState::Running(_) | CallState::Pausing(_), None) => Err(CallError::Forked),
            (CallState::Running(running), Some(shared)) => running.wait(shared, shared.access()),
            (CallState::Pausing(mut pause), Some(shared)) => {
                pause.leave(&mut shared.access());
                Err(CallError::PortUnreachable)
            }
        };
        let result = match self.waiting.take() {
            Some(waiting) => waiting.wait(result, &self.span),
            None => result,
        };
        report(&self.span, self.has_status, result)
    }

    /// Appends to the request, which is written while it is sent.
    pub(crate) fn push(&self, more: &[u8]) -> Result<(), WriteError> {
        let CallState::Running(running) = &self.state else { return Err(WriteError::Gone) };
        let mut access = self.engine.here().ok_or(WriteError::Forked)?;
        let SharedState { waiters, core, .. } = &mut *access;
        let rpc = waiters.rpc_of(running.key).filter(|&rpc| core.write(rpc, more));
        rpc.ok_or(WriteError::Gone)?;
        access.submitted();
        Ok(())
    }

    /// True until the call has ended.
    pub(crate) fn is_in_progress(&self) -> bool {
        let CallState::Running(running) = &self.state else { return false };
        self.engine.here().is_some_and(|mut a| a.waiters.rpc_of(running.key).is_some())
    }
}

/// Reads the reply, and logs how a call ended.
pub(crate) fn report(
    span: &CallSpan,
    has_status: bool,
    result: Result<Message, CallError>,
) -> Result<Message, CallError> {
    let result = if has_status { result.and_then(status::read) } else { result };
    span.ended(result.as_ref().err());
    match &result {
        Ok(response) => tracing::trace!(bytes = response.len(), "response"),
        Err(error) => tracing::debug!(%error, "call failed"),
    }
    result
}

/// The future of [`Call::arrived`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Arrived<'a> {
    call: &'a mut Call,
    seen: usize,
}

/// Bytes of a response that is still arriving: see [`Call::arrived`]. It dereferences to a slice.
#[derive(Debug)]
pub struct Part<'a> {
    whole: Arc<Vec<u8>>,
    seen: usize,
    /// Keeps the call from being awaited while the bytes are borrowed.
    call: PhantomData<&'a mut Call>,
}

impl Deref for Part<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.whole[self.seen..]
    }
}

impl<'a> Future for Arrived<'a> {
    type Output = Option<Part<'a>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CallState::Running(RunningCall { key, .. }) = self.call.state else {
            return Poll::Ready(None);
        };
        let Some(mut access) = self.call.engine.here() else { return Poll::Ready(None) };
        let SharedState { waiters, core, .. } = &mut *access;
        if let Some((partial, lent)) = waiters.take_lent(key)
            && let Some(lent) = core.give_back(&partial, lent)
        {
            // The response was completed without these bytes, or the call failed.
            waiters.lend(key, partial, lent.into());
        }
        let waiting = WakeTarget::Task(context.waker().clone());
        match waiters.progress(key, self.seen, waiting) {
            ReadProgress::Ended => Poll::Ready(None),
            ReadProgress::Partial(partial) => {
                let Some(lent) = core.lend(&partial) else { return Poll::Ready(None) };
                let whole = Arc::new(lent);
                waiters.lend(key, partial, whole.clone());
                Poll::Ready(Some(Part { whole, seen: self.seen, call: PhantomData }))
            }
            ReadProgress::Nothing => {
                access.need_leader();
                Poll::Pending
            }
        }
    }
}

impl Future for Call {
    type Output = Result<Message, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _entered = this.span.tracing().enter();
        let result = loop {
            let result = match (&mut this.state, this.engine.shared()) {
                (CallState::Refused(error), _) => Err(error.clone()),
                (CallState::Finished, _) => Err(CallError::ShuttingDown),
                (CallState::Running(_) | CallState::Pausing(_), None) => Err(CallError::Forked),
                (CallState::Running(running), Some(shared)) => {
                    ready!(running.poll(shared, context))
                }
                (CallState::Pausing(pause), Some(shared)) => {
                    this.state = match &this.waiting {
                        Some(waiting) => {
                            ready!(pause.poll(waiting, shared.access(), context));
                            CallState::new(waiting.start(&this.span))
                        }
                        None => CallState::Finished,
                    };
                    continue;
                }
            };
            let ended = mem::replace(&mut this.state, CallState::Finished);
            let Some(shared) = this.engine.shared() else { break result };
            if let CallState::Running(running) = ended {
                shared.slots.put_back(running.slot);
            }
            let (waiting, error) = (this.waiting.as_mut(), result.as_ref().err());
            let pause = waiting.zip(error).and_then(|(waiting, error)| waiting.pause_after(error));
            let Some(pause) = pause else { break result };
            this.state = CallState::Pausing(Pause::begin(&shared.access(), pause));
        };
        Poll::Ready(report(&this.span, this.has_status, result))
    }
}

impl CallState {
    fn new(started: Result<RunningCall, CallError>) -> Self {
        match started {
            Ok(running) => Self::Running(running),
            Err(error) => Self::Refused(error),
        }
    }
}

impl RunningCall {
    /// Blocks until the call ends, and returns its slot.
    pub(crate) fn wait(self, shared: &Shared, access: Access<'_>) -> Result<Message, CallError> {
        let result = access.block_on(self.key, &self.slot);
        shared.slots.put_back(self.slot);
        match result {
            Err(CallError::DeadlineExceeded) if blocks_a_runtime() => {
                Err(CallError::RuntimeBlocked)
            }
            result => result,
        }
    }

    /// Takes the result without the engine's lock if it has arrived; otherwise registers the task.
    fn poll(&self, shared: &Shared, context: &Context<'_>) -> Poll<Result<Message, CallError>> {
        loop {
            if let Some(result) = self.slot.take() {
                return Poll::Ready(result);
            }
            let mut access = shared.access();
            if access.waiters.wait(self.key, WakeTarget::Task(context.waker().clone())) {
                access.need_leader();
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.state, CallState::Finished);
        let Some(shared) = self.engine.shared() else { return };
        if let CallState::Pausing(mut pause) = state {
            self.span.cancelled();
            pause.leave(&mut shared.access());
        } else if let CallState::Running(RunningCall { key, slot }) = state {
            self.span.cancelled();
            if slot.take().is_none() {
                let mut access = shared.access();
                match access.waiters.give_up(key) {
                    Some(rpc) => {
                        access.core.cancel(rpc);
                        access.submitted();
                    }
                    // It has just ended.
                    None => drop(slot.take()),
                }
            }
            shared.slots.put_back(slot);
        }
    }
}

/// True on a thread of an async runtime, as far as it can be known (feature `tokio`).
fn blocks_a_runtime() -> bool {
    #[cfg(feature = "tokio")]
    return tokio::runtime::Handle::try_current().is_ok();
    #[cfg(not(feature = "tokio"))]
    false
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;
    use std::thread;

    use super::*;
    use crate::Config;

    /// If taking a result needed the engine's lock, this test would hang.
    #[test]
    fn a_result_is_taken_or_dropped_without_the_engines_lock() {
        let open = || Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (engine, other) = (open(), open());
        let (client, to, server) = (engine.client(), other.local_addr(), other.serve().unwrap());
        thread::spawn(move || {
            while let Some(request) = server.accept() {
                let _ = request.reply("ends");
            }
        });
        let [taken, dropped] = [(); 2].map(|()| client.call_async(to, "a question"));
        while engine.metrics().engine.calls_in_progress > 0 {
            thread::yield_now();
        }
        let held = engine.here();
        let taken = pin!(taken).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(taken, Poll::Ready(Ok(result)) if result == *b"ends"));
        drop(dropped);
        drop(held);
    }
}
