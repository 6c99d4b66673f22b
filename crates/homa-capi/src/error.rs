//! `errno` and the text that goes with it.
//!
//! The values follow the kernel module where it has one for the situation (`man/homa.7`).

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use homa::socket::{CallFailure, ReceiveError};
use homa::{CallError, OpenError, ReplyError};

/// Why a function fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// For `errno`.
    pub errno: c_int,
    /// For people: what to do next.
    pub text: String,
}

impl Error {
    /// An error with its text.
    pub fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// Misuse.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }

    /// A pointer that must not be null is.
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
            CallError::TooManyCalls { .. } | CallError::SendMemoryFull { .. } => libc::EAGAIN,
            CallError::TooManyPeers { .. } => libc::ENOBUFS,
            CallError::AddressFamily { .. } => libc::EAFNOSUPPORT,
            CallError::DeadlineExceeded | CallError::Unreachable => libc::ETIMEDOUT,
            CallError::HostUnreachable => libc::EHOSTUNREACH,
            CallError::ProtocolUnreachable => libc::EPROTONOSUPPORT,
            CallError::PortUnreachable => libc::ENOTCONN,
            CallError::Indeterminate => libc::ECONNRESET,
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

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        let errno = match &error {
            OpenError::Bind { source, .. } | OpenError::Resources(source) => of_io(source),
            OpenError::InUse { .. } => libc::EADDRINUSE,
            OpenError::NeedsNetRaw | OpenError::NeedsXdp { .. } => libc::EPERM,
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

/// The texts handed out to a thread.
#[derive(Default)]
struct Texts {
    /// The last failure.
    last: (c_int, CString),
    /// What another errno means in general.
    general: CString,
}

/// Runs a function's body; what it returns or -1 and `errno`.
pub fn guard(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    // What a panic may have left half done is the engine's, which stands that.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(Error::new(libc::ENOTRECOVERABLE, "a bug of libhoma, reported on stderr: tell us"))
    });
    result.unwrap_or_else(|error| {
        remember(error.errno, error.text);
        // SAFETY: the C library gives every thread an errno, valid as long as the thread.
        unsafe { *libc::__errno_location() = error.errno };
        -1
    })
}

fn remember(errno: c_int, text: String) {
    // Texts are ours or the system's and hold no zero byte; an empty one does no harm.
    let text = CString::new(text).unwrap_or_default();
    // A thread that ends has no use for its text.
    let _ = TEXTS.try_with(|texts| texts.borrow_mut().last = (errno, text));
}

/// What an errno means. If it is that of the last failed libhoma call of this thread, the text says
/// what was wrong with this call and what to do next; otherwise it is as of strerror(3).
///
/// The text belongs to libhoma and is valid until the next call of a libhoma function by the same
/// thread (calls for different errnos leave that of the last failure alone). Never null.
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
