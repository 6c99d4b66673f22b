//! Serving requests, blocking or with futures.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::driver::Driver;
use crate::driver::udp::UdpDriver;
use crate::engine::wait::waiters::{Accepted, Waiters, WakeTarget};
use crate::engine::{DRAIN_STEP, Engine};
use crate::error::{DrainTimeout, OpenError};
use crate::request::Request;

/// Accepts the requests that arrive at an address. A server is cheap to clone, and any number of
/// threads and tasks may accept. Dropping the last clone refuses the requests that are not accepted
/// yet.
#[derive(Clone, Debug)]
pub struct Server(Arc<ServerPort>);

/// Closes the port when the last handle is dropped. The address is closed, too, unless it is the
/// engine's first, as soon as the requests in progress there are answered.
#[derive(Debug)]
struct ServerPort {
    engine: Engine,
    local: SocketAddr,
}

impl Server {
    /// Opens a server on a new engine, on loopback ([`OpenError::Unprotected`]). For other hosts,
    /// open an [`Engine`] with keys, or in plaintext by choice.
    pub fn bind(at: SocketAddr) -> Result<Self, OpenError> {
        Engine::bind(at, Config::default())?.serve()
    }

    /// Opens a server on a new engine over a UDP socket that is already bound, for example by
    /// systemd: see [`Engine::from_socket`]. Requests that wait in its queue are served.
    ///
    /// # Errors
    /// As [`Engine::from_socket`].
    ///
    /// ```
    /// use homa::{Client, Config, Server};
    ///
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let server = Server::from_socket(socket, Config::default())?;
    /// # let address = server.local_addr();
    /// # std::thread::spawn(move || server.accept().map(|request| request.reply("pong")));
    /// assert_eq!(Client::new()?.call(address, "ping")?, *b"pong");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_socket(socket: impl Into<OwnedFd>, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::from_socket(socket.into(), config.receive_buffer)?;
        let (at, mut waiters) = (driver.local()[0], Waiters::default());
        waiters.open_queue(at.port());
        Ok(Self::on(Engine::listening(Box::new(driver), config, waiters)?, at))
    }

    pub(crate) fn on(engine: Engine, local: SocketAddr) -> Self {
        Self(Arc::new(ServerPort { engine, local }))
    }

    /// The engine that this server uses.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The address at which clients reach this server.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Limits the requests that are accepted and not answered yet, for all clones of this server,
    /// to at least one. Others wait in the engine, which refuses those that it expects not to be
    /// answered before their deadline ([`CallError::Overloaded`](crate::CallError::Overloaded)): a
    /// server that starts a task for each request has no queue otherwise. A request that waits for
    /// something else can be [set aside](Request::set_aside). Default: no limit.
    ///
    /// ```
    /// # use homa::{Client, Server};
    /// let server = Server::bind("127.0.0.1:0".parse()?)?.concurrency(64);
    /// # let call = Client::new()?.call_async(server.local_addr(), "world");
    /// # server.accept().unwrap().reply("hello")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn concurrency(self, most: usize) -> Self {
        if let Some(mut access) = self.0.engine.here() {
            access.waiters.limit_service(self.0.local.port(), most);
        }
        self
    }

    /// Accepts a request of more than one packet as soon as its first bytes have arrived and its
    /// client is validated, for all clones of this server. Read it with
    /// [`Request::arrived`]; it dereferences to an empty slice. At most about `window` bytes of
    /// each request that were not read are held (and at least what clients send unasked, which is
    /// the default RTTbytes of 60 kB or less), so a slow reader slows its client down. The
    /// window moves in quarters, so the client can continue for three quarters of it, less a round
    /// trip, while the reader pauses.
    ///
    /// The request counts as executed once it is accepted. If the client gives up in the middle,
    /// the reader is told ([`RequestError`](crate::RequestError)); if the server drops the request,
    /// the client is. Neither executes it a second time: see [`CallOptions::idempotent`].
    ///
    /// [`CallOptions::idempotent`]: crate::CallOptions::idempotent
    ///
    /// ```
    /// # use homa::{Client, Server};
    /// let server = Server::bind("127.0.0.1:0".parse()?)?.early(1 << 20);
    /// # let call = Client::new()?.call_async(server.local_addr(), vec![1; 300_000]);
    /// let mut request = server.accept().unwrap();
    /// let mut sum = 0u64;
    /// while let Some(bytes) = request.arrived()? {
    ///     sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// }
    /// assert_eq!((sum, request.total_len()), (300_000, 300_000));
    /// request.reply(sum.to_be_bytes())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn early(self, window: usize) -> Self {
        let port = self.0.local.port();
        if let Some(mut access) = self.0.engine.here().filter(|access| access.serves(port)) {
            access.core.listen_early(port, u32::try_from(window).unwrap_or(u32::MAX));
        }
        self
    }

    /// Blocks until a request is available. Hosts of clients take turns, and the requests of one
    /// host keep their order of arrival. `None` once the server or the engine drains and no request
    /// is left.
    pub fn accept(&self) -> Option<Request> {
        let port = self.0.local.port();
        let mut access = self.0.engine.here()?;
        let mut ticket = None;
        let arrived = access.block(None, |state| {
            if let Some(ticket) = ticket.take() {
                state.waiters.stop_waiting(port, ticket);
            }
            match state.waiters.accept(port, &mut state.core) {
                Some(arrived) => Some(Some(arrived)),
                None if state.ends(port) => Some(None),
                None => {
                    let waiting = WakeTarget::Thread(thread::current());
                    ticket = Some(state.waiters.wait_for_request(port, waiting));
                    None
                }
            }
        });
        access.accepted();
        drop(access);
        arrived.flatten().map(|arrived| self.request(arrived))
    }

    /// Ends this server gracefully; other users of the engine are not affected. New requests are
    /// refused as if no server listened
    /// ([`CallError::PortUnreachable`](crate::CallError::PortUnreachable), so that the client can
    /// try another server). `accept` still returns requests that were already received, then
    /// `None`.
    ///
    /// # Errors
    /// [`DrainTimeout`] if some replies are not acknowledged when `timeout` has passed.
    ///
    /// ```
    /// # use homa::{CallError, Client, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// let ending = server.clone();
    /// let serving = std::thread::spawn(move || while let Some(request) = server.accept() {
    ///     let _ = request.reply("done");
    /// });
    /// let client = Client::new()?;
    /// assert_eq!(client.call(ending.local_addr(), "before")?, *b"done");
    /// ending.drain(std::time::Duration::from_secs(5))?;
    /// serving.join().unwrap();
    /// assert_eq!(client.call(ending.local_addr(), "after"), Err(CallError::PortUnreachable));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        let port = self.0.local.port();
        let until = Instant::now().checked_add(timeout);
        self.refuse();
        let Some(mut access) = self.0.engine.here() else { return Ok(()) };
        loop {
            let requests = access.core.requests_at(port);
            if requests == 0 {
                return Ok(());
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Err(DrainTimeout { calls: 0, requests });
            }
            let step = until.map_or(now + DRAIN_STEP, |until| until.min(now + DRAIN_STEP));
            access.block(Some(step), |state| (state.core.requests_at(port) == 0).then_some(()));
        }
    }

    /// Begins to drain.
    pub(crate) fn refuse(&self) {
        let port = self.0.local.port();
        let Some(mut access) = self.0.engine.here() else { return };
        access.core.unlisten(port);
        access.waiters.drain_queue(port);
        access.submitted();
    }

    /// Requests that are not answered, or whose replies are not acknowledged.
    #[cfg(feature = "tokio")]
    pub(crate) fn unfinished(&self) -> usize {
        self.0.engine.here().map_or(0, |access| access.core.requests_at(self.0.local.port()))
    }

    /// A future of the next request; it resolves to `None` once the engine drains and no request is
    /// left.
    pub fn accept_async(&self) -> Accept<'_> {
        Accept { server: self, ticket: None }
    }

    fn request(&self, accepted: Accepted) -> Request {
        Request::new(self.0.engine.clone(), accepted)
    }
}

impl Drop for ServerPort {
    fn drop(&mut self) {
        let Some(mut access) = self.engine.here() else { return };
        let state = &mut *access;
        state.core.unlisten(self.local.port());
        state.waiters.close_queue(self.local.port(), &mut state.core);
        state.core.close(self.local);
        access.submitted();
    }
}

/// The future of [`Server::accept_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Accept<'a> {
    server: &'a Server,
    ticket: Option<u64>,
}

impl Future for Accept<'_> {
    type Output = Option<Request>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ServerPort { engine, local } = &*self.server.0;
        let port = local.port();
        let Some(mut access) = engine.here() else { return Poll::Ready(None) };
        if let Some(ticket) = self.ticket.take() {
            access.waiters.stop_waiting(port, ticket);
        }
        let state = &mut *access;
        let arrived = state.waiters.accept(port, &mut state.core);
        if arrived.is_none() && !access.ends(port) {
            let waiting = WakeTarget::Task(context.waker().clone());
            let ticket = access.waiters.wait_for_request(port, waiting);
            access.need_leader();
            drop(access);
            self.ticket = Some(ticket);
            return Poll::Pending;
        }
        access.accepted();
        drop(access);
        Poll::Ready(arrived.map(|arrived| self.server.request(arrived)))
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let ServerPort { engine, local } = &*self.server.0;
            let port = local.port();
            let Some(mut access) = engine.here() else { return };
            access.waiters.stop_waiting(port, ticket);
            access.waiters.nudge(port);
        }
    }
}
