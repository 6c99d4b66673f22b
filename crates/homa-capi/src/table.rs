//! Which descriptor is which socket.
//!
//! The child of a fork starts with an empty table: the threads that drive its parent's sockets do
//! not exist there, and their locks may be held by nobody.

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

/// A message of which the rest is still to be fetched.
pub struct Rest {
    /// Who sent it.
    pub from: SocketAddr,
    /// From the call.
    pub cookie: u64,
    /// The whole message.
    pub bytes: Message,
    /// Bytes fetched.
    pub offset: usize,
}

/// A socket as C sees it.
pub struct Handle {
    /// The socket.
    pub socket: Socket,
    /// The deadline of calls that name none.
    pub deadline: Duration,
    /// Bytes of the longest message.
    pub max_message: u32,
    /// Messages fetched in parts, by id; newest last.
    rests: Mutex<VecDeque<(u64, Rest)>>,
}

impl Handle {
    /// A socket about to get its descriptor.
    pub fn new(socket: Socket, deadline: Duration, max_message: u32) -> Self {
        Self { socket, deadline, max_message, rests: Mutex::default() }
    }

    /// Keeps the rest of a message.
    pub fn keep(&self, id: u64, rest: Rest) {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner).push_back((id, rest));
    }

    /// The rest of a message.
    pub fn rest(&self, id: u64) -> Option<Rest> {
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rests.iter().position(|(other, _)| *other == id)?;
        rests.remove(at).map(|(_, rest)| rest)
    }
}

type Table = RwLock<HashMap<RawFd, Arc<Handle>>>;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Forgets what the parent of a fork had; its memory stays where it is.
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
                // SAFETY: `new` came from a box and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
    }
    // SAFETY: tables are boxed, never freed once published, and only shared.
    unsafe { &*table }
}

/// Gives a socket its descriptor: a duplicate, so that a program that closes it by mistake takes
/// nothing from the socket.
pub fn insert(handle: Handle) -> Result<RawFd, Error> {
    let fd = handle.socket.as_fd().try_clone_to_owned()?.into_raw_fd();
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    // A socket that had this number was closed behind our back.
    let stale = table.insert(fd, Arc::new(handle));
    drop(table);
    drop(stale);
    Ok(fd)
}

fn bad(fd: RawFd) -> Error {
    let text = format!("descriptor {fd} is no Homa socket of this process, or it was closed");
    Error::new(libc::EBADF, text)
}

/// The socket of a descriptor.
pub fn get(fd: RawFd) -> Result<Arc<Handle>, Error> {
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    table.get(&fd).cloned().ok_or_else(|| bad(fd))
}

/// False when a descriptor is not, or no longer, the duplicate that `insert` made: its number was
/// closed and may be another file's now. Where the kernel does not compare, it is believed.
fn is_of(fd: RawFd, handle: &Handle) -> bool {
    /// Of Linux's `kcmp.h`: do two descriptors mean the same open file?
    const KCMP_FILE: libc::c_long = 0;
    // SAFETY: the call has no arguments and cannot fail. The thread, because the first one of a
    // process may be gone and have no descriptors.
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

/// Takes a descriptor out of use and closes it. That it was closed before, by mistake, is an error,
/// but its socket is `left` all the same; a file that has got its number stays open.
pub fn remove(fd: RawFd, left: impl FnOnce(&Handle)) -> Result<(), Error> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    let handle = table.remove(&fd).ok_or_else(|| bad(fd))?;
    let ours = is_of(fd, &handle);
    if ours {
        // SAFETY: `insert` opened it for us alone, and under the lock no new socket can get its
        // number before its place in the table is free.
        unsafe { libc::close(fd) };
    }
    drop(table);
    left(&handle);
    if ours { Ok(()) } else { Err(bad(fd)) }
}
