//! Errors of messages that are read while they arrive, or written while they are sent.

/// The rest of a request that is read while it arrives will not come: see
/// [`Request::arrived`](crate::Request::arrived).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The client cancelled the call or disappeared, or the request was already answered.
    #[error("the client no longer sends this request: undo the work, or keep what arrived")]
    Gone,
    /// The client's deadline passed.
    #[error("the deadline of the request passed while it arrived: stop the work")]
    DeadlineExceeded,
    /// The request was accepted before the process was forked.
    #[error("the request was accepted before fork(): only the parent process can read it")]
    Forked,
}

/// A message that is written while it is sent was not written as declared, or is not wanted any
/// more: see [`CallWriter`](crate::CallWriter) and [`ReplyWriter`](crate::ReplyWriter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// More than the declared length. Nothing of the last piece was sent.
    #[error("only {left} bytes of the declared length are left: declare a longer message")]
    TooLong {
        /// Bytes that may still be written.
        left: usize,
    },
    /// The message was finished before its declared length, and is given up.
    #[error("{missing} bytes of the declared length were not written: the message is given up")]
    Unfinished {
        /// Bytes that were not written.
        missing: usize,
    },
    /// The RPC has ended. A [`CallWriter`](crate::CallWriter) has its result.
    #[error("the RPC has ended: stop writing, and finish the call for its result")]
    Gone,
    /// The writer was created before the process was forked.
    #[error("the writer was created before fork(): only the parent process can write")]
    Forked,
}
