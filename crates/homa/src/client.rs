//! Calling servers, blocking or with futures.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Weak;
use std::time::Instant;

use crate::call::{Call, RunningCall, report};
use crate::call_options::CallOptions;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::wait::shared::{Access, Shared};
use crate::error::{CallError, OpenError};
use crate::message::Message;
use crate::payload::Payload;
use crate::ready::Ready;
use crate::request::Request;
use crate::spans::{CallSpan, Context};
use crate::waiting_call::WaitingCall;
use crate::writer::CallWriter;
use homa_proto::wire::datagram::TraceContext;

/// Makes calls. A client is cheap to clone, and any number of threads and tasks may use it.
#[derive(Clone, Debug)]
pub struct Client {
    engine: Engine,
    inherited: Option<Inherited>,
}

/// What a client's calls inherit from the request on whose behalf they are made.
#[derive(Clone, Debug)]
struct Inherited {
    deadline: Option<Instant>,
    trace: Option<TraceContext>,
    /// The request's span.
    context: Context,
    /// The request's mark in progress, if it is one of this client's engine.
    in_progress: Option<Weak<()>>,
}

impl Client {
    /// Creates a client of servers on this host: [`Self::with`] the default configuration. It has
    /// no keys, so it refuses calls to others ([`CallError::Unprotected`]).
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn new() -> Result<Self, OpenError> {
        Self::with(Config::default())
    }

    /// Creates a client on a new engine at any free port. It reaches IPv6 and IPv4 servers, or only
    /// IPv4 servers if the host has no IPv6. Servers on other hosts can only be called with keys,
    /// or in plaintext by choice.
    ///
    /// ```
    /// use homa::{Client, Config, Keys};
    ///
    /// let client = Client::with(Config::default().keys(Keys::cluster([7; 32])?))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OpenError::Bind`] or [`OpenError::Resources`] if the system refuses a socket or a thread,
    /// and those of a configuration that is out of range.
    pub fn with(config: Config) -> Result<Self, OpenError> {
        let config = config.calls_only();
        let any = |ip| Engine::bind(SocketAddr::new(ip, 0), config.clone());
        let engine =
            any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        Ok(Self::on(engine))
    }

    pub(crate) fn on(engine: Engine) -> Self {
        Self { engine, inherited: None }
    }

    /// Returns a client for calls on behalf of a request. A call ends at the latest at the
    /// request's [deadline](Request::deadline), with [`CallError::DeadlineExceeded`]; if the
    /// deadline has passed, it is refused. The calls belong to the request's
    /// [trace](Request::trace_context), unless their options name another. With feature
    /// `opentelemetry` and a tracer provider, the parent of each is the request's span, or the
    /// active one within it; otherwise the trace is passed on as it came.
    /// [`Request::client`] returns such a client of the server's engine. An engine that
    /// [drains](Engine::drain) accepts such calls as long as its request is in progress.
    ///
    /// ```
    /// # use homa::{CallError, Client, Request};
    /// # use std::net::SocketAddr;
    /// # #[allow(dead_code)]
    /// async fn serve(request: Request, outer: &Client, at: SocketAddr) -> Result<(), CallError> {
    ///     let client = outer.on_behalf_of(&request);
    ///     let found = client.call_async(at, request.to_vec()).await?;
    ///     let _ = request.reply(found);
    ///     Ok(())
    /// }
    /// ```
    pub fn on_behalf_of(&self, request: &Request) -> Self {
        let inherited = Inherited {
            deadline: request.deadline(),
            trace: request.trace_context(),
            context: request.spans().context().clone(),
            in_progress: request.mark_of(&self.engine),
        };
        Self { engine: self.engine.clone(), inherited: Some(inherited) }
    }

    /// As [`Self::on_behalf_of`], for the request on whose behalf another client calls
    /// ([`Request::client`]). For example, a request that is read by one task and calls from
    /// another one has such a client, because it cannot be borrowed by both.
    pub fn on_behalf_of_client(&self, behalf: &Self) -> Self {
        let mut inherited = behalf.inherited.clone();
        if !self.engine.is_sibling(&behalf.engine)
            && let Some(inherited) = &mut inherited
        {
            inherited.in_progress = None;
        }
        Self { engine: self.engine.clone(), inherited }
    }

    /// The options of a call, including what it inherits; `None` if the deadline has passed.
    fn inherit(&self, options: &CallOptions) -> Option<CallOptions> {
        let mut options = *options;
        let Some(Inherited { deadline, trace, .. }) = &self.inherited else {
            return Some(options);
        };
        if let Some(deadline) = deadline {
            let left = deadline.checked_duration_since(self.engine.clock().read())?;
            options.deadline = options.deadline.min(left);
        }
        options.trace = options.trace.or(*trace);
        Some(options)
    }

    /// True if calls are made on behalf of a request in progress of the same engine, which waits
    /// for it while it drains.
    fn finishes_a_request(&self) -> bool {
        let mark = self.inherited.as_ref().and_then(|inherited| inherited.in_progress.as_ref());
        mark.is_some_and(|mark| mark.strong_count() > 0)
    }

    /// The error with which a call is refused because the engine ends.
    pub(crate) fn refusal(&self, access: &Access<'_>) -> Option<CallError> {
        match access.takes_calls() {
            Err(CallError::ShuttingDown) if self.finishes_a_request() => None,
            taken => taken.err(),
        }
    }

    /// Waits until one more call, with a request of any length, would be accepted. If every call
    /// would be refused, it returns that error at once. Another task may be faster: then the call
    /// is refused as usual, and you can wait again. On a sharded engine ([`Engine::sharded`]) it
    /// waits for capacity in every shard, because the server is not known yet.
    ///
    /// ```
    /// # async fn example(client: homa::Client, server: std::net::SocketAddr)
    /// # -> Result<(), homa::CallError> {
    /// let mut calls = Vec::new();
    /// for n in 0..1_000_000u32 {
    ///     client.ready().await?;
    ///     calls.push(tokio::spawn(client.call_async(server, n.to_be_bytes())));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready(&self) -> Ready<'_> {
        Ready::new(self, None, None)
    }

    /// As [`Self::ready`], for a request of `bytes` bytes.
    pub fn ready_for(&self, bytes: usize) -> Ready<'_> {
        Ready::new(self, None, Some(bytes))
    }

    /// As [`Self::ready_for`], for a call to this server: also waits while as many calls to it are
    /// in progress as [`Config::max_calls_per_server`](field@crate::Config::max_calls_per_server)
    /// permits, or while `max_peers` other peers have RPCs in progress with us. Calls to other
    /// servers do not wait behind these.
    ///
    /// ```
    /// # async fn example(server: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    /// use homa::{CallError, Client, Config};
    ///
    /// let client = Client::with(Config::default().max_calls_per_server(100))?;
    /// let response = loop {
    ///     match client.call_async(server, "get 7").await {
    ///         Err(CallError::TooManyCallsTo { .. }) => client.ready_to(server, 5).await?,
    ///         ended => break ended?,
    ///     }
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready_to(&self, server: SocketAddr, bytes: usize) -> Ready<'_> {
        Ready::new(self, Some(server), Some(bytes))
    }

    /// The engine that this client uses.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Calls a server and blocks until the response arrives, with the default options (10 s). In
    /// async code use [`Self::call_async`]: a task that blocks its thread may keep the server's
    /// task from running ([`CallError::RuntimeBlocked`]).
    ///
    /// # Errors
    /// Each variant of [`CallError`] says what to do.
    pub fn call(&self, to: SocketAddr, request: impl Into<Payload>) -> Result<Message, CallError> {
        self.call_with(to, request, &CallOptions::default())
    }

    /// Calls a server and blocks until the response arrives.
    ///
    /// # Errors
    /// Each variant of [`CallError`] says what to do.
    pub fn call_with(
        &self,
        to: SocketAddr,
        request: impl Into<Payload>,
        options: &CallOptions,
    ) -> Result<Message, CallError> {
        if options.wait_for_ready {
            return self.call_async_with(to, request, options).wait();
        }
        let request = request.into();
        let span = self.span(to, &request, options);
        let _entered = span.tracing().enter();
        let engine = self.engine.towards(to);
        let started = self.start(&engine, to, request, options, &span);
        let result = started.and_then(|(running, shared, access)| running.wait(shared, access));
        report(&span, options.status, result)
    }

    /// Starts a call and returns its response as a future, with the default options (10 s). Any
    /// executor can poll it. Dropping the future cancels the call, here and at the server.
    ///
    /// A response that has arrived no longer counts against
    /// [`memory_budget`](homa_proto::Config::memory_budget), even if its future is not polled.
    /// Otherwise an awaited call could wait for memory that other responses hold. Responses that
    /// are not polled can therefore use up to [`max_message`](homa_proto::Config::max_message) for
    /// each call in progress, so limit the number of calls.
    pub fn call_async(&self, to: SocketAddr, request: impl Into<Payload>) -> Call {
        self.call_async_with(to, request, &CallOptions::default())
    }

    /// Starts a call and returns its response as a future.
    pub fn call_async_with(
        &self,
        to: SocketAddr,
        request: impl Into<Payload>,
        options: &CallOptions,
    ) -> Call {
        let request = request.into();
        let span = self.span(to, &request, options);
        let engine = self.engine.towards(to);
        let (request, waiting) = match options.wait_for_ready {
            true => {
                let waiting = WaitingCall::new(self, to, request, options);
                (waiting.request(), Some(Box::new(waiting)))
            }
            false => (request, None),
        };
        let started = self.start(&engine, to, request, options, &span);
        let running = started.map(|(running, ..)| running);
        Call::new(engine.into_owned(), running, waiting, span, options.status)
    }

    /// The spans of a call.
    fn span(&self, to: SocketAddr, request: &Payload, options: &CallOptions) -> CallSpan {
        let behalf = self.inherited.as_ref().map(|inherited| &inherited.context);
        CallSpan::begin(to, request.len(), options.trace, behalf)
    }

    /// Starts a call whose request of `length` bytes is written while it is sent. The options'
    /// deadline includes the writing.
    ///
    /// # Errors
    /// As [`Self::call`]: the declared length counts against
    /// [`send_memory`](crate::Config::send_memory) until the request is acknowledged.
    ///
    /// ```
    /// # use homa::{CallOptions, Client, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// # let address = server.local_addr();
    /// # std::thread::spawn(move || while let Some(request) = server.accept() {
    /// #     let _ = request.reply("stored");
    /// # });
    /// let client = Client::new()?;
    /// let mut request = client.call_writer(address, 1_000_000, &CallOptions::default())?;
    /// for n in 0..100 {
    ///     request.push(&[n; 10_000])?; // leaves while the next one is made
    /// }
    /// assert_eq!(request.finish()?.wait()?, *b"stored");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_writer(
        &self,
        to: SocketAddr,
        length: usize,
        options: &CallOptions,
    ) -> Result<CallWriter, CallError> {
        let request = Payload::to_be_written(length);
        let span = self.span(to, &request, options);
        let engine = self.engine.towards(to);
        let (running, ..) = self.start(&engine, to, request, options, &span)?;
        let call = Call::new(engine.into_owned(), Ok(running), None, span, options.status);
        Ok(CallWriter::new(call, length))
    }

    /// Registers and submits a call at the engine that receives the server's replies, and sends
    /// what may leave.
    pub(crate) fn start<'a>(
        &self,
        engine: &'a Engine,
        to: SocketAddr,
        request: Payload,
        options: &CallOptions,
        span: &CallSpan,
    ) -> Result<(RunningCall, &'a Shared, Access<'a>), CallError> {
        let mut options = self.inherit(options).ok_or(CallError::DeadlineExceeded)?;
        options.trace = span.sent().or(options.trace);
        let shared = engine.shared().ok_or(CallError::Forked)?;
        let slot = shared.slots.get();
        let mut access = shared.access();
        if let Some(refusal) = self.refusal(&access) {
            return Err(refusal);
        }
        let key = access.waiters.reserve(slot.clone());
        match access.core.call(0, to, request, &options, key.cookie()) {
            Ok(rpc) => {
                access.waiters.started(key, rpc);
                let span = span.tracing();
                if !span.is_disabled() {
                    let id = access.core.id_of(rpc).map_or(0, |id| id.0);
                    access.unlocked(|| {
                        span.record("rpc", format_args!("{id:#x}"));
                        span.record("trace", options.trace.map(tracing::field::display));
                    });
                }
            }
            Err(error) => {
                access.waiters.give_up(key);
                shared.slots.put_back(slot);
                return Err(error);
            }
        }
        access.submitted();
        Ok((RunningCall { key, slot }, shared, access))
    }
}
