//! Homa over UDP sockets: no privileges, IPv4 and IPv6, trains by segmentation offload (GSO, GRO).
//!
//! One `sendmmsg` takes a whole batch, one entry per train with its traffic class; long payloads
//! are gathered from the messages themselves. Where the kernel refuses segmentation (some devices
//! do so only at the first packet, with EIO), trains are sent as single datagrams from then on.
//!
//! Left out: pacing (the engine's), encryption, path MTU discovery (the MTU is configured).

pub(super) mod address;
pub(super) mod control;
pub(super) mod error_queue;
pub(super) mod receive;
pub(super) mod send;
pub(super) mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::{Driver, DriverCounters, Gather, Missing, Outbox, Received, Unreachable};
use receive::ReceiveBatch;
use send::SendBatch;

/// Reports of unreachable addresses kept until asked for; more are forgotten.
const UNREACHABLE_MAX: usize = 256;

/// Sockets of one engine.
pub struct UdpDriver {
    sockets: Vec<UdpSocket>,
    local: Vec<SocketAddr>,
    receive_buffer: usize,
    offload: bool,
    send: SendBatch,
    receive: ReceiveBatch,
    next_socket: usize,
    overflows: Vec<u32>,
    unreachable: VecDeque<Unreachable>,
    counters: DriverCounters,
}

impl UdpDriver {
    /// A driver with one socket at `at` (port 0: any) whose receive queue should hold
    /// `receive_buffer` bytes; the kernel may grant less (`net.core.rmem_max`).
    pub fn new(at: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
        let mut driver = Self {
            sockets: Vec::new(),
            local: Vec::new(),
            receive_buffer,
            offload: true,
            send: SendBatch::default(),
            receive: ReceiveBatch::new(),
            next_socket: 0,
            overflows: Vec::new(),
            unreachable: VecDeque::new(),
            counters: DriverCounters::default(),
        };
        driver.bind(at)?;
        Ok(driver)
    }

    /// Sends every train as single datagrams, as where segmentation offload is refused.
    pub fn without_offload(mut self) -> Self {
        self.offload = false;
        self
    }

    /// Sends the trains from `first` on that leave from the same socket; returns how many are done
    /// with.
    fn send_run(&mut self, outbox: &Outbox, first: usize, messages: &dyn Gather) -> usize {
        let socket = outbox.trains[first].socket;
        let same = outbox.trains[first..].iter().take_while(|t| t.socket == socket).count();
        let run = if self.offload { same.min(send::TRAINS_MAX) } else { 1 };
        let trains = &outbox.trains[first..first + run];
        self.send.fill(trains, outbox, messages, self.offload, self.local[socket].is_ipv6());
        let mut retried = false;
        while !self.send.is_empty() {
            self.counters.send_calls += 1;
            let error = match self.send.flush(self.sockets[socket].as_raw_fd()) {
                Ok(()) => continue,
                Err(error) => error.raw_os_error().unwrap_or(0),
            };
            let train = &trains[self.send.train()];
            match error {
                libc::EINTR => {}
                libc::EIO | libc::EINVAL if self.offload && train.datagrams() > 1 => {
                    self.offload = false;
                    self.counters.offload_fallbacks += 1;
                    let done = self.send.train();
                    self.count_sent(&trains[..done]);
                    return done;
                }
                // A report about an earlier packet; this one was not tried.
                _ if !retried && self.read_errors(socket) => retried = true,
                error => {
                    self.counters.trains_refused += 1;
                    if matches!(error, libc::ENETUNREACH | libc::EHOSTUNREACH) {
                        self.report(Unreachable { to: train.to, what: Missing::Host });
                    }
                    self.send.skip();
                    retried = false;
                }
            }
        }
        self.count_sent(trains);
        run
    }

    fn count_sent(&mut self, trains: &[super::Train]) {
        self.counters.trains_sent += trains.len() as u64;
        for train in trains {
            self.counters.datagrams_sent += train.datagrams() as u64;
            self.counters.bytes_sent += train.len as u64;
        }
    }

    /// Empties a socket's error queue; true when there was something to report.
    fn read_errors(&mut self, socket: usize) -> bool {
        let fd = self.sockets[socket].as_raw_fd();
        let mut any = false;
        for _ in 0..UNREACHABLE_MAX {
            match error_queue::next(fd) {
                Some(report) => {
                    any = true;
                    let to = report.to;
                    match report.errno {
                        libc::ECONNREFUSED => self.report(Unreachable { to, what: Missing::Port }),
                        libc::EHOSTUNREACH | libc::ENETUNREACH => {
                            self.report(Unreachable { to, what: Missing::Host });
                        }
                        // A smaller MTU, say.
                        _ => {}
                    }
                }
                None => break,
            }
        }
        any
    }

    fn report(&mut self, unreachable: Unreachable) {
        if self.unreachable.len() < UNREACHABLE_MAX && !self.unreachable.contains(&unreachable) {
            self.unreachable.push_back(unreachable);
        }
    }

    fn receive_from(&mut self, socket: usize, expected: bool) -> usize {
        let fd = self.sockets[socket].as_raw_fd();
        self.counters.receive_calls += 1;
        let n = match self.receive.fetch(fd, socket, expected) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => {
                self.read_errors(socket);
                0
            }
        };
        for index in 0..n {
            let train = self.receive.get(index);
            self.counters.datagrams_received += train.bytes.len().div_ceil(train.datagram) as u64;
            self.counters.bytes_received += train.bytes.len() as u64;
        }
        self.counters.trains_received += n as u64;
        if let Some(overflows) = self.receive.overflows() {
            // The kernel's counter is per socket, 32 bits wide and wraps.
            let seen = std::mem::replace(&mut self.overflows[socket], overflows);
            self.counters.receive_overflows += u64::from(overflows.wrapping_sub(seen));
        }
        n
    }
}

impl Driver for UdpDriver {
    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let socket = socket::open(at, self.receive_buffer)?;
        let local = socket.local_addr()?;
        if self.local.iter().any(|other| other.port() == local.port()) {
            // Homa ports repeat UDP ports: two sockets with one number could not be told apart.
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.sockets.push(socket);
        self.local.push(local);
        self.overflows.push(0);
        Ok(local)
    }

    fn local(&self) -> &[SocketAddr] {
        &self.local
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.local.get(socket).is_some_and(|local| match local.ip() {
            IpAddr::V4(_) => to.is_ipv4(),
            // An IPv6 socket bound to every address also speaks IPv4.
            IpAddr::V6(ip) => to.is_ipv6() || ip.is_unspecified(),
        })
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        let mut done = 0;
        while done < outbox.trains.len() {
            done += self.send_run(outbox, done, messages);
        }
    }

    fn receive(&mut self, expected: bool) -> usize {
        for _ in 0..self.sockets.len() {
            let socket = self.next_socket % self.sockets.len();
            self.next_socket = socket + 1;
            let n = self.receive_from(socket, expected);
            if n > 0 {
                return n;
            }
        }
        0
    }

    fn received(&self, index: usize) -> Received<'_> {
        self.receive.get(index)
    }

    fn unreachable(&mut self) -> Option<Unreachable> {
        self.unreachable.pop_front()
    }

    fn queued(&self) -> Option<u32> {
        let queued = self.sockets.iter().map(|s| socket::queued(s.as_raw_fd()));
        queued.sum::<Option<u32>>()
    }

    fn receive_buffer(&self) -> u32 {
        let granted = self.sockets.iter().filter_map(|s| socket::receive_buffer(s.as_raw_fd()));
        granted.min().unwrap_or(0)
    }

    fn handles(&self) -> Vec<RawFd> {
        self.sockets.iter().map(AsRawFd::as_raw_fd).collect()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.sockets[0].as_fd()
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
