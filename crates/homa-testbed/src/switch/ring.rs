//! Frames as the kernel puts them into memory that it shares with us (packet_mmap, TPACKET_V2).
//!
//! Looking for a frame is a load, not a system call: the switch can look all the time, and learns
//! of a frame as soon as its host handed it over. Invariant: a slot is read only while its status
//! says that it is ours, and given back exactly once.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Bytes of a slot: a full frame behind the kernel's header.
const SLOT: usize = 2_048;
/// Slots: a stall of many milliseconds of a whole rack must fit.
const SLOTS: usize = 4_096;
/// The kernel takes memory in pieces of this size.
const BLOCK: usize = 64 * 1024;
const BYTES: usize = SLOT * SLOTS;

/// A frame in the ring.
pub(super) struct RingFrame<'a> {
    /// Interface index of the port it came in by.
    pub(super) interface: u32,
    /// When its host handed it over, nanoseconds of CLOCK_REALTIME.
    pub(super) real_ns: u64,
    /// The frame from its Ethernet header on.
    pub(super) bytes: &'a [u8],
}

/// See the module's description.
pub(super) struct FrameRing {
    memory: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone; only the kernel shares it, whatever the thread.
unsafe impl Send for FrameRing {}

impl FrameRing {
    /// Asks for a ring behind a packet socket, which must outlive it.
    pub(super) fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        // A `tpacket_req`: block size, blocks, slot size, slots.
        let request = [BLOCK as u32, (BYTES / BLOCK) as u32, SLOT as u32, SLOTS as u32];
        let request: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
        sys::set_option_bytes(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, next: 0 })
    }

    /// Shows the next frame to `each`, if there is one, and gives its slot back.
    pub(super) fn take(&mut self, each: impl FnOnce(RingFrame<'_>)) -> bool {
        // SAFETY: `next` is below `SLOTS`, so the slot lies within the mapping; the kernel aligned
        // it.
        let slot = unsafe { self.memory.add(self.next * SLOT) };
        // SAFETY: a slot begins with its status, a 32-bit word that both sides access atomically.
        let status = unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        each(Self::read(slot));
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }

    fn read<'a>(slot: NonNull<u8>) -> RingFrame<'a> {
        // SAFETY: the slot is ours (its status said so) until its status is stored again, which
        // `take` does when the frame's borrower is through. The kernel wrote a `tpacket2_hdr` at
        // its begin, a `sockaddr_ll` behind it at the offset it documents, and `tp_snaplen` bytes
        // at `tp_mac`, all within the slot; lengths are bounded again here.
        unsafe {
            let header = slot.cast::<libc::tpacket2_hdr>().read();
            let address = slot.add(libc::TPACKET_ALIGN(size_of::<libc::tpacket2_hdr>()));
            let address = address.cast::<libc::sockaddr_ll>().read_unaligned();
            let start = usize::from(header.tp_mac).min(SLOT);
            let length = (header.tp_snaplen as usize).min(SLOT - start);
            RingFrame {
                interface: address.sll_ifindex as u32,
                real_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                bytes: std::slice::from_raw_parts(slot.add(start).as_ptr(), length),
            }
        }
    }
}

impl Drop for FrameRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}
