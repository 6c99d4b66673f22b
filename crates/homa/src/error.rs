//! Errors. Each message says what is wrong and what to do next.

use std::io;
use std::net::SocketAddr;

use homa_proto::{RpcError, SubmitError};

use crate::driver::Rejection;
pub use crate::error_pieces::{RequestError, WriteError};
pub use crate::open_error::OpenError;
use crate::open_error::REMEDIES;
pub use crate::reply_error::ReplyError;
use crate::status::Status;

/// A call ended without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request has no bytes, and the profile (`linux` or `sigcomm18`) cannot send that.
    #[error(
        "a message needs at least one byte in this profile: send a one-byte request instead of an \
         empty one"
    )]
    EmptyMessage,
    /// The request is longer than our limit or, if known, the server's.
    #[error(
        "the request has {length} bytes and the limit is {max}: split it or raise `max_message`"
    )]
    MessageTooLong {
        /// Bytes in the request.
        length: usize,
        /// The smaller of both limits, bytes.
        max: u32,
    },
    /// Back-pressure: `max_rpcs` calls are in progress.
    #[error("{max} calls are in progress: wait for some to finish or raise `max_rpcs`")]
    TooManyCalls {
        /// The configured limit.
        max: u32,
    },
    /// Back-pressure: `max_calls_per_server` calls to this server are in progress.
    #[error(
        "{max} calls to {server} are in progress: wait for some to finish (`ready_to`), call \
         another server, or raise `max_calls_per_server`"
    )]
    TooManyCallsTo {
        /// The server.
        server: SocketAddr,
        /// The configured limit.
        max: u32,
    },
    /// Back-pressure: outgoing messages use all of `send_memory`.
    #[error(
        "outgoing messages hold {held} bytes: wait for acknowledgements or raise `send_memory`"
    )]
    SendMemoryFull {
        /// Bytes in use.
        held: u64,
    },
    /// All of `max_peers` peers have RPCs in progress.
    #[error("{max} peers are in use: wait for calls to finish or raise `max_peers`")]
    TooManyPeers {
        /// The configured limit.
        max: u32,
    },
    /// The engine's socket is of the other address family.
    #[error("{to} cannot be reached from {local}: bind an address of the same family")]
    AddressFamily {
        /// The server.
        to: SocketAddr,
        /// The engine's address.
        local: SocketAddr,
    },
    /// The address cannot be that of a single server: port 0, multicast, or broadcast.
    #[error("{to} is not the address of a single host with a port: call the address of one server")]
    Destination {
        /// The address.
        to: SocketAddr,
    },
    /// Replies of this server are steered to another of the engines that share the address
    /// ([`inline::Engine::sharded`](crate::inline::Engine::sharded)).
    #[error(
        "replies from {to} are steered to another shard: call from the engine for which `hears` \
         returns true"
    )]
    OtherShard {
        /// The server.
        to: SocketAddr,
    },
    /// No response arrived before the deadline.
    #[error("no response before the deadline: retry with a longer one if the call may run twice")]
    DeadlineExceeded,
    /// No response arrived before the deadline, and the call blocked a thread of an async runtime
    /// meanwhile (feature `tokio`). If the server, or what it waits for, is a task of that thread,
    /// it could not run.
    #[error(
        "no response before the deadline, and the call blocked a thread of an async runtime, so \
         that its tasks could not run, perhaps the server's: use `call_async` in async code, or \
         `spawn_blocking`"
    )]
    RuntimeBlocked,
    /// No response arrived in time, and the system refused to send or receive packets meanwhile.
    /// The reason may have been temporary, so the call continued until its deadline. It may have
    /// been executed.
    #[error(
        "no response in time, and the system refused to send or receive: {}; check packet filters, \
         memory and the link's queue",
        words(*.errno)
    )]
    SendRefused {
        /// The last error number.
        errno: i32,
    },
    /// No response arrived in time, and the server's host sent packets of a type that the profile
    /// does not have (over raw IP). The call may have been executed.
    #[error(
        "no response in time, and the server's host sent packets of the unknown type {kind:#04x}: \
         the peer speaks a newer Homa; use a version or a profile that speaks it"
    )]
    NewerPeer {
        /// The type of the last such packet.
        kind: u8,
    },
    /// The system refused to send the request, and will refuse it again. The call was not executed.
    #[error(
        "the request was not sent, because the system refuses to send to this address: {}; check \
         the address, the routes and the engine's own address",
        words(*.errno)
    )]
    NotSent {
        /// The error number.
        errno: i32,
    },
    /// The engine cannot send or receive any more, because the system refuses to use its
    /// descriptors for good. A call in progress may have been executed.
    #[error(
        "the engine has ended, because the system refuses its descriptors: {}; look for code that \
         closes descriptors of others (a double close), and open another engine",
        words(*.errno)
    )]
    EngineFailed {
        /// The error number.
        errno: i32,
    },
    /// No encrypted session with the server could be made, because one end does not accept the
    /// other. The call was not executed.
    #[error(
        "{server} was not called, because no session with it could be made with {keys}: {reason}"
    )]
    HandshakeRefused {
        /// The server.
        server: SocketAddr,
        /// Our keys, in words: for example the key file.
        keys: Box<str>,
        /// The reason, and what to do.
        reason: HandshakeRefusal,
    },
    /// The server is not on loopback, the engine has no keys, and plaintext was not chosen. Nothing
    /// was sent.
    #[error("a call to {to} would travel in plaintext: {REMEDIES}")]
    Unprotected {
        /// The server.
        to: SocketAddr,
    },
    /// The server did not answer.
    #[error("the server cannot be reached: check its address and that it runs")]
    Unreachable,
    /// The network reported that the server's host cannot be reached. This error and the next two
    /// are returned only if the call was certainly not executed, except with `linux` and
    /// `sigcomm18`, in which any call may be executed more than once. Idempotent calls are retried
    /// until their deadline instead.
    #[error("the server's host cannot be reached: check the address, the host and the routes")]
    HostUnreachable,
    /// The server's host reported that it does not support IP protocol 146.
    #[error("the server's host does not speak Homa over IP: start a server there, or use UDP")]
    ProtocolUnreachable,
    /// The server's host, or an engine there, reported that no server listens at the port.
    #[error("nothing listens at the server's port: check the port and that the server runs")]
    PortUnreachable,
    /// The server lost the call, for example because it restarted, or is gone. It may or may not
    /// have executed the call.
    #[error(
        "the server is gone, or lost the call, which it may have executed: check the effect, or \
         mark the call idempotent so that it is retried"
    )]
    Indeterminate,
    /// The server's application ended the request without an answer: its handler panicked, raised,
    /// or dropped it. A part of it may have been executed. It is not retried, even if it is
    /// idempotent, because the handler would probably do the same again.
    #[error(
        "the server's handler ended without an answer (a panic, an exception, or a dropped \
         request), perhaps after a part of the work: look at the server's log"
    )]
    Abandoned,
    /// The server has more to do than it can do in time, and refused the call. The call was not
    /// executed. It is not retried, even if it is idempotent, because that would add to the load.
    #[error(
        "the server is overloaded and did not execute the call: call again later, or call another \
         server"
    )]
    Overloaded,
    /// The server's application refused with a code and a message
    /// ([`CallOptions::status`](method@crate::CallOptions::status)). The call was executed, as far
    /// as the application did.
    #[error(transparent)]
    Status(Box<Status>),
    /// The server reported that the request is longer than it accepts.
    #[error("the server accepts requests of at most {max} bytes: split the request")]
    RequestTooLong {
        /// The server's limit, bytes.
        max: u32,
    },
    /// The response is longer than this side accepts or the server may send. The call was executed.
    #[error(
        "the response has {length} bytes and the limit is {max}: ask for less, or raise \
         `max_message` at both sides"
    )]
    ResponseTooLong {
        /// Bytes in the response.
        length: u32,
        /// The limit that it exceeds, the server's or ours, bytes.
        max: u32,
    },
    /// The engine is draining or closed.
    #[error("the engine is shutting down: use another engine for new calls")]
    ShuttingDown,
    /// The engine or the call was created before the process was forked.
    #[error("the engine was created before fork(): open a new one in the child")]
    Forked,
}

/// Why two engines did not make a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeRefusal {
    /// The peer has another cluster key.
    #[error(
        "it has another cluster key; give both ends the same key file (during a rotation, both \
         files need both keys)"
    )]
    OtherKey,
    /// The peer has no keys.
    #[error(
        "it speaks plaintext only; start it with keys (`--key`, `Config::keys`), or call it in \
         plaintext by choice (`--plaintext`, `Config::plaintext`)"
    )]
    NoKeys,
    /// We have no keys, and the peer accepts only encrypted requests.
    #[error("it accepts only encrypted requests; call with its key file (`--key`, `Config::keys`)")]
    KeysRequired,
    /// The policy of one end does not admit the other's identity.
    #[error("the policy of one end does not admit the other; change the policy or the identity")]
    NotAdmitted,
    /// Another reason.
    #[error("{0}")]
    Other(Box<str>),
}

/// The system's words for an error number.
fn words(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::DeadlineExceeded => Self::DeadlineExceeded,
            RpcError::Indeterminate => Self::Indeterminate,
            RpcError::RequestTooLong { max } => Self::RequestTooLong { max },
            RpcError::ResponseTooLong { length, max } => Self::ResponseTooLong { length, max },
            RpcError::Overloaded => Self::Overloaded,
            RpcError::Abandoned => Self::Abandoned,
            RpcError::HostUnreachable => Self::HostUnreachable,
            RpcError::ProtocolUnreachable => Self::ProtocolUnreachable,
            RpcError::PortUnreachable => Self::PortUnreachable,
            RpcError::NotSent { errno } => Self::NotSent { errno },
            RpcError::EndpointFailed { errno } => Self::EngineFailed { errno },
            // Reasons that later versions add also mean that no answer will come.
            _ => Self::Unreachable,
        }
    }
}

impl CallError {
    /// The error of a call whose packet was rejected.
    pub(crate) fn rejected(rejection: &Rejection) -> Self {
        let Rejection { to, keys, why, .. } = rejection.clone();
        Self::HandshakeRefused { server: to, keys, reason: why }
    }

    /// The error of a call whose submission was refused.
    pub(crate) fn refused(error: SubmitError, length: usize, max_peers: u32) -> Self {
        match error {
            SubmitError::EmptyMessage => Self::EmptyMessage,
            SubmitError::MessageTooLong { max } => Self::MessageTooLong { length, max },
            SubmitError::TooManyRpcs { max } => Self::TooManyCalls { max },
            _ => Self::TooManyPeers { max: max_peers },
        }
    }
}

/// Not everything finished before the timeout of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{calls} calls and {requests} requests are unfinished: drain longer or drop the engine")]
pub struct DrainTimeout {
    /// Our calls without a response.
    pub calls: usize,
    /// Requests of others without an acknowledged reply.
    pub requests: usize,
}
