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

use homa::socket::Id;
use homa::{Message, Socket};
use std::net::SocketAddr;

use crate::error::Error;
use crate::options::Settings;

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

/// The window of responses that are read while they arrive, in bytes, unless the options have one.
const WINDOW: u32 = 1 << 20;

/// Bytes of a message that were taken from the socket, and that the program reads next.
#[derive(Default)]
pub struct Piece {
    bytes: Message,
    /// Bytes that were read.
    pub offset: usize,
}

impl From<Message> for Piece {
    fn from(bytes: Message) -> Self {
        Self { bytes, offset: 0 }
    }
}

impl Piece {
    /// The bytes that were not read.
    pub fn left(&self) -> &[u8] {
        &self.bytes[self.offset..]
    }
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
    /// `homa_recv` returns requests with their first packet, and `homa_read` reads them.
    pub early: bool,
    /// The window of messages that are read while they arrive, in bytes.
    pub window: u32,
    /// Messages that `homa_read` reads, by id: requests from their receipt to their answer,
    /// responses from their first read to their end.
    readers: Mutex<HashMap<u64, Arc<Mutex<Piece>>>>,
}

impl Handle {
    /// Creates the entry for a socket that has no descriptor yet.
    pub fn new(socket: Socket, settings: &Settings) -> Self {
        let max_message = settings.config.protocol.max_message;
        Self {
            socket,
            deadline: settings.deadline,
            max_message,
            rests: Mutex::default(),
            early: settings.early > 0,
            window: if settings.early > 0 { settings.early } else { WINDOW },
            readers: Mutex::default(),
        }
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

    /// A request was received that is read with `homa_read`, beginning with these bytes.
    pub fn begin_reading(&self, id: u64, first: Message) {
        let reader = Arc::new(Mutex::new(Piece::from(first)));
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, reader);
    }

    /// The bytes that the next `homa_read` of a message returns. `None` for a request that was not
    /// received, or was answered.
    pub fn reader(&self, id: Id) -> Option<Arc<Mutex<Piece>>> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        match id.is_request() {
            true => readers.get(&id.number()).cloned(),
            false => Some(readers.entry(id.number()).or_default().clone()),
        }
    }

    /// A request was answered or dropped, or a call has ended: its program reads no more of it.
    pub fn forget(&self, id: u64) {
        let reader = self.readers.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        drop((reader, self.rest(id)));
    }

    /// All calls were cancelled: their responses are read no more.
    pub fn forget_calls(&self) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|&id, _| Id::from_number(id).is_some_and(Id::is_request));
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
