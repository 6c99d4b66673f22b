//! Drivers: they send and receive batches of datagrams. A driver handles addresses and bytes, never
//! the protocol. [`crate::Engine::bind`] and its siblings choose one; this module is for programs
//! that bring another driver, or run on [`memory`].
//!
//! A *train* is a series of equal-size datagrams (the last may be shorter) to one destination in
//! one traffic class, which segmentation offload can send in one pass through the kernel. The
//! engine packs an [`Outbox`] of trains. Long payloads stay in their messages, and the driver
//! gathers them.
//!
//! Invariants: sending never blocks and never fails as a whole. Datagrams that the network refuses
//! are counted, and loss recovery retransmits them. Datagrams that find no room are kept and sent
//! later, and do not delay datagrams of another link. A received train stays readable until the
//! next `receive`.

pub(crate) mod backlog;
pub(crate) mod ethtool;
pub(crate) mod fork;
mod handshake;
mod link_sockets;
pub mod memory;
mod poller;
pub(crate) mod raw_ip;
pub(crate) mod refusal;
#[cfg(feature = "encryption")]
pub(crate) mod sealed;
pub(crate) mod signals;
pub(crate) mod udp;
pub(crate) mod uptime;
mod wait;
#[cfg(feature = "xdp")]
pub(crate) mod xdp;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
#[cfg(feature = "encryption")]
use std::sync::Arc;
use std::time::Instant;

use homa_proto::{ClientDirectory, Duration, LinkId, Quoted, Span, Time};

use crate::error::OpenError;
use crate::metrics::DriverCounters;
#[cfg(feature = "encryption")]
use crate::secure::PeerIdentity;
pub(crate) use backlog::Full;
pub use handshake::{ChallengedClient, Rejection};
pub(crate) use poller::Poller;
#[cfg(feature = "tokio")]
pub(crate) use poller::register;
pub use refusal::SystemRefusal;
pub use udp::duplicate;
#[cfg(test)]
pub(crate) use wait::wait;
pub(crate) use wait::{Waker, wait_or_writable};

/// Largest train, bytes: it fits in one IP packet, and so in one receive buffer.
pub(crate) const TRAIN_MAX: usize = 65_000;

/// A batch of trains to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Headers and short payloads.
    pub bytes: Vec<u8>,
    /// The pieces of the trains, in order.
    pub pieces: Vec<TrainPiece>,
    /// The trains.
    pub trains: Vec<Train>,
}

impl Outbox {
    /// Removes the trains, and keeps `bytes` as memory for the next ones.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.trains.clear();
    }
}

/// A contiguous part of a train.
#[derive(Clone, Debug)]
pub enum TrainPiece {
    /// A range of [`Outbox::bytes`].
    Buffered(Range<usize>),
    /// A range of a message, to be fetched through [`Gather`].
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

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equal-size datagrams to one destination in one traffic class.
#[derive(Clone, Debug)]
pub struct Train {
    /// Destination.
    pub to: SocketAddr,
    /// The link that it leaves by, as far as the engine knows.
    pub link: LinkId,
    /// The number of the driver's socket to send from (0 is the first one bound).
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

/// Access to the bytes of outgoing messages.
pub trait Gather {
    /// All bytes of `span`, which are contiguous: no [`TrainPiece`] spans more.
    fn bytes(&self, span: Span) -> &[u8];
}

/// A received train.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedTrain<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The number of the driver's socket.
    pub socket: usize,
    /// The local address that it was sent to, if the socket has several.
    pub to: Option<IpAddr>,
    /// Bytes of every datagram but the last, which may be shorter.
    pub datagram: usize,
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
}

/// A network report that an address is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreachableReport {
    /// The destination of the packet that caused the report.
    pub to: SocketAddr,
    /// What is unreachable.
    pub what: homa_proto::Unreachable,
    /// The quoted part of the packet. It distinguishes reports from forgeries, and calls that were
    /// not executed from others. A report without it (old hosts quote 8 bytes) is ignored.
    pub quoted: Option<Quoted>,
}

/// What an ICMP message reports as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The host.
    Host,
    /// The protocol: the host answered that it does not support it.
    Protocol,
    /// The port: the host answered that no socket has it.
    Port,
}

/// The format of Homa packets in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// UDP datagrams with one packet or several (`docs/udp-encapsulation.md`). A peer is an address
    /// and a port.
    Datagram,
    /// One packet, in the format of the Linux kernel module, as the payload of an IP packet. A peer
    /// is a host, whose ports share cutoffs and acknowledgements: the port in [`Train::to`] is 0,
    /// and in [`ReceivedTrain::from`] it is the packet's. No packet is larger than the route's MTU.
    Ip,
}

/// A report that a packet was larger than a link of its path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Its destination; over raw IP the port is 0.
    pub to: SocketAddr,
    /// The reported size of the largest IP packet that passes, bytes (0 if not reported); `None` if
    /// our own system refused the packet.
    pub mtu: Option<u16>,
    /// The quoted part of the packet, which distinguishes reports from forgeries.
    pub quoted: Option<Quoted>,
}

/// Datagrams of one link that a driver could not send yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBacklog {
    /// The link.
    pub link: LinkId,
    /// Bytes of datagrams.
    pub bytes: usize,
    /// The full socket, which poll reports when it is writable; `None` if the device's queue is
    /// full.
    pub socket: Option<RawFd>,
}

impl Missing {
    /// In the protocol's words; `port` is the port that was addressed.
    fn at(self, port: u16) -> homa_proto::Unreachable {
        match self {
            Self::Host => homa_proto::Unreachable::Host,
            Self::Protocol => homa_proto::Unreachable::Protocol,
            Self::Port => homa_proto::Unreachable::Port(port),
        }
    }
}

/// Trains that a driver of sockets receives at a time. If it receives this many, there may be more.
pub(crate) const FULL_BATCH: usize = 32;

/// Memory that a train in a receive queue takes beyond its bytes, at least.
pub(crate) const TRAIN_OVERHEAD: usize = 512;

/// Ethernet's MTU: packets of this size pass nearly everywhere.
pub(crate) const ETHERNET_MTU: u16 = 1500;
/// Jumbo frames: the largest packets that are sent unless the user configures more.
pub(crate) const JUMBO_MTU: u16 = 9000;

/// Looks up the MTU of the route to an address, bytes, with a few system calls. `None` without a
/// route.
pub(crate) type RouteMtu = fn(SocketAddr) -> Option<u16>;

/// A way to exchange datagrams with other hosts.
pub trait Driver: Send {
    /// The format of the datagrams.
    fn encapsulation(&self) -> Encapsulation {
        Encapsulation::Datagram
    }

    /// True if other hosts may read and forge the datagrams, so that the engine needs keys, or
    /// plaintext by choice ([`Config::plaintext`](crate::Config::plaintext)), unless it is on
    /// loopback.
    fn needs_keys(&self) -> bool {
        false
    }

    /// A function that looks up the MTU of the route to an address, bytes; it returns `None`
    /// without a route. `None` if the driver has no routes.
    fn routes(&self) -> Option<fn(SocketAddr) -> Option<u16>> {
        None
    }

    /// The largest IP packets that the driver handles well, bytes: no larger ones are sent unless
    /// the user configures it.
    fn good_mtu(&self) -> u16 {
        ETHERNET_MTU
    }

    /// Bytes that the driver adds to each datagram, for example to authenticate it.
    fn overhead(&self) -> u16 {
        0
    }

    /// When [`Self::expire`] is to be called; [`Time::ZERO`] means now. `None` if the driver has no
    /// timer.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Runs the timers that are due. `now` never decreases.
    fn expire(&mut self, _now: Time) {}

    /// Opens another local address. It gets the lowest free number, so no closed socket with a
    /// lower number has its port.
    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr>;

    /// Closes a local address, but not the first.
    fn unbind(&mut self, socket: usize);

    /// Local addresses by socket number; a closed socket keeps its former address.
    fn local(&self) -> &[SocketAddr];

    /// True if `socket` can send to addresses of this family.
    fn reaches(&self, socket: usize, to: IpAddr) -> bool;

    /// True if a peer's datagrams to `socket` reach this driver, and not another engine that shares
    /// the address.
    fn hears(&self, _socket: usize, _peer: SocketAddr) -> bool {
        true
    }

    /// Since when no other engine can have received at the first address; `None` if it is not
    /// known.
    fn alone_since(&self) -> Option<Instant> {
        None
    }

    /// The directory of clients of engines that share the address; `None` if there are no others.
    fn names(&self) -> Option<Box<dyn ClientDirectory>> {
        None
    }

    /// Sends a batch, in order. Trains that the network refuses are counted and lost. Trains that
    /// find no room, and those behind them for the same link, are in [`Self::backlog`].
    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather);

    /// Tries again to send the backlog of a link.
    fn resume(&mut self, _link: LinkId) {}

    /// Datagrams that could not be sent yet, by link. Until a link's backlog has left, the engine
    /// packs only control packets for it.
    fn backlog(&self) -> &[LinkBacklog] {
        &[]
    }

    /// Receives trains that have arrived, without waiting; returns their number. If the caller has
    /// reason to believe that there are some (`expected`), 0 means that none are left. Otherwise an
    /// empty poll should be cheap.
    fn receive(&mut self, expected: bool) -> usize;

    /// The `index`th train of the last `receive`.
    fn received(&self, index: usize) -> ReceivedTrain<'_>;

    /// Who the sender of the `index`th train has proved to be; `None` without keys.
    #[cfg(feature = "encryption")]
    fn identity(&self, _index: usize) -> Option<&Arc<PeerIdentity>> {
        None
    }

    /// Whether the `index`th train is early data: requests of a client that has proved with a
    /// ticket who it is, but not that it receives at its address. The driver limits what it gets.
    fn is_early_data(&self, _index: usize) -> bool {
        false
    }

    /// Whether a server has accepted early data of ours and has not sent its ticket yet.
    fn awaits_ticket(&self) -> bool {
        false
    }

    /// The next report of an unreachable address.
    fn unreachable(&mut self) -> Option<UnreachableReport>;

    /// The next report of a packet that was too big.
    fn too_big(&mut self) -> Option<TooBig> {
        None
    }

    /// The next packet that the system refused to send for a reason other than these, or that it
    /// refused to receive.
    fn refusal(&mut self) -> Option<SystemRefusal> {
        None
    }

    /// Makes the system refuse datagrams that arrive from now on, as if the sockets were closed.
    /// Those that have arrived can still be received, and answers to them be sent.
    fn refuse_arrivals(&mut self) {}

    /// Bytes of a link that were passed to the layers below and have not left, by their count;
    /// `None` if they do not report it. If links cannot be distinguished, the bytes of all links
    /// count.
    fn queued(&self, link: LinkId) -> Option<u32>;

    /// Bytes of datagrams that fit in the receive queue.
    fn receive_buffer(&self) -> u32;

    /// Memory of datagrams in the receive queue, bytes: at least their bytes plus 512 for each
    /// train.
    fn unread(&self) -> u64;

    /// File descriptors that become readable if `receive` would find something.
    fn handles(&self) -> Vec<RawFd>;

    /// The first of them.
    fn first_handle(&self) -> BorrowedFd<'_>;

    /// The next packet that was not sent because no session with its peer could be made.
    fn rejection(&mut self) -> Option<Rejection> {
        None
    }

    /// Boot id and remembered time of a challenge that is sent at the time of the next
    /// [`Self::expire`]; `None` if the engine sends none. A driver whose handshakes prove addresses
    /// carries the challenge in them, which saves its clients a round trip.
    fn set_challenge(&mut self, _challenge: Option<(u64, Duration)>) {}

    /// The next client that was verified by a handshake with a challenge. None of its packets was
    /// received before.
    fn challenged(&mut self) -> Option<ChallengedClient> {
        None
    }

    /// The driver's counters.
    fn counters(&self) -> &DriverCounters;
}

/// The drivers of this crate. [`Engine::bind`](crate::Engine::bind) and its siblings use them. Use
/// these functions only to change a driver's sockets before an engine takes it.
impl dyn Driver {
    /// Opens UDP sockets at a local address (port 0: any). The receive queue should hold
    /// `receive_buffer` bytes; the kernel may grant less (`net.core.rmem_max`).
    ///
    /// # Errors
    /// [`OpenError::InUse`] or [`OpenError::Bind`] if the address cannot be bound.
    pub fn udp(at: SocketAddr, receive_buffer: usize) -> Result<Box<dyn Driver>, OpenError> {
        let driver = udp::UdpDriver::new(at, receive_buffer);
        Ok(Box::new(driver.map_err(|source| OpenError::bind(at, source))?))
    }

    /// Uses a UDP socket that is already bound: see
    /// [`Engine::from_socket`](crate::Engine::from_socket).
    ///
    /// # Errors
    /// [`OpenError::Socket`] says what is wrong with the descriptor.
    pub fn udp_socket(
        socket: impl Into<OwnedFd>,
        receive_buffer: usize,
    ) -> Result<Box<dyn Driver>, OpenError> {
        Ok(Box::new(udp::UdpDriver::from_socket(socket.into(), receive_buffer)?))
    }

    /// As [`Self::udp`], but without segmentation offload, to test hosts that lack it.
    #[doc(hidden)]
    pub fn udp_without_offload(
        at: SocketAddr,
        receive_buffer: usize,
    ) -> Result<Box<dyn Driver>, OpenError> {
        let driver = udp::UdpDriver::new(at, receive_buffer);
        let driver = driver.map_err(|source| OpenError::bind(at, source))?;
        Ok(Box::new(driver.without_offload()))
    }

    /// Opens raw sockets for IP protocol 146: see [`Engine::raw_ip`](crate::Engine::raw_ip).
    ///
    /// # Errors
    /// [`OpenError::NeedsNetRaw`] without the capability; [`OpenError::InUse`] if the address is
    /// not one of this host or another engine has the port.
    pub fn raw_ip(at: SocketAddr, receive_buffer: usize) -> Result<Box<dyn Driver>, OpenError> {
        Ok(Box::new(raw_ip::RawIpDriver::new(at, receive_buffer)?))
    }

    /// Opens AF_XDP sockets: see [`Engine::xdp`](crate::Engine::xdp).
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

/// The number for a new socket: the lowest that is free, so no closed socket before an open one had
/// its port.
fn first_free(open: impl IntoIterator<Item = bool>) -> usize {
    open.into_iter().take_while(|open| *open).count()
}

/// Stores a value at its socket's number, [`first_free`].
fn put<T>(slots: &mut Vec<T>, number: usize, what: T) {
    match slots.get_mut(number) {
        Some(slot) => *slot = what,
        None => slots.push(what),
    }
}

impl DriverCounters {
    /// Counts trains as sent: all of them, or those before `stopped.0` and `stopped.1` bytes of
    /// that one.
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
