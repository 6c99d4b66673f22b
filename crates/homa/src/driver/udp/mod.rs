//! Homa over UDP sockets: no privileges, IPv4 and IPv6, trains with segmentation offload (GSO,
//! GRO).
//!
//! One `sendmmsg` takes a whole batch, with one entry per train, and with its traffic class unless
//! that is the socket's default (`class`). Long payloads are gathered from their messages. If the
//! kernel refuses segmentation (some devices do so only at the first packet, with EIO), trains are
//! sent as single datagrams from then on. If it refuses one train (EINVAL, or EMSGSIZE because the
//! link's MTU shrank), only that train is.
//!
//! Datagrams carry DF and are never fragmented; if one was too big, that is reported. If a device's
//! queue has no room for a train, its datagrams are tried one by one before it waits.
//!
//! An address has a socket for each link that packets leave by (`link_sockets`); one of them
//! receives.
//!
//! Several drivers of a process may share an address ([`UdpDriver::group`]). Each has a socket
//! there, and the kernel steers the datagrams of a peer to one of them (`steering`); those that
//! reach another are dropped. The links of such a driver share its socket, because further sockets
//! at the address would be members of the group.
//!
//! A socket may come from the application, which bound it (`adopt`).
//!
//! Left out: pacing and path MTU discovery, which are the engine's, and encryption.

pub(super) mod address;
mod adopt;
pub(super) mod class;
pub(super) mod control;
mod directory;
pub(super) mod error_queue;
mod member;
pub(super) mod receive;
pub(super) mod send;
pub(super) mod socket;
mod steering;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;
use std::{io, iter};

use homa_proto::wire::datagram;
use homa_proto::{ClientDirectory, LinkId};

use super::backlog::{Backlog, Sockets};
use super::link_sockets::LinkSockets;
use super::raw_ip::route_mtu;
use super::{
    Driver, DriverCounters, Full, Gather, JUMBO_MTU, LinkBacklog, Missing, Outbox, ReceivedTrain,
    RouteMtu, SystemRefusal, TooBig, Train, UnreachableReport, first_free, put,
};
use crate::error::OpenError;
pub use adopt::{SocketFault, duplicate};
use error_queue::{IcmpReport, IcmpReports, PathReport, full_device};
use member::Member;
use receive::{ReceiveBatch, RefusedLooks};
use send::{SendBatch, SendStop, StopReason};
pub use steering::Steering;

/// The UDP sockets of one engine.
pub struct UdpDriver {
    /// By number; `None` if closed.
    sockets: Vec<Option<UdpSocket>>,
    /// By number: the sockets that send.
    link_sockets: Vec<LinkSockets>,
    local: Vec<SocketAddr>,
    /// By number: IPv6 sockets that also support IPv4.
    dual: Vec<bool>,
    receive_buffer: usize,
    offload: bool,
    send: SendBatch,
    backlog: Backlog,
    receive: ReceiveBatch,
    next_socket: usize,
    /// Looks in a row at which the system refused to receive.
    refused_looks: RefusedLooks,
    reports: IcmpReports,
    /// Set if other drivers share the first address.
    member: Option<Member>,
    /// The first socket is the application's: other processes may receive from it later.
    adopted: bool,
    /// When the first address was bound, if no other socket could be there before.
    bound: Option<Instant>,
    counters: DriverCounters,
}

impl UdpDriver {
    /// Opens one socket at `at` (port 0: any). Its receive queue should hold `receive_buffer`
    /// bytes; the kernel may grant less (`net.core.rmem_max`).
    pub fn new(at: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
        let mut driver = Self::empty(receive_buffer);
        driver.bind(at)?;
        driver.bound = Some(Instant::now());
        Ok(driver)
    }

    /// Uses a UDP socket that the application bound, with a receive queue as [`Self::new`] has it.
    pub fn from_socket(socket: OwnedFd, receive_buffer: usize) -> Result<Self, SocketFault> {
        let socket = adopt::adopt(socket, receive_buffer)?;
        let mut driver = Self { adopted: true, ..Self::empty(receive_buffer) };
        driver.add(socket).map_err(SocketFault::Refused)?;
        Ok(driver)
    }

    /// Opens a driver for each shard of `steering`, all at `at` (port 0: any), each with a receive
    /// queue. The datagrams of a peer reach the driver with the number [`Steering::shard_of`];
    /// packets to that peer must leave from there.
    pub fn group(
        at: SocketAddr,
        receive_buffer: usize,
        steering: Steering,
    ) -> Result<Vec<Self>, OpenError> {
        let refused = |source| OpenError::bind(at, source);
        if steering.shards() == 1 {
            return Ok(vec![Self::new(at, receive_buffer).map_err(refused)?]);
        }
        let sockets = socket::open_group(unmapped(at), receive_buffer, &steering)?;
        let members = Member::all(steering).map_err(OpenError::Resources)?;
        let driver = |(socket, member)| {
            let mut driver = Self { member: Some(member), ..Self::empty(receive_buffer) };
            driver.add(socket).map_err(refused)?;
            Ok(driver)
        };
        sockets.into_iter().zip(members).map(driver).collect()
    }

    fn empty(receive_buffer: usize) -> Self {
        Self {
            sockets: Vec::new(),
            link_sockets: Vec::new(),
            local: Vec::new(),
            dual: Vec::new(),
            receive_buffer,
            offload: true,
            send: SendBatch::default(),
            backlog: Backlog::default(),
            receive: ReceiveBatch::new(),
            next_socket: 0,
            refused_looks: RefusedLooks::default(),
            reports: IcmpReports::default(),
            member: None,
            adopted: false,
            bound: None,
            counters: DriverCounters::default(),
        }
    }

    /// Sends every train as single datagrams, as if segmentation offload were refused.
    pub fn without_offload(mut self) -> Self {
        self.offload = false;
        self
    }

    /// The counters, for the AF_XDP driver.
    #[cfg(feature = "xdp")]
    pub(super) fn counters_mut(&mut self) -> &mut DriverCounters {
        &mut self.counters
    }

    /// Local addresses that are open.
    #[cfg(feature = "xdp")]
    pub(super) fn open_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let all = self.sockets.iter().zip(&self.local);
        all.filter(|(socket, _)| socket.is_some()).map(|(_, at)| *at)
    }

    /// Number of trains that leave from the same socket as the first and fit in one call.
    fn run_length(&self, trains: &[Train]) -> usize {
        let most = if self.offload { send::TRAINS_MAX } else { 1 };
        let first = (trains[0].socket, trains[0].link);
        trains.iter().take(most).take_while(|train| (train.socket, train.link) == first).count()
    }

    /// Sends trains that leave from the same socket; returns how many are done.
    fn send_run(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<usize, (usize, usize, Full)> {
        let (done, for_good) = match self.send_trains(trains, outbox, messages, self.offload) {
            Ok(()) => return Ok(trains.len()),
            // Some queues are shorter than a train, but not than a datagram.
            Err(SendStop { train, offset: 0, why: StopReason::Full(Full::Device) })
                if self.offload && trains[train].datagrams() > 1 =>
            {
                (train, false)
            }
            Err(SendStop { train, offset, why: StopReason::Full(full) }) => {
                return Err((train, offset, full));
            }
            Err(SendStop { train, why: StopReason::Uncut { for_good }, .. }) => (train, for_good),
        };
        self.counters.offload_fallbacks += 1;
        if for_good {
            self.offload = false;
            return Ok(done);
        }
        match self.send_trains(&trains[done..=done], outbox, messages, false) {
            Err(SendStop { offset, why: StopReason::Full(full), .. }) => Err((done, offset, full)),
            // The train was already sent as single datagrams, so no other refusal is possible.
            _ => Ok(done + 1),
        }
    }

    /// Sends trains that leave from the same socket.
    fn send_trains(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
        offload: bool,
    ) -> Result<(), SendStop> {
        let Some(first) = trains.first() else { return Ok(()) };
        let Some(socket) = &self.sockets[first.socket] else {
            self.counters.trains_refused += trains.len() as u64;
            return Ok(());
        };
        let (main, local) = (socket.as_raw_fd(), self.local[first.socket]);
        let link_sockets = &mut self.link_sockets[first.socket];
        let alone = self.member.is_none() || first.socket != 0;
        let (fd, default_class) = link_sockets.socket(main, first.link, || match alone {
            true => socket::open_sender(main, local),
            false => Err(io::Error::other("several engines share the address")),
        });
        // Sockets that only send are IPv6 sockets.
        let on_v6 = local.is_ipv6() || fd != main;
        for train in trains {
            if default_class.sees(train.tos) {
                let set = socket::set_class(fd, on_v6, train.tos, default_class.class());
                default_class.settle(train.tos, set.is_ok());
            }
        }
        self.send.fill(trains, outbox, messages, offload, (on_v6, default_class.class()));
        let result =
            self.send.flush_all(fd, trains, &mut self.reports, &mut self.counters, meaning);
        self.counters.count_sent(trains, result.err().map(|at| (at.train, at.offset)));
        result
    }

    /// Adds a bound socket.
    fn add(&mut self, socket: UdpSocket) -> io::Result<SocketAddr> {
        let local = socket.local_addr()?;
        let mut open = self.local.iter().zip(&self.sockets).filter(|(_, socket)| socket.is_some());
        if open.any(|(other, _)| other.port() == local.port()) {
            // Homa ports repeat UDP ports, so two sockets with the same port could not be
            // distinguished.
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let everywhere = local.is_ipv6() && local.ip().is_unspecified();
        let dual = everywhere && socket::speaks_ipv4(socket.as_raw_fd());
        self.counters.ipv4_refused += u64::from(everywhere && !dual);
        let number = first_free(self.sockets.iter().map(Option::is_some));
        put(&mut self.sockets, number, Some(socket));
        put(&mut self.link_sockets, number, LinkSockets::default());
        put(&mut self.local, number, local);
        put(&mut self.dual, number, dual);
        self.receive.opened(number, self.adopted && number == 0);
        Ok(local)
    }

    /// Passes a report on to the driver of its peer if that shares our address; true if it is of no
    /// use here. It may be about a packet from another local address.
    fn is_for_another(&self, to: SocketAddr, report: PathReport) -> bool {
        let member = self.member.as_ref();
        member.is_some_and(|member| member.hand_on(to, report)) && self.sockets.len() == 1
    }

    fn open(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.iter().flatten()
    }

    /// Reads the reports of a socket; true if there were any.
    fn read_errors(&mut self, socket: usize) -> bool {
        let Some(main) = &self.sockets[socket] else { return false };
        let all = iter::once(main.as_raw_fd()).chain(self.link_sockets[socket].senders());
        all.filter(|&fd| self.reports.drain(fd, meaning)).count() > 0
    }

    fn receive_from(&mut self, socket: usize, expected: bool) -> usize {
        let Some(fd) = self.sockets[socket].as_ref().map(AsRawFd::as_raw_fd) else { return 0 };
        self.counters.receive_calls += 1;
        let mut reported = false;
        let fetched = self.receive.fetch(fd, socket, expected).or_else(|_| {
            // A network report is returned before received datagrams.
            reported = self.read_errors(socket);
            self.receive.fetch(fd, socket, expected)
        });
        let refusal = self.refused_looks.refusal(&fetched, reported);
        refusal.into_iter().for_each(|refusal| self.reports.push(refusal));
        let mut n = fetched.unwrap_or(0);
        if let Some(member) = self.member.as_ref().filter(|_| socket == 0) {
            // This engine has no state of another's peer, for example its executed requests.
            let dropped = self.receive.retain(|from| member.hears(from));
            self.counters.trains_misdirected += dropped as u64;
            n -= dropped;
        }
        for index in 0..n {
            let train = self.receive.get(index);
            self.counters.datagrams_received += train.bytes.len().div_ceil(train.datagram) as u64;
            self.counters.bytes_received += train.bytes.len() as u64;
        }
        self.counters.trains_received += n as u64;
        self.counters.receive_overflows += self.receive.lost();
        n
    }
}

/// Converts a mapped IPv4 address to IPv4, because a socket bound to it supports nothing else.
fn unmapped(mut at: SocketAddr) -> SocketAddr {
    if let ip @ IpAddr::V4(_) = at.ip().to_canonical() {
        at.set_ip(ip);
    }
    at
}

/// The meaning of a report for the engine.
fn meaning(report: &IcmpReport) -> Option<PathReport> {
    let (to, quoted) = (report.to, datagram::quoted(report.payload()));
    if let Some(errno) = report.errno {
        return Some(PathReport::Refused(SystemRefusal { packet: Some((to, quoted)), errno }));
    }
    if let Some(mtu) = report.too_big {
        return Some(PathReport::TooBig(TooBig { to, mtu, quoted }));
    }
    // A host without UDP is not a Homa peer.
    let what = report.what.filter(|&what| what != Missing::Protocol)?.at(to.port());
    Some(PathReport::Unreachable(UnreachableReport { to, what, quoted }))
}

impl Sockets for UdpDriver {
    fn send_all(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<(), (usize, usize, Full)> {
        let mut done = 0;
        while done < trains.len() {
            let run = &trains[done..done + self.run_length(&trains[done..])];
            done += match self.send_run(run, outbox, messages) {
                Ok(sent) => sent,
                Err((train, offset, full)) => return Err((done + train, offset, full)),
            };
        }
        Ok(())
    }

    fn note_full_device(&mut self, to: SocketAddr) {
        self.reports.push(full_device(to));
    }

    fn backlog_mut(&mut self) -> (&mut Backlog, &mut DriverCounters) {
        (&mut self.backlog, &mut self.counters)
    }
}

impl Driver for UdpDriver {
    fn alone_since(&self) -> Option<Instant> {
        self.bound
    }

    fn needs_keys(&self) -> bool {
        true
    }

    fn names(&self) -> Option<Box<dyn ClientDirectory>> {
        self.member.as_ref().map(|member| Box::new(member.place()) as _)
    }

    fn routes(&self) -> Option<RouteMtu> {
        Some(route_mtu)
    }

    fn good_mtu(&self) -> u16 {
        JUMBO_MTU
    }

    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.add(socket::open(unmapped(at), self.receive_buffer)?)
    }

    fn unbind(&mut self, socket: usize) {
        self.sockets[socket] = None;
        self.link_sockets[socket] = LinkSockets::default();
    }

    fn local(&self) -> &[SocketAddr] {
        &self.local
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.local.get(socket).is_some_and(|local| match local.ip() {
            IpAddr::V4(_) => to.is_ipv4(),
            IpAddr::V6(_) => to.is_ipv6() || self.dual[socket],
        })
    }

    fn hears(&self, socket: usize, peer: SocketAddr) -> bool {
        socket != 0 || self.member.as_ref().is_none_or(|member| member.hears(peer))
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        self.send_some(&outbox.trains, outbox, messages);
    }

    fn resume(&mut self, link: LinkId) {
        self.send_backlog(link);
    }

    fn backlog(&self) -> &[LinkBacklog] {
        self.backlog.links()
    }

    fn receive(&mut self, expected: bool) -> usize {
        if let Some(member) = &self.member {
            member.take(&mut self.reports);
        }
        for _ in 0..self.sockets.len() {
            let socket = self.next_socket % self.sockets.len();
            self.next_socket = socket + 1;
            let n = self.receive_from(socket, expected);
            if n > 0 {
                return n;
            }
        }
        if expected {
            // A report made a socket look ready.
            (0..self.sockets.len()).for_each(|socket| _ = self.read_errors(socket));
        }
        0
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        self.receive.get(index)
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        loop {
            let report = self.reports.unreachable()?;
            if !self.is_for_another(report.to, PathReport::Unreachable(report)) {
                return Some(report);
            }
        }
    }

    fn too_big(&mut self) -> Option<TooBig> {
        loop {
            let report = self.reports.too_big()?;
            if !self.is_for_another(report.to, PathReport::TooBig(report)) {
                return Some(report);
            }
        }
    }

    fn refuse_arrivals(&mut self) {
        // What arrives at an adopted socket from now on is left to the process that has it next.
        let own = usize::from(self.adopted);
        for (socket, local) in self.sockets.iter().zip(&self.local).skip(own) {
            // If it is refused, datagrams that arrive from now on are lost with the socket.
            let _ = socket.as_ref().map(|socket| socket::accept_only_from(socket, *local));
        }
    }

    fn refusal(&mut self) -> Option<SystemRefusal> {
        self.reports.refusal()
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        let sockets = self.sockets.iter().zip(&self.link_sockets);
        let open = sockets
            .filter_map(|(main, link_sockets)| Some((main.as_ref()?.as_raw_fd(), link_sockets)));
        open.map(|(main, link_sockets)| link_sockets.queued(main, link, socket::queued)).sum()
    }

    fn receive_buffer(&self) -> u32 {
        let granted = self.open().filter_map(|s| socket::receive_buffer(s.as_raw_fd()));
        granted.min().unwrap_or(0)
    }

    fn unread(&self) -> u64 {
        self.open().map(|s| socket::unread(s.as_raw_fd())).sum()
    }

    fn handles(&self) -> Vec<RawFd> {
        let sockets = self.open().map(AsRawFd::as_raw_fd);
        sockets.chain(self.member.as_ref().map(Member::handle)).collect()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.sockets[0].as_ref().expect("the first is never closed").as_fd()
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
