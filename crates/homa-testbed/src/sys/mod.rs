//! The system calls of the testbed, each wrapped once: everything `unsafe` outside the packet
//! socket is in this folder.
//!
//! Invariant: no wrapper keeps a pointer after it returns.

pub(crate) mod netlink;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Looking for work once takes a microsecond or two; a look this long was interrupted.
pub(crate) const LONG_LOOK_NS: u64 = 50_000;

/// Nanoseconds on CLOCK_MONOTONIC, the testbed's only clock.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The difference from a CLOCK_REALTIME stamp of the kernel to CLOCK_MONOTONIC, nanoseconds.
pub(crate) fn realtime_to_monotonic() -> i64 {
    let before = clock_ns(libc::CLOCK_MONOTONIC);
    let real = clock_ns(libc::CLOCK_REALTIME);
    let after = clock_ns(libc::CLOCK_MONOTONIC);
    (before + (after - before) / 2) as i64 - real as i64
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` outlives the call; both clocks exist on every Linux, so the result needs no
    // check.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// User and system CPU time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    // SAFETY: rusage is plain integers, for which zero is a value; the kernel only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Duration::from_nanos(ns(usage.ru_utime) + ns(usage.ru_stime))
}

/// Lets the calling thread's timers fire when due instead of up to 50 us later.
pub(crate) fn exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
}

/// Asks for the shortest time slice, which makes the calling thread run soon after it wakes, and
/// for the best nice value; an ordinary user gets the first only. Not a real-time priority: a
/// thread that spins would use up the time the kernel allows real-time threads (950 ms a second),
/// and then stand still for 50 ms.
pub(crate) fn run_promptly() {
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    for nice in [-20, 0] {
        let attr = SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: 100_000,
            deadline: 0,
            period: 0,
        };
        // SAFETY: `attr` has the layout of version 0 of the kernel's structure and says its size;
        // the kernel only reads it. Kernels before 6.12 ignore the slice.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return;
        }
    }
}

/// The processors this process may use, ascending.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits, for which zero is a value; the kernel writes at most its
    // size, and CPU_ISSET reads within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Keeps the calling thread on one processor.
pub(crate) fn stay_on(processor: usize) {
    // SAFETY: as above; CPU_SET stays within the set for any processor the kernel named, and
    // `stay_on` is called with those only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Moves the calling thread into a new namespace of the given kinds.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes flags only; every caller owns the thread it changes.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Gives the files below /proc/self to the process's own user, as they are in a program without
/// file capabilities. Such a program may then be traced by that user, and dumps core.
pub(crate) fn own_proc_files() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes one integer and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1_u64, 0_u64, 0_u64, 0_u64) }).map(drop)
}

/// Moves the calling thread into an existing network namespace.
pub(crate) fn enter_network(namespace: BorrowedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open for the whole call.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// The network namespace of the calling thread, kept alive while the file is open.
pub(crate) fn current_network() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// The effective user and group.
pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: neither call takes arguments nor can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Waits until a descriptor in `fds` is ready or `timeout_ns` have passed. Interrupted counts as
/// ready.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], timeout_ns: u64) -> io::Result<()> {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the slice and the timeout outlive the call; no signal mask is passed.
    let n = unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &timeout, std::ptr::null())
    };
    match check(n) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}

/// Sets an integer socket option.
pub(crate) fn set_option(
    fd: BorrowedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value outlives the call and its size is the one passed.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sets a socket option whose value is bytes (TCP_CONGESTION).
pub(crate) fn set_option_bytes(
    fd: BorrowedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the value outlives the call and its size is the one passed.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Bytes a socket has handed down that the link has not taken yet (SIOCOUTQ).
pub(crate) fn unsent_bytes(fd: BorrowedFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (= SIOCOUTQ) writes one int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as u32)
}

/// Receives one datagram without blocking: its length and when the kernel took it from the link,
/// nanoseconds of CLOCK_MONOTONIC. The socket must have SO_TIMESTAMPNS on.
pub(crate) fn receive_stamped(
    fd: BorrowedFd,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, u64)>> {
    let mut control = [0_u64; 8];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: buffer and control outlive the call, with the lengths set above.
    let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    match check(length as libc::c_int) {
        Ok(length) => {
            let offset = realtime_to_monotonic();
            let at = stamp_ns(&message).map(|real| real.saturating_add_signed(offset));
            Ok(Some((length as usize, at.unwrap_or_else(monotonic_ns))))
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The kernel's CLOCK_REALTIME stamp of a message, nanoseconds.
pub(crate) fn stamp_ns(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel filled `msg_control` up to the length it set in `msg_controllen`; the
    // macros stay within it, and a SCM_TIMESTAMPNS message holds one timespec, read without
    // alignment.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let t = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                return Some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Opens a socket that closes on exec.
pub(crate) fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    // SAFETY: socket takes integers only.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel just returned this descriptor, so no other code closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An error for -1, the value otherwise.
pub(crate) fn check(result: libc::c_int) -> io::Result<RawFd> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Readiness of many sockets (epoll), level-triggered.
pub(crate) struct Readiness {
    fd: OwnedFd,
}

/// The events for which a socket is watched, or for which it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Watch for room to write besides data to read.
    pub(crate) writable: bool,
}

impl Readiness {
    /// Watches nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes flags only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Starts to watch a socket; `token` comes back when it is ready.
    pub(crate) fn add(&self, fd: BorrowedFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes the events for which a socket is watched.
    pub(crate) fn change(&self, fd: BorrowedFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let out = if interest.writable { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | out) as u32, u64: token };
        // SAFETY: the event outlives the call; both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event)
        })
        .map(drop)
    }

    /// The descriptor that is readable while a watched socket is ready.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Appends the tokens of ready sockets. Never waits.
    pub(crate) fn take(&self, ready: &mut Vec<u64>) -> io::Result<()> {
        const MOST: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let fd = self.fd.as_raw_fd();
        // SAFETY: the events outlive the call, which writes at most `MOST` of them.
        let count = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), MOST as libc::c_int, 0) };
        match check(count) {
            Ok(count) => {
                ready.extend(events[..count as usize].iter().map(|event| event.u64));
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }
}
