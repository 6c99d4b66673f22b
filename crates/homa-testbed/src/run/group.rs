//! The hosts that one thread drives. It waits for all of them at once: each is a server of all
//! others, and a client by plan.
//!
//! Hosts share threads because five hosts and a switch on two cores, with one thread each, would
//! spend more time waking each other than moving data. A rack uses as many threads as there are
//! cores beside the switch's, and at most one per host. If a thread has such a core to itself, it
//! polls all the time, because sleeping and being woken costs more than most packets do, and on a
//! virtual machine it takes longer than they take on the wire.

use std::io;
use std::time::Duration;

use super::stages::{Stage, Stages};
use crate::sys;
use crate::transport::{Done, RackRpc, RpcTransport};
use crate::{Host, Memory, Pauses, Rack};

/// How often a group looks whether the others are through, nanoseconds.
pub(crate) const LOOK_NS: u64 = 2_000_000;
/// RPCs per peer in the warm-up: one for each connection of a pool of eight.
const WARM_RPCS: usize = 8;
/// An RPC of the warm-up is as long as the link needs 5 ms for, but 64 KiB at most: windows of that
/// size keep the link full, and a slow link does not take longer than a fast one.
const WARM_TIME: homa_proto::Duration = homa_proto::Duration::millis(5);
const MOST_WARM_BYTES: u64 = 65_536;
/// Longest time that a transport may take to answer in the warm-up and on the idle rack.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A host with its transport.
pub(crate) struct Client<'a> {
    pub(crate) host: Host<'a>,
    pub(crate) transport: Box<dyn RpcTransport>,
    /// Ends not looked at yet.
    pub(crate) done: Vec<Done>,
    /// When the transport wants to be called again.
    wake_at_ns: Option<u64>,
    next_id: u64,
}

/// See the module's description.
pub(crate) struct HostGroup<'a> {
    pub(crate) clients: Vec<Client<'a>>,
    pub(crate) stages: &'a Stages,
    waiting: Vec<libc::pollfd>,
    spins: bool,
    shortest_pause_ns: u64,
    /// When the latest step ended.
    step_ns: u64,
    /// Steps that took long since [`HostGroup::begin`].
    pub(crate) pauses: Pauses,
    /// Time spent looking for work when there was none.
    pub(crate) spun: Duration,
    /// Memory of the process under load.
    pub(crate) memory: Option<Memory>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(host: Host<'a>, transport: Box<dyn RpcTransport>) -> Self {
        Self { host, transport, done: Vec::new(), wake_at_ns: None, next_id: 0 }
    }

    /// Sets aside `count` ids that no other RPC of this host has; returns the first.
    pub(crate) fn reserve_ids(&mut self, count: usize) -> u64 {
        self.next_id += count as u64;
        self.next_id - count as u64
    }
}

impl<'a> HostGroup<'a> {
    /// Hosts of a rack for the calling thread, which may spin while it waits.
    pub(crate) fn new(
        clients: Vec<Client<'a>>,
        stages: &'a Stages,
        (rack, spins): (&Rack, bool),
    ) -> Self {
        Self {
            clients,
            stages,
            waiting: Vec::new(),
            spins,
            shortest_pause_ns: Pauses::shortest_ns(rack.config()),
            step_ns: 0,
            pauses: Pauses::default(),
            spun: Duration::ZERO,
            memory: None,
        }
    }

    /// Forgets what the thread's time went into so far.
    pub(crate) fn begin(&mut self) {
        self.spun = Duration::ZERO;
        self.pauses = Pauses::default();
        self.step_ns = sys::monotonic_ns();
    }

    /// Notes the end of a step.
    fn step(&mut self) -> u64 {
        let now = sys::monotonic_ns();
        self.pauses.step(self.shortest_pause_ns, self.step_ns, now);
        self.step_ns = now;
        now
    }

    /// True when its thread never sleeps.
    pub(crate) fn spins(&self) -> bool {
        self.spins
    }

    /// Processor time of its transports in other threads and processes.
    pub(crate) fn cpu_elsewhere(&self) -> Duration {
        self.clients.iter().map(|client| client.transport.cpu_elsewhere()).sum()
    }

    /// RPCs that its hosts started, and requests that they served, since the beginning.
    pub(crate) fn started_and_served(&self) -> (u64, u64) {
        let started = self.clients.iter().map(|client| client.next_id).sum();
        (started, self.clients.iter().map(|client| client.transport.served()).sum())
    }

    /// The client of a host, when this group drives it.
    pub(crate) fn client_of(&self, host: usize) -> Option<usize> {
        self.clients.iter().position(|client| client.host.index == host)
    }

    /// Serves every host of the group until something happened or `until_ns` has come.
    pub(crate) fn poll(&mut self, until_ns: u64) -> io::Result<()> {
        self.waiting.clear();
        let mut until_ns = until_ns;
        for client in &mut self.clients {
            client.wake_at_ns = client.transport.wake_at_ns();
            until_ns = until_ns.min(client.wake_at_ns.unwrap_or(u64::MAX));
            let fds = client.transport.handles().iter();
            let each = fds.map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            self.waiting.extend(each);
        }
        let now = self.wait(until_ns)?;
        let mut looked_at = 0;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let own = &self.waiting[looked_at..looked_at + client.transport.handles().len()];
            looked_at += own.len();
            let ready = own.iter().any(|fd| fd.revents != 0);
            if ready || client.wake_at_ns.is_some_and(|at| at <= now) {
                client.transport.turn(ready, &mut client.done)?;
                self.step();
            }
        }
        Ok(())
    }

    /// Serves every host of the group for a time.
    pub(crate) fn serve_for(&mut self, time: Duration) -> io::Result<()> {
        let until_ns = sys::monotonic_ns() + time.as_nanos() as u64;
        while sys::monotonic_ns() < until_ns {
            self.poll(until_ns)?;
        }
        Ok(())
    }

    /// Waits until a socket is readable or `until_ns` has come; returns the time.
    fn wait(&mut self, until_ns: u64) -> io::Result<u64> {
        let mut now = self.step();
        loop {
            let before = now;
            let sleep = if self.spins { 0 } else { until_ns.saturating_sub(now) };
            sys::ppoll(&mut self.waiting, sleep)?;
            if sleep > 0 {
                self.step_ns = sys::monotonic_ns();
            }
            now = self.step();
            if now >= until_ns || self.waiting.iter().any(|fd| fd.revents != 0) {
                return Ok(now);
            }
            // A longer look was interrupted: then the processor was not free.
            if now - before < sys::LONG_LOOK_NS {
                self.spun += Duration::from_nanos(now - before);
            }
        }
    }

    /// Every host of the group passes a stage; serves until all hosts of the rack have.
    pub(crate) fn finish(&mut self, stage: Stage) -> io::Result<()> {
        self.clients.iter().for_each(|_| self.stages.arrive(stage));
        while !self.stages.complete(stage)? {
            self.poll(sys::monotonic_ns() + LOOK_NS)?;
        }
        self.clients.iter_mut().for_each(|client| client.done.clear());
        Ok(())
    }

    /// Exchanges some data between every pair of hosts, so that windows are open and paths are
    /// known.
    pub(crate) fn warm_up(&mut self) -> io::Result<()> {
        for client in 0..self.clients.len() {
            let host = self.clients[client].host;
            let bytes = host.rack.link.bytes_in(WARM_TIME).clamp(1, MOST_WARM_BYTES) as u32;
            for peer in host.peers() {
                self.exchange(client, peer, bytes, WARM_RPCS)?;
                self.exchange(client, peer, 100, WARM_RPCS)?;
            }
        }
        Ok(())
    }

    /// Runs `count` echo RPCs with one peer at the same time; returns when the last one ended.
    pub(crate) fn exchange(
        &mut self,
        client: usize,
        server: usize,
        bytes: u32,
        count: usize,
    ) -> io::Result<u64> {
        let first = self.clients[client].reserve_ids(count);
        for id in first..first + count as u64 {
            let rpc = RackRpc { id, server, request_bytes: bytes, response_bytes: bytes };
            self.clients[client].transport.submit(rpc)?;
        }
        let give_up = sys::monotonic_ns() + TIMEOUT.as_nanos() as u64;
        let (mut ended, mut last) = (0, 0);
        while ended < count {
            let now = sys::monotonic_ns();
            if now >= give_up {
                let text = "no answer on an idle rack for 20 s";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.stages.check()?;
            self.poll(now + LOOK_NS)?;
            for done in self.clients[client].done.drain(..).filter(|done| done.id >= first) {
                if let Some(error) = done.error {
                    let text = format!("a call to host {server} over an idle rack: {error}");
                    return Err(io::Error::other(text));
                }
                ended += 1;
                last = last.max(done.at_ns);
            }
        }
        Ok(last)
    }
}
