//! Why a reply could not be sent.

use homa_proto::SubmitError;

/// A reply could not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The response has no bytes, and the profile (`linux` or `sigcomm18`) cannot send that.
    #[error(
        "a message needs at least one byte in this profile: send a one-byte reply instead of an \
         empty one"
    )]
    EmptyMessage,
    /// The response is longer than our limit or, if known, the client's.
    #[error("the reply has {length} bytes and the limit is {max}: split it or raise `max_message`")]
    MessageTooLong {
        /// Bytes in the response.
        length: usize,
        /// The smaller of both limits, bytes.
        max: u32,
    },
    /// Back-pressure: outgoing messages use all of `send_memory`, or the client's host has its
    /// share.
    #[error(
        "outgoing messages hold {held} bytes: reply again later, shed load or raise `send_memory`"
    )]
    SendMemoryFull {
        /// Bytes in use.
        held: u64,
    },
    /// The client cancelled the call or disappeared, or the request was already answered.
    #[error("the client no longer waits for this reply: drop the work")]
    Gone,
    /// The request was accepted before the process was forked.
    #[error("the request was accepted before fork(): only the parent process can answer it")]
    Forked,
}

impl ReplyError {
    /// The error of a reply whose submission was refused.
    pub(crate) fn refused(error: SubmitError, length: usize) -> Self {
        match error {
            SubmitError::EmptyMessage => Self::EmptyMessage,
            SubmitError::MessageTooLong { max } => Self::MessageTooLong { length, max },
            _ => Self::Gone,
        }
    }
}
