//! An interface for AF_XDP: its sockets, one per queue, the maps of the redirect program, and its
//! attachment.
//!
//! The attachment belongs to a descriptor (Linux 5.9), so it ends with this process, no matter how
//! that ends. Only one program can be attached to an interface; that of another process is not
//! replaced.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use homa_proto::LinkId;

use super::frame::ETHERNET;
use super::port::{QueuePort, Size};
use super::program::{KEY, Redirect, key};
use crate::egress::hops::Interface;
use crate::error::OpenError;
use homa_bpf::{self as bpf, BpfMap, Capabilities, ProgramKind};

/// Name of the programs and maps in the kernel's lists.
const NAME: &std::ffi::CStr = c"homa_redirect";
/// Most local addresses and ports of an interface.
const ADDRESSES_MAX: u32 = 16_384;
/// Most queues that get a socket.
const QUEUES_MAX: u32 = 64;
/// Bounds of the frames for receiving at a queue, and for sending.
const FRAMES: std::ops::RangeInclusive<u32> = 512..=4096;

/// Time in which the kernel clears a queue of a closed socket.
const CLEARED: Duration = Duration::from_secs(1);

/// The steps that can fail.
const TABLE: &str = "create a map";
const SOCKET: &str = "open a socket";
const PROGRAM: &str = "load the redirect program";
const ATTACH: &str = "attach the redirect program";

/// Modes of attachment (`linux/if_link.h`): in the driver; on the system's packets.
const DRIVER_MODE: u32 = 1 << 2;
const GENERIC_MODE: u32 = 1 << 1;

/// See the module's documentation.
pub struct XdpInterface {
    /// The interface as it was at the last look.
    pub device: Interface,
    /// True if it did not send at the last attempt.
    pub stopped: bool,
    /// The engine's number for the link of the last packet.
    pub link: LinkId,
    /// A socket per queue.
    pub ports: Vec<QueuePort>,
    /// The longest frame that the sockets take, bytes.
    pub longest: u32,
    /// True if the program runs in the interface's driver.
    pub native: bool,
    local: BpfMap<KEY>,
    _sockets: BpfMap<4>,
    _link: OwnedFd,
}

/// Names of the capabilities that this process lacks.
pub fn missing_capabilities() -> Vec<&'static str> {
    let has = Capabilities::of_this_process();
    let mut missing = Vec::new();
    for (there, name) in [
        (has.has(Capabilities::NET_ADMIN), "CAP_NET_ADMIN"),
        (has.has_bpf(), "CAP_BPF"),
        (has.has(Capabilities::NET_RAW), "CAP_NET_RAW"),
    ] {
        missing.extend((!there).then_some(name));
    }
    missing
}

impl XdpInterface {
    /// Attaches to an interface in the calling thread's network namespace. About `bytes` that
    /// arrive between two looks should fit.
    pub fn open(device: Interface, bytes: usize) -> Result<Self, OpenError> {
        let refused = |step: &'static str| {
            let interface = device.name.clone();
            move |source: io::Error| OpenError::Xdp { interface, step, source }
        };
        let queues = device.queues.clamp(1, QUEUES_MAX);
        let frames = bytes / device.mtu.clamp(64, 4096) as usize / queues as usize;
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        let frames = frames.clamp(*FRAMES.start(), *FRAMES.end()).next_power_of_two();
        let size = Size::for_mtu(device.mtu, frames);
        let local = BpfMap::hash(NAME, ADDRESSES_MAX).map_err(refused(TABLE))?;
        let sockets = BpfMap::sockets(NAME, queues).map_err(refused(TABLE))?;
        let redirect = Redirect {
            mac: device.mac,
            local: local.descriptor(),
            sockets: sockets.descriptor(),
            longest: size.longest(),
            frags: true,
        };
        // Before the sockets: a program of another process then shows at once, and some cards need
        // a program before they can avoid copies.
        let (link, native) =
            attach(redirect, &device).map_err(|(step, error)| refused(step)(error))?;
        let mut ports = Vec::new();
        for queue in 0..queues {
            match open_port(device.index, queue, size) {
                Ok(port) => {
                    let socket = port.as_fd().as_raw_fd() as u32;
                    let set = sockets.insert(&queue.to_ne_bytes(), socket);
                    set.map_err(refused(TABLE))?;
                    ports.push(port);
                }
                // An interface can have fewer queues than its maximum.
                Err(error) if queue > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => return Err(refused(SOCKET)(error)),
            }
        }
        let longest = size.longest();
        let (_sockets, _link) = (sockets, link);
        let (stopped, link) = (false, LinkId(0));
        Ok(Self { device, stopped, link, ports, longest, native, local, _sockets, _link })
    }

    /// The addresses of the interface at which a socket bound to `at` receives.
    fn addresses(&self, at: SocketAddr) -> impl Iterator<Item = IpAddr> {
        let ip = at.ip();
        self.device.addresses.iter().copied().filter(move |own| match ip.is_unspecified() {
            // Sockets at every IPv6 address also support IPv4.
            true => ip.is_ipv6() || own.is_ipv4(),
            false => *own == ip,
        })
    }

    /// Size of the largest IP packet in a frame, bytes; unlimited if all packets of the interface
    /// fit.
    pub fn largest_packet(&self) -> u16 {
        let room = self.longest - ETHERNET as u32;
        let room = if self.device.mtu <= room { u32::MAX } else { room };
        u16::try_from(room).unwrap_or(u16::MAX)
    }

    /// True for an address of the interface.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.device.addresses.contains(&ip)
    }

    /// Redirects frames to a local address from now on.
    pub fn accept(&self, at: SocketAddr) {
        for ip in self.addresses(at) {
            // If the map is full, the packets arrive at the UDP socket.
            let _ = self.local.insert(&key(ip, at.port()), 0);
        }
    }

    /// Stops redirecting frames to a local address.
    pub fn leave(&self, at: SocketAddr) {
        for ip in self.addresses(at) {
            // The address may never have been redirected.
            let _ = self.local.remove(&key(ip, at.port()));
        }
    }
}

/// Opens a socket at a queue. The kernel may still be clearing the queue of a closed socket.
fn open_port(interface: u32, queue: u32, size: Size) -> io::Result<QueuePort> {
    let begun = Instant::now();
    loop {
        match QueuePort::open(interface, queue, size) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < CLEARED =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Loads and attaches the program, in the driver if possible. On a veth it is attached in generic
/// mode, because with a program in its driver the other end loses segmentation offload for
/// everything that it sends.
fn attach(
    redirect: Redirect,
    device: &Interface,
) -> Result<(OwnedFd, bool), (&'static str, io::Error)> {
    let modes: &[u32] = if device.veth { &[GENERIC_MODE] } else { &[DRIVER_MODE, GENERIC_MODE] };
    let load = |redirect: &Redirect| {
        bpf::load(ProgramKind::Xdp { frags: redirect.frags }, &redirect.assemble(), NAME)
    };
    let mut failed = None;
    for frags in [true, false] {
        let redirect = Redirect { frags, ..redirect };
        let program = match load(&redirect) {
            Ok(program) => program,
            // A kernel before 5.18 does not support fragmented frames.
            Err(_) if frags => continue,
            Err(error) => return Err((PROGRAM, error)),
        };
        for &mode in modes {
            match bpf::attach(program.as_fd(), (device.index, bpf::XDP), mode) {
                Ok(link) => return Ok((link, mode == DRIVER_MODE)),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err((ATTACH, error));
                }
                Err(error) => failed = Some(error),
            }
        }
    }
    Err((ATTACH, failed.unwrap_or_else(|| io::ErrorKind::Unsupported.into())))
}
