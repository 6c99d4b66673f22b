//! Maps descriptors to sockets.
//!
//! The child of a fork starts with an empty table, because the threads that drive its parent's
//! sockets do not exist there. Locks that they held would never be released.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use homa::{Message, Socket};
use std::net::SocketAddr;

use crate::error::Error;

/// A message whose rest is still to be received.
pub struct Rest {
    /// The sender.
    pub from: SocketAddr,
    /// The cookie of the call.
    pub cookie: u64,
    /// The whole message.
    pub bytes: Message,
    /// Bytes that were received.
    pub offset: usize,
}

/// A socket, with its options.
pub struct Handle {
    /// The socket.
    pub socket: Socket,
    /// The deadline of calls without their own.
    pub deadline: Duration,
    /// The length of the longest message.
    pub max_message: u32,
    /// Messages that are received in parts, by id. The newest is last.
    rests: Mutex<VecDeque<(u64, Rest)>>,
}

impl Handle {
    /// Creates the entry for a socket that has no descriptor yet.
    pub fn new(socket: Socket, deadline: Duration, max_message: u32) -> Self {
        Self { socket, deadline, max_message, rests: Mutex::default() }
    }

    /// Keeps the rest of a message.
    pub fn keep(&self, id: u64, rest: Rest) {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner).push_back((id, rest));
    }

    /// Takes the rest of a message.
    pub fn rest(&self, id: u64) -> Option<Rest> {
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rests.iter().position(|(other, _)| *other == id)?;
        rests.remove(at).map(|(_, rest)| rest)
    }
}

type Table = RwLock<HashMap<RawFd, Arc<Handle>>>;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Forgets the sockets of the parent after a fork. Their memory is not freed.
extern "C" fn in_child() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
}

fn table() -> &'static Table {
    static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);
    let mut table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        if !WATCHES_FORKS.swap(true, Ordering::AcqRel) {
            // SAFETY: the handler is a function without captured state that only stores a pointer.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        let new = Box::into_raw(Box::<Table>::default());
        let order = (Ordering::AcqRel, Ordering::Acquire);
        table = match TABLE.compare_exchange(ptr::null_mut(), new, order.0, order.1) {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: `new` came from a box, and is not shared yet.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
    }
    // SAFETY: tables are boxed, never freed once published, and only shared.
    unsafe { &*table }
}

/// Creates a descriptor for a socket. It is a duplicate, so the socket survives if a program closes
/// it by mistake.
pub fn insert(handle: Handle) -> Result<RawFd, Error> {
    let fd = handle.socket.as_fd().try_clone_to_owned()?.into_raw_fd();
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    // If a socket already has this number, the program closed its descriptor with close(2).
    let stale = table.insert(fd, Arc::new(handle));
    drop(table);
    drop(stale);
    Ok(fd)
}

fn bad(fd: RawFd) -> Error {
    let text = format!("descriptor {fd} is not a Homa socket of this process, or was closed");
    Error::new(libc::EBADF, text)
}

/// Returns the socket of a descriptor.
pub fn get(fd: RawFd) -> Result<Arc<Handle>, Error> {
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    table.get(&fd).cloned().ok_or_else(|| bad(fd))
}

/// False if a descriptor is not the duplicate that `insert` made, because it was closed and its
/// number may now be another file's. True if the kernel cannot compare descriptors.
fn is_of(fd: RawFd, handle: &Handle) -> bool {
    /// Compares whether two descriptors mean the same open file (Linux's `kcmp.h`).
    const KCMP_FILE: libc::c_long = 0;
    // SAFETY: the call has no arguments and cannot fail. It returns the thread instead of the
    // process, because the first thread of a process may have ended and have no descriptors.
    let own = libc::c_long::from(unsafe { libc::gettid() });
    let pair = [fd, handle.socket.as_fd().as_raw_fd()].map(libc::c_long::from);
    // SAFETY: the call takes numbers and changes nothing.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, pair[0], pair[1]) };
    match compared {
        0 => true,
        -1 => io::Error::last_os_error().raw_os_error() != Some(libc::EBADF),
        _ => false,
    }
}

/// Removes a descriptor from the table and closes it. If it was closed before by mistake, this is
/// an error, but `left` is still called with its socket, and a new file with its number stays open.
pub fn remove(fd: RawFd, left: impl FnOnce(&Handle)) -> Result<(), Error> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    let handle = table.remove(&fd).ok_or_else(|| bad(fd))?;
    let ours = is_of(fd, &handle);
    if ours {
        // SAFETY: only `insert` opened it. While the lock is held, no new socket can get its
        // number.
        unsafe { libc::close(fd) };
    }
    drop(table);
    left(&handle);
    if ours { Ok(()) } else { Err(bad(fd)) }
}
