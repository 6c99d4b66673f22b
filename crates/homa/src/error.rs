//! What can go wrong, by who has to act: each message says what to do next.

use std::io;
use std::net::SocketAddr;

use homa_proto::{ConfigError, RpcError, SubmitError};

/// An engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The local address is not available.
    #[error("cannot bind {at}: {source}; choose another address, or port 0 for any free port")]
    Bind {
        /// The address asked for.
        at: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Another socket has the local address, perhaps another engine's. Engines share a port only as
    /// shards that were opened together ([`Engine::sharded`](crate::Engine::sharded)); one engine
    /// serves it with any number of threads.
    #[error(
        "{at} is in use: open several engines for one port together, with `Engine::sharded`, or \
         accept from more threads by clones of one engine's `Server`; else end the program that \
         has it, or choose another port (0: any)"
    )]
    InUse {
        /// The address asked for.
        at: SocketAddr,
    },
    /// An address is shared by at least one engine, and by no more than the limits can be divided
    /// between.
    #[error(
        "{shards} engines cannot share an address with these limits: choose 1 to {most}, or raise \
         `max_rpcs`, `max_peers`, `send_memory`, `memory_budget` and the window's `max_incoming`, \
         which they divide (at most {} in any case)",
        crate::sharded::SHARDS_MAX
    )]
    Shards {
        /// How many were asked for.
        shards: usize,
        /// The most that are possible.
        most: usize,
    },
    /// One of several engines that share an address has a server already.
    #[error(
        "shard {shard} at {at} has a server: drop the servers of all shards before \
         `Sharded::serve`, or open one where it is missing, by `Engine::serve` of that shard \
         (`Sharded::engines`)"
    )]
    Served {
        /// The address that they share.
        at: SocketAddr,
        /// The first that has a server.
        shard: usize,
    },
    /// The system does not divide what comes to an address between sockets.
    #[error(
        "the system does not steer datagrams between sockets of one address \
         (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5): {0}; one engine, `Engine::bind`, serves it with \
         any number of threads"
    )]
    Steering(#[source] io::Error),
    /// A parameter of the protocol is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The MTU is too small to carry the headers.
    #[error("an MTU of {mtu} bytes leaves no room for payload: set at least 576")]
    Mtu {
        /// Bytes asked for.
        mtu: u16,
    },
    /// Sockets directly over IP are for processes with the capability CAP_NET_RAW.
    #[error(
        "Homa directly over IP needs the capability CAP_NET_RAW: grant it with `sudo setcap \
         cap_net_raw+ep PROGRAM`, or try it inside `unshare -Urn`; Homa over UDP needs no privilege"
    )]
    NeedsNetRaw,
    /// AF_XDP is for processes with capabilities that this one lacks.
    #[error(
        "AF_XDP needs CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW, and this process lacks {missing}: \
         run it as root, or grant them with `sudo setcap cap_net_admin,cap_bpf,cap_net_raw+ep \
         PROGRAM`; Homa over UDP needs no privilege"
    )]
    NeedsXdp {
        /// The capabilities that are missing, separated by commas.
        missing: String,
    },
    /// AF_XDP cannot be used at an interface.
    #[error(
        "AF_XDP cannot be used at the interface {interface}: cannot {step}: {source}{}; Homa over \
         UDP reaches the same peers",
        xdp_advice(.source)
    )]
    Xdp {
        /// Its name.
        interface: String,
        /// What was refused.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No interface that AF_XDP can be used at has the address.
    #[error(
        "no Ethernet interface that is up has the address of {at}, so there is none to use AF_XDP \
         at: bind the address of one, or use Homa over UDP"
    )]
    NoInterface {
        /// The address asked for.
        at: SocketAddr,
    },
    /// The engine is draining or has drained.
    #[error("the engine is shutting down: open another engine for new servers")]
    ShuttingDown,
    /// The engine belongs to the process that this one was forked from.
    #[error("the engine is that of the parent process: open one in the child, after the fork")]
    Forked,
    /// The system refused a thread or a descriptor.
    #[error("the system refused resources for the engine: {0}; check its limits (ulimit -n, -u)")]
    Resources(#[source] io::Error),
}

/// What to do about a refusal, where that is not plain.
fn xdp_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EBUSY) => {
            " (another process uses XDP there: one engine can, `ip link show` names the program)"
        }
        Some(libc::ENOBUFS) => {
            " (raise the limit of locked memory, ulimit -l, or grant CAP_IPC_LOCK)"
        }
        Some(libc::EPERM) => " (user namespaces and containers may not: run it on the host)",
        _ => "",
    }
}

impl OpenError {
    /// What it means that the system refused to bind an address:
    /// [`Self::InUse`] where another socket has the address, else [`Self::Bind`].
    pub fn bind(at: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { at },
            _ => Self::Bind { at, source },
        }
    }
}

/// A call that brought no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request has no bytes.
    #[error("a message needs at least one byte: send a one-byte request instead of an empty one")]
    EmptyMessage,
    /// The request is too long for us or, as far as known, for the server.
    #[error(
        "the request has {length} bytes and the limit is {max}: split it or raise `max_message`"
    )]
    MessageTooLong {
        /// Bytes in the request.
        length: usize,
        /// The smaller of both sides' limits, bytes.
        max: u32,
    },
    /// Back-pressure: as many calls as configured are in progress.
    #[error("{max} calls are in progress: wait for some to finish or raise `max_rpcs`")]
    TooManyCalls {
        /// The configured limit.
        max: u32,
    },
    /// Back-pressure: outgoing messages hold all the memory they may.
    #[error(
        "outgoing messages hold {held} bytes: wait for acknowledgements or raise `send_memory`"
    )]
    SendMemoryFull {
        /// Bytes held.
        held: u64,
    },
    /// Every peer that may be remembered is busy.
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
    /// No single server can be there: port 0, or a multicast or broadcast address.
    #[error("nobody can be called at {to}: name one host's address and the server's port")]
    Destination {
        /// The server.
        to: SocketAddr,
    },
    /// What the server answers comes to another of the engines that share the address
    /// ([`inline::Engine::sharded`](crate::inline::Engine::sharded)).
    #[error("{to} answers another shard: call it from the engine whose `hears` says so")]
    OtherShard {
        /// The server.
        to: SocketAddr,
    },
    /// No response within the call's deadline.
    #[error("no response before the deadline: retry with a longer one if the call may run twice")]
    DeadlineExceeded,
    /// Nothing was heard from the server.
    #[error("the server cannot be reached: check its address and that it runs")]
    Unreachable,
    /// The network answered that the server's host cannot be reached. Like the next two, only where
    /// the call was certainly not executed (but under `linux` and `sigcomm18`, where any call may
    /// be executed more than once); idempotent calls go on until their deadline.
    #[error("the server's host cannot be reached: check the address, the host and the routes")]
    HostUnreachable,
    /// The server's host answered that it does not know IP protocol 146.
    #[error("the server's host does not speak Homa over IP: start a server there, or use UDP")]
    ProtocolUnreachable,
    /// The server's host, or an engine there, answered that nothing listens at the port.
    #[error("nothing listens at the server's port: check the port and that the server runs")]
    PortUnreachable,
    /// The server lost the call, for example in a restart, gave it up without an answer, or is
    /// gone; it may or may not have executed it.
    #[error(
        "the server is gone, or lost or gave up the call, which it may have executed: check, or \
         mark the call idempotent to have it made again"
    )]
    Indeterminate,
    /// The server said that the request is longer than it accepts.
    #[error("the server accepts requests of at most {max} bytes: split the request")]
    RequestTooLong {
        /// The server's limit in bytes.
        max: u32,
    },
    /// The response is longer than this side accepts.
    #[error("the response has {length} bytes: raise `max_message` or ask for less")]
    ResponseTooLong {
        /// Bytes announced.
        length: u32,
    },
    /// The engine is draining or gone.
    #[error("the engine is shutting down: use another engine for new calls")]
    ShuttingDown,
    /// The engine, or the call, belongs to the process that this one was forked from.
    #[error("the engine is that of the parent process: open one in the child, after the fork")]
    Forked,
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::DeadlineExceeded => Self::DeadlineExceeded,
            RpcError::Indeterminate => Self::Indeterminate,
            RpcError::RequestTooLong { max } => Self::RequestTooLong { max },
            RpcError::ResponseTooLong { length } => Self::ResponseTooLong { length },
            RpcError::HostUnreachable => Self::HostUnreachable,
            RpcError::ProtocolUnreachable => Self::ProtocolUnreachable,
            RpcError::PortUnreachable => Self::PortUnreachable,
            // Reasons that later versions may add also mean that no answer will come.
            _ => Self::Unreachable,
        }
    }
}

impl CallError {
    /// What a refused submission means to the caller.
    pub(crate) fn refused(error: SubmitError, length: usize, max_peers: u32) -> Self {
        match error {
            SubmitError::EmptyMessage => Self::EmptyMessage,
            SubmitError::MessageTooLong { max } => Self::MessageTooLong { length, max },
            SubmitError::TooManyRpcs { max } => Self::TooManyCalls { max },
            _ => Self::TooManyPeers { max: max_peers },
        }
    }
}

/// A reply that could not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The response has no bytes.
    #[error("a message needs at least one byte: send a one-byte reply instead of an empty one")]
    EmptyMessage,
    /// The response is too long for us or, as far as known, for the client.
    #[error("the reply has {length} bytes and the limit is {max}: split it or raise `max_message`")]
    MessageTooLong {
        /// Bytes in the response.
        length: usize,
        /// The smaller of both sides' limits, bytes.
        max: u32,
    },
    /// Back-pressure: outgoing messages hold all the memory they may.
    #[error(
        "outgoing messages hold {held} bytes: reply again later, shed load or raise `send_memory`"
    )]
    SendMemoryFull {
        /// Bytes held.
        held: u64,
    },
    /// The client cancelled or vanished, or the request was answered before.
    #[error("the client no longer waits for this reply: drop the work")]
    Gone,
    /// The request belongs to the process that this one was forked from.
    #[error("the request is that of the parent process, which has to answer it")]
    Forked,
}

impl ReplyError {
    /// What a refused submission means to the server.
    pub(crate) fn refused(error: SubmitError, length: usize) -> Self {
        match error {
            SubmitError::EmptyMessage => Self::EmptyMessage,
            SubmitError::MessageTooLong { max } => Self::MessageTooLong { length, max },
            _ => Self::Gone,
        }
    }
}

/// Not everything finished before a drain's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{calls} calls and {requests} requests are unfinished: drain longer or drop the engine")]
pub struct DrainTimeout {
    /// Calls of ours without response.
    pub calls: usize,
    /// Requests of others without acknowledged reply.
    pub requests: usize,
}
