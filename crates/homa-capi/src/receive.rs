//! Receives requests and responses, which are copied into the caller's buffer or lent.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;

use homa::Message;
use homa::socket::{Id, SocketEvent, Wanted};
use libc::{sockaddr, sockaddr_storage, socklen_t};

use crate::address;
use crate::error::{Error, guard};
use crate::table::{self, Handle, Rest};

/// Flag of homa_recv: requests may be returned. If neither this flag nor HOMA_RECV_RESPONSE is set,
/// requests and ends of calls may be returned.
pub const HOMA_RECV_REQUEST: c_int = 0x01;
/// Flag of homa_recv: the end of a call may be returned. If *id is not 0, only the end of that
/// call.
pub const HOMA_RECV_RESPONSE: c_int = 0x02;
/// Flag of homa_recv: fail with EAGAIN instead of blocking. MSG_DONTWAIT means the same.
pub const HOMA_RECV_NONBLOCKING: c_int = 0x04;
/// Flag of homa_recv: if the message is longer than the buffer, keep the rest instead of dropping
/// it. Further calls with this flag and the same *id return it. *id must be initialized.
pub const HOMA_RECV_PARTIAL: c_int = 0x08;

const KNOWN: c_int = HOMA_RECV_REQUEST
    | HOMA_RECV_RESPONSE
    | HOMA_RECV_NONBLOCKING
    | HOMA_RECV_PARTIAL
    | libc::MSG_DONTWAIT;

/// A message whose memory libhoma lends, filled in by homa_recv_message.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct homa_message {
    /// Before the call: the same as *id of homa_recv. After it: the RPC's id, which is even for the
    /// end of a call and odd for a request.
    pub id: u64,
    /// For a response, the number given with the call. For a request, 0.
    pub completion_cookie: u64,
    /// The bytes of the message, which may be changed in place.
    pub data: *mut c_void,
    /// The number of bytes.
    pub length: usize,
    /// The length of `source`.
    pub source_length: socklen_t,
    /// The sender's address.
    pub source: sockaddr_storage,
    /// For libhoma only.
    pub owner: *mut c_void,
}

/// A received message, or the error of a call.
struct Completed {
    id: u64,
    cookie: u64,
    from: SocketAddr,
    content: Content,
}

/// The content of a received message, or why there is none.
enum Content {
    /// A message whose bytes before `offset` were copied before.
    Whole { bytes: Message, offset: usize },
    /// A message that homa_read reads, and the number of its bytes that were not read.
    Readable(usize),
    /// A failed call.
    Failed(Error),
}

fn receive(handle: &Handle, flags: c_int, id: u64) -> Result<Completed, Error> {
    let types = flags & (HOMA_RECV_REQUEST | HOMA_RECV_RESPONSE);
    if flags & HOMA_RECV_PARTIAL != 0
        && let Some(Rest { from, cookie, bytes, offset }) = handle.rest(id)
    {
        return Ok(Completed { id, cookie, from, content: Content::Whole { bytes, offset } });
    }
    let named = if flags & (HOMA_RECV_RESPONSE | HOMA_RECV_PARTIAL) != 0 { id } else { 0 };
    let wanted = match (Id::from_number(named), types) {
        (None, HOMA_RECV_REQUEST) => Wanted::Requests,
        (None, HOMA_RECV_RESPONSE) => Wanted::Responses,
        (None, _) => Wanted::Any,
        (Some(id), 0 | HOMA_RECV_RESPONSE) => Wanted::Call(id),
        (Some(id), _) => Wanted::CallOrRequests(id),
    };
    let incoming = match flags & (HOMA_RECV_NONBLOCKING | libc::MSG_DONTWAIT) {
        0 => handle.socket.receive(wanted)?,
        _ => handle.socket.try_receive(wanted)?,
    };
    let (id, from, cookie, content) = match incoming {
        SocketEvent::Request { id, from, bytes, total, .. } if handle.early => {
            handle.begin_reading(id.number(), bytes);
            (id, from, 0, Content::Readable(total))
        }
        SocketEvent::Request { id, from, bytes, .. } => {
            (id, from, 0, Content::Whole { bytes, offset: 0 })
        }
        SocketEvent::More { id, from, cookie, left, .. } => {
            (id, from, cookie, Content::Readable(left))
        }
        SocketEvent::Response { id, from, cookie, result, .. } => {
            let content = match result {
                Ok(bytes) => Content::Whole { bytes, offset: 0 },
                Err(failure) => {
                    handle.forget(id.number());
                    Content::Failed(failure.into())
                }
            };
            (id, from, cookie, content)
        }
        other => return Err(Error::new(libc::EIO, format!("an unknown event: {other:?}"))),
    };
    Ok(Completed { id: id.number(), cookie, from, content })
}

/// Returns the socket, and the id that the caller asks for. The id is read only if the flags use
/// it.
///
/// # Safety
///
/// `id` is null, or readable if the flags use it.
unsafe fn open(sockfd: c_int, flags: c_int, id: *const u64) -> Result<(Arc<Handle>, u64), Error> {
    let handle = table::get(sockfd)?;
    if flags & !KNOWN != 0 {
        return Err(Error::invalid(format!("unknown bits in `flags`: {:#x}", flags & !KNOWN)));
    }
    let counts = flags & (HOMA_RECV_RESPONSE | HOMA_RECV_PARTIAL) != 0;
    // SAFETY: not null, and the caller guarantees it if the flags use it.
    let id = if counts && !id.is_null() { unsafe { id.read_unaligned() } } else { 0 };
    Ok((handle, id))
}

/// Receives a request, or the response or error of a call. Blocks until there is one, unless a flag
/// says otherwise. While it waits, the thread does the socket's work itself, which is the fastest
/// way to receive. Any number of threads may wait.
///
/// At most `len` bytes are copied to `buf` (which may be null if `len` is 0). The sender's address
/// is written to `src_addr`, at most `addrlen` bytes, and the RPC's id to *id. Both may be null.
/// Each request must be answered with homa_reply, or dropped with homa_abort.
///
/// Returns the length of the message. If it is greater than `len`, the rest is lost. With
/// HOMA_RECV_PARTIAL the rest is kept, and the result is the length that was left before this call.
/// With the option `early`, nothing of a request is copied, nor of a response with
/// HOMA_SEND_PIECES: homa_read reads it. The result is its whole length, or, if homa_read failed
/// with EAGAIN before, the length that was not read.
///
/// If a call failed, returns -1 and sets *id to the call: ETIMEDOUT (no response within the
/// deadline, or the server is silent), ENOTCONN (nothing listens at its port), EHOSTUNREACH,
/// EPROTONOSUPPORT, EMSGSIZE (longer than a side accepts), ECONNRESET (the server restarted or is
/// gone, and may or may not have executed the call), ECONNABORTED (the server's handler ended
/// without an answer), EBUSY (the server is overloaded and did not execute it), EKEYREJECTED (one
/// end does not accept the other's key, or has none; the call was not executed), EIO (the engine's
/// descriptors were closed by mistake), the error with which the system refuses to send to that
/// address (EACCES, EINVAL and others; the call was not executed), or the error given to
/// homa_abort.
///
/// If nothing was received, returns -1 and sets *id to 0: EAGAIN; EINVAL (unknown flags, or no call
/// with the id); ESHUTDOWN (after homa_close or homa_drain); EBADF; EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_recv(
    sockfd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: socklen_t,
    id: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller guarantees the id.
        let opened = unsafe { open(sockfd, flags, id) };
        if !id.is_null() {
            // SAFETY: not null, and the caller guarantees it.
            unsafe { id.write_unaligned(0) };
        }
        let (handle, wanted) = opened?;
        if buf.is_null() && len > 0 {
            return Err(Error::null("buf"));
        }
        let arrived = receive(&handle, flags, wanted)?;
        if !id.is_null() {
            // SAFETY: as above.
            unsafe { id.write_unaligned(arrived.id) };
        }
        // SAFETY: the caller guarantees `addrlen` bytes unless it is null.
        unsafe { address::write(arrived.from, src_addr, addrlen) };
        let (bytes, offset) = match arrived.content {
            Content::Whole { bytes, offset } => (bytes, offset),
            Content::Readable(left) => return Ok(c_int::try_from(left).unwrap_or(c_int::MAX)),
            Content::Failed(error) => return Err(error),
        };
        let left = &bytes[offset..];
        let (copied, total) = (left.len().min(len), left.len());
        if copied > 0 {
            // SAFETY: the caller guarantees `len` bytes, and these are no more.
            unsafe { ptr::copy_nonoverlapping(left.as_ptr(), buf.cast::<u8>(), copied) };
        }
        if copied < total && flags & HOMA_RECV_PARTIAL != 0 {
            let offset = offset + copied;
            let rest = Rest { from: arrived.from, cookie: arrived.cookie, bytes, offset };
            handle.keep(arrived.id, rest);
        }
        Ok(c_int::try_from(total).unwrap_or(c_int::MAX))
    })
}

/// As homa_recv, but without copying. The message stays in libhoma's memory. The caller may use it
/// in any thread until homa_message_release, also after homa_close. Set message->id to 0 first, or
/// to the call's id as for homa_recv. HOMA_RECV_PARTIAL cannot be used. message->data is null if
/// homa_read reads the message.
///
/// Returns 0, or -1 as homa_recv. If a call failed, message->id is its id, and its cookie and
/// server are set. Otherwise message->id is 0. There is nothing to release in both cases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_recv_message(
    sockfd: c_int,
    flags: c_int,
    message: *mut homa_message,
) -> c_int {
    guard(|| {
        if message.is_null() {
            return Err(Error::null("message"));
        }
        // SAFETY: not null. The caller guarantees the structure, and the id if the flags use it.
        let opened = unsafe { open(sockfd, flags, &raw const (*message).id) };
        // SAFETY: the caller guarantees the structure, and all zeroes are a value of it.
        unsafe { message.write(zeroed()) };
        let (handle, wanted) = opened?;
        if flags & HOMA_RECV_PARTIAL != 0 {
            return Err(Error::invalid("HOMA_RECV_PARTIAL is only for homa_recv"));
        }
        let arrived = receive(&handle, flags, wanted)?;
        // SAFETY: as above, and it was written just now.
        let message = unsafe { &mut *message };
        message.id = arrived.id;
        message.completion_cookie = arrived.cookie;
        (message.source, message.source_length) = address::to_c(arrived.from);
        match arrived.content {
            Content::Whole { bytes, .. } => lend(bytes, message),
            Content::Readable(left) => message.length = left,
            Content::Failed(error) => return Err(error),
        }
        Ok(0)
    })
}

/// Lends a message to the caller, until homa_message_release.
pub fn lend(bytes: Message, message: &mut homa_message) {
    let mut bytes = Box::new(bytes.into_vec());
    message.data = bytes.as_mut_ptr().cast();
    message.length = bytes.len();
    message.owner = Box::into_raw(bytes).cast();
}

/// Frees a message's memory. Does nothing if the pointer is null, or if the message is all zeroes
/// or was released before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_release(message: *mut homa_message) {
    guard(|| {
        if message.is_null() {
            return Ok(0);
        }
        // SAFETY: not null, and the caller guarantees the structure.
        let message = unsafe { &mut *message };
        let owner = std::mem::replace(&mut message.owner, ptr::null_mut()).cast::<Vec<u8>>();
        if !owner.is_null() {
            // SAFETY: `homa_recv_message` made it from a box, and it was not released before.
            drop(unsafe { Box::from_raw(owner) });
        }
        message.data = ptr::null_mut();
        message.length = 0;
        Ok(0)
    });
}
