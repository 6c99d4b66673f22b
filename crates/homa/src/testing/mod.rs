//! A network in memory with simulated time, for tests of an application (feature `testing`).
//!
//! The code under test is the application's own, unchanged: it gets its [`Engine`]s, [`Client`]s,
//! and [`Server`]s from a [`Host`] of a [`Network`]. Time is the paused clock of tokio, which jumps
//! to the next event when every task waits, so a deadline of 10 s costs microseconds. Latency,
//! loss, reordering, partitions, and crashes are decided by a seed: the same seed gives the same
//! run.
//!
//! ```
//! use std::time::Duration;
//!
//! use homa::testing::Network;
//! use homa::{CallError, CallOptions, OpenError, Server};
//!
//! /// The application.
//! async fn serve(server: Server) {
//!     while let Some(request) = server.accept_async().await {
//!         let reply = request.to_ascii_uppercase();
//!         let _ = request.reply_async(reply).await; // The client may have given up.
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a test with #[tokio::test(start_paused = true)]
//! let network = Network::new(7);
//! let (user, shop) = (network.host("user"), network.host("shop"));
//! shop.spawn(serve(shop.server(4000)?));
//! let client = user.client()?;
//! let to = shop.address(4000);
//! assert_eq!(client.call_async(to, "hello").await?, *b"HELLO");
//!
//! network.partition(&user, &shop);
//! let patient = CallOptions::deadline(Duration::from_secs(60)); // Of simulated time.
//! let late = client.call_async_with(to, "hello", &patient).await;
//! assert!(matches!(late, Err(CallError::DeadlineExceeded | CallError::Unreachable)), "{late:?}");
//!
//! network.heal(&user, &shop);
//! assert_eq!(client.call_async(to, "hello").await?, *b"HELLO");
//! # Ok(())
//! # }
//! ```
//!
//! # Seeds
//! If a test fails, its output names the seed. The variable `HOMA_TESTING_SEED` overrides the seed
//! of every network, so that a run can be repeated, or a test be run with many seeds. Equal runs
//! have equal [`Network::trace_hash`]es. What the application draws at random, a `select!` without
//! `biased`, and hash maps that are iterated can make runs differ; so do engines with
//! [keys](crate::Config::keys), because their handshakes use the system's random numbers.
//!
//! # What the code under test may do
//! * It uses the asynchronous functions. A blocking one ([`Client::call`], [`Server::accept`],
//!   [`Engine::drain`]) panics, because it would stop the time for which it waits.
//! * It measures time with `tokio::time::Instant`. [`Request::deadline`](crate::Request::deadline)
//!   is in simulated time: compare it with `tokio::time::Instant::now().into_std()`, or use
//!   [`Request::remaining`](crate::Request::remaining).
//! * It may call [`Engine::drive_on_tokio`], which does nothing here.
//!
//! As long as a closure of `spawn_blocking` runs, the time stands still.
//!
//! Left out: sockets, the kernel, and threads; a runtime with several threads; steps of time below
//! 1 ms, because the timers of tokio have none; [`inline::Engine`](crate::inline::Engine).

mod link;
mod process;
mod state;

use std::cell::RefCell;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::tokio::runtime::{Handle, RuntimeFlavor};
use ::tokio::task::JoinHandle;
use ::tokio::time::Instant;

use crate::client::Client;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::server::Server;
pub use link::LinkConditions;
use process::{Driving, Gate, Gated, Sockets};
pub use state::Counters;
use state::{HostState, NetworkShared, ip_of, pair};

/// Overrides the seed of every network.
const SEED: &str = "HOMA_TESTING_SEED";

thread_local! {
    /// The network of this thread's runtime.
    static CURRENT: RefCell<Weak<NetworkShared>> = const { RefCell::new(Weak::new()) };
}

fn current() -> Option<Arc<NetworkShared>> {
    CURRENT.try_with(|current| current.borrow().upgrade()).ok().flatten()
}

/// True if the time of the runtime stands still while the system's passes.
fn is_paused() -> bool {
    let (real, simulated) = (std::time::Instant::now(), Instant::now());
    while real.elapsed() < Duration::from_micros(10) {
        std::hint::spin_loop();
    }
    Instant::now() == simulated
}

/// A random number from the network of this thread, if there is one.
pub(crate) fn random() -> Option<u64> {
    current().map(|network| network.state().draws.next())
}

/// The addresses of a name in this thread's network; `None` if it is not known there.
#[cfg(feature = "balance")]
pub(crate) fn lookup(name: &str) -> Option<Vec<IpAddr>> {
    let network = current()?;
    let state = network.state();
    let hosts = state.names.get(name).cloned().or_else(|| Some(vec![state.host_of(name)?]))?;
    Some(hosts.into_iter().map(ip_of).collect())
}

/// A network in memory. Clones are handles of the same network. See the [module](self).
#[derive(Clone, Debug)]
pub struct Network(Arc<NetworkShared>);

impl Network {
    /// A network for the current runtime. The seed decides everything that is random: set the
    /// variable `HOMA_TESTING_SEED` to use another one. A thread has one network at a time: its
    /// latest resolves names and gives random numbers.
    ///
    /// # Panics
    /// Unless it runs in a tokio runtime with one thread whose time is paused
    /// (`#[tokio::test(start_paused = true)]`), or if the variable is not a number.
    pub fn new(seed: u64) -> Self {
        let runtime = Handle::try_current().ok();
        let flavor = runtime.as_ref().map(Handle::runtime_flavor);
        assert!(
            flavor == Some(RuntimeFlavor::CurrentThread) && is_paused(),
            "homa::testing needs a tokio runtime with one thread and paused time: use \
             #[tokio::test(start_paused = true)]"
        );
        let seed = std::env::var(SEED).map_or(seed, |text| {
            text.parse().unwrap_or_else(|_| panic!("{SEED}={text} is not a number below 2^64"))
        });
        let shared = Arc::new(NetworkShared::new(seed));
        CURRENT.with(|current| *current.borrow_mut() = Arc::downgrade(&shared));
        ::tokio::spawn(shared.clone().deliver());
        Self(shared)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The host of a name, which is new if the name is. Hosts have the addresses 10.0.0.1,
    /// 10.0.0.2, and so on. In targets of `homa::balance`, names of hosts stand for these.
    pub fn host(&self, name: &str) -> Host {
        let mut state = self.0.state();
        let number = state.host_of(name).unwrap_or_else(|| {
            state.hosts.push(HostState::new(name));
            state.hosts.len() - 1
        });
        Host { network: self.0.clone(), number }
    }

    /// Sets which hosts a name stands for in targets of `homa::balance`, as a name server would.
    /// Balancers look it up again after their time ([`refresh`](crate::balance::Config::refresh)),
    /// or if a server is gone.
    #[cfg(feature = "balance")]
    pub fn set_name(&self, name: &str, hosts: &[Host]) {
        let hosts = hosts.iter().map(|host| host.number).collect();
        self.0.state().names.insert(name.to_owned(), hosts);
    }

    /// Sets the path between all hosts that have no other, for datagrams that are sent from now on.
    pub fn set_link(&self, link: LinkConditions) {
        self.0.state().usual = link;
    }

    /// Sets the path between two hosts, for datagrams that are sent from now on.
    pub fn set_link_between(&self, a: &Host, b: &Host, link: LinkConditions) {
        self.0.state().paths.insert(pair(a.number, b.number), link);
    }

    /// Stops all datagrams between two hosts, in both directions, also those on their way.
    pub fn partition(&self, a: &Host, b: &Host) {
        self.0.state().partitions.insert(pair(a.number, b.number));
    }

    /// Ends the partition between two hosts.
    pub fn heal(&self, a: &Host, b: &Host) {
        self.0.state().partitions.remove(&pair(a.number, b.number));
    }

    /// Stops all datagrams between a host and every other that exists now, as if the host had lost
    /// its cable or its power.
    pub fn isolate(&self, host: &Host) {
        let mut state = self.0.state();
        let others = (0..state.hosts.len()).filter(|other| *other != host.number);
        let pairs: Vec<_> = others.map(|other| pair(host.number, other)).collect();
        state.partitions.extend(pairs);
    }

    /// Ends all partitions.
    pub fn heal_all(&self) {
        self.0.state().partitions.clear();
    }

    /// What became of the datagrams so far.
    pub fn counters(&self) -> Counters {
        self.0.state().counters
    }

    /// A number that depends on every datagram so far: its time, sender, receiver, length, and
    /// fate. If two runs with one seed have different numbers, the application does something that
    /// the seed does not decide. The number may change with the version of this crate.
    pub fn trace_hash(&self) -> u64 {
        self.0.state().trace_hash()
    }
}

impl Drop for NetworkShared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("homa::testing: to repeat this run, set {SEED}={}", self.seed);
        }
    }
}

impl HostState {
    fn new(name: &str) -> Self {
        let (name, gate) = (name.to_owned(), Arc::new(Gate::default()));
        Self { name, gate, processes: Vec::new(), tasks: Vec::new(), held: Vec::new() }
    }
}

/// A host of a [`Network`], with its processes. Clones are handles of the same host.
#[derive(Clone, Debug)]
pub struct Host {
    network: Arc<NetworkShared>,
    number: usize,
}

impl Host {
    /// The address.
    pub fn ip(&self) -> IpAddr {
        ip_of(self.number)
    }

    /// The address with a port.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip(), port)
    }

    /// Opens an engine at a port (0: any), which a task of the runtime drives.
    ///
    /// # Errors
    /// As [`Engine::bind`].
    pub fn engine(&self, port: u16) -> Result<Engine, OpenError> {
        self.engine_with(port, Config::default())
    }

    /// As [`Self::engine`], with parameters. If they have no seed, the network draws it.
    ///
    /// # Errors
    /// As [`Engine::bind`].
    pub fn engine_with(&self, port: u16, mut config: Config) -> Result<Engine, OpenError> {
        let sockets = Sockets::new(&self.network, self.number, port)
            .map_err(|source| OpenError::bind(self.address(port), source))?;
        let process = sockets.process.clone();
        let mut state = self.network.state();
        config.seed = Some(config.seed.unwrap_or_else(|| state.draws.next()));
        let host = &mut state.hosts[self.number];
        host.processes.retain(|process| !process.is_over());
        host.processes.push(process.clone());
        let gate = host.gate.clone();
        drop(state);
        let engine = Engine::simulated(Box::new(sockets), config)?;
        let Some((shared, _)) = engine.shared_by() else { return Err(OpenError::Forked) };
        let link = shared.attach()?;
        ::tokio::spawn(Driving::new(gate, process, shared, link));
        Ok(engine)
    }

    /// Opens a client at any port.
    ///
    /// # Errors
    /// As [`Engine::bind`].
    pub fn client(&self) -> Result<Client, OpenError> {
        Ok(self.engine(0)?.client())
    }

    /// Opens a server at a port (0: any).
    ///
    /// # Errors
    /// As [`Engine::bind`].
    pub fn server(&self, port: u16) -> Result<Server, OpenError> {
        self.engine(port)?.serve()
    }

    /// Runs a task of this host. A crash ends it, and it makes no step while the host is paused.
    /// Tasks that it spawns in turn are not known here: after a crash they find that their engine
    /// has ended.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut state = self.network.state();
        let host = &mut state.hosts[self.number];
        let task = ::tokio::spawn(Gated { gate: host.gate.clone(), task: Box::pin(task) });
        host.tasks.retain(|task| !task.is_finished());
        host.tasks.push(task.abort_handle());
        task
    }

    /// Ends all engines and tasks of this host as a killed process ends: nothing is answered any
    /// more, and the host reports its ports as closed. Calls of code that still has one of these
    /// engines end with [`CallError::EngineFailed`](crate::CallError::EngineFailed). Engines opened
    /// afterwards, also at the same ports, have no memory of earlier requests. A host that loses
    /// its power reports nothing: use [`Network::isolate`] first.
    pub fn crash(&self) {
        self.network.crash(self.number);
    }

    /// Lets the host's engines and tasks do nothing, as if the system did not schedule its
    /// processes, until [`Self::resume`]. What arrives waits in the sockets.
    pub fn pause(&self) {
        self.network.state().hosts[self.number].gate.close();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.network.resume(self.number);
    }
}
