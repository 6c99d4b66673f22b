//! Sends requests and replies, and cancels RPCs.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::slice;
use std::time::Duration;

use homa::CallOptions;
use homa::socket::{Id, SendOptions};
use libc::{iovec, sockaddr, socklen_t};

use crate::address;
use crate::error::{Error, guard};
use crate::options::read_sized;
use crate::table::{self, Handle};
use crate::text;

/// Flag of a private call: its completion is returned only by a homa_recv that names its id, and
/// does not make the descriptor readable.
pub const HOMA_SEND_PRIVATE: u32 = 1;
/// Flag of a call: the server may execute the request twice. Then the call survives a restart of
/// the server. Only the profile "default" uses it. With the other profiles every request may be
/// executed twice.
pub const HOMA_SEND_IDEMPOTENT: u32 = 2;
/// Flag of a call: homa_read reads the response while it arrives.
pub const HOMA_SEND_PIECES: u32 = 4;

/// Options of a call. Initialize them with HOMA_SEND_OPTIONS_INIT. For `size`, see struct
/// homa_options.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct homa_send_options {
    /// sizeof(struct homa_send_options).
    pub size: usize,
    /// A number that is returned with the response, in struct homa_message.
    pub completion_cookie: u64,
    /// HOMA_SEND_PRIVATE, HOMA_SEND_IDEMPOTENT, HOMA_SEND_PIECES, or several of them.
    pub flags: u32,
    /// How long the call may take, in milliseconds. 0 means the deadline in the socket's options.
    pub deadline_ms: u32,
}

/// Reads the options of a call.
///
/// # Safety
///
/// `options` points to options with their `size`.
pub unsafe fn read_options(options: *const homa_send_options) -> Result<homa_send_options, Error> {
    // SAFETY: the caller guarantees the options, and zeroes are a value of these numbers.
    let given = unsafe { read_sized(options, "options")? };
    let known = HOMA_SEND_PRIVATE | HOMA_SEND_IDEMPOTENT | HOMA_SEND_PIECES;
    if given.flags & !known != 0 {
        return Err(Error::invalid(format!("unknown bits in `options->flags`: {}", given.flags)));
    }
    Ok(given)
}

/// The bytes of a message in the caller's memory.
#[derive(Clone, Copy)]
pub enum Given {
    /// One piece and its length.
    One(*const c_void, usize),
    /// Several pieces and their number.
    Pieces(*const iovec, c_int),
}

impl Given {
    /// Copies the bytes. Fails before it copies anything if there are more than `max`.
    ///
    /// # Safety
    ///
    /// Every pointer is null or points to memory of the length given with it.
    pub unsafe fn gather(self, what: &str, max: u32) -> Result<Vec<u8>, Error> {
        let one;
        let pieces = match self {
            Self::One(bytes, length) => {
                one = [iovec { iov_base: bytes.cast_mut(), iov_len: length }];
                &one[..]
            }
            // SAFETY: the caller guarantees the pieces.
            Self::Pieces(pieces, count) => unsafe { list(pieces, count)? },
        };
        let add = |sum: usize, piece: &iovec| sum.checked_add(piece.iov_len);
        let length = pieces.iter().try_fold(0, add).filter(|&length| length <= max as usize);
        let length = length.ok_or_else(|| {
            let text = format!("`{what}` is longer than `max_message`, {max} bytes: split it");
            Error::new(libc::EMSGSIZE, text)
        })?;
        let mut all = Vec::new();
        all.try_reserve_exact(length).map_err(|_| {
            Error::new(libc::ENOMEM, format!("no memory to copy `{what}`, {length} bytes"))
        })?;
        for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
            if piece.iov_base.is_null() {
                return Err(Error::null(what));
            }
            // SAFETY: not null, no longer than a message, and the caller guarantees the bytes.
            let bytes = unsafe { slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
            all.extend_from_slice(bytes);
        }
        Ok(all)
    }
}

/// Returns the pieces of a message.
///
/// # Safety
///
/// `pieces` is null or points to `count` pieces, which outlive the result.
unsafe fn list<'a>(pieces: *const iovec, count: c_int) -> Result<&'a [iovec], Error> {
    let count = usize::try_from(count).ok().filter(|&n| n <= libc::UIO_MAXIOV as usize);
    match count.ok_or_else(|| Error::invalid("`iovcnt` must be 0 to 1,024"))? {
        0 => Ok(&[]),
        _ if pieces.is_null() => Err(Error::null("iov")),
        // SAFETY: not null, and the caller guarantees this number of pieces.
        count => Ok(unsafe { slice::from_raw_parts(pieces, count) }),
    }
}

/// Sends a request to a server. homa_recv will return the response or error with the same id, which
/// is even and never 0. `id` may be null, except with HOMA_SEND_PRIVATE, because only the id brings
/// that response.
///
/// Never blocks. The request is copied, so the caller may reuse `request` at once. It is sent by a
/// thread that waits in homa_recv, or by a thread of libhoma.
///
/// Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes with a profile other than
/// "default", no port, or not the address of a single host); EMSGSIZE; EAFNOSUPPORT; EAGAIN (too
/// many calls or bytes in progress: receive some responses first); ENOBUFS (too many peers); ENOKEY
/// (another host, and neither a key file nor HOMA_PLAINTEXT); ENOMEM; ESHUTDOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_send(
    sockfd: c_int,
    request: *const c_void,
    reqlen: usize,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: *mut u64,
) -> c_int {
    guard(|| {
        let bytes = Given::One(request, reqlen);
        // SAFETY: the caller guarantees request, address and id.
        unsafe { send(sockfd, bytes, (dest_addr, addrlen), id, std::ptr::null()) }
    })
}

/// As homa_send, with a request in `iovcnt` pieces and options of the call (null: defaults).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_sendv(
    sockfd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: *mut u64,
    options: *const homa_send_options,
) -> c_int {
    guard(|| {
        let bytes = Given::Pieces(iov, iovcnt);
        // SAFETY: the caller guarantees pieces, address, id and options.
        unsafe { send(sockfd, bytes, (dest_addr, addrlen), id, options) }
    })
}

/// # Safety
///
/// As for [`Given::gather`]. The address is null or has the given length, `id` is null or writable,
/// and `options` is null or has the size that it contains.
unsafe fn send(
    sockfd: c_int,
    request: Given,
    (to, length): (*const sockaddr, socklen_t),
    id: *mut u64,
    options: *const homa_send_options,
) -> Result<c_int, Error> {
    let handle = table::get(sockfd)?;
    // SAFETY: the caller guarantees address and options.
    let (to, send) = unsafe { (destination(to, length)?, call(&handle, id, options)?) };
    // SAFETY: the caller guarantees the request.
    let bytes = unsafe { request.gather("request", handle.max_message)? };
    let sent = handle.socket.send(to, bytes, &send)?;
    if !id.is_null() {
        // SAFETY: not null, and the caller guarantees it.
        unsafe { id.write_unaligned(sent.number()) };
    }
    Ok(0)
}

/// Reads the address of a server.
///
/// # Safety
///
/// The address is null or has the given length.
pub unsafe fn destination(to: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Error> {
    // SAFETY: the caller guarantees the address.
    let to = unsafe { address::read(to, length, "dest_addr")? };
    // This is checked before anything is copied. The call checks the other parts of the address.
    match to.port() {
        0 => Err(Error::invalid(format!("{to} has no port: name the port of the server"))),
        _ => Ok(to),
    }
}

/// Reads the options of a call whose id is written to `id`.
///
/// # Safety
///
/// `options` is null or has the size that it contains.
pub unsafe fn call(
    handle: &Handle,
    id: *const u64,
    options: *const homa_send_options,
) -> Result<SendOptions, Error> {
    let mut call = CallOptions::deadline(handle.deadline);
    let mut send = SendOptions::from(call);
    if !options.is_null() {
        // SAFETY: the caller guarantees the options.
        let given = unsafe { read_options(options)? };
        if given.deadline_ms != 0 {
            call.deadline = Duration::from_millis(given.deadline_ms.into());
        }
        call.idempotent = given.flags & HOMA_SEND_IDEMPOTENT != 0;
        let private = given.flags & HOMA_SEND_PRIVATE != 0;
        if private && id.is_null() {
            let text = "`id` is null, but the response of a private call needs it: pass a pointer";
            return Err(Error::new(libc::EFAULT, text));
        }
        let window = if given.flags & HOMA_SEND_PIECES != 0 { handle.window } else { 0 };
        send = SendOptions::from(call).cookie(given.completion_cookie).private(private);
        send = send.read_window(window);
    }
    Ok(send)
}

/// Answers the request `id` that homa_recv returned. `dest_addr` must be the address that it
/// returned with the request, or null, because the id is enough. Never blocks, and copies
/// `response`. Returns 0 if the client has given up meanwhile. The rest of the request that
/// HOMA_RECV_PARTIAL kept is dropped.
///
/// Returns 0, or -1: EBADF; EFAULT (a null pointer); EINVAL (no bytes with a profile other than
/// "default", or no request with this id and address waits for a reply: it was answered or aborted
/// before, or never received); EMSGSIZE; EAGAIN (too many bytes in progress); ENOMEM. After
/// EMSGSIZE, EAGAIN and ENOMEM the request still waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    sockfd: c_int,
    response: *const c_void,
    resplen: usize,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: u64,
) -> c_int {
    guard(|| {
        let bytes = Given::One(response, resplen);
        // SAFETY: the caller guarantees response and address.
        unsafe { reply(sockfd, bytes, (dest_addr, addrlen), id) }
    })
}

/// As homa_reply, with a response in `iovcnt` pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_replyv(
    sockfd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
    id: u64,
) -> c_int {
    guard(|| {
        let bytes = Given::Pieces(iov, iovcnt);
        // SAFETY: the caller guarantees pieces and address.
        unsafe { reply(sockfd, bytes, (dest_addr, addrlen), id) }
    })
}

/// # Safety
///
/// As for [`Given::gather`]. The address is null or has the given length.
unsafe fn reply(
    sockfd: c_int,
    response: Given,
    (to, length): (*const sockaddr, socklen_t),
    id: u64,
) -> Result<c_int, Error> {
    let handle = table::get(sockfd)?;
    // SAFETY: the caller guarantees the address.
    let to = unsafe { address::read_given(to, length, "dest_addr")? };
    let known = Id::from_number(id).ok_or(homa::ReplyError::Gone)?;
    // SAFETY: the caller guarantees the response.
    let bytes = unsafe { response.gather("response", handle.max_message)? };
    handle.socket.reply(known, to, bytes)?;
    handle.forget(id);
    Ok(0)
}

/// Stores in *microseconds how long the client will still wait for the answer to a request. 0 means
/// that the client gave up or its deadline has passed, so the work can be stopped. UINT64_MAX means
/// that the client did not tell, as clients that use the kernel module or an old build. Requests
/// whose deadline passes before they are received are dropped.
///
/// Returns 0, or -1: EBADF; EFAULT; EINVAL (no request with this id waits for an answer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_remaining(sockfd: c_int, id: u64, microseconds: *mut u64) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        if microseconds.is_null() {
            return Err(Error::null("microseconds"));
        }
        let known = Id::from_number(id).ok_or(homa::ReplyError::Gone)?;
        let left = handle.socket.remaining(known).ok_or(homa::ReplyError::Gone)?;
        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        // SAFETY: not null, and the caller guarantees it.
        unsafe { microseconds.write_unaligned(left) };
        Ok(0)
    })
}

/// Writes who the client of a request has proved to be, and a zero byte, at most `len` bytes in
/// total: "cluster" if it holds the key of the cluster, or the first name in its certificate (a URI
/// such as a SPIFFE id, otherwise a DNS name; "certificate" if it has neither). The text is empty
/// if the socket has no key. `buf` may be null if `len` is 0.
///
/// Returns the length of the whole text without the zero byte, or -1: EBADF; EFAULT; EINVAL (no
/// request with this id waits for an answer).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_peer_identity(
    sockfd: c_int,
    id: u64,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        let known = Id::from_number(id).ok_or(homa::ReplyError::Gone)?;
        handle.socket.remaining(known).ok_or(homa::ReplyError::Gone)?;
        let identity = handle.socket.peer_identity(known);
        let text = identity.map(|identity| identity.to_string()).unwrap_or_default();
        // SAFETY: the caller guarantees `len` bytes unless the pointer is null.
        unsafe { text::write(&text, buf, len) }
    })
}

/// Cancels an RPC. A call (even id) is also cancelled at its server. If `error` is 0, homa_recv
/// never returns the call. Otherwise homa_recv returns it as failed with that errno. A request (odd
/// id) will not be answered, and its client's call fails at once. With id 0, all calls in progress
/// are cancelled.
///
/// Returns 0, or -1: EBADF; EINVAL (a negative error, or no such RPC: its end was received, or it
/// was answered).
#[unsafe(no_mangle)]
pub extern "C" fn homa_abort(sockfd: c_int, id: u64, error: c_int) -> c_int {
    guard(|| {
        let handle = table::get(sockfd)?;
        if error < 0 {
            return Err(Error::invalid(
                "`error` is negative: name an errno such as ECANCELED, or 0",
            ));
        }
        let reason = (error != 0).then_some(error);
        match Id::from_number(id) {
            None => {
                handle.socket.abort_all(reason);
                handle.forget_calls();
            }
            Some(known) if handle.socket.abort(known, reason) => handle.forget(id),
            Some(_) if handle.rest(id).is_some() => {}
            Some(_) => return Err(Error::invalid(format!("no RPC with the id {id} to abort"))),
        }
        Ok(0)
    })
}
