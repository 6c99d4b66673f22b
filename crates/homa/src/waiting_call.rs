//! Calls that wait for their server: [`CallOptions::wait_for_ready`].
//!
//! Invariant: a call is made again only if it was certainly not executed.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use homa_proto::Time;

use crate::call::RunningCall;
use crate::call_options::CallOptions;
use crate::client::Client;
use crate::engine::clock;
use crate::engine::wait::shared::Access;
use crate::error::CallError;
use crate::message::Message;
use crate::payload::Payload;
use crate::spans::CallSpan;

/// The pause after which a call is made again, which doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What is needed to make a call again.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    client: Client,
    to: SocketAddr,
    request: Payload,
    options: CallOptions,
    /// `None`: it waits forever.
    until: Option<Instant>,
    pause: Duration,
}

impl WaitingCall {
    /// A call that is about to be made for the first time.
    pub(crate) fn new(
        client: &Client,
        to: SocketAddr,
        request: Payload,
        options: &CallOptions,
    ) -> Self {
        let until = client.engine().clock().read().checked_add(options.deadline);
        let (client, options) = (client.clone(), *options);
        Self { client, to, request: request.shared(), options, until, pause: FIRST_PAUSE }
    }

    /// The request, which shares its bytes with those that will be made.
    pub(crate) fn request(&self) -> Payload {
        self.request.clone()
    }

    /// How long to wait before the call is made again after this error; `None` if it has failed.
    pub(crate) fn pause_after(&mut self, error: &CallError) -> Option<Duration> {
        let absent = matches!(error, CallError::PortUnreachable | CallError::HostUnreachable);
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        let at = self.client.engine().clock().read() + pause;
        (absent && self.until.is_none_or(|until| at < until)).then_some(pause)
    }

    /// Makes the call again.
    pub(crate) fn start(&self, span: &CallSpan) -> Result<RunningCall, CallError> {
        let mut options = self.options;
        if let Some(until) = self.until {
            options.deadline = until.saturating_duration_since(self.client.engine().clock().read());
        }
        let engine = self.client.engine().towards(self.to);
        let started = self.client.start(&engine, self.to, self.request(), &options, span);
        started.map(|(running, ..)| running)
    }

    /// Blocks for a pause, and makes the call again until it has ended.
    pub(crate) fn wait(
        mut self,
        mut result: Result<Message, CallError>,
        span: &CallSpan,
    ) -> Result<Message, CallError> {
        loop {
            let pause = result.as_ref().err().and_then(|error| self.pause_after(error));
            let Some(pause) = pause else { return result };
            thread::sleep(pause);
            let running = self.start(span)?;
            let engine = self.client.engine().towards(self.to);
            let shared = engine.shared().ok_or(CallError::Forked)?;
            result = running.wait(shared, shared.access());
        }
    }
}

/// A pause of a task.
#[derive(Debug)]
pub(crate) struct Pause {
    until: Time,
    ticket: Option<u64>,
}

impl Pause {
    /// A pause that begins now.
    pub(crate) fn begin(access: &Access<'_>, length: Duration) -> Self {
        Self { until: access.core.time() + clock::proto(length), ticket: None }
    }

    /// Ready when it is over, or when the call would be refused.
    pub(crate) fn poll(
        &mut self,
        call: &WaitingCall,
        mut access: Access<'_>,
        context: &Context<'_>,
    ) -> Poll<()> {
        self.leave(&mut access);
        if access.core.time() >= self.until || call.client.refusal(&access).is_some() {
            return Poll::Ready(());
        }
        let alarms = access.waiters.alarms();
        self.ticket = Some(alarms.wait(self.until, context.waker().clone()));
        access.watched();
        Poll::Pending
    }

    /// The task does not wait any more.
    pub(crate) fn leave(&mut self, access: &mut Access<'_>) {
        if let Some(ticket) = self.ticket.take() {
            access.waiters.leave_alarm(self.until, ticket);
        }
    }
}
