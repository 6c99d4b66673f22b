//! The rings of an AF_XDP socket: memory shared with the kernel, in which one side writes and the
//! other reads.
//!
//! Invariants: an entry is written before the index that publishes it, and read after. No access
//! leaves the ring, no matter which index the other side publishes. Left out: several threads at
//! one end.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Private memory, or memory shared with the kernel. It is unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// New memory, all zero.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A part of a socket's memory.
    pub fn of(socket: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(len, flags, socket.as_raw_fd(), offset)
    }

    fn map(
        len: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice affects no memory in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Its first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and has this length; everything that points into it is part
        // of the same socket, and gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Either end of a ring of `T`.
#[derive(Debug)]
struct RingEnd<T> {
    _map: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the pointers lead into the mapping that the value owns.
unsafe impl<T: Send> Send for RingEnd<T> {}

impl<T: Copy> RingEnd<T> {
    /// The ring of `size` entries at an offset of a socket, in the kernel's layout.
    fn new(
        socket: BorrowedFd<'_>,
        at: libc::off_t,
        layout: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let entries = layout.desc as usize;
        let map = Mapping::of(socket, entries + size as usize * size_of::<T>(), at)?;
        let place = |offset: u64| {
            let inside = offset as usize + size_of::<u32>() <= map.len();
            // SAFETY: inside the mapping.
            inside.then(|| unsafe { map.start().add(offset as usize) })
        };
        let odd = || io::Error::from(io::ErrorKind::Unsupported);
        Ok(Self {
            producer: place(layout.producer).ok_or_else(odd)?.cast(),
            consumer: place(layout.consumer).ok_or_else(odd)?.cast(),
            flags: place(layout.flags).ok_or_else(odd)?.cast(),
            entries: place(layout.desc).ok_or_else(odd)?.cast(),
            mask: size - 1,
            _map: map,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it lies in the mapping, is aligned, and both sides access it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The memory of the entry with a number.
    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the number below that of entries, and the memory holds them all.
        unsafe { self.entries.add((number & self.mask) as usize) }
    }
}

/// The end that writes.
#[derive(Debug)]
pub struct Producer<T> {
    ring: RingEnd<T>,
    /// The next entry, and the first that the kernel is not known to have read.
    next: u32,
    read: u32,
}

impl<T: Copy> Producer<T> {
    /// See [`RingEnd::new`].
    pub fn new(
        socket: BorrowedFd<'_>,
        at: libc::off_t,
        layout: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: RingEnd::new(socket, at, layout, size)?, next: 0, read: 0 })
    }

    /// Writes an entry; false if there is no room. The kernel sees it after [`Self::show`].
    pub fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.read) > self.ring.mask {
            self.read = self.ring.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.read) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the entry lies in the mapping, and the kernel does not read it before it is
        // shown.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Publishes the written entries to the kernel.
    pub fn show(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Number of entries that the kernel has not read yet.
    pub fn unread(&self) -> u32 {
        let read = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(read).min(self.ring.mask + 1)
    }

    /// The entries that the kernel has not read yet.
    pub fn unread_entries(&self) -> impl Iterator<Item = T> {
        let unread = self.unread();
        // SAFETY: they lie in the mapping, were written by us, and the kernel only reads them.
        (0..unread).map(move |back| unsafe {
            self.ring.entry(self.next.wrapping_sub(unread - back)).read()
        })
    }

    /// True if the kernel waits for a system call before it continues to read.
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The end that reads.
#[derive(Debug)]
pub struct Consumer<T> {
    ring: RingEnd<T>,
    next: u32,
}

impl<T: Copy> Consumer<T> {
    /// See [`RingEnd::new`].
    pub fn new(
        socket: BorrowedFd<'_>,
        at: libc::off_t,
        layout: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: RingEnd::new(socket, at, layout, size)?, next: 0 })
    }

    /// Entries that can be read.
    pub fn available(&self) -> u32 {
        let written = self.ring.producer().load(Ordering::Acquire);
        written.wrapping_sub(self.next).min(self.ring.mask + 1)
    }

    /// One of the [`Self::available`] entries.
    pub fn get(&self, index: u32) -> T {
        // SAFETY: it is in the mapping; the kernel wrote it before it published it, and any bits
        // are a value of the integers that entries consist of.
        unsafe { self.ring.entry(self.next.wrapping_add(index)).read() }
    }

    /// Returns the first entries to the kernel.
    pub fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
