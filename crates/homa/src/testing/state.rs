//! The network: hosts, paths, and the datagrams that are on their way.
//!
//! Invariants: whatever a draw decides depends on the seed and on the order of datagrams only.
//! Datagrams arrive in the order of their times, and those of one time in the order in which they
//! were sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::tokio::sync::Notify;
use ::tokio::time::{Instant, timeout_at};
use homa_proto::Unreachable;
use homa_proto::wire::datagram;

use super::link::{Draws, LinkConditions};
use super::process::{Gate, Process};
use crate::driver::UnreachableReport;
use crate::driver::memory::{MemoryNetwork, NetworkFaults};

/// What became of the datagrams of a [`Network`](super::Network).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams that hosts sent.
    pub sent: u64,
    /// Copies that reached a socket.
    pub arrived: u64,
    /// Datagrams that a path lost ([`LinkConditions::lost`]).
    pub lost: u64,
    /// Datagrams that a path delivered twice ([`LinkConditions::duplicated`]).
    pub duplicated: u64,
    /// Copies that a partition stopped.
    pub blocked: u64,
    /// Copies that found no socket at their host, or no host.
    pub refused: u64,
}

/// What the handles of a network and its task share.
#[derive(Debug)]
pub(super) struct NetworkShared {
    pub(super) seed: u64,
    pub(super) memory: MemoryNetwork,
    state: Mutex<State>,
    /// A datagram was sent.
    sent: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) draws: Draws,
    /// The conditions of paths that were not set.
    pub(super) usual: LinkConditions,
    /// The conditions of each path that was set, by its two hosts, the lower number first.
    pub(super) paths: BTreeMap<(usize, usize), LinkConditions>,
    pub(super) partitions: BTreeSet<(usize, usize)>,
    pub(super) hosts: Vec<HostState>,
    /// Names that stand for several hosts.
    #[cfg(feature = "balance")]
    pub(super) names: BTreeMap<String, Vec<usize>>,
    pub(super) counters: Counters,
    sockets: BTreeMap<SocketAddr, Socket>,
    /// The addresses that a process has had so far.
    used: BTreeSet<SocketAddr>,
    flights: BTreeMap<(Instant, u64), Flight>,
    number: u64,
    /// When the wire from one host to another is free.
    free: BTreeMap<(usize, usize), Instant>,
    began: Instant,
    trace: DefaultHasher,
}

#[derive(Debug)]
pub(super) struct HostState {
    pub(super) name: String,
    pub(super) gate: Arc<Gate>,
    pub(super) processes: Vec<Arc<Process>>,
    pub(super) tasks: Vec<::tokio::task::AbortHandle>,
    /// What it sent while it was paused.
    pub(super) held: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

#[derive(Debug)]
struct Socket {
    process: Arc<Process>,
    reports: VecDeque<UnreachableReport>,
}

#[derive(Debug)]
enum Flight {
    Datagram { from: SocketAddr, to: SocketAddr, bytes: Vec<u8> },
    Report { to: SocketAddr, report: UnreachableReport },
}

/// The address of a host: 10.0.0.1 is the first one.
pub(super) fn ip_of(host: usize) -> IpAddr {
    let number = host as u32 + 1;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) | number & 0x00FF_FFFF).into()
}

pub(super) fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl NetworkShared {
    pub(super) fn new(seed: u64) -> Self {
        let state = State {
            draws: Draws::new(seed),
            usual: LinkConditions::default(),
            paths: BTreeMap::new(),
            partitions: BTreeSet::new(),
            hosts: Vec::new(),
            #[cfg(feature = "balance")]
            names: BTreeMap::new(),
            counters: Counters::default(),
            sockets: BTreeMap::new(),
            used: BTreeSet::new(),
            flights: BTreeMap::new(),
            number: 0,
            free: BTreeMap::new(),
            began: Instant::now(),
            trace: DefaultHasher::new(),
        };
        let memory = MemoryNetwork::new(seed, NetworkFaults::NONE);
        Self { seed, memory, state: Mutex::new(state), sent: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers datagrams when they are due, as long as the runtime exists.
    pub(super) async fn deliver(self: Arc<Self>) {
        loop {
            match self.arrive() {
                Some(next) => drop(timeout_at(next, self.sent.notified()).await),
                None => self.sent.notified().await,
            }
        }
    }

    /// Delivers the datagrams that are due; returns when the next one is.
    fn arrive(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        loop {
            let entry = state.flights.first_entry()?;
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            match entry.remove() {
                Flight::Datagram { from, to, bytes } => {
                    state.arrived(&self.memory, now, from, to, bytes);
                }
                Flight::Report { to, report } => state.reported(to, report),
            }
        }
    }

    /// A host sends a datagram.
    pub(super) fn send(&self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.state().send(from, to, bytes);
        self.sent.notify_one();
    }

    /// Opens a socket; true if no other has had the address.
    pub(super) fn open(&self, at: SocketAddr, process: Arc<Process>) -> bool {
        let mut state = self.state();
        state.sockets.insert(at, Socket { process, reports: VecDeque::new() });
        state.used.insert(at)
    }

    /// Closes a socket of a process.
    pub(super) fn close(&self, at: SocketAddr, process: &Arc<Process>) {
        let sockets = &mut self.state().sockets;
        if sockets.get(&at).is_some_and(|socket| Arc::ptr_eq(&socket.process, process)) {
            sockets.remove(&at);
        }
    }

    /// The next report for a socket.
    pub(super) fn report(&self, at: SocketAddr) -> Option<UnreachableReport> {
        self.state().sockets.get_mut(&at)?.reports.pop_front()
    }

    /// Ends the processes and tasks of a host.
    pub(super) fn crash(&self, host: usize) {
        let mut state = self.state();
        let HostState { processes, tasks, held, .. } = &mut state.hosts[host];
        let (processes, tasks) = (std::mem::take(processes), std::mem::take(tasks));
        held.clear();
        state.sockets.retain(|at, socket| {
            let stays = socket.process.host != host;
            if !stays {
                self.memory.close(*at);
            }
            stays
        });
        drop(state);
        tasks.into_iter().for_each(|task| task.abort());
        processes.into_iter().for_each(|process| process.crash());
        self.resume(host);
    }

    /// Sends what a host has sent while it was paused, and lets it run.
    pub(super) fn resume(&self, host: usize) {
        let gate = {
            let mut state = self.state();
            let gate = state.hosts[host].gate.clone();
            gate.open();
            for (from, to, bytes) in std::mem::take(&mut state.hosts[host].held) {
                state.send(from, to, bytes);
            }
            gate
        };
        self.sent.notify_one();
        gate.wake();
    }
}

impl State {
    pub(super) fn host_of(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    fn host_at(&self, ip: IpAddr) -> Option<usize> {
        (0..self.hosts.len()).find(|host| ip_of(*host) == ip)
    }

    /// A hash of all datagrams so far.
    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.finish()
    }

    fn trace(&mut self, what: u8, from: SocketAddr, to: SocketAddr, bytes: usize) {
        let since = self.began.elapsed().as_nanos();
        (what, since, from, to, bytes).hash(&mut self.trace);
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let Some(sender) = self.host_at(from.ip()) else { return };
        if self.hosts[sender].gate.is_closed() {
            self.hosts[sender].held.push((from, to, bytes));
            return;
        }
        self.counters.sent += 1;
        self.trace(0, from, to, bytes.len());
        let Some(receiver) = self.host_at(to.ip()) else {
            self.counters.refused += 1;
            return;
        };
        let link = *self.paths.get(&pair(sender, receiver)).unwrap_or(&self.usual);
        let now = Instant::now();
        let free = self.free.entry((sender, receiver)).or_insert(now);
        *free = now.max(*free) + link.busy(bytes.len());
        let left = *free;
        let copies: Vec<_> = link.copies(&mut self.draws).collect();
        match copies.len() {
            0 => self.counters.lost += 1,
            2 => self.counters.duplicated += 1,
            _ => {}
        }
        for latency in copies {
            let bytes = bytes.clone();
            self.fly(left, latency, Flight::Datagram { from, to, bytes });
        }
    }

    fn fly(&mut self, from: Instant, latency: Duration, flight: Flight) {
        self.number += 1;
        // What takes longer than the clock has is lost.
        if let Some(at) = from.checked_add(latency) {
            self.flights.insert((at, self.number), flight);
        }
    }

    /// A datagram is at the host of its receiver.
    fn arrived(
        &mut self,
        memory: &MemoryNetwork,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    ) {
        let (sender, receiver) = (self.host_at(from.ip()), self.host_at(to.ip()));
        let (Some(sender), Some(receiver)) = (sender, receiver) else { return };
        if self.partitions.contains(&pair(sender, receiver)) {
            self.counters.blocked += 1;
            return self.trace(1, from, to, bytes.len());
        }
        let Some(socket) = self.sockets.get(&to) else {
            // The system of the host answers, as ICMP does.
            self.counters.refused += 1;
            self.trace(2, from, to, bytes.len());
            let (what, quoted) = (Unreachable::Port(to.port()), datagram::quoted(&bytes));
            let report = UnreachableReport { to, what, quoted };
            let link = *self.paths.get(&pair(sender, receiver)).unwrap_or(&self.usual);
            let back: Option<Duration> = link.copies(&mut self.draws).next();
            if let Some(latency) = back {
                self.fly(now, latency, Flight::Report { to: from, report });
            }
            return;
        };
        let process = socket.process.clone();
        self.counters.arrived += 1;
        self.trace(3, from, to, bytes.len());
        memory.put(from, to, bytes);
        process.wake();
    }

    /// A report is at the host of the datagram's sender.
    fn reported(&mut self, to: SocketAddr, report: UnreachableReport) {
        let hosts = (self.host_at(to.ip()), self.host_at(report.to.ip()));
        let (Some(a), Some(b)) = hosts else { return };
        if self.partitions.contains(&pair(a, b)) {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(&to) {
            socket.reports.push_back(report);
            socket.process.wake();
        }
    }
}
