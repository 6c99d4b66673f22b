//! Two hosts on one machine: a veth pair between two network namespaces, a core for each side.
//!
//! Every rival runs over the same pair, with the offloads the kernel gives a veth device by default.
//! Invariant: a side's sockets are opened by a thread that stands in that side's namespace.
//! Nothing is left behind: the namespaces end with the process.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns, unshare};
use nix::unistd::{Pid, getgid, getuid, gettid};

/// Where the server is.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// Where the client is.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

/// The pair of hosts.
pub struct Pair {
    server: Host,
    client: Host,
}

/// One side: its namespace and its core.
#[derive(Clone)]
struct Host {
    namespace: Arc<File>,
    core: Option<usize>,
}

impl Host {
    /// Moves the calling thread to this side.
    fn enter(&self) -> io::Result<()> {
        setns(&*self.namespace, CloneFlags::CLONE_NEWNET)?;
        if let Some(core) = self.core {
            let mut set = CpuSet::new();
            set.set(core)?;
            sched_setaffinity(Pid::from_raw(0), &set)?;
        }
        Ok(())
    }
}

/// What a server's code is given.
pub struct ServerSide {
    listening: mpsc::Sender<SocketAddr>,
    stop: Arc<AtomicBool>,
}

impl ServerSide {
    /// Tells the client where to send; the client starts after the first of these.
    pub fn listening(&self, address: SocketAddr) {
        // The client may have given up already: then nobody needs the address.
        let _ = self.listening.send(address);
    }

    /// Whether the client is done: polled by servers that spin.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Pair {
    /// Builds the pair. The process moves into a user and network namespace of its own, so this must run
    /// before any thread is started; no privilege is needed.
    pub fn build() -> anyhow::Result<Self> {
        let (uid, gid) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
            .context("this system refuses user and network namespaces")?;
        std::fs::write("/proc/self/setgroups", "deny").context("could not map the group")?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
        let client = connect_client()?;
        let [server_core, client_core] = two_cores();
        Ok(Self {
            server: Host { namespace: Arc::new(namespace()?), core: server_core },
            client: Host { namespace: Arc::new(client), core: client_core },
        })
    }

    /// Runs `server` and `client`, each on its side and its core, and returns what the client measured.
    ///
    /// When the client fails the server is left alone: the program is about to end.
    pub fn run<T: Send + 'static>(
        &self,
        server: impl FnOnce(&ServerSide) -> io::Result<()> + Send + 'static,
        client: impl FnOnce(SocketAddr) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, listening) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let side = ServerSide { listening: sender, stop: Arc::clone(&stop) };
        let (server_host, client_host) = (self.server.clone(), self.client.clone());
        let server = thread::spawn(move || {
            server_host.enter()?;
            server(&side)
        });
        let measured = match listening.recv() {
            Ok(address) => {
                let client = thread::spawn(move || {
                    client_host.enter()?;
                    client(address)
                });
                joined(client)?
            }
            Err(_) => return Err(joined(server).err().unwrap_or_else(|| died("server"))),
        };
        stop.store(true, Ordering::Relaxed);
        joined(server)?;
        Ok(measured)
    }
}

/// Makes the client's namespace and the cable to it; the caller stands in the server's.
fn connect_client() -> anyhow::Result<File> {
    let (tell_thread, its_thread) = mpsc::channel();
    let (tell_plugged, plugged) = mpsc::channel::<()>();
    let client = thread::spawn(move || -> anyhow::Result<File> {
        unshare(CloneFlags::CLONE_NEWNET).context("could not make a second namespace")?;
        tell_thread.send(gettid())?;
        plugged.recv()?;
        ip(&["addr", "add", &format!("{CLIENT}/24"), "dev", "homa1"])?;
        ip(&["link", "set", "homa1", "up"])?;
        namespace()
    });
    let thread = its_thread.recv().context("could not make a second namespace")?;
    ip(&["link", "add", "homa0", "type", "veth", "peer", "name", "homa1"])?;
    ip(&["link", "set", "homa1", "netns", &thread.to_string()])?;
    ip(&["addr", "add", &format!("{SERVER}/24"), "dev", "homa0"])?;
    ip(&["link", "set", "homa0", "up"])?;
    tell_plugged.send(())?;
    match client.join() {
        Ok(namespace) => namespace,
        Err(_) => bail!("the thread that makes the second namespace died"),
    }
}

/// The calling thread's network namespace.
fn namespace() -> anyhow::Result<File> {
    File::open("/proc/thread-self/ns/net").context("could not open the network namespace")
}

/// Runs `ip` in the calling thread's namespace.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("could not run `ip`")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}`: {}", arguments.join(" "), reason.trim());
    }
    Ok(())
}

/// The first two cores this process may use, server first; with fewer than two nobody is pinned.
fn two_cores() -> [Option<usize>; 2] {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return [None; 2] };
    let mut cores = (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false));
    match (cores.next(), cores.next()) {
        (Some(server), Some(client)) => [Some(server), Some(client)],
        _ => [None; 2],
    }
}

/// Waits for a side; its panic becomes an error.
fn joined<T>(side: thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    side.join().unwrap_or_else(|_| Err(died("measuring")))
}

fn died(which: &str) -> io::Error {
    io::Error::other(format!("the {which} thread ended without a result"))
}
