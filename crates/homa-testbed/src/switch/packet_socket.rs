//! The switch's one packet socket: every frame of every port in, and out again by port.
//!
//! The kernel stamps a frame when its host hands it over, so that the switch's wake-up time is not
//! part of the measurement. Invariant: frames that the switch sent are not seen again.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::ring::FrameRing;
use crate::sys;

/// Frames read in a row, bounded so that a flood does not keep the switch from delivering.
const BATCH: usize = 32;
/// Send buffer: it holds the frames of a whole rack during a stall of a few milliseconds.
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// A frame read from the socket.
pub(crate) struct ReceivedFrame<'a> {
    /// Interface index of the port it came in by.
    pub(crate) interface: u32,
    /// Time at which its host handed it over, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// The frame from its Ethernet header on.
    pub(crate) bytes: &'a [u8],
}

/// See the module's description.
pub(crate) struct PacketSocket {
    ring: FrameRing,
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket for all frames of the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let everything = i32::from((libc::ETH_P_ALL as u16).to_be());
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, everything)?;
        let set = |level, name, value| sys::set_option(fd.as_fd(), level, name, value);
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // An ordinary user may not exceed the machine's limit. The buffer is then smaller, and
        // `SwitchInterval::undeliverable` shows whether it sufficed.
        if set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES).is_err() {
            set(libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_BYTES)?;
        }
        Ok(Self { ring: FrameRing::new(fd.as_fd())?, fd })
    }

    /// The descriptor, to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes up to [`BATCH`] frames; returns how many there were. Never blocks, and is no system
    /// call.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(ReceivedFrame<'_>)) -> usize {
        let mut offset = None;
        for taken in 0..BATCH {
            let more = self.ring.take(|frame| {
                let offset = *offset.get_or_insert_with(sys::realtime_to_monotonic);
                let at_ns = frame.real_ns.saturating_add_signed(offset);
                each(ReceivedFrame { interface: frame.interface, at_ns, bytes: frame.bytes });
            });
            if !more {
                return taken;
            }
        }
        BATCH
    }

    /// Sends a frame out of a port. False when the kernel would not take it.
    pub(crate) fn send(&self, interface: u32, frame: &[u8]) -> bool {
        // SAFETY: sockaddr_ll is plain integers, for which zero is a value.
        let mut to: libc::sockaddr_ll = unsafe { zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = interface as i32;
        // SAFETY: frame and address outlive the call, with the lengths passed.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        sent == frame.len() as isize
    }

    /// Frames the kernel dropped because this socket was not read in time, since the last call.
    pub(crate) fn take_overflow(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `stats`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut length,
            )
        };
        if result == 0 { u64::from(stats.tp_drops) } else { 0 }
    }
}
