//! A batch of received trains in the form that `recvmmsg` fills.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr;

use super::address::SocketName;
use super::control::{Control, int, local_address};
use super::error_queue::PathReport;
use crate::driver::refusal::{self, ErrnoMeaning};
use crate::driver::{FULL_BATCH, ReceivedTrain, SystemRefusal};

/// Most trains received at a time.
const TRAINS_MAX: usize = FULL_BATCH;
/// Room for one train: the largest that the kernel coalesces.
const ROOM: usize = 65_536;

/// Buffers and arrays of a `recvmmsg` call, reused for each call.
pub struct ReceiveBatch {
    /// Written only by the kernel, which provides its pages as they are used: zeroing them would
    /// cost every engine 2 MiB.
    room: Box<[MaybeUninit<u8>]>,
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    names: Vec<SocketName>,
    controls: Vec<Control>,
    trains: Vec<TrainMeta>,
    /// Trains to ask for: one while nothing arrives, because that call is cheaper; as many as fit
    /// once something arrived.
    appetite: usize,
    /// The system refuses `recvmmsg`, as filters of system calls do, so trains are received one by
    /// one.
    singly: bool,
    /// Headers that the kernel wrote to.
    filled: usize,
    /// By socket: the kernel's count of overflows when it was last received; `None` before the
    /// first one of an adopted socket.
    overflows: Vec<Option<u32>>,
    lost: u64,
}

#[derive(Clone, Copy)]
struct TrainMeta {
    from: SocketAddr,
    socket: usize,
    to: Option<IpAddr>,
    datagram: usize,
    slot: usize,
    len: usize,
}

// SAFETY: the raw pointers in `headers` and `pieces` point into the heap memory of vectors of the
// same struct, which never grow or shrink; they are followed only inside `fetch`, which borrows the
// struct mutably.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Buffers for a full batch (2 MiB of address space; the kernel provides the pages that are
    /// used).
    pub fn new() -> Self {
        let no_piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut batch = Self {
            room: Box::new_uninit_slice(TRAINS_MAX * ROOM),
            headers: Vec::with_capacity(TRAINS_MAX),
            pieces: vec![no_piece; TRAINS_MAX],
            names: vec![SocketName::empty(); TRAINS_MAX],
            controls: vec![Control::empty(); TRAINS_MAX],
            trains: Vec::with_capacity(TRAINS_MAX),
            appetite: 1,
            singly: false,
            filled: 0,
            overflows: Vec::new(),
            lost: 0,
        };
        for (index, slot) in batch.room.chunks_exact_mut(ROOM).enumerate() {
            batch.pieces[index] = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: ROOM };
            let mut header = libc::msghdr {
                msg_name: (&raw mut batch.names[index]).cast(),
                msg_namelen: size_of::<SocketName>() as libc::socklen_t,
                msg_iov: &raw mut batch.pieces[index],
                msg_iovlen: 1,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            };
            batch.controls[index].attach(&mut header, true);
            batch.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        batch
    }

    /// Receives what has arrived at `fd`, the driver's `socket`, without waiting; returns the
    /// number of trains.
    ///
    /// # Errors
    /// Those of the socket, such as network reports. It is not an error if nothing has arrived.
    pub fn fetch(&mut self, fd: RawFd, socket: usize, expected: bool) -> io::Result<usize> {
        if expected {
            self.appetite = TRAINS_MAX;
        }
        if self.singly {
            self.appetite = 1;
        }
        // The kernel replaced our lengths by its own.
        for slot in 0..self.filled {
            let header = &mut self.headers[slot].msg_hdr;
            header.msg_namelen = size_of::<SocketName>() as libc::socklen_t;
            self.controls[slot].attach(header, true);
        }
        self.trains.clear();
        self.filled = 0;
        self.lost = 0;
        let got = match self.call(fd) {
            Ok(got) => got,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let filtered = matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS);
                self.singly |= self.appetite > 1 && filtered;
                self.appetite = 1;
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                    _ => Err(error),
                };
            }
        };
        self.filled = got;
        self.appetite = TRAINS_MAX;
        for slot in 0..got {
            self.note(slot, socket);
        }
        Ok(self.trains.len())
    }

    /// A socket was opened, perhaps under the number of a closed one. The kernel's count of
    /// overflows starts at zero, unless the socket is `adopted`: then it was in use before.
    pub fn opened(&mut self, socket: usize, adopted: bool) {
        if self.overflows.len() <= socket {
            self.overflows.resize(socket + 1, Some(0));
        }
        self.overflows[socket] = (!adopted).then_some(0);
    }

    /// One system call; returns how many headers it filled.
    fn call(&mut self, fd: RawFd) -> io::Result<usize> {
        let got = match &mut self.headers[..self.appetite] {
            // For threads that spin: polling an empty queue is cheaper with the simpler call.
            [one] => {
                // SAFETY: the header points to a name, one piece and a control buffer of `self`,
                // with their true lengths, and the piece to a slot of `room`; nothing else touches
                // them.
                let len = unsafe { libc::recvmsg(fd, &raw mut one.msg_hdr, libc::MSG_DONTWAIT) };
                one.msg_len = u32::try_from(len).unwrap_or(0);
                if len < 0 { -1 } else { 1 }
            }
            // SAFETY: as above, for as many headers as announced. A null timeout is allowed.
            all => unsafe {
                let count = all.len() as libc::c_uint;
                libc::recvmmsg(fd, all.as_mut_ptr(), count, libc::MSG_DONTWAIT, ptr::null_mut())
            },
        };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }

    /// Reads the control messages of the train in `slot`.
    fn note(&mut self, slot: usize, socket: usize) {
        let header = &self.headers[slot];
        let len = (header.msg_len as usize).min(ROOM);
        let Some(from) = self.names[slot].get() else { return };
        let mut train = TrainMeta { from, socket, to: None, datagram: len.max(1), slot, len };
        for (level, kind, data) in self.controls[slot].iter(header.msg_hdr.msg_controllen) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    train.datagram = usize::try_from(int(data)).unwrap_or(0).clamp(1, len.max(1));
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) | (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    train.to = local_address(level, data);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    if self.overflows.len() <= socket {
                        self.overflows.resize(socket + 1, Some(0));
                    }
                    // A counter of 32 bits per socket, which wraps.
                    let now = int(data) as u32;
                    let seen = self.overflows[socket].replace(now).unwrap_or(now);
                    self.lost += u64::from(now.wrapping_sub(seen));
                }
                _ => {}
            }
        }
        self.trains.push(train);
    }

    /// Drops trains of the last `fetch` whose sender is not `wanted`; returns how many.
    pub fn retain(&mut self, wanted: impl Fn(SocketAddr) -> bool) -> usize {
        let all = self.trains.len();
        self.trains.retain(|train| wanted(train.from));
        all - self.trains.len()
    }

    /// A train of the last `fetch`.
    pub fn get(&self, index: usize) -> ReceivedTrain<'_> {
        let train = &self.trains[index];
        let start = train.slot * ROOM;
        let written = &self.room[start..start + train.len];
        ReceivedTrain {
            from: train.from,
            socket: train.socket,
            to: train.to,
            datagram: train.datagram,
            // SAFETY: the kernel reported that it wrote this many bytes to this slot, and only the
            // kernel writes there.
            bytes: unsafe { std::slice::from_raw_parts(written.as_ptr().cast(), written.len()) },
        }
    }

    /// Datagrams lost because the socket's queue was full, as far as the last `fetch` reported them
    /// first.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Looks in a row at which the system refused to receive.
#[derive(Debug, Default)]
pub struct RefusedLooks(u32);

impl RefusedLooks {
    /// After this many, the reason is not an error of an earlier packet.
    const MAX: u32 = 3;

    /// The refusal if a look, at which a network report was read or not, was one too many.
    pub fn refusal(&mut self, look: &io::Result<usize>, reported: bool) -> Option<PathReport> {
        let Err(error) = look else {
            self.0 = 0;
            return None;
        };
        let errno = error.raw_os_error().unwrap_or(0);
        self.0 += u32::from(!reported);
        let closed = refusal::meaning(errno) == ErrnoMeaning::Closed;
        (closed || self.0 >= Self::MAX)
            .then_some(PathReport::Refused(SystemRefusal { packet: None, errno }))
    }
}
