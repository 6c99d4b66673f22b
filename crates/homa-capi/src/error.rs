//! Errors: the value of `errno`, and the text for `homa_strerror`.
//!
//! If the kernel module has an errno for the same situation, the value is the same (`man/homa.7`).

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use homa::error::WriteError;
use homa::socket::{CallFailure, ReadError, ReceiveError};
use homa::{CallError, KeysError, OpenError, ReplyError, RequestError, SocketFault};

/// The error of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The value for `errno`.
    pub errno: c_int,
    /// The text for users. It tells them what to do next.
    pub text: String,
}

impl Error {
    /// Creates an error with its text.
    pub fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// Creates an error for a wrong argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }

    /// Creates an error for a key file that cannot be used.
    pub fn keys(error: KeysError) -> Self {
        let errno = match &error {
            KeysError::Read { source, .. } | KeysError::ReadPem { source, .. } => {
                // It was read, but it is too long, or no text.
                source.raw_os_error().unwrap_or(libc::EINVAL)
            }
            KeysError::Exposed { .. } => libc::EACCES,
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }

    /// Creates an error for a null pointer that must not be null.
    pub fn null(what: &str) -> Self {
        Self::new(libc::EFAULT, format!("`{what}` is a null pointer"))
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        let errno = match &error {
            CallError::EmptyMessage | CallError::Destination { .. } => libc::EINVAL,
            CallError::MessageTooLong { .. }
            | CallError::RequestTooLong { .. }
            | CallError::ResponseTooLong { .. } => libc::EMSGSIZE,
            CallError::TooManyCalls { .. }
            | CallError::TooManyCallsTo { .. }
            | CallError::SendMemoryFull { .. } => libc::EAGAIN,
            CallError::TooManyPeers { .. } => libc::ENOBUFS,
            CallError::AddressFamily { .. } => libc::EAFNOSUPPORT,
            CallError::DeadlineExceeded
            | CallError::SendRefused { .. }
            | CallError::NewerPeer { .. }
            | CallError::RuntimeBlocked
            | CallError::Unreachable => libc::ETIMEDOUT,
            &CallError::NotSent { errno } => errno,
            CallError::HandshakeRefused { .. } => libc::EKEYREJECTED,
            CallError::Unprotected { .. } => libc::ENOKEY,
            CallError::EngineFailed { .. } => libc::EIO,
            CallError::HostUnreachable => libc::EHOSTUNREACH,
            CallError::ProtocolUnreachable => libc::EPROTONOSUPPORT,
            CallError::PortUnreachable => libc::ENOTCONN,
            CallError::Indeterminate => libc::ECONNRESET,
            CallError::Abandoned => libc::ECONNABORTED,
            CallError::Overloaded => libc::EBUSY,
            CallError::ShuttingDown => libc::ESHUTDOWN,
            CallError::Forked => libc::EBADF,
            _ => libc::EIO,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<CallFailure> for Error {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Call(error) => error.into(),
            CallFailure::Aborted(errno) => Self::new(errno, failure.to_string()),
            other => Self::new(libc::EIO, other.to_string()),
        }
    }
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        let errno = match &error {
            ReplyError::MessageTooLong { .. } => libc::EMSGSIZE,
            ReplyError::SendMemoryFull { .. } => libc::EAGAIN,
            ReplyError::Forked => libc::EBADF,
            ReplyError::Gone => {
                let text = "no request with this id from this address waits for a reply: \
                            was it answered before?";
                return Self::invalid(text);
            }
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<ReceiveError> for Error {
    fn from(error: ReceiveError) -> Self {
        let errno = match error {
            ReceiveError::WouldBlock => libc::EAGAIN,
            ReceiveError::Closed => libc::ESHUTDOWN,
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        let errno = match &error {
            ReadError::Call(failure) => return failure.clone().into(),
            ReadError::WouldBlock => libc::EAGAIN,
            ReadError::Ended(RequestError::DeadlineExceeded) => libc::ETIMEDOUT,
            ReadError::Ended(RequestError::Forked) => libc::EBADF,
            ReadError::Ended(_) => libc::ECANCELED,
            ReadError::Closed => libc::ESHUTDOWN,
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let errno = match error {
            WriteError::TooLong { .. } => libc::EMSGSIZE,
            WriteError::Forked => libc::EBADF,
            _ => libc::EPIPE,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        let errno = match &error {
            OpenError::Bind { source, .. } | OpenError::Resources(source) => of_io(source),
            OpenError::InUse { .. } => libc::EADDRINUSE,
            OpenError::Socket(SocketFault::NoSocket) => libc::ENOTSOCK,
            OpenError::Socket(SocketFault::Refused(source)) => of_io(source),
            OpenError::NeedsNetRaw | OpenError::NeedsXdp { .. } => libc::EPERM,
            OpenError::Unprotected { .. } => libc::ENOKEY,
            OpenError::ShuttingDown => libc::ESHUTDOWN,
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(of_io(&error), error.to_string())
    }
}

fn of_io(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        _ => libc::EIO,
    })
}

thread_local! {
    static TEXTS: RefCell<Texts> = RefCell::default();
}

/// The texts that were given to a thread.
#[derive(Default)]
struct Texts {
    /// The last error.
    last: (c_int, CString),
    /// The general meaning of another errno.
    general: CString,
}

/// Runs a function's body. Returns its result. If it fails, sets `errno` and returns -1.
pub fn guard(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    // A panic can only leave an operation of the engine incomplete, which the engine tolerates.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Error::new(libc::ENOTRECOVERABLE, "a bug in libhoma, described on stderr: report it"))
    });
    result.unwrap_or_else(|error| {
        remember(error.errno, error.text);
        // SAFETY: the C library gives every thread an errno, valid as long as the thread.
        unsafe { *libc::__errno_location() = error.errno };
        -1
    })
}

fn remember(errno: c_int, text: String) {
    // Texts come from this crate or the system, and contain no zero byte. If one did, the text
    // would be empty, which does no harm.
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends needs no text.
    let _ = TEXTS.try_with(|texts| texts.borrow_mut().last = (errno, text));
}

/// Describes an errno. If it is the errno of the thread's last failed libhoma call, the text says
/// what was wrong with this call and what to do next. Otherwise the text is that of strerror(3).
///
/// The text belongs to libhoma, and is valid until the same thread calls a libhoma function again.
/// The text of the last failed call also stays valid during calls of homa_strerror for other
/// errnos. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn homa_strerror(error: c_int) -> *const c_char {
    const NONE: &CStr = c"";
    let text = catch_unwind(|| {
        TEXTS.try_with(|texts| {
            let mut texts = texts.borrow_mut();
            if texts.last.0 == error {
                return texts.last.1.as_ptr();
            }
            let general = io::Error::from_raw_os_error(error).to_string();
            texts.general = CString::new(general).unwrap_or_default();
            texts.general.as_ptr()
        })
    });
    text.ok().and_then(Result::ok).unwrap_or(NONE.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_own_engine_ask_to_try_again() {
        let server = std::net::SocketAddr::from(([127, 0, 0, 1], 4000));
        for error in [
            CallError::TooManyCalls { max: 1 },
            CallError::TooManyCallsTo { server, max: 1 },
            CallError::SendMemoryFull { held: 1 },
        ] {
            let text = error.to_string();
            assert_eq!(Error::from(error), Error::new(libc::EAGAIN, text));
        }
    }
}
