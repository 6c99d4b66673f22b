//! Two hosts on one machine: a veth pair between two network namespaces, a core for each side.
//!
//! Every rival runs over the same pair, with the offloads the kernel gives a veth device by
//! default. Invariant: a side's sockets are opened by a thread that stands in that side's
//! namespace.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use homa_testbed::{TestbedError, VethPair};

use crate::cores;

/// Address of the server.
pub const SERVER: IpAddr = IpAddr::V4(VethPair::ADDRESSES[0]);
/// Address of the client.
pub const CLIENT: IpAddr = IpAddr::V4(VethPair::ADDRESSES[1]);

/// The pair of hosts.
pub struct Pair {
    network: Arc<VethPair>,
    cores: [Option<usize>; 2],
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// A side, by its place in [`VethPair::ends`].
#[derive(Clone, Copy)]
pub enum Side {
    /// Address of the server.
    Server = 0,
    /// Address of the client.
    Client = 1,
}

/// The arguments of a server's code.
pub struct ServerSide {
    listening: mpsc::Sender<SocketAddr>,
    stop: Arc<AtomicBool>,
}

impl ServerSide {
    /// Passes a server's address to the client, which starts when it has all that it needs.
    pub fn listening(&self, address: SocketAddr) {
        // If the client has given up already, the address is not needed.
        let _ = self.listening.send(address);
    }

    /// Whether the client is done: polled by servers that spin.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Pair {
    /// Builds the pair. The process moves into another network namespace, so this must run before
    /// any thread is started; no privilege is needed.
    pub fn build(mtu: u16) -> Result<Self, TestbedError> {
        let inside = homa_testbed::isolate()?;
        let network = Arc::new(VethPair::new(&inside, mtu.into())?);
        Ok(Self { network, cores: cores::two(), mtu })
    }

    /// Runs `server` and `client`, each on its side and its core, and returns what the client
    /// measured.
    pub fn run<T: Send + 'static>(
        &self,
        server: impl FnOnce(&ServerSide) -> io::Result<()> + Send + 'static,
        client: impl FnOnce(SocketAddr) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_many(server, 1, |servers| client(servers[0]))
    }

    /// The same with a server side that listens at `count` addresses.
    ///
    /// When the client fails the server is left alone: the program is about to end.
    pub fn run_many<T: Send + 'static>(
        &self,
        server: impl FnOnce(&ServerSide) -> io::Result<()> + Send + 'static,
        count: usize,
        client: impl FnOnce(Vec<SocketAddr>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, listening) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let told = ServerSide { listening: sender, stop: Arc::clone(&stop) };
        let server = self.spawn(Side::Server, move || server(&told));
        let addresses: Vec<SocketAddr> = listening.iter().take(count).collect();
        if addresses.len() < count {
            return Err(joined(server).err().unwrap_or_else(died));
        }
        let measured = joined(self.spawn(Side::Client, move || client(addresses)))?;
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        Ok(measured)
    }

    /// Starts `job` on a thread that stands in a side's namespace, on its core.
    fn spawn<T: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> thread::JoinHandle<io::Result<T>> {
        self.spawn_on(side, self.cores[side as usize], job)
    }

    /// Does something at a side.
    pub fn at<T: Send + 'static>(
        &self,
        side: Side,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        joined(self.spawn(side, job))
    }

    /// The cores, as many as there may be.
    pub fn cores(&self) -> [Option<usize>; 2] {
        self.cores
    }

    /// Starts `job` on a thread that stands in a side's namespace, on a core.
    pub fn spawn_on<T: Send + 'static>(
        &self,
        side: Side,
        core: Option<usize>,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> thread::JoinHandle<io::Result<T>> {
        let network = Arc::clone(&self.network);
        // The names tell the sides apart in profiles.
        let thread = thread::Builder::new().name(["server", "client"][side as usize].into());
        let run = move || {
            network.ends[side as usize].enter().map_err(io::Error::other)?;
            cores::stay_on(core)?;
            job()
        };
        thread.spawn(run).unwrap_or_else(|error| thread::spawn(move || Err(error)))
    }
}

/// Waits for a side; its panic becomes an error.
pub fn joined<T>(side: thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    side.join().unwrap_or_else(|_| Err(died()))
}

fn died() -> io::Error {
    io::Error::other("a measuring thread ended without a result")
}
