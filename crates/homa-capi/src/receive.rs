//! Receiving requests and responses, copied into the caller's buffer or lent.

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

/// Flag of homa_recv: a request may be returned. With neither this nor HOMA_RECV_RESPONSE, all may.
pub const HOMA_RECV_REQUEST: c_int = 0x01;
/// Flag of homa_recv: the end of a call may be returned; of only that call whose id *id holds,
/// unless it holds 0.
pub const HOMA_RECV_RESPONSE: c_int = 0x02;
/// Flag of homa_recv: fail with EAGAIN instead of blocking. MSG_DONTWAIT means the same.
pub const HOMA_RECV_NONBLOCKING: c_int = 0x04;
/// Flag of homa_recv: keep what does not fit into the buffer for further calls with this flag and
/// the same *id, instead of dropping it. *id must be initialised.
pub const HOMA_RECV_PARTIAL: c_int = 0x08;

const KNOWN: c_int = HOMA_RECV_REQUEST
    | HOMA_RECV_RESPONSE
    | HOMA_RECV_NONBLOCKING
    | HOMA_RECV_PARTIAL
    | libc::MSG_DONTWAIT;

/// A message that libhoma lends, filled in by homa_recv_message.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct homa_message {
    /// In: as *id of homa_recv. Out: the RPC; even for the end of a call, odd for a request.
    pub id: u64,
    /// Of a response: the number given with the call. Of a request: 0.
    pub completion_cookie: u64,
    /// The bytes of the message, which may be changed in place.
    pub data: *mut c_void,
    /// Their number.
    pub length: usize,
    /// Length of `source`.
    pub source_length: socklen_t,
    /// Who sent it.
    pub source: sockaddr_storage,
    /// libhoma's own.
    pub owner: *mut c_void,
}

/// What was received, or which call failed.
struct Arrived {
    id: u64,
    cookie: u64,
    from: SocketAddr,
    result: Result<Message, Error>,
    /// Bytes fetched before.
    offset: usize,
}

fn receive(handle: &Handle, flags: c_int, id: u64) -> Result<Arrived, Error> {
    let types = flags & (HOMA_RECV_REQUEST | HOMA_RECV_RESPONSE);
    if flags & HOMA_RECV_PARTIAL != 0
        && let Some(Rest { from, cookie, bytes, offset }) = handle.rest(id)
    {
        return Ok(Arrived { id, cookie, from, result: Ok(bytes), offset });
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
    Ok(match incoming {
        SocketEvent::Request { id, from, bytes, .. } => {
            Arrived { id: id.number(), cookie: 0, from, result: Ok(bytes), offset: 0 }
        }
        SocketEvent::Response { id, from, cookie, result, .. } => {
            let result = result.map_err(Error::from);
            Arrived { id: id.number(), cookie, from, result, offset: 0 }
        }
    })
}

/// The socket, and the id that the caller names, which is read only if flags say that it counts.
///
/// # Safety
/// `id` is null or readable where flags say that it counts.
unsafe fn open(sockfd: c_int, flags: c_int, id: *const u64) -> Result<(Arc<Handle>, u64), Error> {
    let handle = table::get(sockfd)?;
    if flags & !KNOWN != 0 {
        return Err(Error::invalid(format!("unknown bits in `flags`: {:#x}", flags & !KNOWN)));
    }
    let counts = flags & (HOMA_RECV_RESPONSE | HOMA_RECV_PARTIAL) != 0;
    // SAFETY: not null, and the caller vouches for it where it counts.
    let id = if counts && !id.is_null() { unsafe { id.read_unaligned() } } else { 0 };
    Ok((handle, id))
}

/// Receives a message: a request, the response to a call, or that a call failed. Blocks until there
/// is one, unless told otherwise; meanwhile the thread does the socket's work itself, which is the
/// fastest way. Any number of threads may wait.
///
/// At most `len` bytes are copied to `buf` (which may be null if `len` is 0). The sender's address
/// is written to `src_addr`, which may be null, as far as `addrlen` bytes reach; the RPC's id to
/// *id, which may be null. A request must be answered with homa_reply or given up with homa_abort.
///
/// Returns the length of the message, which may be greater than `len`: then the rest is lost, or,
/// with HOMA_RECV_PARTIAL, kept, and the length is that of what was left before this call.
///
/// Returns -1 with *id not 0 when that call failed: ETIMEDOUT (no response within the deadline, or
/// the server is silent), ENOTCONN (nothing listens at its port), EHOSTUNREACH, EPROTONOSUPPORT,
/// EMSGSIZE (longer than a side accepts), ECONNRESET (the server restarted or is gone, and
/// may or may not have executed it), or the error given to homa_abort.
///
/// Returns -1 with *id 0 when nothing was received: EAGAIN; EINVAL (unknown flags, or no call with
/// the id); ESHUTDOWN (after homa_close or homa_drain); EBADF; EFAULT.
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
        // SAFETY: our caller vouches for the id.
        let opened = unsafe { open(sockfd, flags, id) };
        if !id.is_null() {
            // SAFETY: not null, and our caller vouches for it.
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
        // SAFETY: our caller vouches for `addrlen` bytes unless it is null.
        unsafe { address::write(arrived.from, src_addr, addrlen) };
        let bytes = arrived.result?;
        let left = &bytes[arrived.offset..];
        let (copied, total) = (left.len().min(len), left.len());
        if copied > 0 {
            // SAFETY: our caller vouches for `len` bytes, of which these are no more.
            unsafe { ptr::copy_nonoverlapping(left.as_ptr(), buf.cast::<u8>(), copied) };
        }
        if copied < total && flags & HOMA_RECV_PARTIAL != 0 {
            let offset = arrived.offset + copied;
            let rest = Rest { from: arrived.from, cookie: arrived.cookie, bytes, offset };
            handle.keep(arrived.id, rest);
        }
        Ok(c_int::try_from(total).unwrap_or(c_int::MAX))
    })
}

/// As homa_recv, without copying: the message stays in libhoma's memory, which is the caller's to
/// use, by any thread, until homa_message_release, also after homa_close. Set message->id to 0
/// before (or as *id of homa_recv). HOMA_RECV_PARTIAL is not for this function.
///
/// Returns 0, or -1 as homa_recv; message->id is then 0 or the call that failed, with its cookie
/// and server, and there is nothing to release.
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
        // SAFETY: not null; our caller vouches for the structure, and for the id where it counts.
        let opened = unsafe { open(sockfd, flags, &raw const (*message).id) };
        // SAFETY: our caller vouches for the structure, of which all zeroes are a value.
        unsafe { message.write(zeroed()) };
        let (handle, wanted) = opened?;
        if flags & HOMA_RECV_PARTIAL != 0 {
            return Err(Error::invalid("HOMA_RECV_PARTIAL is for homa_recv: this lends all of it"));
        }
        let arrived = receive(&handle, flags, wanted)?;
        // SAFETY: as above, and it was written just now.
        let message = unsafe { &mut *message };
        message.id = arrived.id;
        message.completion_cookie = arrived.cookie;
        (message.source, message.source_length) = address::to_c(arrived.from);
        let mut bytes = Box::new(arrived.result?.into_vec());
        message.data = bytes.as_mut_ptr().cast();
        message.length = bytes.len();
        message.owner = Box::into_raw(bytes).cast();
        Ok(0)
    })
}

/// Gives a message's memory back. A message that was released, or is all zeroes, is left alone, and
/// so is a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_release(message: *mut homa_message) {
    guard(|| {
        if message.is_null() {
            return Ok(0);
        }
        // SAFETY: not null, and our caller vouches for the structure.
        let message = unsafe { &mut *message };
        let owner = std::mem::replace(&mut message.owner, ptr::null_mut()).cast::<Vec<u8>>();
        if !owner.is_null() {
            // SAFETY: `homa_recv_message` made it from a box, and nobody released it before.
            drop(unsafe { Box::from_raw(owner) });
        }
        message.data = ptr::null_mut();
        message.length = 0;
        Ok(0)
    });
}
