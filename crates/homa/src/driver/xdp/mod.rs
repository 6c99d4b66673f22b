//! Homa over UDP with AF_XDP sockets, which bypass the system's network stack. The datagrams are
//! those of [`super::udp`], so the two kinds of peers can call each other.
//!
//! A program of about sixty instructions is attached to each interface that has the local address.
//! It redirects the frames for our ports (`program`) to sockets whose memory we share with the
//! kernel (`port`), without a copy if the card's driver supports that. All other frames go to the
//! system. Frames that we send carry the Ethernet address of the next hop, from the system
//! (`next_hops`).
//!
//! A UDP socket is also bound to each port. It reserves the port, carries first packets and those
//! to destinations that only the system can reach, and receives ICMP reports. If frames are copied,
//! it also carries trains of several datagrams, because its segmentation offload passes them in one
//! piece, which costs less than a frame each. Packets that arrive there are processed, too.
//!
//! It needs CAP_NET_ADMIN, CAP_BPF, and CAP_NET_RAW, and Linux 5.9. If the process ends, no matter
//! how, nothing is left behind. The host's packet filters (nftables, traffic control, IPsec
//! policies, reverse path filtering) do not see these frames, and captures (tcpdump) do not show
//! received ones.
//!
//! Left out: packets larger than a page's frame (they use the UDP socket), VLAN tags in frames (use
//! the VLAN's interface), multipath routes and tunnels (left to the system), interfaces that are
//! added later or whose Ethernet address changes (received at the UDP socket), and checksum
//! offload.

mod frame;
mod gather;
mod interface;
mod next_hops;
mod port;
mod program;
mod ring;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use homa_proto::LinkId;

use super::backlog::Sockets;
use super::udp::UdpDriver;
use super::{
    Driver, DriverCounters, Gather, JUMBO_MTU, LinkBacklog, Outbox, ReceivedTrain, RouteMtu,
    SystemRefusal, TRAIN_OVERHEAD, TooBig, Train, UnreachableReport,
};
use crate::egress::kernel::Kernel;
use crate::error::OpenError;
use gather::TrainBytes;
use interface::XdpInterface;
pub use interface::missing_capabilities;
use next_hops::{Destination, NextHop, NextHops};

/// Frames received at a time: at least a full batch.
const FRAMES_MAX: u32 = 64;
/// Looks at the rings per look at the UDP sockets, which is a system call: if these received
/// nothing for a while, and if they did.
const LOOKS_PER_SOCKET: u32 = 256;
const LOOKS_PER_BUSY_SOCKET: u32 = 8;
const BUSY: u32 = 4096;
/// Batches of malformed frames that are read in search of a valid one.
const BATCHES_MAX: usize = 16;
/// Frames received between two queries of the count of lost frames.
const FRAMES_PER_QUESTION: u64 = 4096;

/// See the module's documentation.
pub struct XdpDriver {
    interfaces: Vec<XdpInterface>,
    /// True if some card needs copies.
    copies: bool,
    next_hops: NextHops,
    udp: UdpDriver,
    /// Trains of a batch that leave through the UDP sockets.
    rest: Vec<Train>,
    /// Datagrams that could not be sent yet, by link.
    backlog: Vec<LinkBacklog>,
    /// The frames of the last `receive`; empty if the UDP sockets received something.
    arrived: Vec<FrameMeta>,
    /// The next port to look at; ports are pairs of interface and queue.
    next: usize,
    ports: Vec<(usize, usize)>,
    looks: u32,
    /// Looks for which the UDP sockets count as busy.
    busy: u32,
    /// Frames to be received until the next query of the count of lost frames.
    unasked: u64,
}

/// A datagram of the last batch.
#[derive(Clone, Copy)]
struct FrameMeta {
    from: SocketAddr,
    to: Option<IpAddr>,
    socket: usize,
    port: (usize, usize),
    frame: u32,
    /// Offset of the datagram in the frame.
    start: usize,
    len: usize,
}

impl XdpDriver {
    /// Opens a driver with one local address (port 0: any) at the interfaces that have it; `[::]`
    /// and `0.0.0.0`: at all that are up. `receive_buffer` is in bytes.
    ///
    /// # Errors
    /// [`OpenError::NeedsXdp`] without the capabilities, [`OpenError::NoInterface`] if no Ethernet
    /// interface has the address, [`OpenError::Xdp`] if the kernel refuses a step at each of them,
    /// [`OpenError::InUse`] if the port is taken.
    pub fn new(at: SocketAddr, receive_buffer: usize) -> Result<Self, OpenError> {
        let missing = missing_capabilities();
        if !missing.is_empty() {
            return Err(OpenError::NeedsXdp { missing: missing.join(", ") });
        }
        let mut at = at;
        at.set_ip(at.ip().to_canonical());
        let kernel = Kernel::open().map_err(OpenError::Resources)?;
        let mut next_hops = NextHops::new(kernel);
        let devices = next_hops.interfaces().ok_or_else(|| {
            OpenError::Resources(io::Error::other("netlink does not list the interfaces"))
        })?;
        let udp =
            UdpDriver::new(at, receive_buffer).map_err(|source| OpenError::bind(at, source))?;
        let (mut interfaces, mut refused) = (Vec::new(), None);
        for device in devices {
            let has = match at.ip().is_unspecified() {
                true => !device.addresses.is_empty(),
                false => device.addresses.contains(&at.ip()),
            };
            if has {
                match XdpInterface::open(device, receive_buffer) {
                    Ok(interface) => interfaces.push(interface),
                    Err(error) => {
                        tracing::info!(%error, "an interface is left to the ordinary socket");
                        refused = Some(error);
                    }
                }
            }
        }
        if interfaces.is_empty() {
            return Err(refused.unwrap_or(OpenError::NoInterface { at }));
        }
        let queues = |(at, interface): (usize, &XdpInterface)| {
            (0..interface.ports.len()).map(move |queue| (at, queue))
        };
        let ports = interfaces.iter().enumerate().flat_map(queues).collect();
        interfaces.iter().for_each(log);
        let copies = !interfaces.iter().all(|interface| interface.ports[0].zero_copy);
        let driver = Self {
            interfaces,
            copies,
            next_hops,
            udp,
            rest: Vec::new(),
            backlog: Vec::new(),
            arrived: Vec::new(),
            next: 0,
            ports,
            looks: 0,
            busy: 0,
            unasked: FRAMES_PER_QUESTION,
        };
        driver.accept(driver.udp.local()[0]);
        Ok(driver)
    }

    fn accept(&self, at: SocketAddr) {
        self.interfaces.iter().for_each(|interface| interface.accept(at));
    }

    /// Updates the interfaces after links or routes changed.
    fn refresh(&mut self, now: Instant) {
        if !self.next_hops.refresh(now) {
            return;
        }
        let Some(devices) = self.next_hops.interfaces() else { return };
        for interface in &mut self.interfaces {
            let now = devices.iter().find(|now| now.index == interface.device.index);
            // If the interface is up again, its backlog may leave now.
            interface.stopped = now.is_none() || interface.ports[0].flush().is_err();
            let Some(now) = now.filter(|now| **now != interface.device) else { continue };
            self.udp.open_addresses().for_each(|at| interface.leave(at));
            interface.device = now.clone();
            // Without closed ports, which others may have now.
            self.udp.open_addresses().for_each(|at| interface.accept(at));
        }
    }

    /// How to send a train in frames; `None` if it leaves through the system.
    fn next_hop(&mut self, now: Instant, train: &Train) -> Option<NextHop> {
        if self.copies && train.datagrams() > 1 {
            return None;
        }
        let bound = self.udp.local().get(train.socket)?.ip();
        let source = train.source.or(Some(bound).filter(|bound| !bound.is_unspecified()));
        let destination = Destination::new(train.to, source);
        let devices = self.interfaces.iter().map(|interface| &interface.device);
        let next_hop = self.next_hops.find(now, destination, devices)?;
        let interface = &mut self.interfaces[next_hop.interface];
        if interface.stopped {
            return None;
        }
        let longest = next_hop.longest.min(interface.longest as usize);
        let fits = next_hop.header.len() + train.datagram.min(train.len) <= longest
            && interface.ports[0].room(train.datagrams()) >= train.datagrams();
        fits.then_some(next_hop)
    }

    /// Puts a train's datagrams into the send ring, which has room for them.
    fn put(&mut self, next_hop: &NextHop, train: &Train, outbox: &Outbox, messages: &dyn Gather) {
        let from = self.udp.local()[train.socket].port();
        let port = &mut self.interfaces[next_hop.interface].ports[0];
        let mut bytes = TrainBytes::of(train, outbox);
        let (header, mut left) = (next_hop.header.len(), train.len);
        while left > 0 {
            let len = train.datagram.clamp(1, left);
            left -= len;
            port.put(header + len, |frame| {
                bytes.copy(&mut frame[header..], outbox, messages);
                next_hop.header.write(frame, (from, train.to.port()), train.tos);
            });
        }
    }

    /// Makes the kernel send the frames in the rings.
    fn flush(&mut self) {
        for interface in &mut self.interfaces {
            match interface.ports[0].flush() {
                Ok(calls) => self.udp.counters_mut().send_calls += u64::from(calls),
                // The interface is down or gone: the frames leave when it is up again, or never.
                Err(_) => interface.stopped = true,
            }
        }
    }

    /// Updates the backlog: frames in the rings, and that of the UDP sockets.
    fn note_backlog(&mut self) {
        self.backlog.clear();
        self.backlog.extend_from_slice(self.udp.backlog());
        for interface in self.interfaces.iter().filter(|interface| !interface.stopped) {
            let (link, bytes) = (interface.link, interface.ports[0].unsent());
            match self.backlog.iter_mut().find(|waiting| waiting.link == link) {
                _ if bytes == 0 => {}
                Some(waiting) => waiting.bytes += bytes,
                None => self.backlog.push(LinkBacklog { link, bytes, socket: None }),
            }
        }
    }

    /// Looks at the rings; returns the number of datagrams.
    fn receive_frames(&mut self, expected: bool) -> usize {
        for _ in 0..self.ports.len() {
            let at = self.ports[self.next];
            self.next = (self.next + 1) % self.ports.len();
            // Another batch if all frames of this one are malformed.
            for _ in 0..BATCHES_MAX {
                let frames = self.interfaces[at.0].ports[at.1].receive(FRAMES_MAX, expected);
                if frames == 0 {
                    break;
                }
                self.read(at, frames);
                if !self.arrived.is_empty() {
                    return self.arrived.len();
                }
            }
        }
        0
    }

    fn receive_from_sockets(&mut self, expected: bool) -> usize {
        let trains = self.udp.receive(expected);
        if trains > 0 {
            self.busy = BUSY;
        }
        trains
    }

    /// Reads the received frames of a port.
    fn read(&mut self, at: (usize, usize), frames: u32) {
        let interface = &self.interfaces[at.0];
        let (mut bytes, mut malformed) = (0, 0);
        for index in 0..frames {
            let frame = interface.ports[at.1].frame(index);
            let datagram = frame::read(frame, interface.device.index);
            let local = self.udp.local();
            let found = datagram.and_then(|datagram| {
                // The system's routes would refuse a packet from ourselves.
                let own = |interface: &XdpInterface| interface.has(datagram.from.ip());
                if self.interfaces.iter().any(own) {
                    return None;
                }
                let socket = local.iter().position(|at| at.port() == datagram.to.port())?;
                Some((datagram, socket))
            });
            let Some((datagram, socket)) = found else {
                malformed += 1;
                continue;
            };
            bytes += datagram.bytes.len() as u64;
            let everywhere = local[socket].ip().is_unspecified();
            self.arrived.push(FrameMeta {
                from: datagram.from,
                to: everywhere.then_some(datagram.to.ip()),
                socket,
                port: at,
                frame: index,
                start: datagram.bytes.as_ptr() as usize - frame.as_ptr() as usize,
                len: datagram.bytes.len(),
            });
        }
        let count = self.arrived.len() as u64;
        let counters = self.udp.counters_mut();
        counters.datagrams_received += count;
        counters.trains_received += count;
        counters.bytes_received += bytes;
        counters.frames_received += count;
        counters.frames_malformed += malformed;
        self.unasked = self.unasked.saturating_sub(u64::from(frames));
        if self.unasked == 0 {
            self.ask_for_losses();
        }
    }

    fn ask_for_losses(&mut self) {
        self.unasked = FRAMES_PER_QUESTION;
        let ports = self.interfaces.iter_mut().flat_map(|interface| &mut interface.ports);
        let lost: u64 = ports.map(port::QueuePort::take_lost).sum();
        self.udp.counters_mut().receive_overflows += lost;
    }
}

/// Logs how an interface is used.
fn log(interface: &XdpInterface) {
    let zero_copy = interface.ports.iter().all(|port| port.zero_copy);
    let (name, native) = (&interface.device.name, interface.native);
    let queues = interface.ports.len();
    tracing::info!(name, native, zero_copy, queues, "frames are taken from this interface");
}

impl Driver for XdpDriver {
    fn needs_keys(&self) -> bool {
        true
    }

    fn routes(&self) -> Option<RouteMtu> {
        self.udp.routes()
    }

    /// The size of a frame: larger packets would use the UDP socket.
    fn good_mtu(&self) -> u16 {
        let longest = self.interfaces.iter().map(|interface| interface.largest_packet());
        longest.min().unwrap_or(JUMBO_MTU).min(JUMBO_MTU)
    }

    fn bind(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        let local = self.udp.bind(at)?;
        self.accept(local);
        Ok(local)
    }

    fn unbind(&mut self, socket: usize) {
        let at = self.udp.local()[socket];
        self.interfaces.iter().for_each(|interface| interface.leave(at));
        self.udp.unbind(socket);
    }

    fn local(&self) -> &[SocketAddr] {
        self.udp.local()
    }

    fn reaches(&self, socket: usize, to: IpAddr) -> bool {
        self.udp.reaches(socket, to)
    }

    fn send(&mut self, outbox: &Outbox, messages: &dyn Gather) {
        let now = Instant::now();
        self.refresh(now);
        self.rest.clear();
        for train in &outbox.trains {
            let Some(next_hop) = self.next_hop(now, train) else {
                self.rest.push(train.clone());
                continue;
            };
            self.interfaces[next_hop.interface].link = train.link;
            self.put(&next_hop, train, outbox, messages);
            let counters = self.udp.counters_mut();
            counters.trains_sent += 1;
            counters.datagrams_sent += train.datagrams() as u64;
            counters.bytes_sent += train.len as u64;
            counters.frames_sent += train.datagrams() as u64;
        }
        if outbox.trains.len() > self.rest.len() {
            self.flush();
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            self.udp.send_some(&rest, outbox, messages);
            self.rest = rest;
        }
        self.note_backlog();
    }

    fn resume(&mut self, link: LinkId) {
        self.flush();
        self.udp.resume(link);
        self.note_backlog();
    }

    fn backlog(&self) -> &[LinkBacklog] {
        &self.backlog
    }

    fn receive(&mut self, expected: bool) -> usize {
        self.arrived.clear();
        self.looks = self.looks.wrapping_add(1);
        self.busy = self.busy.saturating_sub(1);
        let pause = if self.busy > 0 { LOOKS_PER_BUSY_SOCKET } else { LOOKS_PER_SOCKET };
        // Also while frames arrive without a pause.
        if self.looks.is_multiple_of(pause) {
            let trains = self.receive_from_sockets(false);
            if trains > 0 {
                return trains;
            }
        }
        match self.receive_frames(expected) {
            0 if expected => {
                // Otherwise a thread would wait for an interface that is gone.
                self.refresh(Instant::now());
                self.receive_from_sockets(true)
            }
            frames => frames,
        }
    }

    fn received(&self, index: usize) -> ReceivedTrain<'_> {
        let Some(&FrameMeta { from, to, socket, port, frame, start, len }) =
            self.arrived.get(index)
        else {
            return self.udp.received(index);
        };
        let frame = self.interfaces[port.0].ports[port.1].frame(frame);
        let bytes = frame.get(start..start + len).unwrap_or_default();
        ReceivedTrain { from, socket, to, datagram: len.max(1), bytes }
    }

    fn unreachable(&mut self) -> Option<UnreachableReport> {
        self.udp.unreachable()
    }

    fn too_big(&mut self) -> Option<TooBig> {
        self.udp.too_big()
    }

    fn refusal(&mut self) -> Option<SystemRefusal> {
        self.udp.refusal()
    }

    fn queued(&self, link: LinkId) -> Option<u32> {
        // If an interface is down or gone, it is unknown whether its frames will ever leave.
        let up = self.interfaces.iter().filter(|interface| !interface.stopped);
        let by_link = up.filter(|interface| interface.link == link);
        let frames: u64 = by_link.map(|interface| interface.ports[0].queued()).sum();
        Some(self.udp.queued(link)?.saturating_add(u32::try_from(frames).unwrap_or(u32::MAX)))
    }

    fn receive_buffer(&self) -> u32 {
        let room = |interface: &XdpInterface| {
            let frame = interface.longest.min(interface.device.mtu);
            interface.ports.iter().map(|port| port.frames() * frame).sum::<u32>()
        };
        let frames = self.interfaces.iter().map(room).min().unwrap_or(u32::MAX);
        frames.min(self.udp.receive_buffer())
    }

    fn unread(&self) -> u64 {
        let ports = self.interfaces.iter().flat_map(|interface| &interface.ports);
        let memory = ports.map(|port| {
            u64::from(port.unread()) * (u64::from(port.frame_size()) + TRAIN_OVERHEAD as u64)
        });
        memory.sum::<u64>() + self.udp.unread()
    }

    fn handles(&self) -> Vec<RawFd> {
        let ports = self.interfaces.iter().flat_map(|interface| &interface.ports);
        let frames = ports.map(|port| port.as_fd().as_raw_fd());
        frames.chain(self.udp.handles()).collect()
    }

    fn first_handle(&self) -> BorrowedFd<'_> {
        self.interfaces[0].ports[0].as_fd()
    }

    fn counters(&self) -> &DriverCounters {
        self.udp.counters()
    }
}
