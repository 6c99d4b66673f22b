//! Which descriptor is which socket.
//!
//! The child of a fork starts with an empty table: the threads that drive its parent's sockets do
//! not exist there, and their locks may be held by nobody.

use std::collections::{HashMap, VecDeque};
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
    /// Messages fetched in parts, by id; newest last.
    rests: Mutex<VecDeque<(u64, Rest)>>,
}

impl Handle {
    /// A socket about to get its descriptor.
    pub fn new(socket: Socket, deadline: Duration) -> Self {
        Self { socket, deadline, rests: Mutex::default() }
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

/// Takes a descriptor out of use and closes it.
pub fn remove(fd: RawFd) -> Result<Arc<Handle>, Error> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    let handle = table.remove(&fd).ok_or_else(|| bad(fd))?;
    // SAFETY: `insert` opened it for us alone, and under the lock no new socket can get its number
    // before its place in the table is free.
    unsafe { libc::close(fd.as_raw_fd()) };
    Ok(handle)
}
