//! Messages in pieces: those that are read while they arrive, and those that are written while they
//! are sent.

use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, TryLockError};
use std::{ptr, slice};

use homa::socket::{Id, ReadError};
use libc::{sockaddr, socklen_t};

use crate::address;
use crate::error::{Error, guard};
use crate::receive::HOMA_RECV_NONBLOCKING;
use crate::send::{call, destination, homa_send_options};
use crate::table;

/// Reads the next bytes of a message that arrives: of a request that homa_recv returned from a
/// socket with the option `early`, or of the response to a call with HOMA_SEND_PIECES, which need
/// not be received first. Copies at most `len` bytes, which is not 0. Blocks until there are some,
/// unless `flags` is HOMA_RECV_NONBLOCKING or MSG_DONTWAIT. The peer may send about as many more
/// bytes as were read, so a slow reader slows it down. One thread at a time should read a message:
/// while one waits, a read that does not wait fails with EAGAIN.
///
/// After EAGAIN, homa_recv returns the message again once more has arrived or it has ended, and the
/// descriptor is readable then, unless the call is private. A request may be answered at any time:
/// then the rest of it is not sent.
///
/// Returns the number of bytes, 0 after the last, or -1. For a request: ECANCELED (the client gave
/// up) or ETIMEDOUT (its deadline has passed): the rest will not come, and what was read may be
/// incomplete. The request still has to be answered, or dropped with homa_abort. For a response:
/// the errors of a failed call, as of homa_recv. After these, and after 0, the call has ended.
/// For both: EAGAIN; EBADF; EFAULT; EINVAL (wrong flags, `len` is 0, or no message with this id is
/// read); ESHUTDOWN (homa_close).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_read(
    sockfd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    id: u64,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        let unknown = flags & !(HOMA_RECV_NONBLOCKING | libc::MSG_DONTWAIT);
        if unknown != 0 || len == 0 {
            let text = format!("`len` is {len} and `flags` is {flags:#x}: at least 1 byte is read");
            return Err(Error::invalid(text));
        }
        if buf.is_null() {
            return Err(Error::null("buf"));
        }
        let known = Id::from_number(id).ok_or(ReadError::Unknown)?;
        let reader = handle.reader(known).ok_or(ReadError::Unknown)?;
        let mut piece = match flags {
            0 => reader.lock().unwrap_or_else(PoisonError::into_inner),
            // Another thread may hold it until the peer sends more.
            _ => match reader.try_lock() {
                Ok(piece) => piece,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    let text = "another thread reads this message: let one thread read it";
                    return Err(Error::new(libc::EAGAIN, text));
                }
            },
        };
        if piece.left().is_empty() {
            // Its memory is not needed while the next one is awaited.
            *piece = table::Piece::default();
            let more = match flags {
                0 => handle.socket.read(known),
                _ => handle.socket.try_read(known),
            };
            if !known.is_request() && !matches!(more, Ok(Some(_)) | Err(ReadError::WouldBlock)) {
                handle.forget(id);
            }
            *piece = more?.unwrap_or_default().into();
        }
        let left = piece.left();
        let copied = left.len().min(len).min(c_int::MAX as usize);
        // SAFETY: the caller guarantees `len` bytes, and these are no more.
        unsafe { ptr::copy_nonoverlapping(left.as_ptr(), buf.cast::<u8>(), copied) };
        piece.offset += copied;
        Ok(copied as c_int)
    })
}

/// As homa_sendv, but only the length of the request is given. homa_write gives its bytes, and
/// sends them while the program makes the rest. The deadline of the call includes the writing.
/// homa_abort gives the call up.
///
/// Returns 0, or -1 as homa_send: the declared length counts as bytes in progress from the
/// beginning (EAGAIN).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_send_begin(
    sockfd: c_int,
    reqlen: usize,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: *mut u64,
    options: *const homa_send_options,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        if id.is_null() {
            return Err(Error::null("id"));
        }
        // SAFETY: the caller guarantees address, id and options.
        unsafe {
            let to = destination(dest_addr, addrlen)?;
            let options = call(&handle, id, options)?;
            id.write_unaligned(handle.socket.begin_send(to, reqlen, &options)?.number());
        }
        Ok(0)
    })
}

/// As homa_reply, but only the length of the response is given. homa_write gives its bytes, and
/// sends them while the program makes the rest. homa_abort gives the response up, and the client's
/// call fails with ECONNABORTED.
///
/// Returns 0, or -1 as homa_reply: the declared length counts as bytes in progress from the
/// beginning (EAGAIN).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply_begin(
    sockfd: c_int,
    resplen: usize,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: u64,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        // SAFETY: the caller guarantees the address.
        let to = unsafe { address::read_given(dest_addr, addrlen, "dest_addr")? };
        let known = Id::from_number(id).ok_or(homa::ReplyError::Gone)?;
        handle.socket.begin_reply(known, to, resplen)?;
        handle.forget(id);
        Ok(0)
    })
}

/// Sends the next bytes of the request of call `id` (homa_send_begin), or of the response to
/// request `id` (homa_reply_begin). With the last byte of its declared length the message is whole.
/// Never blocks, and copies the bytes.
///
/// Returns 0, or -1: EBADF; EFAULT; EMSGSIZE (more than the declared length; nothing was sent);
/// EPIPE (the client gave up, or the call has ended, which homa_recv returns; or no message with
/// this id is written).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_write(
    sockfd: c_int,
    buf: *const c_void,
    len: usize,
    id: u64,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        if buf.is_null() && len > 0 {
            return Err(Error::null("buf"));
        }
        let known = Id::from_number(id).ok_or(homa::error::WriteError::Gone)?;
        let bytes = match len {
            0 => &[],
            // More than any message has is refused by its length alone.
            // SAFETY: not null, and the caller guarantees `len` bytes.
            _ => unsafe { slice::from_raw_parts(buf.cast::<u8>(), len.min(isize::MAX as usize)) },
        };
        handle.socket.write(known, bytes)?;
        Ok(0)
    })
}
