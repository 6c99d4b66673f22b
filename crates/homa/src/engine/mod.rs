//! The shared engine: opening it, its clients and servers, draining, and metrics.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) mod clock;
pub(crate) mod core;
mod fairness;
pub mod inline;
mod net;
mod probes;
pub(crate) mod wait;

use crate::client::Client;
use crate::config::Config;
use crate::driver::Driver;
use crate::driver::fork::Process;
use crate::driver::raw_ip::RawIpDriver;
use crate::driver::udp::{Steering, UdpDriver};
use crate::error::{DrainTimeout, OpenError};
use crate::metrics::Metrics;
use crate::server::Server;
use clock::Clock;
use core::{Core, canonical};
use net::shard_group::ShardGroup;
use wait::shared::{Access, Shared};
use wait::waiters::Waiters;

/// How often a drain checks whether everything is finished.
pub(crate) const DRAIN_STEP: Duration = Duration::from_millis(1);

/// An engine shared by any number of threads, tasks, clients, and servers. Clones are handles of
/// the same engine, which lives as long as the last handle, client, server, call, or request. It
/// belongs to the process that opened it: in a child created by `fork`, every operation is refused
/// (`Forked`), and dropping the engine does nothing.
#[derive(Clone)]
pub struct Engine {
    group: Arc<EngineGroup>,
    /// The engine's number in the group.
    shard: usize,
}

/// Engines that share an address, usually one. They start and end together, because the datagrams
/// for an engine that is gone would reach another.
struct EngineGroup {
    engines: Box<[Owner]>,
    /// Chooses the engine of a peer if there are several.
    steering: Option<Steering>,
}

/// Stops the helper thread when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
    helper: Option<JoinHandle<()>>,
    local: SocketAddr,
    clock: Clock,
    process: Process,
}

impl Owner {
    fn start(
        driver: Box<dyn Driver>,
        config: Config,
        shard_group: Option<ShardGroup>,
        listening: Option<Waiters>,
    ) -> Result<Self, OpenError> {
        let (local, spin) = (driver.local()[0], config.spin);
        let mut core = Core::new(driver, config, shard_group)?;
        // Before the first packet is read, so that no request is refused.
        if listening.is_some() {
            core.listen(local.port())?;
        }
        let clock = core.clock();
        let (shared, helper) = Shared::start(core, spin, listening.unwrap_or_default())?;
        Ok(Self { shared, helper: Some(helper), local, clock, process: Process::this() })
    }

    /// An engine without a helper, in the time of the current tokio runtime.
    #[cfg(feature = "testing")]
    fn simulated(driver: Box<dyn Driver>, config: Config) -> Result<Self, OpenError> {
        let local = driver.local()[0];
        let mut core = Core::new(driver, config, None)?;
        core.simulate_time();
        let clock = core.clock();
        let shared = Arc::new(Shared::new(core, Duration::ZERO, Waiters::default())?);
        Ok(Self { shared, helper: None, local, clock, process: Process::this() })
    }

    fn shared(&self) -> Option<&Shared> {
        self.process.is_this().then_some(&*self.shared)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The helper, and any thread that holds the lock, exist only in the parent.
            std::mem::forget(self.helper.take());
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.close();
        // The helper itself may drop the last handle, with the waker of a task, and cannot wait for
        // itself.
        if let Some(helper) = self.helper.take()
            && helper.thread().id() != thread::current().id()
        {
            // A panic of the helper was reported when it happened.
            let _ = helper.join();
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Engine");
        debug.field("local", &self.local_addr());
        if self.group.steering.is_some() {
            debug.field("shard", &self.shard);
        }
        debug.finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens an engine over UDP at a local address (port 0: any).
    ///
    /// # Errors
    /// [`OpenError::InUse`] or [`OpenError::Bind`] if the address cannot be bound;
    /// [`OpenError::Unprotected`] if it is not on loopback (nor is an unspecified address), and
    /// there are neither keys nor the choice of plaintext; and those of [`Self::with_driver`].
    pub fn bind(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::new(at, config.receive_buffer)
            .map_err(|source| OpenError::bind(at, source))?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over a UDP socket that is already bound, of IPv4 or IPv6: one that was
    /// inherited, for example from systemd (socket activation), or was bound with options of the
    /// application's. It is used as one from [`Self::bind`], with the same options.
    ///
    /// Only one engine at a time may use a socket, also of several processes that have descriptors
    /// of it, because each datagram reaches one of them. What arrives while no engine uses it waits
    /// in its queue. If requests may wait there, open the engine with [`Server::from_socket`], so
    /// that they find its server.
    ///
    /// # Errors
    /// [`OpenError::Socket`] says what is wrong with the descriptor; and those of
    /// [`Self::with_driver`].
    ///
    /// ```
    /// use homa::{Config, Engine};
    ///
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let engine = Engine::from_socket(socket, Config::default())?;
    /// # let server = homa::Server::bind("127.0.0.1:0".parse()?)?;
    /// # let address = server.local_addr();
    /// # std::thread::spawn(move || server.accept().map(|request| request.reply("pong")));
    /// assert_eq!(engine.client().call(address, "ping")?, *b"pong");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_socket(socket: impl Into<OwnedFd>, config: Config) -> Result<Self, OpenError> {
        let driver = UdpDriver::from_socket(socket.into(), config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over raw IP, protocol 146, for peers that run the Linux kernel module; use
    /// it with [`Config::linux`]. It needs the capability CAP_NET_RAW. Servers choose a port below
    /// 32,768; port 0 is any port from there on. `[::]` also serves IPv4.
    ///
    /// ```no_run
    /// use homa::{Config, Engine};
    ///
    /// let engine = Engine::raw_ip("0.0.0.0:0".parse()?, Config::linux())?;
    /// let response = engine.client().call("10.0.0.7:4000".parse()?, "ping")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw_ip(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = RawIpDriver::new(at, config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over UDP that bypasses the system's network stack (AF_XDP). Peers may use
    /// AF_XDP or plain UDP. It needs CAP_NET_ADMIN, CAP_BPF, and CAP_NET_RAW, and Linux 5.9. Only
    /// one engine can use an interface at a time. The host's packet filters do not see these
    /// packets.
    ///
    /// # Errors
    /// [`OpenError::NeedsXdp`] without the capabilities, and others that say why it cannot be used.
    /// [`Self::bind`] then reaches the same peers.
    ///
    /// ```no_run
    /// use homa::{Config, Engine};
    ///
    /// let at = "10.0.0.7:4000".parse()?;
    /// let config = Config::default().plaintext();
    /// let engine = Engine::xdp(at, config.clone()).or_else(|error| {
    ///     eprintln!("{error}");
    ///     Engine::bind(at, config)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "xdp")]
    pub fn xdp(at: SocketAddr, config: Config) -> Result<Self, OpenError> {
        let driver = crate::driver::xdp::XdpDriver::new(at, config.receive_buffer)?;
        Self::with_driver(Box::new(driver), config)
    }

    /// Opens an engine over any driver, which must have at least one local address.
    ///
    /// # Errors
    /// [`OpenError::Config`] or [`OpenError::Mtu`] if `config` is out of range;
    /// [`OpenError::Unprotected`] as [`Self::bind`], unless the driver is in memory, over raw IP,
    /// or one of yours ([`Driver::needs_keys`]); [`OpenError::Resources`] if the system refuses a
    /// thread.
    pub fn with_driver(driver: Box<dyn Driver>, config: Config) -> Result<Self, OpenError> {
        Ok(Self::group(vec![Owner::start(driver, config, None, None)?], None))
    }

    /// Opens an engine that accepts requests at its first address before it receives anything.
    pub(crate) fn listening(
        driver: Box<dyn Driver>,
        config: Config,
        waiters: Waiters,
    ) -> Result<Self, OpenError> {
        Ok(Self::group(vec![Owner::start(driver, config, None, Some(waiters))?], None))
    }

    /// Opens an engine in simulated time, which a task has to drive.
    #[cfg(feature = "testing")]
    pub(crate) fn simulated(driver: Box<dyn Driver>, config: Config) -> Result<Self, OpenError> {
        Ok(Self::group(vec![Owner::simulated(driver, config)?], None))
    }

    /// Opens several engines that share an address, and returns the first. `steering` assigns peers
    /// to their drivers; each engine has its part of the limits of `config`.
    pub(crate) fn over(
        drivers: Vec<UdpDriver>,
        steering: Steering,
        config: &Config,
    ) -> Result<Self, OpenError> {
        let shards = drivers.len();
        let parts = (0..shards).map(|number| config.part(number, shards as u16));
        let each = drivers.into_iter().zip(parts.zip(ShardGroup::all(shards)));
        let start = |(driver, (part, shard_group))| {
            Owner::start(Box::new(driver), part, Some(shard_group), None)
        };
        let engines = each.map(start).collect::<Result<_, _>>()?;
        Ok(Self::group(engines, Some(steering)))
    }

    fn group(engines: Vec<Owner>, steering: Option<Steering>) -> Self {
        Self { group: Arc::new(EngineGroup { engines: engines.into(), steering }), shard: 0 }
    }

    fn owner(&self) -> &Owner {
        &self.group.engines[self.shard]
    }

    /// The engines that share the address.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = Self> {
        (0..self.group.engines.len()).map(|shard| Self { group: self.group.clone(), shard })
    }

    /// True if both are one engine, or share an address.
    pub(crate) fn is_sibling(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.group, &other.group)
    }

    /// The engine that receives a peer's datagrams: calls to the peer must leave from it.
    pub(crate) fn towards(&self, peer: SocketAddr) -> Cow<'_, Self> {
        let shard = self.group.steering.map_or(self.shard, |to| to.shard_of(canonical(peer)));
        match shard == self.shard {
            true => Cow::Borrowed(self),
            false => Cow::Owned(Self { group: self.group.clone(), shard }),
        }
    }

    /// The clock of deadlines.
    pub(crate) fn clock(&self) -> Clock {
        self.owner().clock
    }

    /// The first local address: calls leave from it.
    pub fn local_addr(&self) -> SocketAddr {
        self.owner().local
    }

    /// A client of this engine.
    pub fn client(&self) -> Client {
        Client::on(self.clone())
    }

    /// Opens a server at the engine's first address.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if the address already has a server or a
    /// [socket](crate::socket::Socket), [`OpenError::ShuttingDown`] if the engine drains,
    /// [`OpenError::Unprotected`] as [`Self::bind`].
    pub fn serve(&self) -> Result<Server, OpenError> {
        let at = self.local_addr();
        let mut access = self.vacant()?;
        access.core.listen(at.port())?;
        access.waiters.open_queue(at.port());
        drop(access);
        Ok(Server::on(self.clone(), at))
    }

    /// The lock, if a server may be opened at the first address.
    pub(crate) fn vacant(&self) -> Result<Access<'_>, OpenError> {
        let at = self.local_addr();
        let access = self.open_for_servers()?;
        access.core.may_serve(at)?;
        // A port has one server, whose queue its requests join.
        match access.waiters.has_queue(at.port()) {
            true => Err(OpenError::InUse { at }),
            false => Ok(access),
        }
    }

    /// The lock, if servers may be opened. A socket receives the requests of all addresses of its
    /// engine.
    fn open_for_servers(&self) -> Result<Access<'_>, OpenError> {
        let Some(access) = self.here() else { return Err(OpenError::Forked) };
        match access.draining {
            true => Err(OpenError::ShuttingDown),
            false if access.waiters.has_mailbox() => {
                Err(OpenError::InUse { at: self.local_addr() })
            }
            false => Ok(access),
        }
    }

    /// Opens a server at another address (port 0: any).
    ///
    /// # Errors
    /// As [`Self::serve`], and [`OpenError::Bind`].
    pub fn serve_at(&self, at: SocketAddr) -> Result<Server, OpenError> {
        let mut access = self.open_for_servers()?;
        let at = access.core.bind(at)?;
        access.core.listen(at.port())?;
        access.waiters.open_queue(at.port());
        access.bound();
        drop(access);
        Ok(Server::on(self.clone(), at))
    }

    /// Finishes gracefully. New calls, requests, and servers are refused at once; those in progress
    /// are finished and acknowledged. Calls on behalf of a request in progress
    /// ([`Request::client`](crate::Request::client)) are still accepted. `accept` still returns
    /// requests that were already received, then `None`. If a server has accepted early data, it
    /// then waits for the end of the handshake, with which the ticket for the next client comes
    /// unless it is lost ([`Self::awaits_ticket`]).
    ///
    /// # Errors
    /// [`DrainTimeout`] if some are unfinished when `timeout` has passed.
    pub fn drain(&self, timeout: Duration) -> Result<(), DrainTimeout> {
        // A timeout beyond the clock's range means no timeout.
        let until = Instant::now().checked_add(timeout);
        self.refuse();
        match self.finish(until) {
            (0, 0) => {
                self.finish_handshakes(until);
                Ok(())
            }
            (calls, requests) => Err(DrainTimeout { calls, requests }),
        }
    }

    /// Whether a server has accepted early data of this engine, and has not sent the ticket for the
    /// next client yet, which it does a round trip later. An engine that ends before leaves no
    /// ticket, and [`Self::drain`] waits for it. At most some 5 s after the call it is false,
    /// whether or not the ticket has come.
    pub fn awaits_ticket(&self) -> bool {
        self.here().is_some_and(|access| access.core.awaits_ticket())
    }

    /// Waits for tickets.
    pub(crate) fn finish_handshakes(&self, until: Option<Instant>) {
        let Some(mut access) = self.here() else { return };
        while access.core.awaits_ticket() {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return;
            }
            let step = until.map_or(now + DRAIN_STEP, |until| until.min(now + DRAIN_STEP));
            access.block(Some(step), |state| (!state.core.awaits_ticket()).then_some(()));
        }
    }

    /// Begins to drain.
    pub(crate) fn refuse(&self) {
        let Some(mut access) = self.here() else { return };
        access.draining = true;
        let ports: Vec<_> = access.core.driver().local().iter().map(SocketAddr::port).collect();
        ports.into_iter().for_each(|port| access.core.unlisten(port));
        access.waiters.wake_all();
        access.submitted();
    }

    /// Waits until everything in progress is finished; returns the numbers of calls and requests
    /// that are not.
    pub(crate) fn finish(&self, until: Option<Instant>) -> (usize, usize) {
        let Some(mut access) = self.here() else { return (0, 0) };
        loop {
            let (calls, requests) = access.core.rpcs();
            // Without further calls no DATA carries the ACKs, so they are sent now.
            if calls == 0 {
                access.core.flush_acks();
                access.submitted();
            }
            let now = Instant::now();
            if (calls, requests) == (0, 0) || until.is_some_and(|until| now >= until) {
                return (calls, requests);
            }
            // Requests end without an event for this thread, so it looks again now and then.
            let step = until.map_or(now + DRAIN_STEP, |until| until.min(now + DRAIN_STEP));
            access.block(Some(step), |state| (state.core.rpcs() == (0, 0)).then_some(()));
        }
    }

    /// A snapshot of the metrics; all zero in a child of the process that opened the engine.
    pub fn metrics(&self) -> Metrics {
        self.here().map(|access| access.core.metrics()).unwrap_or_default()
    }

    /// Locks the engine. `None` in a child of the process that opened the engine, because the lock
    /// might never be released there.
    pub(crate) fn here(&self) -> Option<Access<'_>> {
        self.shared().map(Shared::access)
    }

    /// The engine's common part and its process; `None` in such a child.
    pub(crate) fn shared_by(&self) -> Option<(&Arc<Shared>, Process)> {
        let owner = self.owner();
        owner.process.is_this().then_some((&owner.shared, owner.process))
    }

    /// The parts that need no lock; `None` in such a child.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        self.owner().shared()
    }
}
