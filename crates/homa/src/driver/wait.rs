//! Sleeping until a driver has something to receive, a timer is due, or another thread calls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Interrupts a sleeping thread, with an event counter of the kernel.
#[derive(Debug)]
pub struct Waker(ManuallyDrop<File>);

/// If the application closed the counter by mistake, it is not closed again.
impl Drop for Waker {
    fn drop(&mut self) {
        // SAFETY: the call takes no pointers.
        let open = unsafe { libc::fcntl(self.handle(), libc::F_GETFD) } >= 0;
        if open {
            // SAFETY: the file is not used after this, because its owner is dropped.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl Waker {
    /// A waker that was not used.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; its result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created, is valid, and has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self(ManuallyDrop::new(file)))
    }

    /// Wakes the sleeper, or prevents its next sleep.
    pub fn wake(&self) {
        // A full counter means that a wake-up is already pending.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }

    /// Clears earlier wake-ups.
    pub fn reset(&self) {
        let _ = (&*self.0).read(&mut [0; 8]);
    }

    /// The descriptor that becomes readable.
    pub fn handle(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// As [`wait_or_writable`], without a full socket.
#[cfg(test)]
pub fn wait(
    handles: &[RawFd],
    waker: Option<&Waker>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    wait_or_writable(handles, None, waker, timeout)
}

/// Sleeps until one of `handles` is readable or has an error, the socket `full` is writable,
/// `waker` was used, a signal arrives, or `timeout` has passed; true if something is there.
///
/// # Errors
/// EBADF if one of them was closed.
pub fn wait_or_writable(
    handles: &[RawFd],
    full: Option<RawFd>,
    waker: Option<&Waker>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    const MOST: usize = 16;
    let mut inline = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST];
    let mut many: Vec<libc::pollfd>;
    let count = handles.len() + usize::from(waker.is_some()) + usize::from(full.is_some());
    let polled = match inline.get_mut(..count) {
        Some(polled) => polled,
        None => {
            many = vec![inline[0]; count];
            &mut many[..]
        }
    };
    let all = handles.iter().copied().chain(waker.map(Waker::handle)).chain(full);
    for (slot, fd) in polled.iter_mut().zip(all) {
        slot.fd = fd;
    }
    if let (Some(_), Some(last)) = (full, polled.last_mut()) {
        last.events = libc::POLLOUT;
    }
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |l| l as *const _);
    // SAFETY: `polled` is an array with as many entries as announced, `limit` is null or points to
    // a timespec; both outlive the call. A null signal mask leaves the mask unchanged.
    let n = unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit, std::ptr::null())
    };
    if n < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // Otherwise a closed descriptor would always look ready.
    if n > 0 && polled.iter().any(|slot| slot.revents & libc::POLLNVAL != 0) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_sleep_is_not_lost_and_reset_forgets_it() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        wait(&[], Some(&waker), None).unwrap();
        waker.reset();
        let mut pending = [0; 8];
        assert!((&*waker.0).read(&mut pending).is_err(), "reset took every wake-up");
    }
}
