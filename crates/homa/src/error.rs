//! Errors. Each message says what is wrong and what to do next.

use std::io;
use std::net::SocketAddr;

use homa_proto::{ConfigError, RpcError, SubmitError};

use crate::driver::Rejection;
use crate::driver::udp::SocketFault;
pub use crate::error_pieces::{RequestError, WriteError};
use crate::handover::HandoverError;
pub use crate::reply_error::ReplyError;
use crate::status::Status;

/// An engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The local address is not available.
    #[error("cannot bind {at}: {source}; choose another address, or port 0 for any free port")]
    Bind {
        /// The requested address.
        at: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Another socket has the local address, perhaps that of another engine. Engines share a port
    /// only as shards that were opened together ([`Engine::sharded`](crate::Engine::sharded)); one
    /// engine serves it with any number of threads.
    #[error(
        "{at} is in use: choose another port (0: any), or end the program that uses it; to serve \
         one port with several engines, open them together with `Engine::sharded`, or accept from \
         more threads with clones of one `Server`"
    )]
    InUse {
        /// The requested address.
        at: SocketAddr,
    },
    /// The descriptor that was given for the engine's socket cannot be used.
    #[error("the descriptor cannot be the engine's socket: {0}")]
    Socket(#[from] SocketFault),
    /// The number of shards is zero, or more than the limits can be divided by.
    #[error(
        "{shards} engines cannot share an address with these limits: choose 1 to {most}, or raise \
         `max_rpcs`, `max_peers`, `send_memory`, `memory_budget` and the window's `max_incoming`, \
         which are split across the engines (at most {} engines)",
        crate::sharded::SHARDS_MAX
    )]
    Shards {
        /// The requested number.
        shards: usize,
        /// The largest possible number.
        most: usize,
    },
    /// One of several engines that share an address already has a server.
    #[error(
        "shard {shard} at {at} already has a server: drop the servers of all shards before \
         `Sharded::serve`, or call `Engine::serve` on the shards that have none \
         (`Sharded::engines`)"
    )]
    Served {
        /// The shared address.
        at: SocketAddr,
        /// The first shard that has a server.
        shard: usize,
    },
    /// The system does not steer datagrams between the sockets of one address.
    #[error(
        "the system does not steer datagrams between sockets of one address \
         (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5): {0}; use one engine, `Engine::bind`, with any \
         number of threads"
    )]
    Steering(#[source] io::Error),
    /// A parameter of the protocol is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The MTU is too small to carry the headers.
    #[error("an MTU of {mtu} bytes leaves no room for payload: set at least 576")]
    Mtu {
        /// The requested size, bytes.
        mtu: u16,
    },
    /// The process lacks the capability CAP_NET_RAW, which raw IP sockets need.
    #[error(
        "Homa directly over IP needs the capability CAP_NET_RAW: grant it with `sudo setcap \
         cap_net_raw+ep PROGRAM`, or try it inside `unshare -Urn`; Homa over UDP needs no privilege"
    )]
    NeedsNetRaw,
    /// The process lacks capabilities that AF_XDP needs.
    #[error(
        "AF_XDP needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW, and this process lacks {missing}: \
         run it as root, or grant them with `sudo setcap cap_net_admin,cap_bpf,cap_net_raw+ep \
         PROGRAM`; Homa over UDP needs no privilege"
    )]
    NeedsXdp {
        /// The missing capabilities, separated by commas.
        missing: String,
    },
    /// AF_XDP cannot be used on an interface.
    #[error(
        "AF_XDP cannot be used at the interface {interface}: cannot {step}: {source}{}; Homa over \
         UDP reaches the same peers",
        xdp_advice(.source)
    )]
    Xdp {
        /// Its name.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No interface that AF_XDP can use has the address.
    #[error(
        "no Ethernet interface that is up has the address of {at}, so AF_XDP cannot be used: bind \
         the address of such an interface, or use Homa over UDP"
    )]
    NoInterface {
        /// The requested address.
        at: SocketAddr,
    },
    /// The engine cannot take the place that was handed over.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// Other hosts reach the address, there are no keys, and plaintext was not chosen.
    #[error("an engine at {at} would exchange plaintext with other hosts: {REMEDIES}")]
    Unprotected {
        /// The address.
        at: SocketAddr,
    },
    /// Keys were given to an engine over raw IP.
    #[error(
        "Homa directly over IP cannot be encrypted, because the kernel module speaks plaintext \
         only: use UDP (`Engine::bind`), or no keys (`Config::plaintext`)"
    )]
    KeysOverIp,
    /// The engine is draining or has drained.
    #[error("the engine is shutting down: open another engine for new servers")]
    ShuttingDown,
    /// An event loop drives the engine already.
    #[error("an event loop already drives this engine: one is enough for all of its tasks")]
    Driven,
    /// The calling thread is in no tokio runtime.
    #[cfg(feature = "tokio")]
    #[error("there is no tokio runtime here: call this from a task, or after `Runtime::enter`")]
    NoRuntime,
    /// The engine was opened before the process was forked.
    #[error("the engine was created before fork(): open a new one in the child")]
    Forked,
    /// The system refused a thread or a descriptor.
    #[error("the system refused resources for the engine: {0}; check its limits (ulimit -n, -u)")]
    Resources(#[source] io::Error),
}

/// What to do if there are no keys and plaintext was not chosen.
const REMEDIES: &str = "encrypt with keys (`homa key new FILE`, then `Config::keys`, \
    `--key FILE`, `keys=FILE` in Python, `key_file` in C), or choose plaintext \
    (`Config::plaintext()`, `--plaintext`, `plaintext=True`, HOMA_PLAINTEXT)";

/// What to do if the system's reason does not say it.
fn xdp_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EBUSY) => {
            " (another process uses XDP there, and only one can: `ip link show` names its program)"
        }
        Some(libc::ENOBUFS) => {
            " (raise the limit of locked memory, ulimit -l, or grant CAP_IPC_LOCK)"
        }
        Some(libc::EPERM) => {
            " (not permitted in user namespaces and containers: run it on the host)"
        }
        _ => "",
    }
}

impl OpenError {
    /// The error for an address that the system refused to bind: [`Self::InUse`] if another socket
    /// has it, otherwise [`Self::Bind`].
    pub fn bind(at: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { at },
            _ => Self::Bind { at, source },
        }
    }
}

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
