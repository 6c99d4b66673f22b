//! Drivers: batches of frames in and out. A driver knows addresses and bytes, never the protocol.
//!
//! A *train* is a run of equal-size datagrams (the last may be shorter) to one destination in one
//! traffic class: what segmentation offload can send in one pass through the kernel. The engine
//! packs an [`Outbox`] of trains; long payloads stay where they are and are gathered by the driver.
//!
//! Invariants: sending never blocks and never fails as a whole (what the network refuses is counted
//! and left to the protocol's loss recovery; what there is no room for yet is kept and tried
//! again, and holds back nothing that leaves by another link); a received train stays readable
//! until the next `receive`.

mod backlog;
pub(crate) mod ethtool;
pub(crate) mod fork;
mod link_sockets;
pub mod memory;
pub(crate) mod raw_ip;
pub(crate) mod signals;
pub(crate) mod udp;
mod wait;
#[cfg(feature = "xdp")]
pub(crate) mod xdp;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};

use homa_proto::{ClientDirectory, LinkId, Quoted, Span};

use crate::error::OpenError;
use crate::metrics::DriverCounters;
#[cfg(test)]
pub(crate) use wait::wait;
pub(crate) use wait::{Waker, wait_or_writable};

/// Largest datagram train, bytes: what fits in one IP packet, and so in one receive buffer.
pub(crate) const TRAIN_MAX: usize = 65_000;

/// A batch of trains on their way out.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Headers and short payloads.
    pub bytes: Vec<u8>,
    /// What the trains consist of, in order.
    pub pieces: Vec<TrainPiece>,
    /// The trains.
    pub trains: Vec<Train>,
}

impl Outbox {
    /// Forgets the trains and keeps `bytes` as room for the next ones.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.trains.clear();
    }
}

/// A run of bytes of a train.
#[derive(Clone, Debug)]
pub enum TrainPiece {
    /// A range of [`Outbox::bytes`].
    Buffered(Range<usize>),
    /// A range of a message, fetched through [`Gather`].
    Message(Span),
}

impl TrainPiece {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Buffered(range) => range.len(),
            Self::Message(span) => span.len as usize,
        }
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equal-size datagrams to one destination in one traffic class.
#[derive(Clone, Debug)]
pub struct Train {
    /// Destination.
    pub to: SocketAddr,
    /// The link that it leaves by, as far as the sender knows.
    pub link: LinkId,
    /// The driver's socket to send from (0 is the first one bound).
    pub socket: usize,
    /// The local address to send from; `None` leaves it to the socket and the routes.
    pub source: Option<IpAddr>,
    /// Type-of-service byte.
    pub tos: u8,
    /// Bytes of every datagram but the last, which may be shorter.
    pub datagram: usize,
    /// Bytes of the whole train.
    pub len: usize,
    /// Range of [`Outbox::pieces`].
    pub pieces: Range<usize>,
}

impl Train {
    /// Number of datagrams.
    pub fn datagrams(&self) -> usize {
        self.len.div_ceil(self.datagram.max(1))
    }
}

/// Finds the bytes of outgoing messages.
pub trait Gather {
    /// The bytes of `span`, all of them: no [`TrainPiece`] spans more than lie together.
    fn bytes(&self, span: Span) -> &[u8];
}

/// A train that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedTrain<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// The driver's socket it arrived at.
    pub socket: usize,
    /// The local address it was sent to, where the socket has several.
    pub to: Option<IpAddr>,
    /// Bytes of every datagram but the last, which may be shorter.
    pub datagram: usize,
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
}

/// An address that the network reported as unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreachableReport {
    /// The destination of the packet that came back.
    pub to: SocketAddr,
    /// What of it.
    pub what: homa_proto::Unreachable,
    /// The packet, as far as the report shows it: tells reports from forgeries, and calls that were
    /// not executed from others. A report that shows none (old hosts quote 8 bytes) is ignored.
    pub quoted: Option<Quoted>,
}

/// What the network says is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The host.
    Host,
    /// Homa as a protocol of the host, which answered.
    Protocol,
    /// The port: the host answered.
    Port,
}

/// How Homa packets lie in what a driver sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// Our own datagrams, which hold one packet or several (`docs/udp-encapsulation.md`). A peer is
    /// an address and a port.
    Datagram,
    /// One packet, as the Linux kernel module lays it out, is the payload of one IP packet. A peer
    /// is a host, whose ports share cutoffs and acknowledgements: ports in [`Train::to`] are 0, in
    /// [`ReceivedTrain::from`] the packet's own. No packet is larger than the route's MTU.
    Ip,
}

/// A packet that was larger than a link of its path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Its destination; over IP the port is 0.
    pub to: SocketAddr,
    /// Bytes of the largest IP packet that passes, as the network says (0: it does not); `None`: it
    /// was our own system that refused it.
    pub mtu: Option<u16>,
    /// The packet, as far as the report shows it: tells reports from forgeries.
    pub quoted: Option<Quoted>,
}

/// What a driver could not send yet by one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBacklog {
    /// The link.
    pub link: LinkId,
    /// Bytes of datagrams.
    pub bytes: usize,
    /// What it waits for.
    pub socket: Option<RawFd>,
}

/// What has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The socket (EAGAIN): poll says when it is writable.
    Socket(RawFd),
    /// The queue of a device (ENOBUFS), of which nobody tells when it has room.
    Device,
}

impl Full {
    /// The socket that is full.
    fn socket(self) -> Option<RawFd> {
        match self {
            Self::Socket(fd) => Some(fd),
            Self::Device => None,
        }
    }
}

impl Missing {
    /// As the protocol knows it; `port` is the port that was addressed.
    fn at(self, port: u16) -> homa_proto::Unreachable {
        match self {
            Self::Host => homa_proto::Unreachable::Host,
            Self::Protocol => homa_proto::Unreachable::Protocol,
            Self::Port => homa_proto::Unreachable::Port(port),
        }
    }
}

/// Trains that a driver of sockets fetches at a time: after so many there may be more.
pub(crate) const FULL_BATCH: usize = 32;

/// Memory that a train in a receive queue takes beyond its bytes, at least.
pub(crate) const TRAIN_OVERHEAD: usize = 512;

/// Packets of so many bytes pass nearly everywhere: Ethernet's MTU.
pub(crate) const ETHERNET_MTU: u16 = 1500;
/// Largest packets that are sent unless the user asks for more: jumbo frames.
pub(crate) const JUMBO_MTU: u16 = 9000;

/// Asks the system for the MTU of the route to an address, bytes: a few system calls. `None`
/// without a route.
pub(crate) type RouteMtu = fn(SocketAddr) -> Option<u16>;

/// A way to exchange datagrams with other hosts.
pub trait Driver: Send {
    /// What the datagrams hold.
    fn encapsulation(&self) -> Encapsulation {
        Encapsulation::Datagram
    }

    /// What tells the MTU of the route to an address; `None` where there are no routes.
    fn routes(&self) -> Option<fn(SocketAddr) -> Option<u16>> {
        None
    }

    /// Bytes of the largest IP packets that it does well with: none are larger unless the user says
    /// otherwise.
    fn good_mtu(&self) -> u16 {
        ETHERNET_MTU
    }

    /// Opens one more local address. It gets the lowest number that no open one has: so no closed
    /// one before it has its port.
    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr>;

    /// Closes a local address, but the first.
    fn unbind(&mut self, socket: usize);

    /// Local addresses by socket number; of closed ones, what they were.
    fn local(&self) -> &[SocketAddr];

    /// True when datagrams from `socket` can carry the destination's kind of address.
    fn reaches(&self, socket: usize, to: IpAddr) -> bool;

    /// True when what a peer sends to `socket` comes here, not to another engine that shares its
    /// address.
    fn hears(&self, _socket: usize, _peer: SocketAddr) -> bool {
        true
    }

    /// Where to look up clients of other engines that share the address; `None`: there are none.
    fn names(&self) -> Option<Box<dyn ClientDirectory>> {
        None
    }

    /// Sends a batch, in order. Trains that the network refuses are counted and lost; what there is
    /// no room for, and what is behind it for the same link, is [`Self::backlog`].
    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather);

    /// Tries again to send what waits for a link.
    fn resume(&mut self, _link: LinkId) {}

    /// What waits for room, by link: until it has left, the caller packs nothing but control
    /// packets for these.
    fn backlog(&self) -> &[LinkBacklog] {
        &[]
    }

    /// Fetches trains that have arrived, without waiting; returns how many. `expected`: the caller
    /// has reason to believe that there are some, and none means that nothing is left; otherwise a
    /// look in vain should cost little.
    fn receive(&mut self, expected: bool) -> usize;

    /// The `index`th train of the last `receive`.
    fn received(&self, index: usize) -> ReceivedTrain<'_>;

    /// The next address reported as unreachable.
    fn unreachable(&mut self) -> Option<UnreachableReport>;

    /// The next packet reported as too big.
    fn too_big(&mut self) -> Option<TooBig> {
        None
    }

    /// Bytes handed to the layers below for a link that have not left yet, as these count them;
    /// `None` when they do not tell. Where they cannot be told apart, those of other links count.
    fn queued(&self, link: LinkId) -> Option<u32>;

    /// Bytes of datagrams that can wait to be received.
    fn receive_buffer(&self) -> u32;

    /// Memory that what waits to be received takes, bytes: for each train at least its own and
    /// [`TRAIN_OVERHEAD`].
    fn unread(&self) -> u64;

    /// File descriptors that become readable when `receive` would find something.
    fn handles(&self) -> Vec<RawFd>;

    /// The first of them.
    fn first_handle(&self) -> BorrowedFd<'_>;

    /// What was counted.
    fn counters(&self) -> &DriverCounters;
}

/// The drivers of this crate. [`Engine::bind`](crate::Engine::bind) and its siblings use them; a
/// driver of its own is needed only to change its sockets before an engine takes it.
impl dyn Driver {
    /// UDP sockets at a local address (port 0: any). The receive queue should hold `receive_buffer`
    /// bytes; the kernel may grant less (`net.core.rmem_max`).
    ///
    /// # Errors
    /// [`OpenError::InUse`] or [`OpenError::Bind`] if the address cannot be bound.
    pub fn udp(at: SocketAddr, receive_buffer: usize) -> Result<Box<dyn Driver>, OpenError> {
        let driver = udp::UdpDriver::new(at, receive_buffer);
        Ok(Box::new(driver.map_err(|source| OpenError::bind(at, source))?))
    }

    /// As [`Self::udp`], but without segmentation offload: a test of hosts that lack it.
    #[doc(hidden)]
    pub fn udp_without_offload(
        at: SocketAddr,
        receive_buffer: usize,
    ) -> Result<Box<dyn Driver>, OpenError> {
        let driver = udp::UdpDriver::new(at, receive_buffer);
        let driver = driver.map_err(|source| OpenError::bind(at, source))?;
        Ok(Box::new(driver.without_offload()))
    }

    /// Raw sockets for IP protocol 146: see [`Engine::raw_ip`](crate::Engine::raw_ip).
    ///
    /// # Errors
    /// [`OpenError::NeedsNetRaw`] without the capability; [`OpenError::InUse`] if the address is not
    /// one of this host or another engine has the port.
    pub fn raw_ip(at: SocketAddr, receive_buffer: usize) -> Result<Box<dyn Driver>, OpenError> {
        Ok(Box::new(raw_ip::RawIpDriver::new(at, receive_buffer)?))
    }

    /// AF_XDP sockets: see [`Engine::xdp`](crate::Engine::xdp).
    ///
    /// # Errors
    /// [`OpenError::NeedsXdp`] without the capabilities, [`OpenError::NoInterface`] if no Ethernet
    /// interface has the address, [`OpenError::Xdp`] if the kernel refuses a step at each of them,
    /// [`OpenError::InUse`] if the port is taken.
    #[cfg(feature = "xdp")]
    pub fn xdp(at: SocketAddr, receive_buffer: usize) -> Result<Box<dyn Driver>, OpenError> {
        Ok(Box::new(xdp::XdpDriver::new(at, receive_buffer)?))
    }
}

/// The number for a new socket: the lowest that is free, so that no closed socket before an open
/// one had its port.
fn first_free(open: impl IntoIterator<Item = bool>) -> usize {
    open.into_iter().take_while(|open| *open).count()
}

/// Puts something at its socket's number, [`first_free`].
fn put<T>(slots: &mut Vec<T>, number: usize, what: T) {
    match slots.get_mut(number) {
        Some(slot) => *slot = what,
        None => slots.push(what),
    }
}

impl DriverCounters {
    /// Counts trains as sent: all of them, or those before `stopped.0` and so many bytes of that.
    fn count_sent(&mut self, trains: &[Train], stopped: Option<(usize, usize)>) {
        let (whole, part) = stopped.unwrap_or((trains.len(), 0));
        self.trains_sent += whole as u64;
        for train in &trains[..whole] {
            self.datagrams_sent += train.datagrams() as u64;
            self.bytes_sent += train.len as u64;
        }
        if part > 0 {
            self.datagrams_sent += (part / trains[whole].datagram) as u64;
            self.bytes_sent += part as u64;
        }
    }
}
