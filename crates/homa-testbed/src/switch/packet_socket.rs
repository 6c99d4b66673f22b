//! The switch's one packet socket: every frame of every port in, and out again by port.
//!
//! A frame comes with the kernel's stamp of when the host handed it over, so that the switch's own
//! wake-up time is no part of the measurement.
//! Invariant: frames the switch itself sent are not seen again.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Frames taken per system call.
const BATCH: usize = 32;
/// Longest frame accepted; the hosts' MTU is 1500.
const FRAME_LIMIT: usize = 2_048;
/// Receive buffer: a stall of a few milliseconds of a whole rack must fit.
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// A frame read from the socket.
pub(crate) struct Received<'a> {
    /// Interface index of the port it came in by.
    pub(crate) interface: u32,
    /// When its host handed it over, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// The frame from its Ethernet header on.
    pub(crate) bytes: &'a [u8],
}

/// See the module's description.
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    buffers: Box<[[u8; FRAME_LIMIT]; BATCH]>,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

impl PacketSocket {
    /// Opens a socket for all frames of the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let everything = i32::from((libc::ETH_P_ALL as u16).to_be());
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, everything)?;
        let set = |level, name, value| sys::set_option(fd.as_fd(), level, name, value);
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // An ordinary user may not exceed the machine's limit; then a smaller buffer must do, and
        // `take_overflow` tells whether it did.
        if set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES).is_err() {
            set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
        }
        if set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES).is_err() {
            set(libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_BYTES)?;
        }
        Ok(Self { fd, buffers: Box::new([[0; FRAME_LIMIT]; BATCH]) })
    }

    /// The descriptor, to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes up to [`BATCH`] frames; returns how many there were. Never blocks.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        // SAFETY: these are C structures of integers and pointers, for which zero is a value.
        let (mut headers, mut names): ([libc::mmsghdr; BATCH], [libc::sockaddr_ll; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        let mut controls = [Control([0; 64]); BATCH];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        for (i, header) in headers.iter_mut().enumerate() {
            let buffer = &mut self.buffers[i];
            let vector = vectors[i]
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut names[i]).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_control = (&raw mut controls[i]).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
        }
        // SAFETY: every pointer in `headers` refers to a local array or to `self.buffers`, all
        // alive and unmoved until the call returns, with the lengths set above.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = match sys::check(count) {
            Ok(n) => n as usize,
            Err(e) if would_block(&e) => return Ok(0),
            Err(e) => return Err(e),
        };
        let offset = sys::realtime_to_monotonic();
        for (i, header) in headers[..count].iter().enumerate() {
            let bytes = &self.buffers[i][..(header.msg_len as usize).min(FRAME_LIMIT)];
            let at_ns = sys::stamp_ns(&header.msg_hdr)
                .map_or_else(sys::monotonic_ns, |real| real.saturating_add_signed(offset));
            each(Received { interface: names[i].sll_ifindex as u32, at_ns, bytes });
        }
        Ok(count)
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

/// True for errors that mean "nothing now".
fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
