//! A socket that is client and server at once. It sends requests and replies, and receives requests
//! and responses from one queue with a pollable descriptor, in the style of the kernel module's
//! sockets.
//!
//! Any number of threads may use it. A thread that blocks in [`Socket::receive`] drives the engine;
//! otherwise a helper thread does, and the descriptor becomes readable when a message can be
//! received.
//!
//! ```
//! use homa::socket::{SocketEvent, SendOptions, Socket, Wanted};
//! use homa::Config;
//!
//! let a = Socket::bind("127.0.0.1:0".parse()?, Config::default())?;
//! let b = Socket::bind("127.0.0.1:0".parse()?, Config::default())?;
//! b.listen()?;
//! let call = a.send(b.local_addr(), b"ping".to_vec(), &SendOptions::default())?;
//! if let Ok(SocketEvent::Request { id, bytes, .. }) = b.receive(Wanted::Any) {
//!     b.reply(id, None, bytes)?;
//! }
//! let Ok(SocketEvent::Response { id, result, .. }) = a.receive(Wanted::Any) else { panic!() };
//! assert_eq!((id, &result?[..]), (call, &b"ping"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod id;
mod pieces;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(feature = "encryption")]
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use homa_proto::wire::datagram::TraceContext;

use crate::call_options::CallOptions;
use crate::client::Client;
use crate::config::Config;
use crate::driver::udp::UdpDriver;
use crate::driver::{Driver, Waker};
use crate::engine::Engine;
use crate::engine::core::{SOCKET_CALL, canonical};
use crate::engine::wait::mailbox;
pub use crate::engine::wait::mailbox::CallFailure;
use crate::engine::wait::mailbox::{ArrivingResponse, Mailbox, MailboxItem, SocketCall};
use crate::engine::wait::shared::SharedState;
use crate::engine::wait::waiters::Waiters;
use crate::error::{CallError, DrainTimeout, OpenError, ReplyError};
use crate::message::Message;
use crate::metrics::Metrics;
use crate::payload::Payload;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;
pub use id::Id;
pub use pieces::ReadError;

/// Parameters of one call from a socket. Start from the default, or convert [`CallOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendOptions {
    /// Deadline, idempotence, and trace.
    pub call: CallOptions,
    /// A number that is returned with the response.
    pub cookie: u64,
    /// Private call: its completion is only returned by a receive that names its id, and does not
    /// make the descriptor readable.
    pub private: bool,
    /// If it is not 0, [`Socket::read`] reads the response while it arrives, and about this number
    /// of bytes that were not read is held.
    pub read_window: u32,
}

impl From<CallOptions> for SendOptions {
    fn from(call: CallOptions) -> Self {
        Self { call, ..Self::default() }
    }
}

impl SendOptions {
    /// Sets the number that is returned with the response.
    pub fn cookie(self, cookie: u64) -> Self {
        Self { cookie, ..self }
    }

    /// Makes the call private: see [`Self::private`](#structfield.private).
    pub fn private(self, private: bool) -> Self {
        Self { private, ..self }
    }

    /// Reads the response while it arrives: see [`Self::read_window`](#structfield.read_window).
    pub fn read_window(self, bytes: u32) -> Self {
        Self { read_window: bytes, ..self }
    }
}

/// What a thread wants to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Requests, and completions of calls that are not private, in order of arrival.
    Any,
    /// Requests.
    Requests,
    /// Completions of calls that are not private.
    Responses,
    /// The completion of this call.
    Call(Id),
    /// The completion of this call, or a request.
    CallOrRequests(Id),
}

impl Wanted {
    fn selection(self) -> mailbox::Selection {
        let (requests, responses, call) = match self {
            Self::Any => (true, true, None),
            Self::Requests => (true, false, None),
            Self::Responses => (false, true, None),
            Self::Call(id) => (false, true, Some(id.rpc)),
            Self::CallOrRequests(id) => (true, true, Some(id.rpc)),
        };
        mailbox::Selection { requests, responses, call, piece: None }
    }

    fn named(self) -> Option<Id> {
        match self {
            Self::Call(id) | Self::CallOrRequests(id) => Some(id),
            Self::Any | Self::Requests | Self::Responses => None,
        }
    }
}

/// A received request or completion.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketEvent {
    /// A call ended.
    #[non_exhaustive]
    Response {
        /// The call.
        id: Id,
        /// The server.
        from: SocketAddr,
        /// The number given with the call.
        cookie: u64,
        /// The response.
        result: Result<Message, CallFailure>,
    },
    /// A request. Answer it with [`Socket::reply`] or drop it with [`Socket::abort`]; it uses
    /// memory until then.
    #[non_exhaustive]
    Request {
        /// The request.
        id: Id,
        /// The client.
        from: SocketAddr,
        /// Its bytes; none if it is still arriving ([`Socket::listen_early`]).
        bytes: Message,
        /// The number of all its bytes.
        total: usize,
        /// The time at which the client stops waiting, if it sent one.
        deadline: Option<Instant>,
        /// The distributed trace that the request belongs to.
        trace: Option<TraceContext>,
    },
    /// More of a message can be read, or it has ended, after [`Socket::try_read`] found nothing; or
    /// the first bytes of a response are here
    /// ([`SendOptions::read_window`](method@SendOptions::read_window)).
    #[non_exhaustive]
    More {
        /// The request, or the call.
        id: Id,
        /// The client, or the server.
        from: SocketAddr,
        /// The number given with the call; 0 for a request.
        cookie: u64,
        /// Bytes that were not read, also those that have not arrived.
        left: usize,
    },
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing has arrived yet.
    #[error("nothing has arrived: wait until the descriptor is readable")]
    WouldBlock,
    /// The call is not one of this socket, or its completion was already received.
    #[error(
        "no call with this id is in progress: it was received, aborted, or not sent by this socket"
    )]
    UnknownCall,
    /// The socket was closed or drained, and nothing is left to receive.
    #[error("the socket is closed: open another one")]
    Closed,
}

/// See the module's documentation. Dropping a socket ends everything that is in progress.
#[derive(Debug)]
pub struct Socket {
    engine: Engine,
    readable: OwnedFd,
}

impl Socket {
    /// Opens a socket over UDP at a local address (port 0: any). It accepts no requests until
    /// [`Self::listen`].
    pub fn bind(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::new(at, config.receive_buffer)
            .map_err(|source| OpenError::bind(at, source))?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens a socket over a UDP socket that is already bound: see [`Engine::from_socket`]. It
    /// accepts requests, also those that wait in the queue.
    pub fn from_socket(socket: impl Into<OwnedFd>, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::from_socket(socket.into(), config.receive_buffer)?;
        Self::open(|waiters| Engine::listening(Box::new(driver), config, waiters))
    }

    /// Opens a socket over any driver, which must have at least one local address.
    pub fn with_driver(driver: Box<dyn Driver>, config: Config) -> Result<Self, OpenError> {
        Self::open(|waiters| {
            let engine = Engine::with_driver(driver, config)?;
            engine.here().ok_or(OpenError::Forked)?.waiters = waiters;
            Ok(engine)
        })
    }

    fn open(engine: impl FnOnce(Waiters) -> Result<Engine, OpenError>) -> Result<Self, OpenError> {
        let event_counter = Waker::new().map_err(OpenError::Resources)?;
        let readable = event_counter.as_fd().try_clone_to_owned().map_err(OpenError::Resources)?;
        let mut waiters = Waiters::default();
        waiters.install(Mailbox::new(event_counter));
        Ok(Self { engine: engine(waiters)?, readable })
    }

    /// Accepts requests from now on.
    ///
    /// # Errors
    /// [`OpenError::Unprotected`] if other hosts reach the address, and the socket was opened with
    /// neither keys nor plaintext by choice ([`Config::calls_only`]); [`OpenError::Forked`].
    pub fn listen(&self) -> Result<(), OpenError> {
        let mut access = self.engine.here().ok_or(OpenError::Forked)?;
        access.core.listen(self.local_addr().port())
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.engine.local_addr()
    }

    /// Sends a request. Its response is received with the returned id.
    pub fn send(
        &self,
        to: SocketAddr,
        request: impl Into<Payload>,
        options: &SendOptions,
    ) -> Result<Id, CallError> {
        // Before the lock is taken: converting and dropping may run code of the caller.
        let (to, request) = (canonical(to), request.into());
        let unwritten = if request.is_to_be_written() { request.len() } else { 0 };
        let Some(mut access) = self.engine.here() else { return Err(CallError::Forked) };
        access.takes_calls()?;
        let rpc = access.core.call(0, to, request, &options.call, SOCKET_CALL)?;
        if let Some((mailbox, _)) = access.waiters.mailbox() {
            let mut call = SocketCall::new(to, options.cookie, options.private);
            call.unwritten = unwritten;
            call.arriving = (options.read_window > 0).then(ArrivingResponse::new);
            mailbox.started(rpc, call);
        }
        if options.read_window > 0 {
            access.core.read_response(rpc, options.read_window);
        }
        access.submitted();
        Ok(Id::call(rpc))
    }

    /// Answers a request; if `to` is given, it must be the client. It is not an error if the client
    /// has given up. [`ReplyError::Gone`] means that no such request waits for an answer. After any
    /// other error the request still waits: reply again or [abort](Self::abort) it.
    pub fn reply(
        &self,
        id: Id,
        to: Option<SocketAddr>,
        response: impl Into<Payload>,
    ) -> Result<(), ReplyError> {
        if !id.request {
            return Err(ReplyError::Gone);
        }
        // A response that is left is dropped last, without the lock.
        let mut response = Some(response.into());
        let Some(mut access) = self.engine.here() else { return Err(ReplyError::Forked) };
        let SharedState { waiters, core, .. } = &mut *access;
        let Some((mailbox, wakes)) = waiters.mailbox() else { return Err(ReplyError::Gone) };
        mailbox.reply(id.rpc, to.map(canonical), &mut response, core, wakes)?;
        access.submitted();
        Ok(())
    }

    /// Receives what is wanted, or fails at once with [`ReceiveError::WouldBlock`].
    pub fn try_receive(&self, wanted: Wanted) -> Result<SocketEvent, ReceiveError> {
        self.take(wanted, false)
    }

    /// Blocks until something that is wanted arrives.
    pub fn receive(&self, wanted: Wanted) -> Result<SocketEvent, ReceiveError> {
        self.take(wanted, true)
    }

    fn take(&self, wanted: Wanted, wait: bool) -> Result<SocketEvent, ReceiveError> {
        if wanted.named().is_some_and(Id::is_request) {
            return Err(ReceiveError::UnknownCall);
        }
        let selection = wanted.selection();
        let Some(mut access) = self.engine.here() else { return Err(ReceiveError::Closed) };
        let mut ticket = None;
        let item = access.block(None, |state| {
            let (mailbox, wakes) = state.waiters.mailbox()?;
            if let Some(ticket) = ticket.take() {
                mailbox.stop_waiting(ticket);
            }
            match mailbox.take(&selection, &mut state.core, wakes) {
                MailboxItem::Nothing if wait => {
                    ticket = Some(mailbox.wait(selection, thread::current()));
                    None
                }
                item => Some(item),
            }
        });
        let item = item.unwrap_or(MailboxItem::Closed);
        if matches!(item, MailboxItem::Nothing) {
            // A caller that does not wait will poll, so a helper must drive the engine.
            access.need_leader();
        }
        let deadline = match &item {
            MailboxItem::Request(.., context) => access.core.instant(context.until),
            _ => None,
        };
        access.accepted();
        drop(access);
        match item {
            MailboxItem::Request(rpc, from, bytes, total, context) => {
                let (id, trace) = (Id::request(rpc), context.trace.map(|trace| *trace));
                Ok(SocketEvent::Request { id, from, bytes, total, deadline, trace })
            }
            MailboxItem::More { rpc, request, from, cookie, left } => {
                Ok(SocketEvent::More { id: Id { rpc, request }, from, cookie, left })
            }
            MailboxItem::Response(rpc, SocketCall { to, cookie, result: Some(result), .. }) => {
                Ok(SocketEvent::Response { id: Id::call(rpc), from: to, cookie, result })
            }
            MailboxItem::Unknown => Err(ReceiveError::UnknownCall),
            MailboxItem::Closed => Err(ReceiveError::Closed),
            MailboxItem::Response(..) | MailboxItem::Nothing => Err(ReceiveError::WouldBlock),
        }
    }

    /// True if the client of a request cancelled the call or its deadline has passed; `None` if no
    /// such request waits for an answer.
    pub fn is_cancelled(&self, id: Id) -> Option<bool> {
        let (until, cancelled) = self.client_of(id)?;
        Some(cancelled || until.is_some_and(|until| until <= Instant::now()))
    }

    /// The remaining time of a request: zero if the client gave up, `Duration::MAX` if it sent no
    /// deadline. `None` if no such request waits for an answer.
    pub fn remaining(&self, id: Id) -> Option<Duration> {
        let (until, cancelled) = self.client_of(id)?;
        let left =
            until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        Some(if cancelled { Duration::ZERO } else { left })
    }

    /// Who the client of a request has proved to be. `None` without
    /// [`Config::keys`](method@crate::Config::keys), or if no such request waits for an answer.
    #[cfg(feature = "encryption")]
    pub fn peer_identity(&self, id: Id) -> Option<Arc<PeerIdentity>> {
        let mut access = self.engine.here()?;
        let (mailbox, _) = access.waiters.mailbox()?;
        mailbox.identity(id.rpc).filter(|_| id.request)
    }

    fn client_of(&self, id: Id) -> Option<(Option<Instant>, bool)> {
        let mut access = self.engine.here()?;
        let SharedState { waiters, core, .. } = &mut *access;
        let (mailbox, _) = waiters.mailbox()?;
        let (until, cancelled) = mailbox.client_of(id.rpc).filter(|_| id.request)?;
        Some((core.instant(until), cancelled))
    }

    /// Ends an RPC. A call is forgotten or, with an `error`, completes with
    /// [`CallFailure::Aborted`]. A request is dropped, and its client is told at once. False if
    /// there is no such RPC.
    pub fn abort(&self, id: Id, error: Option<i32>) -> bool {
        let Some(mut access) = self.engine.here() else { return false };
        let SharedState { waiters, core, .. } = &mut *access;
        let Some((mailbox, wakes)) = waiters.mailbox() else { return false };
        let found = match id.request {
            true => mailbox.refuse(id.rpc, core, wakes),
            false => mailbox.abort(id.rpc, error, core, wakes),
        };
        access.submitted();
        found
    }

    /// As [`Self::abort`], for every call in progress.
    pub fn abort_all(&self, error: Option<i32>) {
        let Some(mut access) = self.engine.here() else { return };
        let SharedState { waiters, core, .. } = &mut *access;
        if let Some((mailbox, wakes)) = waiters.mailbox() {
            for rpc in mailbox.running() {
                mailbox.abort(rpc, error, core, wakes);
            }
        }
        access.submitted();
    }

    /// Stops sending and accepting. Messages that have arrived can still be received, then
    /// [`ReceiveError::Closed`]. Calls of [clients](Self::client) of this socket that are in
    /// progress end with [`CallError::ShuttingDown`].
    pub fn close(&self) {
        self.end(|state| {
            state.end_calls();
            if let Some((mailbox, wakes)) = state.waiters.mailbox() {
                mailbox.close(wakes);
            }
        });
    }

    /// Stops sending and accepting new messages, and waits until everything in progress is finished
    /// and acknowledged. Messages that have arrived, and completions of calls in progress, can
    /// still be received, also by threads that are blocked; then [`ReceiveError::Closed`].
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        self.end(|state| {
            if let Some((mailbox, wakes)) = state.waiters.mailbox() {
                mailbox.drain(wakes);
            }
        });
        self.engine.drain(timeout)
    }

    fn end(&self, how: impl FnOnce(&mut SharedState)) {
        let Some(mut access) = self.engine.here() else { return };
        access.draining = true;
        access.core.unlisten(self.local_addr().port());
        access.waiters.wake_all();
        how(&mut access);
        access.core.flush_acks();
        access.submitted();
    }

    /// A client of the same engine, for calls that do not go through this socket. They end when it
    /// is closed.
    pub fn client(&self) -> Client {
        self.engine.client()
    }

    /// Counters, gauges, and latency histograms.
    pub fn metrics(&self) -> Metrics {
        self.engine.metrics()
    }
}

/// Readable exactly if [`Socket::try_receive`] with [`Wanted::Any`] would not fail with
/// `WouldBlock`. Only poll it; never read it.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

impl Drop for Socket {
    /// Acknowledges received responses. Otherwise a kernel server would ask forever.
    fn drop(&mut self) {
        self.close();
    }
}
