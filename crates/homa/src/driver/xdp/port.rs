//! An AF_XDP socket at one queue of an interface, with the memory of its frames.
//!
//! Half of the frames are for receiving and half for sending. A frame for receiving is in the fill
//! ring, in the receive ring, or in use by the engine. A frame for sending is free, in the send
//! ring, in flight, or in the completion ring. Each ring has room for all frames that can be in it,
//! so no ring is ever full and no frame is lost.

use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::ring::{Consumer, Mapping, Producer};

/// Space that the kernel keeps before each frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Most system calls to send one batch: some kernels copy at most 32 frames in each.
const KICKS_MAX: u32 = 256;
/// Option of AF_XDP (Linux 6.18): most frames that one system call copies.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// The size of a socket's memory.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame: u32,
    /// Frames for receiving, and as many for sending: a power of two.
    pub frames: u32,
}

impl Size {
    /// Frames that hold packets of up to `mtu` bytes, if a page allows it.
    pub fn for_mtu(mtu: u32, frames: u32) -> Self {
        let small = mtu + 14 + HEADROOM <= 2048;
        Self { frame: if small { 2048 } else { 4096 }, frames }
    }

    /// The longest frame that fits, bytes.
    pub fn longest(self) -> u32 {
        self.frame - HEADROOM
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct QueuePort {
    fd: OwnedFd,
    size: Size,
    memory: Mapping,
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    send: Producer<libc::xdp_desc>,
    completed: Consumer<u64>,
    /// Free frames for sending, and the bytes in flight in each frame (0 if none). Because of the
    /// lengths, no frame becomes free twice, no matter what the kernel reports.
    free: Vec<u64>,
    lengths: Vec<u32>,
    /// Bytes of frames in flight, up to the last completion that was read.
    under_way: u64,
    /// Entries of the receive ring that the engine uses.
    shown: u32,
    /// True if the card reads and writes the frames itself.
    pub zero_copy: bool,
    /// Frames lost because none was free, at the last query.
    lost: u64,
}

impl QueuePort {
    /// Opens a socket at a queue of an interface in the calling thread's network namespace.
    pub fn open(interface: u32, queue: u32, size: Size) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes no pointers; its result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created, is valid, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (frames, all) = (size.frames, 2 * size.frames);
        let memory = Mapping::anonymous((all * size.frame) as usize)?;
        // SAFETY: plain integers, for which zero is a value.
        let mut area: libc::xdp_umem_reg = unsafe { mem::zeroed() };
        area.addr = memory.start().as_ptr() as u64;
        area.len = memory.len() as u64;
        area.chunk_size = size.frame;
        set(fd.as_fd(), libc::XDP_UMEM_REG, &area)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(fd.as_fd(), ring, &frames)?;
        }
        // Older kernels refuse it, and the others need a ring of 32 frames.
        let _ = set(fd.as_fd(), XDP_MAX_TX_SKB_BUDGET, &frames);
        // SAFETY: as above.
        let mut layout: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
        get(fd.as_fd(), libc::XDP_MMAP_OFFSETS, &mut layout)?;
        let socket = fd.as_fd();
        let at = |offset: libc::c_ulonglong| offset as libc::off_t;
        let mut port = Self {
            fill: Producer::new(socket, at(libc::XDP_UMEM_PGOFF_FILL_RING), layout.fr, frames)?,
            receive: Consumer::new(socket, libc::XDP_PGOFF_RX_RING, layout.rx, frames)?,
            send: Producer::new(socket, libc::XDP_PGOFF_TX_RING, layout.tx, frames)?,
            completed: Consumer::new(
                socket,
                at(libc::XDP_UMEM_PGOFF_COMPLETION_RING),
                layout.cr,
                frames,
            )?,
            free: (frames..all).rev().map(|frame| u64::from(frame * size.frame)).collect(),
            lengths: vec![0; all as usize],
            under_way: 0,
            shown: 0,
            zero_copy: false,
            lost: 0,
            fd,
            size,
            memory,
        };
        for frame in 0..frames {
            port.fill.push(u64::from(frame * size.frame));
        }
        port.fill.show();
        bind(port.fd.as_fd(), interface, queue)?;
        let mut options: libc::c_uint = 0;
        get(port.fd.as_fd(), libc::XDP_OPTIONS, &mut options)?;
        port.zero_copy = options & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(port)
    }

    /// Returns the frames of the last call, and receives at most `most` frames; returns their
    /// number. With `expected`, wakes the kernel if it waits for frames.
    pub fn receive(&mut self, most: u32, expected: bool) -> u32 {
        let given = self.shown > 0;
        for index in 0..self.shown {
            let frame = self.receive.get(index).addr;
            // There is room, because each frame came from this ring.
            self.fill.push(frame - frame % u64::from(self.size.frame));
        }
        if given {
            self.fill.show();
            self.receive.release(self.shown);
        }
        if (given || expected) && self.fill.needs_wakeup() {
            self.wake();
        }
        self.shown = self.receive.available().min(most);
        self.shown
    }

    /// A frame of the last [`Self::receive`].
    pub fn frame(&self, index: u32) -> &[u8] {
        if index >= self.shown {
            return &[];
        }
        let libc::xdp_desc { addr, len, .. } = self.receive.get(index);
        let (start, len) = (addr as usize, len as usize);
        if start.saturating_add(len) > self.memory.len() {
            return &[];
        }
        // SAFETY: inside the memory; the kernel does not write to a frame in use until it is
        // returned, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(start).as_ptr(), len) }
    }

    /// Frames that arrived and were not received yet.
    pub fn unread(&self) -> u32 {
        self.receive.available() - self.shown.min(self.receive.available())
    }

    /// Frames that may be sent now.
    pub fn room(&mut self, wanted: usize) -> usize {
        if self.free.len() < wanted {
            self.reclaim();
        }
        self.free.len()
    }

    /// Puts a frame of `len` bytes, written by `write`, into the send ring; false if there is no
    /// room. It leaves with [`Self::flush`].
    pub fn put(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if len == 0 || len > self.size.frame as usize {
            return false;
        }
        let Some(frame) = self.free.pop() else { return false };
        // SAFETY: a free frame of the memory: neither the kernel nor other code uses it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.memory.start().add(frame as usize).as_ptr(), len)
        };
        write(bytes);
        let entry = libc::xdp_desc { addr: frame, len: len as u32, options: 0 };
        if !self.send.push(entry) {
            self.free.push(frame);
            return false;
        }
        self.lengths[(frame / u64::from(self.size.frame)) as usize] = len as u32;
        self.under_way += len as u64;
        true
    }

    /// Makes the kernel send the frames in the ring, as far as it can: the rest waits
    /// ([`Self::unsent`]). Returns the number of system calls.
    ///
    /// # Errors
    /// The interface does not send, because it is down or gone.
    pub fn flush(&mut self) -> io::Result<u32> {
        self.send.show();
        let mut calls = 0;
        let mut left = self.send.unread();
        while left > 0 && self.send.needs_wakeup() && calls < KICKS_MAX {
            calls += 1;
            // SAFETY: no bytes are sent by this call, and it has no destination.
            let sent = unsafe {
                libc::sendto(
                    self.fd.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            let error = if sent < 0 { io::Error::last_os_error().raw_os_error() } else { None };
            match error {
                // The kernel took some frames and may take more, or the frame after these was lost.
                None | Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOBUFS) => {}
                Some(error) => return Err(io::Error::from_raw_os_error(error)),
            }
            let now = self.send.unread();
            if now == left && error != Some(libc::EINTR) {
                break;
            }
            left = now;
        }
        self.reclaim();
        Ok(calls)
    }

    /// Bytes that the kernel has not taken.
    pub fn unsent(&self) -> usize {
        match self.send.unread() {
            0 => 0,
            _ => self.send.unread_entries().map(|entry| entry.len as usize).sum(),
        }
    }

    /// Bytes that have not left yet.
    pub fn queued(&self) -> u64 {
        let done = (0..self.completed.available()).map(|index| self.completed.get(index));
        let done: u64 = done.map(|frame| u64::from(self.length(frame))).sum();
        self.under_way.saturating_sub(done)
    }

    fn length(&self, frame: u64) -> u32 {
        self.lengths.get((frame / u64::from(self.size.frame)) as usize).copied().unwrap_or(0)
    }

    /// Frees the frames that have left.
    fn reclaim(&mut self) {
        let count = self.completed.available();
        for index in 0..count {
            let slot = self.completed.get(index) / u64::from(self.size.frame);
            let Some(length) = self.lengths.get_mut(slot as usize) else { continue };
            let length = mem::take(length);
            if length > 0 {
                self.under_way = self.under_way.saturating_sub(length.into());
                self.free.push(slot * u64::from(self.size.frame));
            }
        }
        if count > 0 {
            self.completed.release(count);
        }
    }

    fn wake(&self) {
        // SAFETY: no bytes are received by this call.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Frames lost since the last call because none was free.
    pub fn take_lost(&mut self) -> u64 {
        // SAFETY: plain integers, for which zero is a value.
        let mut statistics: libc::xdp_statistics = unsafe { mem::zeroed() };
        if get(self.fd.as_fd(), libc::XDP_STATISTICS, &mut statistics).is_err() {
            return 0;
        }
        let lost = statistics.rx_dropped + statistics.rx_ring_full;
        lost - mem::replace(&mut self.lost, lost).min(lost)
    }

    /// Most frames that can wait to be received.
    pub fn frames(&self) -> u32 {
        self.size.frames
    }

    /// Bytes of a frame's memory.
    pub fn frame_size(&self) -> u32 {
        self.size.frame
    }
}

impl AsFd for QueuePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32) -> io::Result<()> {
    let name = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        // Without copies if the card supports it, which the kernel determines.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the pointer is to a socket address of the given length that outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), length) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of AF_XDP.
fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a value of the length passed, which the kernel only reads.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of AF_XDP: integers; an old kernel writes only the first.
fn get<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `length` is the size of the first.
    let result = unsafe {
        let value = std::ptr::from_mut(value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
