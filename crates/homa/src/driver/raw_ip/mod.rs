//! Homa over raw IP, protocol 146, IPv4 and IPv6: the protocol of the Linux kernel module.
//!
//! One Homa packet is the payload of one IP packet; there is no datagram header. Raw sockets have
//! no ports, so this driver manages them. Engines of several processes share a host's addresses.
//! Each receives only packets to its ports (`filter`), and none answers for a port of another
//! (`ports`). Homa's ports are those in the packet.
//!
//! It needs the capability CAP_NET_RAW; root of a user namespace is enough (`unshare -Urn`). While
//! a driver is open, the kernel sends no ICMP protocol-unreachable, at which a kernel peer would
//! abandon every RPC with this host. This holds even if a receive queue is full, because each
//! socket has a companion (`socket`). Do not share an address with a loaded kernel module, because
//! it answers for ports that it does not know.
//!
//! If a server asks for an acknowledgement (NEED_ACK) at a port whose process has died, an engine
//! that is open at the address answers (`orphans`). Otherwise a kernel server would ask a thousand
//! times a second, forever. Other packets to such a port are not answered: each engine only knows
//! its ports, and the host considers the packet delivered. A call to such a port therefore fails
//! only after the silence that its profile allows (110 ms with `linux`), not at once.
//!
//! A response counts only if it comes from the address that was called. An id is not secret to
//! hosts that can see packets, so they could otherwise answer in place of a server. A kernel server
//! with several addresses answers from the one on its route to the client: call it there.
//!
//! ICMP reports can be forged, so a report must name an RPC in progress with the host that it is
//! about. A report that quotes less than 28 bytes of our packet is ignored, because ports can be
//! guessed (RFC 792 requires only 8 bytes; Linux hosts quote more). The call then ends because of
//! silence.
//!
//! TCP-hijacked packets (the module's `hijack_tcp`) are received through a raw TCP socket whose
//! filter accepts nothing else. Answers are native, which the module accepts from any peer. While
//! this socket is open, the kernel examines every TCP packet of the host once more.
//!
//! Packets carry DF, as the module's do, and are never fragmented. If a path's MTU shrinks, the
//! engine sends smaller packets. A retransmission then lies inside the requested gaps, which the
//! module accepts (Linux §2.3).

mod filter;
mod orphans;
mod ports;
mod socket;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;
use std::{io, iter};

use homa_proto::{LinkId, wire};

use super::backlog::{Backlog, Sockets};
use super::link_sockets::LinkSockets;
use super::udp::error_queue::{IcmpReport, IcmpReports, PathReport, full_device};
use super::udp::receive::{ReceiveBatch, RefusedLooks};
use super::udp::send::{SendBatch, SendStop, StopReason};
use super::udp::socket::{queued, receive_buffer, unread};
use super::{
    Driver, DriverCounters, Encapsulation, Full, Gather, JUMBO_MTU, LinkBacklog, Missing, Outbox,
    ReceivedTrain, RouteMtu, SystemRefusal, TRAIN_OVERHEAD, TooBig, Train, UnreachableReport,
    first_free, put,
};
use crate::error::OpenError;
use orphans::Orphans;
use ports::RawPort;
pub(crate) use socket::route_mtu;
use socket::{RawSocket, open_sender};

/// Most trains passed to the kernel at a time.
const RUN_MAX: usize = 64;
/// Batches of packets for other ports after which the kernel is asked how many are left.
const BATCHES: u32 = 16;
/// One in this many looks without a reason also checks for TCP-hijacked packets.
const LOOKS_PER_HIJACK: u32 = 16;

/// The raw sockets of one engine.
pub struct RawIpDriver {
    sockets: Vec<RawSocket>,
    /// For each of them, the sockets that send.
    link_sockets: Vec<LinkSockets>,
    local: Vec<SocketAddr>,
    /// By number: the IPv4 and the IPv6 socket for a local address.
    carriers: Vec<[Option<usize>; 2]>,
    /// By number; `None` if closed.
    claimed: Vec<Option<RawPort>>,
    receive_buffer: usize,
    send: SendBatch,
    backlog: Backlog,
    receive: ReceiveBatch,
    /// The packets of the last batch that are for this engine.
    arrived: Vec<PacketMeta>,
    next_socket: usize,
    looks: u32,
    refused_looks: RefusedLooks,
    orphans: Orphans,
    reports: IcmpReports,
    counters: DriverCounters,
}

/// A packet of the last batch.
#[derive(Clone, Copy)]
struct PacketMeta {
    index: usize,
    /// The number of the local address.
    number: usize,
    /// Bytes of the IP header before it.
    skip: usize,
}

/// Index of an address's family in pairs.
fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}

/// A port of a Homa packet.
fn port_at(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// The meaning of a report for the engine at these addresses. The kernel shows the report to every
/// engine of the host; the quoted packet shows to which engine and RPC it belongs.
fn meaning(local: &[SocketAddr], report: &IcmpReport) -> Option<PathReport> {
    let packet = report.payload();
    let source = port_at(packet, 0)?;
    local.iter().find(|local| local.port() == source)?;
    let (mut to, quoted) = (report.to, Some(wire::quoted(packet)?));
    if let Some(errno) = report.errno {
        return Some(PathReport::Refused(SystemRefusal { packet: Some((to, quoted)), errno }));
    }
    if let Some(mtu) = report.too_big {
        return Some(PathReport::TooBig(TooBig { to, mtu, quoted }));
    }
    let what = report.what?;
    if what == Missing::Port {
        to.set_port(port_at(packet, filter::AT_DESTINATION)?);
    }
    let what = what.at(to.port());
    Some(PathReport::Unreachable(UnreachableReport { to, what, quoted }))
}

impl RawIpDriver {
    /// Opens a driver with one local address (port 0: a free one of the clients' range). Its
    /// receive queues should hold `receive_buffer` bytes each. `[::]` also serves IPv4.
    ///
    /// # Errors
    /// [`OpenError::NeedsNetRaw`] without the capability, [`OpenError::InUse`] if the address is
    /// not one of this host or another engine has the port.
    pub fn new(at: SocketAddr, receive_buffer: usize) -> Result<Self, OpenError> {
        let mut driver = Self {
            sockets: Vec::new(),
            link_sockets: Vec::new(),
            local: Vec::new(),
            carriers: Vec::new(),
            claimed: Vec::new(),
            receive_buffer,
            send: SendBatch::default(),
            backlog: Backlog::default(),
            receive: ReceiveBatch::new(),
            arrived: Vec::new(),
            next_socket: 0,
            looks: 0,
            refused_looks: RefusedLooks::default(),
            orphans: Orphans::new(Instant::now()),
            reports: IcmpReports::default(),
            counters: DriverCounters::default(),
        };
        driver.bind(at).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => OpenError::NeedsNetRaw,
            _ => OpenError::bind(at, source),
        })?;
        Ok(driver)
    }

    /// The socket bound to `ip`, opened if necessary, with one for TCP-hijacked packets.
    fn carrier(&mut self, ip: IpAddr) -> io::Result<usize> {
        if let Some(at) = self.sockets.iter().position(|s| s.ip == ip && !s.hijacked) {
            return Ok(at);
        }
        let at = self.sockets.len();
        self.sockets.push(RawSocket::open(ip, false, self.receive_buffer)?);
        match RawSocket::open(ip, true, self.receive_buffer) {
            Ok(socket) => self.sockets.push(socket),
            Err(_) => self.counters.tcp_hijack_refused += 1,
        }
        self.link_sockets.resize_with(self.sockets.len(), LinkSockets::default);
        Ok(at)
    }

    fn ports(&self) -> Vec<u16> {
        self.claimed.iter().flatten().map(|port| port.number).collect()
    }

    /// The socket that sends a train.
    fn socket_for(&self, train: &Train) -> Option<usize> {
        let carrier = |carriers: &[Option<usize>; 2]| carriers[family(train.to.ip())];
        let own = self.carriers.get(train.socket).and_then(carrier);
        // If the port is not one of ours, any socket of the family.
        own.or_else(|| self.carriers.iter().find_map(carrier))
    }

    /// Sends trains that leave from one socket.
    fn send_run(
        &mut self,
        socket: usize,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<(), SendStop> {
        let RawSocket { ip, .. } = self.sockets[socket];
        // The kernel does not split raw packets.
        self.send.fill(trains, outbox, messages, false, (ip.is_ipv6(), 0));
        let (main, link) = (self.sockets[socket].as_raw_fd(), trains[0].link);
        let (fd, _) = self.link_sockets[socket].socket(main, link, || open_sender(main, ip));
        let meaning = |report: &IcmpReport| meaning(&self.local, report);
        let result =
            self.send.flush_all(fd, trains, &mut self.reports, &mut self.counters, meaning);
        self.counters.count_sent(trains, result.err().map(|at| (at.train, at.offset)));
        result
    }

    /// Reads the reports of a socket; true if there were any.
    fn read_errors(&mut self, socket: usize) -> bool {
        let main = self.sockets[socket].as_raw_fd();
        let all = iter::once(main).chain(self.link_sockets[socket].senders());
        let meaning = |report: &IcmpReport| meaning(&self.local, report);
        all.filter(|&fd| self.reports.drain(fd, meaning)).count() > 0
    }

    fn receive_from(&mut self, socket: usize, expected: bool) -> usize {
        let fd = self.sockets[socket].as_raw_fd();
        self.arrived.clear();
        // If a batch contains only packets for other ports, another is received, up to the end of
        // the queue as it was at first. Otherwise timers would run before the packets behind them
        // are seen.
        let (mut batches, mut unseen) = (0, u64::MAX);
        while unseen > 0 {
            self.counters.receive_calls += 1;
            let mut reported = false;
            let fetched = self.receive.fetch(fd, socket, expected).or_else(|_| {
                // A network report is returned before received packets.
                reported = self.read_errors(socket);
                self.receive.fetch(fd, socket, expected)
            });
            let refusal = self.refused_looks.refusal(&fetched, reported);
            refusal.into_iter().for_each(|refusal| self.reports.push(refusal));
            let n = fetched.unwrap_or(0);
            for index in 0..n {
                self.sort(index);
            }
            self.counters.receive_overflows += self.receive.lost();
            if n == 0 || !self.arrived.is_empty() {
                break;
            }
            batches += 1;
            match batches {
                BATCHES => unseen = unread(fd),
                _ => {
                    let trains = (0..n).map(|index| self.receive.get(index).bytes.len());
                    let seen: usize = trains.map(|length| length + TRAIN_OVERHEAD).sum();
                    unseen = unseen.saturating_sub(seen as u64);
                }
            }
        }
        self.arrived.len()
    }

    /// Checks whether a packet is for this engine.
    fn sort(&mut self, index: usize) {
        let received = self.receive.get(index);
        let RawSocket { ip, hijacked, .. } = self.sockets[received.socket];
        let skip = match ip.is_ipv4() {
            // Only IPv4 sockets show the IP header.
            true => usize::from(received.bytes.first().map_or(0, |byte| byte & 15)) * 4,
            false => 0,
        };
        let packet = received.bytes.get(skip..).unwrap_or_default();
        let port = port_at(packet, filter::AT_DESTINATION);
        let carries = |carriers: &[Option<usize>; 2]| {
            carriers[family(ip)].is_some_and(|carrier| self.sockets[carrier].ip == ip)
        };
        let mut ours = self.local.iter().zip(&self.carriers);
        let ours =
            ours.position(|(local, carriers)| Some(local.port()) == port && carries(carriers));
        let asks = packet.get(filter::AT_TYPE) == Some(&filter::NEED_ACK);
        let at = received.to.unwrap_or(ip);
        let mut orphaned = |port| self.orphans.are_ours(Instant::now(), at, port);
        let number = match (ours, port) {
            // Any address may answer for a process that is gone.
            (None, Some(port)) if asks && orphaned(port) => self.carriers.iter().position(carries),
            _ => ours,
        };
        let marked = || {
            packet.get(filter::AT_FLAGS) == Some(&filter::HIJACK_FLAGS)
                && port_at(packet, filter::AT_URGENT) == Some(filter::HIJACK_URGENT)
        };
        match number.filter(|_| !hijacked || marked()) {
            Some(number) => {
                self.counters.datagrams_received += 1;
                self.counters.trains_received += 1;
                self.counters.bytes_received += packet.len() as u64;
                self.counters.tcp_hijack_received += u64::from(hijacked);
                self.arrived.push(PacketMeta { index, number, skip });
            }
            None => self.counters.other_ports += 1,
        }
    }
}

impl Sockets for RawIpDriver {
    fn send_all(
        &mut self,
        trains: &[Train],
        outbox: &Outbox,
        messages: &dyn Gather,
    ) -> Result<(), (usize, usize, Full)> {
        let mut done = 0;
        while let Some(first) = trains.get(done) {
            let route = |train: &Train| Some((self.socket_for(train)?, train.link));
            let Some(wanted) = route(first) else {
                self.counters.trains_refused += 1;
                done += 1;
                continue;
            };
            let rest = trains[done..].iter().take(RUN_MAX);
            let run = &trains[done..done + rest.take_while(|t| route(t) == Some(wanted)).count()];
            if let Err(SendStop { train, offset, why }) =
                self.send_run(wanted.0, run, outbox, messages)
                && let StopReason::Full(full) = why
            {
                return Err((done + train, offset, full));
            }
            done += run.len();
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

impl Driver for RawIpDriver {
    fn encapsulation(&self) -> Encapsulation {
        Encapsulation::Ip
    }

    fn routes(&self) -> Option<RouteMtu> {
        Some(route_mtu)
    }

    fn good_mtu(&self) -> u16 {
        JUMBO_MTU
    }

    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let ip = at.ip().to_canonical();
        let port = ports::claim(at.port())?;
        let mut carriers = [None; 2];
        carriers[family(ip)] = Some(self.carrier(ip)?);
        if ip.is_ipv6() && ip.is_unspecified() {
            // Raw IPv6 sockets do not support IPv4; a host without IPv4 does not need it.
            carriers[0] = self.carrier(Ipv4Addr::UNSPECIFIED.into()).ok();
        }
        let mut local = at;
        local.set_ip(ip);
        local.set_port(port.number);
        let number = first_free(self.claimed.iter().map(Option::is_some));
        put(&mut self.local, number, local);
        put(&mut self.carriers, number, carriers);
        put(&mut self.claimed, number, Some(port));
        let ports = self.ports();
        self.sockets.iter().for_each(|socket| socket.accept_only(&ports));
        Ok(local)
    }

    fn unbind(&mut self, socket: usize) {
        // The sockets stay open for other ports at their addresses.
        self.carriers[socket] = [None; 2];
        self.claimed[socket] = None;
        let ports = self.ports();
        self.sockets.iter().for_each(|socket| socket.accept_only(&ports));
    }

    fn local(&self) -> &[SocketAddr] {
        &self.local
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.carriers.get(socket).is_some_and(|c| c[family(to.to_canonical())].is_some())
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
        self.looks = self.looks.wrapping_add(1);
        let everywhere = expected || self.looks.is_multiple_of(LOOKS_PER_HIJACK);
        for _ in 0..self.sockets.len() {
            let socket = self.next_socket % self.sockets.len();
            self.next_socket = socket + 1;
            if self.sockets[socket].hijacked && !everywhere {
                continue;
            }
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
        let PacketMeta { index, number, skip } = self.arrived[index];
        let received = self.receive.get(index);
        let bytes = &received.bytes[skip..];
        let mut from = received.from;
        from.set_port(port_at(bytes, 0).unwrap_or(0));
        ReceivedTrain { from, socket: number, datagram: bytes.len().max(1), bytes, ..received }
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.reports.unreachable()
    }

    fn too_big(&mut self) -> Option<TooBig> {
        self.reports.too_big()
    }

    fn refusal(&mut self) -> Option<SystemRefusal> {
        self.reports.refusal()
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        let sockets = self.sockets.iter().zip(&self.link_sockets);
        sockets
            .map(|(main, link_sockets)| link_sockets.queued(main.as_raw_fd(), link, queued))
            .sum()
    }

    fn receive_buffer(&self) -> u32 {
        let granted = self.sockets.iter().filter(|socket| !socket.hijacked);
        granted.filter_map(|socket| receive_buffer(socket.as_raw_fd())).min().unwrap_or(0)
    }

    fn unread(&self) -> u64 {
        self.sockets.iter().map(|socket| unread(socket.as_raw_fd())).sum()
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
