//! An AF_XDP socket at one queue of an interface, with the memory that its frames lie in.
//!
//! Half of the frames are for receiving and half for sending, and stay so: a frame for receiving is
//! in the fill ring, in the receive ring or shown to the engine; one for sending is free, in the
//! send ring or on its way, or in the completion ring. Each ring has room for all frames that can
//! be in it, so that none is ever full and no frame is lost.

use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::ring::{Consumer, Mapping, Producer};

/// What the kernel keeps free before each frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// System calls to have one batch sent: the kernel takes 32 frames at a time.
const KICKS_MAX: u32 = 256;

/// How large a socket is made.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame: u32,
    /// Frames for receiving, and as many for sending: a power of two.
    pub frames: u32,
}

impl Size {
    /// Frames that hold packets of up to `mtu` bytes, as far as a page allows.
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
    /// Frames to send in that are free, and of each frame the bytes that are on their way in it, 0
    /// where none are: so no frame is free twice, whatever the kernel says has left.
    free: Vec<u64>,
    lengths: Vec<u32>,
    /// Bytes of frames on their way, as far as completions were read.
    under_way: u64,
    /// Entries of the receive ring that are shown.
    shown: u32,
    /// Cards read and write the frames themselves.
    pub zero_copy: bool,
    /// Frames lost for want of one to receive in, as counted last.
    lost: u64,
}

impl QueuePort {
    /// Opens a socket at a queue of an interface of the calling thread's network.
    pub fn open(interface: u32, queue: u32, size: Size) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes no pointers; its result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created, is valid, and nobody else owns it.
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

    /// Gives back the frames that were shown, and shows those that have arrived since, `most` at
    /// most; returns how many. `expected`: wakes the kernel up where it waits for frames.
    pub fn receive(&mut self, most: u32, expected: bool) -> u32 {
        let given = self.shown > 0;
        for index in 0..self.shown {
            let frame = self.receive.get(index).addr;
            // There is room: each came from there.
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
        // SAFETY: inside the memory; a frame that was shown is not written to by the kernel until
        // it is given back, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(start).as_ptr(), len) }
    }

    /// Frames that arrived and were not shown yet.
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

    /// Puts a frame of `len` bytes, which `write` writes, into the send ring; false when there is
    /// no room. It leaves with [`Self::flush`].
    pub fn put(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if len == 0 || len > self.size.frame as usize {
            return false;
        }
        let Some(frame) = self.free.pop() else { return false };
        // SAFETY: a frame of the memory, free: neither the kernel nor anybody here has it.
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

    /// Has the kernel send what was put, as far as it does now: what it has no room for waits
    /// ([`Self::unsent`]). Returns the number of system calls.
    ///
    /// # Errors
    /// The interface does not send: it is down or gone.
    pub fn flush(&mut self) -> io::Result<u32> {
        self.send.show();
        let mut calls = 0;
        let mut left = self.send.unread();
        while left > 0 && self.send.needs_wakeup() && calls < KICKS_MAX {
            calls += 1;
            // SAFETY: no bytes are sent by this call, and it names nobody.
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
                // It took some and may take more, or the frame after these was lost below.
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

    /// Frames that have left are free again.
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

    /// Frames that were lost since this was last asked, because none was free to receive in.
    pub fn take_lost(&mut self) -> u64 {
        // SAFETY: plain integers, for which zero is a value.
        let mut statistics: libc::xdp_statistics = unsafe { mem::zeroed() };
        if get(self.fd.as_fd(), libc::XDP_STATISTICS, &mut statistics).is_err() {
            return 0;
        }
        let lost = statistics.rx_dropped + statistics.rx_ring_full;
        lost - mem::replace(&mut self.lost, lost).min(lost)
    }

    /// Packets that wait to be received at most.
    pub fn frames(&self) -> u32 {
        self.size.frames
    }

    /// Bytes of a frame's place.
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
        // Without a copy where the card can, which the kernel finds out.
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

/// Reads an option of AF_XDP: plain integers, of which an old kernel writes the first only.
fn get<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `length` is the size of the first.
    let result = unsafe {
        let value = std::ptr::from_mut(value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
