//! The sockets of a driver and a timer behind one descriptor, for event loops that watch an engine.
//!
//! The descriptor is an epoll instance. It is readable if a socket can be received from or has an
//! error, if a full socket can take a packet, or if the timer is due. Closed sockets leave it by
//! themselves.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
#[cfg(feature = "tokio")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tokio")]
use tokio::io::{Interest, unix::AsyncFd};

use super::wait_or_writable;

/// See the module's documentation.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
}

/// Takes ownership of a descriptor that a system call returned.
fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: the system call just created the descriptor, and it has no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Poller {
    /// Watches `handles`.
    pub fn new(handles: &[RawFd]) -> io::Result<Self> {
        // SAFETY: both calls take no pointers.
        let (epoll, timer) = unsafe {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            (
                libc::epoll_create1(libc::EPOLL_CLOEXEC),
                libc::timerfd_create(libc::CLOCK_MONOTONIC, flags),
            )
        };
        // Both are owned before either is checked, so that neither leaks.
        let (epoll, timer) = (owned(epoll), owned(timer));
        let poller = Self { epoll: epoll?, timer: timer? };
        poller.control(libc::EPOLL_CTL_ADD, poller.timer.as_raw_fd(), libc::EPOLLIN)?;
        poller.watch(handles)?;
        Ok(poller)
    }

    /// Watches more sockets. Those that it watches already may be among `handles`.
    pub fn watch(&self, handles: &[RawFd]) -> io::Result<()> {
        for &fd in handles {
            match self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Watches whether the socket `full` can take a packet, or stops that; `watched` is true if
    /// the socket is one of those that are received from.
    pub fn watch_room(&self, full: RawFd, watched: bool, wanted: bool) {
        let result = match (watched, wanted) {
            (true, true) => self.control(libc::EPOLL_CTL_MOD, full, libc::EPOLLIN | libc::EPOLLOUT),
            (true, false) => self.control(libc::EPOLL_CTL_MOD, full, libc::EPOLLIN),
            (false, true) => self.control(libc::EPOLL_CTL_ADD, full, libc::EPOLLOUT),
            (false, false) => self.control(libc::EPOLL_CTL_DEL, full, 0),
        };
        // A socket that was closed meanwhile is not watched any more. If the kernel has no memory,
        // the engine tries the socket again at its next timer.
        let _ = result;
    }

    /// Sets the timer, or stops it.
    pub fn arm(&self, after: Option<Duration>) {
        // A time of zero would stop the timer.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let it_value = libc::timespec {
            tv_sec: after.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: after.subsec_nanos() as libc::c_long,
        };
        let it_interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = libc::itimerspec { it_interval, it_value };
        // SAFETY: `time` outlives the call, and a null pointer for the earlier setting is allowed.
        // The call cannot fail for a valid timer and time.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const time, ptr::null_mut())
        };
    }

    /// True if the descriptor is readable.
    pub fn is_readable(&self) -> bool {
        // An error counts as readable: then the engine looks for itself.
        wait_or_writable(&[self.epoll.as_raw_fd()], None, None, Some(Duration::ZERO))
            .unwrap_or(true)
    }

    fn control(&self, operation: i32, fd: RawFd, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        // SAFETY: `event` outlives the call; the kernel refuses descriptors that are not open.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Registers a poller with the current tokio runtime.
///
/// # Panics
/// Outside a runtime, and in one without `enable_io`.
#[cfg(feature = "tokio")]
pub fn register(poller: Arc<Poller>) -> io::Result<AsyncFd<Arc<Poller>>> {
    // SAFETY: `poller` owns the descriptor, which stays open until its last `Arc` is dropped, and
    // `as_raw_fd` always returns it.
    let registered = unsafe { AsyncFd::register_with_interest(poller, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn soon(poller: &Poller) -> bool {
        let handle = [poller.as_raw_fd()];
        wait_or_writable(&handle, None, None, Some(Duration::from_secs(30))).unwrap()
    }

    #[test]
    fn packets_a_timer_and_room_each_make_it_readable() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        let poller = Poller::new(&[fd]).unwrap();
        poller.watch(&[fd]).unwrap();
        assert!(!poller.is_readable());
        socket.send_to(b"a packet", socket.local_addr().unwrap()).unwrap();
        assert!(soon(&poller));
        socket.recv_from(&mut [0; 16]).unwrap();
        assert!(!poller.is_readable());
        poller.arm(Some(Duration::ZERO));
        assert!(soon(&poller));
        poller.arm(None);
        assert!(!poller.is_readable());
        poller.watch_room(fd, true, true);
        assert!(soon(&poller));
        poller.watch_room(fd, true, false);
        assert!(!poller.is_readable());
    }

    #[test]
    fn a_socket_that_is_only_sent_from_is_watched_for_room() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        let poller = Poller::new(&[]).unwrap();
        poller.watch_room(fd, false, true);
        assert!(soon(&poller));
        poller.watch_room(fd, false, false);
        assert!(!poller.is_readable());
    }
}
