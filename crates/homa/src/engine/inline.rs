//! An engine driven by the caller's thread: no other thread and no lock.
//!
//! It has the shape of an event loop: submit calls and replies, [`Engine::poll`], and take
//! completions. Submitting only queues; packets leave in `poll`, so messages that are submitted
//! together travel together. If you stop polling, the transport stops, including grants,
//! retransmissions, and acknowledgements; too many untaken completions also stop it. Requests that
//! are left from an earlier turn are served in turns of their clients' hosts.
//!
//! ```
//! use homa::inline::{Completion, Engine, Wait};
//! use homa::{CallOptions, Config};
//!
//! let mut server = Engine::bind("127.0.0.1:0".parse()?, Config::default())?;
//! let mut client = Engine::bind("127.0.0.1:0".parse()?, Config::default())?;
//! server.listen()?;
//! client.call(server.local_addr(), "ping", 7, &CallOptions::default())?;
//! let response = loop {
//!     client.poll(Wait::No)?;
//!     server.poll(Wait::No)?;
//!     while let Some(Completion::Request { id, bytes, .. }) = server.next() {
//!         server.reply(id, bytes)?;
//!     }
//!     if let Some(Completion::Response { cookie: 7, result, .. }) = client.next() {
//!         break result?;
//!     }
//! };
//! assert_eq!(response, *b"ping");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod completion;
mod left;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::core::{Core, EngineEnd, EngineEvent, canonical};
use super::net::shard_group::ShardGroup;
use crate::call_options::CallOptions;
use crate::config::Config;
use crate::driver::raw_ip::RawIpDriver;
use crate::driver::udp::UdpDriver;
use crate::driver::{Driver, wait_or_writable};
use crate::error::{CallError, OpenError, ReplyError};
use crate::metrics::Metrics;
use crate::payload::Payload;
use crate::sharded;
pub use completion::{CallId, Completion, Partial, RequestId, Wait};
use left::{LeftRequest, LeftRequests, MAX_LEFT};

/// See the module's documentation.
pub struct Engine {
    core: Core,
    handles: Vec<RawFd>,
    left: LeftRequests,
}

impl Engine {
    /// Opens an engine over UDP at a local address (port 0: any).
    pub fn bind(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::new(at, config.receive_buffer)
            .map_err(|source| OpenError::bind(at, source))?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over a UDP socket that is already bound: see
    /// [`crate::Engine::from_socket`].
    pub fn from_socket(socket: impl Into<OwnedFd>, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::from_socket(socket.into(), config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens `shards` engines at one UDP address, each for a thread with an event loop, best on its
    /// core; see [`crate::Engine::sharded`] for limits and errors. A peer's datagrams reach the
    /// engine for which [`Self::hears`] returns true; the others refuse calls to that peer. As long
    /// as any engine is used, all must be kept and polled: the datagrams for one reach no other,
    /// and if one is dropped, the kernel renumbers the rest and their peers are cut off, too.
    ///
    /// ```
    /// use homa::inline::Engine;
    /// use homa::{CallOptions, Config};
    ///
    /// let mut shards = Engine::sharded("127.0.0.1:0".parse()?, 2, Config::default())?;
    /// let server = "127.0.0.1:4000".parse()?;
    /// let caller = shards.iter_mut().find(|shard| shard.hears(server)).unwrap();
    /// caller.call(server, "ping", 0, &CallOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sharded(at: SocketAddr, shards: usize, config: Config) -> Result<Vec<Self>, OpenError> {
        let drivers = sharded::drivers(at, shards, &config)?.0.into_iter();
        let parts = (0..shards).map(|number| config.part(number, shards as u16));
        let each = drivers.zip(parts.zip(ShardGroup::all(shards)));
        each.map(|(driver, (part, shard_group))| {
            Self::open(Box::new(driver), part, Some(shard_group))
        })
        .collect()
    }

    /// True if a peer's datagrams to the first local address reach this engine. Always true unless
    /// it is one of [`Self::sharded`].
    pub fn hears(&self, peer: SocketAddr) -> bool {
        self.core.driver().hears(0, canonical(peer))
    }

    /// Opens an engine over raw IP: see [`crate::Engine::raw_ip`].
    pub fn raw_ip(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = RawIpDriver::new(at, config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over AF_XDP: see [`crate::Engine::xdp`].
    #[cfg(feature = "xdp")]
    pub fn xdp(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = crate::driver::xdp::XdpDriver::new(at, config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over any driver, which must have at least one local address.
    pub fn with_driver(driver: Box<dyn Driver>, config: Config) -> Result<Self, OpenError> {
        Self::open(driver, config, None)
    }

    fn open(
        driver: Box<dyn Driver>,
        config: Config,
        shard_group: Option<ShardGroup>,
    ) -> Result<Self, OpenError> {
        let handles = driver.handles();
        Ok(Self {
            core: Core::new(driver, config, shard_group)?,
            handles,
            left: LeftRequests::default(),
        })
    }

    /// The first local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.core.driver().local()[0]
    }

    /// Accepts requests at the first local address.
    ///
    /// # Errors
    /// [`OpenError::Unprotected`] if other hosts reach the address, and the engine was opened with
    /// neither keys nor plaintext by choice ([`Config::calls_only`]).
    pub fn listen(&mut self) -> Result<(), OpenError> {
        let port = self.local_addr().port();
        self.core.listen(port)
    }

    /// Opens another local address and accepts requests there.
    pub fn listen_also(&mut self, at: SocketAddr) -> Result<SocketAddr, OpenError> {
        let bound = self.core.bind(at)?;
        self.core.listen(bound.port())?;
        self.handles = self.core.driver().handles();
        Ok(bound)
    }

    /// Refuses new requests at a local port; requests in progress are not affected.
    pub fn unlisten(&mut self, port: u16) {
        self.core.unlisten(port);
    }

    /// Starts a call. Its completion carries the same `cookie`.
    pub fn call(
        &mut self,
        to: SocketAddr,
        request: impl Into<Payload>,
        cookie: u64,
        options: &CallOptions,
    ) -> Result<CallId, CallError> {
        self.core.call(0, to, request.into(), options, cookie).map(CallId)
    }

    /// Cancels a call: there will be no completion, and the server is told. False if it had ended.
    pub fn cancel(&mut self, call: CallId) -> bool {
        self.core.cancel(call.0)
    }

    /// Answers a request. After any error but [`ReplyError::Gone`], the request still waits: reply
    /// again (keep the response in [`bytes::Bytes`] if it is the same), or [`Self::refuse`] it.
    pub fn reply(
        &mut self,
        request: RequestId,
        response: impl Into<Payload>,
    ) -> Result<(), ReplyError> {
        self.core.reply(request.0, response.into()).map_err(|(error, _)| error)
    }

    /// Drops a request without an answer. Its client is told at once ([`CallError::Abandoned`], or
    /// [`CallError::ResponseTooLong`] after such a reply), except in the profile of the kernel
    /// module. False if the request had ended.
    pub fn refuse(&mut self, request: RequestId) -> bool {
        self.core.abandon(request.0)
    }

    /// One full turn without sleeping: sends, receives, and runs timers. Call it from an outer
    /// event loop if one of [`Self::handles`] is readable or [`Self::timeout`] has passed. A thread
    /// that only spins should call [`Self::poll`], which reads the clock less often. True if
    /// [`Self::next`] has something.
    pub fn turn(&mut self) -> bool {
        if self.core.is_here() {
            self.set_aside();
            self.core.turn(true);
        }
        self.has_ready()
    }

    /// As [`Self::turn`], for loops that know that none of [`Self::handles`] was readable. It looks
    /// for arrivals only before it runs a timer. If packets wait for the link, few turns do.
    pub fn turn_without_arrivals(&mut self) -> bool {
        if self.core.is_here() {
            self.set_aside();
            self.core.turn(false);
        }
        self.has_ready()
    }

    fn has_ready(&self) -> bool {
        self.core.has_ready() || !self.left.is_empty()
    }

    /// True if [`Self::next`] has something; an error if nothing is left and nothing will come.
    fn ready(&mut self) -> io::Result<bool> {
        match self.core.ended() {
            Some(EngineEnd::Failed(errno)) if !self.has_ready() => {
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(self.has_ready()),
        }
    }

    /// Queues the requests that the application did not take.
    fn set_aside(&mut self) {
        // An outer event loop must not watch numbers that may be files by now.
        if self.core.ended().is_some() {
            self.handles.clear();
        }
        while self.core.has_ready()
            // Events beyond that stay in the core, which stops reading until they are taken.
            && self.left.len() < MAX_LEFT
            && let Some(EngineEvent::Request { rpc, from, port, bytes, context, .. }) =
                self.core.next_request()
        {
            let now = self.core.time();
            // Refused now, while its client can still do something else.
            match self.left.admits(now, from, context.until) {
                true => self.left.push(now, LeftRequest { rpc, from, port, bytes, context }),
                false => self.core.shed(rpc, bytes),
            }
        }
    }

    /// Sends, receives, and runs timers; sleeps if it is asked to and nothing is ready. True if
    /// [`Self::next`] has something.
    pub fn poll(&mut self, how_long: Wait) -> io::Result<bool> {
        if !self.core.is_here() {
            return Err(io::Error::other(CallError::Forked));
        }
        self.set_aside();
        self.core.spin();
        // One turn without sleeping comes first, because it mostly finds something.
        if self.has_ready() || how_long == Wait::No {
            return self.ready();
        }
        let until = match how_long {
            Wait::For(time) => Instant::now().checked_add(time),
            Wait::Forever | Wait::No => None,
        };
        while !self.has_ready() {
            self.ready()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let timeout = [self.core.idle(), left].into_iter().flatten().min();
            let sleeps = timeout.is_none_or(|timeout| !timeout.is_zero());
            let full = self.core.full_socket();
            // If something is due, the turn must not wait, and looks for arrivals itself.
            let arrived = match sleeps {
                true => wait_or_writable(&self.handles, full, None, timeout),
                false => Ok(true),
            };
            match arrived {
                Ok(arrived) => self.core.turn(arrived),
                // The application closed a descriptor of this engine by mistake.
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                    self.core.fail(libc::EBADF);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.has_ready())
    }

    /// Sends submitted messages as far as they may leave now, without looking for arrivals. It
    /// saves a system call in loops that learn about arrivals from [`Self::handles`].
    pub fn flush(&mut self) {
        self.core.flush();
    }

    /// The next completion.
    #[allow(clippy::should_implement_trait)] // Not an iterator: it resumes after `poll`.
    pub fn next(&mut self) -> Option<Completion> {
        loop {
            let Some(ready) = self.core.next() else {
                // The clock is read only if requests wait.
                let now = if self.left.is_empty() { None } else { Some(self.core.time()) }?;
                let request = self.left.pop(now)?;
                // Its client has given up, so the work would be wasted.
                if self.core.is_late(&request.context) {
                    self.core.expire(request.rpc, request.bytes);
                    continue;
                }
                return Some(self.take(request));
            };
            return Some(match ready {
                EngineEvent::Response { rpc, cookie, result, .. } => {
                    self.core.accepted(result.as_ref().map_or(0, |bytes| bytes.len()));
                    Completion::Response { id: CallId(rpc), cookie, result }
                }
                EngineEvent::Request { rpc, from, port, bytes, context, .. } => {
                    let request = LeftRequest { rpc, from, port, bytes, context };
                    // It takes its place behind earlier requests, in the turns of hosts.
                    if !self.left.is_empty() {
                        self.left.push(self.core.time(), request);
                        continue;
                    }
                    self.take(request)
                }
                // Only servers of a shared engine read requests early.
                EngineEvent::Whole { bytes, .. } => {
                    self.core.accept_request(bytes);
                    continue;
                }
                EngineEvent::Readable(partial) => {
                    Completion::Readable { message: Partial(partial), cookie: partial.cookie }
                }
                EngineEvent::Cancelled { rpc } => {
                    // The application has not seen a request that was left over.
                    if let Some(request) = self.left.remove(self.core.time(), rpc) {
                        self.core.accept_request(request.bytes);
                        continue;
                    }
                    Completion::Cancelled { id: RequestId(rpc) }
                }
            });
        }
    }

    #[inline]
    fn take(&mut self, request: LeftRequest) -> Completion {
        let LeftRequest { rpc, from, port, bytes, context } = request;
        let bytes = self.core.accept_request(bytes);
        self.core.note_taken(rpc);
        let (id, deadline) = (RequestId(rpc), self.core.instant(context.until));
        Completion::Request {
            id,
            from,
            port,
            bytes,
            deadline,
            trace: context.trace,
            #[cfg(feature = "encryption")]
            peer_identity: context.identity,
        }
    }

    /// The contiguous first bytes of a long message; `None` after it was delivered or given up.
    ///
    /// ```
    /// use homa::inline::{Completion, Engine, Wait};
    /// use homa::{CallOptions, Config};
    ///
    /// let mut config = Config::default();
    /// config.protocol.readable_events = true;
    /// let mut server = Engine::bind("127.0.0.1:0".parse()?, config)?;
    /// let mut client = Engine::bind("127.0.0.1:0".parse()?, Config::default())?;
    /// server.listen()?;
    /// client.call(server.local_addr(), vec![7; 1_000_000], 0, &CallOptions::default())?;
    /// let mut sum = 0u64;
    /// let mut done = 0;
    /// let whole = loop {
    ///     client.poll(Wait::No)?;
    ///     server.poll(Wait::No)?;
    ///     match server.next() {
    ///         Some(Completion::Readable { message, .. }) => {
    ///             let Some(bytes) = server.read(&message) else { continue };
    ///             sum += bytes[done..].iter().map(|&b| u64::from(b)).sum::<u64>();
    ///             done = bytes.len();
    ///         }
    ///         Some(Completion::Request { bytes, .. }) => break bytes,
    ///         _ => {}
    ///     }
    /// };
    /// sum += whole[done..].iter().map(|&b| u64::from(b)).sum::<u64>();
    /// assert_eq!(sum, 7_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, message: &Partial) -> Option<&[u8]> {
        self.core.read(&message.0)
    }

    /// Calls and requests in progress, including those that wait for an acknowledgement.
    pub fn in_progress(&self) -> (usize, usize) {
        self.core.rpcs()
    }

    /// File descriptors that become readable if `turn` would find something. For an outer event
    /// loop, together with [`Self::timeout`] and [`Self::turn`].
    pub fn handles(&self) -> &[RawFd] {
        &self.handles
    }

    /// When `turn` should be called again even if nothing arrives.
    pub fn timeout(&mut self) -> Option<Duration> {
        self.core.idle()
    }

    /// A snapshot of the metrics.
    pub fn metrics(&self) -> Metrics {
        self.core.metrics()
    }
}

/// The descriptor of the first local address. Over UDP it is the only one unless
/// [`Engine::listen_also`] opened more. With [`Engine::sharded`], raw IP, or AF_XDP, watch all of
/// [`Engine::handles`].
impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.driver().first_handle()
    }
}
